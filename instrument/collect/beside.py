"""What a recorder records beside the values that it is given: samples of the system, each as an event of its own.

Samples come from a thread, and go between the recorder's own events, with the step that the training has reached by
then. Before a step is known nothing is recorded: a number of ours would replace what a former training in the same
directory recorded from there on.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable

from instrument.collect.sampler import Sample, Sampler
from instrument.collect.system import System
from instrument.values import Event

log = logging.getLogger("instrument")

Write = Callable[[Event], None]


class Beside:
    """Samples every `interval_seconds`, looking at the file system of `directory`, until `stop`.

    `write` is a method of the recorder, which is not kept alive by this.

    Raises:
        ImportError: psutil is not installed.
        RuntimeError: no thread can be started.
    """

    def __init__(self, directory: str, interval_seconds: float, write: Write) -> None:
        #: Where the training stands; None before its first step.
        self.step: int | None = None
        self._system = System(directory)
        self._write = weakref.WeakMethod(write)
        self._wants_device = True
        self._sampler = Sampler(self._system.sample, self._take, interval_seconds)
        self.stop = self._sampler.stop

    def _take(self, sample: Sample) -> None:
        self._wants_device = True
        write = self._write()
        if write is not None and self.step is not None:
            write(Event(self.step, time.time(), [], sample))

    def reach(self, step: int) -> None:
        """The training is at this step, and the values of it have been fetched."""
        self.step = step
        self.look_at_device()

    def look_at_device(self) -> None:
        """Once between two samples, read the device's memory; where values have just been fetched it costs nothing."""
        if not self._wants_device:
            return
        self._wants_device = False
        self._system.look_at_device()


def start(directory: str, interval_seconds: float | None, write: Write) -> Beside | None:
    """Sample from now on; None where nobody asked for it, or where it cannot be, which is said."""
    if interval_seconds is None:
        return None
    try:
        return Beside(directory, interval_seconds, write)
    except Exception as error:  # noqa: BLE001  no thread, or a strange host: recording goes on without samples
        log.warning("system_metrics are not recorded: %s: %s", type(error).__name__, error)
        return None


def end(beside: Beside | None, close: Callable[[], None]) -> None:
    """End the sampling, if there is any, and then what it writes to."""
    if beside is not None:
        beside.stop()
    close()
