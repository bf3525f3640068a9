"""Record what the system does beside a training: a thread takes samples, each of which is an event of its own.

The thread sleeps between samples, and takes at most 0.4 % of a core over its whole life: on a host where a sample is
dear they come less often than asked for. It ends with a last sample on request, and when the recorder is gone.

Samples go between the recorder's own events, with the step that the training has reached by then. Before a step is
known nothing is recorded: a number of ours would replace what a former training in the same directory recorded from
there on.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable

from instrument.collect.system import System, load_psutil
from instrument.values import Event

log = logging.getLogger("instrument")

DEFAULT_INTERVAL_SECONDS = 5.0
LEAST_INTERVAL_SECONDS = 0.1
#: Of this thread; what a worker does with the samples comes on top.
MOST_SHARE_OF_A_CORE = 0.004

#: A training that ends sooner than the first interval is to have a sample all the same.
_FIRST_PAUSE_SECONDS = 1.0
#: `stop` waits so long: a signal handler may have called it inside of what the last sample waits for.
_END_SECONDS = 1.0

Sample = dict[str, float]
Write = Callable[[Event], None]


def check_interval(value: object) -> float | None:
    """Return the seconds between two samples for the option `system_metrics`, None for False.

    Raises:
        TypeError, ValueError: it is neither True, False nor a number of seconds.
        ImportError: samples are asked for without psutil.
    """
    if isinstance(value, bool):
        if not value:
            return None
        value = DEFAULT_INTERVAL_SECONDS
    if not isinstance(value, (int, float)):
        kind = type(value).__name__
        raise TypeError(f"system_metrics is {value!r} of type {kind}; expected True, False or seconds between samples.")
    if not LEAST_INTERVAL_SECONDS <= value < math.inf:
        raise ValueError(
            f"system_metrics is {value!r}; expected seconds between samples, at least {LEAST_INTERVAL_SECONDS:g}, "
            "True for 5, or False."
        )
    load_psutil()
    return float(value)


class Sampler:
    """Call `deliver(take())` every `interval_seconds`, from a thread of its own, until `stop`.

    `deliver` is a method; its object is not kept alive by this. Neither may log while it holds a lock that a logging
    handler could want.

    Raises:
        RuntimeError: no thread can be started.
    """

    def __init__(self, take: Callable[[], Sample], deliver: Callable[[Sample], None], interval_seconds: float) -> None:
        # A plain lock: unlike an event it may be used by a signal handler in the middle of its own use.
        self._running = threading.Lock()
        self._running.acquire()
        arguments = (take, weakref.WeakMethod(deliver), interval_seconds, self._running)
        self._thread = threading.Thread(target=_run, args=arguments, name="instrument-system", daemon=True)
        self._thread.start()

    def stop(self, waits: bool = True) -> None:
        """End the thread, after a last sample. A second call does nothing; with `waits` it is over afterwards."""
        try:
            self._running.release()
        except RuntimeError:
            return  # it was stopped before
        if waits and threading.current_thread() is not self._thread:
            self._thread.join(_END_SECONDS)


def _run(
    take: Callable[[], Sample],
    deliver: weakref.WeakMethod[Callable[[Sample], None]],
    interval_seconds: float,
    running: threading.Lock,
) -> None:
    began, pause = time.monotonic(), min(interval_seconds, _FIRST_PAUSE_SECONDS)
    is_over = is_told = False
    while not is_over:
        is_over = running.acquire(timeout=pause)
        used = time.thread_time()
        if not _sample(take, deliver):
            return
        after_the_next = 2 * time.thread_time() - used
        affordable = began + after_the_next / MOST_SHARE_OF_A_CORE - time.monotonic()
        pause = max(interval_seconds, affordable)
        if pause > 2 * interval_seconds and not (is_told or is_over):
            is_told = True
            text = "system_metrics: the next sample comes in %.1f s instead of %g: they take at most %g %% of a core."
            log.info(text, pause, interval_seconds, 100 * MOST_SHARE_OF_A_CORE)


def _sample(take: Callable[[], Sample], deliver: weakref.WeakMethod[Callable[[Sample], None]]) -> bool:
    """Take one sample and hand it over; return False if it is the last."""
    hand_over = deliver()
    if hand_over is None:
        return False
    try:
        hand_over(take())
    except Exception as error:  # noqa: BLE001  the edge: it runs beside a training, which goes on
        log.warning("system_metrics end here: %s: %s", type(error).__name__, error)
        return False
    return True


# ---------------------------------------------------------------- the samples of a recorder


class SystemMetrics:
    """Sample the system every `interval_seconds`, looking at the file system of `directory`, until `stop`.

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
        """Note that the training is at this step, and that its values have been fetched."""
        self.step = step
        self.look_at_device()

    def look_at_device(self) -> None:
        """Read the device's memory, once between two samples; after values have been fetched it costs nothing."""
        if not self._wants_device:
            return
        self._wants_device = False
        self._system.look_at_device()


def start(directory: str, interval_seconds: float | None, write: Write) -> SystemMetrics | None:
    """Start to sample. Return None if system metrics are off or unavailable (a warning is logged then)."""
    if interval_seconds is None:
        return None
    try:
        return SystemMetrics(directory, interval_seconds, write)
    except (ImportError, OSError, RuntimeError, load_psutil().Error) as error:  # no thread, or a strange host
        log.warning("system_metrics are not recorded: %s: %s", type(error).__name__, error)
        return None
