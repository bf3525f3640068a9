"""Runs as a reader sees them. The package itself can be called: `read(path)` opens a run."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os


class _CallablePackage(ModuleType):
    """`instrument.read` names a package and the function that users call; whichever comes first, both work."""

    def __call__(self, path: str | os.PathLike[str], follow: bool = False) -> Any:
        """Open what is at `path`: an event file, or the directory of one, as an `instrument.read.run.Run`.

        A directory that holds none itself, but runs below it, gives all of them, as `find_runs` does: a list of runs.
        With `follow` a run is up to date whenever it is asked, and may have no file yet.

        Raises:
            NoSuchRun: there is no event file; the message says what there is instead.
            OSError: the file or directory cannot be read.
        """
        from instrument.read.run import read_any

        return read_any(path, follow)


sys.modules[__name__].__class__ = _CallablePackage
