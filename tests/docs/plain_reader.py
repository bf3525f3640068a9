"""A reader of event files in plain Python, written from docs/format.md alone: it imports nothing of the package.

Slow, and short: it shows that the page says enough. `open_run` is the page's last part, `frames` its second.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_NAME = re.compile(r".*\.out\.events\.(summary|profile)\.(\d+)\.(.*)", re.DOTALL)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (0x82F63B78 if entry & 1 else 0)  # 0x1EDC6F41, reflected
        table.append(entry)
    return table


_TABLE = _table()


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


# ---------------------------------------------------------------- frames


@dataclass
class Frames:
    """The payloads of a file, and (offset, bytes) of what is damaged; `torn` is where an unfinished frame begins."""

    payloads: list[bytes] = field(default_factory=list)
    damage: list[tuple[int, int]] = field(default_factory=list)
    torn: int | None = None


def frames(data: bytes) -> Frames:
    found, at = Frames(), 0
    while at < len(data):
        length = _length(data, at)
        if length is not None and at + 16 + length <= len(data):
            payload = data[at + 12 : at + 12 + length]
            end = at + 16 + length
            if masked(payload) == struct.unpack_from("<I", data, end - 4)[0]:
                found.payloads.append(payload)
            else:
                is_followed = len(data) - end < 12 or _length(data, end) is not None
                end = end if is_followed else _search(data, at + 1)
                found.damage.append((at, end - at))
            at = end
            continue
        end = _search(data, at + 1)
        if end == len(data) and (len(data) - at < 12 or length is not None):
            found.torn = at
        else:
            found.damage.append((at, end - at))
        at = end
    return found


def _length(data: bytes, at: int) -> int | None:
    if at + 12 > len(data):
        return None
    length, checksum = struct.unpack_from("<QI", data, at)
    return int(length) if masked(data[at : at + 8]) == checksum else None


def _search(data: bytes, at: int) -> int:
    for start in range(at, len(data) - 15):
        length = _length(data, start)
        if length is not None and start + 16 + length <= len(data):
            payload = data[start + 12 : start + 12 + length]
            if masked(payload) == struct.unpack_from("<I", data, start + 12 + length)[0]:
                return start
    return len(data)


# ---------------------------------------------------------------- protobuf's wire encoding


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and content of each field: an unsigned integer of a varint, the bytes of any other."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        if size is None:
            assert key & 7 == 2
            size, at = _varint(data, at)
        assert at + size <= len(data)
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _signed(value: Any) -> int:
    return value - 2**64 if value >= 2**63 else int(value)


def _double(content: Any) -> float:
    return float(struct.unpack("<d", content)[0])


def _all(data: Any) -> dict[int, Any]:
    """The last content of each field."""
    return dict(fields(data))


def _integers(data: bytes, number: int) -> list[int]:
    """A repeated integer, packed or not."""
    values = []
    for found, content in fields(data):
        if found == number and isinstance(content, int):
            values.append(_signed(content))
        elif found == number:
            at = 0
            while at < len(content):  # type: ignore[arg-type]
                value, at = _varint(content, at)  # type: ignore[arg-type]
                values.append(_signed(value))
    return values


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
    found = _all(data)
    dtype, letter = _DTYPES[found[2]]
    dims = _integers(data, 1)
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
    found = _all(data)
    buckets = []
    for number, content in fields(data):
        if number == 1:
            one = _all(content)
            buckets.append((_double(one[1]), _double(one[2]), one.get(3, 0)))
    facts = tuple(_double(found[number]) if number in found else None for number in (5, 6, 7))
    return Histogram(buckets, found.get(2, 0), (found.get(3, 0), found.get(4, 0)), found.get(8, 0), facts)


@dataclass
class Image:
    height: int
    width: int
    channels: int
    data: bytes
    mapping: str


def image(data: bytes) -> Image:
    found = _all(data)
    return Image(found[1], found[2], found[3], found[4], found.get(100, b"").decode())


def landscape(data: bytes) -> dict[str, Any]:
    found = _all(data)
    path = found.get(2, b"")
    arrays = {}
    for number, content in fields(data):
        if number == 101:
            named = _all(content)
            arrays[named[1].decode()] = tensor(named[2])
    words = _all(found.get(3, b""))
    return {
        "grid": _point(found[1]),
        "numbers": _integers(path, 1),
        "path": _point(_all(path)[2]) if path else [],
        "words": (words.get(1, b"").decode(), words.get(2, b"").decode(), words.get(3, 0)),
        "convergence": _point(found[4]) if 4 in found else [],
        "details": json.loads(found.get(100, b"{}")),
        "arrays": arrays,
    }


def _point(data: bytes) -> list[Tensor]:
    found = _all(data)
    return [tensor(found[number]) for number in (1, 2, 3)]


def _value(data: bytes) -> tuple[str, str, Any] | None:
    found = _all(data)
    tag = found[1].decode()
    if 3 in found:
        return "scalar", tag, _double(found[100]) if 100 in found else struct.unpack("<f", found[3])[0]
    for number, kind, read in (
        (4, "image", image), (8, "tensor", tensor), (9, "histogram", histogram), (10, "landscape", landscape),
    ):  # fmt: skip
        if number in found:
            return kind, tag, read(found[number])
    return None


def _graph(data: bytes) -> tuple[str, list[tuple[str, str, str]]]:
    """Its name, and (name, type, scope) of each node."""
    nodes = []
    for number, content in fields(data):
        if number == 1:
            node = _all(content)
            nodes.append(tuple(node.get(place, b"").decode() for place in (2, 3, 4)))
    return _all(data).get(2, b"").decode(), nodes  # type: ignore[return-value]


# ---------------------------------------------------------------- runs


@dataclass
class Event:
    wall_time: float = 0.0
    step: int = 0
    version: str = ""
    values: list[tuple[str, str, Any]] = field(default_factory=list)
    gap: tuple[int, int, int, str] | None = None
    piece: dict[int, Any] | None = None


def event(payload: bytes) -> Event:
    found = _all(payload)
    one = Event(_double(found[1]), _signed(found.get(2, 0)), found.get(3, b"").decode())
    if 4 in found:
        name, nodes = _graph(found[4])
        one.values.append(("graph", name, nodes))
    for number, content in fields(found.get(5, b"")):
        if number == 1 and (value := _value(content)) is not None:  # type: ignore[arg-type]
            one.values.append(value)
    if 100 in found:
        one.piece = _all(found[100])
    if 101 in found:
        gap = _all(found[101])
        one.gap = _signed(gap[1]), _signed(gap.get(2, 0)), _signed(gap.get(3, 0)), gap.get(4, b"").decode()
    return one


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
    parts: list[tuple[tuple[int, str], list[Event]]] = []
    for kind, _, rest, name in sorted(_names(directory), key=lambda one: (one[1], one[3])):
        with open(os.path.join(directory, name), "rb") as file:
            found = frames(file.read())
        run.damage += found.damage
        if rest.endswith("_lineage"):
            for payload in found.payloads:
                run.lineage += [(number, bytes(body)) for number, body in _all(payload).items() if number >= 6]
            continue
        events = [event(payload) for payload in found.payloads]
        if kind == "profile":
            _take_pieces(run, events)
            continue
        run.gaps += [one.gap for one in events if one.gap is not None]
        parts.append((_writer(rest), events))
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


def _merge(run: Run, parts: list[tuple[tuple[int, str], list[Event]]]) -> None:
    spans = [
        [one.wall_time for one in events if one.values or one.gap is not None] or [math.inf] for _, events in parts
    ]
    series: list[dict[tuple[str, str], dict[int, tuple[int, float, Any]]]] = []
    for _, events in parts:
        mine: dict[tuple[str, str], dict[int, tuple[int, float, Any]]] = {}
        for one in events:
            for kind, tag, value in one.values:
                mine.setdefault((kind, tag), {})[one.step] = one.step, one.wall_time, value
        series.append(mine)
    for at, mine in enumerate(series):
        for key, points in mine.items():
            last = math.inf
            for later in range(at + 1, len(parts)):
                restarted = parts[later][0] == parts[at][0] and max(spans[at]) < min(spans[later])
                if restarted and key in series[later]:
                    last = min(last, min(series[later][key]))
            run.points.setdefault(key, []).extend(point for step, point in points.items() if step < last)
    for found in run.points.values():
        found.sort(key=lambda point: point[:2])
