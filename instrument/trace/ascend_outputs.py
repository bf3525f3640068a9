"""Tables that newer Ascend software and older MindSpore derive from a device's raw files.

The names of columns have changed over the years; each table says which it takes. Times of CANN's tables are
microseconds since the epoch as decimal text, those of the legacy step trace are cycles of the device's counter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from instrument.trace import csvtext
from instrument.trace.cpu import US, Memory, Totals
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
    Problem,
    Rows,
)
from instrument.trace.gpu import StepTrace
from instrument.trace.text import NOT_AVAILABLE, Buffer, Index, Losses

#: Cycles of the counter of the 910 generation are 10 ns.
CYCLE_NS = 10
#: "KB" are 1024 bytes, and "MB" 1000 of those.
KB, MB = 1024, 1000 * 1024
_CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AIC", "AIV", "AICORE")
_COMMUNICATION = ("HCCL", "COMMUNICATION")
#: Tasks of the runtime: waiting, copies, marks. They are no operators, and neither compute nor communicate.
_RUNTIME = re.compile(
    r"EVENT_|NOTIFY_|MEMCPY|REDUCE_ASYNC|SDMA|WRITE_VALUE|PLACE_HOLDER|PROFIL|LABEL_|STREAM_|MODEL_", re.IGNORECASE
)
_REDUCE = re.compile(r"stream_(\d{1,18})_(.+)_(start|end)_point")


class Overlap(NamedTuple):
    """Computing and communication step by step, as `OVERLAP`."""

    rows: Rows
    problems: list[Problem]


class Allocations(NamedTuple):
    """Memory that operators took, as `ALLOCATION`, whose `name` is a row of `names`."""

    names: list[str]
    allocations: Rows
    problems: list[Problem]


ALLOCATION = np.dtype([("start_ns", "i8"), ("duration_ns", "i8"), ("name", "i4"), ("size_bytes", "i8")])


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


class Kernels(NamedTuple):
    """Operators, their executions, and the tasks of the runtime below them (both `EXECUTION`, by start)."""

    operators: list[Operator]
    executions: Rows
    activities: Rows
    problems: list[Problem]


class _Operators:
    """A row for each distinct operator."""

    def __init__(self) -> None:
        self.rows: dict[Operator, int] = {}

    def row(self, full_name: str, kind: str, side: str, shapes: str = "") -> int:
        operator = Operator(full_name, full_name.rpartition("/")[2], kind, side, shapes)
        return self.rows.setdefault(operator, len(self.rows))


_KERNEL = {
    "step": ("Step ID", "Step Id"),
    "task": ("Task ID",),
    "stream": ("Stream ID",),
    "name": ("Name", "Op Name"),
    "type": ("Type", "OP Type"),
    "core": ("Accelerator Core", "Task Type"),
    "start": ("Start Time(us)", "Task Start Time(us)"),
    "duration": ("Duration(us)", "Task Duration(us)"),
    "shapes": ("Input Shapes",),
}


def kernel_details(data: Buffer, file: str, device: int | None = None) -> Kernels:
    """`kernel_details.csv` and `op_summary_*.csv`: executions on the device, those of communication too.

    What the type of the task, or where that is not told, of the operator says to be waiting, a copy or a mark of the
    runtime is an activity. `device` chooses the rows of one device where the table holds several.
    """
    losses = Losses(file)
    operators = _Operators()
    found = [np.empty(0, EXECUTION)]
    below = [np.empty(0, np.bool_)]
    for block in csvtext.blocks(data, losses, _KERNEL, ("name", "start", "duration"), device):
        start, has_start = block.numbers("start", US)
        duration, has_duration = block.numbers("duration", US)
        rows = np.empty(len(block), EXECUTION)
        rows["start_ns"], rows["duration_ns"] = start, duration
        for column in ("task", "stream", "step"):
            rows[column] = block.numbers(column)[0]
        cells = list(zip(*(block.text(key) for key in ("name", "type", "core", "shapes")), strict=True))
        rows["operator"] = [
            operators.row(name, kind, side_of(core), "" if shapes == "N/A" else shapes.strip('"'))
            for name, kind, core, shapes in cells
        ]
        is_below = [is_of_runtime(kind if core.strip() in NOT_AVAILABLE else core) for _, kind, core, _ in cells]
        found.append(rows[has_start & has_duration])
        below.append(np.array(is_below, np.bool_)[has_start & has_duration])
    result, is_activity = np.concatenate(found), np.concatenate(below)
    order = np.argsort(result["start_ns"], kind="stable")
    result, is_activity = result[order], is_activity[order]
    return Kernels(list(operators.rows), result[~is_activity], result[is_activity], losses.problems())


_STATISTIC = {
    "type": ("OP Type",),
    "core": ("Core Type",),
    "count": ("Count",),
    "total_ns": ("Total Time(us)",),
    "min_ns": ("Min Time(us)",),
    "max_ns": ("Max Time(us)",),
}


def op_statistic(data: Buffer, file: str, device: int | None = None) -> Totals:
    """`op_statistic.csv`: what CANN sums up for each type of operators; they have no names. `device` as above."""
    losses = Losses(file)
    operators = _Operators()
    found = [np.empty(0, TOTAL)]
    for block in csvtext.blocks(data, losses, _STATISTIC, ("type", "count", "total_ns"), device):
        rows = np.empty(len(block), TOTAL)
        cells = zip(block.text("type"), block.text("core"), strict=True)
        rows["operator"] = [operators.row("", kind, side_of(core)) for kind, core in cells]
        rows["count"], has_count = block.numbers("count")
        usable = has_count
        for column in ("total_ns", "min_ns", "max_ns"):
            rows[column], has_value = block.numbers(column, US)
            usable = usable & has_value if column == "total_ns" else usable
        found.append(rows[usable])
    return Totals(list(operators.rows), np.concatenate(found), losses.problems())


#: The columns are rounded to a nanosecond, or in older files to ten; sums of two may differ by that.
_ROUNDED_NS = 20
_STEP_TIME = {
    "step": ("Step",),
    "computing": ("Computing",),
    "communication": ("Communication",),
    "overlapped": ("Overlapped",),
    "communication_not_overlapped": ("Communication(Not Overlapped)",),
    "free": ("Free",),
    "stage": ("Stage",),
    "bubble": ("Bubble",),
    "preparing": ("Preparing",),
}


def step_trace_time(data: Buffer, file: str, device: int | None = None) -> Overlap:
    """`step_trace_time.csv`: how long a step computed, communicated and did neither. `device` as above.

    The values are those of the file. Where Overlapped is not Communication less Communication(Not Overlapped), that is
    counted.
    """
    losses = Losses(file)
    found = [np.empty(0, OVERLAP)]
    for block in csvtext.blocks(data, losses, _STEP_TIME, ("computing",), device):
        rows = np.empty(len(block), OVERLAP)
        # An empty step is the whole capture of a run without steps.
        rows["step"] = block.numbers("step")[0]
        for key in list(_STEP_TIME)[1:]:
            rows[f"{key}_ns"] = block.numbers(key, US)[0]
        losses.add("steps whose columns of communication contradict each other", _contradictions(rows))
        found.append(rows)
    return Overlap(np.concatenate(found), losses.problems())


def _contradictions(rows: Rows) -> int:
    parts = [rows[f"{name}_ns"] for name in ("communication", "communication_not_overlapped", "overlapped")]
    is_known = np.logical_and.reduce([part != MISSING for part in parts])
    communication, alone, both = parts
    return int((is_known & (np.abs(communication - alone - both) > _ROUNDED_NS)).sum())


_RECORD = {
    "component": ("Component",),
    "time": ("Timestamp(us)",),
    "allocated": ("Total Allocated(MB)",),
    "reserved": ("Total Reserved(MB)",),
    "active": ("Total Active(MB)",),
}
_COMPONENTS = ("MindSpore+GE", "PTA+GE", "MindSpore", "PTA", "GE", "APP", "")


def memory_record(data: Buffer, file: str, device: int | None = None) -> Memory:
    """`memory_record.csv`: the memory of a device; of its components the one that covers the most others is taken.

    `device` as above.
    """
    losses = Losses(file)
    found: dict[str, list[Rows]] = {}
    for block in csvtext.blocks(data, losses, _RECORD, ("time",), device):
        time, has_time = block.numbers("time", US)
        rows = np.empty(len(block), MEMORY)
        rows["time_ns"] = time
        for name in ("allocated", "reserved", "active"):
            rows[f"{name}_bytes"] = block.numbers(name, MB)[0]
        components = np.array(block.text("component"), object)
        for component in sorted(set(components.tolist())):
            found.setdefault(component, []).append(rows[has_time & (components == component)])
    widest = sorted(found, key=lambda name: _COMPONENTS.index(name) if name in _COMPONENTS else len(_COMPONENTS))
    samples = np.concatenate([np.empty(0, MEMORY), *(found[widest[0]] if widest else [])])
    return Memory(samples[np.argsort(samples["time_ns"], kind="stable")], losses.problems())


_ALLOCATED = {
    "name": ("Name",),
    "size": ("Size(KB)",),
    "start": ("Allocation Time(us)",),
    "duration": ("Duration(us)",),
}


def operator_memory(data: Buffer, file: str) -> Allocations:
    """`operator_memory.csv`, as `ALLOCATION`; the duration of memory whose release was not seen is `MISSING`."""
    losses = Losses(file)
    names = Index()
    found = [np.empty(0, ALLOCATION)]
    for block in csvtext.blocks(data, losses, _ALLOCATED, ("name", "size", "start")):
        rows = np.empty(len(block), ALLOCATION)
        rows["name"] = [names(name) for name in block.text("name")]
        rows["size_bytes"], has_size = block.numbers("size", KB)
        rows["start_ns"], has_start = block.numbers("start", US)
        rows["duration_ns"] = block.numbers("duration", US)[0]
        found.append(rows[has_size & has_start])
    return Allocations(names.names, np.concatenate(found), losses.problems())


_LEGACY = {
    "step": ("step_num",),
    "start": ("start_point",),
    "fp": ("fp_point",),
    "bp": ("bp_point",),
    "end": ("end_point",),
    "total": ("total",),
}


_LEGACY_PARTS = {"iteration_interval", "fp_and_bp", "tail", "fp"}


def step_trace_raw(data: Buffer, file: str, to_ns: Callable[[Integers], Integers] | None = None) -> StepTrace:
    """`step_trace_raw_<device>_detail_time.csv`: steps in cycles of `to_ns` (10 ns); the row of averages is no step.

    Reduces of 0 cycles stand for "none in this step" and are left out, as are steps that lack start or end.
    """
    losses = Losses(file)
    ns = to_ns or (lambda cycles: cycles * CYCLE_NS)
    places = _reduce_places(data)
    known = {name for names in _LEGACY.values() for name in names} | _LEGACY_PARTS
    odd = [head for head in csvtext.heading_of(data) if head not in known and not head.startswith("stream_")]
    points = [head for head in csvtext.heading_of(data) if head.startswith("stream_") and head.endswith("_point")]
    losses.add("columns of an unknown name", len(odd) + len(points) - 2 * len(places))
    columns = _LEGACY | {f"{key} {side}": (head,) for key, heads in places.items() for side, head in heads.items()}
    names = Index()
    steps, reduces = [np.empty(0, STEP)], [np.empty(0, REDUCE)]
    has_mean = False
    for block in csvtext.blocks(data, losses, columns, ("step", "start", "end"), expected=True):
        is_step = np.array([cell.strip() != "-" for cell in block.text("step")], np.bool_)
        has_mean = has_mean or not is_step.all()
        block = block.where(is_step)
        rows, usable, contradictions = _legacy_steps(block, ns)
        losses.add("steps whose total is not their end less their start", contradictions)
        losses.add("steps without a number, start or end", int((~usable).sum()))
        steps.append(rows[usable])
        for key in places:
            found, contradictions = _legacy_reduces(block, key, names(key[1]), rows["step"], usable, ns)
            reduces.append(found)
            losses.add("reduces whose duration is not their end less their start", contradictions)
    losses.add("no row of averages at the end: the file may be cut", not has_mean)
    ordered = np.concatenate(reduces)
    ordered = ordered[np.lexsort((ordered["start_ns"], ordered["step"]))]
    return StepTrace(names.names, np.concatenate(steps), ordered, losses.problems())


_ToNs = Callable[[Integers], Integers]


def _reduce_places(data: Buffer) -> dict[tuple[int, str], dict[str, str]]:
    """(stream, name) of each reduce -> the headings of its start and of its end."""
    found: dict[tuple[int, str], dict[str, str]] = {}
    headings = csvtext.heading_of(data)
    for head in headings:
        if match := _REDUCE.fullmatch(head):
            found.setdefault((int(match[1]), match[2]), {})[match[3]] = head
    whole = {key: heads for key, heads in found.items() if len(heads) == 2}
    durations = {key: f"stream_{key[0]}_{key[1]}" for key in whole}
    return {key: heads | ({"duration": durations[key]} if durations[key] in headings else {})
            for key, heads in whole.items()}  # fmt: skip


def _legacy_steps(block: csvtext.Block, to_ns: _ToNs) -> tuple[Rows, Mask, int]:
    """Return the steps, which of them are usable, and how many of these contradict their column of totals."""
    length = np.zeros(len(block), np.int64)
    rows = np.empty(len(block), STEP)
    rows["step"], usable = block.numbers("step")
    rows["model"] = MISSING
    for key, name in (("start", "start_ns"), ("fp", "fp_start_ns"), ("bp", "bp_end_ns"), ("end", "end_ns")):
        cycles, has_value = block.numbers(key)
        rows[name] = np.where(has_value, to_ns(cycles), MISSING)
        usable = usable & has_value if key in ("start", "end") else usable
        length += cycles if key == "end" else -cycles if key == "start" else 0
    totals, has_total = block.numbers("total")
    return rows, usable, int((usable & has_total & (length != totals)).sum())


def _legacy_reduces(
    block: csvtext.Block,
    key: tuple[int, str],
    name: int,
    step: Integers,
    usable: Mask,
    to_ns: _ToNs,
) -> tuple[Rows, int]:
    """Return the reduces of one place, and how many contradict their column of durations."""
    label = f"{key} "
    start, has_start = block.numbers(f"{label}start")
    end, has_end = block.numbers(f"{label}end")
    kept = usable & has_start & has_end & (end > 0)
    rows = np.empty(int(kept.sum()), REDUCE)
    rows["step"], rows["stream"], rows["name"] = step[kept], key[0], name
    rows["start_ns"] = to_ns(start[kept])
    rows["duration_ns"] = to_ns(end[kept]) - rows["start_ns"]
    durations, has_duration = block.numbers(f"{label}duration")
    return rows, int((kept & has_duration & (end - start != durations)).sum())
