"""Runs as a reader sees them. The package itself can be called: `read(path)` opens a run."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from instrument.read.run import Run


class _CallablePackage(ModuleType):
    """`instrument.read` names a package and the function that users call; whichever comes first, both work."""

    def __call__(self, path: str | os.PathLike[str]) -> Run:
        """Open the run at `path`, an event file or the directory that holds it; see `instrument.read.run.read`."""
        from instrument.read.run import read

        return read(path)


sys.modules[__name__].__class__ = _CallablePackage
