"""The runs of a tree as a list, in which a run is found by its name as well."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from instrument.errors import NoSuchRun
from instrument.runs import frames
from instrument.runs.hints import nearest
from instrument.runs.presented import html_of

if TYPE_CHECKING:
    from instrument.runs.run import Run


class Runs(list["Run"]):
    """The runs of a tree, ordered by path; `notes` say which folders and links were skipped, and why.

    `runs["adam"]` is the run of that name: its place below the tree, or the end of that where one run alone ends so.
    """

    def __init__(self, runs: Iterable[Run], notes: list[str], root: str = "") -> None:
        super().__init__(runs)
        self.notes = notes
        self._root = root

    @property
    def names(self) -> list[str]:
        """The name of each run: its place below the tree, or for the tree itself the last part of the path."""
        return [self._name(run) for run in self]

    def _name(self, run: Run) -> str:
        if not self._root:
            return run.name
        below = os.path.relpath(run.path, self._root)
        return run.name if below == os.curdir else below

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Run: ...
    @overload
    def __getitem__(self, key: slice) -> Runs: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> Run | Runs:
        if isinstance(key, slice):
            return Runs(super().__getitem__(key), self.notes, self._root)
        return self._named(key) if isinstance(key, str) else super().__getitem__(key)

    def _named(self, name: str) -> Run:
        """Return the run of a name.

        Raises:
            NoSuchRun: there is none, or several end in it; the message names them.
        """
        names = self.names
        found = [run for run, own in zip(self, names, strict=True) if own == name]
        found = found or [run for run, own in zip(self, names, strict=True) if own.endswith(os.sep + name)]
        if len(found) == 1:
            return found[0]
        if found:
            several = [self._name(run) for run in found]
            raise NoSuchRun(f"{len(found)} runs end in {name!r}: {', '.join(several)}; give more of the path")
        raise NoSuchRun(f"there is no run {name!r}; {nearest(name, names)}")

    def to_pandas(self, tags: str | Sequence[str] = "*", kind: str = "scalar", superseded: bool = False) -> Any:
        """Return the points of all runs as one `pandas.DataFrame`; arguments and columns are those of `Run.to_pandas`.

        `frame.pivot_table(index="step", columns="run", values="value")` of one tag has a column a run.
        """
        return frames.frame(zip(self.names, self, strict=True), tags, kind, superseded)

    def _repr_html_(self) -> str:
        return html_of(self, "runs")
