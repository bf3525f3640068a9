"""Schedules: exactly the steps [skip_first + wait + warmup, ... + active) of each cycle, and checked numbers."""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import Any

import numpy as np
import pytest

from instrument.profiler.schedule import ProfilerAction, action_of, schedule

STEPS = 40


def reference(skip_first: int, wait: int, warmup: int, active: int, repeat: int) -> dict[int, ProfilerAction]:
    """The action of each step by walking through the cycles."""
    found = dict.fromkeys(range(STEPS), ProfilerAction.NONE)
    step = skip_first
    for _ in range(repeat or STEPS):
        step += wait
        for number in range(step, step + warmup):
            found[number] = ProfilerAction.WARMUP
        step += warmup
        for number in range(step, step + active):
            found[number] = ProfilerAction.RECORD
        step += active
        found[step - 1] = ProfilerAction.RECORD_AND_SAVE
    return {number: action for number, action in found.items() if number < STEPS}


@pytest.mark.parametrize(
    ("skip_first", "wait", "warmup", "active", "repeat"), list(product((0, 1, 2), (0, 1, 2), (0, 2), (1, 3), (0, 1, 2)))
)
def test_each_step_has_its_action(skip_first: int, wait: int, warmup: int, active: int, repeat: int) -> None:
    """All small schedules agree with a walk through their cycles, and know the window of each step."""
    found = schedule(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
    expected = reference(skip_first, wait, warmup, active, repeat)
    assert {step: found(step) for step in range(STEPS)} == expected
    for step, action in expected.items():
        window = found.window(step)
        if action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            assert window is not None
            assert window[0] <= step <= window[1] == window[0] + active - 1
    first = skip_first + wait + warmup
    assert found.first_window == (first, first + active - 1)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("active", 0, ValueError), ("active", -1, ValueError), ("wait", -1, ValueError), ("repeat", -1, ValueError),
        ("warmup", 1.0, TypeError), ("skip_first", "1", TypeError), ("wait", True, TypeError),
        ("active", None, TypeError),
    ],
)  # fmt: skip
def test_wrong_numbers_are_refused(name: str, value: Any, error: type[Exception]) -> None:
    """Each number is checked, and the error names it."""
    with pytest.raises(error, match=f"{name} is"):
        schedule(**{"active": 1, name: value})


def test_numpys_integers_are_taken() -> None:
    assert schedule(active=np.int32(2)).window(0) == (0, 1)


def test_other_schedules_speak_by_name() -> None:
    """Members of torch's and MindSpore's enumerations are known by their names; anything else is refused."""
    theirs = Enum("theirs", {"NONE": 10, "WARM_UP": 11, "WARMUP": 12, "RECORD": 13, "RECORD_AND_SAVE": 14})
    assert [action_of(one) for one in theirs] == [
        ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.WARMUP, ProfilerAction.RECORD,
        ProfilerAction.RECORD_AND_SAVE,
    ]  # fmt: skip
    with pytest.raises(TypeError, match="The schedule answered 3"):
        action_of(3)
