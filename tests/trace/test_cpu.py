"""What becomes of the files of operators on the CPU."""

from __future__ import annotations

import time

import numpy as np
import pytest

from instrument.trace import cpu
from instrument.trace.events import Operator, OperatorRows, Problem
from instrument.trace.text import Losses
from tests.trace.encoders import EPOCH_NS, damaged, framework, parsed, table
from tests.trace.encoders import timestamps as encode

DENSE, BIAS = "Default/network/fc-Dense/MatMul-op0", "Gradients/Default/network/fc-Dense/BiasAddGrad-op12"


def shaped(executions: bytes, lines: bytes) -> tuple[OperatorRows, list[Problem]]:
    losses = Losses("g")
    found = cpu.with_shapes(parsed(cpu.executions, executions)[0], cpu.framework(lines, losses), losses)
    return found, losses.problems()


def test_executions_are_exact_and_in_order() -> None:
    """Starts keep all their digits, durations go from ms with six digits to whole ns, and executions are by start."""
    data = encode(
        {DENSE: [(EPOCH_NS + 100, 0.015393, 0), (EPOCH_NS + 937, 5.4e-05, 3)], BIAS: [(EPOCH_NS + 101, 1e3, 1)]}
    )

    found, problems = parsed(cpu.executions, data)

    assert found.operators == [
        Operator(DENSE, "MatMul-op0", "MatMul", "CPU"),
        Operator(BIAS, "BiasAddGrad-op12", "BiasAddGrad", "CPU"),
    ]
    assert found.rows.tolist() == [
        (EPOCH_NS + 100, 15393, 0, 0, -1, -1),
        (EPOCH_NS + 101, 10**9, 1, 1, -1, -1),
        (EPOCH_NS + 937, 54, 0, 3, -1, -1),
    ]
    assert problems == []


def test_names_of_any_kind() -> None:
    """Names may hold commas, quotes, blanks, semicolons and other alphabets; PyNative's have no scope."""
    names = ["Conv2D,op", 'a"b', "x y z", "a;b;c", "算子/Add-op1", "MatMul", "</script>"]
    found, problems = parsed(cpu.executions, encode({name: [(EPOCH_NS, 0.5, 0)] for name in names}))
    assert [operator.full_name for operator in found.operators] == names
    assert [operator.type for operator in found.operators][-3:] == ["Add", "MatMul", "script>"]
    assert found.rows["duration_ns"].tolist() == [500_000] * len(names)
    assert not problems


def test_a_file_that_breaks_off_is_told_wherever_that_is() -> None:
    """Behind a blank it is cut as well: a whole file ends with a line's end."""
    whole = encode({"A": [(EPOCH_NS, 1.0, 0), (EPOCH_NS + 10**7, 1.0, 0)], "B": [(EPOCH_NS, 1.0, 0)]})
    assert parsed(cpu.executions, whole)[1] == []
    for end in range(1, len(whole)):
        found, problems = parsed(cpu.executions, whole[:end])
        assert problems or whole[end - 1 : end] == b"\n", end
        assert len(found.rows) < 3 or end >= len(whole) - 1


def test_older_files_have_no_thread() -> None:
    """Without the third item the thread is missing."""
    found = parsed(cpu.executions, encode({"Mul": [(123456, 0.5), (123457, 0.25)]}))[0]
    assert found.rows["stream"].tolist() == [-1, -1]
    assert found.rows["duration_ns"].tolist() == [500_000, 250_000]


def test_long_durations_keep_their_digits() -> None:
    """More digits than a float64 holds are taken as decimal numbers."""
    found = parsed(cpu.executions, b"Mul;HostCpuOps;1,123456789012.345678,0 \n")[0]
    assert found.rows["duration_ns"].tolist() == [123456789012345678]


@pytest.mark.parametrize(
    "item",
    [
        "x",
        "1",
        "1,2,3,4",
        "1,nan,0",
        "1,inf,0",
        "1,2_0,0",
        "1_0,2,0",
        "1,,0",
        "-1,2,0",
        "99999999999999999999,1,0",
        "1,1e300,0",
        "1,2,x",
        "1;2",
        "9223372036854775807,1,0",
        "1,1e9999999,0",
    ],
)
def test_what_cannot_be_read_is_counted(item: str) -> None:
    """One odd execution costs itself and nothing else."""
    data = f"Mul;HostCpuOps;7,0.001,0 {item} 8,0.002,0 \n".encode()
    found, problems = parsed(cpu.executions, data)
    assert found.rows["start_ns"].tolist() == [7, 8]
    assert found.rows["duration_ns"].tolist() == [1000, 2000]
    assert problems == [Problem("f", "executions that cannot be read", 1)]


def test_lines_of_other_forms_are_counted() -> None:
    """Their bytes are told; empty lines are none."""
    found, problems = parsed(cpu.executions, b"hello world\n\n;;\nMul;HostCpuOps;7,0.001,0 \nMul;Other;7,1,0 \n")
    assert len(found.rows) == 1
    assert problems == [Problem("f", "bytes of lines that hold no executions", 11 + 2 + 15)]


def test_the_last_execution_of_a_cut_file_is_left_out() -> None:
    """Its duration might have had more digits: wherever a file is cut, no execution has another duration."""
    data = encode({DENSE: [(100, 0.015393, 0), (200, 0.25, 0)], "Mul": [(300, 12.3456, 0)]})
    whole = {tuple(row) for row in parsed(cpu.executions, data)[0].rows[["start_ns", "duration_ns"]].tolist()}
    for length in range(len(data)):
        found, problems = parsed(cpu.executions, data[:length])
        rows = {tuple(row) for row in found.rows[["start_ns", "duration_ns"]].tolist()}
        assert rows <= whole
        lost = data[:length].rstrip() != data[:length].rstrip(b" \n") or not data[:length].endswith((b" ", b"\n", b";"))
        assert not (lost and length) or problems


def test_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is taken in pieces gives what it gives in one."""
    data = encode({"Mul": [(place, place / 1000, 0) for place in range(1, 500)]})
    whole, problems = parsed(cpu.executions, data)
    for size in (1, 7, 30, 64, 1000):
        monkeypatch.setattr(cpu, "PIECE_BYTES", size)
        found, problems = parsed(cpu.executions, memoryview(data))
        if size >= 30:
            np.testing.assert_array_equal(found.rows, whole.rows)
            assert problems == []
        else:
            assert problems


def test_shapes_are_those_of_the_same_execution() -> None:
    """Lines and executions of a short name pair in their order, over operators that share it."""
    names = {"Default/a/MatMul-op0": [(10, 1.0, 0), (30, 1.0, 0)], "Default/b/MatMul-op0": [(20, 1.0, 0), (40, 1.0, 0)]}
    lines = [("MatMul-op0", [shape, "NoShape"]) for shape in ("[2, 3]", "[4]", "[2, 3]", "[5]")]

    found, problems = shaped(encode(names), framework(lines))

    of = [found.operators[row] for row in found.rows["operator"].tolist()]
    assert [(operator.full_name[8], operator.shapes) for operator in of] == [
        ("a", "[2, 3];NoShape"),
        ("b", "[4];NoShape"),
        ("a", "[2, 3];NoShape"),
        ("b", "[5];NoShape"),
    ]
    assert len(found.operators) == 3
    assert problems == []


def test_lines_without_a_name_say_nothing() -> None:
    """PyNative writes them: operators without a scope then have no shapes, and nothing is amiss."""
    names = {"MatMul": [(10, 1.0, 0)], "Default/BiasAdd-op0": [(20, 1.0, 0)]}
    found, problems = shaped(encode(names), framework([("", []), ("BiasAdd-op0", ["[3, 8]", "[8]"]), ("", [])]))
    assert [operator.shapes for operator in found.operators] == ["", "[3, 8];[8]"]
    assert problems == []


def test_uncertain_shapes_are_counted() -> None:
    """Lines that are fewer than the executions say their shape only where they all have the same."""
    names = {"Mul-op0": [(10, 1.0, 0), (20, 1.0, 0), (30, 1.0, 0)], "Add-op0": [(11, 1.0, 0), (12, 1.0, 0)]}
    lines = framework([("Mul-op0", ["[1]"]), ("Mul-op0", ["[2]"]), ("Add-op0", ["[9]"])])
    found, problems = shaped(encode(names), lines)
    assert {operator.name: operator.shapes for operator in found.operators} == {"Mul-op0": "", "Add-op0": "[9]"}
    assert problems == [Problem("g", "executions whose shapes are not certain", 3)]


def test_a_cut_framework_file() -> None:
    """The cut line and those of another form are counted."""
    shapes, problems = parsed(
        cpu.framework, b"odd\n" + framework([("Mul-op0", ["[1]"])]) + b"Mul;Mul-op0;1;input_1:[1", "g"
    )
    assert len(shapes.rows) == 1
    assert problems == [Problem("g", "the last line is cut off", 1), Problem("g", "lines of another form", 1)]


HEADING = ["op_side", "op_type", "op_name", "full_op_name", "op_occurrences", "op_total_time(ms)", "op_avg_time(ms)"]


def test_sums_of_the_source() -> None:
    """Names with commas, quotes and line feeds stay in their column."""
    names = ["Conv2D,op", 'a""b', "x\ny", "plain"]
    data = table(HEADING, [["Host", "Mul", "Mul-op0", name, 40, 0.072839, 1] for name in names])
    found, problems = parsed(cpu.totals, data)
    assert [operator.full_name for operator in found.operators] == names
    assert found.rows.tolist() == [(row, 40, 72839, -1, -1) for row in range(4)]
    assert problems == []


def test_cells_that_hold_no_number_are_counted() -> None:
    """N/A and what is no number are told apart; their rows are in no sum, and the others are."""
    cells = ["1.5", "", "N/A", "1e3", "1,234.5", "x", "nan"]
    data = table(HEADING, [["Host", "Mul", "m", "m", 1, cell, 1] for cell in cells])
    found, problems = parsed(cpu.totals, data)
    assert found.rows["total_ns"].tolist() == [1_500_000, 1_000_000_000]
    assert problems == [
        Problem("f", "cells of op_total_time(ms) that say N/A", 2),
        Problem("f", "cells of op_total_time(ms) that hold no number", 3),
    ]


def test_rows_of_other_lengths_and_missing_columns() -> None:
    """A row with its values in the wrong columns is left out and counted; without the columns there is nothing."""
    data = (
        table(HEADING, []) + b"Host,Mul,Mul-op0,a,b,1,2,3\nHost,Mul\n" + table(["Host", "Mul", "m", "m", 1, 2, 3], [])
    )
    found, problems = parsed(cpu.totals, data)
    assert found.rows["total_ns"].tolist() == [2_000_000]
    assert problems == [Problem("f", "rows with too few or too many cells", 2)]
    assert parsed(cpu.totals, b"a,b\n1,2\n")[1] == [
        Problem("f", "no column op_type nor op_occurrences: bytes not read", 8)
    ]


def test_memory() -> None:
    """Sizes and times are whole numbers; what is absent is missing."""
    heading = ["Timestamp(ns)", "Total Allocated(Byte)", "Total Reserved(Byte)", "Total Active(Byte)"]
    data = table(heading, [[EPOCH_NS, 512, 2**30, 512], [EPOCH_NS + 1, 1024, "N/A", 7], ["", 1, 2, 3]])
    found, problems = parsed(cpu.memory, data)
    assert found.tolist() == [(EPOCH_NS, 512, 2**30, 512), (EPOCH_NS + 1, 1024, -1, 7)]
    assert [problem.amount for problem in problems] == [1, 1]


def test_hostile_files(rng: np.random.Generator) -> None:
    """Nothing that a file may hold is an error."""
    raw = encode({DENSE: [(EPOCH_NS, 0.5, 0)] * 3, "Mul": [(EPOCH_NS, 0.25)]})
    lines = framework([("Mul-op0", ["[1]"]), ("", [])])
    sums = table(HEADING, [["Host", "Mul", "m", 'a"b', 1, 2.5, 3]] * 2)
    for data in (raw, lines, sums):
        for broken in damaged(data, rng, 150):
            found, _ = shaped(broken, broken)
            assert (found.rows["operator"] < max(len(found.operators), 1)).all()
            parsed(cpu.totals, broken)
            parsed(cpu.memory, broken)


def test_many_executions_take_linear_time() -> None:
    """Two hundred thousand executions in one line, and as many lines of one, take seconds at most."""
    started = time.process_time()
    one = parsed(cpu.executions, b"Mul;HostCpuOps;" + b"1795971808267267323,0.000591,0 " * 200_000 + b"\n")[0]
    many = parsed(cpu.executions, b"Mul;HostCpuOps;1795971808267267323,0.000591,0 \n" * 50_000)[0]
    assert (len(one.rows), len(many.rows)) == (200_000, 50_000)
    assert time.process_time() - started < 20


def test_shapes_of_inputs_that_are_no_tensors() -> None:
    """Tuples and inputs without a shape stand in MindSpore's own files, and are no damage."""
    line = b"ReduceMean;ReduceMean-op0;689909143;input_1:[32, 120];input_2:TupleShape();input_3:NoShape;\n"
    found, problems = parsed(cpu.framework, line * 3)
    assert (found.kinds, problems) == ([("ReduceMean-op0", "[32, 120];TupleShape();NoShape")], [])
