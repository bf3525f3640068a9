"""Histograms: `Summary.Histogram`, and how an array becomes one.

All arithmetic on edges is float64, whatever the input's type. The number of buckets follows MindSpore's rule (about
ten values a bucket, at most 90, which is also the most that MindInsight shows).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import wire
from instrument.codec.schema import MINDSPORE
from instrument.errors import CorruptMessage
from instrument.values import Histogram

MAX_BUCKETS = 90
#: Up to this number, values are sorted in less time than it takes to call what counts more of them: half of the whole
#: for 1,000.
_FEW_VALUES = 4096
#: Values are counted in blocks that stay in the processor's cache.
_BLOCK_VALUES = 1 << 16

_HISTOGRAM = MINDSPORE.type("Summary.Histogram")
#: A histogram without its buckets.
_FACTS = MINDSPORE.type("Summary.Histogram", skip=("Summary.Histogram.bucket",))
# Encoded by hand: buckets all at once, since by the table they take as long as counting the values does, and the other
# fields in half the time, which is a tenth of a histogram's.
_BUCKETS, _NAN, _POSITIVE, _NEGATIVE, _MAX, _MIN, _SUM, _COUNT = range(1, 9)
_BUCKET_KEY = wire.key(_BUCKETS, wire.LENGTH_DELIMITED)[0]
_LEFT_KEY = wire.key(1, wire.FIXED64)[0]
_WIDTH_KEY = wire.key(2, wire.FIXED64)[0]
_COUNT_KEY = wire.key(3, wire.VARINT)[0]
#: What a bucket takes beside the digits of its count; its length, always below 128, counts what follows it.
_BUCKET_BYTES = 3 + 8 + 1 + 8 + 1
_DIGIT_BITS = 7


@np.errstate(all="ignore")  # at the limits of a type, and whatever the user's own settings are
def from_array(array: NDArray[np.generic]) -> Histogram:
    """Count the finite values of `array` (any shape; bool, integer or float).

    The edges ascend strictly and the counts add up to the number of finite values; they equal those of
    `numpy.histogram` with the same edges.
    """
    flat: NDArray[Any] = array.reshape(-1)
    if flat.dtype == np.bool_:
        flat = flat.view(np.uint8)
    if flat.dtype == np.float32 and flat.size > _FEW_VALUES and (facts := _facts(flat)) is not None:
        low, high, total = facts
        edges = _edges(low, high, flat.size, is_integer=False)
        return Histogram(edges[:-1], _widths(edges), _count(flat, edges), flat.size, low, high, total)
    if 0 < flat.size <= _FEW_VALUES:
        # NumPy 2.4 leaves half floats out of order on some processors.
        ordered = np.sort(flat.astype(np.float32) if flat.dtype == np.float16 else flat)
        # Infinities came to its ends, NaN to the last.
        if math.isfinite(ordered[0]) and math.isfinite(ordered[-1]):
            return _from_ordered(ordered, _sum(flat))
    finite, nan_count, positive_count, negative_count = _split(flat)
    if not finite.size:
        empty = np.empty(0, np.float64)
        return Histogram(
            empty, empty, np.empty(0, np.int64), flat.size, math.nan, math.nan, math.nan,
            nan_count, positive_count, negative_count,
        )  # fmt: skip
    low, high = float(finite.min()), float(finite.max())
    edges = _edges(low, high, finite.size, is_integer=finite.dtype.kind in "iu")
    return Histogram(
        edges[:-1], _widths(edges), _count(finite, edges), flat.size, low, high, _sum(finite),
        nan_count, positive_count, negative_count,
    )  # fmt: skip


def _from_ordered(ordered: NDArray[Any], total: float) -> Histogram:
    """Return the histogram of few values, all of them finite: after a sort only their sum is missing."""
    low, high = float(ordered[0]), float(ordered[-1])
    edges = _edges(low, high, ordered.size, is_integer=ordered.dtype.kind in "iu")
    below = ordered.searchsorted(edges)
    below[-1] = ordered.size  # the last bucket holds its right edge, too
    counts = (below[1:] - below[:-1]).astype(np.int64, copy=False)
    return Histogram(edges[:-1], _widths(edges), counts, ordered.size, low, high, total)


def _facts(flat: NDArray[np.float32]) -> tuple[float, float, float] | None:
    """Return minimum, maximum and sum, in one pass over memory; None if a value is not finite."""
    lows, highs, total = [], [], 0.0
    for start in range(0, flat.size, _BLOCK_VALUES):
        block = flat[start : start + _BLOCK_VALUES]
        lows.append(float(block.min()))
        highs.append(float(block.max()))
        total += float(block.sum(dtype=np.float64))
    return (min(lows), max(highs), total) if math.isfinite(total) else None  # float32 cannot make float64 overflow


def _split(flat: NDArray[Any]) -> tuple[NDArray[np.generic], int, int, int]:
    """Return the finite values, and how many are NaN, plus and minus infinity."""
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
    """Return strictly ascending edges that enclose [low, high]."""
    buckets = _bucket_count(values)
    if is_integer and high - low < buckets and max(-low, high) < 2**52:
        return np.arange(low, high + 2.0, dtype=np.float64) - 0.5  # one bucket a number, none of them empty by rounding
    if low == high:
        # Half a unit to either side, as MindSpore has it; more where half a unit is below the number's resolution.
        half = max(0.5, 64 * math.ulp(low))
        low, high = max(low - half, -_LARGEST), min(high + half, _LARGEST)
    # A quarter of the range cannot overflow where the range itself can.
    step = (high / 4 - low / 4) / buckets
    edges = (low / 4 + step * _numbers(buckets + 1)) * 4
    edges[0], edges[-1] = low, high
    return edges if (edges[1:] > edges[:-1]).all() else np.unique(np.clip(edges, low, high))


@functools.cache
def _numbers(count: int) -> NDArray[np.float64]:
    return np.arange(count, dtype=np.float64)


def _widths(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    return edges[1:] - edges[:-1]


_LARGEST = float(np.finfo(np.float64).max)


def _count(finite: NDArray[Any], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count the values of each bucket, as `numpy.histogram` does."""
    if finite.dtype == np.float16:
        finite = finite.astype(np.float32)
    if finite.dtype == np.float32 and finite.size > _FEW_VALUES and _are_even(edges):
        return _count_evenly(finite, edges)
    return np.histogram(finite, bins=edges)[0].astype(np.int64)


#: Float32 arithmetic puts a value at most 3e-5 of a bucket away from where it belongs. Values that come out nearer than
#: this to an edge are looked up in the edges themselves.
_DOUBTFUL = np.float32(1e-4)


def _are_even(edges: NDArray[np.float64]) -> bool:
    """Return True if float32 can do arithmetic with these edges: even steps, an exact first edge, no extreme range."""
    widths = _widths(edges)
    first, extent = float(edges[0]), float(edges[-1] - edges[0])
    is_exact = float(np.float32(first)) == first
    return is_exact and 1e-30 < extent < 1e30 and float(widths.max() - widths.min()) <= 1e-9 * float(widths[0])


def _count_evenly(values: NDArray[np.float32], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count in even buckets by arithmetic, three times as fast as by searching."""
    from PIL import Image  # counts bytes three times as fast as NumPy does

    buckets = edges.size - 1
    first, scale = np.float32(edges[0]), np.float32(buckets / (edges[-1] - edges[0]))
    codes = np.empty(values.size, np.uint8)
    size = min(_BLOCK_VALUES, values.size)
    places, others = np.empty(size, np.float32), np.empty(size, np.uint8)
    for start in range(0, values.size, _BLOCK_VALUES):
        block = values[start : start + _BLOCK_VALUES]
        place, low, high = places[: block.size], codes[start : start + block.size], others[: block.size]
        np.multiply(np.subtract(block, first, out=place), scale, out=place)
        np.copyto(high, np.add(place, _DOUBTFUL, out=place), casting="unsafe")
        np.copyto(low, np.subtract(place, 2 * _DOUBTFUL, out=place), casting="unsafe")  # above -1: becomes 0
        unsure = (low != high).nonzero()[0]
        right = edges.searchsorted(block[unsure].astype(np.float64), side="right") - 1
        low[unsure] = np.minimum(right, buckets - 1)
    pixels: Any = codes.data
    counted = Image.frombuffer("L", (codes.size, 1), pixels, "raw", "L", 0, 1).histogram()
    return np.array(counted[:buckets], np.int64)


def encode(value: Histogram) -> bytes:
    """Return the content of a `Summary.Histogram`; min, max and sum are left out if nothing was finite."""
    return (_encode_buckets(value) if value.counts.size else b"") + encode_facts(value)


def _encode_buckets(value: Histogram) -> bytes:
    """Encode all buckets at once: rows with as many digits as the largest count has, less those that others lack."""
    largest = int(value.counts.max())
    most_digits = max(-(-largest.bit_length() // _DIGIT_BITS), 1)
    rows = _bucket_rows(value.counts.size, most_digits).copy()
    rows["left"], rows["width"] = value.left, value.width
    if most_digits == 1:
        rows["digits"][:, 0] = value.counts
        return rows.tobytes()
    digits = value.counts.astype(np.uint64)[:, None] >> np.arange(
        0, _DIGIT_BITS * most_digits, _DIGIT_BITS, dtype=np.uint64
    )
    has_next = digits >= 1 << _DIGIT_BITS
    rows["digits"] = digits & 0x7F | has_next.astype(np.uint64) << 7
    rows["length"] += has_next.sum(1, np.uint8)
    cells = rows.view(np.uint8).reshape(value.counts.size, -1)
    is_used = np.ones(cells.shape, bool)
    is_used[:, _BUCKET_BYTES + 1 :] = has_next[:, :-1]
    return cells[is_used].tobytes()


@functools.lru_cache(256)
def _bucket_rows(buckets: int, digits: int) -> NDArray[np.void]:
    """Return rows for `buckets` buckets, to be copied and filled in. The length is that with one digit."""
    keys = [("key", "u1"), ("length", "u1"), ("left_key", "u1"), ("left", "<f8"), ("width_key", "u1"), ("width", "<f8")]
    rows = np.zeros(buckets, np.dtype([*keys, ("count_key", "u1"), ("digits", "u1", (digits,))]))
    rows["key"], rows["left_key"], rows["width_key"], rows["count_key"] = _BUCKET_KEY, _LEFT_KEY, _WIDTH_KEY, _COUNT_KEY
    rows["length"] = _BUCKET_BYTES - 2 + 1
    return rows


def encode_facts(value: Histogram) -> bytes:
    """Return the content of a `Summary.Histogram` but for its buckets."""
    parts = [wire.integer(_NAN, value.nan_count), wire.integer(_POSITIVE, value.positive_infinity_count)]
    parts.append(wire.integer(_NEGATIVE, value.negative_infinity_count))
    if value.counts.size:
        parts += [wire.double(_MAX, value.max), wire.double(_MIN, value.min), wire.double(_SUM, value.sum)]
    parts.append(wire.integer(_COUNT, value.count))
    return b"".join(parts)


def decode(data: memoryview) -> Histogram:
    """Return the histogram of a message.

    Raises:
        CorruptMessage: the bytes are no histogram, or one of too many buckets.
    """
    facts = _FACTS.decode(data)
    lefts: list[float] = []
    widths: list[float] = []
    counts: list[int] = []
    for bucket in _HISTOGRAM.each(data, "buckets"):
        if len(counts) == wire.MOST_FIELDS:
            raise CorruptMessage(f"a message holds more than {wire.MOST_FIELDS} fields")
        if bucket.integer("count") < 0:
            raise CorruptMessage(f"a bucket counts {bucket.integer('count')} values")
        lefts.append(bucket.number("left"))
        widths.append(bucket.number("width"))
        counts.append(bucket.integer("count"))
    # Files that leave min and max out hold no finite value; protobuf's default for them would be a misleading 0.
    return Histogram(
        np.array(lefts, np.float64),
        np.array(widths, np.float64),
        np.array(counts, np.int64),
        facts.integer("count"),
        facts.number("min", math.nan),
        facts.number("max", math.nan),
        facts.number("sum", math.nan),
        facts.integer("nan_count"),
        facts.integer("pos_inf_count"),
        facts.integer("neg_inf_count"),
    )
