"""Read ring files in plain Python."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.frames import crc32c

_KINDS = (
    "scalar", "image", "tensor", "histogram", "landscape", "text", "graph", "train_lineage", "eval_lineage",
    "dataset_graph", "custom_lineage_data", "trace", "session_end", "gap",
)  # fmt: skip
_DTYPES = (
    "", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "bfloat16",
)  # fmt: skip
_VALUES = (
    "?", "b", "B", "<h", "<i", "<q", "<H", "<I", "<Q", "<e", "<f", "<d", ">h", ">i", ">q", ">H", ">I", ">Q", ">e", ">f",
    ">d",
)  # fmt: skip
_EVENT_FILE = re.compile(r".*(\.out\.events\.(summary|profile)\.\d+\..*|\.?tfevents\..*)", re.DOTALL)


@dataclass
class Item:
    kind: str
    tag: str
    dtype: str
    dims: list[int]
    #: Bytes of a message, or numbers in C order.
    value: Any


@dataclass
class Event:
    number: int
    step: int
    wall_time: float
    scalars: dict[str, float]
    aliases: dict[tuple[str, str], str]
    items: list[Item]


@dataclass
class RingFile:
    """`lengths` are the committed ones of the files called `names`; `events` belong behind them."""

    dialect: str
    host: str
    export_directory: str
    names: list[str]
    lengths: list[int]
    committed: int
    events: list[Event] = field(default_factory=list)
    damage: list[int] = field(default_factory=list)


def read_ring(path: str, boot_id: bytes) -> RingFile:
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"INSTRING"
    version, crc = struct.unpack_from("<II", data, 8)
    assert version == 1
    assert crc32c(data[16:2048]) == crc
    data_at, ring_bytes, rings = struct.unpack_from("<QQI", data, 16)
    trusts = data[72:88] == boot_id != bytes(16)
    texts, at = [], 96
    for _ in range(3):
        (length,) = struct.unpack_from("<H", data, at)
        texts.append(data[at + 2 : at + 2 + length].decode())
        at += 2 + length
    words = struct.unpack_from("<1088Q", data, 4096)
    slot = words[24:40] if words[0] % 2 else words[8:24]
    assert slot[15] == crc32c(struct.pack("<9Q", *slot[:9]), words[0] % 2**32)
    ring = RingFile(texts[1], texts[0], texts[2], _names(data), [slot[1], slot[2], slot[7], slot[8]], slot[0])
    for number in range(rings):
        whole = data[data_at + number * ring_bytes : data_at + (number + 1) * ring_bytes]
        tail, head = words[64 + 16 * number], words[72 + 16 * number]
        assert tail <= head <= tail + ring_bytes
        straight = bytes(whole[position % ring_bytes] for position in range(tail, head))
        _records(straight, ring, trusts)
    ring.events.sort(key=lambda event: event.number)
    return ring


def _names(data: bytes) -> list[str]:
    names = []
    for at in range(2048, 4096, 512):
        crc, length = struct.unpack_from("<II", data, at)
        name = data[at + 8 : at + 8 + length]
        assert not length or crc32c(name) == crc
        text = os.fsdecode(name)
        assert not length or ("/" not in text and _EVENT_FILE.fullmatch(text))
        names.append(text)
    return names


def _records(data: bytes, ring: RingFile, trusts: bool) -> None:
    at = 0
    while at + 64 <= len(data):
        length, number, head_offset, kind, crc, body_crc, sealed = struct.unpack_from("<QQQIIII", data, at)
        end = at + 64 + length + -length % 64
        payload = data[at + 64 : at + 64 + length]
        is_whole = length <= len(data) - at - 64 and head_offset <= length and kind in (1, 2)
        if not is_whole or crc32c(data[at : at + 28] + (payload[head_offset:] if kind == 1 else b"")) != crc:
            if not ring.damage or ring.damage[-1] != at - 64:
                ring.damage.append(at)
            at += 64
            continue
        is_right = crc32c(payload[:head_offset]) == body_crc if sealed else trusts
        if kind == 1 and not is_right:
            ring.damage.append(at)
        elif kind == 1 and number > ring.committed:
            ring.events.append(_event(number, payload, head_offset))
        at = end


def _event(number: int, payload: bytes, at: int) -> Event:
    step, wall_time, scalars, tag_bytes, aliases, items = struct.unpack_from("<qdIIII", payload, at)
    at += 32
    values = struct.unpack_from(f"<{scalars}d", payload, at)
    at += 8 * scalars
    end, tags = at + tag_bytes, []
    while at < end:
        (length,) = struct.unpack_from("<I", payload, at)
        tags.append(_text(payload, at + 4, length))
        at += 4 + length
    event = Event(number, step, wall_time, dict(zip(tags, values, strict=True)), {}, [])
    for _ in range(aliases):
        kind, first, second = struct.unpack_from("<III", payload, at)
        tag = _text(payload, at + 12, first)
        event.aliases[_KINDS[kind], tag] = _text(payload, at + 12 + first, second)
        at += 12 + first + second
    for _ in range(items):
        kind, form, dtype, code, dims, length, offset, count = struct.unpack_from("<BBBBIIQQ", payload, at)
        tag = _text(payload, at + 28, length)
        at += 28 + length
        data = payload[offset : offset + count]
        if form == 0:
            event.items.append(Item(_KINDS[kind], tag, "", [], data))
            continue
        shape = list(struct.unpack_from(f"<{dims}Q", payload, at))
        at += 8 * dims
        numbers = [value for (value,) in struct.iter_unpack(_VALUES[code], data)]
        event.items.append(Item(_KINDS[kind], tag, _DTYPES[dtype], shape, numbers))
    return event


def _text(data: bytes, at: int, length: int) -> str:
    return data[at : at + length].decode("utf-8", "surrogatepass")
