"""Open the runs at the paths of a command, and print on stderr what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from instrument.facts.describe import losses_text
from instrument.facts.selection import select
from instrument.runs.run import Run
from instrument.show.terminal import tell as tell

#: The help of an argument that takes paths of runs.
PATHS = "the directory of a run or of several, or an event file"


class OpenedRuns:
    """The runs at the paths of a command, each with the name that all outputs give it.

    Iterating gives name and run, and releases each run before the next one, so that memory does not grow with their
    number; the losses of a run are printed on stderr then. A path without a run is printed there, too, and makes
    `status`, the exit status, 1.

    Raises:
        NoSuchRun: none of the paths has a run.
        OSError: the only path cannot be read.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        self._runs, notes, errors = select(paths)
        for note in notes:
            tell(note)
        self.status = tell_or_raise(errors, bool(self._runs))

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[tuple[str, Run]]:
        for name, run in self.quietly():
            yield name, run
            tell_losses(run)

    def quietly(self) -> Iterator[tuple[str, Run]]:
        """Iterate without printing losses, for outputs that hold them."""
        while self._runs:
            yield self._runs.pop(0)

    def pairs(self) -> list[tuple[str, Run]]:
        """Return the names and runs that are left."""
        return list(self._runs)


def tell_losses(run: Run) -> None:
    """Print on stderr what is missing of a run."""
    losses = losses_text(run)
    if losses:
        tell(f"{run.path}: {losses}; `instrument show` has the details")


def tell_replaced(run: Run, tags: Iterable[str]) -> None:
    """Print on stderr how many numbers of these tags a later start replaced, and how to get them."""
    count = run.contents.replaced(("scalar", tag) for tag in tags)
    if count:
        tell(
            f"{run.path}: a later start in this directory replaced {count} point{'s' * (count != 1)}; "
            "`instrument show RUN --tag TAG --superseded` has them"
        )


def tell_or_raise(errors: Sequence[Exception], has_result: bool) -> int:
    """Print the errors of some paths or runs on stderr; return the exit status, 1 if there are errors.

    Without any result the last error is raised, not printed.
    """
    for problem in dict.fromkeys(map(str, errors if has_result else errors[:-1])):
        if has_result or problem != str(errors[-1]):
            tell(problem)
    if errors and not has_result:
        raise errors[-1]
    return int(bool(errors))
