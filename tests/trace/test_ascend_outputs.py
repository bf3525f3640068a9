"""What becomes of the tables that tools made of a device's raw files."""

from __future__ import annotations

import numpy as np

from instrument.trace import ascend_outputs, tlv
from instrument.trace.events import Operator, Problem
from tests.trace.encoders import (
    EPOCH_NS,
    damaged,
    decimal,
    memory_usage,
    op_range,
    parsed,
    table,
)

KERNELS = [
    "Step ID",
    "Model ID",
    "Task ID",
    "Stream ID",
    "Name",
    "Type",
    "Accelerator Core",
    "Start Time(us)",
    "Duration(us)",
    "Input Shapes",
]


def kernel(
    name: str, start_ns: int, duration: str, core: str = "AI_CORE", shapes: str = '"1,3;3,3"', task: object = 7
) -> list[object]:
    return [4, 1, task, 16, name, "Mul", core, decimal(start_ns, 1000) + "\t", duration, shapes]


def test_kernel_details() -> None:
    """Times keep their digits; sides are told by the kind of core; shapes with commas stay in their column."""
    rows = [
        kernel("Default/fc/Mul-op1", EPOCH_NS + 37, "1.42"),
        kernel("x, y", EPOCH_NS, "3", "AI_VECTOR_CORE", "N/A"),
        kernel("hcom", EPOCH_NS + 1, "2.001", "HCCL", "N/A", "N/A"),
    ]
    found, problems = parsed(ascend_outputs.kernel_details, table(KERNELS, rows))
    assert found.operators == [
        Operator("Default/fc/Mul-op1", "Mul-op1", "Mul", "AI Core", "1,3;3,3"),
        Operator("x, y", "x, y", "Mul", "AI Core"),
        Operator("hcom", "hcom", "Mul", "communication"),
    ]
    assert found.executions.tolist() == [
        (EPOCH_NS, 3000, 1, 16, 7, 4),
        (EPOCH_NS + 1, 2001, 2, 16, -1, 4),
        (EPOCH_NS + 37, 1420, 0, 16, 7, 4),
    ]
    assert problems == [Problem("f", "cells of Task ID that say N/A", 1)]


def test_kernels_without_times_are_counted() -> None:
    """They are in no sum."""
    rows = [
        kernel("a", EPOCH_NS, "N/A"),
        kernel("a", EPOCH_NS, "x"),
        kernel("a", EPOCH_NS, "1e3"),
        kernel("a", EPOCH_NS, "-3"),
    ]
    found, problems = parsed(ascend_outputs.kernel_details, table(KERNELS, rows))
    assert found.executions["duration_ns"].tolist() == [10**6, -3000]
    assert [problem.amount for problem in problems] == [1, 1]


def test_a_cell_without_end() -> None:
    """A quote that is never closed costs the rows that it swallows, not the file."""
    good = [kernel(f"k{number}", EPOCH_NS + number, "1") for number in range(3000)]
    data = table(KERNELS, good)
    broken = data.replace(b"k5,", b'"k5,', 1)
    found, problems = parsed(ascend_outputs.kernel_details, broken)
    assert 5 <= len(found.executions) < 3000
    assert sum(problem.amount for problem in problems) >= 1


def test_sums_of_types() -> None:
    """Operators without names, by type and side."""
    heading = [
        "Device_id",
        "OP Type",
        "Core Type",
        "Count",
        "Total Time(us)",
        "Min Time(us)",
        "Avg Time(us)",
        "Max Time(us)",
        "Ratio(%)",
    ]
    found = parsed(
        ascend_outputs.op_statistic, table(heading, [[0, "Mul", "AI_CORE", 3, "6.5", "1", "2", "N/A", "50"]])
    )[0]
    assert found.operators == [Operator("", "", "Mul", "AI Core")]
    assert found.rows.tolist() == [(0, 3, 6500, 1000, -1)]


def test_times_of_steps() -> None:
    """Columns by name; an empty step is all of the capture."""
    heading = [
        "Device_id",
        "Step",
        "Computing",
        "Communication(Not Overlapped)",
        "Overlapped",
        "Communication",
        "Free",
        "Stage",
        "Bubble",
        "Preparing",
    ]
    found, problems = parsed(
        ascend_outputs.step_trace_time, table(heading, [[0, "", "1.5", "2", "3", "5", "4", "6", "7", "8"]])
    )
    assert found.tolist() == [(-1, 1500, 5000, 3000, 2000, 4000, 6000, 7000, 8000)]
    assert [one.what for one in problems] == ["cells of Step that say N/A"]


def test_columns_that_contradict_each_other_are_told() -> None:
    """The value of the file stays; columns that differ by rounding agree."""
    heading = ["Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication"]
    rows = [[1, "10", "80", "5", "15"], [2, "10", "10.001", "5", "15"]]
    found, problems = parsed(ascend_outputs.step_trace_time, table(heading, rows))
    assert found["overlapped_ns"].tolist() == [5000, 5000]
    assert [(one.what, one.amount) for one in problems] == [
        ("steps whose columns of communication contradict each other", 1)
    ]


def test_memory_of_the_device() -> None:
    """Of components that cover each other one is taken; sizes become bytes."""
    heading = [
        "Component",
        "Timestamp(us)",
        "Total Allocated(MB)",
        "Total Reserved(MB)",
        "Total Active(MB)",
        "Device Type",
    ]
    rows = [
        ["GE", "2.0", "1", "1", "1", "NPU:0"],
        ["MindSpore+GE", "5.001", "2.5", "4", "N/A", "NPU:0"],
        ["MindSpore+GE", "3", "1", "1", "1", "NPU:0"],
    ]
    found = parsed(ascend_outputs.memory_record, table(heading, rows))[0]
    assert found.tolist() == [(3000, 1024000, 1024000, 1024000), (5001, 2560000, 4096000, -1)]


LEGACY = [
    "step_num",
    "start_point",
    "end_point",
    "total",
    "fp_point",
    "bp_point",
    "iteration_interval",
    "fp_and_bp",
    "tail",
    "stream_20_0_AllReduce-op1",
    "stream_20_0_AllReduce-op1_start_point",
    "stream_20_0_AllReduce-op1_end_point",
]


def test_the_legacy_step_trace() -> None:
    """Cycles are 10 ns; N/A is missing; the row of averages is no step, and a reduce of zeros is none."""
    rows = [
        [1, 100, 200, 100, 110, 150, 10, 40, 50, 5, 160, 165],
        [2, 200, 320, 120, "N/A", "N/A", 0, 0, 0, 0, 0, 0],
        ["-", 150, 260, 110, 110, 150, 5, 20, 25, 5, 160, 165],
        [3, "x", 320, 120, 1, 2, 0, 0, 0, 0, 0, 0],
    ]
    found, problems = parsed(ascend_outputs.step_trace_raw, table(LEGACY, rows))
    assert found.steps.tolist() == [(1, 1000, 1100, 1500, 2000, -1), (2, 2000, -1, -1, 3200, -1)]
    assert found.names == ["0_AllReduce-op1"]
    assert found.reduces.tolist() == [(1, 20, 0, 1600, 50)]
    assert {problem.what: problem.amount for problem in problems} == {
        "cells of start_point that hold no number": 1,
        "cells of fp_point that say N/A": 1,
        "cells of bp_point that say N/A": 1,
        "steps without a number, start or end": 1,
    }


def test_ranges_of_the_framework() -> None:
    """The full name where there is one; a record that is cut off is counted."""
    data = op_range(100, 250, "Default/Mul", step=3) + op_range(5, 5, "moment") + op_range(9, 5, "back")
    found, problems = parsed(tlv.op_ranges, data + b"\x01\x00\xff\xff")
    assert found.names == ["Default/Mul", "moment"]
    assert found.rows.tolist() == [(100, 250, 0, 5, 42, 3, 0, 0), (5, 5, 1, 5, 42, 1, 0, 0)]
    assert problems == [
        Problem("f", "ranges with impossible times or thread", 1),
        Problem("f", "bytes of a record that is cut off", 4),
    ]
    for length in range(len(data)):
        assert len(parsed(tlv.op_ranges, data[:length])[0].rows) <= 2


def test_memory_of_the_framework() -> None:
    """Samples come by time."""
    found = parsed(tlv.memory_usage, memory_usage(9, 100, 300, 20) + memory_usage(5, 1, 2))[0]
    assert found.tolist() == [(5, 1, 2, 1), (9, 100, 300, 120)]


def test_hostile_files(rng: np.random.Generator) -> None:
    """Nothing that a file may hold is an error."""
    tables = [
        table(KERNELS, [kernel("a,b", EPOCH_NS, "1.5")] * 3),
        table(LEGACY, [[1, 100, 200, 1, 110, 150, 1, 4, 5, 5, 160, 165]] * 2),
    ]
    for data in (*tables, op_range(1, 2, "x") * 2, memory_usage(1, 2, 3)):
        for broken in damaged(data, rng, 60):
            for parse in (
                ascend_outputs.kernel_details,
                ascend_outputs.op_statistic,
                ascend_outputs.step_trace_time,
                ascend_outputs.memory_record,
                ascend_outputs.step_trace_raw,
                tlv.op_ranges,
                tlv.memory_usage,
            ):
                parsed(parse, broken)
