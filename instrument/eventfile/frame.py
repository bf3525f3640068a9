"""One frame: `u64 length | u32 masked crc(length) | payload | u32 masked crc(payload)`, little endian.

`pack` takes the payload in pieces so that a large tensor is never copied to be framed. `unpack` has three outcomes
that are never mixed: a payload, `None` for "these bytes end inside a frame", or `CorruptFrame`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from instrument.errors import CorruptFrame
from instrument.eventfile.crc import mask, masked_crc

HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
OVERHEAD_BYTES = HEADER.size + FOOTER.size

_LENGTH = struct.Struct("<Q")
_CRC_OF_ZERO_LENGTH = mask(crc32c(_LENGTH.pack(0)))
_SEARCH_BYTES = 1 << 20


def pack(payload: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The pieces of the frame around the concatenation of `payload`; each piece holds single bytes."""
    length = sum(len(piece) for piece in payload)
    head = HEADER.pack(length, mask(crc32c(_LENGTH.pack(length))))
    return [head, *payload, FOOTER.pack(masked_crc(payload))]


def unpack(data: bytes | memoryview, offset: int = 0) -> tuple[memoryview, int] | None:
    """Read the frame at `offset`.

    Returns its payload and the offset behind the frame, or None if `data` ends before the frame does.

    Raises:
        CorruptFrame: a checksum is wrong. Nothing is assumed about a length before its own checksum held.
    """
    view = memoryview(data)
    if len(view) - offset < HEADER.size:
        return None
    length, length_crc = HEADER.unpack_from(view, offset)
    if mask(crc32c(view[offset : offset + 8])) != length_crc:
        raise CorruptFrame("the checksum of the length is wrong", offset)
    start = offset + HEADER.size
    end = start + length
    if len(view) < end + FOOTER.size:
        return None
    payload = view[start:end]
    if mask(crc32c(payload)) != FOOTER.unpack_from(view, end)[0]:
        raise CorruptFrame("the checksum of the payload is wrong", offset)
    return payload, end + FOOTER.size


def find(data: bytes | memoryview, offset: int) -> int:
    """The offset of the first whole and valid frame at or behind `offset`; the length of `data` if there is none."""
    view = memoryview(data)
    last = len(view) - OVERHEAD_BYTES
    for start in range(offset, last + 1, _SEARCH_BYTES):
        for candidate in _plausible(view, start, min(start + _SEARCH_BYTES, last + 1)):
            try:
                if unpack(view, candidate) is not None:
                    return candidate
            except CorruptFrame:
                continue
    return len(view)


def _plausible(view: memoryview, start: int, stop: int) -> list[int]:
    """The offsets in [start, stop) where a length that fits into the rest of the data may begin."""
    import numpy as np  # only damage needs it

    window = np.frombuffer(view, dtype=np.uint8)
    lengths = np.ndarray((stop - start,), "<u8", window, start, (1,))
    checksums = np.ndarray((stop - start,), "<u4", window, start + 8, (1,))
    rest = len(view) - OVERHEAD_BYTES - np.arange(start, stop, dtype=np.uint64)
    # Blocks of zeros are common damage; a length of zero is only plausible beside its checksum.
    fits = (lengths <= rest) & ((lengths != 0) | (checksums == _CRC_OF_ZERO_LENGTH))
    return [start + int(index) for index in np.flatnonzero(fits)]
