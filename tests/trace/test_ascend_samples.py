"""Real and synthetic files of Ascend jobs against the values that are known of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.trace import ascend, clocks, data_preprocess, hwts
from instrument.trace import framework_desc as framework
from instrument.trace.ascend_executions import OperatorMap
from instrument.trace.events import AI_CPU, MISSING, Capture
from instrument.trace.records import records
from instrument.trace.step_traces import (
    MARK,
    TRAINING_RECORD,
    TS_RECORD,
    StepTrace,
    end_tag_of,
    training_trace,
    ts_track,
)
from instrument.trace.text import Losses
from tests.trace import encoders_ascend as encode

TRACES = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "traces"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"the samples are not there: {TRACES}")

LEFT_OVER = "bytes at the end that are no whole record"
_PARTS = ["iteration_interval", "fp_and_bp", "tail"]
BASE = ["step_num", "start_point", "end_point", "total", "fp_point", "bp_point", *_PARTS]
_SLICE = re.compile(r"(.*)\.slice_(\d+)")


def files(job: str) -> dict[str, bytes]:
    """The files of a sample by name, with their slices joined in their order."""
    slices: dict[str, dict[int, bytes]] = {}
    for path in (TRACES / "samples" / job).rglob("*"):
        match = _SLICE.fullmatch(path.name)
        if path.is_file() and path.parent.name != "legacy_outputs":
            name, number = (match[1], int(match[2])) if match else (path.name, 0)
            slices.setdefault(name, {})[number] = path.read_bytes()
    return {name: b"".join(data for _, data in sorted(parts.items())) for name, parts in slices.items()}


def file(job: str, start: str) -> bytes:
    (data,) = (data for name, data in files(job).items() if name.startswith(start) and not name.endswith(".done"))
    return data


def expected(name: str) -> Any:
    return json.loads((TRACES / "expected" / f"{name}.json").read_text(encoding="utf-8"))


def capture(job: str, device: int) -> Capture:
    return ascend.capture(files(job), device)


def lost(losses: Losses) -> dict[str, int]:
    return {problem.what: problem.amount for problem in losses.problems()}


def digest(rows: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows, "<i8").tobytes()).hexdigest()


JOBS = [("ascend2020_widedeep", "ascend2020_widedeep_hwts", 1), ("synth_hwts_edge", "synth_hwts_edge", 3)]


@pytest.mark.parametrize(("job", "values", "device"), JOBS)
def test_hwts_records(job: str, values: str, device: int) -> None:
    """Counts of records, of their types and marks, and what is left over."""
    want, losses = expected(values), Losses("hwts")
    data = file(job, "hwts")
    found, raw = hwts.decode(data, losses), records(data, hwts.RECORD, Losses("raw"))
    assert want["record_size"] == hwts.RECORD.itemsize
    assert len(raw) == want["records"]
    assert lost(losses).get(LEFT_OVER, 0) == want["trailing_bytes"]
    assert {str(kind): int(count) for kind, count in enumerate(found.type_counts)} == want["type_counts"]
    assert (found.warnings, found.without_magic, found.breaks) == (
        want["warn_bit_set"], want["bad_magic"], want["cnt_gaps"],
    )  # fmt: skip
    ours = raw[(raw["head"] & 7) <= hwts.END]
    assert sorted(set(ours["stream"].tolist())) == want["distinct_streams"]
    assert (ours["task"].min(), ours["task"].max()) == (want["task_id_min"], want["task_id_max"])
    assert (ours["cycles"][0], ours["cycles"].max()) == (want["sys_first"], want["sys_last_start_or_end"])


@pytest.mark.parametrize(("job", "values", "device"), JOBS)
def test_hwts_pairs(job: str, values: str, device: int) -> None:
    """Each execution, and what has no other half."""
    want = expected(values)["pairs_per_stream_task"]
    found = hwts.decode(file(job, "hwts"), Losses("hwts"))
    rows = np.stack([found.pairs[name].astype("i8") for name in ("stream", "task", "start_cycles", "end_cycles")], 1)
    duration = rows[:, 3] - rows[:, 2]
    assert len(rows) == want["count"]
    assert rows[: len(want["first"])].tolist() == want["first"]
    assert rows[-len(want["last"]) :].tolist() == want["last"]
    assert digest(rows) == want["sha256_rows_le_i64"]
    assert (duration.sum(), duration.min(), duration.max()) == (
        want["duration_cycles_sum"], want["duration_cycles_min"], want["duration_cycles_max"],
    )  # fmt: skip
    keys = [f"{row['stream']}_{row['task']}" for row in found.unpaired]
    for is_end, side in ((False, "start"), (True, "end")):
        of_side = [key for key, ends in zip(keys, found.unpaired["is_end"], strict=True) if ends == is_end]
        assert len(of_side) == want[f"unpaired_{side}s"]
        assert Counter(of_side) == want[f"unpaired_{side}_keys"]


@pytest.mark.parametrize(("job", "values", "device"), JOBS)
def test_operator_times(job: str, values: str, device: int) -> None:
    """The executions of each operator, in the order in which they are first met, their stream and their time."""
    want = expected(values)["op_time"]
    found = capture(job, device)
    on_streams = [row for row in found.executions.tolist() if found.operators[row[2]].side != AI_CPU]
    assert len(on_streams) == want["executions"]
    assert min(row[0] for row in on_streams) == 10 * want["first_start_cycle"]
    assert sum(row[1] for row in on_streams) == 10 * want["total_cycles"]
    times: dict[str, list[int]] = {}
    streams: dict[str, int] = {}
    for _, duration, operator, stream, _, _ in on_streams:
        times.setdefault(found.operators[operator].full_name, []).append(duration)
        streams[found.operators[operator].full_name] = stream
    assert list(times) == sorted(times, key=list(want["per_op"]).index)
    for name, ns in times.items():
        mean_ms = pytest.approx(sum(ns) / 1e6 / len(ns))
        told = {"stream": streams[name], "count": len(ns), "total_cycles": sum(ns) // 10, "avg_ms": mean_ms}
        assert want["per_op"][name] == told
    assert len(times) == want["ops"]
    assert sum(sum(ns) / len(ns) for ns in times.values()) / 1e6 == pytest.approx(want["sum_of_avg_ms"])


def test_operator_types() -> None:
    """The time of each type of operator is the sum of its operators' means."""
    found = capture("ascend2020_widedeep", 1)
    times: dict[int, list[int]] = {}
    for row in found.executions:
        times.setdefault(int(row["operator"]), []).append(int(row["duration_ns"]))
    types: dict[str, list[float]] = {}
    for operator, ns in times.items():
        if found.operators[operator].side != AI_CPU:
            types.setdefault(found.operators[operator].type, []).append(sum(ns) / len(ns) / 1e6)
    total = sum(sum(means) for means in types.values())
    table = {name: (round(sum(ms), 6), len(ms), round(100 * sum(ms) / total, 2)) for name, ms in types.items()}
    assert table == {name: tuple(rest) for name, *rest in expected("ascend2020_widedeep_hwts")["op_type_table"]["rows"]}


def test_the_timeline() -> None:
    """The operators' executions by start, as the legacy tools have them in ms."""
    want = expected("ascend2020_widedeep_hwts")["timeline"]
    found = capture("ascend2020_widedeep", 1)
    rows = [
        [operator.full_name, str(row["stream"]), str(row["start_ns"] / 1e6), str(row["duration_ns"] / 1e6)]
        for row in found.executions
        if (operator := found.operators[row["operator"]]).side != AI_CPU
    ]
    assert len(rows) == want["rows"]
    assert (rows[0], rows[-1]) == (want["first"], want["last"])


def test_wrapped_task_ids() -> None:
    """Ids go on where 16 bits end."""
    want, found = expected("synth_hwts_flip"), capture("synth_hwts_flip", 0)
    tasks = found.executions["task"]
    assert len(tasks) == want["executions"]
    assert [tasks[0], tasks[-1]] == want["unwrapped_task_ids_first_last"]
    assert found.executions["duration_ns"].sum() == 10 * want["duration_cycles_sum"]
    assert set(found.executions["stream"].tolist()) == {want["stream"]}
    assert tasks[-1] >> 16 == want["wraps"]


TRAINING = [
    ("ascend2020_widedeep", "ascend2020_widedeep_training_trace", 1, lambda name: name.partition("-")[0]),
    ("ascend2020_resnet_fixture", "ascend2020_resnet_fixture_training_trace", 0, lambda name: name),
    ("synth_training_trace_65535", "synth_training_trace_65535", 0, lambda name: name),
]


def legacy_table(trace: StepTrace, points: dict[int, str], kind_of: Any) -> list[dict[str, int]]:
    """The rows of the legacy csv file, whose columns are those of the first one."""
    table = []
    for row in encode.step_rows(trace).tolist():
        line = dict(zip(BASE, row, strict=True))
        for reduce in trace.reduces[trace.reduces["step"] == row[0]]:
            kind = (
                kind_of(framework.short_name(points[int(reduce["tag"])]))
                if int(reduce["tag"]) in points
                else "parallel"
            )
            name = f"stream_{reduce['stream']}_{reduce['number']}_{kind}"
            start, end = int(reduce["start"]), int(reduce["end"])
            line |= {name: end - start, f"{name}_start_point": start, f"{name}_end_point": end}
        table.append(line)
    return [{name: line.get(name, 0) for name in table[0]} for line in table]


def mean(values: list[int]) -> int:
    return int((Decimal(sum(values)) / len(values)).to_integral_value(ROUND_HALF_EVEN))


@pytest.mark.parametrize(("job", "values", "device", "kind_of"), TRAINING)
def test_training_trace(job: str, values: str, device: int, kind_of: Any) -> None:
    """Records, tags, steps, communications and means."""
    want, losses = expected(values), Losses("training_trace")
    data = file(job, "training_trace")
    raw, found = records(data, TRAINING_RECORD, losses), training_trace(data, Losses("again"))
    assert (want["record_size"], want["records"]) == (TRAINING_RECORD.itemsize, len(raw))
    assert lost(losses).get(LEFT_OVER, 0) == want["trailing_bytes"]
    assert end_tag_of(raw["tag"]) == want["end_tag"]
    for column, counts in (("tag", "tag_counts"), ("stream", "stream_counts")):
        assert {str(key): count for key, count in Counter(raw[column].tolist()).items()} == want[counts]
    assert bool(np.all(np.diff(raw["cycles"]) >= 0)) == want["time_ordered"]
    rows = encode.step_rows(found)
    assert digest(rows) == want["sha256_base_le_i64"]
    assert rows.tolist() == want["base_rows"]
    assert len(rows) == want["steps"]
    point = [data for name, data in files(job).items() if ".point." in name]
    table = legacy_table(found, framework.points(point[0], Losses("point")) if point else {}, kind_of)
    assert list(table[0]) == want["columns_first_row"] == want["columns_all_rows"]
    assert (table[0], table[1], table[-1]) == (want["first_row"], want["second_row"], want["last_row"])
    average = {name: mean([line[name] for line in table[1:]]) for name in table[0] if name != "step_num"}
    assert average == want["average_skipping_first_row"]
    assert {name: mean([line[name] for line in table]) for name in BASE[1:]} == want["average_all_rows_base"]
    told = want.get("dropped_step_numbers", [])
    lacking = found.steps[(found.steps["forward"] == MISSING) | (found.steps["backward"] == MISSING)]
    assert lacking["step"].tolist() == told


@pytest.mark.parametrize(("job", "values", "device", "kind_of"), TRAINING)
def test_the_summary_of_steps(job: str, values: str, device: int, kind_of: Any) -> None:
    """From the steps of the capture, in ms."""
    want, steps = expected(values)["summary_ms"], capture(job, device).steps
    whole = steps[(steps["fp_start_ns"] != MISSING) & (steps["bp_end_ns"] != MISSING)]
    start, forward, backward, end = (whole[name][1:] for name in ("start_ns", "fp_start_ns", "bp_end_ns", "end_ns"))
    parts = {
        "total_time": end - start,
        "iteration_interval": forward - start,
        "fp_and_bp": backward - forward,
        "tail": end - backward,
    }
    ms = {name: round(mean((values // 10).tolist()) / 100_000, 4) for name, values in parts.items()}
    percents = {f"{name}_percent": f"{round(100 * ms[name] / ms['total_time'], 2)}%" for name in list(parts)[1:]}
    assert ms | percents | {"total_steps": len(whole)} == want


def test_a_communication_inside_its_step() -> None:
    """Where it starts in the averaged step, and how long it takes."""
    want = expected("ascend2020_widedeep_training_trace")["reduce_bar_example"]
    found = capture("ascend2020_widedeep", 1)
    starts = dict(zip(found.steps["step"].tolist(), found.steps["start_ns"].tolist(), strict=True))
    reduces = found.reduces[(found.reduces["stream"] == 540) & (found.reduces["step"] > 1)]
    offsets = [int(row["start_ns"]) - starts[int(row["step"])] for row in reduces]
    assert sum(offsets) / len(offsets) / 1e6 == pytest.approx(want["start_ms_relative_to_step_start"], abs=1e-4)
    assert reduces["duration_ns"].mean() / 1e6 == pytest.approx(want["duration_ms"], abs=1e-4)


def test_ts_track() -> None:
    """Kinds of records, steps, communications and means."""
    want, losses = expected("synth_ts_track"), Losses("ts_track")
    data = file("synth_ts_track", "ts_track")
    raw, found = records(data, TS_RECORD, losses), ts_track(data, Losses("again"))
    kinds = Counter(raw["kind"].tolist())
    assert (want["record_size"], want["records"]) == (TS_RECORD.itemsize, len(raw))
    assert lost(losses)[LEFT_OVER] == want["trailing_bytes"]
    assert {str(kind): count for kind, count in kinds.items()} == want["rpt_type_counts"]
    assert kinds[MARK] == want["step_trace_records"]
    rows, reduces = encode.step_rows(found), found.reduces
    assert rows.tolist() == [[row[name] for name in BASE] for row in want["rows"]]
    cycles = [(reduces["end"] - reduces["start"])[reduces["step"] == row[0]].tolist() for row in rows]
    assert cycles == [row["reduce_cycles"] for row in want["rows"]]
    assert {name: mean(rows[:, place].tolist()) for place, name in enumerate(BASE) if place} == want["average_all_rows"]
    assert len(capture("synth_ts_track", 0).steps) == len(found.steps) == 15


def test_ai_cpu_text_of_tasks_alone() -> None:
    """The real job names none of its tasks."""
    want, losses = expected("ascend2020_widedeep_text_files")["aicpu"], Losses("aicpu")
    found = data_preprocess.ai_cpu(file("ascend2020_widedeep", "DATA_PREPROCESS.dev.AICPU."), losses)
    names = [
        "thread",
        "device",
        "aicpu",
        "submit_cycles",
        "schedule_cycles",
        "before_cycles",
        "after_cycles",
        "dispatch_us",
        "total_us",
    ]
    rows = np.stack([found.rows[name] for name in names], 1)
    assert (len(rows), lost(losses), found.names) == (want["records"], {}, [])
    assert (rows[0].tolist(), rows[-1].tolist()) == (want["first"], want["last"])
    assert digest(rows) == want["sha256_rows_le_i64"]
    assert (rows[:, 7].sum(), rows[:, 8].sum()) == (want["sum_dispatch_us"], want["sum_total_us"])
    assert (rows[:, 6] - rows[:, 5]).sum() == want["sum_run_ticks"]
    assert len(set(rows[:, 0].tolist())) == want["threads"]
    assert np.array_equal(rows[:, 8], (rows[:, 6] - rows[:, 3]) // 100)
    executions = capture("ascend2020_widedeep", 1).executions
    assert int(np.count_nonzero(executions["task"] == MISSING)) == want["records"]


def test_ai_cpu_text_of_named_tasks() -> None:
    """The table that the legacy tools make of it."""
    want = expected("ascend2020_aicpu_text")
    found = data_preprocess.ai_cpu(file("ascend2020_aicpu_text", "DATA_PREPROCESS"), Losses("aicpu"))
    rows = []
    for number, task in enumerate(found.rows, 1):
        name = framework.type_of(found.names[task["operator"]])
        times = float(task["total_us"] / 1000), float(task["dispatch_us"] / 1000)
        rows.append([number, name, *times, int(task["run_start_us"]), int(task["run_end_us"])])
    assert rows == want["rows"]
    assert found.rows["total_us"].sum() / 1000 == want["total_ms"]
    assert (found.rows["run_end_us"] - found.rows["run_start_us"]).tolist() == want["run_duration_us"]
    times = found.rows[["compute_start_us", "memcpy_start_us", "memcpy_end_us"]]
    assert times[2].tolist() == tuple(want["extra_times_row3_us"].values())
    executions = capture("ascend2020_aicpu_text", 0).executions
    assert sorted(executions["duration_ns"].tolist()) == sorted(1000 * us for us in want["run_duration_us"])


def test_ai_cpu_records() -> None:
    """The table that MindSpore makes of it."""
    want, losses = expected("rebuilt_aicpu_binary"), Losses("aicpu")
    found = data_preprocess.ai_cpu(file("rebuilt_aicpu_binary", "DATA_PREPROCESS"), losses)
    assert (want["record_size"], want["records"]) == (data_preprocess.AI_CPU_RECORD.itemsize, len(found.rows))
    rows = []
    for number, task in enumerate(found.rows, 1):
        name = want["op_of_stream_task"][f"{task['stream']}_{task['task']}"]
        us = task["total_us"], task["dispatch_us"], task["run_end_us"] - task["run_start_us"]
        cycles = task["run_start_cycles"], task["run_end_cycles"]
        rows.append([number, name, *(float(one / 1000) for one in us), *(float(one / 100) for one in cycles)])
    assert rows == want["rows"]
    assert found.rows["total_us"].sum() / 1000 == want["total_ms"]
    executions = capture("rebuilt_aicpu_binary", 0).executions
    assert (executions["start_ns"] / 1000).tolist() == [row[5] for row in want["rows"]]


def test_the_queue_of_the_host() -> None:
    """TDT of the real job."""
    want, losses = expected("ascend2020_widedeep_text_files")["tdt"], Losses("tdt")
    found = data_preprocess.pushes(file("ascend2020_widedeep", "DATA_PREPROCESS.dev.TDT"), losses)
    rows = np.stack([found[name] for name in ("time_us", "index", "size")], 1)
    assert (len(rows), lost(losses)) == (want["records"], {})
    assert (rows[0].tolist(), rows[-1].tolist()) == (want["first"], want["last"])
    assert digest(rows) == want["sha256_rows_le_i64"]
    assert (np.count_nonzero(rows[:, 2] == 0), rows[:, 2].max()) == (want["empty_queue"], want["size_max"])
    assert rows[:, 2].mean() == pytest.approx(want["mean_size"])
    batches = capture("ascend2020_widedeep", 1).batches
    assert (batches["time_ns"] // 1000).tolist() == rows[:, 0].tolist()


def test_the_fetches_of_the_device() -> None:
    """AICPUMI in both orders, and the table made of it."""
    want, job = expected("synth_aicpumi_text"), files("synth_aicpumi_text")
    for key, name in (("old_order", "DATA_PREPROCESS.dev.AICPUMI.0"), ("new_order", "DATA_PREPROCESS.AICPUMI.0")):
        found = data_preprocess.fetches(job[name], Losses("aicpumi"))
        assert found.tolist() == [tuple(times_and_size) for _, *times_and_size in want[key]]
    table = data_preprocess.fetch_table(file("minddata_ascend2021_small", "minddata_aicpu"), Losses("table"))
    want = expected("minddata_ascend2021_small")["get_next"]
    assert table["size"].tolist() == want["queue"]
    assert ((table["end_us"] - table["start_us"]) / 1000).tolist() == want["cost_ms"]


def test_framework_text_of_the_real_job() -> None:
    """Tasks, operators, marks and the start log."""
    want, job = expected("ascend2020_widedeep_text_files"), files("ascend2020_widedeep")
    losses = Losses("framework")
    tasks = framework.tasks(job["Framework.host.vm.task_desc_info.1"], losses)
    rows = [[tasks.names[name], *rest] for *rest, name in tasks.rows[["block_dim", "task", "stream", "name"]].tolist()]
    assert (len(rows), len(OperatorMap(tasks))) == (want["task_desc"]["rows"], want["task_desc"]["map_size"])
    assert (rows[0], rows[-1]) == (want["task_desc"]["first"], want["task_desc"]["last"])
    assert sorted(set(tasks.rows["stream"].tolist())) == want["task_desc"]["framework_streams"]
    graph = framework.graph(job["Framework.host.vm.graph_desc_info.1"], losses)
    assert len(graph) == want["graph_desc"]["rows"]
    assert Counter(desc.type for desc in graph) == want["graph_desc"]["op_types"]
    example = want["graph_desc"]["example"]
    assert example in [described(desc) for desc in graph]
    points = framework.points(job["Framework.host.vm.point.1"], losses)
    assert {str(tag): name for tag, name in points.items()} == want["point"]
    log = clocks.start_log(job["host_start.log.1"], losses)
    assert {"section": log.section, **log.values} == want["host_start"]
    assert lost(losses) == {}


def described(desc: framework.OperatorDesc) -> dict[str, Any]:
    """An operator as the legacy tools write it."""
    io = {
        f"{side}_{number}": {"format": one.format, "data_type": one.data_type, "shape": ",".join(map(str, one.shape))}
        for side, tensors in (("input", desc.inputs), ("output", desc.outputs))
        for number, one in enumerate(tensors)
    }
    return {"io": io, "op_name": desc.name, "op_type": desc.type}


def test_framework_text_of_the_fixture() -> None:
    """Tasks by their number alone, and operators with their tensors."""
    want, job = expected("ascend2020_resnet_fixture_framework"), files("ascend2020_resnet_fixture")
    tasks = framework.tasks(job["Framework.host.vm.task_desc_info.0"], Losses("tasks"))
    rows = [
        {"op": tasks.names[row["name"]], **{name: int(row[name]) for name in ("block_dim", "task", "stream")}}
        for row in tasks.rows
    ]
    assert rows == want["task_rows"]
    operators = OperatorMap(tasks)
    ids = [int(task) for task in want["task_map"]]
    found = operators.find(np.full(len(ids), 99), np.array(ids))
    assert [operators.operators[row].full_name for row in found] == list(want["task_map"].values())
    graph = framework.graph(job["Framework.host.vm.graph_desc_info.0"], Losses("graph"))
    assert [described(desc) for desc in graph] == want["graph_rows"]


def test_framework_records() -> None:
    """Tasks, tensors, marks and hashes of the binary form."""
    want, job = expected("synth_framework_binary"), files("synth_framework_binary")
    losses = Losses("framework")
    hashes = framework.hash_dic(job["Framework.hash_dic.6"], losses)
    assert {str(key): name for key, name in hashes.items()} == want["hash_dic"]
    tasks = framework.tasks(job["Framework.task_desc_info.6"], losses, hashes)
    columns = {"iter": "iteration", **{name: name for name in ("timestamp", "block_dim", "model", "stream", "task")}}
    assert want["task_desc"]["rows"] == [
        {"op": tasks.names[row["name"]], "op_type": tasks.names[row["type"]]}
        | {key: int(row[name]) for key, name in columns.items()}
        for row in tasks.rows
    ]
    tensors = framework.tensors(job["Framework.tensor_data_info.6"], losses)
    assert want["tensor"]["io"] == {
        f"{stream}_{task}": {
            side: [{"format": one.format, "data_type": one.data_type, "shape": list(one.shape)} for one in found]
            for side, found in (("input", desc.inputs), ("output", desc.outputs))
        }
        for (stream, task), desc in tensors.items()
    }
    marks = framework.step_info(job["Framework.step_info.6"], losses)
    assert {str(tag): f"{stream}_{task}" for tag, (stream, task) in marks.items()} == want["step_info"]["point_task"]
    sizes = framework.TASK_RECORD.itemsize, framework.TENSOR_RECORD.itemsize, framework.STEP_RECORD.itemsize
    assert sizes == tuple(want[key]["record_size"] for key in ("task_desc", "tensor", "step_info"))
    assert lost(losses) == {}
    assert len(capture("synth_framework_binary", 6).operators) == want["task_desc"]["records"]


def test_the_logs_of_the_newer_job() -> None:
    """Frequencies, and how long was collected."""
    want, job = expected("ascend2023_prof_alexnet_device0"), files("ascend2023_prof_alexnet_device0")
    info = clocks.device_info(job["info.json.0"], Losses("info"))
    assert (info.hwts_khz, info.aic_khz) == (1000 * want["hwts_frequency_mhz"], 1000 * want["aic_frequency_mhz"])
    assert (info.ai_core_num, info.rank_id) == (want["ai_core_num"], want["rank_id"])
    start, end = (clocks.moment(job[name], Losses(name)) for name in ("start_info.0", "end_info.0"))
    assert start.monotonic_ns == want["clock_monotonic_raw_begin_ns"]
    assert end.monotonic_ns == want["clock_monotonic_raw_end_ns"]
    assert start.epoch_us is not None
    assert end.epoch_us is not None
    assert (end.epoch_us - start.epoch_us) / 1e6 == want["collection_seconds"]
