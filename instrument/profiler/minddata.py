"""The profiler of the data pipeline, of which MindSpore has one in a process.

It takes the pipeline whose iterator is built first after `init`, and follows a dangling pointer when it is started
after that iterator is gone. So the making of iterators is watched: while the pipeline that was taken is gone, the next
one is taken, and it is started only while its iterator lives. Once taken, a pipeline is started and stopped at once,
since only then it can be given up for another one later. A window may so hold several pipelines, one after the other,
as of a loop that makes an iterator for each epoch. One that is built while another lives cannot be recorded.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from instrument import framework

if TYPE_CHECKING:
    from mindspore.dataset.engine.iterators import Iterator

log = logging.getLogger("instrument")

#: Where the second pipeline of a window and those behind it are, with a number behind it.
FOLDER = "pipeline"


class Pipeline:
    """Records one pipeline at a time, none before `arm`."""

    def __init__(self) -> None:
        self._manager: framework.PipelineProfiler | None = None
        self._iterator: weakref.ref[Iterator] | None = None
        #: A window is open, or opens with the next step: then there is no directory yet.
        self._is_wanted = False
        self._directory = ""
        self._is_started = False
        #: The number of pipelines in the directory of the window, and of those built beside the recorded pipeline.
        self._saved = 0
        self.missed = 0
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
        """Prepare for an iterator that is about to be made. Return True if its pipeline will be recorded."""
        with self._lock:
            if self._is_started and not self._is_alive:
                self._stop()
            if self._is_started or self._is_alive:
                self.missed += self._is_wanted
                return False
            return self._attempt(lambda manager: manager.init())

    def _after(self, iterator: Iterator) -> None:
        with self._lock:
            self._iterator = weakref.ref(iterator)
            if self._attempt(lambda manager: manager.start()):
                self._is_started = True
                if not self._is_wanted:
                    self._stop()

    def start(self, directory: str = "") -> None:
        """Record the pipeline that lives, or the next that is built, into `directory`: a window opens.

        Without a directory, nothing is kept of what is recorded until one is given.
        """
        with self._lock:
            self._is_wanted = self._manager is not None
            self._directory, self._saved, self.missed = directory, 0, 0
            if self._is_wanted and self._is_alive and not self._is_started:
                self._is_started = self._attempt(lambda manager: manager.start())

    def stop(self) -> bool:
        """Stop: the window closes. Return True if there is a pipeline in its directory."""
        with self._lock:
            if self._is_started:
                self._stop()
            self._is_wanted, self._directory = False, ""
            return self._saved > 0

    def _stop(self) -> None:
        """End the recording of a pipeline: the first one's files lie in the window's directory, others' below it."""
        self._is_started = False
        if not self._attempt(lambda manager: manager.stop()) or not self._directory:
            return
        folder = os.path.join(self._directory, f"{FOLDER}_{self._saved}") if self._saved else self._directory

        def save(manager: framework.PipelineProfiler) -> None:
            os.makedirs(folder, exist_ok=True)
            manager.save(folder)

        self._saved += self._attempt(save)

    def _attempt(self, call: Callable[[framework.PipelineProfiler], object]) -> bool:
        """Return False if a call fails, and log why: a user's data are loaded, whatever becomes of their profile."""
        if self._manager is None:
            return False
        try:
            call(self._manager)
        except (*framework.OPERATOR_ERRORS, OSError) as error:
            text = " ".join(line for line in str(error).splitlines() if line and not line.startswith("---"))
            log.error("Profiler: the data pipeline is not recorded: %.300s", text)
            return False
        return True


#: MindSpore has one profiler of pipelines.
PIPELINE = Pipeline()
