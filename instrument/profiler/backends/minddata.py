"""The data pipeline's own profiler, one a process.

It takes the pipeline whose iterator is built first after `init`, and follows a dangling pointer when it is started
after that iterator is gone. So the making of iterators is watched: while the pipeline that was taken is gone, the next
one is taken, and it is started only while its iterator lives. Once taken, a pipeline is started and stopped at once,
since only then it can be given up for another one later.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

from instrument import framework

log = logging.getLogger("instrument")


class Pipeline:
    """Records one pipeline at a time; none before `arm`."""

    def __init__(self) -> None:
        self._manager: Any = None
        self._iterator: weakref.ref[Any] | None = None
        #: A window is open.
        self._is_wanted = False
        self._is_started = False
        self._lock = threading.RLock()

    def arm(self) -> None:
        """Have the pipelines whose iterators are built from now on recorded in windows.

        Raises:
            FrameworkError: MindSpore lacks what that needs.
        """
        with self._lock:
            if self._manager is None:
                manager = framework.data_profiler()
                framework.watch_iterators(self._before, self._after)
                self._manager = manager

    @property
    def _is_alive(self) -> bool:
        iterator = self._iterator() if self._iterator is not None else None
        return iterator is not None and framework.is_alive(iterator)

    def _before(self) -> bool:
        """An iterator is about to be made; whether its pipeline is the one that will be recorded."""
        with self._lock:
            if self._is_started or self._is_alive:
                return False
            return self._attempt(self._manager.init)

    def _after(self, iterator: Any) -> None:
        with self._lock:
            self._iterator = weakref.ref(iterator)
            if self._attempt(self._manager.start):
                self._is_started = True
                if not self._is_wanted:
                    self._stop()

    def start(self) -> None:
        """A window opens: record the pipeline, or the next one that is built where there is none."""
        with self._lock:
            self._is_wanted = self._manager is not None
            if self._is_wanted and self._is_alive and not self._is_started:
                self._is_started = self._attempt(self._manager.start)

    def stop(self, directory: str = "") -> bool:
        """The window closes: its files go to `directory`, if one is named; whether there are any."""
        with self._lock:
            self._is_wanted = False
            if not self._is_started:
                return False
            self._stop()
            return bool(directory) and self._attempt(lambda: self._manager.save(directory))

    def _stop(self) -> None:
        self._is_started = False
        self._attempt(self._manager.stop)

    def _attempt(self, call: Any) -> bool:
        try:
            call()
        except Exception as error:  # noqa: BLE001  a user's data must be loaded, whatever becomes of its profile
            text = " ".join(line for line in str(error).splitlines() if line and not line.startswith("---"))
            log.error("Profiler: the data pipeline is not recorded: %.300s", text)
            return False
        return True


#: MindSpore has one profiler of pipelines, and so have we.
PIPELINE = Pipeline()
