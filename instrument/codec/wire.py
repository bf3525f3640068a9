"""Primitives of protobuf's wire format, on which the hot path and the table codec (`message`) stand.

Encoders return *pieces*, a list of buffers whose concatenation is the message, so that large arrays are never copied.
Reading trusts nothing: each length is checked against what is there before it is used.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator

from instrument.errors import CorruptMessage

Buffer = bytes | memoryview
Pieces = list[Buffer]
#: What a field holds on the wire: an integer (varint), or the bytes of a fixed or length-delimited field.
Field = tuple[int, int, int | memoryview]

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_MAX_VARINT_BYTES = 10


def varint(value: int) -> bytes:
    """Return an unsigned varint; a negative number as its 64-bit two's complement, as protobuf has int32 and int64."""
    value &= 0xFFFFFFFFFFFFFFFF
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@functools.lru_cache(1024)
def key(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def integer(number: int, value: int) -> bytes:
    return key(number, VARINT) + varint(value)


def double(number: int, value: float) -> bytes:
    return key(number, FIXED64) + _DOUBLE.pack(value)


def delimited(number: int, data: Buffer) -> bytes:
    """Return a bytes, string or message field whose content is at hand and small."""
    return b"".join((key(number, LENGTH_DELIMITED), varint(len(data)), data))


def delimited_pieces(number: int, pieces: Pieces) -> Pieces:
    """Return a message field whose content is in pieces."""
    return [key(number, LENGTH_DELIMITED) + varint(size(pieces)), *pieces]


def size(pieces: Pieces) -> int:
    return sum(map(len, pieces))


def read_varint(data: Buffer, offset: int) -> tuple[int, int]:
    """Return the unsigned varint at `offset` and the offset behind it."""
    value = shift = 0
    for index in range(offset, min(offset + _MAX_VARINT_BYTES, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, index + 1
        shift += 7
    raise CorruptMessage(f"a number at byte {offset} of a message does not end")


def signed(value: int) -> int:
    """Return an int64 (or int32) out of the unsigned number on the wire."""
    return value - (1 << 64) if value >= 1 << 63 else value


def fields(data: memoryview) -> Iterator[Field]:
    """Iterate over the fields of a message in order, as (number, wire type, content).

    Raises:
        CorruptMessage: a field reaches past the end, or has a wire type that no field of ours has.
    """
    offset, end = 0, len(data)
    while offset < end:
        tag, offset = read_varint(data, offset)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise CorruptMessage("a message holds a field with number 0")
        if wire_type == VARINT:
            value, offset = read_varint(data, offset)
            yield number, wire_type, value
            continue
        if wire_type == LENGTH_DELIMITED:
            length, offset = read_varint(data, offset)
        elif wire_type == FIXED64:
            length = 8
        elif wire_type == FIXED32:
            length = 4
        else:
            raise CorruptMessage(f"a message holds a field of wire type {wire_type}")
        if length > end - offset:
            raise CorruptMessage(f"field {number} claims {length} bytes where {end - offset} are left")
        yield number, wire_type, data[offset : offset + length]
        offset += length


#: A field takes some hundred bytes of memory where it may take two of a file.
MOST_FIELDS = 100_000


def few_fields(data: memoryview, most: int = MOST_FIELDS) -> Iterator[Field]:
    """Iterate over the fields of a message that keeps them: more than `most` are refused."""
    for count, field in enumerate(fields(data)):
        if count == most:
            raise CorruptMessage(f"a message holds more than {most} fields")
        yield field


def integers(field: Field, most: int) -> list[int]:
    """Return the numbers of a repeated int64 or int32 field, packed or one a field; more than `most` are refused."""
    if field[1] == VARINT:
        return [as_int(field)]
    result: list[int] = []
    packed, offset = as_bytes(field), 0
    while offset < len(packed):
        if len(result) == most:
            raise CorruptMessage(f"field {field[0]} holds more than {most} numbers")
        number, offset = read_varint(packed, offset)
        result.append(signed(number))
    return result


#: A field by its place: number, wire type, and where its content begins and ends.
Span = tuple[int, int, int, int]


def spans(data: Buffer, offset: int, end: int) -> Iterator[Span]:
    """Iterate over the places of the fields of the message in `data[offset:end]`.

    Raises:
        CorruptMessage: as `fields` does.
    """
    while offset < end:
        tag = data[offset]
        offset += 1
        if tag >= 0x80:
            tag, offset = read_varint(data, offset - 1)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == LENGTH_DELIMITED:
            length, offset = read_varint(data, offset)
        elif wire_type == VARINT:
            length = read_varint(data, offset)[1] - offset
        elif wire_type == FIXED64:
            length = 8
        elif wire_type == FIXED32:
            length = 4
        else:
            raise CorruptMessage(f"a message holds a field of wire type {wire_type}")
        if number == 0:
            raise CorruptMessage("a message holds a field with number 0")
        if length > end - offset:
            raise CorruptMessage(f"field {number} claims {length} bytes where {max(end - offset, 0)} are left")
        yield number, wire_type, offset, offset + length
        offset += length


def expect(span: Span, wire_type: int) -> tuple[int, int]:
    """Return where the content of a field begins and ends; raise `CorruptMessage` if its wire type is another."""
    number, actual, start, end = span
    if actual != wire_type:
        raise CorruptMessage(f"field {number} has wire type {actual} where {wire_type} is expected")
    return start, end


def text_at(data: memoryview, start: int, end: int) -> str:
    """Return the text in `data[start:end]`, with surrogates for bytes that are not UTF-8."""
    return str(data[start:end], "utf-8", "surrogateescape")


def double_at(data: memoryview, start: int) -> float:
    result: float = _DOUBLE.unpack_from(data, start)[0]
    return result


def number_in(data: memoryview) -> float:
    """Return the float or double that four or eight bytes are."""
    result: float = (_FLOAT if len(data) == _FLOAT.size else _DOUBLE).unpack(data)[0]
    return result


def as_bytes(field: Field) -> memoryview:
    """Return the content of a length-delimited field."""
    number, wire_type, content = field
    if wire_type != LENGTH_DELIMITED or isinstance(content, int):
        raise CorruptMessage(f"field {number} has wire type {wire_type} where bytes are expected")
    return content


def as_text(field: Field) -> str:
    """Return the content of a string field; bytes that are not UTF-8 come back as surrogates, as `os.fsdecode` does."""
    return bytes(as_bytes(field)).decode("utf-8", "surrogateescape")


def as_int(field: Field) -> int:
    """Return the content of an int64 or int32 field."""
    number, wire_type, content = field
    if wire_type != VARINT or not isinstance(content, int):
        raise CorruptMessage(f"field {number} has wire type {wire_type} where a number is expected")
    return signed(content)
