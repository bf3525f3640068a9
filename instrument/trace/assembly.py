"""A capture while it is put together out of the files of one device.

Where several files tell the same thing, the first one that has any of it is taken. Everything is brought onto one axis:
what is on another one without a known distance between them is left out and counted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from instrument.trace.events import (
    COMMUNICATION,
    MISSING,
    OVERLAP,
    OVERLAP_EVENT,
    OVERLAP_KINDS,
    STEP,
    Capture,
    Integers,
    NamedRows,
    OperatorRows,
    Problem,
    Rows,
    steps_at,
    unknown,
)
from instrument.trace.gpu import StepTrace
from instrument.trace.marks import steps as steps_of_marks
from instrument.trace.text import Index

EPOCH, MONOTONIC, DEVICE = "epoch", "monotonic", "device"
#: Of `Capture.metadata["steps_from"]`: no file has steps, but executions have the numbers of theirs.
EXECUTIONS = "executions"
#: Later than this (2001) are only times since the epoch: no machine has been up for thirty years.
_FIRST_EPOCH_NS = 10**18
_TIMES = ("start_ns", "fp_start_ns", "bp_end_ns", "end_ns", "time_ns")


def clock_of(times: Integers) -> str:
    """Return whether host times are since the epoch or since the start of the machine; "" where there are none."""
    if not len(times):
        return ""
    return EPOCH if int(np.median(times)) >= _FIRST_EPOCH_NS else MONOTONIC


def shifted(rows: Rows, offset_ns: int) -> Rows:
    """Return `rows` with all their times `offset_ns` later, less those that are `MISSING`."""
    if not offset_ns:
        return rows
    result = rows.copy()
    for name in set(_TIMES) & set(rows.dtype.names or ()):
        result[name] = np.where(rows[name] == MISSING, MISSING, rows[name] + offset_ns)
    return result


def sides_of(capture: Capture) -> set[str]:
    """Return where the executions ran."""
    return {capture.operators[row].side for row in np.unique(capture.executions["operator"]).tolist()}


def steps_of_executions(executions: Rows) -> Rows:
    """Return the steps that executions themselves name, as `STEP`, by number.

    A step lasts from its first execution to the first one of the next number; where that is not there, or does not
    begin later, until its last execution has ended.
    """
    rows = executions[(executions["step"] >= 0) & (executions["start_ns"] > 0) & (executions["duration_ns"] >= 0)]
    rows = rows[np.lexsort((rows["start_ns"], rows["step"]))]
    numbers, firsts = np.unique(rows["step"], return_index=True)
    result = unknown(STEP, len(numbers))
    if not len(numbers):
        return result
    result["step"], result["start_ns"] = numbers, rows["start_ns"][firsts]
    result["end_ns"] = np.maximum.reduceat(rows["start_ns"] + rows["duration_ns"], firsts)
    follows = (np.diff(numbers) == 1) & (np.diff(result["start_ns"]) > 0)
    result["end_ns"][:-1] = np.where(follows, result["start_ns"][1:], result["end_ns"][:-1])
    return result


class Assembly:
    """A `Capture` that grows by what each file adds to it. Each `add_*` leaves out what is there already."""

    def __init__(self, device: int, target: str) -> None:
        self.parts = Capture(device, target, "")
        self.problems: list[Problem] = []
        self.metadata: dict[str, object] = {}
        #: What a timeline says to be computing, communication or neither, as `OVERLAP_EVENT`.
        self.overlap_events = np.empty(0, OVERLAP_EVENT)
        #: From the host's monotonic clock to the wall clock, where a file says so.
        self.epoch_offset_ns: int | None = None

    def fits(self, clock: str, file: str, what: str, amount: int) -> bool:
        """Return True if times of `clock` can be put on the axis; the first ones say what the axis is."""
        axis = self.parts.clock
        if amount and not axis:
            self.parts = replace(self.parts, clock=clock)
        if not amount or axis in ("", clock):
            return True
        self.problems.append(Problem(file, f"{what} on another clock than the rest ({clock}, not {axis})", amount))
        return False

    def take_capture(self, capture: Capture) -> None:
        """Take all that the raw files of an Ascend device say; it comes first."""
        self.problems += capture.problems
        self.metadata |= capture.metadata
        timed = (capture.executions, capture.steps, capture.reduces, capture.batches, capture.fetches)
        clock = capture.clock if any(map(len, timed)) else ""
        self.parts = replace(capture, device=self.parts.device, target=self.parts.target, clock=clock)

    def add_executions(self, executions: OperatorRows, clock: str, file: str) -> None:
        if self.fits(clock, file, "executions", len(executions.rows)):
            rows = self._with_operators(executions)
            self.parts = replace(self.parts, executions=np.concatenate([self.parts.executions, rows]))

    def add_activities(self, activities: OperatorRows, clock: str, file: str) -> None:
        if self.fits(clock, file, "activities", len(activities.rows)):
            rows = self._with_operators(activities)
            self.parts = replace(self.parts, activities=np.concatenate([self.parts.activities, rows]))

    def add_totals(self, totals: OperatorRows) -> None:
        """Add sums of the source; only for what has no executions."""
        if not len(self.parts.executions) and not len(self.parts.totals):
            rows = self._with_operators(totals)
            self.parts = replace(self.parts, totals=rows)

    def _with_operators(self, source: OperatorRows) -> Rows:
        """Return the rows with their operators behind those that are known; only operators that are used are taken."""
        used, places = np.unique(source.rows["operator"], return_inverse=True)
        operators = Index(self.parts.operators)
        target = np.array([operators(source.operators[place]) for place in used.tolist()], np.int32)
        self.parts = replace(self.parts, operators=tuple(operators.names))
        rows = source.rows.copy()
        rows["operator"] = target[places.reshape(-1)] if len(used) else 0
        return rows

    def add_steps(self, trace: StepTrace, clock: str, file: str) -> None:
        amount = len(trace.steps) + len(trace.reduces)
        if not len(self.parts.steps) and self.fits(clock, file, "steps and reduces", amount):
            reduces = self._with_names(NamedRows(trace.names, trace.reduces))
            self.parts = replace(self.parts, steps=trace.steps, reduces=reduces)

    def add_spans(self, spans: NamedRows, clock: str, file: str) -> None:
        if self.fits(clock, file, "marks and spans", len(spans.rows)):
            rows = self._with_names(spans)
            self.parts = replace(self.parts, spans=np.concatenate([self.parts.spans, rows]))

    def _with_names(self, source: NamedRows) -> Rows:
        rows = source.rows.copy()
        rows["name"] += len(self.parts.names)
        if len(rows):
            self.parts = replace(self.parts, names=(*self.parts.names, *source.names))
        return rows

    def add_memory(self, samples: Rows, clock: str, file: str) -> None:
        if not len(self.parts.memory) and self.fits(clock, file, "samples of memory", len(samples)):
            self.parts = replace(self.parts, memory=samples)

    def add_fetches(self, fetches: Rows, clock: str, file: str) -> None:
        if self.fits(clock, file, "fetches", len(fetches)):
            self.parts = replace(self.parts, fetches=fetches)

    def add_batches(self, batches: Rows, file: str) -> None:
        """Add batches, which have monotonic times: without an anchor theirs is another axis than that of the rest."""
        if not len(batches):
            return
        if len(self.parts.batches):
            self.problems.append(Problem(file, "batches that the device's own files tell, too", len(batches)))
            return
        offset = self.epoch_offset_ns
        clock = MONOTONIC if offset is None else EPOCH
        self.metadata["batches_clock"] = clock
        if self.parts.clock and clock != self.parts.clock:
            self.problems.append(Problem(file, f"batches whose times stay {MONOTONIC}", len(batches)))
        batches = batches if offset is None else shifted(batches, offset)
        self.parts = replace(self.parts, batches=batches, clock=self.parts.clock or clock)

    def add_overlap(self, events: Rows, clock: str, file: str) -> None:
        if self.fits(clock, file, "times of computing and communication", len(events)):
            self.overlap_events = np.concatenate([self.overlap_events, events])

    def capture(self) -> Capture:
        """Return what was gathered, executions by start, each in its step."""
        parts = self.parts
        steps = parts.steps if len(parts.steps) else steps_of_marks(parts.spans)
        if not len(steps):
            # A task that waits belongs to its step, too: the device is free then.
            steps = steps_of_executions(np.concatenate([parts.executions, parts.activities]))
            if len(steps):
                self.metadata["steps_from"] = EXECUTIONS
        # Tasks of communication are also tasks of the device: where those are there, they are left out.
        is_plane = np.array([operator.side == COMMUNICATION for operator in parts.operators] + [False], np.bool_)
        of_plane = is_plane[parts.activities["operator"]]
        activities = parts.activities if of_plane.all() else parts.activities[~of_plane]
        return replace(
            parts,
            clock=parts.clock or MONOTONIC,
            steps=steps,
            executions=_placed(parts.executions, steps),
            activities=_placed(activities, steps),
            overlap=parts.overlap if len(parts.overlap) else _overlap(self.overlap_events, steps),
            problems=tuple(self.problems),
            metadata=self.metadata,
        )


def _placed(executions: Rows, steps: Rows) -> Rows:
    """Return `executions` by start, those without a step in the step that they started in."""
    ordered = executions[np.argsort(executions["start_ns"], kind="stable")]
    places = steps_at(ordered["start_ns"], steps)
    ordered["step"] = np.where(ordered["step"] == MISSING, places, ordered["step"])
    return ordered


def _overlap(events: Rows, steps: Rows) -> Rows:
    """Sum up the events of timelines by step, or over all where no steps are known.

    Timelines may cover some of the steps only; the others have no row.
    """
    events = np.unique(events)
    if not len(events):
        return np.empty(0, OVERLAP)
    begin, end = events["start_ns"].min(), (events["start_ns"] + events["duration_ns"]).max()
    ranges = [(MISSING, begin, end)]
    if len(steps):
        steps = steps[steps["start_ns"] != MISSING]
        middle = (steps["start_ns"] + steps["end_ns"]) // 2
        steps = steps[(middle >= begin) & (middle < end) & (steps["end_ns"] > steps["start_ns"])]
        ranges = [(step["step"], step["start_ns"], step["end_ns"]) for step in steps]
    return np.array([_overlap_row(events, *step_range) for step_range in ranges], OVERLAP)


def _overlap_row(events: Rows, step: int, begin: int, end: int) -> tuple[int, ...]:
    """Return a row of `OVERLAP` with what of the events lies between two times."""
    start = np.maximum(events["start_ns"], begin)
    length = np.maximum(np.minimum(events["start_ns"] + events["duration_ns"], end) - start, 0)
    sums = dict.fromkeys(OVERLAP.names or (), MISSING)
    for number, name in enumerate(OVERLAP_KINDS):
        sums[name] = int(length[events["kind"] == number].sum())
    sums["step"] = int(step)
    return tuple(sums.values())
