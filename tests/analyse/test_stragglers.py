"""Several ranks of one training: whose own time is the longest, however alike their steps are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from instrument.analyse.advice import advice
from instrument.trace.events import AI_CORE, COMMUNICATION, OVERLAP, Capture
from tests.analyse.build import BACKWARD, FORWARD, T0, UPDATE, capture, column, executions, marked, operator, profile_of

MS = 10**6
REDUCE = operator("Default/grad_reducer/AllReduce-op0", "cpu")
#: Time until the first operator, forward, backward, communication, update; in ms.
Parts = tuple[int, int, int, int, int]


def rank(number: int, steps: Sequence[Parts], first: int = 1) -> Capture:
    """A rank on the CPU whose steps are made of these parts, one after the other."""
    rows, marks, time = [], [], T0
    for step, (interval, *durations) in enumerate(steps, start=first):
        begin, time = time, time + interval * MS
        for which, duration in enumerate(durations):
            rows.append((time, duration * MS, which))
            time += duration * MS
        marks.append((step, begin, time))
    operators = (FORWARD, BACKWARD, REDUCE, UPDATE)
    return capture(operators, executions(*rows), steps=marked(*marks), device=number)


def test_the_slowest_rank_is_the_one_for_which_the_others_wait() -> None:
    """All steps last 60 ms; ranks 0 and 2 spend 30 of them waiting in communication, rank 1 nothing to speak of."""
    quick, slow = (2, 10, 15, 30, 3), (32, 10, 14, 1, 3)
    found = profile_of(rank(0, [quick] * 4), rank(1, [slow] * 3 + [quick]), rank(2, [quick] * 4))
    assert [column(one.steps["total_ns"]) for one in found.each()] == [[60 * MS] * 4] * 3
    assert found.own_ns == dict.fromkeys((1, 2, 3, 4), 30 * MS)
    spread = found.spread
    assert spread["step"].tolist() == [1, 2, 3, 4]
    assert spread["slowest"].tolist()[:3] == [1, 1, 1]
    assert spread["slowest_own_ns"].tolist() == [59 * MS, 59 * MS, 59 * MS, 30 * MS]
    assert spread["fastest_own_ns"].tolist() == [30 * MS] * 4
    assert spread["spread_ns"].tolist() == [29 * MS, 29 * MS, 29 * MS, 0]
    assert np.allclose(spread["spread_percent"], [100 * 29 / 60] * 3 + [0])
    devices = found.devices
    assert devices["device"].tolist() == [0, 1, 2]
    assert devices["mean_step_ns"].tolist() == [60 * MS] * 3
    assert devices["mean_own_ns"].tolist() == [30 * MS, 51.75 * MS, 30 * MS]
    (note,) = devices.notes
    assert note.startswith("Rank 1 is the slowest: its own time is 51.750 ms a step, that of the others 30.000 ms; ")
    assert "slowest in 3 of 4 steps. The ranks are 21.750 ms apart in a mean step (36.2 % of it)." in note


def test_ranks_of_one_number_are_compared() -> None:
    """Two jobs in one folder may each have a device 0; the report names the slower one's number."""
    found = profile_of(rank(0, [(2, 10, 15, 30, 3)] * 4), rank(0, [(32, 10, 14, 1, 3)] * 4))
    (note,) = found.devices.notes
    assert note.startswith("Rank 0 is the slowest: its own time is 59.000 ms a step, that of the others 30.000 ms; ")
    assert str(found).startswith("Profile of")


def test_what_makes_a_rank_late_is_said() -> None:
    """Time before its first operator is a matter of data, all other time of its operators; the report has it all."""
    quick = (2, 10, 15, 30, 3)
    late = profile_of(rank(0, [quick] * 4), rank(1, [(32, 10, 14, 1, 3)] * 4))
    (told,) = [one.text for one in advice(late) if one.topic == "ranks"]
    assert "The others wait for it. 30.000 ms of that pass before its first operator: look at its data, and" in told
    assert told.endswith("profile(device=1), or --device 1, has its steps and operators.")
    heavy = profile_of(rank(0, [quick] * 4), rank(1, [(2, 25, 29, 1, 3)] * 4))
    (told,) = [one.text for one in advice(heavy) if one.topic == "ranks"]
    assert "The others wait for it. profile(device=1)" in told
    text = str(heavy)
    assert "device 0 (there are 0, 1: --device)" in text
    assert "How far the ranks are apart" in text
    assert "  Rank 1 is the slowest: its own time is 59.000 ms a step, that of the others 30.000 ms;" in text


def test_ranks_that_are_late_by_turns_are_told_so() -> None:
    """No rank is to blame, and none is called one for which the others wait."""
    quick, slow = (2, 10, 15, 30, 3), (32, 10, 14, 1, 3)
    found = profile_of(rank(0, [quick, slow] * 2), rank(1, [slow, quick] * 2))
    (told,) = [one.text for one in advice(found) if one.topic == "ranks"]
    assert "Now one is late and now another" in told
    assert "wait for it" not in told


def test_ranks_that_keep_together_need_no_advice() -> None:
    """The slowest is named all the same."""
    found = profile_of(rank(0, [(2, 10, 15, 3, 30)] * 4), rank(1, [(3, 10, 15, 2, 30)] * 4))
    assert [one for one in advice(found) if one.topic == "ranks"] == []
    assert found.devices.notes[0].startswith("Rank 1 is the slowest")


def test_steps_are_matched_by_their_number() -> None:
    """Only those that every rank has are compared; where there is none nothing is said of a slowest one."""
    parts = (2, 10, 15, 30, 3)
    found = profile_of(rank(0, [parts] * 4, first=1), rank(1, [parts] * 4, first=3))
    assert found.spread["step"].tolist() == [3, 4]
    apart = profile_of(rank(0, [parts] * 2, first=1), rank(1, [parts] * 2, first=3))
    assert (len(apart.spread), apart.devices.notes, column(apart.devices["mean_own_ns"])) == (0, (), [None, None])
    assert apart.spread.notes == ("n/a: there is no step that all ranks have.",)
    assert "ranks" not in [one.topic for one in advice(apart)]


def test_a_single_device_is_compared_with_nothing() -> None:
    """No slowest one, and no section of ranks in the report."""
    alone = profile_of(rank(0, [(2, 10, 15, 30, 3)] * 3))
    assert column(alone.devices["slowest_in_steps"]) == [None]
    assert alone.devices.notes == ()
    assert "Ranks" not in str(alone)


@pytest.mark.parametrize("source", ["executions", "overlap"])
def test_communication_behind_computing_is_no_waiting(source: str) -> None:
    """On a device 20 of 50 ms of communication run while it computes: of 100 ms its own time is 70."""
    work, talk = operator("MatMul-op0", AI_CORE), operator("allReduce-op1", COMMUNICATION)
    rows = [(T0, 60 * MS, 0, 1), (T0 + 40 * MS, 50 * MS, 1, 2)]
    parts = {}
    if source == "overlap":
        told = np.full(1, -1, np.int64).astype(OVERLAP)
        told["step"], told["communication_ns"], told["communication_not_overlapped_ns"] = 1, 50 * MS, 30 * MS
        parts, rows = {"overlap": told}, rows[:1]
    one = capture([work, talk], executions(*rows), steps=marked((1, T0, T0 + 100 * MS)), target="ascend", **parts)
    assert profile_of(one).own_ns == {1: 70 * MS}


def test_the_tables_are_saved(tmp_path: Path) -> None:
    """As CSV beside the others."""
    found = profile_of(rank(0, [(2, 10, 15, 30, 3)] * 2), rank(1, [(3, 10, 15, 29, 3)] * 2))
    assert any(path.endswith("spread.csv") for path in found.save(tmp_path))


def test_communication_is_no_operator_that_takes_the_time() -> None:
    """Also on the CPU, where it is listed among those that compute: half of the computing is MatMul's."""
    names = [REDUCE, *(operator(f"Default/network/{kind}-op0", "cpu") for kind in ("MatMul", *"abcdefgh"))]
    times = [900, 80, *[10] * 8]
    rows = [(T0 + place * 1000 * MS, time * MS, place) for place, time in enumerate(times)]
    (told,) = [one.text for one in advice(profile_of(capture(names, executions(*rows)))) if one.topic == "operators"]
    assert told.startswith("1 operator takes 50.0 % of the time of all 9: Default/network/MatMul-op0 (50.0 %). ")
