"""Read the event files of MindSpore's dialect in plain Python; `open_run` is the last part of docs/format.md."""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.frames import all_fields, double, fields, frames, integers, signed

_NAME = re.compile(r".*\.out\.events\.(summary|profile)\.(\d+)\.(.*)", re.DOTALL)

# ---------------------------------------------------------------- values

_DTYPES = {
    1: ("bool", "?"), 2: ("int8", "b"), 3: ("int16", "h"), 4: ("int32", "i"), 5: ("int64", "q"), 6: ("uint8", "B"),
    7: ("uint16", "H"), 8: ("uint32", "I"), 9: ("uint64", "Q"), 10: ("float16", "e"), 11: ("float32", "f"),
    12: ("float64", "d"), 46: ("bfloat16", "f"),
}  # fmt: skip


@dataclass
class Tensor:
    """`values` are Python numbers in C order."""

    dims: list[int]
    dtype: str
    values: list[Any]


def tensor(data: bytes) -> Tensor:
    found = all_fields(data)
    dtype, letter = _DTYPES[found[2]]
    dims = integers(data, 1)
    if 8 in found:
        values = list(struct.unpack(f"<{len(found[8]) // struct.calcsize(letter)}{letter}", found[8]))
    else:
        packed = found.get(3, b"")
        values = list(struct.unpack(f"<{len(packed) // 4}f", packed))
        if letter not in "fe":
            values = [bool(value) if letter == "?" else int(value) for value in values]
    assert len(values) == math.prod(dims)
    return Tensor(dims, dtype, values)


@dataclass
class Histogram:
    buckets: list[tuple[float, float, int]]
    nan: int
    infinities: tuple[int, int]
    count: int
    max_min_sum: tuple[float | None, ...]


def histogram(data: bytes) -> Histogram:
    found = all_fields(data)
    buckets = []
    for number, content in fields(data):
        if number == 1:
            one = all_fields(content)
            buckets.append((double(one[1]), double(one[2]), one.get(3, 0)))
    facts = tuple(double(found[number]) if number in found else None for number in (5, 6, 7))
    return Histogram(buckets, found.get(2, 0), (found.get(3, 0), found.get(4, 0)), found.get(8, 0), facts)


@dataclass
class Image:
    height: int
    width: int
    channels: int
    data: bytes
    mapping: str


def image(data: bytes) -> Image:
    found = all_fields(data)
    return Image(found[1], found[2], found[3], found[4], found.get(100, b"").decode())


def text(data: bytes) -> Tensor:
    return Tensor(integers(data, 2), "string", [one.decode() for number, one in fields(data) if number == 1])  # type: ignore[union-attr]


def landscape(data: bytes) -> dict[str, Any]:
    found = all_fields(data)
    path = found.get(2, b"")
    arrays = {}
    for number, content in fields(data):
        if number == 101:
            named = all_fields(content)
            arrays[named[1].decode()] = tensor(named[2])
    words = all_fields(found.get(3, b""))
    return {
        "grid": _point(found[1]),
        "numbers": integers(path, 1),
        "path": _point(all_fields(path)[2]) if path else [],
        "words": (words.get(1, b"").decode(), words.get(2, b"").decode(), words.get(3, 0)),
        "convergence": _point(found[4]) if 4 in found else [],
        "details": json.loads(found.get(100, b"{}")),
        "arrays": arrays,
    }


def _point(data: bytes) -> list[Tensor]:
    found = all_fields(data)
    return [tensor(found[number]) for number in (1, 2, 3)]


def _value(data: bytes) -> tuple[str, str, Any] | None:
    found = all_fields(data)
    tag = found[1].decode()
    if 3 in found:
        return "scalar", tag, double(found[100]) if 100 in found else struct.unpack("<f", found[3])[0]
    for number, kind, read in (
        (4, "image", image), (8, "tensor", tensor), (9, "histogram", histogram), (10, "landscape", landscape),
        (102, "text", text),
    ):  # fmt: skip
        if number in found:
            return kind, tag, read(found[number])
    return None


def _graph(data: bytes) -> tuple[str, list[tuple[str, str, str]]]:
    """Its name, and (name, type, scope) of each node."""
    nodes = []
    for number, content in fields(data):
        if number == 1:
            node = all_fields(content)
            nodes.append(tuple(node.get(place, b"").decode() for place in (2, 3, 4)))
    return all_fields(data).get(2, b"").decode(), nodes  # type: ignore[return-value]


# ---------------------------------------------------------------- runs


@dataclass
class Event:
    wall_time: float = 0.0
    step: int = 0
    version: str = ""
    values: list[tuple[str, str, Any]] = field(default_factory=list)
    gap: tuple[int, int, int, str] | None = None
    piece: dict[int, Any] | None = None
    start: Start | None = None
    end: tuple[int, str] | None = None


@dataclass
class Start:
    id: str
    number: int
    unfinished: dict[str, int]


def start(data: bytes) -> Start:
    found = all_fields(data)
    files = [all_fields(content) for number, content in fields(data) if number == 3]  # type: ignore[arg-type]
    return Start(found[1].decode(), found[2], {one[1].decode(): one.get(2, 0) for one in files})


def event(payload: bytes) -> Event:
    found = all_fields(payload)
    one = Event(double(found[1]), signed(found.get(2, 0)), found.get(3, b"").decode())
    if 4 in found:
        name, nodes = _graph(found[4])
        one.values.append(("graph", name, nodes))
    for number, content in fields(found.get(5, b"")):
        if number == 1 and (value := _value(content)) is not None:  # type: ignore[arg-type]
            one.values.append(value)
    if 100 in found:
        one.piece = all_fields(found[100])
    if 101 in found:
        one.gap = gap(found[101])
    if 102 in found:
        one.start = start(found[102])
    if 103 in found:
        end = all_fields(found[103])
        one.end = end[1], end.get(2, b"").decode()
    return one


def gap(data: bytes) -> tuple[int, int, int, str]:
    found = all_fields(data)
    return signed(found[1]), signed(found.get(2, 0)), signed(found.get(3, 0)), found.get(4, b"").decode()


@dataclass
class Run:
    """`points` are (step, wall time, value) by kind and tag, `raw` the files of windows by (window, device, name)."""

    points: dict[tuple[str, str], list[tuple[int, float, Any]]]
    gaps: list[tuple[int, int, int, str]]
    lineage: list[tuple[int, bytes]]
    raw: dict[tuple[int, int, str], bytes]
    damage: list[tuple[int, int]]


def open_run(directory: str) -> Run:
    run = Run({}, [], [], {}, [])
    parts: list[Part] = []
    for kind, _, rest, name in sorted(_names(directory), key=lambda one: (one[1], one[3])):
        with open(os.path.join(directory, name), "rb") as file:
            data = file.read()
        found = frames(data)
        run.damage += found.damage
        if rest.endswith("_lineage"):
            for payload in found.payloads:
                run.lineage += [(number, bytes(body)) for number, body in all_fields(payload).items() if number >= 6]
            continue
        events = [event(payload) for payload in found.payloads]
        if kind == "profile":
            _take_pieces(run, events)
            continue
        run.gaps += [one.gap for one in events if one.gap is not None]
        end = 16 + len(found.payloads[-1]) if events and events[-1].end is not None else 0
        parts.append(Part(name, *_writer(rest), events, len(data) - end))
    _merge(run, parts)
    return run


def _names(directory: str) -> Iterator[tuple[str, int, str, str]]:
    for name in os.listdir(directory):
        match = _NAME.fullmatch(name)
        if match is not None:
            yield match[1], int(match[2]), match[3], name


def _writer(rest: str) -> tuple[int, str]:
    first, dot, host = rest.partition(".")
    return (int(first), host) if dot and first.isdigit() else (-1, rest)


def _take_pieces(run: Run, events: list[Event]) -> None:
    for one in events:
        if one.piece is not None:
            piece = one.piece
            key = piece.get(1, 0), piece.get(3, 0), piece[4].decode()
            assert piece.get(5, 0) == len(run.raw.get(key, b""))
            run.raw[key] = run.raw.get(key, b"") + piece.get(7, b"")


@dataclass
class Part:
    name: str
    device: int
    host: str
    events: list[Event]
    content_bytes: int

    @property
    def times(self) -> list[float]:
        return [one.wall_time for one in self.events if one.values or one.gap is not None] or [math.inf]

    @property
    def start(self) -> Start | None:
        return self.events[0].start if self.events else None


def _goes_on(b: Part, a: Part) -> bool:
    if a.device != b.device or a is b:
        return False
    if b.start is None or (a.start is not None and a.start.number == b.start.number):
        return a.host == b.host and max(a.times) < min(b.times)
    listed = b.start.unfinished.get(a.name)
    if a.start is None and listed is None:
        return False
    if a.start is not None and a.start.number > b.start.number:
        return False
    if listed is None or a.content_bytes <= listed:
        return True
    return a.host == b.host and max(a.times) < b.events[0].wall_time


def _merge(run: Run, parts: list[Part]) -> None:
    series: list[dict[tuple[str, str], dict[int, tuple[int, float, Any]]]] = []
    for part in parts:
        mine: dict[tuple[str, str], dict[int, tuple[int, float, Any]]] = {}
        for one in part.events:
            for kind, tag, value in one.values:
                mine.setdefault((kind, tag), {})[one.step] = one.step, one.wall_time, value
        series.append(mine)
    for at, mine in enumerate(series):
        for key, points in mine.items():
            last = math.inf
            for other, theirs in enumerate(series):
                if key in theirs and _goes_on(parts[other], parts[at]):
                    last = min(last, min(theirs[key]))
            run.points.setdefault(key, []).extend(point for step, point in points.items() if step < last)
    for found in run.points.values():
        found.sort(key=lambda point: point[:2])
