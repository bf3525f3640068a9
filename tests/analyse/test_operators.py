"""Operators: sums by name, type and side are exact, whatever the names are."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from instrument.analyse import operators
from instrument.analyse.executions import count_executions
from instrument.analyse.profile import profile
from instrument.analyse.table import Table
from instrument.errors import InstrumentError
from instrument.trace.events import AI_CORE, AI_CPU, CPU, MISSING, TOTAL, Capture, Operator
from tests.analyse.build import T0, capture, column, executions, marked, operator, training

ROOT = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
SAMPLES = ROOT / "samples"


def given() -> Capture:
    """Two steps; Conv2D met inputs of two shapes."""
    names = (
        operator("Default/network/Conv2D-op0", AI_CORE, shapes="[1, 3];[2]"),
        operator("Default/network/Conv2D-op0", AI_CORE, shapes="[9, 3];[2]"),
        operator("Default/network/Conv2D-op1", AI_CORE),
        operator("Default/network/GetNext-op2", AI_CPU),
        operator("Default/network/Never-op3", AI_CORE),
    )
    rows = executions(
        (100, 10, 0, 5, 1), (120, 30, 1, 5, 1), (160, 20, 2, 5, 1), (110, 40, 3, 6, 1), (300, 60, 0, 5, 2),
        (400, 25, 2, 5, 2),
    )  # fmt: skip
    return capture(names, rows, steps=marked((1, 50, 250), (2, 250, 450)), target="ascend", clock="device")


def by_name(made: Capture) -> Table:
    return operators.by_name(made, count_executions(made))


def test_by_name() -> None:
    """Rows of one full name are one operator with all its shapes; one that never ran has no row."""
    table = by_name(given())
    assert table["full_name"].tolist() == [
        f"Default/network/{name}" for name in ("Conv2D-op0", "Conv2D-op1", "GetNext-op2")
    ]
    assert table["type"].tolist() == ["Conv2D", "Conv2D", "GetNext"]
    assert table["count"].tolist() == [3, 2, 1]
    assert table["total_ns"].tolist() == [100, 45, 40]
    assert table["mean_ns"].tolist() == [100 / 3, 22.5, 40.0]
    assert table["min_ns"].tolist() == [10, 20, 40]
    assert table["max_ns"].tolist() == [60, 25, 40]
    assert table["share_percent"].tolist() == pytest.approx([100 * part / 185 for part in (100, 45, 40)])
    assert table["input_shapes"].tolist() == ["[1, 3];[2] | [9, 3];[2]", "", ""]


def test_per_step_is_by_the_steps_that_the_trace_of_that_side_covers() -> None:
    """The AI CPU is seen in one step only."""
    assert by_name(given())["per_step"].tolist() == [1.5, 1.0, 1.0]
    without = by_name(capture(given().operators, executions((100, 10, 0))))
    assert column(without["per_step"]) == [None]


def test_by_type_and_by_side() -> None:
    """With how many different operators each has."""
    made = given()
    kinds, sides = (of(made, count_executions(made)) for of in (operators.by_type, operators.by_side))
    assert [row[:5] for row in kinds.rows()] == [("Conv2D", AI_CORE, 2, 5, 145), ("GetNext", AI_CPU, 1, 1, 40)]
    assert [row[:4] for row in sides.rows()] == [(AI_CORE, 2, 5, 145), (AI_CPU, 1, 1, 40)]
    assert kinds["share_percent"].sum() == pytest.approx(100)


@pytest.mark.parametrize("name", ["Conv2D,op", 'a""b', "x\ny", "算子", "", "-op1", "/"])
def test_any_name_is_one_row(name: str) -> None:
    """Sums by type equal those by name, and the CSV has it in one cell."""
    made = capture((Operator(name, name, "T", CPU, '"1,3;3,3"'),), executions((T0, 7, 0), (T0 + 9, 8, 0)))
    table = by_name(made)
    assert (table["count"].tolist(), table["total_ns"].tolist()) == ([2], [15])
    rows = list(csv.reader(io.StringIO(table.to_csv(), newline="")))
    assert len(rows[1]) == len(rows[0])
    assert operators.by_type(made, count_executions(made))["total_ns"].tolist() == [15]


def test_sums_of_the_source_stand_in_for_executions() -> None:
    """Where there are none, and it is said; least and most are n/a unless the source tells."""
    totals = np.array([(0, 4, 1_000, MISSING, MISSING), (1, 2, 500, 100, 400)], TOTAL)
    made = capture((operator("", CPU, "Conv2D"), operator("", CPU, "Add")), totals=totals)
    table = operators.by_type(made, count_executions(made))
    assert [row[:4] for row in table.rows()] == [("Conv2D", CPU, 1, 4), ("Add", CPU, 1, 2)]
    assert table["mean_ns"].tolist() == [250.0, 250.0]
    assert (column(table["min_ns"]), column(table["max_ns"])) == ([None, 100], [None, 400])
    assert table.notes == ("The trace has no executions; counts and totals are what its source summed up.",)


def test_nothing_has_no_rows() -> None:
    """And divides nothing by zero."""
    made = capture()
    for of in (operators.by_name, operators.by_type, operators.by_side):
        assert len(of(made, count_executions(made))) == 0
    still = capture((operator("a", CPU),), executions((T0, 0, 0)))
    assert by_name(still)["share_percent"].tolist() == [0.0]


# ---------------------------------------------------------------- as MindSpore and torch ask


def test_op_analyse_has_the_right_shapes() -> None:
    """By type, side and shapes of inputs, times in microseconds."""
    made = given()
    found = json.loads(operators.op_analyse(made, count_executions(made), "Conv2D"))
    assert found == {
        "Conv2D": [
            fact("[1, 3];[2]", 2, 0.07, 0.035),
            fact("[9, 3];[2]", 1, 0.03, 0.03),
            fact("", 2, 0.045, 0.0225),
        ],
        "device_id": "0",
    }


def fact(shapes: str, count: int, total_us: float, mean_us: float) -> dict[str, object]:
    return {
        "op_side": AI_CORE, "input_shape": shapes, "op_occurrences": count, "op_total_time(us)": total_us,
        "op_avg_time(us)": mean_us,
    }  # fmt: skip


def test_op_analyse_takes_several_names() -> None:
    """Of types, names and full names."""
    made = training(4)
    asked = ["MatMul", "MatMul-op1", "Default/optimizer-Momentum/ApplyMomentum-op0"]
    found = json.loads(operators.op_analyse(made, count_executions(made), asked))
    assert [sum(one["op_occurrences"] for one in found[name]) for name in asked] == [8, 4, 4]
    assert {one["op_side"] for one in found["MatMul"]} == {"cpu"}
    assert [one["input_shape"] for one in found["MatMul"]] == ["[2, 3];[3, 4]", "[4, 2];[2, 3]"]


def test_op_analyse_says_what_there_is() -> None:
    """An unknown operator is an error with the types; other things are no names."""
    made = training(1)
    with pytest.raises(InstrumentError, match="no operator 'Conv3D' in this profile; types: ApplyMomentum, MatMul"):
        operators.op_analyse(made, count_executions(made), "Conv3D")
    for wrong in (3, [], [""], None):
        with pytest.raises(TypeError, match="expected the name of an operator"):
            operators.op_analyse(made, count_executions(made), wrong)  # type: ignore[arg-type]


def test_key_averages_sorts_and_cuts() -> None:
    """By columns of ours and by torch's words."""
    found = operators.KeyAverages(by_name(given()))
    by_count = found.table(sort_by="count", row_limit=2).splitlines()
    assert by_count[2].startswith("Default/network/Conv2D-op0")
    assert by_count[-1] == "... and 1 more rows"
    assert found.table("cpu_time_total") == found.table() == str(found)
    assert found.table("name", -1).splitlines()[2].startswith("Default/network/Conv2D-op0")
    assert len(found) == 3
    with pytest.raises(ValueError, match="sort_by is 'speed'; expected one of full_name, type"):
        found.table("speed")


# ---------------------------------------------------------------- real traces


@pytest.mark.skipif(not SAMPLES.exists(), reason=f"the samples are not there: {SAMPLES}")
def test_a_real_cpu_trace() -> None:
    """Counts and totals of each operator as they were computed elsewhere."""
    expected = json.loads((ROOT / "expected" / "cpu_ms210_lenet.json").read_text())
    found = profile(SAMPLES / "cpu_ms210_lenet").operators
    assert len(found) == expected["ops"]
    assert found["count"].sum() == expected["executions"]
    assert int(found["total_ns"].sum()) == Decimal(expected["total_ms"]) * 10**6
    for row in found.records():
        told = expected["per_op"][row["full_name"]]
        assert (row["count"], row["total_ns"]) == (told["count"], Decimal(told["total_ms"]) * 10**6)
        assert row["share_percent"] == pytest.approx(100 * told["share"])


@pytest.mark.skipif(not SAMPLES.exists(), reason=f"the samples are not there: {SAMPLES}")
def test_a_real_ascend_trace() -> None:
    """199 operators, 2817 executions and 29 types on the AI Core, and the sum of their means."""
    found = profile(SAMPLES / "ascend2020_widedeep")
    on_core = found.operators.take(found.operators["side"] == AI_CORE)
    assert (len(on_core), int(on_core["count"].sum())) == (199, 2817)
    assert on_core["mean_ns"].sum() / 1e6 == pytest.approx(126.43631757142849)
    assert int((found.operator_types["side"] == AI_CORE).sum()) == 29
