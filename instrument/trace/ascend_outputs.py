"""Tables that newer Ascend software and older MindSpore derive from a device's raw files.

The names of columns have changed over the years; each table says which it takes. Times of CANN's tables are
microseconds since the epoch as decimal text, those of the legacy step trace are cycles of the device's counter. Where a
table may hold the rows of several devices, `device` chooses those of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from instrument.trace.cpu import US
from instrument.trace.events import (
    AI_CORE,
    AI_CPU,
    COMMUNICATION,
    EXECUTION,
    MEMORY,
    MISSING,
    OVERLAP,
    REDUCE,
    STEP,
    TOTAL,
    Integers,
    Mask,
    Operator,
    OperatorRows,
    Rows,
    by_start,
    unknown,
)
from instrument.trace.gpu import StepTrace
from instrument.trace.text import NOT_AVAILABLE, Buffer, Column, CsvRows, Index, Losses, csv_heading, csv_rows

#: Cycles of the counter of the 910 generation are 10 ns.
CYCLE_NS = 10
#: "MB" are 1000 of "KB", which are 1024 bytes.
MB = 1000 * 1024
_CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AIC", "AIV", "AICORE")
_COMMUNICATION = ("HCCL", "COMMUNICATION")
#: Tasks of the runtime: waiting, copies, marks. They are no operators, and neither compute nor communicate.
_RUNTIME = re.compile(
    r"EVENT_|NOTIFY_|MEMCPY|REDUCE_ASYNC|SDMA|WRITE_VALUE|PLACE_HOLDER|PROFIL|LABEL_|STREAM_|MODEL_", re.IGNORECASE
)
_REDUCE = re.compile(r"stream_(\d{1,18})_(.+)_(start|end)_point")


def side_of(task_type: str) -> str:
    """Return where a task of that type runs: all kinds of AI cores are one side; other units are sides of their own."""
    kind = task_type.strip().upper()
    if kind in _CORES:
        return AI_CORE
    if kind in ("AI_CPU", "AICPU"):
        return AI_CPU
    return COMMUNICATION if kind in _COMMUNICATION else task_type.strip()


def is_of_runtime(task_type: str) -> bool:
    """Tell by its type whether a task is one of the runtime, below the operators."""
    return _RUNTIME.match(task_type.strip()) is not None


def _operator(full_name: str, kind: str, side: str, shapes: str = "") -> Operator:
    return Operator(full_name, full_name.rpartition("/")[2], kind, side, shapes)


# ---------------------------------------------------------------- CANN

_KERNEL = {
    "name": Column(("Name", "Op Name"), is_required=True),
    "start_ns": Column(("Start Time(us)", "Task Start Time(us)"), US, is_required=True),
    "duration_ns": Column(("Duration(us)", "Task Duration(us)"), US, is_required=True),
    "task": Column(("Task ID",)),
    "stream": Column(("Stream ID",)),
    "step": Column(("Step ID", "Step Id")),
    "type": Column(("Type", "OP Type")),
    "core": Column(("Accelerator Core", "Task Type")),
    "shapes": Column(("Input Shapes",)),
}
_STATISTIC = {
    "type": Column(("OP Type",), is_required=True),
    "core": Column(("Core Type",)),
    "count": Column(("Count",), is_required=True),
    "total_ns": Column(("Total Time(us)",), US, is_required=True),
    "min_ns": Column(("Min Time(us)",), US),
    "max_ns": Column(("Max Time(us)",), US),
}
#: An empty step is the whole capture of a run without steps.
_STEP_TIME = {
    "step": Column(("Step",)),
    "computing_ns": Column(("Computing",), US, is_required=True),
    "communication_ns": Column(("Communication",), US),
    "overlapped_ns": Column(("Overlapped",), US),
    "communication_not_overlapped_ns": Column(("Communication(Not Overlapped)",), US),
    "free_ns": Column(("Free",), US),
    "stage_ns": Column(("Stage",), US),
    "bubble_ns": Column(("Bubble",), US),
    "preparing_ns": Column(("Preparing",), US),
}
#: The columns are rounded to a nanosecond, or in older files to ten; sums of two may differ by that.
_ROUNDED_NS = 20
_RECORD = {
    "component": Column(("Component",)),
    "time_ns": Column(("Timestamp(us)",), US, is_required=True),
    "allocated_bytes": Column(("Total Allocated(MB)",), MB),
    "reserved_bytes": Column(("Total Reserved(MB)",), MB),
    "active_bytes": Column(("Total Active(MB)",), MB),
}
_COMPONENTS = ("MindSpore+GE", "PTA+GE", "MindSpore", "PTA", "GE", "APP", "")


class Kernels(NamedTuple):
    """Operators, their executions, and the tasks of the runtime below them (both `EXECUTION`, by start)."""

    operators: list[Operator]
    executions: Rows
    activities: Rows


def kernel_details(data: Buffer, losses: Losses, device: int | None = None) -> Kernels:
    """Read `kernel_details.csv` or `op_summary_*.csv`: executions on the device, those of communication too.

    What the type of the task, or where that is not told, of the operator says to be waiting, a copy or a mark of the
    runtime is an activity.
    """
    operators = Index[Operator]()
    blocks, below = [np.empty(0, EXECUTION)], [np.empty(0, np.bool_)]
    for block in csv_rows(data, losses, _KERNEL, device):
        rows, usable = block.array(EXECUTION)
        cells = list(zip(*(block.text(key) for key in ("name", "type", "core", "shapes")), strict=True))
        rows["operator"] = [
            operators(_operator(name, kind, side_of(core), "" if shapes == "N/A" else shapes.strip('"')))
            for name, kind, core, shapes in cells
        ]
        is_below = [is_of_runtime(kind if core.strip() in NOT_AVAILABLE else core) for _, kind, core, _ in cells]
        blocks.append(rows[usable])
        below.append(np.array(is_below, np.bool_)[usable])
    rows, is_activity = np.concatenate(blocks), np.concatenate(below)
    return Kernels(operators.names, by_start(rows[~is_activity]), by_start(rows[is_activity]))


def op_statistic(data: Buffer, losses: Losses, device: int | None = None) -> OperatorRows:
    """Read `op_statistic.csv`: what CANN sums up for each type of operators; they have no names."""
    operators = Index[Operator]()
    blocks = [np.empty(0, TOTAL)]
    for block in csv_rows(data, losses, _STATISTIC, device):
        rows, usable = block.array(TOTAL)
        cells = zip(block.text("type"), block.text("core"), strict=True)
        rows["operator"] = [operators(_operator("", kind, side_of(core))) for kind, core in cells]
        blocks.append(rows[usable])
    return OperatorRows(operators.names, np.concatenate(blocks))


def step_trace_time(data: Buffer, losses: Losses, device: int | None = None) -> Rows:
    """Read `step_trace_time.csv`: how long a step computed, communicated and did neither (dtype OVERLAP).

    The values are those of the file. Where Overlapped is not Communication less Communication(Not Overlapped), that is
    counted.
    """
    blocks = [np.empty(0, OVERLAP)]
    for block in csv_rows(data, losses, _STEP_TIME, device):
        rows, _ = block.array(OVERLAP)
        losses.add("steps whose columns of communication contradict each other", _contradictions(rows))
        blocks.append(rows)
    return np.concatenate(blocks)


def _contradictions(rows: Rows) -> int:
    communication, alone, both = (
        rows[name] for name in ("communication_ns", "communication_not_overlapped_ns", "overlapped_ns")
    )
    is_known = (communication != MISSING) & (alone != MISSING) & (both != MISSING)
    return int((is_known & (np.abs(communication - alone - both) > _ROUNDED_NS)).sum())


def memory_record(data: Buffer, losses: Losses, device: int | None = None) -> Rows:
    """Read `memory_record.csv`, the memory of a device; the component that covers the most others is taken."""
    by_component: dict[str, list[Rows]] = {}
    for block in csv_rows(data, losses, _RECORD, device):
        rows, usable = block.array(MEMORY)
        components = np.array(block.text("component"), object)
        for component in sorted(set(components.tolist())):
            by_component.setdefault(component, []).append(rows[usable & (components == component)])
    widest = sorted(by_component, key=lambda name: _COMPONENTS.index(name) if name in _COMPONENTS else len(_COMPONENTS))
    samples = np.concatenate([np.empty(0, MEMORY), *(by_component[widest[0]] if widest else [])])
    return samples[np.argsort(samples["time_ns"], kind="stable")]


# ---------------------------------------------------------------- the legacy step trace

_LEGACY = {
    "step": Column(("step_num",), is_required=True),
    "start": Column(("start_point",), is_required=True),
    "fp": Column(("fp_point",)),
    "bp": Column(("bp_point",)),
    "end": Column(("end_point",), is_required=True),
    "total": Column(("total",)),
}
_LEGACY_PARTS = ("iteration_interval", "fp_and_bp", "tail", "fp")
_ToNs = Callable[[Integers], Integers]


def step_trace_raw(data: Buffer, losses: Losses, to_ns: _ToNs = lambda cycles: cycles * CYCLE_NS) -> StepTrace:
    """Read `step_trace_raw_<device>_detail_time.csv`: steps in cycles of `to_ns` (10 ns), less the row of averages.

    Reduces of 0 cycles stand for "none in this step" and are left out, as are steps that lack start or end.
    """
    headings = csv_heading(data)
    places = _reduce_places(headings)
    known_headings = {*_LEGACY_PARTS, *(name for column in _LEGACY.values() for name in column.headings)}
    odd = [head for head in headings if head not in known_headings and not head.startswith("stream_")]
    points = [head for head in headings if head.startswith("stream_") and head.endswith("_point")]
    losses.add("columns of an unknown name", len(odd) + len(points) - 2 * len(places))
    columns = _LEGACY | {
        f"{key} {side}": Column((head,)) for key, heads in places.items() for side, head in heads.items()
    }
    names = Index[str]()
    steps, reduces = [np.empty(0, STEP)], [np.empty(0, REDUCE)]
    has_mean = False
    for block in csv_rows(data, losses, columns, is_whole=True):
        is_step = np.array([cell.strip() != "-" for cell in block.text("step")], np.bool_)
        has_mean = has_mean or not is_step.all()
        block = block.where(is_step)
        rows, usable, contradictions = _legacy_steps(block, to_ns)
        losses.add("steps whose total is not their end less their start", contradictions)
        losses.add("steps without a number, start or end", int((~usable).sum()))
        steps.append(rows[usable])
        for key in places:
            rows_of_place, contradictions = _legacy_reduces(block, key, names(key[1]), rows["step"], usable, to_ns)
            reduces.append(rows_of_place)
            losses.add("reduces whose duration is not their end less their start", contradictions)
    losses.add("no row of averages at the end: the file may be cut", not has_mean)
    ordered = np.concatenate(reduces)
    ordered = ordered[np.lexsort((ordered["start_ns"], ordered["step"]))]
    return StepTrace(names.names, np.concatenate(steps), ordered)


def _reduce_places(headings: list[str]) -> dict[tuple[int, str], dict[str, str]]:
    """Map (stream, name) of each reduce to the headings of its start, its end and, if there is one, its duration."""
    places: dict[tuple[int, str], dict[str, str]] = {}
    for head in headings:
        if match := _REDUCE.fullmatch(head):
            places.setdefault((int(match[1]), match[2]), {})[match[3]] = head
    whole = {key: heads for key, heads in places.items() if len(heads) == 2}
    for (stream, name), heads in whole.items():
        if (duration := f"stream_{stream}_{name}") in headings:
            heads["duration"] = duration
    return whole


def _legacy_steps(block: CsvRows, to_ns: _ToNs) -> tuple[Rows, Mask, int]:
    """Return the steps, which of them are usable, and how many of these contradict their column of totals."""
    length = np.zeros(len(block), np.int64)
    rows = unknown(STEP, len(block))
    rows["step"], usable = block.numbers("step")
    for key, name in (("start", "start_ns"), ("fp", "fp_start_ns"), ("bp", "bp_end_ns"), ("end", "end_ns")):
        cycles, has_value = block.numbers(key)
        rows[name] = np.where(has_value, to_ns(cycles), MISSING)
        usable = usable & has_value if key in ("start", "end") else usable
        length += cycles if key == "end" else -cycles if key == "start" else 0
    totals, has_total = block.numbers("total")
    return rows, usable, int((usable & has_total & (length != totals)).sum())


def _legacy_reduces(
    block: CsvRows, key: tuple[int, str], name: int, step: Integers, usable: Mask, to_ns: _ToNs
) -> tuple[Rows, int]:
    """Return the reduces of one place, and how many contradict their column of durations."""
    start, has_start = block.numbers(f"{key} start")
    end, has_end = block.numbers(f"{key} end")
    kept = usable & has_start & has_end & (end > 0)
    rows = np.empty(int(kept.sum()), REDUCE)
    rows["step"], rows["stream"], rows["name"] = step[kept], key[0], name
    rows["start_ns"] = to_ns(start[kept])
    rows["duration_ns"] = to_ns(end[kept]) - rows["start_ns"]
    durations, has_duration = block.numbers(f"{key} duration")
    return rows, int((kept & has_duration & (end - start != durations)).sum())
