"""SIGTERM while a window is open: the window is closed, then the process ends by it as it would have.

MindSpore's own answer to Ctrl+C inside a graph is to send itself SIGTERM. Schedulers of clusters send it too. Whoever
has a handler already keeps it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


class TerminationGuard:
    """Calls `end` before the process is terminated. Where `end` answers that it could not, `settle` is to be called."""

    def __init__(self, end: Callable[[], bool]) -> None:
        self._end = end
        self._is_pending = False

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)

    def remove(self) -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def settle(self) -> None:
        """End the process if a signal came at a time at which nothing could be done about it."""
        if self._is_pending:
            self._handle(signal.SIGTERM, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._is_pending = True
        if self._end():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
