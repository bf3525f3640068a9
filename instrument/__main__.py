"""`python -m instrument` is the command line, and so is the installed `instrument`."""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130


def main() -> int:
    """Run the command line, and end in one line where Ctrl+C comes while it is still being loaded."""
    try:
        from instrument.show.cli import main as run

        status = run()
    except KeyboardInterrupt:
        sys.stderr.write("instrument: interrupted\n")
        sys.stderr.flush()
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        # At once: a second Ctrl+C must not interrupt the end of the interpreter, which may also still hold the first
        # one for an unhandled one, where it came inside of `exec`, and end by the signal.
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
