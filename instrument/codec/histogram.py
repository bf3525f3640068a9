"""Histograms: `Summary.Histogram`, and how an array becomes one.

All arithmetic on edges is float64, whatever the input's type. The number of buckets follows MindSpore's rule (about
ten values a bucket, at most 90, which is also the most that MindInsight shows).
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import wire
from instrument.errors import CorruptMessage
from instrument.values import Histogram

NUMBER = 9
MAX_BUCKETS = 90

_BUCKETS, _NAN, _POSITIVE, _NEGATIVE, _MAX, _MIN, _SUM, _COUNT = 1, 2, 3, 4, 5, 6, 7, 8
_BUCKET_HEAD = struct.Struct("<BdBd")
_LEFT_KEY = wire.key(1, wire.FIXED64)[0]
_WIDTH_KEY = wire.key(2, wire.FIXED64)[0]


@np.errstate(all="ignore")  # at the limits of a type, and whatever the user's own settings are
def from_array(array: NDArray[np.generic]) -> Histogram:
    """Count the finite values of `array` (any shape; bool, integer or float).

    The edges ascend strictly and the counts add up to the number of finite values; they equal those of
    `numpy.histogram` with the same edges.
    """
    flat: NDArray[Any] = array.reshape(-1)
    if flat.dtype == np.bool_:
        flat = flat.view(np.uint8)
    finite, nan_count, positive_count, negative_count = _split(flat)
    if not finite.size:
        empty = np.empty(0, np.float64)
        return Histogram(
            empty, empty, np.empty(0, np.int64), flat.size, math.nan, math.nan, math.nan,
            nan_count, positive_count, negative_count,
        )  # fmt: skip
    low, high = float(finite.min()), float(finite.max())
    edges = _edges(low, high, finite.size, is_integer=finite.dtype.kind in "iu")
    counts, _ = np.histogram(finite, bins=edges)
    return Histogram(
        edges[:-1], np.diff(edges), counts.astype(np.int64), flat.size, low, high, _sum(finite),
        nan_count, positive_count, negative_count,
    )  # fmt: skip


def _split(flat: NDArray[Any]) -> tuple[NDArray[np.generic], int, int, int]:
    """The finite values, and how many are NaN, plus and minus infinity."""
    if flat.dtype.kind in "iu":
        return flat, 0, 0, 0
    is_finite = np.isfinite(flat)
    if is_finite.all():
        return flat, 0, 0, 0
    nan_count = int(np.count_nonzero(np.isnan(flat)))
    positive_count = int(np.count_nonzero(np.isposinf(flat)))
    negative_count = flat.size - int(np.count_nonzero(is_finite)) - nan_count - positive_count
    return flat[is_finite], nan_count, positive_count, negative_count


def _sum(finite: NDArray[np.generic]) -> float:
    total = float(finite.sum(dtype=np.float64))
    if math.isfinite(total):
        return total
    # The sum overflowed on its way; that of the numbers over their count cannot.
    return float(np.divide(finite, finite.size, dtype=np.float64).sum() * finite.size)


def _bucket_count(values: int) -> int:
    if values <= 5:
        return 2
    if values <= 10:
        return 3
    return values // 10 + 1 if values <= 880 else MAX_BUCKETS


def _edges(low: float, high: float, values: int, is_integer: bool) -> NDArray[np.float64]:
    """Strictly ascending edges that enclose [low, high]."""
    buckets = _bucket_count(values)
    if is_integer and high - low < buckets and max(-low, high) < 2**52:
        return np.arange(low, high + 2.0, dtype=np.float64) - 0.5  # one bucket a number, none of them empty by rounding
    if low == high:
        # Half a unit to either side, as MindSpore has it; more where half a unit is below the number's resolution.
        half = max(0.5, 64 * math.ulp(low))
        low, high = max(low - half, -_LARGEST), min(high + half, _LARGEST)
    # A quarter of the range cannot overflow where the range itself can.
    step = (high / 4 - low / 4) / buckets
    edges = (low / 4 + step * np.arange(buckets + 1, dtype=np.float64)) * 4
    edges = np.clip(edges, low, high)
    edges[0], edges[-1] = low, high
    return np.unique(edges)


_LARGEST = float(np.finfo(np.float64).max)


def encode(value: Histogram) -> bytes:
    """The content of a `Summary.Histogram`; min, max and sum are left out where nothing was finite."""
    parts = []
    for left, width, count in zip(value.left.tolist(), value.width.tolist(), value.counts.tolist(), strict=True):
        bucket = _BUCKET_HEAD.pack(_LEFT_KEY, left, _WIDTH_KEY, width) + wire.integer(3, count)
        parts.append(wire.delimited(_BUCKETS, bucket))
    parts.append(wire.integer(_NAN, value.nan_count))
    parts.append(wire.integer(_POSITIVE, value.positive_infinity_count))
    parts.append(wire.integer(_NEGATIVE, value.negative_infinity_count))
    if value.counts.size:
        parts += [wire.double(_MAX, value.max), wire.double(_MIN, value.min), wire.double(_SUM, value.sum)]
    parts.append(wire.integer(_COUNT, value.count))
    return b"".join(parts)


def decode(data: memoryview) -> Histogram:
    """Raises `CorruptMessage` for bytes that are no histogram."""
    buckets: list[tuple[float, float, int]] = []
    numbers: dict[int, int] = {}
    doubles: dict[int, float] = {}
    for field in wire.fields(data):
        number = field[0]
        if number == _BUCKETS:
            buckets.append(_bucket(wire.as_bytes(field)))
        elif number in (_MAX, _MIN, _SUM):
            doubles[number] = wire.as_double(field)
        elif number in (_NAN, _POSITIVE, _NEGATIVE, _COUNT):
            numbers[number] = wire.as_int(field)
    # Files that leave min and max out hold no finite value; protobuf's default for them would be a misleading 0.
    return Histogram(
        np.array([bucket[0] for bucket in buckets], np.float64),
        np.array([bucket[1] for bucket in buckets], np.float64),
        np.array([bucket[2] for bucket in buckets], np.int64),
        numbers.get(_COUNT, 0),
        doubles.get(_MIN, math.nan),
        doubles.get(_MAX, math.nan),
        doubles.get(_SUM, math.nan),
        numbers.get(_NAN, 0),
        numbers.get(_POSITIVE, 0),
        numbers.get(_NEGATIVE, 0),
    )


def _bucket(data: memoryview) -> tuple[float, float, int]:
    left = width = 0.0
    count = 0
    for field in wire.fields(data):
        if field[0] == 1:
            left = wire.as_double(field)
        elif field[0] == 2:
            width = wire.as_double(field)
        elif field[0] == 3:
            count = wire.as_int(field)
    if count < 0:
        raise CorruptMessage(f"a bucket counts {count} values")
    return left, width, count
