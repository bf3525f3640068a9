"""`--follow`: keep what a verb shows of runs up to date until they end.

A terminal shows the same text, drawn again in place. A pipe, and `--json` or `--csv`, get a line for each point as it
comes, after the points that exist already. The directory may appear later, and so may the runs in it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import IO, Any

from instrument.analyse.layout import escape, name, number
from instrument.facts.describe import facts_text, value_facts
from instrument.facts.selection import with_names
from instrument.runs.points import clock
from instrument.runs.run import Run, find_runs, read_run
from instrument.runs.tail import Ending, Point, Tail, decoded
from instrument.show.cli import options
from instrument.show.cli.output import print_csv, print_csv_rows, print_json
from instrument.show.terminal import tell

#: The exit status of a program that Ctrl+C ended.
INTERRUPTED = 130
_INTERVAL_S, _IDLE_S = 1.0, 60.0
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _END_LINE, _END_SCREEN = "\x1b[H", "\x1b[K\n", "\x1b[K\x1b[J"

_FOLLOW = "go on as the runs grow, until they end: drawn anew on a terminal, else a line for each point as it comes"
_INTERVAL = f"with --follow: seconds between two looks (default: {_INTERVAL_S:g})"
_IDLE = (
    "with --follow: a run has ended when nothing came for so many seconds and no recorder of instrument has its files "
    f"open (default: {_IDLE_S:g})"
)
#: `--follow`, `--interval` and `--idle`.
FOLLOW = (
    options.flag("--follow", _FOLLOW),
    options.argument("--interval", metavar="S", type=float, default=_INTERVAL_S, help=_INTERVAL),
    options.argument("--idle", metavar="S", type=float, default=_IDLE_S, help=_IDLE),
)

#: Returns the text for runs, given with their names.
Draw = Callable[[list[tuple[str, Run]]], str]


def follow(arguments: argparse.Namespace, kind: str, columns: Sequence[str], draw: Draw) -> int:
    """Follow the runs of a command until they end; return 0 then, and 130 after Ctrl+C.

    `kind` is the only kind of points that is followed, empty for all; `columns` are those of the CSV.
    """
    for option in ("interval", "idle"):
        if not 0 < getattr(arguments, option) < float("inf"):
            arguments.wrong_call(f"--{option} is {getattr(arguments, option):g}; it is a number of seconds above 0")
    followed = _Followed(arguments.runs, arguments.idle, getattr(arguments, "rank", None))
    if arguments.json or arguments.csv or not sys.stdout.isatty():
        return _until_end(followed, arguments.interval, _Lines(arguments, kind, columns).put, _wait)
    text = ""

    def redraw() -> None:
        nonlocal text
        for tail in followed.tails.values():
            tail.run.refresh()
        text = draw(followed.named()) or (followed.awaited() or "nothing was recorded yet")
        display.draw(text, f"{clock(time.time())}  Ctrl+C ends")

    with LiveDisplay(sys.stdout) as display:
        status = _until_end(followed, arguments.interval, lambda _: redraw(), display.wait)
    print(text)
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


class _Lines:
    """Points as lines of text, JSON or CSV."""

    def __init__(self, arguments: argparse.Namespace, kind: str, columns: Sequence[str]) -> None:
        self._arguments = arguments
        self._kind = kind
        self._columns = columns
        self._wanted = options.chosen_tags(arguments)
        self._begun: set[str] = set()
        self._has_told = False
        if arguments.csv:
            print_csv(columns, ())
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
        facts = value_facts(lambda: decoded(point).value)
        row: dict[str, object] = {"run": run_name, "path": run.path}
        row |= {} if self._kind else {"kind": point.kind}
        row |= {"tag": point.tag, "device": point.device, "host": point.host}
        row |= {"step": point.step, "wall_time": point.wall_time, **facts}
        if self._arguments.json:
            print_json(row, indent=None)
        elif self._arguments.csv:
            print_csv_rows([[row.get(column) for column in self._columns]])
        else:
            text = number(facts["value"]) if point.kind == "scalar" else facts_text(facts)
            head = (clock(point.wall_time), name(run_name), name(point.tag) or point.kind, f"step {point.step}")
            print("  ".join((*head, text)))


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


# ---------------------------------------------------------------- terminal


class LiveDisplay:
    """The alternate screen of a terminal, as a context manager that leaves it whatever ends the program but SIGKILL.

    Lines are not wrapped but cut by the terminal, and the size is asked for at each drawing: after a resize the next
    drawing fits, and `wait` ends early for it.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._wake: tuple[int, int] | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> LiveDisplay:
        self._handle("SIGTERM", _exit)
        self._handle("SIGHUP", _exit)
        if hasattr(signal, "SIGWINCH"):
            self._wake = os.pipe()
            os.set_blocking(self._wake[1], False)
            self._handle("SIGWINCH", self._resized)
        self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            self._write(_LEAVE)
        for signal_number, handler in self._handlers.items():
            signal.signal(signal_number, handler)
        for fd in self._wake or ():
            os.close(fd)
        self._wake = None

    def draw(self, text: str, status: str) -> None:
        """Show the first lines of a text, and a status line below."""
        lines = text.splitlines()
        rows = self._rows() - 1
        if len(lines) > rows:
            cut = len(lines) - rows + 1
            lines = [*lines[: max(rows - 1, 0)], f"... and {cut} more lines"]
        self._write(_HOME + "".join(line + _END_LINE for line in lines) + status + _END_SCREEN)

    def wait(self, seconds: float) -> None:
        """Wait for some time, or until the terminal's size changes."""
        if self._wake is None:
            time.sleep(seconds)
        elif select.select([self._wake[0]], [], [], seconds)[0]:
            os.read(self._wake[0], 4096)

    def _rows(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).lines or 24
        except OSError:
            return 24

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _handle(self, name: str, handler: Any) -> None:
        number = getattr(signal, name, None)
        if number is not None:
            self._handlers[number] = signal.signal(number, handler)

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        if self._wake is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake[1], b"\0")


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
