"""A profile in the files that MindInsight's profiler pages read: a folder `profiler/` in the run's directory.

The names, columns and units are MindInsight 2.3.1's: times of operators in ms (of a GPU in us), shares as fractions,
step traces in units of 10 ns. A page whose file is not here says that it has no data.

The timeline, of an Ascend device or a GPU, is a list of Chrome events without lanes: `tid` is the stream, `pid` the
device, or a number of its own for AI CPU and communication, as MindSpore wrote it. Times are microseconds from the
first event on.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from instrument.analyse.executions import operator_mask
from instrument.analyse.table import Record, Value
from instrument.analyse.tables import ProfileTables
from instrument.analyse.windows import WRITTEN_BY
from instrument.trace.ascend import TRAINING_TRACE
from instrument.trace.ascend_executions import UNNAMED_TYPES
from instrument.trace.events import AI_CPU, COMMUNICATION, CPU, MISSING, Capture, Integers, Rows
from instrument.trace.jsontext import Json
from instrument.trace.pipelines import queued

FOLDER = "profiler"
_MS, _US = 10**6, 10**3
#: One unit of a step trace.
_TICK_NS = 10
_STEP_COLUMNS = (
    "step_num", "start_point", "end_point", "total", "fp_point", "bp_point", "iteration_interval", "fp_and_bp", "tail",
)  # fmt: skip
_PIPELINE_COLUMNS = (
    "op_id", "op_type", "num_workers", "output_queue_size", "output_queue_average_size", "output_queue_length",
    "output_queue_usage_rate", "sample_interval", "parent_id", "children_id",
)  # fmt: skip
_FRAMEWORK_COLUMNS = (
    "task_id", "stream_id", "block_dim", "full_kernel_name", "op_name", "kernel_name", "kernel_type", "subgraph",
)  # fmt: skip


def files(profile: ProfileTables, devices: int) -> Iterator[tuple[str, str | Iterable[str]]]:
    """Yield names and contents, or the pieces of these, of the files of one device, of `devices` in the window."""
    device = profile.device
    yield f"profiler_info_{device}.json", json.dumps(_info(profile, devices), indent=1)
    yield from {"cpu": _cpu, "gpu": _gpu, "ascend": _ascend}[profile.target](profile)
    if profile.target != "cpu":  # MindInsight has no such page for the CPU
        yield f"{profile.target}_timeline_display_{device}.json", _timeline(profile)
        yield f"{profile.target}_timeline_summary_{device}.json", json.dumps(_timeline_summary(profile))
    if steps := step_trace(profile):
        yield f"step_trace_raw_{device}_detail_time.csv", steps
        points = {name: profile.metadata.get(key, "") for name, key in (("fp_start", "fp_start"), ("bp_end", "bp_end"))}
        yield f"step_trace_point_info_{device}.json", json.dumps(points, default=str)
    if len(profile.capture.pipeline):
        yield f"minddata_pipeline_raw_{device}.csv", _pipeline(profile.capture)
    if len(profile.capture.batches):
        name = "dataset_iterator" if profile.target == "cpu" else "device_queue"
        yield f"{name}_profiling_{device}.txt", _batches(profile.capture)


def _info(profile: ProfileTables, devices: int) -> dict[str, Json]:
    """Describe the device for the list of profiles, without MindSpore's version, of which MindInsight would warn."""
    return {
        "written_by": WRITTEN_BY,
        "context_mode": str(profile.metadata.get("mode", "graph")),
        "rank_id": profile.device,
        "device_target": profile.target,
        "rank_size": devices,
        "parallel_mode": "data_parallel" if devices > 1 else "stand_alone",
        "stage_num": 1,
    }


def _text(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    return text.getvalue()


# ---------------------------------------------------------------- operators


def _cpu(profile: ProfileTables) -> Iterator[tuple[str, str]]:
    heading = (
        "op_side", "op_type", "op_name", "full_op_name", "op_occurrences", "op_total_time(ms)", "op_avg_time(ms)",
        "total_proportion", "subgraph", "pid",
    )  # fmt: skip
    pid = profile.metadata.get("pid", 0)
    rows = [
        ("Host", row["type"], _short(row), row["full_name"], row["count"], row["total_ns"] / _MS, row["mean_ns"] / _MS,
         row["share_percent"] / 100, _subgraph(row), pid)
        for row in profile.operators.records()
    ]  # fmt: skip
    yield f"cpu_op_detail_info_{profile.device}.csv", _text(heading, rows)
    heading_of_types = (
        "op_type", "type_occurrences", "execution_frequency(per-step)", "total_compute_time", "avg_time(ms)", "percent",
    )  # fmt: skip
    types = [
        (row["type"], row["count"], _frequency(row), row["total_ns"] / _MS, row["mean_ns"] / _MS,
         row["share_percent"] / 100)
        for row in profile.operator_types.records()
    ]  # fmt: skip
    yield f"cpu_op_type_info_{profile.device}.csv", _text(heading_of_types, types)


def _gpu(profile: ProfileTables) -> Iterator[tuple[str, str]]:
    """Write operators of a GPU. The times of kernels by operator are not known, and are 0 for all."""
    heading: Sequence[str] = (
        "op_side", "op_type", "op_name", "op_full_name", "op_occurrences", "op_total_time(us)", "op_avg_time(us)",
        "total_proportion", "cuda_activity_cost_time(us)", "cuda_activity_call_count",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = [
        ("Device", row["type"], _short(row), row["full_name"], row["count"], row["total_ns"] / _US,
         row["mean_ns"] / _US, row["share_percent"] / 100, 0, 0)
        for row in profile.operators.records()
    ]  # fmt: skip
    yield f"gpu_op_detail_info_{profile.device}.csv", _text(heading, rows)
    heading = ("op_type", "type_occurrences", "total_time(us)", "total_proportion", "avg_time(us)")
    rows = [
        (row["type"], row["count"], row["total_ns"] / _US, row["share_percent"] / 100, row["mean_ns"] / _US)
        for row in profile.operator_types.records()
    ]
    yield f"gpu_op_type_info_{profile.device}.csv", _text(heading, rows)


def _ascend(profile: ProfileTables) -> Iterator[tuple[str, str]]:
    """Write operators of the AI Core and of AI CPU; MindInsight recognises Ascend by `output_op_compute_time`."""
    device = profile.device
    names, kinds = ([row for row in table.records() if row["side"] not in (AI_CPU, COMMUNICATION)]
                    for table in (profile.operators, profile.operator_types))  # fmt: skip
    total = sum(row["total_ns"] for row in kinds) or 1
    rows: list[tuple[object, ...]] = [
        (row["type"], row["total_ns"] / _MS, row["count"], row["total_ns"] / total) for row in kinds
    ]
    heading: Sequence[str] = ("kernel_type", "total_time", "execution_frequency", "percent")
    yield f"aicore_intermediate_{device}_type.csv", _text(heading, rows)
    rows = [(row["full_name"], row["mean_ns"] / _MS, row["count"]) for row in names]
    heading = ("full_kernel_name", "execution_time", "execution_frequency")
    yield f"aicore_intermediate_{device}_detail.csv", _text(heading, rows)
    rows = [
        ("", "", "", row["full_name"], row["full_name"], _short(row), row["type"], _subgraph(row), _inputs(row))
        for row in names
    ]
    yield f"framework_raw_{device}.csv", _text((*_FRAMEWORK_COLUMNS, "op_info"), rows)
    lines = [f"{row['full_name']} {row['mean_ns'] / _MS} {MISSING} {row['count']}" for row in names]
    lines.append(f"total op {sum(row['mean_ns'] for row in names) / _MS} 0")
    heads = ["====================op compute time====================", "op_name compute_time(ms) stream_id times", "-"]
    yield f"output_op_compute_time_{device}.txt", "\n".join(heads + lines) + "\n"
    if rows := _ai_cpu_tasks(profile):
        heading = (
            "serial_number", "kernel_type", "total_time(ms)", "dispatch_time(ms)", "execution_time(ms)", "run_start",
            "run_end",
        )  # fmt: skip
        yield f"aicpu_intermediate_{device}.csv", _text(heading, rows)


def _ai_cpu_tasks(profile: ProfileTables) -> list[tuple[object, ...]]:
    """Make a row for each execution on AI CPU, in ms and us.

    Where no file of the AI CPUs tells it, the time of a task is that of its execution, and the one until it ran is 0.
    """
    capture, executions = profile.capture, profile.counted.executions
    executions = executions[operator_mask(capture, executions, lambda operator: operator.side == AI_CPU)]
    tasks = {(row["start_ns"], row["operator"]): row for row in capture.ai_cpu}
    rows: list[tuple[object, ...]] = []
    for number, row in enumerate(executions, 1):
        name = capture.operators[row["operator"]].name
        task = tasks.get((row["start_ns"], row["operator"]))
        total, dispatch = (int(row["duration_ns"]), 0) if task is None else (task["total_ns"], task["dispatch_ns"])
        if row["task"] == MISSING:  # in the text form the number of an operator belongs to the log, not to its name
            name = name.partition("-")[0]
        us = (int(row["start_ns"]) // _US, int(row["start_ns"] + row["duration_ns"]) // _US)
        times = (max(int(total), 0) / _MS, max(int(dispatch), 0) / _MS, int(row["duration_ns"]) / _MS)
        rows.append((number, name, *times, *us))
    return rows


def _short(record: Record) -> str:
    return str(record["full_name"]).rpartition("/")[2]


def _subgraph(record: Record) -> str:
    scope = str(record["full_name"]).partition("/")[0]
    return scope if scope in ("Default", "Gradients") else "Default"


def _frequency(record: Record) -> int:
    """Return how often operators of a type run in a step, or without steps, how many there are."""
    return int(record["operators"]) if record["per_step"] is None else max(round(record["per_step"]), 1)


def _inputs(record: Record) -> str:
    shapes = [shape for shape in str(record["input_shapes"]).split(" | ")[0].split(";") if shape]
    return json.dumps({f"input_{place}": {"shape": shape.strip("[]")} for place, shape in enumerate(shapes)})


# ---------------------------------------------------------------- steps


def step_trace(profile: ProfileTables) -> str:
    """Write the steps whose parts are all known, and their average, or nothing without any.

    Times since the epoch begin at 1 here: MindInsight takes differences of them as float64 in ms.
    """
    table = profile.steps
    names = ("start_ns", "total_ns", "iteration_interval_ns", "fp_and_bp_ns")
    masks = [np.ma.getmaskarray(table[name]) for name in names]
    places = np.flatnonzero(~np.logical_or.reduce(masks))
    if not len(places):
        return ""
    start, total, interval, both = (np.ma.getdata(table[name])[places] for name in names)
    zero_ns = int(start[0]) - _TICK_NS if profile.capture.clock == "epoch" else 0
    moments = (start, start + total, start + interval, start + interval + both)
    begin, end, forward, backward = ((moment - zero_ns) // _TICK_NS for moment in moments)
    columns = [begin, end, end - begin, forward, backward, forward - begin, backward - forward, end - backward]
    reduces, heading = _reduces(profile.capture, np.ma.getdata(table["step"])[places], zero_ns)
    # MindSpore's means left out the first step as long as the device wrote training_trace.
    first = int(profile.metadata.get("steps_from") == TRAINING_TRACE and len(places) > 1)
    columns = [np.append(column, _mean(column[first:].tolist())) for column in [*columns, *reduces]]
    numbers = [*range(1, len(places) + 1), "-"]
    rows = [(number, *row) for number, row in zip(numbers, np.stack(columns, axis=1).tolist(), strict=True)]
    return _text((*_STEP_COLUMNS, *heading), rows)


def _mean(values: Sequence[int]) -> int:
    """Return the mean to the nearest whole number, of two the even one."""
    return round(Fraction(sum(values), len(values)))


def _reduces(capture: Capture, steps: Integers, zero_ns: int) -> tuple[list[Integers], list[str]]:
    """Return start, end and duration of the first, second, ... communication of each stream and step, 0 for none."""
    rows = capture.reduces[np.isin(capture.reduces["step"], steps) & (capture.reduces["duration_ns"] >= 0)]
    rows = rows[np.lexsort((rows["start_ns"], rows["stream"], rows["step"]))]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (rows["step"][1:] != rows["step"][:-1]) | (rows["stream"][1:] != rows["stream"][:-1])
    firsts = np.flatnonzero(is_first)
    order = np.arange(len(rows)) - firsts[np.cumsum(is_first) - 1] if len(rows) else np.empty(0, np.int64)
    row_of = {step: place for place, step in enumerate(steps.tolist())}
    columns: list[Integers] = []
    heading: list[str] = []
    for stream, number in np.unique(np.stack([rows["stream"], order]), axis=1).T.tolist():
        chosen = rows[(rows["stream"] == stream) & (order == number)]
        places = [row_of[step] for step in chosen["step"].tolist()]
        first, last = (np.zeros(len(steps), np.int64) for _ in range(2))
        start_ns = chosen["start_ns"] - zero_ns
        first[places] = start_ns // _TICK_NS
        last[places] = (start_ns + chosen["duration_ns"]) // _TICK_NS
        columns += [first, last, last - first]
        name = f"stream_{max(stream, 0)}_parallel_{number}"
        heading += [f"{name}_start_point", f"{name}_end_point", name]
    return columns, heading


# ---------------------------------------------------------------- data


def _pipeline(capture: Capture) -> str:
    """Write the stages that have a queue, from the one nearest to the consumer on, as MindSpore derives them."""
    interval = capture.metadata.get("pipeline_sampling_interval_ms")
    rows = []
    for stage in queued(capture.pipeline):
        sizes = [int(size) if size.is_integer() else size for size in map(float, stage.queue_sizes)]
        mean = sum(sizes) / len(sizes) if sizes else None
        queue: tuple[Value, ...] = ("", "", "", "")
        if mean is not None and stage.queue_capacity > 0:
            queue = (json.dumps(sizes), mean, stage.queue_capacity, mean / stage.queue_capacity)
        parent = "" if stage.parent == MISSING else stage.parent
        children = json.dumps(list(stage.children)) if stage.children else ""
        row = (stage.id, stage.type, stage.workers, *queue, _whole(interval), parent, children)
        rows.append(row)
    return _text(_PIPELINE_COLUMNS, rows)


def _whole(value: object) -> int:
    return round(value) if isinstance(value, (int, float)) else 0


def _batches(capture: Capture) -> str:
    """Write `type sub batch value time`: type 0 is a time in ms (0 pipeline, 1 push, 2 whole), type 1 the queue."""
    lines = []
    for row in capture.batches.tolist():
        time, batch, pipeline, push, whole, size, capacity = row
        moment = max(time, 0) // _MS
        for sub, value in ((0, pipeline), (1, push), (2, whole)):
            if value != MISSING:
                lines.append(f"0 {sub} {batch} {value // _MS} {moment}")
        if size != MISSING:
            lines.append(f"1 {max(capacity, 0)} {batch} {size} {moment}")
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- the timeline

_AI_CPU_PROCESS, _COMMUNICATION_PROCESS = 9000, 10000
#: The lane of steps; 100001 is that of scopes, which MindInsight wants with a level of theirs.
_STEP_LANE = 100_000
_BLOCK_ROWS = 1 << 14
#: MindSpore stops there as well; a browser opens no larger page.
MOST_BYTES = 500_000_000


def _timeline(profile: ProfileTables) -> Iterator[str]:
    """Yield the pieces of `<target>_timeline_display_<device>.json`."""
    capture = profile.capture
    rows = profile.counted.executions
    rows = rows[operator_mask(capture, rows, lambda operator: operator.side != CPU)]
    steps = np.sort(capture.steps[(capture.steps["start_ns"] > 0) & (capture.steps["end_ns"] >= 0)], order="start_ns")
    reduces = capture.reduces[(capture.reduces["duration_ns"] >= 0) & (capture.reduces["start_ns"] > 0)]
    starts = [part["start_ns"].min() for part in (rows, steps, reduces) if len(part)]
    base_ns = int(min(starts)) if starts else 0
    size = 0
    separator = "["
    for block in _blocks(capture, rows, steps, reduces, base_ns):
        text = ",\n".join(json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in block)
        size += len(text)
        if size > MOST_BYTES:
            break
        yield f"{separator}{text}"
        separator = ",\n"
    yield "]\n" if separator != "[" else "[]\n"


def _timeline_summary(profile: ProfileTables) -> dict[str, float | int]:
    """Return what `<target>_timeline_summary_<device>.json` holds: us of operators, streams, operators, executions.

    Of AI CPU only the time of tasks that have a name counts, as MindSpore knows no others.
    """
    capture, rows = profile.capture, profile.counted.executions
    on_core = rows[operator_mask(capture, rows, lambda operator: operator.side not in (CPU, AI_CPU, COMMUNICATION))]
    on_ai_cpu = rows[
        operator_mask(capture, rows, lambda operator: operator.side == AI_CPU and operator.type not in UNNAMED_TYPES)
    ]
    names = {capture.operators[row].full_name for row in np.unique(on_core["operator"]).tolist()}
    return {
        "total_time": int(on_core["duration_ns"].sum() + on_ai_cpu["duration_ns"].sum()) / 1000,
        "num_of_streams": len(np.unique(on_core["stream"])),
        "num_of_ops": len(names),
        "op_exe_times": len(on_core),
        "max_scope_name_num": 0,
    }


def _blocks(capture: Capture, rows: Rows, steps: Rows, reduces: Rows, base_ns: int) -> Iterator[list[dict[str, Json]]]:
    names = {capture.device: f"device {capture.device}"}
    names |= {_AI_CPU_PROCESS: "AI CPU", _COMMUNICATION_PROCESS: "communication"}
    yield [
        {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}} for process, name in names.items()
    ]
    if len(steps):
        yield [
            _event(str(step["step"]), capture.device, _STEP_LANE, step["start_ns"] - base_ns,
                   step["end_ns"] - step["start_ns"])
            for step in steps
        ]  # fmt: skip
    for first in range(0, len(rows), _BLOCK_ROWS):
        yield [_execution(capture, row, base_ns) for row in rows[first : first + _BLOCK_ROWS]]
    if len(reduces):
        yield [
            _event(capture.names[row["name"]], _COMMUNICATION_PROCESS, row["stream"], row["start_ns"] - base_ns,
                   row["duration_ns"])
            for row in reduces
        ]  # fmt: skip


def _execution(capture: Capture, row: np.void, base_ns: int) -> dict[str, Json]:
    operator = capture.operators[row["operator"]]
    process = {AI_CPU: _AI_CPU_PROCESS, COMMUNICATION: _COMMUNICATION_PROCESS}.get(operator.side, capture.device)
    name = operator.full_name or operator.type
    return _event(name, process, row["stream"], row["start_ns"] - base_ns, row["duration_ns"])


def _event(name: str, process: int, lane: int, start_ns: int, duration_ns: int) -> dict[str, Json]:
    times = {"ts": int(start_ns) / 1000, "dur": int(duration_ns) / 1000}
    return {"name": name, "ph": "X", "pid": process, "tid": 0 if lane == MISSING else int(lane), **times}
