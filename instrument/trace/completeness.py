"""What is missing of a set of files: empty ones, and those that belong to the others and are not there.

A tool writes its files in sets, and what one of them would have told is found nowhere else. Each file that is empty or
absent is named here with what it costs the tables. An absent file whose content another one of the set has costs
nothing, and is not named; nor is anything where only one kind of file is there, which is no set.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from instrument.trace.assembly import DEVICE, MONOTONIC, sides_of
from instrument.trace.events import AI_CPU, COMMUNICATION, CPU, Capture, Integers, Operator, OperatorRows, Problem
from instrument.trace.files import RawFiles
from instrument.trace.kinds import ASCEND, ascend_kind_of

_NO_NAMES = "tasks have no names, each is an operator of its own, and tasks of the runtime count as operators"
_NO_SHAPES = "the shapes of inputs are not known"
_NO_STEPS = "the steps of the device and their parts are not known"
_NO_WALL_CLOCK = "the times of the device cannot be brought onto the wall clock"
_NO_STAGES = "the stages of the data pipeline and their queues are not known"
_NO_BATCHES = "the batches of the data pipeline and the waits for them are not known"
_NO_KERNELS = "the executions of operators on the device are not known"
_NO_HOST_OPERATORS = "the executions of operators on the host are not known"
_HOST_OF_TIMELINE = "the executions of operators on the host are those of the timeline, without the shapes of inputs"
_UNCHECKED = "executions cannot be checked against the sums of the tool"
_NO_MEMORY = "memory over time is not known"
#: Kind -> what an empty file of it costs.
_COSTS: Mapping[str, str] = {
    "hwts": _NO_KERNELS,
    "training_trace": _NO_STEPS,
    "ts_track": _NO_STEPS,
    "aicpu": "the executions on AI CPU are not known",
    "aicpumi": "how long the device waited for data is not known",
    "dp": "what the queue of the device held is not known",
    "tdt": "what the queue of the device held is not known",
    "task_desc": _NO_NAMES,
    "graph_desc": _NO_SHAPES,
    "tensor_data": _NO_SHAPES,
    "point": "communications have no names",
    "step_info": "the operators at the marks of steps are not known",
    "hash_dic": "operators whose names are long have none",
    "host_start": _NO_WALL_CLOCK,
    "dev_start": _NO_WALL_CLOCK,
    "start_info": _NO_WALL_CLOCK,
    "end_info": "when the collection ended is not known",
    "info": "the counter of the device is taken to run at 100 MHz",
    "fetch_table": "how long the device waited for data is not known",
    "window": "when the window was open, and if it is complete, is not known",
    "marks": "the steps and spans of the host are not known",
    "names": "spans of the host have no names",
    "cpu_executions": _NO_HOST_OPERATORS,
    "cpu_framework": _NO_SHAPES,
    "cpu_detail": _UNCHECKED,
    "cpu_types": _UNCHECKED,
    "cpu_memory": _NO_MEMORY,
    "gpu_executions": _NO_KERNELS,
    "gpu_framework": _NO_SHAPES,
    "gpu_detail": _UNCHECKED,
    "gpu_types": _UNCHECKED,
    "gpu_kernels": "the operators of kernels are not known",
    "gpu_activities": "the launches of kernels are not known",
    "gpu_steps": _NO_STEPS,
    "gpu_start": "the clock of the GPU cannot be brought onto that of the host",
    "pipeline": _NO_STAGES,
    "pipeline_table": _NO_STAGES,
    "device_queue": _NO_BATCHES,
    "iterator": _NO_BATCHES,
    "cpu_use": "how busy the stages of the data pipeline were is not known",
    "get_next": "how long the device waited for data is not known",
    "kernel_details": _NO_KERNELS,
    "op_summary": _NO_KERNELS,
    "op_statistic": _UNCHECKED,
    "step_trace_time": "how much of the communication is hidden is computed from executions",
    "memory_record": _NO_MEMORY,
    "memory_usage": _NO_MEMORY,
    "operator_memory": "the memory of operators is not known",
    "step_trace_raw": _NO_STEPS,
    "trace_view": "the timeline of the host and of the framework is not known",
    "task_time": "the tasks of the device in it are not known",
    "hccl": "the tasks of communication in it are not known",
    "step_trace": _NO_STEPS,
    "msprof": "the timeline of host and device in it is not known",
    "op_range": "what the framework did on the host is not known",
    "profiler_info": "how the profiler was set is not known",
    "profiler_metadata": "your metadata are not known",
}
_ITERATION = re.compile(r"(?P<kind>task_time|hccl|step_trace)_(?P<which>\d+_\d+_\d+)\.json", re.ASCII)


class _Rule(NamedTuple):
    """Where any of `present` is there and none of `absent`, `file` is missing."""

    present: tuple[str, ...]
    absent: tuple[str, ...]
    file: str
    cost: str


_STEP_TRACES = ("training_trace", "ts_track", "step_trace_raw", "step_trace")
_NAMES = ("task_desc", "kernel_details", "op_summary")
_RULES = (
    _Rule(("hwts",), _NAMES, "Framework.task_desc_info", _NO_NAMES),
    _Rule(("hwts",), ("graph_desc", "tensor_data"), "Framework.graph_desc_info or tensor_data_info", _NO_SHAPES),
    _Rule(("hwts",), _STEP_TRACES, "training_trace or ts_track", _NO_STEPS),
    _Rule(("hwts",), ("aicpu",), "DATA_PREPROCESS.AICPU", _COSTS["aicpu"]),
    _Rule(("training_trace",), ("point",), "Framework.point", _COSTS["point"]),
    _Rule(("dev_start",), ("host_start",), "host_start.log", _NO_WALL_CLOCK),
    _Rule(("host_start", "dev_start"), ("info",), "info.json", _COSTS["info"]),
    _Rule(("cpu_executions",), ("cpu_framework",), "cpu_framework", _NO_SHAPES),
    _Rule(("gpu_executions",), ("gpu_framework",), "gpu_framework", _NO_SHAPES),
    _Rule(("gpu_executions",), ("gpu_activities",), "activity_execute_timestamp", _COSTS["gpu_activities"]),
    _Rule(("gpu_activities",), ("gpu_kernels",), "gpu_activity_data", _COSTS["gpu_kernels"]),
    _Rule(("gpu_executions",), ("gpu_steps",), "step_trace_profiling", _NO_STEPS),
    _Rule(("kernel_details",), ("trace_view",), "trace_view.json", _COSTS["trace_view"]),
    _Rule(("device_queue", "iterator", "cpu_use"), ("pipeline", "pipeline_table"), "pipeline_profiling", _NO_STAGES),
    _Rule(("pipeline_table",), ("pipeline",), "pipeline_profiling", "stages without a queue are not known"),
    _Rule(("pipeline",), ("cpu_use",), "minddata_cpu_utilization", _COSTS["cpu_use"]),
    _Rule(("pipeline",), ("device_queue", "iterator"), "device_queue_profiling or dataset_iterator_profiling",
          _NO_BATCHES),
    _Rule(("window",), ("marks",), "instrument.marks", _COSTS["marks"]),
    _Rule(("marks",), ("names",), "instrument.names", _COSTS["names"]),
    _Rule(("marks",), ("window",), "instrument.window", _COSTS["window"]),
)  # fmt: skip
#: Files of a device whose tools write its executions too: without those, which file lacks.
_OF_KERNELS = (
    _Rule(("training_trace", "ts_track", "aicpu", "task_desc"), (), "hwts", _NO_KERNELS),
    _Rule(("op_statistic", "step_trace_time", "trace_view"), (), "kernel_details.csv", _NO_KERNELS),
    _Rule(("step_trace", "hccl"), (), "task_time", _NO_KERNELS),
    _Rule(("gpu_detail", "gpu_types", "gpu_framework", "gpu_activities", "gpu_steps"), (), "gpu_op_execute_timestamp",
          _NO_KERNELS),
)  # fmt: skip
_OF_HOST = _Rule(
    ("cpu_detail", "cpu_types", "cpu_framework"), (), "cpu_op_execute_timestamp", _NO_HOST_OPERATORS
)  # fmt: skip
#: Sums of the tools -> the executions that they were made of.
_CHECKED = {
    "cpu_detail": ("cpu_executions",), "gpu_detail": ("gpu_executions",),
    "op_statistic": ("kernel_details", "op_summary"),
}  # fmt: skip
#: Sums are printed with six digits, as the times that they are of.
_ROUNDED_NS = 2000
#: What the tools of a device write with times of the host's monotonic clock.
_ON_HOST_CLOCK = ("task_time", "hccl", "step_trace", "msprof")
EMPTY, ABSENT = "the file is empty", "the file is missing"


def missing(files: RawFiles, of_kind: Mapping[str, Sequence[str]], parts: Capture) -> list[Problem]:
    """Return the files of a device that are empty or absent, each with what it costs.

    `of_kind` are the files that are there; `parts` is what was read of them.
    """
    names = _by_detailed_kind(of_kind)
    problems = [
        Problem(name, f"{EMPTY}: {_COSTS[kind]}", 1)
        for kind, of in names.items()
        for name in of
        if not files.size(name) and kind in _COSTS
    ]
    if len(names) > 1:
        problems += [Problem(rule.file, f"{ABSENT}: {rule.cost}", 1) for rule in _broken(names, parts)]
    problems += [
        Problem(f"{kind}_{which}.json", f"{ABSENT}: {_COSTS[kind]}", 1) for kind, which in _absent_iterations(names)
    ]
    return problems


def is_absence(problem: Problem) -> bool:
    """Return True for what `missing` returns: nothing was there to be read."""
    return problem.what.startswith((f"{EMPTY}:", f"{ABSENT}:"))


def _by_detailed_kind(of_kind: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the files by kind; the raw files of an Ascend device, which are one kind for others, by theirs."""
    by_kind: dict[str, list[str]] = {}
    for kind, names in of_kind.items():
        for name in names:
            ascend_kind = ascend_kind_of(name) if kind == ASCEND else None
            by_kind.setdefault(ascend_kind.name if ascend_kind else kind, []).append(name)
    return by_kind


def _broken(names: Mapping[str, Sequence[str]], parts: Capture) -> Iterator[_Rule]:
    for rule in _RULES:
        if not names.keys().isdisjoint(rule.present) and names.keys().isdisjoint(rule.absent):
            yield rule
    sides = sides_of(parts)
    sources = {"hwts", "kernel_details", "op_summary", "task_time", "msprof", "gpu_executions"}
    if parts.target != "cpu" and not sides - {CPU, AI_CPU, COMMUNICATION} and names.keys().isdisjoint(sources):
        yield from (rule for rule in _OF_KERNELS if not names.keys().isdisjoint(rule.present))
    if "cpu_executions" not in names and not names.keys().isdisjoint(_OF_HOST.present):
        yield _OF_HOST if CPU not in sides else _OF_HOST._replace(cost=_HOST_OF_TIMELINE)
    if parts.clock == MONOTONIC and "start_info" not in names and not names.keys().isdisjoint(_ON_HOST_CLOCK):
        yield _Rule((), (), "start_info", _NO_WALL_CLOCK)
    if parts.clock == DEVICE and "hwts" in names and "host_start" not in names:
        yield _Rule((), (), "host_start.log", _NO_WALL_CLOCK)
    if parts.clock == DEVICE and any(name.rpartition("/")[2].startswith("hwts.data") for name in names.get("hwts", ())):
        files = {"dev_start": "dev_start.log", "start_info": "start_info"}
        yield from (_Rule((), (), file, _NO_WALL_CLOCK) for kind, file in files.items() if kind not in names)


def _absent_iterations(names: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield the files of an iteration that are not there while others of it, and of their kind, are."""
    present: dict[str, set[str]] = {}
    for name in (name for of in names.values() for name in of):
        if match := _ITERATION.fullmatch(name.rpartition("/")[2]):
            present.setdefault(match["kind"], set()).add(match["which"])
    every = set().union(*present.values())
    yield from ((kind, which) for kind in sorted(present) for which in sorted(every - present[kind]))


def lacking(
    of_kind: Mapping[str, Sequence[str]], parts: Capture, kind: str, sums: OperatorRows, file: str
) -> list[Problem]:
    """Return how many executions the sums of a tool count that the file of executions lacks, as one that is cut does.

    `file` is the one with the sums, of the kind `kind`.
    """
    source = next((name for of in _CHECKED.get(kind, ()) for name in of_kind.get(of, ())), None)
    if source is None:
        return []
    by_name = kind != "op_statistic"
    operators, rows = parts.operators, parts.executions
    every = range(len(operators))
    recorded = _summed(operators, every, np.bincount(rows["operator"], minlength=len(operators)), by_name)
    counted = _summed(sums.operators, sums.rows["operator"].tolist(), sums.rows["count"], by_name)
    if missed := sum((counted - recorded).values()):
        return [Problem(source, f"executions that are missing here, as {file} counts them", missed)]
    if not by_name:
        return []
    durations = np.rint(np.bincount(rows["operator"], np.maximum(rows["duration_ns"], 0), len(operators)))
    times = _summed(operators, every, durations.astype(np.int64))
    totals = _summed(sums.operators, sums.rows["operator"].tolist(), sums.rows["total_ns"])
    apart = {name: abs(times[name] - total) for name, total in totals.items() if name in times}
    differing = sum(ns > max(1e-4 * totals[name], _ROUNDED_NS) for name, ns in apart.items())  # to four digits
    return [Problem(source, f"operators whose time is not the sum in {file}", differing)] if differing else []


def _summed(
    operators: Sequence[Operator], rows: Iterable[int], amounts: Integers, by_name: bool = True
) -> Counter[str]:
    """Sum up the amounts of `rows` by the full name of their operator, or by its type."""
    sums: Counter[str] = Counter()
    for row, amount in zip(rows, amounts.tolist(), strict=True):
        sums[operators[row].full_name if by_name else operators[row].type] += amount
    return sums
