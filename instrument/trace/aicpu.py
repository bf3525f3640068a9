"""AICPU: what ran on the device's AI CPUs, as text (2020 to 2021) or as records of 128 bytes (from 2021).

In the text a "Node" message names an operator and its run, and the "Thread" message right behind it adds the ticks of
the task around it. Some files hold Thread messages only: their tasks have times but no name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from instrument.trace.events import MISSING, Rows
from instrument.trace.records import UNKNOWN_MESSAGES, integer, is_binary, messages, with_magic
from instrument.trace.text import Buffer, Index, Losses

#: One task. `operator` is its row in `AiCpu.names`, or `MISSING`. Times in us and in cycles of the device's counter;
#: a run is the operator's own, "before" and "after" are the task's around it. What the form lacks is `MISSING`.
TASK = np.dtype(
    [
        ("operator", "i4"), ("stream", "i8"), ("task", "i8"), ("thread", "i8"), ("device", "i8"), ("aicpu", "i8"),
        ("run_start_us", "i8"), ("run_end_us", "i8"), ("run_start_cycles", "i8"), ("run_end_cycles", "i8"),
        ("compute_start_us", "i8"), ("memcpy_start_us", "i8"), ("memcpy_end_us", "i8"),
        ("submit_cycles", "i8"), ("schedule_cycles", "i8"), ("before_cycles", "i8"), ("after_cycles", "i8"),
        ("dispatch_us", "i8"), ("total_us", "i8"),
    ]
)  # fmt: skip

RECORD = np.dtype(
    [
        ("magic", "<u2"), ("kind", "<u2"), ("stream", "<u2"), ("task", "<u2"),
        ("run_start_us", "<i8"), ("run_start_cycles", "<i8"), ("compute_start_us", "<i8"), ("memcpy_start_us", "<i8"),
        ("memcpy_end_us", "<i8"), ("run_end_us", "<i8"), ("run_end_cycles", "<i8"), ("thread", "<u4"),
        ("device", "<u4"), ("submit_cycles", "<i8"), ("schedule_cycles", "<i8"), ("before_cycles", "<i8"),
        ("after_cycles", "<i8"), ("kernel_type", "<u4"), ("dispatch_us", "<u4"), ("total_us", "<u4"),
        ("ffts_thread", "<u2"), ("version", "u1"), ("reserved", "V9"),
    ]
)  # fmt: skip
_NOT_IN_RECORD = ("operator", "aicpu")

#: A time in us, and in some builds the counter behind it.
_TIME = r":\s*(\d+)(?: +(\d+))?"
_NODE = re.compile(
    rf"(?:\[\d+\])?\s*Node:(.*),\s*Run s?tart{_TIME}"
    rf"(?:,\s*compute start{_TIME},\s*memcpy start{_TIME},\s*memcpy end{_TIME})?,\s*Run end{_TIME}"
)
_NODE_FIELDS = (
    "run_start_us", "run_start_cycles", "compute_start_us", "", "memcpy_start_us", "", "memcpy_end_us", "",
    "run_end_us", "run_end_cycles",
)  # fmt: skip
_THREAD = re.compile(
    r"Thread\[\s*(\d+)\]\s*process device\[\s*(\d+)\]:\s*aicpu\[\s*(\d+)\]\s*task end,\s*tickDrvTopHalf=(\d+),"
    r"\s*tickDrvBottomHalf=(\d+),\s*tickBeforeRun=(\d+),\s*tickAfterRun=(\d+),\s*dispatchTime=(\d+) us,"
    r"\s*totalTime=(\d+) us[.,]?"
)
_THREAD_FIELDS = (
    "thread", "device", "aicpu", "submit_cycles", "schedule_cycles", "before_cycles", "after_cycles", "dispatch_us",
    "total_us",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class AiCpu:
    """`tasks` (dtype TASK) in file order, and the full names that their `operator` indexes."""

    tasks: Rows
    names: Sequence[str]


def decode(data: Buffer, losses: Losses) -> AiCpu:
    """A whole file, of either form."""
    return AiCpu(binary(data, losses), ()) if is_binary(data) else text(data, losses)


def text(data: Buffer, losses: Losses) -> AiCpu:
    """A file of messages: a Thread message is a task, and a Node message directly before it names it."""
    names, rows = Index(), []
    node: dict[str, int] = {}
    for message in messages(data, losses):
        found = _node(message, names)
        task = None if found else _thread(message)
        losses.add("Node messages without a Thread message behind them", int(bool(node) and task is None))
        if task:
            rows.append({**node, **task})
        losses.add(UNKNOWN_MESSAGES, int(not found and not task))
        node = found or {}
    losses.add("Node messages without a Thread message behind them", int(bool(node)))
    tasks = np.full(len(rows), MISSING, np.int64).astype(TASK)
    for name in TASK.names or ():
        tasks[name] = [row.get(name, MISSING) for row in rows]
    return AiCpu(tasks, names.names)


def binary(data: Buffer, losses: Losses) -> Rows:
    """A file of records as tasks (dtype TASK), which are named by their stream and task elsewhere."""
    found = with_magic(data, RECORD, losses)
    is_run = (found["run_start_cycles"] > 0) & (found["run_end_cycles"] > 0)
    losses.add("records of tasks that did not run", len(found) - int(np.count_nonzero(is_run)))
    found = found[is_run]
    tasks = np.full(len(found), MISSING, np.int64).astype(TASK)
    for name in TASK.names or ():
        if name not in _NOT_IN_RECORD:
            tasks[name] = found[name]
    return tasks


def _node(message: str, names: Index) -> dict[str, int]:
    match = _NODE.fullmatch(message)
    values = _values(match.groups()[1:], _NODE_FIELDS) if match else None
    return {"operator": names(match[1].strip()), **values} if match and values else {}


def _thread(message: str) -> dict[str, int] | None:
    match = _THREAD.fullmatch(message)
    return _values(match.groups(), _THREAD_FIELDS) if match else None


def _values(texts: Sequence[str | None], fields: Sequence[str]) -> dict[str, int] | None:
    """The numbers that are there, by field; None if one is beyond any time."""
    values = {field: integer(text) for field, text in zip(fields, texts, strict=True) if field and text is not None}
    whole = {field: value for field, value in values.items() if value is not None}
    return whole if len(whole) == len(values) else None
