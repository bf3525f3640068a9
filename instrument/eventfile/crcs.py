"""CRC-32C of many byte strings at once.

A checksum is linear over XOR: strings of equal length differ in their checksums by what each byte in which they differ
contributes, one table look-up for each. NumPy does that column by column, and skips columns that are equal in all.
"""

from __future__ import annotations

import functools
import struct

import numpy as np
from numpy.typing import NDArray

from instrument.eventfile.crc import MASK_DELTA, crc32c, mask

#: For longer strings, or fewer of them, a call each is as quick.
COLUMN_BYTES = 256
_COLUMN_ROWS = 64
#: The checksums of smaller lengths are looked up.
_SHORT_LENGTHS = 4096
_LENGTH = struct.Struct("<Q")

Array = NDArray[np.uint32]


def masked(crcs: Array) -> Array:
    """Return `instrument.eventfile.crc.mask` of each."""
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
    tables = _tables(1 << (length - 1).bit_length())
    for position in np.flatnonzero(np.bitwise_or.reduce(differs, axis=0)).tolist():
        result ^= tables[length - 1 - position].take(differs[:, position], mode="clip")
    return result


@functools.cache
def _tables(count: int) -> Array:
    """Return what each byte value changes in a checksum by XOR, by how many bytes follow it: fewer than `count`."""
    tables = np.empty((count, 256), np.uint32)
    tables[0] = [crc32c(bytes((value,))) ^ crc32c(b"\0") for value in range(256)]
    for following in range(1, count):
        before = tables[following - 1]
        tables[following] = (before >> np.uint32(8)) ^ tables[0][before & np.uint32(0xFF)]
    return tables


def of_lengths(lengths: NDArray[np.uint64]) -> Array:
    """Return the masked checksum of each length as it stands in a frame."""
    if lengths.size < _COLUMN_ROWS:
        return np.array([mask(crc32c(_LENGTH.pack(length))) for length in lengths.tolist()], np.uint32)
    if lengths.max() < _SHORT_LENGTHS:
        return _of_short_lengths()[lengths.astype(np.intp)]
    return _of_any_lengths(lengths)


@functools.cache
def _of_short_lengths() -> Array:
    return _of_any_lengths(np.arange(_SHORT_LENGTHS, dtype=np.uint64))


def _of_any_lengths(lengths: NDArray[np.uint64]) -> Array:
    return masked(of_rows(np.ascontiguousarray(lengths, "<u8").view(np.uint8).reshape(-1, 8)))
