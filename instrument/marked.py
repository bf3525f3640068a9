"""What one window marked: spans that ended, in a lane for each thread, and steps and epochs beside them.

Times are nanoseconds of the monotonic clock; `Window.wall_ns` brings them onto the wall clock of its opening.
"""

from __future__ import annotations

import itertools
import threading
import time
from array import array
from collections.abc import Callable
from typing import NamedTuple

#: What a mark is.
USER, STEP, EPOCH, CALLBACK = range(4)
#: The duration of what had not ended when the window closed.
STILL_OPEN = -1

#: The wall clock is steered a little all the time; a smaller difference is no setting of it.
_LEAST_CHANGE_NS = 50 * 10**6

#: A code is a name's number, and what the mark is above it.
KIND_SHIFT = 32
NAME_MASK = (1 << KIND_SHIFT) - 1


class Mark(NamedTuple):
    """One row of a window: `number` is that of the step or epoch, -1 for other kinds."""

    start_ns: int
    duration_ns: int
    thread: int
    number: int
    name: str
    kind: int


class ClockChange(NamedTuple):
    """The wall clock was set by `change_ns` between two moments of the window, which are on the axis of its marks."""

    after_ns: int
    before_ns: int
    change_ns: int


class _Names:
    """Numbers of names; all that come too late share one."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def number(self, name: str) -> int:
        with self._lock:
            number = self._numbers.get(name)
            if number is None:
                number = self._numbers[name] = len(self.texts)
                self.texts.append(name)
            return number


NAMES = _Names()


def name_of(code: int) -> str:
    return NAMES.texts[code & NAME_MASK]


class Lane:
    """What one thread marks: spans that ended, three numbers each, and those that are open."""

    __slots__ = ("ended", "opened", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_native_id()
        self.ended = array("q")
        self.opened: list[tuple[int, int]] = []


class Window:
    """All marks of one window. `first_step` and `last_step` are None while no step has ended in it."""

    def __init__(self, max_marks: int, settle: Callable[[], object]) -> None:
        self.max_marks = max_marks
        #: The wall clock less the monotonic one when the window opened.
        self.offset_ns = time.time_ns() - time.monotonic_ns()
        #: Where the wall clock was set since then.
        self.clock_changes: list[ClockChange] = []
        self._last_offset_ns, self._compared_ns = self.offset_ns, time.monotonic_ns()
        #: Returns when all operators that were called have run; what a step's mark waits for.
        self.settle = settle
        #: Called when a step has ended.
        self.on_step: Callable[[], object] | None = None
        self.counter = itertools.count()
        self.local = threading.local()
        self.first_step: int | None = None
        self.last_step: int | None = None
        #: How many steps ended in it.
        self.steps = 0
        #: Whether a step ran in it, to its end or not.
        self.has_steps = False
        self._source = ""
        self._lanes: list[Lane] = []
        self._rows: list[Mark] = []

    def wall_ns(self, monotonic_ns: int) -> int:
        """Return a moment of the monotonic clock on the wall clock as it was when the window opened."""
        return monotonic_ns + self.offset_ns

    def compare_clocks(self) -> None:
        """Note if the wall clock was set since the last comparison."""
        begin_ns, wall_ns, now_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        offset_ns = wall_ns - now_ns
        change_ns = offset_ns - self._last_offset_ns
        if abs(change_ns) >= _LEAST_CHANGE_NS + now_ns - begin_ns:  # it may have been interrupted in between
            self.clock_changes.append(ClockChange(self.wall_ns(self._compared_ns), self.wall_ns(now_ns), change_ns))
            self._last_offset_ns = offset_ns
        self._compared_ns = now_ns

    def lane(self) -> Lane:
        """A lane for the calling thread."""
        lane = self.local.lane = Lane()
        self._lanes.append(lane)
        return lane

    def add(self, kind: int, name: str, number: int, start_ns: int, duration_ns: int) -> None:
        if next(self.counter) < self.max_marks:
            self._rows.append(Mark(start_ns, duration_ns, threading.get_native_id(), number, name, kind))

    def add_step(self, source: str, number: int, start_ns: int, end_ns: int) -> None:
        """Mark a step that ended. The source of a window's first step marks all others: two counts would mix."""
        self._source = self._source or source
        if source != self._source or number == self.last_step:
            return
        self.first_step = number if self.first_step is None else self.first_step
        self.last_step = number
        self.has_steps = True
        self.steps += 1
        self.compare_clocks()
        self.add(STEP, "step", number, start_ns, end_ns - start_ns)
        if self.on_step is not None:
            self.on_step()

    def add_open_step(self, source: str, number: int, start_ns: int) -> None:
        """The step in whose middle the window closes."""
        if self._source in ("", source) and number != self.last_step:
            self.has_steps = True
            self.add(STEP, "step", number, start_ns, STILL_OPEN)

    def rows(self) -> list[Mark]:
        """All but the spans that ended; these, being many, are in `lanes`."""
        opened = [
            Mark(start_ns, STILL_OPEN, lane.thread, -1, name_of(code), code >> KIND_SHIFT)
            for lane in list(self._lanes)
            for start_ns, code in list(lane.opened)
            if code >> KIND_SHIFT == USER  # a callback's is that of the hook which closes the window
        ]
        return [*self._rows, *opened]

    def lanes(self) -> list[tuple[int, array[int]]]:
        """Threads, and the spans that ended there: start, duration and code, one after the other."""
        # Copies: a thread may still be at the end of a span, and could not write to what is being looked at.
        return [(lane.thread, lane.ended[: len(lane.ended) // 3 * 3]) for lane in list(self._lanes)]

    @property
    def source(self) -> str:
        """Return who marked the steps; empty if nobody did."""
        return self._source

    @property
    def dropped(self) -> int:
        """Return how many marks were dropped for want of room; call it once, at the end."""
        return max(next(self.counter) - self.max_marks, 0)
