"""One frame: `u64 length | u32 masked crc(length) | payload | u32 masked crc(payload)`, little endian.

`pack` takes the payload in pieces so that a large tensor is never copied to be framed. `unpack` has three outcomes
that are never mixed: a payload, `None` for "these bytes end inside a frame", or `CorruptFrame`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from instrument.errors import CorruptFrame
from instrument.eventfile.crc import MASK_DELTA, mask, masked_crc

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
OVERHEAD_BYTES = HEADER.size + FOOTER.size

_LENGTH = struct.Struct("<Q")
_CRC_OF_ZERO_LENGTH = mask(crc32c(_LENGTH.pack(0)))
_SEARCH_BYTES = 1 << 20


def head(length: int) -> bytes:
    """What stands before a payload of `length` bytes."""
    return HEADER.pack(length, mask(crc32c(_LENGTH.pack(length))))


def pack(payload: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The pieces of the frame around the concatenation of `payload`; each piece holds single bytes."""
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
    length = _length(view, offset)
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


def _length(view: memoryview, offset: int) -> int | None:
    """The payload length in the header at `offset`; None if its checksum is wrong."""
    length, length_crc = HEADER.unpack_from(view, offset)
    return length if mask(crc32c(view[offset : offset + _LENGTH.size])) == length_crc else None


def resume(data: bytes | memoryview, offset: int) -> int:
    """Where to read on behind the damaged frame at `offset`; the length of `data` if no frame follows.

    That is its own end where its length holds and leads to another header or to the end: a payload may itself hold
    frames (a recorded file), which are not this file's. Otherwise it is the next valid frame.
    """
    view = memoryview(data)
    if len(view) - offset >= HEADER.size and (length := _length(view, offset)) is not None:
        end = offset + OVERHEAD_BYTES + length
        rest = len(view) - end
        if 0 <= rest < HEADER.size or (rest >= HEADER.size and _length(view, end) is not None):
            return end
    return find(view, offset + 1)


def find(data: bytes | memoryview, offset: int) -> int:
    """The offset of the first whole and valid frame at or behind `offset`; the length of `data` if there is none."""
    view = memoryview(data)
    last = len(view) - OVERHEAD_BYTES
    for start in range(offset, last + 1, _SEARCH_BYTES):
        for candidate in _headers(view, start, min(start + _SEARCH_BYTES, last + 1)):
            try:
                if unpack(view, candidate) is not None:
                    return candidate
            except CorruptFrame:
                continue
    return len(view)


def _headers(view: memoryview, start: int, stop: int) -> list[int]:
    """The offsets in [start, stop) where a length stands that has its checksum and fits into the rest of the data."""
    import numpy as np  # only damage needs it

    window = np.frombuffer(view, dtype=np.uint8)
    lengths: NDArray[np.uint64] = np.ndarray((stop - start,), "<u8", window, start, (1,))
    checksums: NDArray[np.uint32] = np.ndarray((stop - start,), "<u4", window, start + _LENGTH.size, (1,))
    rest = len(view) - OVERHEAD_BYTES - np.arange(start, stop, dtype=np.uint64)
    # Blocks of zeros are common damage; a length of zero is only plausible beside its checksum.
    fits = (lengths <= rest) & ((lengths != 0) | (checksums == _CRC_OF_ZERO_LENGTH))
    indices = np.flatnonzero(fits)
    of_zeros, tables = _crc_tables()
    crcs = np.full(indices.size, of_zeros, np.uint32)
    for position, table in enumerate(tables):
        crcs ^= table[window[start + position :][indices]]
    masked = ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(MASK_DELTA)
    return [start + int(index) for index in indices[masked == checksums[indices]]]


@functools.cache
def _crc_tables() -> tuple[int, NDArray[np.uint32]]:
    """The checksum of eight zeros, and what each byte value at each of the eight places changes in it by XOR.

    Whole numbers in an array look like lengths at every second offset: too many for a call each.
    """
    import numpy as np

    of_zeros = crc32c(bytes(_LENGTH.size))
    rows = [[crc32c(_LENGTH.pack(byte << 8 * place)) ^ of_zeros for byte in range(256)] for place in range(8)]
    return of_zeros, np.array(rows, np.uint32)
