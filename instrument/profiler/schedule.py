"""The steps that are recorded: `schedule(wait, warmup, active, repeat, skip_first)`, without side effects.

After `skip_first` steps, cycles of `wait + warmup + active` steps follow each other, `repeat` of them or, with 0,
without end. Steps are counted from 0, as `Profiler.step` counts them: the first cycle records the steps
[skip_first + wait + warmup, skip_first + wait + warmup + active), each further one as many later as a cycle is long.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from instrument.checks import check_int


class ProfilerAction(Enum):
    """What a profiler does during a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    WARM_UP = 1  # noqa: PIE796  MindSpore's spelling of the same


@dataclass(frozen=True)
class Schedule:
    """The action for each step, as a function of its number."""

    wait: int
    warmup: int
    active: int
    repeat: int
    skip_first: int

    def __call__(self, step: int) -> ProfilerAction:
        window = self.window(step)
        if window is None:
            return ProfilerAction.NONE
        first, last = window
        if step == last:
            return ProfilerAction.RECORD_AND_SAVE
        if step >= first:
            return ProfilerAction.RECORD
        return ProfilerAction.WARMUP if step >= first - self.warmup else ProfilerAction.NONE

    def window(self, step: int) -> tuple[int, int] | None:
        """Return the first and last recorded step of the cycle in which `step` lies, or None if it lies in no cycle."""
        step -= self.skip_first
        length = self.wait + self.warmup + self.active
        if step < 0 or (self.repeat and step >= self.repeat * length):
            return None
        first = self.skip_first + step // length * length + self.wait + self.warmup
        return first, first + self.active - 1

    @property
    def first_window(self) -> tuple[int, int]:
        first = self.skip_first + self.wait + self.warmup
        return first, first + self.active - 1


def schedule(*, wait: int = 0, warmup: int = 0, active: int, repeat: int = 0, skip_first: int = 0) -> Schedule:
    """Choose the steps to record, for `Profiler(schedule=...)`, by the number of `Profiler.step` calls from 0.

    The cycle `c`, counted from 0, records the `active` steps from `skip_first + c * (wait + warmup + active) + wait +
    warmup` on, which make one window.

    Args:
        wait: steps at the begin of a cycle in which nothing happens.
        warmup: steps behind them in which the profiler is made ready.
        active: steps that are recorded, at least 1.
        repeat: how many cycles there are, 0 for no end.
        skip_first: steps before the first cycle.

    Raises:
        TypeError, ValueError: a number is none, or too small.
    """
    given = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip_first}
    return Schedule(**{name: check_int(name, value, int(name == "active")) for name, value in given.items()})


def action_of(given: object) -> ProfilerAction:
    """Return the action for what a schedule of MindSpore or torch, or a function of the user, returned."""
    name = getattr(given, "name", None)
    if not isinstance(name, str) or name not in ProfilerAction.__members__:
        raise TypeError(f"The schedule answered {given!r}; expected one of {list(ProfilerAction.__members__)}.")
    return ProfilerAction[name]
