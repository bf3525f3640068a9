"""Turn a capture into the events of a timeline: tracks of what runs in a stream or thread, and counters, by process.

Events that cannot be drawn (no time, a negative duration, another clock) are left out and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from instrument.analyse.executions import count_executions, impossible, sort_out
from instrument.analyse.intervals import MOST_LANES, NO_LANE, lanes
from instrument.analyse.steps import per_step
from instrument.analyse.table import Value
from instrument.trace.events import (
    CPU,
    MISSING,
    SPAN_CALLBACK,
    SPAN_EPOCH,
    SPAN_FRAMEWORK,
    SPAN_STEP,
    SPAN_USER,
    Capture,
    Integers,
    Mask,
    Rows,
)
from instrument.trace.jsontext import Json

_TARGETS = {"cpu": "CPU", "ascend": "Ascend", "gpu": "GPU"}
_CATEGORIES = {
    SPAN_USER: "span", SPAN_STEP: "step", SPAN_EPOCH: "epoch", SPAN_CALLBACK: "callback", SPAN_FRAMEWORK: "framework",
}  # fmt: skip
#: The kind of events without a lane.
CROWDED = f"events beside more than {MOST_LANES} others of their stream"
_COUNTED = ("allocated_bytes", "reserved_bytes", "active_bytes")


@dataclass(frozen=True)
class EventText:
    """The parts that events of a kind have in common, as JSON: name and category, and the members of `args`."""

    head: str
    args: str = ""

    @staticmethod
    def of(name: str, category: str, **args: Value) -> EventText:
        given = {key: value for key, value in args.items() if value not in ("", None)}
        return EventText(f'"name":{quoted(name)},"cat":{quoted(category)}', encoded(given)[1:-1])


@dataclass(frozen=True, eq=False)
class Track:
    """Events of one stream or thread. `kind` is the row in `texts` of each, `number` its step, or MISSING.

    `nests`: events may lie within each other. In a stream of a device they follow each other.
    """

    process: str
    name: str
    nests: bool
    start_ns: Integers
    duration_ns: Integers
    kind: Integers
    texts: Sequence[EventText]
    number: Integers


@dataclass(frozen=True, eq=False)
class CounterTrack:
    """Values over time, such as sizes of memory. Those that are MISSING are left out."""

    process: str
    name: str
    time_ns: Integers
    columns: dict[str, Integers]


@dataclass
class TimelineEvents:
    """All events of a capture, the host first. `left_out` counts by kind the events that are not in it."""

    tracks: list[Track] = field(default_factory=list)
    counters: list[CounterTrack] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def processes(self) -> list[str]:
        """Return the names of the processes, in order."""
        names = [track.process for track in self.tracks] + [counter.process for counter in self.counters]
        return list(dict.fromkeys(names))

    def times(self) -> Iterator[Integers]:
        yield from (track.start_ns for track in self.tracks)
        yield from (counter.time_ns for counter in self.counters)


def encoded(value: object) -> str:
    """Encode as JSON without blanks and without NaN. What JSON does not know is its text."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def quoted(text: str) -> str:
    """Encode a name as JSON. Half a surrogate pair, which is no character, is replaced.

    Perfetto 52 shows `\\u7b97` as it stands, so letters are not written as escapes.
    """
    return json.dumps(_utf8(text), ensure_ascii=False)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _plain(value: object) -> Json:
    if isinstance(value, dict):
        return {_utf8(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (int, np.bool_)) or value is None:
        return value if value is None or isinstance(value, bool) else int(value)
    if isinstance(value, float) and np.isfinite(value):
        return float(value)
    return _utf8(str(value))


def timeline_events(capture: Capture) -> TimelineEvents:
    """Collect everything of a capture that has a time."""
    builder = _Builder(capture)
    builder.spans()
    builder.steps()
    builder.executions()
    builder.reduces()
    builder.fetches()
    builder.activities()
    builder.batches()
    builder.memory()
    return builder.events


class _Builder:
    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.events = TimelineEvents()
        self._device = f"{_TARGETS.get(capture.target, capture.target)} {capture.device}"
        self._host = self._device if capture.target == "cpu" else f"host of {self._device}"

    def _usable(self, rows: Rows, may_be_open: bool = False) -> Rows:
        """Return the rows with a time and an end. The others are counted."""
        is_good, left_out = sort_out(impossible(rows, may_be_open), len(rows))
        self.events.left_out.update(left_out)
        return rows[is_good]

    def _add(
        self,
        rows: Rows,
        texts: Sequence[EventText],
        kind: NDArray[np.integer],
        lane: tuple[str, str, bool],
        number: Integers | None = None,
    ) -> None:
        if len(rows):
            process, name, nests = lane
            if number is None:
                number = np.full(len(rows), MISSING, np.int64)
            row = (rows["start_ns"], rows["duration_ns"], kind.astype(np.int64))
            self.events.tracks.append(Track(process, name, nests, *row, texts, number))

    # ------------------------------------------------------------------ the host

    def spans(self) -> None:
        """Add marks and spans by thread. One that was still open lasts until the last thing that is known."""
        rows = self._usable(self._capture.spans, may_be_open=True).copy()
        is_open = rows["duration_ns"] == MISSING
        rows["duration_ns"][is_open] = np.maximum(self._end_ns() - rows["start_ns"][is_open], 0)
        of_framework = rows["kind"] == SPAN_FRAMEWORK
        for is_chosen, source in ((~of_framework, "spans"), (of_framework, "framework")):
            for thread in np.unique(rows["thread"][is_chosen]).tolist():
                chosen = is_chosen & (rows["thread"] == thread)
                texts, kind = self._texts_of_spans(rows[chosen], is_open[chosen])
                self._add(rows[chosen], texts, kind, (self._host, f"{source}, thread {thread}", True))

    def _texts_of_spans(self, rows: Rows, is_open: Mask) -> tuple[list[EventText], Integers]:
        number = np.where(np.isin(rows["kind"], (SPAN_STEP, SPAN_EPOCH)), rows["number"], MISSING)
        keys = np.stack([rows["name"], rows["kind"], number, is_open], axis=1).astype(np.int64)
        unique, kind = np.unique(keys, axis=0, return_inverse=True)
        return [self._text_of_span(*key) for key in unique.tolist()], kind.reshape(-1)

    def _text_of_span(self, name: int, kind: int, number: int, is_open: int) -> EventText:
        category = _CATEGORIES.get(kind, "span")
        title = self._capture.names[name]
        if number != MISSING:
            title = _title_of_step(number) if kind == SPAN_STEP else f"{title} {number}"
        return EventText.of(title, category, open=True if is_open else None)

    def _end_ns(self) -> int:
        capture = self._capture
        parts = (capture.spans, capture.executions, capture.activities)
        ends = [part["start_ns"] + np.maximum(part["duration_ns"], 0) for part in parts if len(part)]
        ends += [capture.steps["end_ns"]] if len(capture.steps) else []
        return int(max(end.max() for end in ends)) if ends else 0

    def steps(self) -> None:
        """Add the steps with their parts, but not those that are only the marks of the host again."""
        steps = with_parts(self._capture)
        is_whole = (steps["start_ns"] > 0) & (steps["end_ns"] >= steps["start_ns"])
        self.events.left_out["steps that end before they start"] += int((~is_whole).sum())
        marks = self._capture.spans[self._capture.spans["kind"] == SPAN_STEP]
        is_mark = np.isin(steps["start_ns"], marks["start_ns"])
        is_mark &= (steps["fp_start_ns"] == MISSING) & (steps["bp_end_ns"] == MISSING)
        steps = np.sort(steps[is_whole & ~is_mark], order=("start_ns", "end_ns"))
        lane = lanes(steps["start_ns"], steps["end_ns"], nests=False)
        self.events.left_out[CROWDED] += int((lane == NO_LANE).sum())
        for number in range(int(lane.max(initial=-1)) + 1):
            self._steps(steps[lane == number], f"steps ({number + 1})" if number else "steps")

    def _steps(self, steps: Rows, name: str) -> None:
        """Add steps that follow each other. A step and its parts share a lane, where parts of others would fit, too."""
        parts = [part for step in steps.tolist() for part in _parts_of_step(*step)]
        rows = np.array([(start, end - start) for _, start, end in parts], [("start_ns", "i8"), ("duration_ns", "i8")])
        texts = [EventText.of(title, "step") for title, _, _ in parts]
        self._add(rows, texts, np.arange(len(rows)), (self._device, name, True))

    # ------------------------------------------------------------------ the device

    def executions(self) -> None:
        """Add operators by side and stream. What the host calls for a device nests, its own operators do not."""
        rows, texts = self._usable(self._capture.executions), self._texts_of_operators()
        sides = [operator.side for operator in self._capture.operators]
        nests = self._capture.target != "cpu"
        for side in dict.fromkeys(sides):
            process, place = (self._host, "thread") if side == CPU else (self._device, "stream")
            of_side = rows[np.array([operator_side == side for operator_side in sides], np.bool_)[rows["operator"]]]
            for stream, chosen in _by(of_side, "stream"):
                lane = process, _lane(side, place, stream), side == CPU and nests
                self._add(chosen, texts, chosen["operator"], lane, chosen["step"])

    def activities(self) -> None:
        """Add what is below the operators, by stream."""
        texts, process = self._texts_of_operators(), f"{self._device}, below the operators"
        self._add_streams(self._capture.activities, texts, "operator", process, "activities")

    def _texts_of_operators(self) -> list[EventText]:
        return [
            EventText.of(
                name or full_name, side, full_name="" if name == full_name else full_name, type=kind, shapes=shapes
            )
            for full_name, name, kind, side, shapes in self._capture.operators
        ]

    def reduces(self) -> None:
        texts = [EventText.of(name, "communication") for name in self._capture.names]
        self._add_streams(self._capture.reduces, texts, "name", self._device, "communication")

    def _add_streams(self, rows: Rows, texts: Sequence[EventText], kind: str, process: str, name: str) -> None:
        """Add a track for each stream; `kind` is the column that says which of `texts` a row has."""
        for stream, chosen in _by(self._usable(rows), "stream"):
            self._add(chosen, texts, chosen[kind], (process, _lane(name, "stream", stream), False), chosen["step"])

    def fetches(self) -> None:
        rows = self._usable(self._capture.fetches)
        sizes, kind = np.unique(rows["queue_size"], return_inverse=True)
        texts = [
            EventText.of("get next", "data", queue_size=None if size == MISSING else size) for size in sizes.tolist()
        ]
        self._add(rows, texts, kind.reshape(-1), (self._device, "data queue", False), rows["step"])

    # ------------------------------------------------------------------ data and memory

    def batches(self) -> None:
        """Add each batch on its way to the consumer, and what the queue held when it was there."""
        batches = self._capture.batches
        if self._capture.metadata.get("batches_clock", self._capture.clock) != self._capture.clock:
            self.events.left_out["batches on another clock than the rest"] += len(batches)
            return
        process = f"data pipeline of {self._device}"
        usable = batches[batches["time_ns"] > 0]
        self.events.left_out["batches without a time"] += len(batches) - len(usable)
        self._count(process, "queue", usable, ("queue_size",))
        timed = usable[usable["total_ns"] >= 0]
        rows = np.zeros(len(timed), [("start_ns", "i8"), ("duration_ns", "i8")])
        rows["start_ns"], rows["duration_ns"] = timed["time_ns"] - timed["total_ns"], timed["total_ns"]
        texts = [EventText.of(f"batch {number}", "data") for number in timed["batch"].tolist()]
        self._add(rows, texts, np.arange(len(rows)), (process, "batches", False))

    def memory(self) -> None:
        memory = self._capture.memory
        usable = memory[memory["time_ns"] > 0]
        self.events.left_out["zero_timestamp"] += len(memory) - len(usable)
        self._count(self._device, "memory", usable, _COUNTED)

    def _count(self, process: str, name: str, rows: Rows, columns: Sequence[str]) -> None:
        rows = rows[np.argsort(rows["time_ns"], kind="stable")]
        values = {column: rows[column] for column in columns if (rows[column] != MISSING).any()}
        if values:
            self.events.counters.append(CounterTrack(process, name, rows["time_ns"], values))


def with_parts(capture: Capture) -> Rows:
    """Return the steps by start, with parts by the scopes of operators if the trace marks none."""
    rows = capture.steps[np.argsort(capture.steps["start_ns"], kind="stable")]
    if not len(rows) or (rows["fp_start_ns"] != MISSING).any() or (rows["bp_end_ns"] != MISSING).any():
        return rows
    table = per_step(capture, count_executions(capture))
    interval, tail = np.ma.asarray(table["iteration_interval_ns"]), np.ma.asarray(table["tail_ns"])
    rows["fp_start_ns"] = np.ma.filled(rows["start_ns"] + interval, MISSING)
    rows["bp_end_ns"] = np.ma.filled(rows["end_ns"] - tail, MISSING)
    return rows


def _by(rows: Rows, column: str) -> Iterator[tuple[int, Rows]]:
    """Yield the rows for each value of a column, in order."""
    for value in np.unique(rows[column]).tolist():
        yield value, rows[rows[column] == value]


def _lane(kind: str, place: str, number: int) -> str:
    return kind if number == MISSING else f"{kind}, {place} {number}"


def _title_of_step(number: int) -> str:
    return f"ProfilerStep#{number}"


def _parts_of_step(
    step: int, start: int, fp_start: int, bp_end: int, end: int, _model: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the step, and within it each of its parts that lies in order and lasts."""
    yield _title_of_step(step), start, end
    if start < fp_start <= end:
        yield "iteration interval", start, fp_start
    if start <= fp_start < bp_end <= end:
        yield "forward and backward", fp_start, bp_end
    if max(start, fp_start) <= bp_end < end:
        yield "tail", bp_end, end
