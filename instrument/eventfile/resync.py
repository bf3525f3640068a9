"""Resynchronise a reader after damage: find the next valid frame, at any byte offset.

A candidate is a place where eight bytes, read as a length, are followed by their checksum and fit into the rest of the
file. A hostile file holds thousands of candidates whose payloads reach to its end, so a payload's checksum is not
computed from its bytes: a checksum is linear over XOR, and that of `data[a:b]` follows from those of `data[:a]` and
`data[:b]`. The checksum of every fourth kilobyte's beginning is kept, and no byte is read twice for two candidates.
The part that is searched at once begins small and doubles: many places of damage close to each other cost no more than
one.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from instrument.eventfile import crcs, frame
from instrument.eventfile.access import OpenFile
from instrument.eventfile.crc import crc32c, mask

_FIRST_BYTES, _MOST_BYTES = 4 << 10, 1 << 20
_MARK_BYTES = 4 << 10
#: Payloads up to this size are simply read.
_SHORT_BYTES = 64 << 10
#: CRC-32C's, with its bits reversed.
_POLYNOMIAL = 0x82F63B78


class Resync:
    """Find frames in the first `size_bytes` of a file."""

    def __init__(self, file: OpenFile, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        #: Where the marks begin, and the checksum of what stands between there and each of them.
        self._origin = 0
        self._marks: list[int] = []

    def find(self, offset: int) -> int:
        """Return the offset of the first valid frame at or behind `offset`; the file's size if there is none."""
        last = self._size_bytes - frame.OVERHEAD_BYTES
        part_bytes = _FIRST_BYTES
        while offset <= last:
            stop = min(offset + part_bytes, last + 1)
            for candidate, length in self._headers(offset, stop):
                if self.is_valid(candidate, length):
                    return candidate
            offset = stop
            part_bytes = min(2 * part_bytes, _MOST_BYTES)
        return self._size_bytes

    def resume(self, offset: int) -> int:
        """Return where to read on behind the damaged frame at `offset`; the size of the file if no frame follows.

        That is its own end where its length holds and leads to another header or to the end: a payload may itself hold
        frames (a recorded file), which are not this file's. Otherwise it is the next valid frame. A few bytes at the
        end of the file may be the beginning of a header, unless a valid frame begins in the payload and ends behind it:
        then bytes were cut out, and the length leads into a later frame.
        """
        length = self.length(offset)
        if length is None:
            return self.find(offset + 1)
        end = offset + frame.OVERHEAD_BYTES + length
        rest = self._size_bytes - end
        if rest == 0 or (rest >= frame.HEADER.size and self.length(end) is not None):
            return end
        first = self.find(offset + 1)
        return end if 0 < rest < frame.HEADER.size and not self._is_crossed(first, end) else first

    def _is_crossed(self, start: int, end: int) -> bool:
        """Return True if a valid frame from `start` on begins in the payload that ends before `end`, and ends later."""
        last = end - frame.FOOTER.size
        while start < last:
            length = self.length(start)
            start += frame.OVERHEAD_BYTES + (length or 0)
            if start > last:
                return True
            start = self.find(start)
        return False

    def length(self, offset: int) -> int | None:
        """Return the payload length in the header at `offset`; None if there is none, or with a wrong checksum."""
        header = self._file.read(offset, min(frame.HEADER.size, self._size_bytes - offset))
        return frame.length_at(header, 0) if len(header) == frame.HEADER.size else None

    def _headers(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return offset and length of each candidate that begins in [start, stop)."""
        data = np.frombuffer(self._file.read(start, stop - start + frame.HEADER.size - 1), np.uint8)
        count = data.size - frame.HEADER.size + 1
        if count <= 0:
            return []
        lengths: NDArray[np.uint64] = np.ndarray((count,), "<u8", data, 0, (1,))
        checksums: NDArray[np.uint32] = np.ndarray((count,), "<u4", data, 8, (1,))
        rest = self._size_bytes - frame.OVERHEAD_BYTES - np.arange(start, start + count, dtype=np.uint64)
        # Blocks of zeros are common damage; a length of zero is only plausible beside its checksum.
        fits = (lengths <= rest) & ((lengths != 0) | (checksums == frame.CRC_OF_ZERO_LENGTH))
        indices = np.flatnonzero(fits)
        rows = data[indices[:, None] + np.arange(8)]
        right = indices[crcs.masked(crcs.of_rows(rows)) == checksums[indices]]
        return [(start + index, int(lengths[index])) for index in right.tolist()]

    def is_valid(self, offset: int, length: int) -> bool:
        """Return True if the payload of that length in the frame at `offset` has its checksum."""
        start = offset + frame.HEADER.size
        footer = self._file.read(start + length, frame.FOOTER.size)
        if len(footer) < frame.FOOTER.size:
            return False
        if length <= _SHORT_BYTES:
            crc = crc32c(self._file.read(start, length))
        else:
            crc = _crc_of_part(self._crc_before(start), self._crc_before(start + length), length)
        return bool(mask(crc) == frame.FOOTER.unpack(footer)[0])

    def _crc_before(self, offset: int) -> int:
        """Return the checksum of the bytes between the first place that was asked for and `offset`."""
        if not self._marks or offset < self._origin:
            self._origin, self._marks = offset, [0]
        index = (offset - self._origin) // _MARK_BYTES
        while len(self._marks) <= index:
            self._add_marks()
        mark = self._origin + index * _MARK_BYTES
        return crc32c(self._file.read(mark, offset - mark), self._marks[index])

    def _add_marks(self) -> None:
        data = self._file.read(self._origin + (len(self._marks) - 1) * _MARK_BYTES, _MOST_BYTES)
        crc = self._marks[-1]
        for start in range(0, _MOST_BYTES, _MARK_BYTES):
            crc = crc32c(data[start : start + _MARK_BYTES], crc)
            self._marks.append(crc)


def _crc_of_part(before: int, through: int, length: int) -> int:
    """Return the checksum of the last `length` bytes of a string: `through` is the whole's, `before` the rest's."""
    return through ^ _shifted(before, length)


def _shifted(crc: int, zeros: int) -> int:
    """Return what the checksum of a string contributes to that of a longer one, with `zeros` bytes behind it."""
    power = 0
    while zeros:
        if zeros & 1:
            crc = _apply(_powers(power), crc)
        zeros >>= 1
        power += 1
    return crc


@functools.cache
def _powers(power: int) -> tuple[int, ...]:
    """Return where each bit of a checksum goes if 2**power bytes follow."""
    if power:
        half = _powers(power - 1)
        return tuple(_apply(half, column) for column in half)
    columns = []
    for bit in range(32):
        crc = 1 << bit
        for _ in range(8):
            crc = (crc >> 1) ^ _POLYNOMIAL if crc & 1 else crc >> 1
        columns.append(crc)
    return tuple(columns)


def _apply(columns: tuple[int, ...], crc: int) -> int:
    """Return where the bits of a checksum go, together."""
    result = 0
    for bit in range(32):
        if crc >> bit & 1:
            result ^= columns[bit]
    return result
