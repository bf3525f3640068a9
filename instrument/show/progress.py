"""Show the progress of a long command on one line of stderr, if that is a terminal; the line goes at the end.

The line is drawn by a thread, so that it moves while one large file is being read. A command that ends within a second
draws nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO

from instrument.analyse.layout import END, escape, shortened
from instrument.show import terminal

_FIRST_S, _INTERVAL_S = 1.0, 0.2


class Progress:
    """A context manager; `advance` says what is being done now, and how much of `total` is done.

    `shown` makes an amount readable: files, tags, bytes.
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

    def line(self) -> str:
        """Return the line as it is now, for a terminal of its width."""
        share = f" ({100 * self._done // self._total} %)" if self._total else ""
        text = f"{self._verb}: {self._shown(self._done)} of {self._shown(self._total)}{share}"
        text += f", {self._clock() - self._start:.0f} s"
        if self._now:
            text += f", {escape(self._now)}"
        return shortened(text, (terminal.screen(self._stream).width or 80) - 1, END)

    def __enter__(self) -> Progress:
        if terminal.is_terminal(self._stream):
            self._thread = threading.Thread(target=self._draw, name="instrument-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        if self._end.wait(_FIRST_S):
            return
        try:
            while True:
                with terminal.lines:
                    self._stream.write(f"\r\x1b[K{self.line()}")
                    self._stream.flush()
                    terminal.lines.is_drawn = True
                if self._end.wait(_INTERVAL_S):
                    break
            terminal.lines.clear(self._stream)
        except (OSError, ValueError):
            return  # the terminal has gone


def in_bytes(amount: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if amount >= size:
            return f"{amount / size:.1f} {unit}"
    return f"{amount} bytes"
