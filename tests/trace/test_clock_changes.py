"""A wall clock that was set while the window was open does not misorder what the host did."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from instrument.trace.events import SPAN_STEP
from instrument.trace.load import captures
from instrument.trace.marks import Change, changes, undone
from tests.trace.encoders import EPOCH_NS, mark, timestamps

S = 10**9


@pytest.mark.parametrize("change_s", [-3600, -5, 7, 3600])
def test_operators_stay_in_their_steps(change_s: int) -> None:
    """Ten steps of 100 ms with an operator each; the clock is set in the middle of the sixth one."""
    window = {
        "rank": 0, "target": "cpu", "start_ns": EPOCH_NS, "stop_ns": EPOCH_NS + S,
        "clock_changes": [
            {"after_ns": EPOCH_NS + 500 * 10**6, "before_ns": EPOCH_NS + 600 * 10**6, "change_ns": change_s * S}
        ],
    }  # fmt: skip
    starts = [EPOCH_NS + place * 100 * 10**6 for place in range(10)]
    runs = [(start + 10**7 + (change_s * S if place > 5 else 0), 1.0, 0) for place, start in enumerate(starts)]
    files = {
        "instrument.window.0.json": json.dumps(window).encode(),
        "instrument.names.0.json": b'["step"]',
        "instrument.marks.0.bin": b"".join(
            mark(start, 10**8, 0, SPAN_STEP, place) for place, start in enumerate(starts)
        ),
        "cpu_op_execute_timestamp_0.txt": timestamps({"Mul-op0": runs}),
        "cpu_framework_0.txt": b"",
    }
    (found,) = captures(files)
    assert found.executions["step"].tolist() == list(range(10))
    assert ("settings of the host's clock while the window was open, which are taken out of its times", 1) in [
        (one.what, one.amount) for one in found.problems
    ]


def test_a_small_change_leaves_some_times_uncertain() -> None:
    """Set back by less than the window is long, the clock has shown some times twice."""
    window, change = (0, 10 * S), Change(5 * S, 6 * S, -2 * S)
    times, is_uncertain = undone(np.array([1 * S, 4 * S, int(7.5 * S)]), [change], window)
    assert times.tolist() == [1 * S, 4 * S, int(9.5 * S)]
    assert is_uncertain.tolist() == [False, True, False]


def test_several_changes_add_up(rng: np.random.Generator) -> None:
    """Large ones are taken out to the nanosecond."""
    draw = random.Random(int(rng.integers(1 << 30)))
    known = [Change(place * S, place * S + 1, draw.choice((-1, 1)) * draw.randrange(100, 5000) * S) for place in (3, 6)]
    true = [draw.randrange(10 * S) for _ in range(200)]
    shown = [time + sum(change.change_ns for change in known if time > change.after_ns) for time in true]
    times, is_uncertain = undone(np.array(shown), known, (0, 10 * S))
    assert [time for time, unsure in zip(times.tolist(), is_uncertain, strict=True) if not unsure] == [
        time for time, unsure in zip(true, is_uncertain, strict=True) if not unsure
    ]


@pytest.mark.parametrize("told", [None, 5, [5], [{"after_ns": 1}], [{"after_ns": 1, "before_ns": 2, "change_ns": "x"}]])
def test_damaged_changes_are_none(told: object) -> None:
    """As is what an older window does not say."""
    assert changes({"clock_changes": told}) == []
