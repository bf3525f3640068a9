"""Choose runs by paths, each with the name that all outputs give it, and tags by patterns."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from instrument.errors import InstrumentError, NoSuchRun
from instrument.paths import absent
from instrument.runs.folders import no_event_file
from instrument.runs.run import Run, Runs, find_runs, matches, read_run
from instrument.wording import nearest, quoted, quoted_list

_GLOB = frozenset("*?[")


class Selection(NamedTuple):
    """The runs at some paths under their names, notes on the search, and why a path gave none."""

    runs: list[tuple[str, Run]]
    notes: list[str]
    errors: list[InstrumentError | OSError]


def select(paths: Sequence[str]) -> Selection:
    """Return the runs at some paths; a run that several paths lead to comes once."""
    located, notes, errors = list[tuple[str, Run]](), list[str](), list[InstrumentError | OSError]()
    seen = set[str]()
    for path in paths:
        try:
            runs = runs_at(path)
        except (InstrumentError, OSError) as error:
            errors.append(error)
            continue
        notes += runs.notes
        for run in runs:
            place = os.path.realpath(run.path)
            located += [(path, run)] if place not in seen else []
            seen.add(place)
    return Selection(with_names(located), notes, errors)


def runs_at(path: str) -> Runs:
    """Return the runs at and below a directory, or the one of an event file.

    Raises:
        NoSuchRun: there is none; the message says where the search was.
        OSError: the path cannot be read.
    """
    if not os.path.exists(path):
        raise NoSuchRun(f"{path} {absent(path)}; the directory of a run or of several, or an event file is expected")
    runs = find_runs(path) if os.path.isdir(path) else Runs([read_run(path)], [])
    if not runs:
        raise NoSuchRun(no_event_file(path))
    return runs


def with_names(located: Sequence[tuple[str, Run]]) -> list[tuple[str, Run]]:
    """Return runs with their names, given each with the path that it was found by.

    The name of a run is its place below that path, or the last part of the path where it is the run itself. Names that
    would be equal begin at the folder that all paths have in common.
    """
    names = [_name(root, run) for root, run in located]
    if len(set(names)) < len(names):
        common = os.path.commonpath([os.path.dirname(os.path.abspath(run.path)) for _, run in located])
        twice = {name for name, count in Counter(names).items() if count > 1}
        names = [
            os.path.relpath(run.path, common) if name in twice else name
            for name, (_, run) in zip(names, located, strict=True)
        ]
    return [(name, run) for name, (_, run) in zip(names, located, strict=True)]


def _name(root: str, run: Run) -> str:
    below = os.path.relpath(run.path, root)
    return run.name if below == os.curdir else below


# ---------------------------------------------------------------- tags


@dataclass(frozen=True)
class TagFilter:
    """Chooses the tags that match one of `include`, or any if that is empty, and none of `exclude`.

    A pattern matches a tag that is called so, and as a glob: `*` stands for any characters, `/` among them.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def __call__(self, tags: Iterable[str]) -> list[str]:
        """Return the tags that match, in their order."""
        included = [tag for tag in tags if not self.include or _matches_one(tag, self.include)]
        return [tag for tag in included if not _matches_one(tag, self.exclude)]

    @property
    def takes_all(self) -> bool:
        """True if no pattern was given."""
        return not self.include and not self.exclude

    def no_match(self, run: Run, tags: Iterable[str] | None = None) -> str:
        """Return the message that none of `tags` (default: all of the run) matches, with the first few of them."""
        names = sorted({tag for names in run.tags().values() for tag in names} if tags is None else set(tags))
        if len(self.include) == 1 and not self.exclude and not _GLOB.intersection(self.include[0]):
            return f"run {run.name!r} has no tag {quoted(self.include[0])}; {nearest(self.include[0], names)}"
        shown = quoted_list(names) or "none at all"
        wanted = " or ".join(map(quoted, self.include)) or "all"
        without = f" without {' and '.join(map(quoted, self.exclude))}" if self.exclude else ""
        return f"run {run.name!r} has no tag that matches {wanted}{without}; it has {shown}"


def _matches_one(tag: str, patterns: Iterable[str]) -> bool:
    return any(matches(tag, pattern) for pattern in patterns)


#: Takes every tag.
ALL_TAGS = TagFilter()
