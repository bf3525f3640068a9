"""CRC-32C of many byte strings at once, and of a part out of those of its ends.

A checksum is linear over XOR: that of a string is that of as many zeros, with one table look-up for each byte. For
short strings of equal length this takes half the time of a call each; NumPy does it column by column.

For the same reason the checksum of `data[a:b]` follows from those of `data[:a]` and `data[:b]`, with no byte read.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from instrument.eventfile.crc import MASK_DELTA, crc32c

#: For longer strings, or fewer of them, a call each is as quick.
COLUMN_BYTES = 256
_COLUMN_ROWS = 64
#: The checksums of smaller lengths are looked up.
_SHORT_LENGTHS = 4096
_POLYNOMIAL = 0x82F63B78

Array = NDArray[np.uint32]


def masked(crcs: Array) -> Array:
    """`instrument.eventfile.crc.mask` of each."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(MASK_DELTA)


def of_strings(data: memoryview, starts: NDArray[np.int64], rows: NDArray[np.uint8]) -> Array:
    """Return the checksums of strings of equal length: the `rows` of a matrix, which begin at `starts` of `data`."""
    count, length = rows.shape
    if length > COLUMN_BYTES or count < _COLUMN_ROWS:
        return np.fromiter((crc32c(data[start : start + length]) for start in starts.tolist()), np.uint32, count)
    return of_rows(rows)


def of_rows(rows: NDArray[np.uint8]) -> Array:
    """Return the checksum of each row of a matrix of up to `COLUMN_BYTES` columns.

    Columns in which all rows agree with the first one cost next to nothing.
    """
    count, length = rows.shape
    if not count:
        return np.empty(0, np.uint32)
    differs = rows ^ rows[0]
    result = np.full(count, crc32c(rows[0].tobytes()), np.uint32)
    tables = _tables()
    for position in np.flatnonzero(np.bitwise_or.reduce(differs, axis=0)).tolist():
        result ^= tables[length - 1 - position].take(differs[:, position], mode="clip")
    return result


@functools.cache
def _tables() -> NDArray[np.uint32]:
    """Return what each byte value changes in a checksum by XOR, by how many bytes follow it."""
    tables = np.empty((COLUMN_BYTES, 256), np.uint32)
    tables[0] = [crc32c(bytes((value,))) ^ crc32c(b"\0") for value in range(256)]
    for following in range(1, COLUMN_BYTES):
        before = tables[following - 1]
        tables[following] = (before >> np.uint32(8)) ^ tables[0][before & np.uint32(0xFF)]
    return tables


def of_lengths(lengths: NDArray[np.uint64]) -> Array:
    """The masked checksum of each length as it stands in a frame."""
    if lengths.size and lengths.max() < _SHORT_LENGTHS:
        return _of_short_lengths()[lengths.astype(np.intp)]
    return _of_any_lengths(lengths)


@functools.cache
def _of_short_lengths() -> Array:
    return _of_any_lengths(np.arange(_SHORT_LENGTHS, dtype=np.uint64))


def _of_any_lengths(lengths: NDArray[np.uint64]) -> Array:
    return masked(of_rows(np.ascontiguousarray(lengths, "<u8").view(np.uint8).reshape(-1, 8)))


def of_part(before: int, through: int, length: int) -> int:
    """The checksum of the last `length` bytes of a string: it has the checksum `through`, and `before` without them."""
    return through ^ _shifted(before, length)


def _shifted(crc: int, zeros: int) -> int:
    """What the checksum of a string contributes to that of a longer one, by the count of bytes behind it."""
    power = 0
    while zeros:
        if zeros & 1:
            columns, rest, result = _powers(power), crc, 0
            while rest:
                low = rest & -rest
                result ^= columns[low.bit_length() - 1]
                rest ^= low
            crc = result
        zeros >>= 1
        power += 1
    return crc


@functools.cache
def _powers(power: int) -> tuple[int, ...]:
    """Where each bit of a checksum goes as 2**power bytes follow."""
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
    result = 0
    for bit in range(32):
        if crc >> bit & 1:
            result ^= columns[bit]
    return result
