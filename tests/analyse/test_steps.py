"""Steps: the parts add up to the nanosecond, and what cannot be told is n/a with its reason."""

from __future__ import annotations

import random

import numpy as np
import pytest

from instrument.analyse import steps
from instrument.analyse.executions import count_executions
from instrument.analyse.table import Table
from instrument.trace.events import CPU, MISSING, Capture
from tests.analyse import build
from tests.analyse.build import BACKWARD, FORWARD, T0, UPDATE, capture, column, executions, marked, operator

NA = MISSING


def table_of(given: Capture) -> Table:
    return steps.per_step(given, count_executions(given))


def parts(table: Table) -> list[list[int | None]]:
    """Total, interval, forward and backward, tail of each step."""
    return [list(row) for row in zip(*(column(table[name]) for name in ("total_ns", *steps.PARTS)), strict=True)]


def test_marks_of_the_device_are_taken_as_they_are() -> None:
    """Interval = forward - start, fp and bp = backward - forward, tail = end - backward; in the order of time."""
    given = capture(steps=build.steps((2, 1_000, 1_010, 1_500, 1_700), (1, 100, 100, 600, 1_000)), target="ascend")
    table = table_of(given)
    assert column(table["step"]) == [1, 2]
    assert parts(table) == [[900, 0, 500, 400], [700, 10, 490, 200]]
    assert table.notes == ("all_reduce is n/a: the trace has no communication.",)


def test_on_the_host_the_parts_come_from_scopes() -> None:
    """Waiting until the first forward operator, up to the last gradient operator, and the optimizer."""
    table = table_of(build.training(2, interval=11, forward=23, backward=31, tail=7))
    assert parts(table) == [[72, 11, 54, 7]] * 2
    assert table["operators"].tolist() == [3, 3]


def test_an_update_before_the_forward_pass_belongs_to_the_interval() -> None:
    """MindSpore counts its steps first."""
    rows = executions((T0 + 2, 1, 2), (T0 + 10, 5, 0), (T0 + 15, 5, 1), (T0 + 20, 5, 2))
    table = table_of(capture((FORWARD, BACKWARD, UPDATE), rows, steps=marked((1, T0, T0 + 30))))
    assert parts(table) == [[30, 10, 10, 10]]


def test_the_parts_of_random_steps_add_up() -> None:
    """To the nanosecond, whatever the operators do."""
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    marks, rows, start = [], [], T0
    for number in range(1, 200):
        end = start + draw.randrange(100, 10_000)
        marks.append((number, start, end))
        rows += [(draw.randrange(start, end), draw.randrange(50), draw.randrange(3), 0, number) for _ in range(8)]
        start = end
    table = table_of(capture((FORWARD, BACKWARD, UPDATE), executions(*sorted(rows)), steps=marked(*marks)))
    known = [row for row in parts(table) if None not in row]
    assert known
    assert all(row[0] == sum(row[1:]) and min(row) >= 0 for row in known)  # type: ignore[type-var, arg-type]
    assert sum(column(table["total_ns"])) == start - T0


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((1, 100, NA, 500, 700), [600, None, None, 200]),
        ((1, 100, 200, NA, 700), [600, 100, None, None]),
        ((1, NA, 200, 500, 700), [None, None, None, None]),
        ((1, 100, 500, 200, 700), [600, None, None, None]),
        ((1, 100, 50, 200, 700), [600, None, None, None]),
        ((1, 100, 200, 800, 700), [600, None, None, None]),
        ((1, 700, NA, NA, 700), [None, None, None, None]),
        ((1, 100, NA, 50, 700), [600, None, None, None]),
        ((1, 100, 800, NA, 700), [600, None, None, None]),
    ],
)
def test_what_marks_do_not_tell_is_not_available(
    row: tuple[int, int, int, int, int], expected: list[int | None]
) -> None:
    """One mark missing, or marks in an impossible order: the rest stays, nothing is negative, and a note says so."""
    table = table_of(capture(steps=build.steps(row, (2, 1_000, 1_100, 1_200, 1_300))))
    assert parts(table)[0] == expected
    assert parts(table)[1] == [300, 100, 100, 100]
    assert table.notes[0].startswith("1 of 2 steps have ")


@pytest.mark.parametrize("names", [("MatMul", "MatMulGrad"), ("Default/MatMul-op0", "Default/MatMulGrad-op1")])
def test_names_without_scopes_leave_total_and_interval(names: tuple[str, str]) -> None:
    """PyNative: `Default/` alone is no scope. It is said that fp and bp are n/a, and what the interval is."""
    rows = executions((T0 + 3, 2, 0), (T0 + 5, 1, 1))
    made = capture(tuple(operator(name, CPU) for name in names), rows, steps=marked((1, T0, T0 + 10)))
    table = table_of(made)
    assert parts(table) == [[10, 3, None, None]]
    assert "no scopes, as in PyNative mode" in table.notes[0]
    assert table.notes[1] == "The iteration interval is until the first operator of any kind."


def test_some_operators_without_scopes_are_counted() -> None:
    """In graph mode a few have none."""
    rows = executions((T0 + 1, 1, 3), (T0 + 10, 5, 0), (T0 + 15, 5, 1), (T0 + 20, 5, 2))
    names = (FORWARD, BACKWARD, UPDATE, operator("Default/AssignAdd-op4", CPU))
    table = table_of(capture(names, rows, steps=marked((1, T0, T0 + 30))))
    assert parts(table) == [[30, 10, 10, 10]]
    assert "1 of 4 executions have no scope, and may belong to any part." in table.notes


def test_the_first_step_counts_from_the_opening_of_the_window() -> None:
    """What is before it is the opening itself."""
    made = build.training(2)
    told = {"start_ns": T0 + 4, "stop_ns": T0 + 1_000}
    table = table_of(capture(made.operators, made.executions, steps=made.steps, metadata=told))
    assert parts(table) == [[61, 6, 50, 5], [65, 10, 50, 5]]
    assert table.notes[0] == "Step 1 began 0.000 ms before the window was open, and is counted from there."


def test_an_evaluation_has_an_interval_only() -> None:
    """Without gradients nothing says where the forward pass ends."""
    rows = executions((T0 + 4, 5, 0))
    table = table_of(capture((FORWARD,), rows, steps=marked((1, T0, T0 + 10))))
    assert parts(table) == [[10, 4, None, None]]
    assert any("no operator is in the scope Gradients" in note for note in table.notes)


def test_a_network_of_other_names_is_forward() -> None:
    """Where nothing is called network, what has a scope and no other role is forward."""
    given = build.training(1)
    renamed = (FORWARD._replace(full_name="Default/backbone/MatMul-op0"), BACKWARD, UPDATE)
    table = table_of(capture(renamed, given.executions, steps=given.steps))
    assert parts(table) == [[65, 10, 50, 5]]


def test_accumulated_gradients_are_named() -> None:
    """Several forward passes before one update: each step has its parts, and a note says how many updates there are."""
    rows = executions(
        (T0 + 1, 2, 0), (T0 + 3, 2, 1), (T0 + 11, 2, 0), (T0 + 13, 2, 1), (T0 + 15, 3, 2),
    )  # fmt: skip
    given = capture((FORWARD, BACKWARD, UPDATE), rows, steps=marked((1, T0, T0 + 10), (2, T0 + 10, T0 + 20)))
    table = table_of(given)
    assert parts(table) == [[10, 1, 4, 5], [10, 1, 4, 5]]
    assert "The optimizer ran in 1 of 2 steps with gradients: gradients are accumulated." in table.notes


def test_several_passes_in_one_step_are_one_range() -> None:
    """From the first forward operator to the last gradient operator."""
    rows = executions((T0 + 1, 2, 0), (T0 + 3, 2, 1), (T0 + 5, 2, 0), (T0 + 7, 2, 1), (T0 + 9, 1, 2))
    table = table_of(capture((FORWARD, BACKWARD, UPDATE), rows, steps=marked((1, T0, T0 + 12))))
    assert parts(table) == [[12, 1, 8, 3]]


def test_gradients_behind_the_end_of_the_step_are_cut() -> None:
    """Operators run behind the program's back: the step ends where its mark says."""
    rows = executions((T0 + 1, 2, 0), (T0 + 8, 5, 1))
    table = table_of(capture((FORWARD, BACKWARD), rows, steps=marked((1, T0, T0 + 10))))
    assert parts(table) == [[10, 1, 9, 0]]
    assert "1 of 1 steps have gradient operators that end behind it; its end counts." in table.notes


def test_without_marks_the_window_is_one_step() -> None:
    """From its opening to its closing, or else over its operators; the parts are n/a, and that is said."""
    rows = executions((T0 + 5, 10, 0), (T0 + 20, 10, 1))
    told = {"start_ns": T0, "stop_ns": T0 + 100}
    for metadata, total in (({}, 25), (told, 100)):
        table = table_of(capture((FORWARD, BACKWARD), rows, metadata=metadata))
        assert column(table["step"]) == [None]
        assert parts(table) == [[total, None, None, None]]
        assert "the whole window is shown as one step" in table.notes[0]


def test_nothing_at_all_is_no_step() -> None:
    """And no error."""
    table = table_of(capture())
    assert len(table) == 0
    assert table.notes[0] == "n/a: the trace has no step marks and no operators."
    assert column(steps.averages(table)["mean_ns"]) == [None] * 5


def test_communication_is_the_time_when_any_of_it_runs() -> None:
    """Overlapping streams count once, and only inside of the step."""
    given = capture(
        steps=build.steps((1, 100, 100, 150, 200), (2, 200, 210, 250, 300)),
        reduces=build.reduces((1, 5, 110, 30), (1, 6, 120, 40), (2, 5, 290, 50)),
        target="ascend",
    )
    assert column(table_of(given)["all_reduce_ns"]) == [50, 10]


def test_several_graphs_are_told_apart() -> None:
    """With a column for the graph, and the unit of the rows in a note."""
    rows = build.steps((1, 100, 110, 120, 130), (2, 130, 140, 150, 160), (3, 160, 170, 180, 190))
    rows["model"] = [11, 12, 11]
    table = table_of(capture(steps=rows, target="ascend"))
    assert column(table["model"]) == [11, 12, 11]
    assert table.notes[0].startswith("Steps of 2 graphs")


def test_averages() -> None:
    """Means, shares of the mean step, and the mean without the first step."""
    given = capture(steps=build.steps((1, 100, 100, 300, 400), (2, 400, 420, 450, 500), (3, 500, 540, 560, 600)))
    table = steps.averages(table_of(given))
    assert table["part"].tolist() == ["total", "iteration_interval", "fp_and_bp", "tail", "all_reduce"]
    assert column(table["mean_ns"]) == [
        pytest.approx(500 / 3),
        20.0,
        pytest.approx(250 / 3),
        pytest.approx(190 / 3),
        None,
    ]
    assert column(table["share_percent"])[:2] == pytest.approx([100.0, 12.0])
    assert column(table["median_ns"])[0] == 100.0
    assert column(table["min_ns"])[0] == 100.0
    assert column(table["max_ns"])[0] == 300.0
    assert column(table["mean_without_first_ns"])[:2] == [100.0, 30.0]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_parts_of_the_mean_step_add_up(place: int) -> None:
    """Steps without one of their parts are in no mean, and are counted."""
    rows = [(1, 100, 110, 130, 150), (2, 150, 155, 170, 180), (3, 180, 200, 201, 260)]
    number, start, _, backward, end = rows[place]
    rows[place] = (number, start, NA, backward, end)
    table = steps.averages(table_of(capture(steps=build.steps(*rows))))
    for name in ("mean_ns", "mean_without_first_ns"):
        total, *known = column(table[name])[:4]
        assert total == pytest.approx(sum(known))
    assert table.caption == "The parts of 2 steps"
    assert list(table.notes) == ["1 of 3 steps are not averaged: not all of their parts are known."]
    alone = steps.averages(table_of(capture(steps=build.steps((1, 100, NA, 130, 150), (2, 150, NA, 160, 190)))))
    assert column(alone["mean_ns"]) == [45.0, None, None, 25.0, None]
    assert not alone.notes
    explained = steps.explained(alone)
    assert (explained["part"].tolist(), explained.notes) == (["total", "tail"], ())  # this tail begins elsewhere


def test_a_step_that_warms_up_is_noticed() -> None:
    """With how much it is in the mean; one that does not stand out is not."""
    slow = capture(
        steps=marked(
            (1, T0, T0 + 9_000_000), (2, T0 + 9_000_000, T0 + 10_000_000), (3, T0 + 10_000_000, T0 + 11_000_000)
        )
    )
    assert steps.warm_up(table_of(slow)) == (
        "The first step takes 9.000 ms, 9.0 times the median of the others; "
        "the mean is 3.667 ms with it and 1.000 ms without it."
    )
    assert steps.warm_up(table_of(build.training(5))) == ""
    assert steps.warm_up(table_of(build.training(1))) == ""


def test_one_step_is_enough() -> None:
    """Its mean is itself; without it nothing is left."""
    table = steps.averages(table_of(build.training(1)))
    assert column(table["mean_ns"])[:4] == [65.0, 10.0, 50.0, 5.0]
    assert column(table["mean_without_first_ns"]) == [None] * 5


def test_many_steps_take_little_time() -> None:
    """All of it is arrays."""
    count = 20_000
    given = build.training(count)
    table = table_of(given)
    assert int(np.sum(table["total_ns"])) == 65 * count
