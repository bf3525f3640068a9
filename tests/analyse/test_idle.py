"""Gaps between operators, by stream."""

from __future__ import annotations

import numpy as np

from instrument.analyse import busy
from instrument.analyse.executions import count_executions
from instrument.analyse.intervals import Union
from instrument.analyse.table import Table
from instrument.trace.events import AI_CORE, CPU, Capture
from tests.analyse.build import T0, capture, executions, operator

NAMES = (operator("a"), operator("b"), operator("c"), operator("host", CPU))


def gaps(given: Capture) -> Table:
    return busy.idle_gaps(given, count_executions(given))


def test_gaps_stand_between_their_neighbours() -> None:
    """The largest first, each with the operator that ended last before it and the one that ends it."""
    rows = executions((T0, 10, 0, 1), (T0 + 15, 5, 1, 1), (T0 + 50, 5, 2, 1, 4), (T0 + 12, 9, 2, 2))
    found = gaps(capture(NAMES, rows))
    assert list(found.rows()) == [
        ("device", 1, T0 + 20, 30, 4, "b", "c"),
        ("device", 1, T0 + 10, 5, None, "a", "b"),
    ]


def test_an_operator_that_encloses_others_is_the_one_before() -> None:
    """On the host operators run at the same time; touching ones leave no gap."""
    names = (operator("long", CPU), operator("short", CPU), operator("late", CPU))
    rows = executions((T0, 100, 0), (T0 + 10, 20, 1), (T0 + 100, 5, 1), (T0 + 130, 1, 2))
    found = gaps(capture(names, rows))
    assert list(found.rows()) == [("host", 0, T0 + 105, 25, None, "short", "late")]
    rows = executions((T0, 100, 0), (T0 + 10, 20, 1), (T0 + 130, 1, 2))
    assert list(gaps(capture(names, rows)).rows()) == [("host", 0, T0 + 100, 30, None, "long", "late")]


def test_busy_and_idle_add_up() -> None:
    """Of each stream, of all streams of the device together, and of a thread of the host with a stream's number."""
    rows = executions((T0, 10, 0, 1), (T0 + 30, 10, 1, 1), (T0 + 5, 15, 2, 2), (T0, 7, 3, 1))
    given = capture(NAMES, rows)
    table = busy.idle_streams(given, count_executions(given))
    assert [row[:6] for row in table.rows()] == [
        ("device", 1, 2, 40, 20, 20),
        ("device", 2, 1, 15, 15, 0),
        ("host", 1, 1, 7, 7, 0),
        ("device, all", None, 3, 40, 30, 10),
    ]
    assert table["idle_percent"].tolist() == [50.0, 0.0, 0.0, 25.0]


def test_only_the_largest_gaps_are_listed() -> None:
    """The others are in a note, with their time."""
    rows = executions(*[(T0 + 10 * place, 4 if place else 1, 0, 1) for place in range(busy.MOST_GAPS + 6)])
    found = gaps(capture(NAMES, rows))
    assert len(found) == busy.MOST_GAPS
    assert found["duration_ns"][:2].tolist() == [9, 6]
    assert found.notes == ("5 smaller gaps, 30 ns together, are not listed.",)


def test_nothing_and_one() -> None:
    """Without operators it is n/a; one operator has no gap."""
    assert (len(gaps(capture())), gaps(capture()).notes) == (0, ("n/a: the trace has no executions of operators.",))
    found = gaps(capture(NAMES, executions((T0, 10, 0, 1))))
    assert (len(found), found.notes) == (0, ())
    still = capture(NAMES, executions((T0, 0, 0, 1)))
    assert list(busy.idle_streams(still, count_executions(still)).rows()) == [("device", 1, 1, 0, 0, 0, 0.0)]
    assert {one.side for one in NAMES} == {AI_CORE, CPU}


def test_unions_measure_time() -> None:
    """Ranges that touch, enclose and overlap, empty ones and none."""
    start, end = np.array([30, 0, 10, 2, 50]), np.array([40, 10, 20, 5, 50])
    found = Union(start, end)
    assert (found.start_ns.tolist(), found.end_ns.tolist(), found.total_ns) == ([0, 30], [20, 40], 30)
    assert found.until(np.array([-5, 0, 5, 20, 25, 35, 40, 99])).tolist() == [0, 0, 5, 20, 20, 25, 30, 30]
    assert found.within(np.array([5, 15]), np.array([15, 99])).tolist() == [10, 15]
    empty = Union(np.empty(0, np.int64), np.empty(0, np.int64))
    assert (empty.total_ns, empty.until(np.array([3])).tolist()) == (0, [0])
    assert found.joined(empty).total_ns == 30
