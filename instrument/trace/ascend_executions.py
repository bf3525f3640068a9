"""Tasks of an Ascend device as executions of the network's operators: in ns, and without those that are no operator's.

`OperatorMap` knows which operator a (stream, task) of the device belongs to, out of the Framework files together. Two
files hold executions: hwts those on the device's streams, and AICPU those on its AI CPUs. What both have is taken from
the latter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from instrument.trace.clocks import Clock
from instrument.trace.events import (
    AI_CORE,
    AI_CPU,
    AI_CPU_TASK,
    EXECUTION,
    MISSING,
    Integers,
    Mask,
    NamedRows,
    Operator,
    Rows,
)
from instrument.trace.framework_desc import SIDES, OperatorDesc, Tasks, short_name, type_of
from instrument.trace.hwts import Hwts, unwrapped_tasks
from instrument.trace.records import TOO_LARGE
from instrument.trace.text import Losses

#: In the text form, task ids from here on name their operator alone.
_GLOBAL_TASKS_FROM = 25_000
_ANY_STREAM = 0xFFFFFFFF


class OperatorMap:
    """`operators`, and their rows by stream and task."""

    def __init__(
        self,
        tasks: Tasks | None = None,
        graph: Sequence[OperatorDesc] = (),
        tensors: Mapping[tuple[int, int], OperatorDesc] | None = None,
    ) -> None:
        self.operators: list[Operator] = []
        self._row_of: dict[str, int] = {}
        self._is_text = tasks is None or tasks.is_text
        self._keys, self._rows = np.empty(0, np.uint64), np.empty(0, np.int32)
        if tasks is None or not len(tasks.rows):
            return
        described = {operator.name: operator for operator in graph}
        rows = []
        columns = (tasks.rows[field].tolist() for field in ("name", "type", "kind", "stream", "task"))
        for name, kind, unit, stream, task in zip(*columns, strict=True):
            full_name = tasks.names[name]
            if full_name not in self._row_of:
                desc = described.get(full_name) or (tensors or {}).get((stream, task))
                self.row(_operator(full_name, "" if kind == MISSING else tasks.names[kind], unit, desc))
            rows.append(self._row_of[full_name])
        keys = self._keys_of(tasks.rows["stream"], tasks.rows["task"])
        self._keys, last = np.unique(keys[::-1], return_index=True)
        self._rows = np.array(rows, np.int32)[::-1][last]

    def __len__(self) -> int:
        """Return how many tasks are named."""
        return len(self._keys)

    def row(self, operator: Operator) -> int:
        """Return the row of an operator, which is added if none of its name is there."""
        if operator.full_name not in self._row_of:
            self._row_of[operator.full_name] = len(self.operators)
            self.operators.append(operator)
        return self._row_of[operator.full_name]

    def row_on(self, full_name: str, side: str) -> int:
        """Return the row of the operator of that name, of which another file says where it runs."""
        row = self.row(Operator(full_name, short_name(full_name), type_of(full_name), side))
        self.operators[row] = self.operators[row]._replace(side=side)
        return row

    def find(self, streams: NDArray[np.integer], tasks: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return the row of the operator behind each task; `MISSING` where none is."""
        keys = self._keys_of(streams, tasks)
        if not len(self._keys):
            return np.full(len(keys), MISSING, np.int32)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._rows[places], MISSING).astype(np.int32)

    def behind(self, stream: int, task: int) -> int:
        """Return the row of the operator that comes next on the stream of a mark; `MISSING` behind the last one."""
        key = self._keys_of(np.array([stream]), np.array([task]))
        place = int(np.searchsorted(self._keys, key[0], side="right"))
        if place == len(self._keys) or self._keys[place] >> np.uint64(32) != key[0] >> np.uint64(32):
            return MISSING
        return int(self._rows[place])

    def _keys_of(self, streams: NDArray[np.integer], tasks: NDArray[np.integer]) -> NDArray[np.uint64]:
        if self._is_text:
            streams = np.where(tasks >= _GLOBAL_TASKS_FROM, _ANY_STREAM, streams)
        return streams.astype(np.uint64) << np.uint64(32) | (tasks.astype(np.uint64) & np.uint64(_ANY_STREAM))


def _operator(full_name: str, kind: str, unit: int, desc: OperatorDesc | None) -> Operator:
    """Return an operator with the type and the shapes of its description, if there is one."""
    shapes = ";".join(",".join(map(str, tensor.shape)) for tensor in desc.inputs) if desc else ""
    kind = (desc.type if desc else "") or kind or type_of(full_name)
    return Operator(full_name, short_name(full_name), kind, SIDES.get(unit, f"task type {unit}"), shapes)


#: The types of operators that stand for tasks without a name.
UNNAMED_TYPES = frozenset({"task", "AI CPU task"})


#: At most this many tasks without a name are distinguished; more are one operator.
_MOST_UNNAMED = 65_536
_UNNAMED = {
    AI_CORE: Operator("tasks", "tasks", "task", AI_CORE),
    AI_CPU: Operator("AI CPU task", "AI CPU task", "AI CPU task", AI_CPU),
}


def of_hwts(hwts: Hwts, wraps: bool, operators: OperatorMap, clock: Clock, ai_cpu: NamedRows, losses: Losses) -> Rows:
    """Return executions on the device's streams; those that the AI CPU's own file has are left to it.

    `wraps` says that task ids wrap at 16 bits.
    """
    _count(hwts, losses)
    is_time = clock.holds(hwts.pairs["start_cycles"]) & clock.holds(hwts.pairs["end_cycles"])
    pairs = hwts.pairs if np.all(is_time) else hwts.pairs[is_time]
    losses.add(TOO_LARGE, len(hwts.pairs) - len(pairs))
    tasks, rows = _task_rows(pairs, wraps, operators)
    is_named = rows != MISSING
    losses.add("executions of tasks that are no operator's", len(rows) - int(np.count_nonzero(is_named)))
    is_told = _are_ai_cpu(pairs, tasks, ai_cpu, clock)
    losses.add("executions that the AI CPU's own file has as well", int(np.count_nonzero(is_named & is_told)))
    chosen = is_named & ~is_told
    executions = np.empty(int(np.count_nonzero(chosen)), EXECUTION)
    executions["start_ns"] = clock.ns(pairs["start_cycles"][chosen])
    executions["duration_ns"] = clock.ns(pairs["end_cycles"][chosen]) - executions["start_ns"]
    executions["operator"], executions["task"] = rows[chosen], tasks[chosen]
    executions["stream"] = pairs["stream"][chosen]
    return executions


def _count(hwts: Hwts, losses: Losses) -> None:
    ends = int(np.count_nonzero(hwts.unpaired["is_end"]))
    losses.add("starts of tasks without an end", len(hwts.unpaired) - ends)
    losses.add("ends of tasks without a start", ends)
    losses.add("jumps of the running number, where records were lost", hwts.breaks)
    losses.add("records without the usual word at byte 2", hwts.without_magic)
    losses.add("records with the warning bit", hwts.warnings)


def _task_rows(pairs: Rows, wraps: bool, operators: OperatorMap) -> tuple[Integers, NDArray[np.int32]]:
    """The task id and the operator's row of each pair.

    The ids of a graph come again with each step, and those of one that reaches 65535 only seem to wrap: where the
    unwrapped id names nothing, the id as it stands is taken.
    """
    tasks = pairs["task"].astype(np.int64)
    unwrapped = unwrapped_tasks(pairs["stream"], pairs["task"]) if wraps else tasks
    if not len(operators):
        return unwrapped, _unnamed_rows(operators, pairs["stream"], unwrapped, AI_CORE)
    rows = operators.find(pairs["stream"], unwrapped)
    is_raw = (rows == MISSING) & (unwrapped != tasks)
    if np.any(is_raw):
        rows = np.where(is_raw, operators.find(pairs["stream"], tasks), rows)
        unwrapped = np.where(is_raw, tasks, unwrapped)
    return unwrapped, rows


def _unnamed_rows(
    operators: OperatorMap, streams: NDArray[np.integer], tasks: Integers, side: str
) -> NDArray[np.int32]:
    """Return rows in which each task is its own operator, as no file names any; one for all if there are too many."""
    keys, inverse = np.unique(streams.astype(np.int64) << 32 | tasks, return_inverse=True)
    if len(keys) > _MOST_UNNAMED:
        return np.full(len(tasks), operators.row(_UNNAMED[side]), np.int32)
    rows = []
    for stream, task in zip((keys >> 32 & 0xFFFFFFFF).tolist(), (keys & 0xFFFFFFFF).tolist(), strict=True):
        row = operators.row(Operator(f"stream {stream} task {task}", f"task {task}", "task", side))
        operators.operators[row] = operators.operators[row]._replace(side=side)
        rows.append(row)
    return np.asarray(np.array(rows, np.int32)[inverse.reshape(-1)])


def _are_ai_cpu(pairs: Rows, tasks: Integers, ai_cpu: NamedRows, clock: Clock) -> Mask:
    """Return which pairs the AI CPU's own file has: of the same stream and task, and at the same time.

    That file may cover less than hwts. Its text form does not tell streams.
    """
    is_told = np.zeros(len(pairs), np.bool_)
    listed = ai_cpu.rows[ai_cpu.rows["stream"] != MISSING]
    if not len(listed):
        return is_told
    begin, end = _run_of(listed, clock)
    listed_keys, keys = listed["stream"] << 32 | listed["task"], pairs["stream"].astype(np.int64) << 32 | tasks
    candidates = np.flatnonzero(np.isin(keys, listed_keys))
    candidates = candidates[np.argsort(keys[candidates], kind="stable")]
    unique, firsts = np.unique(keys[candidates], return_index=True)
    for key, places in zip(unique.tolist(), np.split(candidates, firsts[1:]), strict=False):
        mine = np.flatnonzero((listed_keys == key) & (begin != MISSING))
        mine = mine[np.argsort(begin[mine], kind="stable")]
        latest = np.searchsorted(begin[mine], clock.ns(pairs["end_cycles"][places]), "right") - 1
        if len(mine):
            lasts_until = end[mine[np.maximum(latest, 0)]]
            is_told[places] = (latest >= 0) & (lasts_until >= clock.ns(pairs["start_cycles"][places]))
    return is_told


def _run_of(tasks: Rows, clock: Clock) -> tuple[Integers, Integers]:
    """Return when the run of each task of the AI CPU started and ended, or where not told, the task around it.

    Both are `MISSING` where a counter is no time.
    """
    times = []
    for side, task_side in (("start", "before"), ("end", "after")):
        cycles, us, around = (tasks[name] for name in (f"run_{side}_cycles", f"run_{side}_us", f"{task_side}_cycles"))
        use_us = (cycles == MISSING) & (us != MISSING) & (us < clock.limit_us)
        cycles = np.where((cycles == MISSING) & ~use_us, around, cycles)
        cycles = np.where(clock.holds(cycles), cycles, MISSING)
        times.append(np.where(use_us, clock.ns_of_us(np.where(use_us, us, 0)), clock.ns(cycles)))
    is_known = (times[0] != MISSING) & (times[1] != MISSING)
    return np.where(is_known, times[0], MISSING), np.where(is_known, times[1], MISSING)


def of_aicpu(named_tasks: NamedRows, operators: OperatorMap, clock: Clock, losses: Losses) -> tuple[Rows, Rows]:
    """Return executions on the AI CPUs: the operator's own run, or where that is not told the task around it.

    Beside them, row by row, what else their file says (dtype AI_CPU_TASK).
    """
    tasks = named_tasks.rows
    start, end = _run_of(tasks, clock)
    good = start != MISSING
    losses.add(TOO_LARGE, len(tasks) - int(np.count_nonzero(good)))
    executions = np.empty(len(tasks), EXECUTION)
    executions["start_ns"], executions["duration_ns"] = start, end - start
    executions["operator"] = _aicpu_rows(operators, named_tasks)
    executions["task"] = tasks["task"]
    executions["stream"] = np.where(tasks["stream"] == MISSING, tasks["thread"], tasks["stream"])
    ai_cpu_tasks = np.empty(len(tasks), AI_CPU_TASK)
    ai_cpu_tasks["start_ns"], ai_cpu_tasks["operator"], ai_cpu_tasks["step"] = start, executions["operator"], MISSING
    for name, column in (("total_ns", "total_us"), ("dispatch_ns", "dispatch_us")):
        ai_cpu_tasks[name] = np.where(tasks[column] == MISSING, MISSING, tasks[column] * 1000)
    return np.asarray(executions[good]), np.asarray(ai_cpu_tasks[good])


def _aicpu_rows(operators: OperatorMap, named_tasks: NamedRows) -> NDArray[np.int32]:
    if not len(named_tasks.rows):
        return np.empty(0, np.int32)
    streams, tasks = named_tasks.rows["stream"], named_tasks.rows["task"]
    named = np.array([operators.row_on(name, AI_CPU) for name in named_tasks.names] + [MISSING], np.int32)
    rows = named[named_tasks.rows["operator"]]  # -1 is the last one
    rows = np.where((rows == MISSING) & (streams != MISSING), operators.find(streams, tasks), rows)
    is_unnamed = (rows == MISSING) & (streams != MISSING)
    if np.any(is_unnamed):
        rows[is_unnamed] = _unnamed_rows(operators, streams[is_unnamed], tasks[is_unnamed], AI_CPU)
    if np.any(rows == MISSING):
        rows = np.where(rows == MISSING, operators.row(_UNNAMED[AI_CPU]), rows)
    return rows.astype(np.int32)
