"""`Profile`: one window of a training, explained. `profile(path)` opens whatever holds one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from instrument import paths
from instrument.analyse import (
    advice,
    compare,
    idle,
    memory,
    operators,
    overlap,
    pipeline,
    ranks,
    report,
    save,
    sources,
    spans,
    steps,
    sums,
    timeline,
)
from instrument.analyse.compare import Comparison
from instrument.analyse.operators import KeyAverages
from instrument.analyse.table import Table
from instrument.errors import InstrumentError, NoSuchRun
from instrument.runs.hints import ranges
from instrument.trace.completeness import is_absence
from instrument.trace.events import MISSING, Capture, Problem

#: The parts of a capture that belong to steps by their number.
_BY_STEP = ("executions", "activities", "steps", "reduces", "fetches", "ai_cpu")


def profile(path: str | os.PathLike[str], window: int = -1, device: int | None = None) -> Profile:
    """Open one window of the profile at `path`: a trace event file, a run, a directory of raw files, or one of them.

    Args:
        window: which one of several, by its number; negative ones count from the end.
        device: which one of several devices the tables are of; by default the first.

    Raises:
        NoSuchRun: nothing of a profile is there.
        InstrumentError: there is no such window or device, or nothing of it can be read.
    """
    place = os.fsdecode(path)
    if paths.is_url(place):
        raise NoSuchRun(
            f"{place} is a URL; profiles are read from directories of this machine: {paths.url_hint(place)}"
        )
    pieces = sources.find(place)
    number = sources.choose(pieces, window, place)
    captures = [one for piece in pieces if piece.number == number for one in piece.captures()]
    if not any(map(_has_any, captures)):
        reasons = "; ".join(f"{file}: {what} ({amount})" for one in captures for file, what, amount in one.problems)
        raise InstrumentError(f"Window {number} of {place} holds nothing that can be read: {reasons or 'it is empty'}.")
    return Profile(place, sorted(captures, key=lambda one: one.device), device, sources.listed(pieces, number), number)


def nothing(path: str, target: str, reason: str) -> Profile:
    """A profile without anything in it; `reason` says why."""
    capture = Capture(0, target, "", metadata={"complete": False, "reason": reason})
    return Profile(path, [capture], None, sources.listed([], 0))


def _has_any(capture: Capture) -> bool:
    """Return True if a capture holds anything at all, or if all that it lacks are files that are empty or absent."""
    parts = (capture.executions, capture.totals, capture.steps, capture.spans, capture.memory, capture.batches)
    others = (capture.activities, capture.fetches, capture.overlap, capture.reduces, capture.pipeline)
    return (
        any(map(len, parts))
        or any(map(len, others))
        or bool(capture.metadata)
        or all(map(is_absence, capture.problems))
    )


class Profile:
    """One window of one device in tables; of several devices, `devices` compares them.

    `print(profile)` is the report. Tables have NumPy columns with units in their names, and `to_pandas()`. What the
    trace does not tell is masked or an empty table, with the reason in the notes of the table.

    `captures` are what the tables are made of, one a device; `capture` is that of the chosen one.
    """

    def __init__(
        self, path: str, captures: Sequence[Capture], device: int | None, windows: Table, number: int = 0
    ) -> None:
        self.path = path
        self.captures = tuple(captures)
        self.capture = _chosen(self.captures, device, path)
        #: The windows at the path; the column `is_shown` says which one this is.
        self.windows = windows
        self.number = number

    @property
    def device(self) -> int:
        return self.capture.device

    @property
    def target(self) -> str:
        """ "cpu", "ascend" or "gpu"."""
        return self.capture.target

    @property
    def metadata(self) -> Mapping[str, object]:
        """What the trace says about itself: versions, window, requested steps, your own metadata."""
        return self.capture.metadata

    @cached_property
    def counted(self) -> sums.Counted:
        """The executions that count in sums, and how many of which kind do not."""
        return sums.counted(self.capture)

    @cached_property
    def problems(self) -> Table:
        """What is not in the tables, or not in the sums: file, what, and how many times or bytes."""
        found: list[Problem] = [*self.capture.problems, *self.counted.problems()]
        columns: dict[str, Any] = {name: [getattr(one, name) for one in found] for name in Problem._fields}
        columns["amount"] = np.array(columns["amount"], np.int64)
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
        return memory.over_time(self.capture)

    @cached_property
    def memory_peaks(self) -> Table:
        """The peak of each kind of size, and at which step."""
        return memory.peaks(self.capture)

    @cached_property
    def idle(self) -> Table:
        """The largest gaps between operators."""
        return idle.gaps(self.capture, self.counted)

    @cached_property
    def idle_streams(self) -> Table:
        """Busy and idle time of each stream and thread."""
        return idle.by_stream(self.capture, self.counted)

    @cached_property
    def overlap(self) -> Table:
        """Computing and communication, and both at once."""
        return overlap.per_step(self.capture, self.counted)

    @cached_property
    def spans(self) -> Table:
        """Your spans and our callbacks by name, most time first."""
        return spans.by_name(self.capture)

    @cached_property
    def pipeline(self) -> Table:
        """The stages of the data pipeline."""
        return pipeline.stages(self.capture)

    @cached_property
    def batches(self) -> Table:
        """The batches that the data pipeline delivered."""
        return pipeline.batches(self.capture)

    @cached_property
    def advice(self) -> list[str]:
        """Sentences on what takes the time, each with its figures."""
        return list(advice.sentences(self))

    def each(self) -> list[Profile]:
        """A profile for each device of the window, this one among them."""
        return list(self._each)

    @cached_property
    def _each(self) -> tuple[Profile, ...]:
        return tuple(self if one is self.capture else self._of(one) for one in self.captures)

    @cached_property
    def spread(self) -> Table:
        """How far the ranks are apart in each step; see `instrument.analyse.ranks.spread`."""
        return ranks.spread(self.each())

    @cached_property
    def devices(self) -> Table:
        """One row a device, or rank, of the window; the notes name the slowest. See `instrument.analyse.ranks`."""
        return ranks.devices(self.each(), self.spread)

    def _of(self, capture: Capture) -> Profile:
        """The same window for another capture of it."""
        other = Profile(self.path, self.captures, capture.device, self.windows, self.number)
        other.capture = capture
        return other

    # ------------------------------------------------------------------ questions

    def of_steps(self, first: int, last: int) -> Profile:
        """The same with the steps from `first` to `last` only, both included.

        Raises:
            InstrumentError: the window has none of them.
        """
        numbers = self.capture.steps["step"]
        if not ((numbers >= first) & (numbers <= last)).any():
            has = f"it has {numbers.min()} to {numbers.max()}" if len(numbers) else "it has no step marks"
            raise InstrumentError(f"Window {self.number} of {self.path} has no steps {first} to {last}; {has}.")
        kept = [_of_steps(one, first, last) for one in self.captures]
        return Profile(self.path, kept, self.device, self.windows, self.number)

    def key_averages(self) -> KeyAverages:
        """Operators by full name; `table(sort_by, row_limit)` is a text."""
        return KeyAverages(self.operators)

    def op_analyse(self, op_name: str | Sequence[str], device_id: int | None = None) -> str:
        """JSON about operators by type, side and shapes of inputs; see `instrument.analyse.operators.op_analyse`."""
        capture = self.capture if device_id is None else _chosen(self.captures, device_id, self.path)
        counted = self.counted if capture is self.capture else sums.counted(capture)
        return operators.op_analyse(capture, counted, op_name)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline of all devices for Perfetto or chrome://tracing; compressed if `path` ends in `.gz`."""
        timeline.write(self.captures, path)

    def compare(self, base: Profile) -> Comparison:
        """This profile beside `base`: steps and operators with their differences."""
        return compare.compare(base, self)

    def save(self, directory: str | os.PathLike[str], pretty: bool = False) -> list[str]:
        """Write all tables as CSV and JSON below `directory`; see `instrument.analyse.save`. Returns the paths."""
        return save.save(self, os.fspath(directory), pretty)

    # ------------------------------------------------------------------ for people

    def __str__(self) -> str:
        return report.text(self)

    def __repr__(self) -> str:
        return f"Profile({self.path!r}, window={self.number}, device={self.device})"

    def _repr_html_(self) -> str:
        return report.html(self)


def _chosen(captures: Sequence[Capture], device: int | None, path: str) -> Capture:
    if device is None:
        return captures[0]
    found = [one for one in captures if one.device == device]
    if not found:
        devices = ranges(one.device for one in captures)
        raise InstrumentError(f"{path} has no device {device} in this window; it has {devices}.")
    return found[-1]


def _of_steps(capture: Capture, first: int, last: int) -> Capture:
    parts: dict[str, Any] = {}
    for name in _BY_STEP:
        rows = getattr(capture, name)
        parts[name] = rows[(rows["step"] >= first) & (rows["step"] <= last)]
    steps_kept = parts["steps"]
    known = steps_kept[steps_kept["start_ns"] != MISSING]
    begin, end = (int(known["start_ns"].min()), int(known["end_ns"].max())) if len(known) else (0, 0)
    for name, time in (("spans", "start_ns"), ("memory", "time_ns")):
        rows = getattr(capture, name)
        parts[name] = rows[(rows[time] >= begin) & (rows[time] < end)]
    rows = capture.overlap
    parts["overlap"] = rows[(rows["step"] >= first) & (rows["step"] <= last)]
    parts["metadata"] = {**capture.metadata, "steps_shown": [first, last]}
    return dataclasses.replace(capture, **parts)
