"""`python -m instrument` is the command line, and so is the installed `instrument`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line, and end in one line where Ctrl+C comes while it is still being loaded."""
    try:
        from instrument.show.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("instrument: interrupted\n")
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
