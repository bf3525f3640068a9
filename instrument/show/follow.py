"""`--follow`: keep what a verb shows of runs up to date until they end.

A terminal shows the same text, drawn again in place. A pipe, and `--json` or `--csv`, get a line for each point as it
comes, after the points that exist already. The directory may appear later, and so may the runs in it.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from instrument.errors import CorruptMessage
from instrument.facts import describe
from instrument.facts.selection import with_names
from instrument.facts.tags import TagFilter
from instrument.runs.points import clock
from instrument.runs.run import Run, find_runs, read_run
from instrument.runs.tail import Ending, Point, Tail, decoded
from instrument.show import output
from instrument.show.live import LiveDisplay, on_terminal
from instrument.show.opened_runs import tell
from instrument.show.options import chosen_tags
from instrument.show.tables import escape, name, number

#: The exit status of a program that Ctrl+C ended.
INTERRUPTED = 130
_INTERVAL_S, _IDLE_S = 1.0, 60.0

#: Returns the text for runs, given with their names.
Draw = Callable[[list[tuple[str, Run]]], str]


def add_follow_option(parser: argparse.ArgumentParser) -> None:
    """Add `--follow`, `--interval` and `--idle`."""
    text = "go on as the runs grow, until they end: drawn anew on a terminal, else a line for each point as it comes"
    parser.add_argument("--follow", action="store_true", help=text)
    interval = f"with --follow: seconds between two looks (default: {_INTERVAL_S:g})"
    parser.add_argument("--interval", metavar="S", type=float, default=_INTERVAL_S, help=interval)
    idle = "with --follow: a run has ended when nothing came for so many seconds and no recorder of instrument has its "
    idle += f"files open (default: {_IDLE_S:g})"
    parser.add_argument("--idle", metavar="S", type=float, default=_IDLE_S, help=idle)


def follow(arguments: argparse.Namespace, kind: str, columns: Sequence[str], draw: Draw) -> int:
    """Follow the runs of a command until they end; return 0 then, and 130 after Ctrl+C.

    `kind` is the only kind of points that is followed, empty for all; `columns` are those of the CSV.
    """
    for option in ("interval", "idle"):
        if not 0 < getattr(arguments, option) < float("inf"):
            arguments.wrong_call(f"--{option} is {getattr(arguments, option):g}; it is a number of seconds above 0")
    followed = _Followed(arguments.runs, arguments.idle, getattr(arguments, "rank", None))
    if arguments.json or arguments.csv or not sys.stdout.isatty():
        lines = _Lines(arguments, kind, columns)
        status = _until_end(followed, arguments.interval, lines.put, _wait)
    else:
        status = _draw(followed, arguments.interval, draw)
    return status


class _Followed:
    """The runs that exist at some paths so far."""

    def __init__(self, paths: Sequence[str], idle_s: float, rank: int | None) -> None:
        self._paths = list(paths)
        self._idle_s = idle_s
        self._rank = rank
        self._runs: dict[str, tuple[str, Run]] = {}
        self._endings: dict[str, Ending] = {}
        self.tails: dict[str, Tail[Run]] = {}

    def look(self) -> None:
        """Look for runs that are new."""
        for path in self._paths:
            for run in _runs_at(path):
                place = os.path.realpath(run.path)
                if place not in self._runs:
                    own = run if self._rank is None else Run(run.path, run.files, run.traces, rank=self._rank)
                    self._runs[place] = path, own
                    self._endings[place], self.tails[place] = Ending(own, self._idle_s), Tail(own)

    def named(self) -> list[tuple[str, Run]]:
        """Return the runs that were found, with their names."""
        return with_names(list(self._runs.values()))

    def is_over(self) -> bool:
        """Return True if there are runs, and all of them have ended."""
        over = [ending.is_over() for ending in self._endings.values()]  # each is asked, as each keeps what it saw
        return bool(over) and all(over)

    def awaited(self) -> str:
        """Return what is waited for if there is no run yet, else an empty text."""
        return "" if self._runs else f"no run at {' or '.join(map(escape, self._paths))} yet; waiting for one"


def _runs_at(path: str) -> Sequence[Run]:
    if os.path.isdir(path):
        return find_runs(path)
    return [read_run(path)] if os.path.exists(path) else []


def _until_end(
    followed: _Followed, interval_s: float, show: Callable[[_Followed], None], wait: Callable[[float], None]
) -> int:
    """Show the runs again and again until they end or Ctrl+C is pressed; return the exit status."""
    try:
        while True:
            followed.look()
            # Asked before reading, so that what the recorder wrote last is shown, too.
            is_over = followed.is_over()
            show(followed)
            if is_over:
                return 0
            wait(interval_s)
    except KeyboardInterrupt:
        return INTERRUPTED


def _wait(seconds: float) -> None:
    """Wait for some time.

    Raises:
        BrokenPipeError: the reader of standard output has gone, which only a write would notice otherwise.
    """
    try:
        fd = sys.stdout.fileno()
        poll = select.poll()
    except (AttributeError, OSError, ValueError):  # no file, or Windows
        time.sleep(seconds)
        return
    poll.register(fd, 0)
    if poll.poll(1000 * seconds):
        raise BrokenPipeError


def _draw(followed: _Followed, interval_s: float, draw: Draw) -> int:
    last = [""]

    def show(display: LiveDisplay) -> Callable[[_Followed], None]:
        def put(runs: _Followed) -> None:
            for tail in runs.tails.values():
                tail.run.refresh()
            last[0] = draw(runs.named()) or (runs.awaited() or "nothing was recorded yet")
            display.draw(last[0], f"{clock(time.time())}  Ctrl+C ends")

        return put

    with on_terminal(sys.stdout) as display:
        assert display is not None  # asked by the caller
        status = _until_end(followed, interval_s, show(display), display.wait)
    print(last[0])
    return status


class _Lines:
    """Points as lines of text, JSON or CSV."""

    def __init__(self, arguments: argparse.Namespace, kind: str, columns: Sequence[str]) -> None:
        self._arguments = arguments
        self._kind = kind
        self._columns = columns
        self._wanted: TagFilter = chosen_tags(arguments)
        self._begun: set[str] = set()
        self._has_told = False
        if arguments.csv:
            output.print_csv(columns, ())
            sys.stdout.flush()

    def put(self, followed: _Followed) -> None:
        """Print what came since the last time; on stderr, once, that there is no run yet."""
        if followed.awaited() and not self._has_told:
            tell(followed.awaited())
            self._has_told = True
        names = {os.path.realpath(run.path): run_name for run_name, run in followed.named()}
        for place, tail in followed.tails.items():
            points = self._chosen(tail.new())
            if place not in self._begun:
                self._begun.add(place)
                points = _last(points, getattr(self._arguments, "last", None))
            for point in points:
                self._print(names[place], tail.run, point)
        sys.stdout.flush()

    def _chosen(self, points: list[Point]) -> list[Point]:
        tags = set(self._wanted({point.tag: None for point in points}))
        return [point for point in points if point.tag in tags and self._kind in ("", point.kind)]

    def _print(self, run_name: str, run: Run, point: Point) -> None:
        row: describe.Row = {"run": run_name, "path": run.path}
        row |= {} if self._kind else {"kind": point.kind}
        row |= {"tag": point.tag, "device": point.device, "host": point.host}
        row |= {"step": point.step, "wall_time": point.wall_time, **_facts(point)}
        if self._arguments.json:
            output.print_json_line(row)
        elif self._arguments.csv:
            output.print_csv_row([row.get(column) for column in self._columns])
        else:
            print("  ".join(_words(row, point)))


def _facts(point: Point) -> describe.Row:
    try:
        return describe.value_facts(decoded(point).value)
    except CorruptMessage as error:
        return {"error": str(error)}


def _words(row: describe.Row, point: Point) -> Iterator[str]:
    """Time, run, tag, step and value."""
    yield clock(point.wall_time)
    yield name(row["run"])
    yield name(point.tag) or point.kind
    yield f"step {point.step}"
    if point.kind == "scalar":
        yield number(row["value"])
    else:
        yield describe.facts_text({key: row[key] for key in row if key not in ("run", "path", *Point._fields)})


def _last(points: list[Point], count: int | None) -> list[Point]:
    """Return the last points of each series, in the order in which they came."""
    if count is None:
        return points
    kept, seen = list[Point](), dict[tuple[str, str, int, str], int]()
    for point in reversed(points):
        key = (point.kind, point.tag, point.device, point.host)
        seen[key] = seen.get(key, 0) + 1
        kept += [point] if seen[key] <= count else []
    return kept[::-1]
