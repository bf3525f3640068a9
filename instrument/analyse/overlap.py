"""How much of the communication the device hides behind its computing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from instrument.analyse.intervals import Union
from instrument.analyse.sums import Counted, chosen, communicates, computes, unmissing
from instrument.analyse.table import Table
from instrument.trace.events import MISSING, Capture

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TIMES = (
    "computing_ns", "communication_ns", "overlapped_ns", "communication_not_overlapped_ns", "free_ns",
)  # fmt: skip


def per_step(capture: Capture, counted: Counted) -> Table:
    """One row a step, or one for all: computing, communication, both at once, communication alone, and neither.

    What the source itself says is taken as it is, with the stages of a pipeline of devices if it has them. Otherwise
    it is computed: computing and communication are the times when any operator of that sort runs, communication not
    overlapped = communication - both at once, free = step - (computing or communication).
    """
    if len(capture.overlap):
        return _of_source(capture)
    rows = counted.near
    computing = _running(rows[chosen(capture, rows, computes)])
    talking = _running(communication(capture, counted))
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
    columns: dict[str, Any] = {"step": unmissing(rows["step"])}
    for name in _TIMES:
        values = np.where(is_derived, communication - alone, both) if name == "overlapped_ns" else rows[name]
        columns[name] = unmissing(values)
    for name in ("stage_ns", "bubble_ns", "preparing_ns"):
        if (rows[name] != MISSING).any():
            columns[name] = unmissing(rows[name])
    notes = ["As the source of the trace sums it up."]
    absent = len(capture.steps) - int(np.isin(capture.steps["step"], rows["step"]).sum())
    if absent and (rows["step"] != MISSING).all():
        notes.append(f"{absent} of {len(capture.steps)} steps have no row: the source sums up only the others.")
    return Table("overlap", columns, "Computing and communication", notes)


def communication(capture: Capture, counted: Counted) -> NDArray[np.void]:
    """Communication between devices, as executions or as the device marks it."""
    rows = counted.near
    found = rows[chosen(capture, rows, communicates)]
    return found if len(found) else capture.reduces[capture.reduces["duration_ns"] >= 0]


def _running(rows: NDArray[np.void]) -> Union:
    return Union(rows["start_ns"], rows["start_ns"] + rows["duration_ns"])


def _computed(capture: Capture, computing: Union, communication: Union) -> Table:
    either = computing.joined(communication)
    number, start, end = _ranges(capture, either)
    busy, talking, any_of = (union.within(start, end) for union in (computing, communication, either))
    both = busy + talking - any_of
    values = (busy, talking, both, talking - both, end - start - any_of)
    columns = {"step": unmissing(number), **dict(zip(_TIMES, values, strict=True))}
    return Table("overlap", columns, "Computing and communication")


def _ranges(capture: Capture, either: Union) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Number, start and end of the steps; without any, of all that ran."""
    steps = capture.steps[
        (capture.steps["start_ns"] != MISSING) & (capture.steps["end_ns"] > capture.steps["start_ns"])
    ]
    if not len(steps):
        return np.array([MISSING]), either.start_ns[:1], either.end_ns[-1:]
    steps = steps[np.argsort(steps["start_ns"], kind="stable")]
    return steps["step"], steps["start_ns"], steps["end_ns"]
