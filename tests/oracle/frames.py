"""Frames and protobuf's wire encoding in plain Python, written from docs/format.md alone.

The modules of this folder are the independent reader of the tests: they share no code with the package. Slow, and
short: they show that the page says enough. `mindspore_files`, `tensorboard_files` and `ring_files` read what their
names say; `large_files` reads either kind of event file, of any size, and refuses one that is damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


def crc32c(data: bytes, begin: int = 0) -> int:
    """Return the CRC-32C of `data`, or of what has the checksum `begin` followed by `data`."""
    crc = begin ^ 0xFFFFFFFF
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
    return mask(crc32c(data))


def mask(crc: int) -> int:
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


def signed(value: Any) -> int:
    return value - 2**64 if value >= 2**63 else int(value)


def double(content: Any) -> float:
    return float(struct.unpack("<d", content)[0])


def all_fields(data: Any) -> dict[int, Any]:
    """The last content of each field."""
    return dict(fields(data))


def integers(data: bytes, number: int) -> list[int]:
    """A repeated integer, packed or not."""
    values = []
    for found, content in fields(data):
        if found == number and isinstance(content, int):
            values.append(signed(content))
        elif found == number:
            at = 0
            while at < len(content):  # type: ignore[arg-type]
                value, at = _varint(content, at)  # type: ignore[arg-type]
                values.append(signed(value))
    return values
