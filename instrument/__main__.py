"""`python -m instrument` is the command line."""

from __future__ import annotations

import sys

from instrument.show.cli import main

if __name__ == "__main__":
    sys.exit(main())
