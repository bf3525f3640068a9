"""Marks of a profile on the host's clock: users' spans, steps, epochs, and the time that our own callbacks take.

What is marked here and the operators of the CPU share a clock: wall-clock nanoseconds since the epoch. The recorders of
a training mark their hooks too, so this stands below them and the profiler, and needs nothing of either.

- Off is the usual state and has to cost nothing: one object a name, found in a dictionary, whose two methods do
  nothing. They are exchanged when a window opens.
- On, a thread writes numbers into an array of its own; nobody waits for a lock. The number of marks of a window is
  limited, and so is the number of names; what is over is counted.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import threading
from array import array
from collections.abc import Callable
from time import time_ns
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

log = logging.getLogger("instrument")

#: What a mark is.
USER, STEP, EPOCH, CALLBACK = range(4)
#: The duration of what had not ended when the window closed.
STILL_OPEN = -1
#: A window keeps no more marks (of 24 to 100 bytes each), a process no more names.
MAX_MARKS = 1_000_000
MAX_NAMES = 4096

#: A code is a name's number, and what the mark is above it.
KIND_SHIFT = 32
NAME_MASK = (1 << KIND_SHIFT) - 1

Function = TypeVar("Function", bound=Callable[..., Any])


class Mark(NamedTuple):
    """One row of a window: `number` is that of the step or epoch, -1 for other kinds."""

    start_ns: int
    duration_ns: int
    thread: int
    number: int
    name: str
    kind: int


# ---------------------------------------------------------------- spans


def _nothing() -> None:
    pass


def _nothing_at_exit(kind: object, error: object, trace: object) -> None:
    pass


class Span:
    """A named range of the host's time, as a context manager and as a decorator.

        with span("augment"):
            ...

        @span("augment")
        def augment(picture): ...

    It may be nested and used by any thread, and the same one by several at once. It shows in the timeline of the
    profile that is being taken; without one it does nothing.
    """

    __slots__ = ("_code", "name")

    def __init__(self, name: str, kind: int = USER) -> None:
        self.name = name
        self._code = _names.number(name) | kind << KIND_SHIFT

    __enter__ = staticmethod(_nothing)
    __exit__ = staticmethod(_nothing_at_exit)

    def __call__(self, function: Function) -> Function:
        """The function, its calls marked."""
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            what = "coroutine" if inspect.iscoroutinefunction(function) else "generator"
            raise TypeError(
                f"span({self.name!r}) marks a call, and that of the {what} function {function.__qualname__} returns "
                "before its work begins; use `with span(...)` inside of it."
            )

        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return marked  # type: ignore[return-value]


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


_names = _Names()


class _Spans(dict[str, Span]):
    """The span of each name. Looking one up is all that `span(name)` does, the first time excepted."""

    _surplus: Span | None = None

    def __missing__(self, name: str) -> Span:
        if not isinstance(name, str):
            raise TypeError(f"A span's name is {name!r} of type {type(name).__name__}; expected str.")
        if len(self) < MAX_NAMES:
            self[name] = Span(name)
            return self[name]
        if self._surplus is None:
            self._surplus = Span(f"(one of more than {MAX_NAMES} names)")
            log.warning(
                "There are more than %d names of spans, %r the latest: marks of further ones share a name. A name is "
                "best the same each time; what differs belongs elsewhere.", MAX_NAMES, name,
            )  # fmt: skip
        return self._surplus


#: `span(name)` is the span of that name; see `Span`.
span: Callable[[str], Span] = _Spans().__getitem__


def hook(method: Function) -> Function:
    """Mark the calls of a callback's method, so that a profile shows what recording costs."""
    return Span(method.__qualname__.lstrip("_"), CALLBACK)(method)


# ---------------------------------------------------------------- one window


class _Lane:
    """What one thread marks: spans that ended, three numbers each, and those that are open."""

    __slots__ = ("ended", "opened", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_native_id()
        self.ended = array("q")
        self.opened: list[tuple[int, int]] = []


class Window:
    """All marks of one window. `first_step` and `last_step` are None while no step has ended in it."""

    def __init__(self, max_marks: int) -> None:
        self.max_marks = max_marks
        self.counter = itertools.count()
        self.local = threading.local()
        self.first_step: int | None = None
        self.last_step: int | None = None
        #: Whether a step ran in it, to its end or not.
        self.has_steps = False
        self._source = ""
        self._lanes: list[_Lane] = []
        self._rows: list[Mark] = []

    def lane(self) -> _Lane:
        """A lane for the calling thread."""
        lane = self.local.lane = _Lane()
        self._lanes.append(lane)
        return lane

    def add(self, kind: int, name: str, number: int, start_ns: int, duration_ns: int) -> None:
        if next(self.counter) < self.max_marks:
            self._rows.append(Mark(start_ns, duration_ns, threading.get_native_id(), number, name, kind))

    def add_step(self, source: str, number: int, start_ns: int, end_ns: int) -> None:
        """A step that ended. Whoever marks a window's first step marks all of them: two ways to count would mix."""
        self._source = self._source or source
        if source != self._source or number == self.last_step:
            return
        self.first_step = number if self.first_step is None else self.first_step
        self.last_step = number
        self.has_steps = True
        self.add(STEP, "step", number, start_ns, end_ns - start_ns)

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
    def dropped(self) -> int:
        """How many marks were too many. It is asked for once, at the end."""
        return max(next(self.counter) - self.max_marks, 0)


def name_of(code: int) -> str:
    return _names.texts[code & NAME_MASK]


_window: Window | None = None


def _enter(self: Span) -> None:
    window = _window
    if window is None:
        return
    try:
        lane: _Lane = window.local.lane
    except AttributeError:
        lane = window.lane()
    lane.opened.append((time_ns(), self._code))


def _exit(
    self: Span, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    end_ns = time_ns()
    window = _window
    if window is None:
        return
    try:
        lane: _Lane = window.local.lane
    except AttributeError:
        return  # it began before the window did
    code = self._code
    opened = lane.opened
    if opened and opened[-1][1] == code:
        start_ns = opened.pop()[0]
    else:
        found = _take(opened, code)
        if found is None:
            return
        start_ns = found
    if next(window.counter) < window.max_marks:
        append = lane.ended.append
        append(start_ns)
        append(end_ns - start_ns)
        append(code)


def _take(opened: list[tuple[int, int]], code: int) -> int | None:
    """The start of the latest open span, where generators or tasks of one thread end theirs in another order."""
    for index in range(len(opened) - 1, -1, -1):
        if opened[index][1] == code:
            return opened.pop(index)[0]
    return None


def open_window(max_marks: int = MAX_MARKS) -> Window:
    """Begin to mark. There is one window at a time in a process."""
    global _window
    _window = Window(max_marks)
    Span.__enter__ = _enter  # type: ignore[assignment]
    Span.__exit__ = _exit  # type: ignore[assignment]
    return _window


def close_window() -> None:
    global _window
    Span.__enter__ = staticmethod(_nothing)
    Span.__exit__ = staticmethod(_nothing_at_exit)
    _window = None


# ---------------------------------------------------------------- where a training is

#: A step lasts from the end of the one before, or from the begin of its epoch: the wait for its data belongs to it.
_TRAINING = "training"
_boundary_ns: int | None = None
_step: int | None = None
_epoch: tuple[int, int] | None = None


def begin_training() -> None:
    global _boundary_ns, _step, _epoch
    _boundary_ns = _step = _epoch = None


def begin_epoch(number: int) -> None:
    global _boundary_ns, _step, _epoch
    if _epoch is None or _epoch[0] != number:  # the first of the callbacks that tell
        _boundary_ns, _step = time_ns(), None
        _epoch = (number, _boundary_ns)


def begin_step(number: int) -> None:
    global _boundary_ns, _step
    _step = number
    if _boundary_ns is None:
        _boundary_ns = time_ns()


def end_step(number: int) -> None:
    """The step is over; of several callbacks that tell, the first one counts."""
    global _boundary_ns, _step
    if _step is None:
        return
    end_ns = time_ns()
    if _window is not None:
        _window.add_step(_TRAINING, number, end_ns if _boundary_ns is None else _boundary_ns, end_ns)
    _boundary_ns, _step = end_ns, None


def end_epoch(number: int) -> None:
    global _epoch, _boundary_ns
    if _epoch is None:
        return
    if _window is not None:
        _window.add(EPOCH, "epoch", number, _epoch[1], time_ns() - _epoch[1])
    _epoch = _boundary_ns = None


def mark_open(window: Window) -> None:
    """Mark the step and the epoch in whose middle the window closes."""
    if _step is not None and _boundary_ns is not None:
        window.add_open_step(_TRAINING, _step, _boundary_ns)
    if _epoch is not None:
        window.add(EPOCH, "epoch", _epoch[0], _epoch[1], STILL_OPEN)
