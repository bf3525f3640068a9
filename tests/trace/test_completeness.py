"""Files of a set that are empty or absent are named, each with what it costs, at the device that they belong to."""

from __future__ import annotations

import pytest

from instrument.trace.completeness import is_absence
from instrument.trace.events import Capture
from instrument.trace.load import captures
from tests.trace import encoders_ascend as encode
from tests.trace.encoders import dump, table, timestamps

HWTS, TASKS = "hwts.data.0.slice_0", "Framework.task_desc_info.0.slice_0"
STEPS, AICPU = "ts_track.data.0.slice_0", "DATA_PREPROCESS.AICPU.0.slice_0"
SHAPES = "Framework.tensor_data_info.0.slice_0"
JOB = {
    HWTS: encode.hwts([(0, 3, 1, 10), (1, 3, 1, 90), (0, 3, 2, 100), (1, 3, 2, 110)]),
    TASKS: encode.task_record("Default/Mul-op1", "Mul", 3, 1),
    STEPS: encode.ts_track([(2, 5), (3, 100), (4, 200)]),
    AICPU: encode.aicpu_record(3, 9, 20, 70),
    SHAPES: encode.tensor_record(3, 1, [(0, 3, 43, (2, 2))]),
    "host_start.log": encode.host_start(10**18, 5),
    "dev_start.log.0": encode.dev_start(5, 0),
    "start_info.0": encode.start_info(10**15, 5),
    "info.json.0": encode.info_json(),
}


def absences(files: dict[str, bytes]) -> dict[str, str]:
    return {one.file: one.what for capture in captures(files) for one in capture.problems if is_absence(one)}


def only(files: dict[str, bytes]) -> Capture:
    (found,) = captures(files)
    return found


def test_a_whole_job_lacks_nothing() -> None:
    """Nothing is named where nothing costs."""
    assert absences(JOB) == {}


@pytest.mark.parametrize("name", list(JOB))
def test_each_empty_file_is_named(name: str) -> None:
    """By its own name, without the part of the slice."""
    (file,) = absences({**JOB, name: b""})
    assert file == name.removesuffix(".slice_0")


@pytest.mark.parametrize(
    ("name", "files"),
    [
        (HWTS, ["hwts"]),
        (TASKS, ["Framework.task_desc_info"]),
        (STEPS, ["training_trace or ts_track"]),
        (AICPU, ["DATA_PREPROCESS.AICPU"]),
        (SHAPES, ["Framework.graph_desc_info or tensor_data_info"]),
        ("host_start.log", ["host_start.log", "host_start.log"]),
        ("dev_start.log.0", ["dev_start.log"]),
        ("info.json.0", ["info.json"]),
        ("start_info.0", []),  # host_start.log has the wall clock, too
    ],
)
def test_each_absent_file_is_named(name: str, files: list[str]) -> None:
    """By the name that it would have, with what it costs; nothing where another file says the same."""
    found = absences({other: data for other, data in JOB.items() if other != name})
    assert list(found) == list(dict.fromkeys(files))
    assert all(what.startswith("the file is missing: ") for what in found.values())


def test_tasks_without_names_are_told() -> None:
    """Without Framework files tasks of the runtime count as operators."""
    files = {name: data for name, data in JOB.items() if name != TASKS}
    ((file, what),) = absences(files).items()
    assert (file, "tasks of the runtime count as operators" in what) == ("Framework.task_desc_info", True)
    assert len(only(files).executions) == len(only(JOB).executions) + 1


def test_one_file_alone_is_no_set() -> None:
    """Who opens one file knows that it is one."""
    assert absences({HWTS: JOB[HWTS]}) == {}
    assert list(absences({HWTS: b""})) == ["hwts.data.0"]


def test_a_file_of_an_iteration_is_named() -> None:
    """Files of one iteration come in sets, too."""
    event = {"ph": "X", "name": "Mul", "pid": 1, "tid": 2, "ts": "1", "dur": "2"}
    names = [f"device_0/timeline/{kind}_0_2_{place}.json" for kind in ("task_time", "hccl") for place in (1, 2)]
    files = {name: dump([event]) for name in names if name != names[3]}
    files["device_0/start_info.0"] = encode.start_info(10**15, 5)
    assert absences(files) == {"hccl_0_2_2.json": "the file is missing: the tasks of communication in it are not known"}


def test_executions_that_the_sums_count_and_the_file_lacks_are_told() -> None:
    """A file that was cut at the end of a line looks whole."""
    heading = ["op_side", "op_type", "op_name", "full_op_name", "op_occurrences", "op_total_time(ms)"]
    rows = [["Host", "Mul", "Mul-op0", "Mul-op0", 3, 3.0], ["Host", "Add", "Add-op0", "Add-op0", 2, 3.0]]
    files = {
        "cpu_op_execute_timestamp_0.txt": timestamps({"Mul-op0": [(10**18, 1.0, 0)]}),
        "cpu_op_detail_info_0.csv": table(heading, rows),
        "cpu_framework_0.txt": b"Mul;Mul-op0;0;input_1:[2];\n",
    }
    assert [tuple(one) for one in only(files).problems] == [
        (
            "cpu_op_execute_timestamp_0.txt",
            "executions that are missing here, as cpu_op_detail_info_0.csv counts them",
            4,
        )
    ]


def test_a_file_that_ends_with_a_line_too_early_is_told_by_the_others() -> None:
    """Launches of kernels, stages, lines of batches, and lines of the framework that others count on."""
    kernels = table(["name", "type", "op_full_name", "occurrences"], [["k", "cuLaunchKernel", "Mul-op0", 3]])
    stages = [{"op_id": 0, "op_type": "Batch", "num_workers": 1, "children": [1]}]
    batches = b"0 0 1 2 1000\n1 16 1 0 1000\n0 0 2 2 1001\n"
    found = only({
        "gpu_op_execute_timestamp_0.txt": timestamps({"Mul-op0": [(10**18, 1.0, 0)]}, "GpuOps"),
        "gpu_activity_data_0.csv": kernels,
        "activity_execute_timestamp_0.txt": b"k;7;1000000000000000000;5.0\n",
        "pipeline_profiling_0.json": dump({"op_info": stages}),
        "device_queue_profiling_0.txt": batches,
    })  # fmt: skip
    told = {one.what: one.amount for one in found.problems}
    assert told["launches of kernels that are missing here, as gpu_activity_data counts them"] == 2
    assert told["stages that others name and that are not there"] == 1
    assert told["batches without all of the lines that others have"] == 1


def test_losses_stand_with_their_device() -> None:
    """What is missing of device 5 is told at device 5."""
    rows = JOB[HWTS]
    names = ("hwts.data.1.slice_0", "hwts.data.5.slice_0", "hwts.data.5.slice_2")
    one, five = captures(dict.fromkeys(names, rows))
    assert (one.device, five.device) == (1, 5)
    assert one.problems == ()
    assert ("hwts.data.5", "slices that are missing", 1) in five.problems
