"""Files of the GPU: the trace of steps in its two forms, operators, kernels, and the start of its clock.

Steps are kept to the nanosecond; in the "sync" form the file itself has units of 10 ns.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from instrument.trace.cpu import US, operator_of
from instrument.trace.events import EXECUTION, GPU, MISSING, REDUCE, STEP, Operator, OperatorRows, Rows, by_start
from instrument.trace.text import Buffer, Column, Index, Losses, csv_rows, decode, is_cut, lines, scaled

SYNC_UNIT_NS = 10
#: Launches that are converted at a time.
_BATCH = 1 << 16
_LAUNCHES = {
    "name": Column(("name",), is_required=True),
    "operator": Column(("op_full_name",), is_required=True),
    "launches": Column(("occurrences",)),
}


class StepTrace(NamedTuple):
    """Steps (`STEP`) and the communication in them (`REDUCE`, whose `name` is a row of `names`)."""

    names: list[str]
    steps: Rows
    reduces: Rows


def launchers(data: Buffer, losses: Losses) -> tuple[dict[str, str], int]:
    """Read `gpu_activity_data_<device>.csv`, a row for each kernel.

    Return the full name of the operator that launched each kernel first, and how many launches there were of all.
    """
    result: dict[str, str] = {}
    launches = 0
    for block in csv_rows(data, losses, _LAUNCHES):
        for name, operator in zip(block.text("name"), block.text("operator"), strict=True):
            result.setdefault(name, operator)
        counts, has_count = block.numbers("launches")
        launches += int(counts[has_count & (counts > 0)].sum())
    return result, launches


def activities(data: Buffer, losses: Losses, launched_by: Mapping[str, str] | None = None) -> OperatorRows:
    """Read `activity_execute_timestamp_<device>.txt`, `<kernel>;<stream>;<start ns>;<duration us>` for each launch.

    The `type` of a kernel is that of the operator in `launched_by`, empty where that does not know it.
    """
    names = Index[str]()
    blocks = [np.empty(0, EXECUTION)]
    rest = lines(data)
    while batch := list(itertools.islice(rest, _BATCH)):
        blocks.append(_launches(batch, names, losses))
    kernels = [
        Operator(name, name, operator_of((launched_by or {}).get(name, ""), GPU).type, GPU) for name in names.names
    ]
    return OperatorRows(kernels, by_start(np.concatenate(blocks)))


def _launches(batch: list[bytes], names: Index[str], losses: Losses) -> Rows:
    rows = []
    for line in batch:
        name, *cells = decode(line).rstrip("\r\n").rsplit(";", 3)
        values = [scaled(cell, factor) for cell, factor in zip(cells, (1, 1, US), strict=False)]
        if len(values) != 3 or None in values or not line.endswith(b"\n"):
            losses.add("lines that hold no launch", bool(line.strip()))
            continue
        stream, start, duration = values
        rows.append((start, duration, names(name), stream, MISSING, MISSING))
    return np.array(rows, EXECUTION)


def start_time(data: Buffer, losses: Losses) -> dict[str, int]:
    """Read `start_time_<device>.txt`: the same moment as `host_monotonic_raw_ns` and as `gpu_start_ns`, where given."""
    result = {}
    for line in lines(data):
        match = re.fullmatch(rb"\s*(host_monotonic_raw_time|gpu_start_time)\(ns\)\s*:\s*(\d{1,18}|\d{19})\s*", line)
        if match is None:
            losses.add("lines of another form", bool(line.strip()))
            continue
        result["gpu_start_ns" if match[1].startswith(b"gpu") else "host_monotonic_raw_ns"] = int(match[2])
    return result


def step_trace(data: Buffer, losses: Losses) -> StepTrace:
    """Read `step_trace_profiling_<device>.txt`.

    The first word of the "async" form has one comma: a line is a step. Otherwise a line is a point of all steps.
    """
    all_lines = list(lines(data))
    if is_cut(data):
        losses.add("bytes of a line that is cut off", len(all_lines.pop().strip()))
    whole = [text for text in map(decode, all_lines) if text.split()]
    if not whole:
        return StepTrace([], np.empty(0, STEP), np.empty(0, REDUCE))
    is_async = whole[0].split(maxsplit=1)[0].count(",") == 1
    return (_by_step if is_async else _by_point)(whole, losses)


def _by_step(whole: list[str], losses: Losses) -> StepTrace:
    """Read a line a step: begin, fp, bp, end as `<op>,<ns>`, then `<op>,<start ns>,<end ns>` for communication."""
    names = Index[str]()
    steps, reduces = [], []
    for step, line in enumerate(whole, 1):
        words = line.split()
        start, fp, bp, end = (_times(word, 1, losses)[0] for word in (words + [""] * 4)[:4])
        if MISSING in (start, end):
            losses.add("steps without start or end")
            continue
        steps.append((step, start, fp, bp, end, MISSING))
        for word in words[4:]:
            begin, finish = _times(word, 2, losses)
            if MISSING not in (begin, finish):
                reduces.append((step, MISSING, names(word.rsplit(",", 2)[0]), begin, finish - begin))
    return StepTrace(names.names, np.array(steps, STEP), np.array(reduces, REDUCE))


def _by_point(whole: list[str], losses: Losses) -> StepTrace:
    """Read a line a point: fp, bp, end of the iteration, communication; each with `<start>,<end>` of all steps."""
    points = [line.split() for line in whole]
    if len(points) < 3:
        losses.add("points of steps without the others", len(points))
        return StepTrace([], np.empty(0, STEP), np.empty(0, REDUCE))
    count = min(len(words) for words in points[:3]) - 1
    losses.add("points beyond the last whole step", sum(max(len(words) - 1 - count, 0) for words in points))
    times = [[_times(word, 2, losses, SYNC_UNIT_NS) for word in words[1 : count + 1]] for words in points]
    steps = []
    for row, (fp, bp, end) in enumerate(zip(*times[:3], strict=True)):
        start = times[2][row - 1][0] if row else fp[0]
        if MISSING in (start, end[1]):
            losses.add("steps without start or end")
            continue
        steps.append((row + 1, start, fp[0], bp[1], end[1], MISSING))
    names = Index[str]()
    others = [(names(words[0]), pairs) for words, pairs in zip(points[3:], times[3:], strict=True)]
    return StepTrace(names.names, np.array(steps, STEP), _reduces(others))


def _reduces(points: Iterable[tuple[int, list[list[int]]]]) -> Rows:
    rows = [
        (step, MISSING, name, start, end - start)
        for name, pairs in points
        for step, (start, end) in enumerate(pairs, 1)
        if MISSING not in (start, end)
    ]
    rows.sort(key=lambda row: row[0])
    return np.array(rows, REDUCE)


def _times(word: str, count: int, losses: Losses, unit_ns: int = 1) -> list[int]:
    """The last `count` times of a word in ns; all missing, and counted, where they are not all there."""
    values = [scaled(cell, unit_ns) for cell in word.rsplit(",", count)[-count:]]
    times = [time for time in values if time is not None]
    if len(times) == count and min(times) >= 0:
        return times
    losses.add("points without a time")
    return [MISSING] * count
