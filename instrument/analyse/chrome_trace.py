"""Write captures as a Chrome trace, which Perfetto and chrome://tracing open.

Times are microseconds since the start of the trace with all three decimals of the nanosecond. What the start is on the
clock of the capture stands in the file. Events are written block by block: of a large trace only arrays are in memory.
"""

from __future__ import annotations

import gzip
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.analyse.intervals import NO_LANE, drawing_order, lanes
from instrument.analyse.timeline_events import (
    CROWDED,
    CounterTrack,
    EventText,
    TimelineEvents,
    Track,
    encoded,
    quoted,
    timeline_events,
)
from instrument.atomic_write import replacing
from instrument.trace.events import MISSING, Capture, Integers

_BLOCK_ROWS = 1 << 15
#: Beyond it the file gets little smaller, and the time several times as long.
_COMPRESSION = 3
_DECIMALS = [f".{thousandths:03d}" for thousandths in range(1000)]


class Written(NamedTuple):
    """How many events a timeline holds, and how many of what kind are not in it."""

    events: int
    left_out: dict[str, int]


def write(captures: Sequence[Capture], path: str | os.PathLike[str]) -> Written:
    """Write the timeline of all captures to `path`, compressed where it ends in `.gz`. A file there is replaced.

    Captures on the wall clock share one axis. Each other one begins at its own 0, and the names of its processes and
    `alignment` in the file say so. The file appears when it is whole.

    Raises:
        OSError: it cannot be written.
    """
    writer = _Writer(captures)
    with _replacing(os.fspath(path)) as file:
        for text in writer.texts():
            file.write(text)
    return Written(writer.events, dict(+writer.left_out))


@contextmanager
def _replacing(path: str) -> Iterator[io.TextIOWrapper]:
    """Open the text of a file that replaces the one at `path` when it is whole; every error names `path`."""
    try:
        with replacing(path) as raw:
            if path.endswith(".gz"):
                with (
                    gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as packed,
                    io.TextIOWrapper(packed, encoding="utf-8") as text,
                ):
                    yield text
            else:
                with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as text:
                    yield text
    except OSError as error:
        if error.errno is not None:
            raise type(error)(error.errno, error.strerror, path) from error
        raise


class _Writer:
    """Makes the text of the file, piece by piece, and counts what is in it."""

    def __init__(self, captures: Sequence[Capture]) -> None:
        self._captures = [(capture, timeline_events(capture)) for capture in captures]
        self._bases = _bases(self._captures)
        #: Numbers of processes and lanes: no two are equal, as viewers take a thread with its process's number for
        #: the main one.
        self._next = 1
        self.events = 0
        self.left_out: Counter[str] = Counter()

    def texts(self) -> Iterator[str]:
        yield '{"displayTimeUnit":"ms","traceEvents":[\n'
        separator = ""
        for (capture, events), base in zip(self._captures, self._bases, strict=True):
            self.left_out.update(events.left_out)
            for block in self._blocks(events, base, self._suffix(capture)):
                yield separator + ",\n".join(block)
                separator = ",\n"
        about = [self._about(capture, base) for (capture, _), base in zip(self._captures, self._bases, strict=True)]
        other: dict[str, object] = {"captures": about, "left_out": dict(+self.left_out)}
        if note := alignment(self._drawn()):
            other["alignment"] = note
        yield f'\n],"baseTimeNanoseconds":{next(iter(self._bases), 0)},"otherData":{encoded(other)}}}\n'

    def _drawn(self) -> list[Capture]:
        """Return the captures that have any event."""
        return [capture for capture, events in self._captures if events.processes()]

    def _about(self, capture: Capture, base: int) -> dict[str, object]:
        metadata = {key: capture.metadata[key] for key in ("versions", "user", "metadata") if key in capture.metadata}
        problems = [problem._asdict() for problem in capture.problems]
        about = {"device": capture.device, "target": capture.target, "clock": capture.clock, "base_ns": base}
        return {**about, "problems": problems, **metadata}

    def _suffix(self, capture: Capture) -> str:
        """Return what the names of a capture's processes say where it cannot be aligned with the others."""
        is_alone = len(self._captures) < 2 or not alignment(self._drawn()) or _is_shared(capture)
        return "" if is_alone else f" (not aligned: {capture.clock} clock)"

    def _blocks(self, events: TimelineEvents, base: int, suffix: str = "") -> Iterator[list[str]]:
        processes: dict[str, int] = {}
        names: list[str] = []
        for process in events.processes():
            processes[process] = number = self._number()
            names += _named("process", f"{process}{suffix}", f'"pid":{number}', number)
        if names:
            yield names
        for track in events.tracks:
            yield from self._track(track, processes[track.process], base)
        for counter in events.counters:
            yield from self._counter(counter, processes[counter.process], base)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _track(self, track: Track, process: int, base: int) -> Iterator[list[str]]:
        order = drawing_order(track.start_ns, track.duration_ns, track.nests)
        start, duration = track.start_ns[order], track.duration_ns[order]
        lane = lanes(start, start + duration, track.nests)
        self.left_out[CROWDED] += int((lane == NO_LANE).sum())
        for number in range(int(lane.max()) + 1):
            tid = self._number()
            where = f'"pid":{process},"tid":{tid}'
            yield _named("thread", track.name if not number else f"{track.name} ({number + 1})", where, tid)
            rows = np.flatnonzero(lane == number)
            self.events += len(rows)
            for first in range(0, len(rows), _BLOCK_ROWS):
                block = rows[first : first + _BLOCK_ROWS]
                yield _events(track, where, order[block], start[block] - base, duration[block])

    def _counter(self, counter: CounterTrack, process: int, base: int) -> Iterator[list[str]]:
        head = f'{{"ph":"C","name":{quoted(counter.name)},"pid":{process},"ts":'
        for first in range(0, len(counter.time_ns), _BLOCK_ROWS):
            block = slice(first, first + _BLOCK_ROWS)
            members = [_members(name, column[block]) for name, column in counter.columns.items()]
            times = _microseconds(counter.time_ns[block] - base)
            rows = (",".join(filter(None, row)) for row in zip(*members, strict=True))
            texts = [f'{head}{time},"args":{{{args}}}}}' for time, args in zip(times, rows, strict=True) if args]
            self.events += len(texts)
            if texts:
                yield texts


def _bases(captures: Sequence[tuple[Capture, TimelineEvents]]) -> list[int]:
    """Return the time that is 0 for each capture: the first of all on the wall clock, or its own first time."""
    firsts = [min((int(times.min()) for times in events.times() if len(times)), default=0) for _, events in captures]
    shared = [first for (capture, _), first in zip(captures, firsts, strict=True) if first and _is_shared(capture)]
    return [
        min(shared, default=0) if _is_shared(capture) else first
        for (capture, _), first in zip(captures, firsts, strict=True)
    ]


def alignment(captures: Sequence[Capture]) -> str:
    """Return a sentence on which of several captures have no place beside the others, empty where all have one."""
    apart = [capture for capture in captures if not _is_shared(capture)]
    if len(captures) < 2 or not apart:
        return ""
    which = ", ".join(f"{capture.device} ({capture.clock})" for capture in apart)
    return (
        f"The clocks of these devices cannot be aligned with the wall clock: {which}. In a timeline each of them "
        "begins at its own 0: what stands above each other there did not happen at the same time."
    )


def _is_shared(capture: Capture) -> bool:
    return capture.clock == "epoch"


def _named(kind: str, name: str, where: str, place: int) -> list[str]:
    """Return the metadata that names a process or lane and says its place."""
    head = f'{{"ph":"M",{where},"name":"{kind}_'
    return [
        f'{head}name","args":{{"name":{quoted(name)}}}}}',
        f'{head}sort_index","args":{{"sort_index":{place}}}}}',
    ]


def _events(track: Track, where: str, rows: NDArray[np.intp], start_ns: Integers, duration_ns: Integers) -> list[str]:
    texts: Sequence[EventText] = track.texts
    kinds, numbers = track.kind[rows], track.number[rows]
    heads = {kind: f'{{"ph":"X",{texts[kind].head},{where},"ts":' for kind in np.unique(kinds).tolist()}
    tails = _tails(texts, kinds, numbers)
    parts = (kinds.tolist(), _microseconds(start_ns), _microseconds(duration_ns), tails)
    return [f'{heads[kind]}{ts},"dur":{dur}{tail}' for kind, ts, dur, tail in zip(*parts, strict=True)]


def _tails(texts: Sequence[EventText], kinds: Integers, numbers: Integers) -> list[str]:
    """Return the text behind each duration: the arguments of the kind and the step, where they are known."""
    cache: dict[tuple[int, int], str] = {}
    tails = []
    for key in zip(kinds.tolist(), numbers.tolist(), strict=True):
        tail = cache.get(key)
        if tail is None:
            step = f'"step":{key[1]}' if key[1] != MISSING else ""
            args = ",".join(filter(None, (texts[key[0]].args, step)))
            tail = cache[key] = f',"args":{{{args}}}}}' if args else "}"
        tails.append(tail)
    return tails


def _microseconds(times: Integers) -> list[str]:
    """Format nanoseconds as the exact text of microseconds."""
    whole, rest = np.divmod(times, 1000)
    return [f"{micro}{_DECIMALS[nano]}" for micro, nano in zip(whole.tolist(), rest.tolist(), strict=True)]


def _members(name: str, values: Integers) -> list[str]:
    key = quoted(name)
    return ["" if value == MISSING else f"{key}:{value}" for value in values.tolist()]
