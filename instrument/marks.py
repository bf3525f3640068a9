"""Marks of a profile on the host's clock: users' spans, steps, epochs, and the time that our own callbacks take.

Marks are ordered by the monotonic clock, which nobody sets. A window knows what that was on the wall clock when it
opened: so its marks come to share the axis of the operators of the CPU, and a clock that is set meanwhile neither loses
a step nor stretches one. The recorders of a training mark their hooks too, so this stands below them and the profiler,
and needs nothing of either.

- Off is the usual state and has to cost nothing: one object a name, found in a dictionary, whose two methods do
  nothing. They are exchanged when a window opens.
- On, a thread writes numbers into an array of its own; nobody waits for a lock. The number of marks of a window is
  limited, and so is the number of names; what is over is counted.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from time import monotonic_ns
from types import TracebackType
from typing import Any, TypeVar

from instrument.marked import CALLBACK as CALLBACK
from instrument.marked import EPOCH as EPOCH
from instrument.marked import KIND_SHIFT as KIND_SHIFT
from instrument.marked import NAMES, Lane
from instrument.marked import STEP as STEP
from instrument.marked import STILL_OPEN as STILL_OPEN
from instrument.marked import USER as USER
from instrument.marked import Mark as Mark
from instrument.marked import Window as Window
from instrument.marked import name_of as name_of

log = logging.getLogger("instrument")

#: A window keeps no more marks (of 24 to 100 bytes each), a process no more names.
MAX_MARKS = 1_000_000
MAX_NAMES = 4096

Function = TypeVar("Function", bound=Callable[..., Any])


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
        self._code = NAMES.number(name) | kind << KIND_SHIFT

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


class _OfName(functools.partial[Span]):
    """So that `help` and notebooks show what is below; calling it is as fast as what it calls."""

    def __repr__(self) -> str:
        return "span(name)"


span: Callable[[str], Span] = _OfName(_Spans().__getitem__)
span.__doc__ = f"""The span of a name (str), the same one each time.

{inspect.getdoc(Span)}

Raises:
    TypeError: the name is no str.
"""
span.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter("name", inspect.Parameter.POSITIONAL_ONLY, annotation=str)], return_annotation=Span
)


def hook(method: Function) -> Function:
    """Mark the calls of a callback's method, by the name of the callback's class: so a profile shows what it costs.

    Operators that were called before it run first: their time is the step's, not the callback's.
    """
    spans: dict[type, Span] = {}

    @functools.wraps(method)
    def marked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _window is None:
            return method(self, *args, **kwargs)
        _window.settle()
        kind = type(self)
        if kind not in spans:
            spans[kind] = Span(f"{kind.__name__}.{method.__name__}", CALLBACK)
        with spans[kind]:
            return method(self, *args, **kwargs)

    return marked  # type: ignore[return-value]


# ---------------------------------------------------------------- one window

_window: Window | None = None


def _enter(self: Span) -> None:
    window = _window
    if window is None:
        return
    try:
        lane: Lane = window.local.lane
    except AttributeError:
        lane = window.lane()
    lane.opened.append((monotonic_ns(), self._code))


def _exit(
    self: Span, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    end_ns = monotonic_ns()
    window = _window
    if window is None:
        return
    try:
        lane: Lane = window.local.lane
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


def open_window(max_marks: int = MAX_MARKS, settle: Callable[[], object] = _nothing) -> Window:
    """Begin to mark. There is one window at a time in a process; `settle` returns when all operators have run."""
    global _window
    _window = Window(max_marks, settle)
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
        _boundary_ns, _step = monotonic_ns(), None
        _epoch = (number, _boundary_ns)


def begin_step(number: int) -> None:
    global _boundary_ns, _step
    _step = number
    if _boundary_ns is None:
        _boundary_ns = monotonic_ns()


def end_step(number: int) -> None:
    """The step is over; of several callbacks that tell, the first one counts."""
    global _boundary_ns, _step
    if _step is None:
        return
    end_ns = monotonic_ns()
    if _window is not None:
        _window.add_step(_TRAINING, number, end_ns if _boundary_ns is None else _boundary_ns, end_ns)
    _boundary_ns, _step = end_ns, None


def end_epoch(number: int) -> None:
    global _epoch, _boundary_ns
    if _epoch is None:
        return
    if _window is not None:
        _window.add(EPOCH, "epoch", number, _epoch[1], monotonic_ns() - _epoch[1])
    _epoch = _boundary_ns = None


def mark_open(window: Window) -> None:
    """Mark the step and the epoch in whose middle the window closes."""
    if _step is not None and _boundary_ns is not None:
        window.add_open_step(_TRAINING, _step, _boundary_ns)
    if _epoch is not None:
        window.add(EPOCH, "epoch", _epoch[0], _epoch[1], STILL_OPEN)
