"""Records of the ring: one event each, as bytes that can be checked and decoded long after both its processes are gone.

A record crosses from the trainer to a worker in shared memory, and it is what is left of an event when all processes
of a training are killed at once. So it is read by processes that did not write it, out of files that may be damaged or
hostile, and it is written by the training thread, which pays for each microsecond.

Strategy: fixed structs and length-prefixed UTF-8. The *head* describes the event, the *body* before it holds the bytes
of its arrays and messages, each at a multiple of 64 bytes, so that a worker uses them where they are. The head
follows the body because arrays may be staged before the rest of the event is known. The tags of a training's
steps are the same again and again, and so are its items but for their values: their encoding is cached by the tuple of
tags and by what the items are, the decoding of tags by its bytes.

Every record has a checksum over its header and its head. The body of a small record is checked with it. The checksum of
a large body takes as long as copying it, so such a record is published *unsealed*. A worker that cannot write for a
while adds the checksum of its body (`seal`). An unsealed record is valid as long as the machine has not been started
anew: memory that is mapped from a file outlives its processes, and publishing came after the copy. After a crash of the
machine nobody knows which pages were written back, and an unsealed record counts as damaged.

Rejected: `marshal` and `pickle` crash or run code when they are given hostile bytes, JSON and protobuf (MindSpore's
processes have the pure-Python one) take several times as long.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from instrument.errors import CorruptMessage
from instrument.eventfile.crc import crc32c
from instrument.events import (
    BFLOAT16,
    KINDS,
    SESSION_END,
    TRACE_KIND,
    ArrayItem,
    Event,
    MessageItem,
    StagedItem,
)

if TYPE_CHECKING:
    import numpy as np

Piece = bytes | memoryview
#: The pieces of a payload, how many bytes it has in all, and where its head begins, behind the body.
Packed = tuple[list[Piece], int, int]

ALIGNMENT_BYTES = 64
HEADER_BYTES = 64
#: The producer computes the checksum of bodies up to this size; larger ones get theirs later.
SEALED_BELOW_BYTES = 64 << 10
EVENT, PAD = 1, 2

#: Payload bytes, sequence number, where in the payload its head begins, kind. Behind it: the checksum with the head's.
FRONT = struct.Struct("<QQQI")
_CRC = struct.Struct("<I")
#: Place of the checksum of the body, and of the 1 that makes it valid: both are written with one 64-bit store.
_SEAL_AT = FRONT.size + _CRC.size
_HEADER = struct.Struct("<QQQIIII")
_SEALED = 1
_pack_front, _pack_header = FRONT.pack, _HEADER.pack_into

#: Step, wall time, number of scalars, bytes of their tags, number of aliases, number of items.
EVENT_HEAD = struct.Struct("<QdIIII")
U32 = struct.Struct("<I")
#: Kind, form (message or array), recorded dtype, dtype of the array, dims, bytes of the tag, offset, length.
ITEM = struct.Struct("<BBBBIIQQ")
MESSAGE, ARRAY = 0, 1
ALIAS = struct.Struct("<III")

KINDS_BY_NUMBER = (*KINDS, TRACE_KIND, SESSION_END, "gap")
_KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS_BY_NUMBER)}
#: Recorded dtypes; an item that is no tensor may have none.
DTYPES_BY_NUMBER = (
    "", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", BFLOAT16,
)  # fmt: skip
_DTYPE_NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES_BY_NUMBER)}
#: Types of arrays, in either byte order. None of them holds references.
CODES_BY_NUMBER = (
    "|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8",
    ">i2", ">i4", ">i8", ">u2", ">u4", ">u8", ">f2", ">f4", ">f8",
)  # fmt: skip
_CODE_NUMBERS = {code: number for number, code in enumerate(CODES_BY_NUMBER)}
MOST_DIMS = 64
#: An object in memory takes more than the bytes that describe it: a hostile record must not have too many.
MOST_SCALARS, MOST_ITEMS = 1 << 20, 1 << 17
_MASK = 0xFFFFFFFFFFFFFFFF

MOST_CACHED = 256
MOST_CACHED_BYTES = 64 << 10
#: How to pack the front of a head for a tuple of tags, and the encoded tags.
_packers: dict[tuple[str, ...], tuple[Any, int, bytes]] = {}
#: Kind, tag, recorded dtype, dtype and shape (None and empty for a message), offset and length of an item's bytes.
_Entry = tuple[str, str, str, Any, tuple[int, ...], int, int]
#: The encoded descriptions of an event's items: they change with the items, not with their values.
_entries: dict[tuple[_Entry, ...], bytes] = {}


def with_arrays(event: Event) -> Event:
    """Return an event with arrays for what was staged, which stays where it is until something is published."""
    items = [item.in_place() if isinstance(item, StagedItem) else item for item in event.items]
    return event._replace(items=items)


# ---------------------------------------------------------------------- writing


def pack(event: Event, staged: Collection[int] = (), staged_bytes: int = 0) -> Packed:
    """Encode an event as the payload of a record, without the parts that lie in the body already.

    `staged` has the `id` of each array that does, and `staged_bytes` is what they take there.

    Raises:
        ValueError: a part of the event has no encoding, such as an array of objects.
    """
    step, wall_time, items, scalars, aliases = event[:5]
    pack_values, count, tags = _packers.get(tuple(scalars)) or _packer(scalars)
    if not items and not aliases:  # as mostly
        head = pack_values(step & _MASK, wall_time, count, len(tags), 0, 0, *scalars.values()) + tags
        length = len(head)
        return [head], length + staged_bytes, staged_bytes
    if len(items) > MOST_ITEMS:
        raise ValueError(f"an event has {len(items)} items, a record at most {MOST_ITEMS}")
    pieces: list[Piece] = []
    offset = staged_bytes
    entries: list[_Entry] = []
    for item in items:
        if isinstance(item, StagedItem) and id(item.array) in staged:
            kind, tag, array, dtype = item
            entries.append((kind, tag, dtype, array.dtype, array.shape, array.offset, array.nbytes))
            continue
        assert isinstance(item, (ArrayItem, StagedItem, MessageItem)), item
        buffer = _buffer(item)
        length = len(buffer)
        if isinstance(item, MessageItem):
            entries.append((item.kind, item.tag, "", None, (), offset, length))
        else:
            entries.append((item.kind, item.tag, item.dtype, item.array.dtype, item.array.shape, offset, length))
        padding = -length % ALIGNMENT_BYTES
        pieces += (buffer, bytes(padding)) if padding else (buffer,)
        offset += length + padding
    key = tuple(entries)
    front = pack_values(step & _MASK, wall_time, count, len(tags), len(aliases), len(items), *scalars.values())
    head = b"".join((front, tags, _aliases(aliases), _entries.get(key) or _encode_entries(key)))
    pieces.append(head)
    return pieces, offset + len(head), offset


def _packer(scalars: Mapping[str, float]) -> tuple[Any, int, bytes]:
    if len(scalars) > MOST_SCALARS:
        raise ValueError(f"an event has {len(scalars)} scalars, a record at most {MOST_SCALARS}")
    tags = b"".join([U32.pack(len(name)) + name for name in map(_encoded, scalars)])
    packer = struct.Struct(f"{EVENT_HEAD.format}{len(scalars)}d").pack, len(scalars), tags
    if len(tags) <= MOST_CACHED_BYTES:
        if len(_packers) >= MOST_CACHED:
            _packers.clear()
        _packers[tuple(scalars)] = packer
    return packer


def _encoded(text: str) -> bytes:
    return str.encode(text, "utf-8", "surrogatepass")  # a subclass may have an `encode` of its own


def _aliases(aliases: Mapping[tuple[str, str], str]) -> bytes:
    parts = []
    for (kind, tag), alias in aliases.items():
        name, other = _encoded(tag), _encoded(alias)
        parts += [ALIAS.pack(_KIND_NUMBERS[kind], len(name), len(other)), name, other]
    return b"".join(parts)


def _encode_entries(entries: tuple[_Entry, ...]) -> bytes:
    encoded = b"".join([_encode_entry(*entry) for entry in entries])
    if len(encoded) <= MOST_CACHED_BYTES:
        if len(_entries) >= MOST_CACHED:
            _entries.clear()
        _entries[entries] = encoded
    return encoded


def _encode_entry(
    kind: str, tag: str, recorded: str, dtype: np.dtype[Any] | None, shape: tuple[int, ...], offset: int, length: int
) -> bytes:
    """Encode the description of an item whose bytes stand at `offset` of the body."""
    name = _encoded(tag)
    if dtype is None:
        return ITEM.pack(_KIND_NUMBERS[kind], MESSAGE, 0, 0, 0, len(name), offset, length) + name
    code, recorded_number = _CODE_NUMBERS.get(dtype.str), _DTYPE_NUMBERS.get(recorded)
    if code is None:
        raise ValueError(f"no record holds an array of dtype {dtype}")
    if recorded_number is None:
        raise ValueError(f"no record holds values of the type {recorded!r}")
    entry = ITEM.pack(_KIND_NUMBERS[kind], ARRAY, recorded_number, code, len(shape), len(name), offset, length)
    return b"".join((entry, name, struct.pack(f"<{len(shape)}Q", *shape)))


def _buffer(item: ArrayItem | StagedItem | MessageItem) -> Piece:
    if isinstance(item, MessageItem):
        return item.data
    if isinstance(item, StagedItem):
        return item.array.place
    return item.array.ravel().view("u1").data if item.array.size else b""


def write_header(
    data: memoryview, position: int, sequence: int, length: int, head_offset: int, head: Piece,
    body_crc: int | None = 0,
) -> None:  # fmt: skip
    """Write the header of an event's record to `position` of the ring; `body_crc` is None where it is not known yet.

    The rest of its 64 bytes is never read.
    """
    crc = crc32c(_pack_front(length, sequence, head_offset, EVENT) + head)  # one call takes less time than two
    if body_crc is None:
        _pack_header(data, position, length, sequence, head_offset, EVENT, crc, 0, 0)
    else:
        _pack_header(data, position, length, sequence, head_offset, EVENT, crc, body_crc, _SEALED)


def write_pad(data: memoryview, position: int, length: int) -> None:
    """Write the header of a record with `length` bytes behind it that hold nothing."""
    data[position : position + _HEADER.size] = _pad_header(length)


@functools.lru_cache(MOST_CACHED)  # records of one size have paddings of one size
def _pad_header(length: int) -> bytes:
    return _HEADER.pack(length, 0, 0, PAD, crc32c(_pack_front(length, 0, 0, PAD)), 0, _SEALED)


def seal(words: memoryview, position: int, body: memoryview) -> None:
    """Add the checksum of its body to the record whose header begins at byte `position` of the 64-bit `words`."""
    words[(position + _SEAL_AT) // 8] = _SEALED << 32 | crc32c(body)


# ---------------------------------------------------------------------- reading


class Header(NamedTuple):
    """What stands before a payload; `end` is where the next record begins, counted from this header."""

    length: int
    sequence: int
    head_offset: int
    kind: int
    crc: int
    body_crc: int
    is_sealed: bool

    @property
    def end(self) -> int:
        return HEADER_BYTES + self.length + -self.length % ALIGNMENT_BYTES


def read_header(data: memoryview, position: int, room: int) -> Header:
    """Return the header at `position`, behind which `room` bytes are left, the header's own among them.

    Raises:
        CorruptMessage: it is none, as its numbers show; its checksum is not looked at.
    """
    if room < HEADER_BYTES or len(data) - position < HEADER_BYTES:
        raise CorruptMessage(f"a record's header has {min(room, len(data) - position)} bytes")
    length, sequence, head_offset, kind, crc, body_crc, seal_mark = _HEADER.unpack_from(data, position)
    if kind not in (EVENT, PAD) or seal_mark not in (0, _SEALED):
        raise CorruptMessage(f"a record is of the unknown kind {kind}, seal {seal_mark}")
    if length > room - HEADER_BYTES or head_offset > length:
        raise CorruptMessage(f"a record claims {length} bytes, head at {head_offset}, where {room} are left")
    return Header(length, sequence, head_offset, kind, crc, body_crc, bool(seal_mark))


def verify(data: memoryview, position: int, header: Header, trusts_unsealed: bool) -> None:
    """Check the record at `position`; `trusts_unsealed` says that the machine runs on since it was written.

    Raises:
        CorruptMessage: a checksum is wrong, or is missing and nothing else vouches for the body.
    """
    verify_head(data, position, header)
    start = position + HEADER_BYTES
    if header.is_sealed:
        if header.kind == EVENT and crc32c(data[start : start + header.head_offset]) != header.body_crc:
            raise CorruptMessage("the checksum of a record's body is wrong")
    elif not trusts_unsealed:
        raise CorruptMessage("a record's body had no checksum yet when the machine stopped")


def verify_head(data: memoryview, position: int, header: Header) -> None:
    """Check the header and the head of the record at `position`.

    Raises:
        CorruptMessage: their checksum is wrong.
    """
    start = position + HEADER_BYTES
    head = bytes(data[start + header.head_offset : start + header.length]) if header.kind == EVENT else b""
    if crc32c(_pack_front(header.length, header.sequence, header.head_offset, header.kind) + head) != header.crc:
        raise CorruptMessage("the checksum of a record's head is wrong")
