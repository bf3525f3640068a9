"""When a device was busy: idle times of its streams, and how much of its communication is hidden behind computing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from instrument.analyse.executions import CountedExecutions, communicates, computes, operator_mask
from instrument.analyse.groupby import mask_missing
from instrument.analyse.intervals import Union
from instrument.analyse.table import ColumnData, Table, Value
from instrument.trace.events import CPU, MISSING, Capture, Integers, Rows

#: Gaps that the table has, the largest ones.
MOST_GAPS = 1000
_NOTHING = "n/a: the trace has no executions of operators."


def idle_streams(capture: Capture, counted: CountedExecutions) -> Table:
    """Tabulate for each stream how long it was busy and idle from its first operator to the end of its last.

    Where the device or the host has several streams, a row without a number is of all of them together: it is idle
    when none of them runs anything.
    """
    streams = _streams(capture, counted)
    rows = [_use(where, None if stream == MISSING else stream, part) for where, stream, part in streams]
    for where in ("device", "host"):
        parts = [part for at, _, part in streams if at == where]
        if len(parts) > 1:
            rows.append(_use(f"{where}, all", None, np.concatenate(parts)))
    heads = ("where", "stream", "executions", "span_ns", "busy_ns", "idle_ns", "idle_percent")
    return Table.of_rows("idle_streams", heads, rows, "Busy and idle time", [] if rows else [_NOTHING])


def _use(where: str, stream: int | None, rows: Rows) -> tuple[Value, ...]:
    busy = Union.of(rows)
    span = int(busy.end_ns[-1] - busy.start_ns[0]) if len(busy.end_ns) else 0
    idle = span - busy.total_ns
    return where, stream, len(rows), span, busy.total_ns, idle, 100 * idle / span if span else 0.0


def idle_gaps(capture: Capture, counted: CountedExecutions) -> Table:
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


_TIMES = (
    "computing_ns", "communication_ns", "overlapped_ns", "communication_not_overlapped_ns", "free_ns",
)  # fmt: skip


def overlap(capture: Capture, counted: CountedExecutions) -> Table:
    """Tabulate for each step, or for all: computing, communication, both at once, communication alone, neither.

    What the source itself says is taken as it is, with the stages of a pipeline of devices if it has them. Otherwise
    it is computed: computing and communication are the times when any operator of that sort runs, communication not
    overlapped = communication - both at once, free = step - (computing or communication).
    """
    if len(capture.overlap):
        return _of_source(capture)
    rows = counted.near
    computing = Union.of(rows[operator_mask(capture, rows, computes)])
    talking = Union.of(_communication(capture, counted))
    if not len(talking.start_ns):
        return _empty("n/a: the trace has no communication.")
    if not len(computing.start_ns):
        return _empty("n/a: the trace has communication, but no computing of a device.")
    return _computed(capture, computing, talking)


def _empty(reason: str) -> Table:
    columns = {"step": np.empty(0, np.int64), **{name: np.empty(0, np.int64) for name in _TIMES}}
    return Table("overlap", columns, "Computing and communication", [reason])


def _of_source(capture: Capture) -> Table:
    rows = capture.overlap
    communication, alone, both = (
        rows[name] for name in ("communication_ns", "communication_not_overlapped_ns", "overlapped_ns")
    )
    is_derived = (both == MISSING) & (communication != MISSING) & (communication >= alone) & (alone != MISSING)
    columns: dict[str, ColumnData] = {"step": mask_missing(rows["step"])}
    for name in _TIMES:
        values = np.where(is_derived, communication - alone, both) if name == "overlapped_ns" else rows[name]
        columns[name] = mask_missing(values)
    for name in ("stage_ns", "bubble_ns", "preparing_ns"):
        if (rows[name] != MISSING).any():
            columns[name] = mask_missing(rows[name])
    notes = ["As the source of the trace sums it up."]
    absent = len(capture.steps) - int(np.isin(capture.steps["step"], rows["step"]).sum())
    if absent and (rows["step"] != MISSING).all():
        notes.append(f"{absent} of {len(capture.steps)} steps have no row: the source sums up only the others.")
    return Table("overlap", columns, "Computing and communication", notes)


def own_ns(capture: Capture, counted: CountedExecutions, steps: Table) -> dict[int, int]:
    """Return step -> its time less that in which the device did nothing but communicate.

    `steps` is what `steps.per_step` made. A step whose time is not known is left out. Of several graphs the first one
    of a number counts.
    """
    start, total = (np.ma.asarray(steps[name]).filled(0) for name in ("start_ns", "total_ns"))
    numbers = np.ma.asarray(steps["step"]).tolist()
    waits = _only_communicating(capture, counted, numbers, start, start + total)
    is_known = ~np.ma.getmaskarray(steps["total_ns"])
    own: dict[int, int] = {}
    for number, has_total, total_ns, wait_ns in zip(numbers, is_known.tolist(), total.tolist(), waits, strict=True):
        if number is not None and has_total:
            own.setdefault(number, max(total_ns - wait_ns, 0))
    return own


def _only_communicating(
    capture: Capture,
    counted: CountedExecutions,
    numbers: Sequence[int | None],
    start: Integers,
    end: Integers,
) -> list[int]:
    """Return how long each step communicated and did nothing else."""
    if len(capture.overlap):
        columns = (capture.overlap[name].tolist() for name in ("step", "communication_not_overlapped_ns"))
        times = {number: time for number, time in zip(*columns, strict=True) if time != MISSING}
        return [times.get(number, 0) for number in numbers]
    rows = counted.executions
    work = rows[operator_mask(capture, rows, computes)]
    if not len(work):  # a trace of the host alone
        work = rows[~operator_mask(capture, rows, communicates)]
    working = Union.of(work)
    either = working.joined(Union.of(_communication(capture, counted)))
    times_ns: list[int] = (either.within(start, end) - working.within(start, end)).tolist()
    return times_ns


def _communication(capture: Capture, counted: CountedExecutions) -> Rows:
    """Return the communication between devices, as executions or as the device marks it."""
    rows = counted.near
    chosen = rows[operator_mask(capture, rows, communicates)]
    return chosen if len(chosen) else capture.reduces[capture.reduces["duration_ns"] >= 0]


def _computed(capture: Capture, computing: Union, communication: Union) -> Table:
    either = computing.joined(communication)
    number, start, end = _ranges(capture, either)
    busy, talking, any_of = (union.within(start, end) for union in (computing, communication, either))
    both = busy + talking - any_of
    values = (busy, talking, both, talking - both, end - start - any_of)
    columns = {"step": mask_missing(number), **dict(zip(_TIMES, values, strict=True))}
    return Table("overlap", columns, "Computing and communication")


def _ranges(capture: Capture, either: Union) -> tuple[Integers, Integers, Integers]:
    """Return number, start and end of the steps, or without any, of all that ran."""
    steps = capture.steps[
        (capture.steps["start_ns"] != MISSING) & (capture.steps["end_ns"] > capture.steps["start_ns"])
    ]
    if not len(steps):
        return np.array([MISSING]), either.start_ns[:1], either.end_ns[-1:]
    steps = steps[np.argsort(steps["start_ns"], kind="stable")]
    return steps["step"], steps["start_ns"], steps["end_ns"]
