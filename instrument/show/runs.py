"""The runs that the words of a command mean, one after the other, so that each is let go when it was shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from instrument.errors import NoSuchRun
from instrument.read.run import Run, Runs, find_runs, read
from instrument.show.describe import losses
from instrument.show.tables import escape


def runs_at(path: str) -> Runs:
    """The runs at and below a directory, or the one of an event file.

    Raises:
        NoSuchRun: there is none; the message says where was looked.
    """
    runs = Runs([read(path)], []) if os.path.isfile(path) else find_runs(path)
    for note in runs.notes:
        tell(note)
    if not runs:
        raise NoSuchRun(f"no event file in {path} or in a folder below it")
    return runs


def one_by_one(paths: Iterable[str]) -> Iterator[Run]:
    """The runs at these paths; what is missing of one is told on stderr."""
    for path in paths:
        runs = runs_at(path)
        while runs:
            run = runs.pop(0)
            yield run
            tell_losses(run)


def tell_losses(run: Run) -> None:
    """Say on stderr what is missing of a run."""
    lost = losses(run)
    if lost:
        tell(f"{run.path}: {lost}; `instrument show` has the details")


def tell_replaced(run: Run, tags: Iterable[str]) -> None:
    """Say on stderr how many numbers under these tags a later start replaced, and how they are to be had."""
    count = run.contents.replaced(("scalar", tag) for tag in tags)
    if count:
        tell(
            f"{run.path}: a later start in this directory replaced {count} point{'s' * (count != 1)}; "
            "`instrument show RUN --tag TAG --superseded` has them"
        )


def tell(note: str) -> None:
    """A line on stderr."""
    print(f"instrument: {escape(note)}", file=sys.stderr)
