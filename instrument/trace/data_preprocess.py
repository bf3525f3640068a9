"""DATA_PREPROCESS files: what ran on the AI CPUs (AICPU), and the data queues of an Ascend device (TDT, DP, AICPUMI).

Each is text messages (2020 to 2021) or records (from 2021). In the text of AICPU a "Node" message names an operator and
its run, and the "Thread" message right behind it adds the ticks of the task around it. Some files hold Thread messages
only: their tasks have times but no name. TDT and DP say what the host put into the device's queue, AICPUMI how the
device took it out. Times are in us, on the axis of the device's counter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from instrument.trace.events import MISSING, NamedRows, Rows, unknown
from instrument.trace.records import (
    UNKNOWN_LINES,
    UNKNOWN_MESSAGES,
    integer,
    is_binary,
    lines,
    messages,
    with_magic,
)
from instrument.trace.text import Buffer, Index, Losses

# ---------------------------------------------------------------- AI CPUs

#: One task. `operator` is its row in the names, or `MISSING`. Times in us and in cycles of the device's counter;
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

AI_CPU_RECORD = np.dtype(
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


def ai_cpu(data: Buffer, losses: Losses) -> NamedRows:
    """Return the tasks of a file (dtype TASK), in order, and the full names that their `operator` indexes.

    Records have no names: their tasks are named by stream and task elsewhere.
    """
    return NamedRows((), _ai_cpu_records(data, losses)) if is_binary(data) else _ai_cpu_messages(data, losses)


def _ai_cpu_messages(data: Buffer, losses: Losses) -> NamedRows:
    """Read messages: a Thread message is a task, and a Node message directly before it names it."""
    names, rows = Index[str](), []
    node: dict[str, int] = {}
    for message in messages(data, losses):
        fields = _node(message, names)
        task = None if fields else _thread(message)
        losses.add("Node messages without a Thread message behind them", int(bool(node) and task is None))
        if task:
            rows.append({**node, **task})
        losses.add(UNKNOWN_MESSAGES, int(not fields and not task))
        node = fields or {}
    losses.add("Node messages without a Thread message behind them", int(bool(node)))
    tasks = unknown(TASK, len(rows))
    for name in TASK.names or ():
        tasks[name] = [row.get(name, MISSING) for row in rows]
    return NamedRows(names.names, tasks)


def _ai_cpu_records(data: Buffer, losses: Losses) -> Rows:
    records = with_magic(data, AI_CPU_RECORD, losses)
    is_run = (records["run_start_cycles"] > 0) & (records["run_end_cycles"] > 0)
    losses.add("records of tasks that did not run", len(records) - int(np.count_nonzero(is_run)))
    records = records[is_run]
    tasks = unknown(TASK, len(records))
    for name in TASK.names or ():
        if name not in _NOT_IN_RECORD:
            tasks[name] = records[name]
    return tasks


def _node(message: str, names: Index[str]) -> dict[str, int]:
    match = _NODE.fullmatch(message)
    values = _values(match.groups()[1:], _NODE_FIELDS) if match else None
    return {"operator": names(match[1].strip()), **values} if match and values else {}


def _thread(message: str) -> dict[str, int] | None:
    match = _THREAD.fullmatch(message)
    return _values(match.groups(), _THREAD_FIELDS) if match else None


def _values(texts: Sequence[str | None], fields: Sequence[str]) -> dict[str, int] | None:
    """Return the numbers that are there, by field, or None if one is beyond any time."""
    values = {field: integer(text) for field, text in zip(fields, texts, strict=True) if field and text is not None}
    whole = {field: value for field, value in values.items() if value is not None}
    return whole if len(whole) == len(values) else None


# ---------------------------------------------------------------- queues of data

#: One element of the queue between host and device: when, which one (from 1), and how many the queue held then.
PUSH = np.dtype([("time_us", "i8"), ("index", "i8"), ("size", "i8")])
#: The device fetches an element: how long it took, and how many the queue held.
FETCH_US = np.dtype([("start_us", "i8"), ("end_us", "i8"), ("size", "i8")])

#: A record of the binary form of DP.
DP_RECORD = np.dtype(
    [
        ("magic", "<u2"), ("kind", "<u2"), ("reserved", "<u4"), ("time_us", "<i8"), ("action", "S16"),
        ("source", "S64"), ("index", "<i8"), ("size", "<i8"), ("reserved2", "V16"),
    ]
)  # fmt: skip

_PUSH = re.compile(
    r"\[(\d+)\]\s*(?:Enqueue data to dp|Last queue dequeue),\s*source:.*,\s*index:\s*(\d+),\s*size:\s*(\d+)"
)
_OTHER_ACTION = re.compile(r"\[\d+\].*,\s*source:.*")
#: The size of the queue stands before the times or behind them.
_FETCH = re.compile(
    r"Node:.*?(?:,\s*queue size:\s*(\d+))?,\s*Run start:\s*(\d+),\s*Run end:\s*(\d+)(?:,\s*queue size:\s*(\d+))?"
)
_FETCH_LINE = re.compile(r"\S+ +(\d+) +(\d+) +(\d+)")


def pushes(data: Buffer, losses: Losses) -> Rows:
    """Return the elements (dtype PUSH) of a TDT file, or of a DP file of either form, in order."""
    if is_binary(data):
        records = with_magic(data, DP_RECORD, losses)
        is_time = records["time_us"] >= 0
        losses.add("records with a time that is none", len(records) - int(np.count_nonzero(is_time)))
        elements = np.empty(int(np.count_nonzero(is_time)), PUSH)
        for name in PUSH.names or ():
            elements[name] = records[name][is_time]
        return elements
    rows = []
    for message in messages(data, losses):
        match = _PUSH.fullmatch(message)
        numbers = _integers(match.groups()) if match else None
        if numbers:
            rows.append(numbers)
        else:
            is_other = match is None and _OTHER_ACTION.fullmatch(message) is not None
            losses.add("messages of other actions" if is_other else UNKNOWN_MESSAGES)
    return np.array(rows, PUSH)


def fetches(data: Buffer, losses: Losses) -> Rows:
    """Return the fetches (dtype FETCH_US) of an AICPUMI file, in order."""

    def row(message: str) -> tuple[int, ...] | None:
        match = _FETCH.fullmatch(message)
        if match is None or (match[1] is None) == (match[4] is None):
            return None
        return _integers((match[2], match[3], match[1] or match[4]))

    return _fetches(messages(data, losses), row, UNKNOWN_MESSAGES, losses)


def fetch_table(data: Buffer, losses: Losses) -> Rows:
    """Return the same out of `minddata_aicpu_<device>.txt`: lines of operator, start, end and queue size."""

    def row(line: str) -> tuple[int, ...] | None:
        match = _FETCH_LINE.fullmatch(line)
        return _integers(match.groups()) if match else None

    return _fetches(lines(data, losses), row, UNKNOWN_LINES, losses)


def _fetches(texts: Iterator[str], row: Callable[[str], tuple[int, ...] | None], what: str, losses: Losses) -> Rows:
    rows = [row(text) for text in texts]
    losses.add(what, rows.count(None))
    return np.array([fields for fields in rows if fields is not None], FETCH_US)


def _integers(texts: Sequence[str]) -> tuple[int, ...] | None:
    values = tuple(value for value in map(integer, texts) if value is not None)
    return values if len(values) == len(texts) else None
