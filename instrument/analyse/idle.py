"""Idle times: the gaps between operators, on each stream of the device and each thread of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from instrument.analyse.executions import CountedExecutions, operator_mask
from instrument.analyse.groupby import mask_missing
from instrument.analyse.intervals import Union
from instrument.analyse.table import ColumnData, Table
from instrument.trace.events import CPU, MISSING, Capture, Rows

#: Gaps that the table has, the largest ones.
MOST_GAPS = 1000
_NOTHING = "n/a: the trace has no executions of operators."


def by_stream(capture: Capture, counted: CountedExecutions) -> Table:
    """Tabulate for each stream how long it was busy and idle from its first operator to the end of its last.

    Where the device or the host has several streams, a row without a number is of all of them together: it is idle
    when none of them runs anything.
    """
    streams = _streams(capture, counted)
    rows = [_use(where, stream, part) for where, stream, part in streams]
    for where in ("device", "host"):
        parts = [part for at, _, part in streams if at == where]
        if len(parts) > 1:
            rows.append(_use(f"{where}, all", MISSING, np.concatenate(parts)))
    heads = ("where", "stream", "executions", "span_ns", "busy_ns", "idle_ns", "idle_percent")
    columns: dict[str, ColumnData] = {head: [row[place] for row in rows] for place, head in enumerate(heads)}
    columns["stream"] = mask_missing(np.array(columns["stream"], np.int64))
    return Table("idle_streams", columns, "Busy and idle time", [] if rows else [_NOTHING])


def _use(where: str, stream: int, rows: Rows) -> tuple[Any, ...]:
    busy = Union.of(rows)
    span = int(busy.end_ns[-1] - busy.start_ns[0]) if len(busy.end_ns) else 0
    idle = span - busy.total_ns
    return where, stream, len(rows), span, busy.total_ns, idle, 100 * idle / span if span else 0.0


def gaps(capture: Capture, counted: CountedExecutions) -> Table:
    """Tabulate the largest gaps: place, start, length, the step in which it ends, the operators before and behind it.

    At most `MOST_GAPS` rows, the largest first. A note has the number and the time of the others.
    """
    parts = [_gaps_of(where, stream, part) for where, stream, part in _streams(capture, counted)]
    every = np.concatenate([np.empty(0, _GAP), *parts])
    order = np.argsort(-every["duration_ns"], kind="stable")
    kept, rest = every[order[:MOST_GAPS]], every[order[MOST_GAPS:]]
    names = [operator.full_name or operator.type for operator in capture.operators]
    columns: dict[str, ColumnData] = {
        "where": ["host" if is_host else "device" for is_host in kept["is_host"].tolist()],
        "stream": mask_missing(kept["stream"]),
        "start_ns": kept["start_ns"],
        "duration_ns": kept["duration_ns"],
        "step": mask_missing(kept["step"]),
        "before": [names[place] for place in kept["before"].tolist()],
        "behind": [names[place] for place in kept["behind"].tolist()],
    }
    notes = [] if parts else [_NOTHING]
    if len(rest):
        notes.append(f"{len(rest)} smaller gaps, {int(rest['duration_ns'].sum())} ns together, are not listed.")
    return Table("idle", columns, "Gaps between operators", notes)


_GAP = np.dtype(
    [
        ("is_host", "?"), ("stream", "i8"), ("start_ns", "i8"), ("duration_ns", "i8"), ("step", "i8"), ("before", "i4"),
        ("behind", "i4"),
    ]
)  # fmt: skip


def _gaps_of(where: str, stream: int, rows: Rows) -> Rows:
    """Find the gaps of one stream, whose executions are by start. A gap begins when all before it have ended."""
    end = rows["start_ns"] + rows["duration_ns"]
    reach = np.maximum.accumulate(end)
    is_reached_here = np.append(True, end[1:] > reach[:-1])[: len(rows)]
    latest = np.maximum.accumulate(np.where(is_reached_here, np.arange(len(rows)), 0))
    places = np.flatnonzero(rows["start_ns"][1:] > reach[:-1])
    result = np.empty(len(places), _GAP)
    result["is_host"], result["stream"] = where == "host", stream
    result["start_ns"] = reach[places]
    result["duration_ns"] = rows["start_ns"][places + 1] - reach[places]
    result["step"] = rows["step"][places + 1]
    result["before"], result["behind"] = rows["operator"][latest[places]], rows["operator"][places + 1]
    return result


def _streams(capture: Capture, counted: CountedExecutions) -> list[tuple[str, int, Rows]]:
    """Split the executions by stream: "host" or "device", the stream, and its executions by start."""
    rows = counted.near
    is_host = operator_mask(capture, rows, lambda operator: operator.side == CPU)
    order = np.lexsort((rows["stream"], is_host))  # stable: by start within a stream
    rows, is_host = rows[order], is_host[order]
    is_new = (is_host[1:] != is_host[:-1]) | (rows["stream"][1:] != rows["stream"][:-1])
    first = np.append(0, np.flatnonzero(is_new) + 1) if len(rows) else np.empty(0, np.int64)
    parts = np.split(rows, first[1:])
    return [
        ("host" if on_host else "device", stream, part)
        for on_host, stream, part in zip(is_host[first].tolist(), rows["stream"][first].tolist(), parts, strict=False)
    ]
