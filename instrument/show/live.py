"""Redraw a terminal in place: on its alternate screen, so that the text before comes back at the end.

Lines are not wrapped but cut by the terminal, and the size is asked for at each drawing: after a resize the next
drawing fits, and `wait` ends early for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import IO, Any

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _END_LINE, _END_SCREEN = "\x1b[H", "\x1b[K\n", "\x1b[K\x1b[J"


class LiveDisplay:
    """The alternate screen of a terminal, as a context manager that leaves it whatever ends the program but SIGKILL."""

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
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
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


@contextlib.contextmanager
def on_terminal(stream: IO[str]) -> Iterator[LiveDisplay | None]:
    """Give a `LiveDisplay` if the stream is a terminal, else None."""
    if not stream.isatty():
        yield None
        return
    with LiveDisplay(stream) as display:
        yield display
