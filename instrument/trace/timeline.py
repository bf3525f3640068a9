"""Timelines in Chrome's format: `trace_view`, `msprof_*`, `step_trace_*`, `task_time_*` and `hccl_*.json`.

What an event is depends on the process that it belongs to, and the names of processes may stand behind their events:
all complete events are gathered as columns first, and sorted out at the end. Times are microseconds, as numbers or as
text; their digits go into nanoseconds without a float64 between.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from instrument.trace.ascend_outputs import is_of_runtime, side_of
from instrument.trace.cpu import US, operator_of
from instrument.trace.events import (
    COMMUNICATION,
    CPU,
    EXECUTION,
    MISSING,
    OVERLAP_EVENT,
    REDUCE,
    SPAN,
    SPAN_FRAMEWORK,
    SPAN_STEP,
    STEP,
    Integers,
    Mask,
    Operator,
    Rows,
    by_start,
)
from instrument.trace.gpu import StepTrace
from instrument.trace.jsontext import Json, elements
from instrument.trace.text import LIMIT, Buffer, Index, Losses, numbers, scaled

#: Events that are converted at a time.
_BLOCK = 1 << 15
_EVENT = np.dtype(
    [("start_ns", "i8"), ("duration_ns", "i8"), ("name", "i4"), ("lane", "i4"), ("task_type", "i4"), ("task", "i8")]
)
_STEP_CATEGORIES = ("Iteration Time", "Reduce")
_DERIVED_CATEGORIES = ("FP_BP Time", "Iteration Refresh")
_STEP_NAME = re.compile(r"ProfilerStep#(\d{1,18})")
_MODEL = re.compile(r"Model ID:\s*(\d{1,18})")
#: Names of events of the overlap analysis -> their place in `OVERLAP_KINDS`.
_OVERLAP_NAMES = {"computing": 0, "communication": 1, "communication(not overlapped)": 2, "free": 3}
_OTHER, _HARDWARE, _COLLECTIVE, _PLANE, _CPU, _OVERLAP, _SCOPE = range(7)
_PROCESSES = {
    "ascend hardware": _HARDWARE,
    "hccl": _COLLECTIVE,
    "communication": _COLLECTIVE,
    "cpu op": _CPU,
    "overlap analysis": _OVERLAP,
    "scope layer": _SCOPE,
}


#: Process and thread.
_Lane = tuple[int | str, int | str]


class Timeline(NamedTuple):
    """What a timeline holds, in the terms of `Capture`; `phases` counts its events by `ph`."""

    operators: list[Operator]
    executions: Rows
    activities: Rows
    names: list[str]
    spans: Rows
    steps: Rows
    reduces: Rows
    overlap: Rows
    phases: dict[str, int]


def timeline(data: Buffer, losses: Losses) -> Timeline:
    """Return the events of a timeline, a list or `{"traceEvents": [...]}`.

    Executions are the operators of devices, of the CPU and of communication; activities the tasks below them; spans all
    else that the host did. Scopes are left out, as they are made of the names of operators. A step begins where the one
    before it ended, if the file has that one.
    """
    reader = _Reader(losses)
    for event in elements(data, losses, "traceEvents"):
        reader.take(event)
    return reader.result()


class _Reader:
    """Gathers events, then says what they are."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._phases: Counter[str] = Counter()
        self._names, self._task_types = Index[str](), Index([""])
        self._lanes = Index[_Lane]()
        self._processes: dict[int | str, str] = {}
        self._threads: dict[_Lane, str] = {}
        self._steps: dict[tuple[int, int], tuple[int, ...]] = {}
        self._reduces: list[tuple[int, int, int, int, int]] = []
        self._pending: list[tuple[str, str, int, int, int, int]] = []
        self._done: list[Rows] = [np.empty(0, _EVENT)]

    def take(self, event: Json) -> None:
        phase = event.get("ph") if isinstance(event, dict) else None
        if not isinstance(event, dict) or not isinstance(phase, str):
            self._losses.add("elements that are no events")
            return
        self._phases[phase] += 1
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        if phase == "M":
            key, name = _lane(event), str(arguments.get("name", ""))
            if event.get("name") == "process_name":
                self._processes[key[0]] = name
            elif event.get("name") == "thread_name":
                self._threads[key] = name
        elif phase == "X":
            self._take_complete(event, arguments)
        elif phase in ("B", "E"):
            self._losses.add("events that only begin or end")

    def _take_complete(self, event: dict[str, Json], arguments: dict[str, Json]) -> None:
        if event.get("cat") in _STEP_CATEGORIES:
            self._take_step(event, arguments)
        elif event.get("cat") not in _DERIVED_CATEGORIES:
            task = arguments.get("Task Id", arguments.get("task id"))
            row = (
                str(event.get("ts", "")),
                str(event.get("dur", "")),
                self._names(str(event.get("name", ""))),
                self._lanes(_lane(event)),
                self._task_types(str(arguments.get("Task Type", ""))),
                task if isinstance(task, int) and 0 <= task < LIMIT else MISSING,
            )
            self._pending.append(row)
            if len(self._pending) == _BLOCK:
                self._convert()

    def _take_step(self, event: dict[str, Json], arguments: dict[str, Json]) -> None:
        """Take a step, of the model in the thread's name, or a reduce. Steps that several files hold count once."""
        start, duration, fp, bp = (
            scaled(str(value).strip(), US)
            for value in (event.get("ts"), event.get("dur"), arguments.get("FP Start"), arguments.get("BP End"))
        )
        number = arguments.get("Iteration ID")
        if start is None or duration is None or not isinstance(number, int) or not 0 <= number < LIMIT:
            self._losses.add("steps and reduces without number, start or duration")
        elif event["cat"] == "Reduce":
            name = self._names(re.sub(r"^Reduce_\d+_", "Reduce ", str(event.get("name", ""))))
            self._reduces.append((number, MISSING, name, start, duration))
        else:
            model = _MODEL.search(self._threads.get(_lane(event), ""))
            key = (int(model[1]) if model else MISSING, number)
            points = (MISSING if fp is None else fp, MISSING if bp is None else bp)
            self._steps.setdefault(key, (number, start, *points, start + duration, key[0]))

    def _convert(self) -> None:
        starts, durations, *rest = zip(*self._pending, strict=True) if self._pending else [()] * 6
        rows = np.empty(len(self._pending), _EVENT)
        rows["start_ns"], has_start = numbers(starts, self._losses, "ts", US)
        rows["duration_ns"], has_duration = numbers(durations, self._losses, "dur", US)
        for name, column in zip(("name", "lane", "task_type", "task"), rest, strict=True):
            rows[name] = column
        self._done.append(rows[has_start & has_duration])
        self._pending = []

    def result(self) -> Timeline:
        self._convert()
        events = by_start(np.concatenate(self._done))
        kinds = np.array([self._kind(*lane) for lane in self._lanes.names], np.int64)
        kind = kinds[events["lane"]] if len(kinds) else np.empty(0, np.int64)
        is_task = np.isin(kind, (_HARDWARE, _COLLECTIVE, _PLANE, _CPU))
        operators, executions, is_activity = self._executions(events[is_task], kind[is_task])
        return Timeline(
            operators,
            executions[~is_activity],
            executions[is_activity],
            self._names.names,
            self._spans(events[kind == _OTHER]),
            _with_intervals(np.array(list(self._steps.values()), STEP)),
            np.unique(np.array(self._reduces, REDUCE)),
            self._overlap(events[kind == _OVERLAP]),
            dict(self._phases),
        )

    def _kind(self, pid: int | str, tid: int | str) -> int:
        """Return what the events of a thread are."""
        kind = _PROCESSES.get(self._processes.get(pid, "").strip().lower(), _OTHER)
        is_plane = self._threads.get((pid, tid), "").startswith("Plane")
        return _PLANE if kind == _COLLECTIVE and is_plane else kind

    def _executions(self, tasks: Rows, kind: Integers) -> tuple[list[Operator], Rows, Mask]:
        """Return operators, their executions, and which of those are activities below operators."""
        keys = np.stack([tasks["name"].astype(np.int64), tasks["task_type"].astype(np.int64), kind], axis=1)
        distinct, rows = np.unique(keys, axis=0, return_inverse=True)
        names, types = self._names.names, self._task_types.names
        operators = [operator_of(names[name], _side(types[task], of)) for name, task, of in distinct.tolist()]
        is_below = [of == _PLANE or is_of_runtime(types[task]) for _, task, of in distinct.tolist()]
        result = np.empty(len(tasks), EXECUTION)
        for name in ("start_ns", "duration_ns", "task"):
            result[name] = tasks[name]
        result["operator"] = rows.reshape(-1)
        result["stream"] = self._threads_of(tasks)
        result["step"] = MISSING
        return operators, result, np.array(is_below, np.bool_)[rows.reshape(-1)]

    def _threads_of(self, events: Rows) -> Integers:
        threads = [tid if isinstance(tid, int) and abs(tid) < LIMIT else MISSING for _, tid in self._lanes.names]
        result: Integers = np.array([*threads, MISSING], np.int64)[events["lane"]]
        return result

    def _spans(self, events: Rows) -> Rows:
        result = np.empty(len(events), SPAN)
        for name in ("start_ns", "duration_ns", "name"):
            result[name] = events[name]
        result["thread"] = self._threads_of(events)
        matches = [_STEP_NAME.fullmatch(name) for name in self._names.names]
        steps = np.array([*(int(match[1]) if match else MISSING for match in matches), MISSING], np.int64)
        result["number"] = steps[events["name"]]
        result["kind"] = np.where(result["number"] >= 0, SPAN_STEP, SPAN_FRAMEWORK)
        return result

    def _overlap(self, events: Rows) -> Rows:
        kinds = [_OVERLAP_NAMES.get(name.lower(), len(_OVERLAP_NAMES)) for name in self._names.names]
        result = np.empty(len(events), OVERLAP_EVENT)
        result["start_ns"], result["duration_ns"] = events["start_ns"], events["duration_ns"]
        result["kind"] = np.array([*kinds, 0], np.int64)[events["name"]]
        return result[result["kind"] < len(_OVERLAP_NAMES)]


def _lane(event: dict[str, Json]) -> _Lane:
    """Return the process and the thread of an event, either of which may be anything."""
    pid, tid = event.get("pid"), event.get("tid")
    return pid if isinstance(pid, int) else str(pid), tid if isinstance(tid, int) else str(tid)


def _side(task_type: str, kind: int) -> str:
    if kind in (_COLLECTIVE, _PLANE):
        return COMMUNICATION
    return CPU if kind == _CPU else side_of(task_type)


def _with_intervals(steps: Rows) -> Rows:
    """Return `steps` by model and number, each once, and from the end of the one before it."""
    steps = steps[np.lexsort((steps["start_ns"], steps["step"], steps["model"]))]
    is_new = np.ones(len(steps), np.bool_)
    is_new[1:] = (steps["model"][1:] != steps["model"][:-1]) | (steps["step"][1:] != steps["step"][:-1])
    steps = steps[is_new]
    follows = (steps["model"][1:] == steps["model"][:-1]) & (steps["step"][1:] == steps["step"][:-1] + 1)
    follows &= steps["end_ns"][:-1] <= steps["start_ns"][1:]
    steps["start_ns"][1:] = np.where(follows, steps["end_ns"][:-1], steps["start_ns"][1:])
    return steps


def merged_steps(timelines: Sequence[Timeline]) -> StepTrace:
    """Return the steps and reduces of several files: each may hold one iteration, or all of them."""
    names = Index[str]()
    reduces = [np.empty(0, REDUCE)]
    for part in timelines:
        rows = part.reduces.copy()
        used = {place: names(part.names[place]) for place in np.unique(rows["name"]).tolist()}
        rows["name"] = [used[place] for place in rows["name"].tolist()]
        reduces.append(rows)
    steps = _with_intervals(np.concatenate([np.empty(0, STEP), *(part.steps for part in timelines)]))
    return StepTrace(names.names, steps, np.unique(np.concatenate(reduces)))
