"""Communication hidden behind computing, in numbers that add up."""

from __future__ import annotations

from typing import Any

import numpy as np

from instrument.analyse import busy
from instrument.analyse.executions import count_executions
from instrument.analyse.table import Table
from instrument.trace.events import AI_CPU, COMMUNICATION, CPU, GPU, MISSING, OVERLAP, Capture
from tests.analyse.build import capture, column, executions, marked, operator, reduces, steps


def of(given: Capture) -> Table:
    return busy.overlap(given, count_executions(given))


def times(table: Table) -> list[list[int | None]]:
    names = ("computing_ns", "communication_ns", "overlapped_ns", "communication_not_overlapped_ns", "free_ns")
    return [list(row) for row in zip(*(column(table[name]) for name in names), strict=True)]


NAMES = (operator("Mul"), operator("AllReduce", COMMUNICATION), operator("GetNext", AI_CPU), operator("host", CPU))


def test_each_step_is_divided() -> None:
    """Computing and communication alone, both at once, and neither, cut at the borders of the steps."""
    rows = executions((100, 30, 0, 1), (120, 60, 1, 2), (185, 10, 2, 3), (190, 40, 0, 1), (0 + 1, 500, 3, 9))
    given = capture(NAMES, rows, steps=steps((1, 100, 100, 150, 200), (2, 200, 200, 250, 260)), target="ascend")
    table = of(given)
    assert column(table["step"]) == [1, 2]
    assert times(table) == [[45, 60, 10, 50, 5], [30, 0, 0, 0, 30]]
    for (_, start, end), row in zip(((1, 100, 200), (2, 200, 260)), times(table), strict=True):
        computing, communication, both, alone, free = row
        assert computing + communication - both + free == end - start  # type: ignore[operator]
        assert both + alone == communication  # type: ignore[operator]


def test_reduces_are_communication_where_there_is_no_other() -> None:
    """Step traces have them without operators of their own."""
    given = capture(NAMES, executions((100, 50, 0, 1)), reduces=reduces((1, 5, 140, 20)), target="ascend")
    assert times(of(given)) == [[50, 20, 10, 10, 0]]
    assert column(of(given)["step"]) == [None]


def test_a_collective_among_the_kernels_does_not_compute() -> None:
    """A GPU lists it as an operator like any other."""
    names = (operator("Conv2D", GPU), operator("AllReduce-op7", GPU))
    assert times(of(capture(names, executions((100, 50, 0, -1), (140, 30, 1, -1)), target="gpu"))) == [
        [50, 30, 10, 20, 0]
    ]


def overlap(*rows: tuple[int, ...]) -> Any:
    """(step, computing, communication, overlapped, alone, free) each."""
    return np.array([(*row, MISSING, MISSING, MISSING) for row in rows], OVERLAP)


def test_what_the_source_says_is_taken() -> None:
    """With its own columns where it has any, also where they contradict each other."""
    rows = overlap((3, 700, 400, 300, 100, 50), (4, 1, MISSING, MISSING, 2, 3), (5, 10, 15, 5, 80, 0))
    table = of(capture(overlap=rows))
    assert times(table) == [[700, 400, 300, 100, 50], [1, None, None, 2, 3], [10, 15, 5, 80, 0]]
    assert "stage_ns" not in table.columns
    assert table.notes == ("As the source of the trace sums it up.",)


def test_what_the_source_does_not_say_is_derived() -> None:
    """Overlapped is the difference of two, where that is no contradiction."""
    rows = overlap((3, 700, 400, MISSING, 100, 50), (4, 1, 15, MISSING, 80, 3))
    assert [row[2] for row in times(of(capture(overlap=rows)))] == [300, None]


def test_steps_that_the_source_does_not_sum_up_are_told() -> None:
    """A sum over one step does not stand for the others."""
    given = capture(overlap=overlap((3, 700, 400, 300, 100, 50)), steps=marked((3, 100, 200), (4, 200, 300)))
    assert of(given).notes[1] == "1 of 2 steps have no row: the source sums up only the others."


def test_without_communication_it_is_not_available() -> None:
    """Nor without computing on a device; the reason is said."""
    assert of(capture(NAMES, executions((100, 50, 0, 1)))).notes == ("n/a: the trace has no communication.",)
    alone = of(capture(NAMES, executions((100, 50, 1, 1))))
    assert (len(alone), alone.notes) == (0, ("n/a: the trace has communication, but no computing of a device.",))
