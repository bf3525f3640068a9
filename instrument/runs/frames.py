"""Points of many series as one `pandas.DataFrame`: a row a point, with columns that say whose it is."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from instrument.errors import NoSuchRun
from instrument.runs.points import Points, import_pandas
from instrument.wording import nearest, quoted

#: Columns of every frame, in their order.
COLUMNS = ("run", "tag", "step", "wall_time", "value", "device", "host")


class HasSeries(Protocol):
    """A run, as far as its series go."""

    def tags(self) -> dict[str, list[str]]:
        """Return the tags of each kind."""

    def points(self, kind: str, tag: str, superseded: bool = False) -> Points:
        """Return one series."""


def matches(tag: str, pattern: str) -> bool:
    """Return True where a tag is called like the pattern, or matches it as a glob; `*` stands for `/` as well."""
    return tag == pattern or fnmatch.fnmatchcase(tag, pattern)


def frame(runs: Iterable[tuple[str, HasSeries]], tags: str | Sequence[str], kind: str, superseded: bool) -> Any:
    """Return the points of runs, given with their names; see `Run.to_pandas`."""
    pandas = import_pandas()
    patterns = [tags] if isinstance(tags, str) else list(tags)
    frames, existing = [], set[str]()
    for name, run in runs:
        of_run = run.tags().get(kind, [])
        existing.update(of_run)
        for tag in of_run:
            if any(matches(tag, pattern) for pattern in patterns):
                points = run.points(kind, tag, superseded).to_pandas()
                points.insert(0, "tag", tag)
                points.insert(0, "run", name)
                if superseded and "superseded" not in points:
                    points["superseded"] = False
                frames.append(points)
    if not frames and existing and patterns != ["*"]:
        wanted = " or ".join(map(quoted, patterns))
        raise NoSuchRun(f"no {kind} has a tag that matches {wanted}; {nearest(patterns[0], sorted(existing))}")
    if not frames:
        return pandas.DataFrame(columns=[*COLUMNS, *(["superseded"] if superseded else [])])
    return pandas.concat(frames, ignore_index=True)
