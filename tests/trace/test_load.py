"""A window's raw files become one capture a device."""

from __future__ import annotations

import json

import numpy as np

from instrument.trace.completeness import is_absence
from instrument.trace.events import EXECUTION, SPAN_CALLBACK, SPAN_STEP, STEP, Capture, Problem
from instrument.trace.files import RawFiles
from instrument.trace.load import captures
from tests.trace.encoders import (
    EPOCH_NS,
    complete,
    damaged,
    dump,
    framework,
    mark,
    op_range,
    process,
    table,
    thread,
    timestamps,
)

DENSE = "Default/network/fc-Dense/MatMul-op0"
WINDOW = {
    "rank": 0,
    "target": "cpu",
    "mode": "graph",
    "start_ns": EPOCH_NS,
    "stop_ns": EPOCH_NS + 10**9,
    "user": {"lr": 0.5},
}


START_INFO = b'{"collectionTimeBegin": "1692340024324979", "clockMonotonicRaw": "56579931060630"}'


def one(files: dict[str, bytes]) -> Capture:
    (capture,) = captures(files)
    return capture


def window(**more: object) -> dict[str, bytes]:
    marks = [
        mark(EPOCH_NS + 100, 100, 0, SPAN_STEP, 7),
        mark(EPOCH_NS + 200, 50, 0, SPAN_STEP, 8),
        mark(EPOCH_NS + 190, 5, 1, SPAN_CALLBACK),
    ]
    return {
        "instrument.window.0.json": json.dumps({**WINDOW, **more}).encode(),
        "instrument.names.0.json": b'["step", "SummaryCollector"]',
        "instrument.marks.0.bin": b"".join(marks),
        "FRAMEWORK/cpu_op_execute_timestamp_0.txt": timestamps(
            {
                DENSE: [(EPOCH_NS + 100, 1e-5, 0), (EPOCH_NS + 260, 1e-5, 0)],
                "Mul": [(EPOCH_NS + 199, 1e-4, 0), (EPOCH_NS + 99, 1e-5, 0)],
            }
        ),
        "FRAMEWORK/cpu_framework_0.txt": framework(
            [("", []), ("MatMul-op0", ["[2]"]), ("", []), ("MatMul-op0", ["[2]"])]
        ),
    }


def test_executions_get_the_step_that_they_start_in() -> None:
    """The host's marks say it: half open, and none before, between and after them."""
    found = one(window())
    assert (found.device, found.target, found.clock) == (0, "cpu", "epoch")
    assert [
        (found.operators[row].name, start - EPOCH_NS, step)
        for start, row, step in found.executions[["start_ns", "operator", "step"]].tolist()
    ] == [
        ("Mul", 99, -1),
        ("MatMul-op0", 100, 7),
        ("Mul", 199, 7),
        ("MatMul-op0", 260, -1),
    ]
    assert found.steps["step"].tolist() == [7, 8]
    assert [found.names[row] for row in found.spans["name"].tolist()] == ["step", "SummaryCollector", "step"]
    assert {operator.shapes for operator in found.operators} == {"", "[2]"}
    assert found.metadata["user"] == {"lr": 0.5}
    assert found.problems == ()


def test_pieces_give_the_same() -> None:
    """Files that come in pieces of any size are the same files."""
    whole = one(window())
    pieces = {name: [data[place : place + 7] for place in range(0, len(data), 7)] for name, data in window().items()}
    (found,) = captures(RawFiles(pieces))
    np.testing.assert_array_equal(found.executions, whole.executions)
    np.testing.assert_array_equal(found.spans, whole.spans)


def test_no_step_marks() -> None:
    """Everything else is there; an empty window, and nothing at all, are no error."""
    files = {name: data for name, data in window().items() if "marks" not in name}
    found = one(files)
    assert (len(found.steps), set(found.executions["step"].tolist())) == (0, {-1})
    empty = one({"instrument.window.3.json": b'{"rank": 3, "target": "gpu"}'})
    assert (empty.device, empty.target, len(empty.executions), empty.executions.dtype) == (3, "gpu", 0, EXECUTION)
    assert captures({}) == []
    assert captures({"readme.txt": b"x"}) == []


def test_batches_are_moved_to_the_wall_clock() -> None:
    """Where the window says what the monotonic clock was; else their times stay, which is told."""
    batches = {
        "dataset_iterator_profiling_0.txt": b"0 2 1 5 3000\n1 16 1 2 3000\n",
        "pipeline_profiling_0.json": b'{"op_info": []}',
        "minddata_cpu_utilization_0.json": b'{"cpu_processor_num": 2}',
    }
    anchored = one({**window(start_monotonic_ns=1_000_000_000), **batches})
    assert anchored.batches["time_ns"].tolist() == [EPOCH_NS + 2_000_000_000]
    assert anchored.problems == ()
    loose = one({**window(), **batches})
    assert loose.batches["time_ns"].tolist() == [3_000_000_000]
    assert loose.metadata["batches_clock"] == "monotonic"
    assert loose.problems == (Problem("dataset_iterator_profiling_0.txt", "batches whose times stay monotonic", 1),)


def test_the_raw_file_comes_before_the_timeline_that_is_made_of_it() -> None:
    """An execution is there once; without the raw file the timeline tells it."""
    view = {
        "ASCEND_PROFILER_OUTPUT/trace_view.json": dump([process(2, "CPU OP"), complete("Mul", EPOCH_NS + 5, 3, 2, 0)])
    }
    assert len(one({**window(), **view}).executions) == 4
    alone = one(view)
    assert alone.executions[["start_ns", "duration_ns"]].tolist() == [(EPOCH_NS + 5, 3)]
    assert alone.clock == "epoch"


KERNELS = ["Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)"]


def test_a_device_and_its_host() -> None:
    """Kernels and the host's operators are in one capture, by start; sums only stand in for executions."""
    files = window()
    files["ASCEND_PROFILER_OUTPUT/kernel_details.csv"] = table(
        KERNELS, [["Add", "Add", "AI_CORE", f"{EPOCH_NS // 1000}.150", "1"]]
    )
    files["ASCEND_PROFILER_OUTPUT/op_statistic.csv"] = table(["OP Type", "Count", "Total Time(us)"], [["Add", 1, 1]])
    found = one(files)
    assert [found.operators[row].side for row in found.executions["operator"].tolist()] == [
        "CPU",
        "CPU",
        "AI Core",
        "CPU",
        "CPU",
    ]
    assert found.executions["step"].tolist() == [-1, 7, 7, 7, -1]
    assert len(found.totals) == 0
    assert one({"op_statistic.csv": files["ASCEND_PROFILER_OUTPUT/op_statistic.csv"]}).totals["total_ns"].tolist() == [
        1000
    ]


def test_times_of_another_clock_are_told() -> None:
    """Marks on the wall clock cannot be put beside a device that counts from somewhere else."""
    files = {name: data for name, data in window().items() if "FRAMEWORK" not in name}
    files["gpu_op_execute_timestamp_0.txt"] = timestamps({"Mul": [(500, 1.0)]}, "GpuOps")
    found = one(files)
    assert (found.clock, len(found.spans)) == ("device", 0)
    assert tuple(problem for problem in found.problems if not is_absence(problem)) == (
        Problem("instrument.marks.0.bin", "marks and spans on another clock than the rest (epoch, not device)", 3),
    )


def test_timelines_of_the_raw_monotonic_clock() -> None:
    """`start_info` says what that is on the wall clock; planes of communication repeat the device's own tasks."""
    task = {"args": {"Task Type": "AI_CORE"}}
    files = {
        "PROF_1/device_0/start_info.0": START_INFO,
        "PROF_1/device_0/timeline/task_time_0_2_1.json": dump(
            [
                process(3, "Ascend Hardware"),
                complete("Mul", 56579931060631, 5, 3, 2, **task),
                complete("NOTIFY_WAIT", 56579931060632, 5, 3, 2, args={"Task Type": "NOTIFY_WAIT"}),
            ]
        ),
        "PROF_1/device_0/timeline/hccl_0_2_1.json": dump(
            [
                process(4, "HCCL"),
                thread(4, 1, "Plane 1"),
                complete("AllReduce", 56579931060633, 9, 4, 70),
                complete("Notify_Wait", 56579931060632, 5, 4, 1),
            ]
        ),
    }
    found = one(files)
    assert found.clock == "epoch"
    assert (found.executions["start_ns"] - 1692340024324979000).tolist() == [1, 3]
    assert len(found.activities) == 1


def test_ranges_of_the_framework_need_a_clock() -> None:
    """With the host's counter they are spans; without it they are counted."""
    clocks = {
        "PROF_1/device_0/start_info.0": b'{"collectionTimeBegin": "1692340024324979", "clockMonotonicRaw": "1000"}',
        "PROF_1/host/host_start.log": b"[Host]\nclock_realtime: 5\nclock_monotonic_raw: 2000\ncntvct: 100\n",
    }
    ranges = {"FRAMEWORK/mindspore.op_range": op_range(101, 103, "Mul")}
    found = one({**clocks, **ranges})
    assert found.spans[["start_ns", "duration_ns"]].tolist() == [(1692340024324979000 - 1000 + 2010, 20)]
    assert [problem.amount for problem in one(ranges).problems] == [1]


def test_one_capture_a_device() -> None:
    """Each has its own files."""
    files = {
        f"gpu_op_execute_timestamp_{device}.txt": timestamps({"Mul": [(EPOCH_NS, 1.0)] * (device + 1)}, "GpuOps")
        for device in (0, 1, 10)
    }
    assert [(found.device, len(found.executions)) for found in captures(files)] == [(0, 1), (1, 2), (10, 11)]


def test_pipeline_and_its_use_of_processors() -> None:
    """Both files meet in the stages."""
    stages = {"op_info": [{"op_id": 0, "op_type": "Batch", "num_workers": 1, "metrics": None}], "sampling_interval": 20}
    use = {
        "cpu_processor_num": 2,
        "op_info": [{"op_id": 0, "metrics": {"sys_utilization": [1], "user_utilization": [2]}}],
    }
    found = one(
        {
            "pipeline_profiling_0.json": json.dumps(stages).encode(),
            "minddata_cpu_utilization_0.json": json.dumps(use).encode(),
        }
    )
    assert [stage.cpu_percent for stage in found.pipeline] == [3.0]
    assert found.metadata["pipeline_sampling_interval_ms"] == 20


def test_hostile_windows(rng: np.random.Generator) -> None:
    """Whatever the files hold, there is a capture with whole tables."""
    files = window(start_monotonic_ns=5)
    files["device_queue_profiling_0.txt"] = b"0 2 1 5 3000\n"
    files["FRAMEWORK/cpu_ms_memory_record_0.txt"] = table(["Timestamp(ns)", "Total Allocated(Byte)"], [[EPOCH_NS, 5]])
    files["ASCEND_PROFILER_OUTPUT/trace_view.json"] = dump(
        [process(2, "CPU OP"), complete("Mul", EPOCH_NS + 5, 3, 2, 0)]
    )
    files["ASCEND_PROFILER_OUTPUT/kernel_details.csv"] = table(KERNELS, [["Add", "Add", "AI_CORE", "1.5", "1"]])
    names = list(files)
    for _ in range(150):
        broken = dict(files)
        for name in rng.choice(names, 3):
            broken[name] = next(damaged(files[name], rng, 1))
        for found in captures(broken):
            assert (found.executions["operator"] < len(found.operators)).all()
            assert (found.spans["name"] < len(found.names)).all()
            assert found.steps.dtype == STEP
