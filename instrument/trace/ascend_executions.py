"""Tasks of an Ascend device as executions: with the operator's row, in ns, and without those that are no operator's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from instrument.trace.aicpu import AiCpu
from instrument.trace.clocks import Clock
from instrument.trace.events import AI_CPU, AI_CPU_TASK, EXECUTION, MISSING, Integers, Mask, Operator, Rows
from instrument.trace.hwts import Hwts, unwrapped_tasks
from instrument.trace.operator_map import OperatorMap, unnamed
from instrument.trace.records import TOO_LARGE
from instrument.trace.text import Losses

_UNNAMED_AI_CPU = Operator("AI CPU task", "AI CPU task", "AI CPU task", AI_CPU)
#: So many tasks without a name are told apart, at most.
_MOST_UNNAMED = 65_536


def of_hwts(found: Hwts, wraps: bool, operators: OperatorMap, clock: Clock, ai_cpu: AiCpu, losses: Losses) -> Rows:
    """Executions on the device's streams; those that the AI CPU's own file has are left to it.

    `wraps` says that task ids wrap at 16 bits.
    """
    _count(found, losses)
    is_time = clock.holds(found.pairs["start_cycles"]) & clock.holds(found.pairs["end_cycles"])
    pairs = found.pairs if np.all(is_time) else found.pairs[is_time]
    losses.add(TOO_LARGE, len(found.pairs) - len(pairs))
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


def _count(found: Hwts, losses: Losses) -> None:
    ends = int(np.count_nonzero(found.unpaired["is_end"]))
    losses.add("starts of tasks without an end", len(found.unpaired) - ends)
    losses.add("ends of tasks without a start", ends)
    losses.add("jumps of the running number, where records were lost", found.breaks)
    losses.add("records without the usual word at byte 2", found.without_magic)
    losses.add("records with the warning bit", found.warnings)


def _task_rows(pairs: Rows, wraps: bool, operators: OperatorMap) -> tuple[Integers, NDArray[np.int32]]:
    """The task id and the operator's row of each pair.

    The ids of a graph come again with each step, and those of one that reaches 65535 only seem to wrap: where the
    unwrapped id names nothing, the id as it stands is taken.
    """
    tasks = pairs["task"].astype(np.int64)
    unwrapped = unwrapped_tasks(pairs["stream"], pairs["task"]) if wraps else tasks
    if not len(operators):
        return unwrapped, _unnamed_rows(operators, pairs["stream"], unwrapped)
    rows = operators.find(pairs["stream"], unwrapped)
    is_raw = (rows == MISSING) & (unwrapped != tasks)
    if np.any(is_raw):
        rows = np.where(is_raw, operators.find(pairs["stream"], tasks), rows)
        unwrapped = np.where(is_raw, tasks, unwrapped)
    return unwrapped, rows


def _unnamed_rows(operators: OperatorMap, streams: NDArray[np.uint32], tasks: Integers) -> NDArray[np.int32]:
    """Return rows in which each task is its own operator, as no file names any."""
    keys, inverse = np.unique(streams.astype(np.int64) << 32 | tasks, return_inverse=True)
    if len(keys) > _MOST_UNNAMED:
        return np.full(len(tasks), operators.row(unnamed()), np.int32)
    rows = [operators.row(unnamed(key >> 32 & 0xFFFFFFFF, key & 0xFFFFFFFF)) for key in keys.tolist()]
    return np.asarray(np.array(rows, np.int32)[inverse.reshape(-1)])


def _are_ai_cpu(pairs: Rows, tasks: Integers, ai_cpu: AiCpu, clock: Clock) -> Mask:
    """Return which pairs the AI CPU's own file has: of the same stream and task, and at the same time.

    That file may cover less than hwts. Its text form does not tell streams.
    """
    is_told = np.zeros(len(pairs), np.bool_)
    told = ai_cpu.tasks[ai_cpu.tasks["stream"] != MISSING]
    if not len(told):
        return is_told
    begin, end = _run_of(told, clock)
    told_keys, keys = told["stream"] << 32 | told["task"], pairs["stream"].astype(np.int64) << 32 | tasks
    candidates = np.flatnonzero(np.isin(keys, told_keys))
    candidates = candidates[np.argsort(keys[candidates], kind="stable")]
    unique, firsts = np.unique(keys[candidates], return_index=True)
    for key, places in zip(unique.tolist(), np.split(candidates, firsts[1:]), strict=False):
        mine = np.flatnonzero((told_keys == key) & (begin != MISSING))
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


def of_aicpu(found: AiCpu, operators: OperatorMap, clock: Clock, losses: Losses) -> tuple[Rows, Rows]:
    """Executions on the AI CPUs: the operator's own run, or where that is not told the task around it.

    Beside them, row by row, what else their file says (dtype AI_CPU_TASK).
    """
    tasks = found.tasks
    start, end = _run_of(tasks, clock)
    good = start != MISSING
    losses.add(TOO_LARGE, len(tasks) - int(np.count_nonzero(good)))
    executions = np.empty(len(tasks), EXECUTION)
    executions["start_ns"], executions["duration_ns"] = start, end - start
    executions["operator"] = _aicpu_rows(operators, found)
    executions["task"] = tasks["task"]
    executions["stream"] = np.where(tasks["stream"] == MISSING, tasks["thread"], tasks["stream"])
    told = np.empty(len(tasks), AI_CPU_TASK)
    told["start_ns"], told["operator"], told["step"] = start, executions["operator"], MISSING
    for name, column in (("total_ns", "total_us"), ("dispatch_ns", "dispatch_us")):
        told[name] = np.where(tasks[column] == MISSING, MISSING, tasks[column] * 1000)
    return np.asarray(executions[good]), np.asarray(told[good])


def _aicpu_rows(operators: OperatorMap, found: AiCpu) -> NDArray[np.int32]:
    if not len(found.tasks):
        return np.empty(0, np.int32)
    named = np.array([operators.row_on(name, AI_CPU) for name in found.names] + [MISSING], np.int32)
    rows = named[found.tasks["operator"]]  # -1 is the last one
    is_unnamed = (rows == MISSING) & (found.tasks["stream"] != MISSING)
    rows = np.where(is_unnamed, operators.find(found.tasks["stream"], found.tasks["task"]), rows)
    is_unnamed = (rows == MISSING) & (found.tasks["stream"] != MISSING)
    if np.any(is_unnamed):
        rows[is_unnamed] = _unnamed_ai_cpu_rows(operators, found.tasks[is_unnamed])
    if np.any(rows == MISSING):
        rows = np.where(rows == MISSING, operators.row(_UNNAMED_AI_CPU), rows)
    return rows.astype(np.int32)


def _unnamed_ai_cpu_rows(operators: OperatorMap, tasks: Rows) -> NDArray[np.int32]:
    """Return an operator for each task that no file names; `MISSING` where there are too many of them."""
    keys, inverse = np.unique(tasks["stream"] << 32 | tasks["task"], return_inverse=True)
    if len(keys) > _MOST_UNNAMED:
        return np.full(len(tasks), MISSING, np.int32)
    rows = [operators.row(unnamed(key >> 32 & 0xFFFFFFFF, key & 0xFFFFFFFF)) for key in keys.tolist()]
    for row in rows:
        operators.operators[row] = operators.operators[row]._replace(side=AI_CPU)
    return np.asarray(np.array(rows, np.int32)[inverse.reshape(-1)])
