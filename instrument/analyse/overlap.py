"""Communication of a device: how much of it is hidden behind computing, and the time of a step without it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from instrument.analyse.executions import CountedExecutions, communicates, computes, operator_mask
from instrument.analyse.groupby import mask_missing
from instrument.analyse.intervals import Union
from instrument.analyse.table import ColumnData, Table
from instrument.trace.events import MISSING, Capture, Integers, Rows

_TIMES = (
    "computing_ns", "communication_ns", "overlapped_ns", "communication_not_overlapped_ns", "free_ns",
)  # fmt: skip


def per_step(capture: Capture, counted: CountedExecutions) -> Table:
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
