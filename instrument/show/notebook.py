"""`%load_ext instrument`, and then `%instrument DIR`: the runs of a directory as tables in a notebook."""

from __future__ import annotations

import os
import shlex
from typing import Any

from instrument.errors import InstrumentError
from instrument.runs import folders
from instrument.runs.run import Run, Runs, find_runs, read_run

_USAGE = "usage: %instrument [DIR], with the directory of a run or of several, or an event file; without one: here"


def load_ipython_extension(shell: Any) -> None:
    """Register `%instrument`; IPython calls this for `%load_ext instrument`."""
    shell.register_magic_function(magic, "line", "instrument")


def magic(line: str) -> Run | Runs | None:
    """Return the run at a path, or the runs below it; the notebook shows the result as a table."""
    try:
        words = shlex.split(line)
        if len(words) > 1:
            raise ValueError(f"{len(words)} words")
        return open_at(os.path.expanduser(words[0]) if words else ".")
    except ValueError as error:
        print(f"{error}; {_USAGE}")
    except (InstrumentError, OSError) as error:
        print(error)
    return None


def open_at(path: str) -> Run | Runs:
    """Return the run at `path`, or the runs below it if it is no run itself."""
    if not os.path.isdir(path) or folders.event_files(path):
        return read_run(path)
    runs = find_runs(path)
    return runs if runs else read_run(path)  # raises with what is there instead
