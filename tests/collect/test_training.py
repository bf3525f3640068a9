"""How the steps and epochs of several trainings are counted in one run."""

from __future__ import annotations

import logging

import pytest

from instrument.collect.training import ContinuedNotice, StepCount


def train(count: StepCount, epochs: range, steps: int, begins_at: int = 0) -> list[int]:
    """The numbers of the steps of a training whose epochs MindSpore numbers so."""
    count.begin(begins_at)
    numbers = []
    for epoch in epochs:
        count.begin_epoch(epoch, steps)
        for _ in range(steps):
            begins_at += 1
            count.last = count.of(begins_at)
            numbers.append(count.last)
        count.end_epoch()
    return numbers


def test_trainings_that_begin_at_0_go_on() -> None:
    """Of any length; epochs too."""
    count = StepCount()
    assert train(count, range(1, 3), 3) == [1, 2, 3, 4, 5, 6]
    assert not count.is_shifted
    assert train(count, range(1, 2), 2) == [7, 8]
    assert train(count, range(1, 2), 4) == [9, 10, 11, 12]
    assert (count.is_shifted, count.first, count.epoch, count.epoch_of(1)) == (True, 8, 4, 4)


def test_initial_epoch_goes_on_behind_that_epoch() -> None:
    """In a new process at its number times the steps of an epoch."""
    count = StepCount()
    assert train(count, range(4, 5), 10) == list(range(31, 41))
    assert (count.first, count.epoch) == (30, 4)


def test_initial_epoch_goes_on_where_this_collector_saw_the_epoch_end() -> None:
    """Also where the epochs had other lengths, and back to an epoch before the last."""
    count = StepCount()
    train(count, range(1, 3), 3)
    assert train(count, range(3, 4), 10) == list(range(7, 17))
    assert train(count, range(2, 4), 2) == [4, 5, 6, 7]
    assert train(count, range(1, 2), 2) == [8, 9]


def test_an_unknown_length_leaves_the_count_as_it_is() -> None:
    """Where the data set cannot tell its length, a training goes on at the step before it."""
    count = StepCount()
    count.begin(0)
    count.begin_epoch(4, None)
    assert count.of(1) == 1


def test_a_framework_that_counts_itself_is_believed() -> None:
    """It begins at a step other than 0, in a first training and in a later one."""
    count = StepCount()
    assert train(count, range(3, 4), 5, begins_at=100) == list(range(101, 106))
    assert train(count, range(3, 4), 5, begins_at=102) == list(range(103, 108))
    assert (count.epoch, count.is_shifted) == (3, False)


def test_a_training_of_no_step_changes_nothing() -> None:
    """One that ended before its first step."""
    count = StepCount()
    train(count, range(1, 2), 5)
    count.begin(0)
    assert train(count, range(1, 2), 5) == [6, 7, 8, 9, 10]


def test_what_goes_on_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """And once that another network's steps are behind those of the first; nothing of a single training."""

    class Network:
        pass

    notice, count = ContinuedNotice(), StepCount()
    networks = [Network(), Network()]
    with caplog.at_level(logging.INFO, logger="instrument"):
        notice.look(count, 0, networks[0], "/run")
        train(count, range(1, 2), 5)
        assert caplog.messages == []
        for network in (networks[0], networks[0], networks[1], networks[0]):
            before = count.last
            count.begin(0)
            notice.look(count, before, network, "/run")
            train(count, range(1, 2), 5)
    first, second = caplog.messages
    assert "is recorded as step 6, as the training before it ended at step 5" in first
    assert second.startswith("This training has another network than the one before it")
