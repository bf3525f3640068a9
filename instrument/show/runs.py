"""The runs that the paths of a command mean, one after the other, so that each is let go when it was shown."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from instrument.errors import InstrumentError, NoSuchRun
from instrument.runs.hints import absent, no_event_file
from instrument.runs.run import Run, Runs, find_runs, read_run
from instrument.show.describe import losses
from instrument.show.terminal import tell as tell

#: What a path of a command may be, for the help of every verb that takes several.
PATHS = "the directory of a run or of several, or an event file"


class Selection:
    """The runs at some paths, each with the name that all outputs give it.

    A path is the directory of a run, a directory with runs below it, or an event file. A run that several paths lead to
    comes once. Its name is its place below the path that it was found by, or the last part of that path where it is
    the run itself; names that would be the same begin at the folder that all paths have in common.

    Iterating gives name and run, and lets each run go before the next; what is missing of one is told on stderr then.
    A path without a run is told on stderr, too; `status` is the exit status, 1 where there was one.

    Raises:
        NoSuchRun: none of the paths has a run.
        OSError: the only path cannot be read.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        self.status = 0
        self._runs = named(self._found())

    def _found(self) -> list[tuple[str, Run]]:
        """Return the runs with the path that each was found by."""
        found, seen, wrong = list[tuple[str, Run]](), set[str](), list[Exception]()
        for path in self.paths:
            try:
                runs = runs_at(path)
            except (InstrumentError, OSError) as error:
                wrong.append(error)
                continue
            for run in runs:
                place = os.path.realpath(run.path)
                found += [(path, run)] if place not in seen else []
                seen.add(place)
        self.status = tell_or_raise(wrong, bool(found))
        return found

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[tuple[str, Run]]:
        for name, run in self.quietly():
            yield name, run
            tell_losses(run)

    def quietly(self) -> Iterator[tuple[str, Run]]:
        """Iterate without a word on what is missing, for outputs that say it themselves."""
        while self._runs:
            yield self._runs.pop(0)

    def pairs(self) -> list[tuple[str, Run]]:
        """Return all that are left, for what needs them side by side."""
        return list(self._runs)


def named(found: Sequence[tuple[str, Run]]) -> list[tuple[str, Run]]:
    """Return runs with their names, given each with the path that it was found by."""
    names = [_name(root, run) for root, run in found]
    if len(set(names)) < len(names):
        common = os.path.commonpath([os.path.dirname(os.path.abspath(run.path)) for _, run in found])
        twice = {name for name, count in Counter(names).items() if count > 1}
        names = [
            os.path.relpath(run.path, common) if name in twice else name
            for name, (_, run) in zip(names, found, strict=True)
        ]
    return [(name, run) for name, (_, run) in zip(names, found, strict=True)]


def _name(root: str, run: Run) -> str:
    below = os.path.relpath(run.path, root)
    return run.name if below == os.curdir else below


def runs_at(path: str) -> Runs:
    """Return the runs at and below a directory, or the one of an event file.

    Raises:
        NoSuchRun: there is none; the message says where was looked.
    """
    if not os.path.exists(path):
        raise NoSuchRun(f"{path} {absent(path)}; the directory of a run or of several, or an event file is expected")
    runs = find_runs(path) if os.path.isdir(path) else Runs([read_run(path)], [])
    if not runs:
        raise NoSuchRun(no_event_file(path))
    for note in runs.notes:
        tell(note)
    return runs


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


def tell_or_raise(errors: Sequence[Exception], has_result: bool) -> int:
    """Say on stderr what some of several paths or runs lack; return the exit status, 1 where there is anything.

    Where none of them gave a result, the last of the errors is raised instead of told.
    """
    for problem in dict.fromkeys(map(str, errors if has_result else errors[:-1])):
        if has_result or problem != str(errors[-1]):
            tell(problem)
    if errors and not has_result:
        raise errors[-1]
    return int(bool(errors))
