"""The tables of a profile: every figure about one window of one device, each computed once.

Problem. A dozen readers want the same figures. The report prints them, advice draws conclusions from them, a comparison
subtracts two sets of them, stragglers puts ranks side by side, saving writes them as CSV, JSON and MindInsight's files,
and users look at them in Python. Each figure takes passes over up to millions of executions, and some need others: the
mean step needs the steps, which need the executions that count.

Strategy. `ProfileTables` holds the captures of a window, computes each table on first use, and keeps it. The
computation is a function of arrays that knows nothing of this class: in a module for each question (steps, operators,
pipeline, busy), or below for the short ones (memory, spans). Conclusions stand above: advice, comparison, stragglers,
report, save and mindinsight take a `ProfileTables` and return words, tables or files. On top of all is
`instrument.analyse.profile.Profile`, a `ProfileTables` with the verbs that users call. Imports go that way only.

Rejected: one class with tables and verbs, which all of them take. Then the class imports the report and the report
imports the class. Nobody can read or test one of them alone, and a type for the argument is an import cycle.

Rejected as well: computing all tables when a profile is opened. `instrument profile --steps` of a large trace would
wait for gaps and operators that it does not print.

Times are integers in nanoseconds on the clock of the capture, sizes are bytes. A value that the trace does not have is
masked, never guessed, and the notes of a table say what is missing and why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from instrument.analyse import busy, executions, operators, pipeline, steps
from instrument.analyse.groupby import aggregate, factorize, mask_missing
from instrument.analyse.table import ColumnData, Table
from instrument.errors import InstrumentError
from instrument.trace.events import MISSING, SPAN_CALLBACK, SPAN_FRAMEWORK, SPAN_USER, Capture, steps_at
from instrument.wording import ranges

Self = TypeVar("Self", bound="ProfileTables")

#: The parts of a capture that belong to steps by their number.
_BY_STEP = ("executions", "activities", "steps", "reduces", "fetches", "ai_cpu", "overlap")


class ProfileTables:
    """One window of one device in tables. `each` has those of the other devices.

    `captures` are what the tables are made of, one a device. `capture` is that of the chosen one.
    """

    def __init__(
        self, path: str, captures: Sequence[Capture], device: int | None, windows: Table, number: int = 0
    ) -> None:
        self.path = path
        self.captures = tuple(captures)
        self.capture = choose_device(self.captures, device, path)
        #: The windows at the path; the column `is_shown` says which one this is.
        self.windows = windows
        self.number = number
        self._ranks: list[Any] = []

    @property
    def device(self) -> int:
        """The number of the device, or the rank."""
        return self.capture.device

    @property
    def target(self) -> str:
        """ "cpu", "ascend" or "gpu"."""
        return self.capture.target

    @property
    def metadata(self) -> Mapping[str, object]:
        """Facts in the trace about itself: versions, window, requested steps, your own metadata."""
        return self.capture.metadata

    @cached_property
    def counted(self) -> executions.CountedExecutions:
        """The executions that count in sums, and how many of which kind do not."""
        return executions.count_executions(self.capture)

    @cached_property
    def problems(self) -> Table:
        """Losses: what of which file is not in the tables, or not in the sums, and how many times or bytes."""
        problems = [*self.capture.problems, *self.counted.problems()]
        columns: dict[str, ColumnData] = {
            "file": [problem.file for problem in problems],
            "what": [problem.what for problem in problems],
            "amount": np.array([problem.amount for problem in problems], np.int64),
        }
        return Table("problems", columns, "Not in the tables")

    # ------------------------------------------------------------------ tables

    @cached_property
    def steps(self) -> Table:
        """See `instrument.analyse.steps.per_step`."""
        return steps.per_step(self.capture, self.counted)

    @cached_property
    def step_parts(self) -> Table:
        """The parts of a step on average."""
        return steps.averages(self.steps)

    @cached_property
    def own_ns(self) -> dict[int, int]:
        """Step -> its time without that in which the device only communicated, for the steps whose time is known."""
        return busy.own_ns(self.capture, self.counted, self.steps)

    @cached_property
    def operators(self) -> Table:
        """Operators by full name, most time first."""
        return operators.by_name(self.capture, self.counted)

    @cached_property
    def operator_types(self) -> Table:
        """Operators by type, most time first."""
        return operators.by_type(self.capture, self.counted)

    @cached_property
    def sides(self) -> Table:
        """Operators by where they run."""
        return operators.by_side(self.capture, self.counted)

    @cached_property
    def memory(self) -> Table:
        """Memory over time, in bytes."""
        return memory_over_time(self.capture)

    @cached_property
    def memory_peaks(self) -> Table:
        """The peak of each kind of size, and at which step."""
        return memory_peaks(self.memory)

    @cached_property
    def idle(self) -> Table:
        """The largest gaps between operators."""
        return busy.idle_gaps(self.capture, self.counted)

    @cached_property
    def idle_streams(self) -> Table:
        """Busy and idle time of each stream and thread."""
        return busy.idle_streams(self.capture, self.counted)

    @cached_property
    def overlap(self) -> Table:
        """Computing and communication, and both at once."""
        return busy.overlap(self.capture, self.counted)

    @cached_property
    def spans(self) -> Table:
        """Your spans and the callbacks of instrument by name, most time first."""
        return spans_by_name(self.capture)

    @cached_property
    def waiting(self) -> pipeline.Verdict:
        """The verdict on the data pipeline: does the training wait for it, and for which stage?"""
        return pipeline.verdict(self.capture, self.steps)

    @cached_property
    def pipeline(self) -> Table:
        """The stages of the data pipeline."""
        return pipeline.stages(self.capture, self.waiting)

    @cached_property
    def batches(self) -> Table:
        """The batches that the data pipeline delivered."""
        return pipeline.batches(self.capture)

    # ------------------------------------------------------------------ other devices, other steps

    def each(self: Self) -> list[Self]:
        """Return the same for each device of the window, this one among them."""
        if not self._ranks:
            self._ranks = [self if capture is self.capture else self._of(capture) for capture in self.captures]
            for rank in self._ranks:
                rank._ranks = self._ranks
        return list(self._ranks)

    def _of(self: Self, capture: Capture) -> Self:
        other = type(self)(self.path, self.captures, capture.device, self.windows, self.number)
        other.capture = capture  # two captures may have the number of one device
        return other

    def of_steps(self: Self, first: int, last: int) -> Self:
        """Return the same with the steps from `first` to `last` only, both included.

        Raises:
            InstrumentError: the window has none of them.
        """
        numbers = self.capture.steps["step"]
        if not ((numbers >= first) & (numbers <= last)).any():
            has = f"it has {numbers.min()} to {numbers.max()}" if len(numbers) else "it has no step marks"
            raise InstrumentError(f"Window {self.number} of {self.path} has no steps {first} to {last}; {has}.")
        kept = [_of_steps(capture, first, last) for capture in self.captures]
        return type(self)(self.path, kept, self.device, self.windows, self.number)


def choose_device(captures: Sequence[Capture], device: int | None, path: str) -> Capture:
    """Return the capture of a device, the first of all for None.

    Raises:
        InstrumentError: there is no such device. The message names those that there are.
    """
    if device is None:
        return captures[0]
    of_device = [capture for capture in captures if capture.device == device]
    if not of_device:
        devices = ranges(capture.device for capture in captures)
        raise InstrumentError(f"{path} has no device {device} in this window; it has {devices}.")
    return of_device[-1]


def _of_steps(capture: Capture, first: int, last: int) -> Capture:
    parts: dict[str, Any] = {}
    for name in _BY_STEP:
        rows = getattr(capture, name)
        parts[name] = rows[(rows["step"] >= first) & (rows["step"] <= last)]
    timed = parts["steps"][parts["steps"]["start_ns"] != MISSING]
    begin, end = (int(timed["start_ns"].min()), int(timed["end_ns"].max())) if len(timed) else (0, 0)
    for name, time in (("spans", "start_ns"), ("memory", "time_ns")):
        rows = getattr(capture, name)
        parts[name] = rows[(rows[time] >= begin) & (rows[time] < end)]
    parts["metadata"] = {**capture.metadata, "steps_shown": [first, last]}
    return dataclasses.replace(capture, **parts)


# ---------------------------------------------------------------- memory and spans

_SIZES = ("allocated_bytes", "reserved_bytes", "active_bytes")


def memory_over_time(capture: Capture) -> Table:
    """Tabulate the samples by time: `time_ns` on the clock of the capture, step, and sizes in bytes."""
    samples = capture.memory[np.argsort(capture.memory["time_ns"], kind="stable")]
    columns = {
        "time_ns": samples["time_ns"],
        "step": mask_missing(steps_at(samples["time_ns"], capture.steps)),
        **{name: mask_missing(samples[name]) for name in _SIZES},
    }
    notes = [] if len(samples) else ["n/a: the trace has no samples of memory (profile_memory)."]
    return Table("memory", columns, "Memory over time", notes)


def memory_peaks(table: Table) -> Table:
    """Tabulate the peaks, one row a kind of size, of the table of `memory_over_time`: when and in which step."""
    rows = []
    for name in _SIZES:
        places = np.flatnonzero(~np.ma.getmaskarray(table[name]))
        if len(places):
            values = np.ma.getdata(table[name])[places]
            place = int(places[np.argmax(values)])
            step, time = (table[column][place : place + 1].tolist()[0] for column in ("step", "time_ns"))
            sizes = (int(value) for value in (values[0], values[-1]))
            rows.append((name.removesuffix("_bytes"), int(values.max()), step, time, *sizes))
    heads = ("kind", "peak_bytes", "step", "time_ns", "first_bytes", "last_bytes")
    return Table.of_rows("memory_peaks", heads, rows, "Peaks of memory", table.notes)


_SPAN_KINDS = {SPAN_USER: "span", SPAN_CALLBACK: "callback", SPAN_FRAMEWORK: "framework"}
_NESTED_SPANS = "Spans lie inside of each other and run on several threads: their times do not add up."


def spans_by_name(capture: Capture) -> Table:
    """Tabulate the spans, one row a name and kind ("span", "callback" or "framework"), most time first.

    `threads` is on how many threads it ran. `open` is how many had not ended when the window closed, which are not in
    `count` and the times.
    """
    rows = capture.spans[np.isin(capture.spans["kind"], list(_SPAN_KINDS))]
    keys, group = factorize(list(zip(rows["name"].tolist(), rows["kind"].tolist(), strict=True)))
    ended = rows["duration_ns"] != MISSING
    sums = aggregate(group[ended], rows["duration_ns"][ended], len(keys))
    columns: dict[str, ColumnData] = {
        "name": [capture.names[name] for name, _ in keys],
        "kind": [_SPAN_KINDS[kind] for _, kind in keys],
        "threads": np.bincount(np.unique(np.stack([group, rows["thread"]]), axis=1)[0], minlength=len(keys)),
        "count": sums.count,
        "open": np.bincount(group[~ended], minlength=len(keys)),
        "total_ns": sums.total,
        "mean_ns": sums.total / np.maximum(sums.count, 1),
        "min_ns": sums.min,
        "max_ns": sums.max,
    }
    notes = [_NESTED_SPANS] if len(keys) else ["n/a: the trace has no spans."]
    return Table("spans", columns, "Spans of the host", notes).sorted_by("total_ns")
