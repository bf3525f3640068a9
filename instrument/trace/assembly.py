"""A capture while it is put together out of the files of one device.

Where several files tell the same thing, the first one that has any of it is taken. Everything is brought onto one axis:
what is on another one without a known distance between them is left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from instrument.trace.events import (
    AI_CPU_TASK,
    BATCH,
    COMMUNICATION,
    EXECUTION,
    FETCH,
    LOST,
    MEMORY,
    MISSING,
    OVERLAP,
    OVERLAP_EVENT,
    OVERLAP_KINDS,
    REDUCE,
    SPAN,
    STEP,
    TOTAL,
    Capture,
    Integers,
    Operator,
    PipelineStage,
    Problem,
    Rows,
)
from instrument.trace.marks import steps as steps_of_marks

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
    """`rows` with all their times `offset_ns` later, those that are `MISSING` excepted."""
    result = rows.copy()
    for name in set(_TIMES) & set(rows.dtype.names or ()):
        result[name] = np.where(rows[name] == MISSING, MISSING, rows[name] + offset_ns)
    return result


def steps_at(times: Integers, steps: Rows) -> Integers:
    """The step that each time lies in, `MISSING` where it is in none; of overlapping ones the one that began last."""
    if not len(steps):
        return np.full(len(times), MISSING, np.int64)
    ordered = steps[np.argsort(steps["start_ns"], kind="stable")]
    place = np.searchsorted(ordered["start_ns"], times, "right") - 1
    is_inside = (place >= 0) & (times < ordered["end_ns"][place])
    return np.where(is_inside, ordered["step"][place], MISSING)


def steps_of_executions(executions: Rows) -> Rows:
    """Return the steps that executions themselves name, as `STEP`, by number.

    A step lasts from its first execution to the first one of the next number; where that is not there, or does not
    begin later, until its last execution has ended.
    """
    rows = executions[(executions["step"] >= 0) & (executions["start_ns"] > 0) & (executions["duration_ns"] >= 0)]
    rows = rows[np.lexsort((rows["start_ns"], rows["step"]))]
    numbers, firsts = np.unique(rows["step"], return_index=True)
    result = np.full(len(numbers), MISSING, np.int64).astype(STEP)
    if not len(numbers):
        return result
    result["step"], result["start_ns"] = numbers, rows["start_ns"][firsts]
    result["end_ns"] = np.maximum.reduceat(rows["start_ns"] + rows["duration_ns"], firsts)
    follows = (np.diff(numbers) == 1) & (np.diff(result["start_ns"]) > 0)
    result["end_ns"][:-1] = np.where(follows, result["start_ns"][1:], result["end_ns"][:-1])
    return result


class Assembly:
    """The parts of a `Capture`; each `add_*` says whether the part was taken."""

    def __init__(self, device: int, target: str) -> None:
        self.device, self.target, self.clock = device, target, ""
        self.operators: list[Operator] = []
        self.names: list[str] = []
        self.executions = np.empty(0, EXECUTION)
        self.activities = np.empty(0, EXECUTION)
        self.totals = np.empty(0, TOTAL)
        self.overlap = np.empty(0, OVERLAP)
        #: What a timeline says to be computing, communication or neither, as `OVERLAP_EVENT`.
        self.overlap_events = np.empty(0, OVERLAP_EVENT)
        self.steps = np.empty(0, STEP)
        self.reduces = np.empty(0, REDUCE)
        self.spans = np.empty(0, SPAN)
        self.memory = np.empty(0, MEMORY)
        self.batches = np.empty(0, BATCH)
        self.fetches = np.empty(0, FETCH)
        self.lost, self.ai_cpu = np.empty(0, LOST), np.empty(0, AI_CPU_TASK)
        self.pipeline: list[PipelineStage] = []
        self.problems: list[Problem] = []
        self.metadata: dict[str, Any] = {}
        #: From the host's monotonic clock to the wall clock, where a file says so.
        self.epoch_offset_ns: int | None = None

    def fits(self, clock: str, file: str, what: str, amount: int) -> bool:
        """Return True if times of `clock` can be put on the axis; the first ones say what the axis is."""
        if amount and not self.clock:
            self.clock = clock
        if not amount or clock == self.clock:
            return True
        self.problems.append(
            Problem(file, f"{what} on another clock than the rest ({clock}, not {self.clock})", amount)
        )
        return False

    def take_capture(self, capture: Capture) -> None:
        """All that the raw files of an Ascend device say; it comes first."""
        self.operators, self.names = list(capture.operators), list(capture.names)
        self.executions, self.steps, self.reduces = capture.executions, capture.steps, capture.reduces
        self.batches, self.fetches, self.memory = capture.batches, capture.fetches, capture.memory
        self.activities, self.spans = capture.activities, capture.spans
        self.lost, self.ai_cpu = capture.lost, capture.ai_cpu
        self.problems += capture.problems
        self.metadata |= capture.metadata
        timed = (self.executions, self.steps, self.reduces, self.batches, self.fetches, self.memory, self.spans)
        self.clock = capture.clock if any(map(len, timed)) else ""

    def add_executions(self, operators: Sequence[Operator], executions: Rows, clock: str, file: str) -> None:
        if self.fits(clock, file, "executions", len(executions)):
            rows = self._with_operators(operators, executions)
            self.executions = np.concatenate([self.executions, rows])

    def add_activities(self, operators: Sequence[Operator], activities: Rows, clock: str, file: str) -> None:
        if self.fits(clock, file, "activities", len(activities)):
            rows = self._with_operators(operators, activities)
            self.activities = np.concatenate([self.activities, rows])

    def add_totals(self, operators: Sequence[Operator], totals: Rows) -> None:
        """Sums of the source; only for what has no executions."""
        if not len(self.executions) and not len(self.totals):
            self.totals = self._with_operators(operators, totals)

    def _with_operators(self, operators: Sequence[Operator], rows: Rows) -> Rows:
        """`rows` with their operators behind those that are known; only the operators that they use are taken."""
        used, places = np.unique(rows["operator"], return_inverse=True)
        known = {operator: place for place, operator in enumerate(self.operators)}
        for operator in (operators[place] for place in used.tolist()):
            known.setdefault(operator, len(known))
        target = np.array([known[operators[place]] for place in used.tolist()], np.int32)
        self.operators = list(known)
        result = rows.copy()
        result["operator"] = target[places.reshape(-1)] if len(used) else 0
        return result

    def add_steps(self, names: Sequence[str], steps: Rows, reduces: Rows, clock: str, file: str) -> None:
        if self.has_steps() or not self.fits(clock, file, "steps and reduces", len(steps) + len(reduces)):
            return
        self.steps = steps
        self.reduces = self._with_names(names, reduces)

    def has_steps(self) -> bool:
        return len(self.steps) > 0

    def add_spans(self, names: Sequence[str], spans: Rows, clock: str, file: str) -> None:
        if self.fits(clock, file, "marks and spans", len(spans)):
            self.spans = np.concatenate([self.spans, self._with_names(names, spans)])

    def _with_names(self, names: Sequence[str], rows: Rows) -> Rows:
        result = rows.copy()
        result["name"] += len(self.names)
        self.names += names if len(rows) else ()
        return result

    def add_memory(self, samples: Rows, clock: str, file: str) -> None:
        if not len(self.memory) and self.fits(clock, file, "samples of memory", len(samples)):
            self.memory = samples

    def add_batches(self, batches: Rows, file: str) -> None:
        """Batches have monotonic times; without an anchor theirs is another axis than that of the rest."""
        if len(self.batches):
            self.problems.append(Problem(file, "batches that the device's own files tell, too", len(batches)))
        if len(self.batches) or not len(batches):
            return
        offset = self.epoch_offset_ns
        if offset is not None:
            batches = shifted(batches, offset)
        self.metadata["batches_clock"] = MONOTONIC if offset is None else EPOCH
        if self.clock and self.metadata["batches_clock"] != self.clock:
            problem = Problem(file, f"batches whose times stay {MONOTONIC}", len(batches))
            self.problems.append(problem)
        self.clock = self.clock or self.metadata["batches_clock"]
        self.batches = batches

    def capture(self) -> Capture:
        """Return what was gathered, executions by start, each in its step."""
        if not self.has_steps():
            self.steps = steps_of_marks(self.spans)
        if not self.has_steps():
            # A task that waits belongs to its step, too: the device is free then.
            self.steps = steps_of_executions(np.concatenate([self.executions, self.activities]))
            if self.has_steps():
                self.metadata["steps_from"] = EXECUTIONS
        self.executions = self._placed(self.executions)
        self.activities = self._placed(self._without_planes())
        self._sum_overlap()
        return Capture(
            self.device,
            self.target,
            self.clock or MONOTONIC,
            **dict(self._parts()),
        )

    def _parts(self) -> Iterator[tuple[str, Any]]:
        for name in ("operators", "names", "pipeline", "problems"):
            yield name, tuple(getattr(self, name))
        for name in ("executions", "activities", "totals", "overlap", "steps", "reduces", "spans", "memory"):
            yield name, getattr(self, name)
        yield from (("lost", self.lost), ("ai_cpu", self.ai_cpu))
        yield from (("batches", self.batches), ("fetches", self.fetches), ("metadata", self.metadata))

    def _placed(self, executions: Rows) -> Rows:
        """`executions` by start, those without a step in the step that they started in."""
        if not len(executions):
            return executions
        ordered = executions[np.argsort(executions["start_ns"], kind="stable")]
        found = steps_at(ordered["start_ns"], self.steps)
        ordered["step"] = np.where(ordered["step"] == MISSING, found, ordered["step"])
        return ordered

    def _without_planes(self) -> Rows:
        """Tasks of communication are also tasks of the device: where those are there, they are left out."""
        is_plane = np.array([operator.side == COMMUNICATION for operator in self.operators] + [False], np.bool_)
        of_plane = is_plane[self.activities["operator"]]
        return self.activities if of_plane.all() else self.activities[~of_plane]

    def add_overlap(self, events: Rows, clock: str, file: str) -> None:
        if self.fits(clock, file, "times of computing and communication", len(events)):
            self.overlap_events = np.concatenate([self.overlap_events, events])

    def _sum_overlap(self) -> None:
        """Sum up the events of timelines by step, or over all where no steps are known.

        Timelines may cover some of the steps only; the others have no row.
        """
        events = np.unique(self.overlap_events)
        if len(self.overlap) or not len(events):
            return
        begin, end = events["start_ns"].min(), (events["start_ns"] + events["duration_ns"]).max()
        ranges = [(MISSING, begin, end)]
        if self.has_steps():
            steps = self.steps[self.steps["start_ns"] != MISSING]
            middle = (steps["start_ns"] + steps["end_ns"]) // 2
            steps = steps[(middle >= begin) & (middle < end) & (steps["end_ns"] > steps["start_ns"])]
            ranges = [(step["step"], step["start_ns"], step["end_ns"]) for step in steps]
        self.overlap = np.array([_overlap_row(events, *one) for one in ranges], OVERLAP)


def _overlap_row(events: Rows, step: int, begin: int, end: int) -> tuple[int, ...]:
    """Return a row of `OVERLAP` with what of the events lies between two times."""
    start = np.maximum(events["start_ns"], begin)
    length = np.maximum(np.minimum(events["start_ns"] + events["duration_ns"], end) - start, 0)
    sums = dict.fromkeys(OVERLAP.names or (), MISSING)
    for number, name in enumerate(OVERLAP_KINDS):
        sums[name] = int(length[events["kind"] == number].sum())
    sums["step"] = int(step)
    return tuple(sums.values())
