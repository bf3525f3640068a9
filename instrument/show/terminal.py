"""Ask the terminal at the end of a stream for its width and its styles, and print notes on stderr."""

from __future__ import annotations

import os
import sys
import threading
from typing import IO, Any

from instrument.analyse.layout import UNLIMITED, Screen, escape, paint, prose

#: How lines on stderr begin.
_NAME = "instrument:"
#: Where the terminal does not know its width, and the least that texts are laid out for.
_DEFAULT, _LEAST = 80, 20


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


def screen(stream: IO[Any] | None = None) -> Screen:
    """Return the width and the abilities of what `stream` (default: standard output) leads to.

    A pipe or a file has no width, whatever COLUMNS says, so that a program that reads gets everything.
    """
    stream = sys.stdout if stream is None else stream
    has_style = _has_style(stream)
    return Screen(_width(stream), has_style) if is_terminal(stream) else UNLIMITED._replace(has_style=has_style)


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


def tell(note: str, style: str = "") -> None:
    """Print a sentence on stderr, in lines that fit a terminal; `style` is that of the program's name."""
    if sys.stderr is not None:
        lines.clear(sys.stderr)
        target = screen(sys.stderr)
        text = prose(f"{_NAME} {escape(note)}", target, "  ")
        print(paint(_NAME, style, target) + text.removeprefix(_NAME), file=sys.stderr)
