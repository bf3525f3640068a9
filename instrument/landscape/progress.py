"""Report progress: one line on the terminal, and a call of the user's function."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

#: Points done, points in all, seconds left (None before there is a rate).
Report = Callable[[int, int, "float | None"], object]
_EVERY_SECONDS = 0.2


class Progress:
    """Count points; write to a terminal only. What was done before this process does not count for the rate."""

    def __init__(
        self, title: str, total: int, done: int, report: Report | None = None,
        stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._title, self._total, self.done, self._first = title, total, done, done
        self._report, self._clock = report, clock
        stream = sys.stderr if stream is None else stream
        self._stream = stream if stream is not None and stream.isatty() else None
        self._started, self._last = clock(), -_EVERY_SECONDS
        self._width = 0

    @property
    def rate(self) -> float:
        """Return points a second, 0 before there is one."""
        elapsed = self._clock() - self._started
        return (self.done - self._first) / elapsed if elapsed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        return (self._total - self.done) / self.rate if self.rate > 0 else None

    def step(self, count: int = 1) -> None:
        self.done += count
        now = self._clock()
        if now - self._last >= _EVERY_SECONDS or self.done >= self._total:
            self._last = now
            if self._report is not None:
                self._report(self.done, self._total, self.seconds_left)
            self._show(self._line())

    def close(self) -> None:
        """End the line."""
        if self._stream is not None and self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0

    def _line(self) -> str:
        left = self.seconds_left
        words = "" if left is None else f", {self.rate:.3g}/s, {clock_words(left)} left"
        return f"{self._title}: {self.done}/{self._total} points{words}"

    def _show(self, line: str) -> None:
        if self._stream is not None:
            self._stream.write("\r" + line.ljust(self._width))
            self._stream.flush()
            self._width = len(line)


def clock_words(seconds: float) -> str:
    """Return `"12 s"`, `"3 min 12 s"` or `"2 h 3 min"`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
