"""Declare the arguments that verbs share, and return what they mean: the runs, the tags, the directions.

A module of a verb lists its `ARGUMENTS`: an `Argument` each, and a list of those that exclude each other.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from instrument.errors import InstrumentError, NoSuchRun
from instrument.facts.compare import Directions
from instrument.facts.describe import losses_text
from instrument.facts.selection import TagFilter, select
from instrument.runs.run import Run
from instrument.show.terminal import tell
from instrument.wording import counted

T = TypeVar("T")
#: Adds an argument to a parser, or to a group of one.
Argument = Callable[[argparse.ArgumentParser], object]


def argument(*names: str, **settings: Any) -> Argument:
    """Declare an argument, with what `add_argument` of argparse takes."""
    return lambda parser: parser.add_argument(*names, **settings)


def flag(name: str, meaning: str) -> Argument:
    """Declare an option without a value."""
    return argument(name, action="store_true", help=meaning)


_PATHS = "the directory of a run or of several, or an event file"
RUNS = argument("runs", metavar="RUN", nargs="+", help=_PATHS)
DIRECTORIES = argument("paths", metavar="DIR", nargs="*", default=["."], help=f"{_PATHS} (default: here)")
FILES = argument("paths", metavar="PATH", nargs="+", help="an event file, a run, or a directory with runs below it")
FORCE = flag("--force", "write into a folder that is not empty, too")
DESCENDING = flag("--descending", "with --sort: the other way round")


def printed(content: str) -> list[Argument]:
    """Declare `--json` and `--csv`, which exclude each other; `content` is what they print."""
    return [
        flag("--json", f"print {content} as JSON; NaN and the infinities are texts"),
        flag("--csv", f"print {content} as CSV; a value that is missing is empty"),
    ]


def tags(meaning: str = "only tags that match, as in 'eval/*'") -> tuple[Argument, Argument]:
    """Declare `--tag` and `--exclude`, each of which may be given several times."""
    again = "may be given again"
    return _globs("--tag", f"{meaning}; {again}"), _globs("--exclude", f"no tags that match; {again}")


def _globs(name: str, meaning: str) -> Argument:
    return argument(name, metavar="GLOB", action="append", default=[], help=meaning)


_BEST = "of tags that match, the {} value is the best; without these options the name of a tag decides"
#: `--max` and `--min`, each of which may be given several times.
DIRECTIONS = (_globs("--max", _BEST.format("greatest")), _globs("--min", _BEST.format("least")))


def chosen_tags(arguments: argparse.Namespace) -> TagFilter:
    """Return the filter of the options that `tags` declares."""
    return TagFilter(tuple(arguments.tag), tuple(arguments.exclude))


def chosen_directions(arguments: argparse.Namespace) -> Directions:
    """Return the directions of the options `DIRECTIONS`."""
    return Directions(tuple(arguments.max), tuple(arguments.min))


def folders_of(paths: Sequence[str], out: str) -> list[str]:
    """Return the output folder of each path: `out` for a single path, else folders of their names in it.

    Raises:
        InstrumentError: two of the paths have one name.
    """
    if len(paths) == 1:
        return [out]
    names = [os.path.basename(os.path.abspath(path)) for path in paths]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InstrumentError(f"several of the paths end in {twice[0]!r}; take them one by one, each with its own -o")
    return [os.path.join(out, name) for name in names]


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

    def results(self, read: Callable[[str, Run], T]) -> list[T]:
        """Return what `read` makes of each name and run.

        A run of which it raises `NoSuchRun` makes `status` 1, and is reported; raised if there is no result.
        """
        results, lacking = list[T](), list[NoSuchRun]()
        for name, run in self.quietly():
            try:
                results.append(read(name, run))
            except NoSuchRun as error:
                lacking.append(error)
        self.status = tell_or_raise(lacking, bool(results)) or self.status
        return results

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
            f"{run.path}: a later start in this directory replaced {counted(count, 'point')}; "
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
