"""One frame: `u64 length | u32 masked crc(length) | payload | u32 masked crc(payload)`, little endian.

`pack` takes the payload in pieces so that a large tensor is never copied to be framed. `unpack` has three outcomes
that are never mixed: a payload, `None` for "these bytes end inside a frame", or `CorruptFrame`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

from instrument.errors import CorruptFrame
from instrument.eventfile.crc import crc32c, mask, masked_crc

HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
OVERHEAD_BYTES = HEADER.size + FOOTER.size

_LENGTH = struct.Struct("<Q")
CRC_OF_ZERO_LENGTH = mask(crc32c(_LENGTH.pack(0)))


@functools.lru_cache(maxsize=1024)  # the frames of a training's steps have few lengths
def head(length: int) -> bytes:
    """Return the header of a payload of `length` bytes."""
    return HEADER.pack(length, mask(crc32c(_LENGTH.pack(length))))


def pack(payload: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the pieces of the frame around the concatenation of `payload`; each piece holds single bytes."""
    length = sum(len(piece) for piece in payload)
    return [head(length), *payload, FOOTER.pack(masked_crc(payload))]


def unpack(data: bytes | memoryview, offset: int = 0) -> tuple[memoryview, int] | None:
    """Read the frame at `offset`.

    Returns its payload and the offset behind the frame, or None if `data` ends before the frame does.

    Raises:
        CorruptFrame: a checksum is wrong. Nothing is assumed about a length before its own checksum held.
    """
    view = memoryview(data)
    if len(view) - offset < HEADER.size:
        return None
    length = length_at(view, offset)
    if length is None:
        raise CorruptFrame("the checksum of the length is wrong", offset)
    start = offset + HEADER.size
    end = start + length
    if len(view) < end + FOOTER.size:
        return None
    payload = view[start:end]
    if mask(crc32c(payload)) != FOOTER.unpack_from(view, end)[0]:
        raise CorruptFrame("the checksum of the payload is wrong", offset)
    return payload, end + FOOTER.size


def length_at(view: memoryview, offset: int) -> int | None:
    """Return the payload length in the header at `offset`; None if its checksum is wrong."""
    length: int
    length, length_crc = HEADER.unpack_from(view, offset)
    return length if mask(crc32c(view[offset : offset + _LENGTH.size])) == length_crc else None
