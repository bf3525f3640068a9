"""Which step collects what: tables of steps, and MindSpore's own rule beside ours."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from instrument.collect.training import Schedule, StepPlan


def collected(schedule: Schedule, hooks: Iterable[int]) -> tuple[list[int], list[int]]:
    """The steps at which hooks collect values, and those at which they collect tensors."""
    values, tensors = [], []
    previous = schedule.start
    for step in hooks:
        due = schedule.due(step, previous)
        previous = step
        if due.values:
            values.append(step)
        if due.tensors:
            tensors.append(step)
    return values, tensors


def mindspores_steps(total: int, collect_freq: int, tensor_freq: int | None) -> tuple[list[int], list[int]]:
    """The same by the rule of `mindspore.SummaryCollector` where data is not sunk."""
    if tensor_freq is not None:
        allowed = set(range(0, total + 1, tensor_freq))
    elif len(range(0, total + 1, collect_freq)) <= 20:
        allowed = set(range(0, total + 1, collect_freq))
    elif (default_freq := total // 19) > 1:
        allowed = set(range(0, total + 1, default_freq)[:20])
    else:
        allowed = set(range(total + 1)[:21])
    values = [step for step in range(1, total + 1) if step == 1 or step % collect_freq == 0]
    return values, [step for step in range(1, total + 1) if step == 1 or step in allowed]


@pytest.mark.parametrize("collect_freq", [1, 2, 3, 7, 10, 19, 20, 50, 1000])
@pytest.mark.parametrize("tensor_freq", [None, 1, 3, 10, 1000])
def test_without_sink_mode_the_steps_are_mindspores(collect_freq: int, tensor_freq: int | None) -> None:
    """For every length of a training up to 130 steps, and some longer ones, both kinds fall on MindSpore's steps."""
    for total in (*range(1, 131), 190, 199, 200, 201, 379, 380, 381, 1000, 2357):
        ours = collected(Schedule(collect_freq, tensor_freq, 0, total), range(1, total + 1))
        assert ours == mindspores_steps(total, collect_freq, tensor_freq), total


def test_the_first_step_is_always_due() -> None:
    """Whatever the frequency, the first hook collects everything, and the steps up to the first multiple nothing."""
    assert collected(Schedule(10, None, 0, 12), range(1, 13)) == ([1, 10], [1, 10])


def test_default_tensors_end_after_twenty_steps() -> None:
    """A training of 100 steps collected at each of them keeps tensors at step 1 and 19 multiples of 5."""
    _, tensors = collected(Schedule(1, None, 0, 100), range(1, 101))
    assert tensors == [1, *range(5, 96, 5)]


@pytest.mark.parametrize(
    ("freq", "hooks", "expected"),
    [
        (10, range(7, 71, 7), [7, 14, 21, 35, 42, 56, 63, 70]),
        (1, range(7, 71, 7), list(range(7, 71, 7))),
        (7, range(7, 71, 7), list(range(7, 71, 7))),
        (100, range(7, 71, 7), [7]),
        (100, range(45, 451, 45), [45, 135, 225, 315, 405]),
        (10, [3, 10, 11, 19, 20, 41], [3, 10, 20, 41]),
    ],
)
def test_in_sink_mode_a_hook_collects_when_it_crosses_a_multiple(
    freq: int, hooks: Iterable[int], expected: list[int]
) -> None:
    """Hooks that come once in many steps miss no multiple, and the steps are those at which they came."""
    assert collected(Schedule(freq, freq, 0, 70), hooks) == (expected, expected)


def test_a_resumed_training_counts_on() -> None:
    """From step 100 on: the first step, then the multiples of the frequency, of the step that the run counts."""
    assert collected(Schedule(10, 20, 100, 40), range(101, 141)) == ([101, 110, 120, 130, 140], [101, 120, 140])


@pytest.mark.parametrize("start", [0, 1, 4, 5, 100, 103])
def test_resumed_tensors_are_at_most_twenty_too(start: int) -> None:
    """The limit counts the steps of this training, not those before it."""
    _, tensors = collected(Schedule(1, None, start, 500), range(start + 1, start + 501))
    assert len(tensors) == 20
    assert tensors[0] == start + 1


@pytest.mark.parametrize(("freq", "start"), [(1, 0), (1, 100), (10, 0), (10, 100), (10, 9), (10, 10)])
def test_a_dataset_of_unknown_length_gives_twenty_tensors(freq: int, start: int) -> None:
    """Without a total, tensors are collected with the values until there are twenty."""
    values, tensors = collected(Schedule(freq, None, start, None), range(start + 1, start + 1001))
    assert tensors == values[:20]
    assert len(tensors) == 20


def test_due_is_true_where_anything_is() -> None:
    """A step that collects tensors only is a step that collects."""
    assert [bool(StepPlan(*pair)) for pair in itertools.product((False, True), repeat=2)] == [False, True, True, True]
