"""Lay out tables and sentences for the terminal or pipe behind a stream, and print notes and progress on stderr."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from instrument.analyse import layout
from instrument.analyse.layout import END, RED, WHOLE, WRAP, YELLOW, Cell, Column, Screen, Styled, escape

#: How lines on stderr begin.
_NAME = "instrument:"
#: Where the terminal does not know its width, and the least that texts are laid out for.
_DEFAULT, _LEAST = 80, 20
#: Seconds until the first line of progress, and between two.
_FIRST_S, _INTERVAL_S = 1.0, 0.2
#: How columns are laid out wherever they stand; the others go by their place.
_COLUMNS = {
    column.heading: column
    for column in (
        Column("TAG", 0),
        Column("RUN", 0, least=18),
        Column("FILE", 0),
        Column("STEP", 0),
        Column("CHECK", 0, WHOLE),
        Column("KIND", 1, WHOLE),
        Column("NOTES", 1, WRAP, 24),
        Column("REASON", 1, WRAP),
        Column("FOUND", 1, WRAP),
        Column("ERROR", 1, WRAP),
        Column("TEXT", 1, WRAP),
        Column("VALUE", 1, WRAP),
        Column("LAST", 1),
        Column("BEST", 1),
        Column("CURVE", 2, WHOLE),
        Column("NOT FINITE", 2, WHOLE),
        Column("TAGS", 2, END, 18),
        Column("DAMAGED PLACES", 2),
        Column("SHAPE", 2, WHOLE),
        Column("POINTS", 3),
        Column("WRITER", 3, END, 9),
        Column("STEPS", 4, WHOLE),
        Column("RANKS", 5),
        Column("DTYPE", 5, WHOLE),
        Column("TIME", 7, WHOLE),
        Column("LAST TIME", 8, WHOLE),
        Column("SUPERSEDED", 8),
        Column("SECONDS", 8),
        Column("BEST IS", 8),
        Column("MAPPING", 9),
    )
}

#: Columns that report problems, with the colours of their texts.
_STYLES = {"NOT FINITE": RED, "NOTES": YELLOW, "ERROR": RED, "REASON": YELLOW}


def screen(stream: IO[Any] | None = None) -> Screen:
    """Return the width and the abilities of what `stream` (default: standard output) leads to.

    A pipe or a file has no width, whatever COLUMNS says, so that a program that reads gets everything.
    """
    stream = sys.stdout if stream is None else stream
    has_style = _has_style(stream)
    return Screen(_width(stream), has_style) if is_terminal(stream) else layout.UNLIMITED._replace(has_style=has_style)


def is_terminal(stream: IO[Any] | None) -> bool:
    """Return True if the stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def _width(stream: IO[Any]) -> int:
    """Return COLUMNS if it is a number, else the width of the terminal."""
    try:
        width = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        width = 0
    if width <= 0:
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            width = 0
    return max(width or _DEFAULT, _LEAST)


def _has_style(stream: IO[Any] | None) -> bool:
    """Decide by NO_COLOR and FORCE_COLOR, else by the terminal: https://no-color.org, https://force-color.org."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb")


# ---------------------------------------------------------------- standard output


def table(header: Sequence[str | Column], rows: Sequence[Sequence[Cell]], indent: str = "") -> str:
    """Format rows under their headings so that they fit the terminal; a pipe gets every column whole.

    A heading that is a text is laid out as `_COLUMNS` says.
    """
    header = [_COLUMNS.get(head, head) if isinstance(head, str) else head for head in header]
    target = screen()
    if target.width is not None:
        target = target._replace(width=target.width - len(indent))
    if target.has_style:
        styles = [_STYLES.get(head.heading if isinstance(head, Column) else head) for head in header]
        rows = [[_styled(cell, style) for cell, style in zip(row, styles, strict=True)] for row in rows]
    text = layout.table(header, rows, target)
    return "\n".join(indent + line for line in text.splitlines()) if indent else text


def safe_cell(cell: Cell) -> Cell:
    """Return a cell whose text, if it is one, has nothing that is not printable."""
    return escape(cell) if isinstance(cell, str) else cell


def _styled(cell: Cell, style: str | None) -> Cell:
    return Styled(cell, style) if style and isinstance(cell, str) else cell


def prose(text: str, indent: str = "") -> str:
    """Break sentences into lines that fit the terminal; all but the first of a paragraph begin with `indent`."""
    return layout.prose(text, screen(), indent)


def paint(text: str, style: str) -> str:
    """Return a text in a style where standard output shows styles."""
    return layout.paint(text, style, screen())


# ---------------------------------------------------------------- stderr


class Lines:
    """A lock for lines on stderr: a line of progress must be removed before another line is printed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.is_drawn = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def clear(self, stream: IO[str]) -> None:
        """Remove the line of progress, if one is drawn."""
        with self:
            if self.is_drawn:
                stream.write("\r\x1b[K")
                stream.flush()
                self.is_drawn = False


lines = Lines()


def tell(note: str, style: str = "") -> None:
    """Print a sentence on stderr, in lines that fit a terminal; `style` is that of the program's name."""
    if sys.stderr is not None:
        lines.clear(sys.stderr)
        target = screen(sys.stderr)
        text = layout.prose(f"{_NAME} {escape(note)}", target, "  ")
        print(layout.paint(_NAME, style, target) + text.removeprefix(_NAME), file=sys.stderr)


class Progress:
    """Show the progress of a long command on one line of stderr, if that is a terminal; the line goes at the end.

    A context manager; `advance` says what is being done now, and how much of `total` is done. `shown` makes an amount
    readable: files, tags, bytes. A thread draws the line, so that it moves while one large file is being read. A
    command that ends within a second draws nothing.
    """

    def __init__(
        self,
        verb: str,
        total: int,
        shown: Callable[[int], str] = str,
        stream: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verb, self._total, self._shown, self._clock = verb, total, shown, clock
        self._stream = sys.stderr if stream is None else stream
        self._done, self._now = 0, ""
        self._start = clock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def advance(self, now: str, done: int = 0) -> None:
        """Say that work on `now` begins, after `done` more of the total are finished."""
        self._now = now
        self._done += done

    def begin(self, now: str) -> None:
        """Say that work on `now` begins, and that what was worked on before is finished."""
        self.advance(now, int(bool(self._now)))

    def line(self) -> str:
        """Return the line as it is now, for a terminal of its width."""
        share = f" ({100 * self._done // self._total} %)" if self._total else ""
        text = f"{self._verb}: {self._shown(self._done)} of {self._shown(self._total)}{share}"
        text += f", {self._clock() - self._start:.0f} s"
        if self._now:
            text += f", {escape(self._now)}"
        return layout.shortened(text, (screen(self._stream).width or 80) - 1, END)

    def __enter__(self) -> Progress:
        if is_terminal(self._stream):
            self._thread = threading.Thread(target=self._draw, name="instrument-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        if self._end.wait(_FIRST_S):
            return
        try:
            while True:
                with lines:
                    self._stream.write(f"\r\x1b[K{self.line()}")
                    self._stream.flush()
                    lines.is_drawn = True
                if self._end.wait(_INTERVAL_S):
                    break
            lines.clear(self._stream)
        except (OSError, ValueError):
            return  # the terminal has gone


def in_bytes(amount: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if amount >= size:
            return f"{amount / size:.1f} {unit}"
    return f"{amount} bytes"
