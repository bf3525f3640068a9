"""The runs that some paths mean, each with the name that all outputs give it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from instrument.errors import InstrumentError, NoSuchRun
from instrument.paths import absent
from instrument.runs.folders import no_event_file
from instrument.runs.run import Run, Runs, find_runs, read_run


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
