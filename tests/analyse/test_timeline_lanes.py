"""Lanes: events that follow or enclose each other."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np

from instrument.analyse.intervals import MOST_LANES, NO_LANE, drawing_order, lanes
from instrument.trace.events import CPU, MISSING
from tests.analyse.build import T0, capture, executions, operator
from tests.analyse.chrome import check_lanes, lanes_of, written


def test_one_long_event_does_not_move_the_others(tmp_path: Path) -> None:
    """Of a thousand operators one claims 3.4 s: all are drawn, and it goes to a lane of its own (D-45)."""
    rows = [(T0 + 12_000 * place, 10_000, 0, 7, MISSING) for place in range(1000)]
    rows[500] = (T0 + 12_000 * 500, 3_400_000_000, 1, 7, MISSING)
    found = lanes_of(written(tmp_path, capture([operator("a"), operator("long")], executions(*rows), target="ascend")))
    assert {lane: len(events) for lane, events in found.items()} == {
        "Ascend 0/AI Core, stream 7": 999,
        "Ascend 0/AI Core, stream 7 (2)": 1,
    }
    assert found["Ascend 0/AI Core, stream 7 (2)"] == [("long", 6_000_000, 3_400_000_000)]


def test_operators_of_the_cpu_do_not_become_children(tmp_path: Path) -> None:
    """MindSpore gives all operators one thread; one that runs within the time of another one is drawn beside it."""
    rows = executions((T0, 100, 0), (T0 + 10, 20, 1))
    found = lanes_of(written(tmp_path, capture([operator("a", CPU), operator("b", CPU)], rows)))
    assert found == {"CPU 0/CPU, thread 0": [("b", 10, 20)], "CPU 0/CPU, thread 0 (2)": [("a", 0, 100)]}


def test_events_that_touch_share_a_lane() -> None:
    """One begins when another ends, and an empty one lies between them: one lane."""
    start, duration = np.array([0, 10, 10, 20]), np.array([10, 10, 0, 5])
    order = drawing_order(start, duration, nests=False)
    assert order.tolist() == [0, 2, 1, 3]
    assert lanes(start[order], (start + duration)[order], nests=False).tolist() == [0, 0, 0, 0]


def test_nesting_needs_one_lane_and_overlap_another() -> None:
    """Within: the same lane; across the end of another: the next one."""
    start, end = np.array([0, 0, 5, 20, 20, 30]), np.array([15, 5, 15, 40, 25, 50])
    assert lanes(start, end, nests=True).tolist() == [0, 0, 0, 0, 0, 1]


def test_lanes_are_bounded() -> None:
    """Of forty events at one time thirty-two find a lane, and the others are told apart; later ones find one again."""
    start, end = np.append(np.zeros(40, int), 200), np.append(np.full(40, 100), 300)
    for nests in (False, True):
        ends = end + (np.arange(41)[::-1] * -1 if nests else 0)  # growing: none lies within an earlier one
        found = lanes(start, ends, nests)
        assert sorted(found[:40].tolist()) == [NO_LANE] * 8 + list(range(MOST_LANES))
        assert found[40] == 0


def test_lanes_of_random_events(rng: np.random.Generator) -> None:
    """Whatever the times: in each lane events follow each other, or nest."""
    for nests in (False, True):
        start, duration = rng.integers(0, 3000, 1000), rng.integers(0, 40, 1000)
        order = drawing_order(start, duration, nests)
        start, end = start[order], (start + duration)[order]
        found = lanes(start, end, nests)
        events = [
            {"ph": "X", "pid": 0, "tid": lane, "ts": Decimal(int(s)), "dur": Decimal(int(e - s))}
            for s, e, lane in zip(start, end, found.tolist(), strict=True)
        ]
        check_lanes(events)
        if not nests:
            for lane in range(found.max() + 1):
                chosen = found == lane
                assert (start[chosen][1:] >= end[chosen][:-1]).all()
