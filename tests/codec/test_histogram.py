"""Histograms: the same facts hold for every array, from the limits of each type to one number and none."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from instrument.codec import histogram, wire
from instrument.errors import CorruptMessage
from instrument.values import Histogram
from tests import protobuf

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
MAX = sys.float_info.max


def span(dtype: str) -> NDArray[Any]:
    """Numbers over the whole range of an integer type, both ends included."""
    info = np.iinfo(dtype)
    return np.array([info.min + (info.max - info.min) * i // 999 for i in range(1000)], dtype)


CASES: dict[str, NDArray[Any]] = {
    "float16 2048..2056": np.arange(2048, 2057, 2).astype(np.float16),
    "float16 2048..2056 many": np.resize(np.arange(2048, 2057, 2), 1000).astype(np.float16),
    "float16 largest": np.array([65504, -65504, 0], np.float16),
    "float16 largest only": np.full(50, 65504, np.float16),
    "float16 ones": np.ones(70_000, np.float16),
    "float16 subnormal": np.arange(100, dtype=np.uint16).view(np.float16),
    "one number": np.array([3.25]),
    "two equal": np.array([-2.0, -2.0]),
    "0-d": np.array(4.5, np.float32),
    "0-d int": np.array(-4),
    "zeros": np.zeros(1000, np.float32),
    "minus zeros": np.full(7, -0.0),
    "both zeros": np.array([0.0, -0.0]),
    "sevens": np.full(99, 7.0),
    "1e9 float32": np.full(100, 1e9, np.float32),
    "3e38 float32": np.full(100, 3.4e38, np.float32),
    "1e300": np.full(100, 1e300),
    "largest": np.full(100, MAX),
    "minus largest": np.full(100, -MAX),
    "smallest": np.full(100, 5e-324),
    "minus smallest": np.full(3, -5e-324),
    "denormals": np.arange(1000) * 5e-324,
    "two denormals": np.array([0.0, 5e-324]),
    "neighbours": np.array([1.0, math.nextafter(1.0, 2)] * 500),
    "neighbours far out": np.array([1e300, math.nextafter(1e300, 2e300), math.nextafter(1e300, 0)] * 100),
    "1e38, -1e38": np.array([1e38, -1e38], np.float32),
    "1.7e308, -1.7e308": np.array([1.7e308, -1.7e308]),
    "1.7e308, -1.7e308 many": np.array([1.7e308, 1.7e308, -1.7e308, -1.7e308] * 250),
    "both largest": np.array([MAX, -MAX] * 500),
    "largest and zero": np.array([MAX, 0.0] * 500),
    "one is not finite each": np.array([1, np.nan, np.inf, -np.inf]),
    "many not finite": np.array([1, np.nan, np.inf, -np.inf, 2, np.nan, 3] * 100, np.float32),
    "normal": np.random.default_rng(1).standard_normal(10_000).astype(np.float32),
    "normal, one outlier": np.append(np.random.default_rng(2).standard_normal(1000), 1e30),
    "three dims": np.random.default_rng(3).standard_normal((3, 50, 7)),
    "transposed": np.random.default_rng(4).standard_normal((30, 50)).T,
    "big endian": np.random.default_rng(5).standard_normal(1000).astype(">f4"),
    "bool": np.array([True, False, True, True]),
    "all true": np.ones(20, bool),
    "uint8 zeros": np.zeros(1000, np.uint8),
    "int32 all -3": np.full(1000, -3, np.int32),
    "int32 0..9": np.tile(np.arange(10, dtype=np.int32), 1000),
    "int64 beside 2**53": 2**53 + np.arange(20),
    "int64 beside its end": np.iinfo(np.int64).max - np.arange(50),
    "uint64 beside its end": np.iinfo(np.uint64).max - np.arange(50, dtype=np.uint64),
    **{f"{dtype} whole range": span(dtype) for dtype in INTEGERS},
    **{f"{dtype} ends": np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype) for dtype in INTEGERS},
    **{f"{dtype} largest": np.full(11, np.iinfo(dtype).max, dtype) for dtype in INTEGERS},
}


def check(array: NDArray[Any]) -> Histogram:
    """All that holds for any array with a finite value."""
    with np.errstate(all="raise"):  # as a user may have it; nothing of ours may raise then
        result = histogram.from_array(array)
    flat = array.reshape(-1).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    edges = np.append(result.left, result.left[-1] + result.width[-1])
    assert (result.left.dtype, result.width.dtype, result.counts.dtype) == (np.float64, np.float64, np.int64)
    assert np.isfinite(edges).all()
    assert np.isfinite(result.width).all()
    assert 1 <= result.counts.size <= 90
    assert (np.diff(edges) > 0).all()
    assert (result.width > 0).all()
    assert (np.abs(result.left[:-1] + result.width[:-1] - result.left[1:]) <= ulps(edges)[:-1]).all()
    assert edges[0] <= finite.min()
    assert finite.max() - edges[-1] <= ulps(edges)[-1]
    edges[-1] = max(edges[-1], finite.max())
    if array.dtype.kind == "f" and finite.min() < finite.max():
        assert edges[0] == finite.min()
        assert edges[-1] - finite.max() <= ulps(edges)[-1]  # the last width is rounded
    assert result.counts.sum() == finite.size
    np.testing.assert_array_equal(result.counts, np.histogram(finite, edges)[0])
    assert (result.min, result.max) == (finite.min(), finite.max())
    assert result.count == array.size
    assert result.nan_count == np.isnan(flat).sum()
    assert result.positive_infinity_count == (flat == np.inf).sum()
    assert result.negative_infinity_count == (flat == -np.inf).sum()
    check_sum(result.sum, finite)
    check_bytes(result)
    return result


def ulps(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distance to the next number at the larger end of each bucket."""
    return np.array([math.ulp(value) for value in np.maximum(np.abs(edges[:-1]), np.abs(edges[1:])).tolist()])


def check_sum(total: float, finite: NDArray[np.float64]) -> None:
    """Equal to the exact sum but for the rounding of its terms; infinite only where that is."""
    exact = sum(int(math.ldexp(value, -900)) for value in finite.tolist()) if np.abs(finite).max() > 1e305 else None
    if exact is None:
        expected = math.fsum(finite.tolist())
        assert abs(total - expected) <= 1e-12 * np.abs(finite).sum()
    elif abs(exact) < math.ldexp(1, 1024 - 900):
        assert abs(total - math.ldexp(exact, 900)) <= 1e-12 * MAX
    else:
        assert total == math.copysign(math.inf, exact)


def check_bytes(value: Histogram) -> None:
    """The bytes are those of the message class, and give the same histogram again."""
    data = histogram.encode(value)
    message = protobuf.message_class("Summary.Histogram").FromString(data)
    assert message.SerializeToString(deterministic=True) == data
    decoded = histogram.decode(memoryview(data))
    for name in ("left", "width", "counts"):
        np.testing.assert_array_equal(getattr(decoded, name), getattr(value, name))
    for name in ("count", "nan_count", "positive_infinity_count", "negative_infinity_count", "min", "max", "sum"):
        np.testing.assert_equal(getattr(decoded, name), getattr(value, name))


@pytest.mark.parametrize("array", CASES.values(), ids=CASES.keys())
def test_what_holds_for_every_array(array: NDArray[Any]) -> None:
    """Counts, edges, extremes, sum and what is not finite are right, and survive the file."""
    check(array)


def test_random_arrays(rng: np.random.Generator) -> None:
    """The same holds for any shape, type and scale."""
    for _ in range(150):
        shape = tuple(rng.integers(1, 12, int(rng.integers(0, 4))).tolist())
        dtype = str(rng.choice(["float16", "float32", "float64", "int8", "int64", "uint64"]))
        if dtype.startswith("float"):
            scale = 10.0 ** rng.integers(-300, 300)
            with np.errstate(all="ignore"):
                numbers = rng.standard_normal(shape) + rng.standard_normal() * 10.0 ** rng.integers(-3, 17)
                array = np.asarray(numbers * scale).astype(dtype)
        else:
            array = np.asarray(rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True))
        if np.isfinite(array).any():
            check(array)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # signalling NaN, in the test's own cast
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64", *INTEGERS])
def test_few_values_and_one_more_than_few(rng: np.random.Generator, dtype: str) -> None:
    """The same holds on both sides of the size up to which values are sorted, for any bits that a number can have."""
    for size in (1, 2, 5, 11, 4095, 4096, 4097):
        bits = np.frombuffer(rng.bytes(size * np.dtype(dtype).itemsize), "uint8" if dtype == "bool" else dtype)
        few = rng.choice(bits[:3], size)
        for array in (bits.astype(dtype), few.astype(dtype), np.sort(few)[::-1].astype(dtype)):
            is_finite = np.isfinite(array)
            check(
                array[is_finite]
                if rng.random() < 0.5 and is_finite.any()
                else np.append(array, np.zeros(1, array.dtype))
            )


def test_neighbouring_half_floats(rng: np.random.Generator) -> None:
    """They are counted right where NumPy's own sort of half floats is not: on some processors it leaves some astray."""
    near = (-16.05 + np.arange(-2, 3) / 64).astype(np.float16)
    for _ in range(20):
        check(rng.choice(near, 3548))


def test_many_numbers_beside_the_edges(rng: np.random.Generator) -> None:
    """Float32 numbers at an edge, or next to one, are counted as NumPy counts them, in blocks and at any scale."""
    for _ in range(30):
        count = int(rng.integers(1 << 16, 3 << 16))
        low = rng.standard_normal() * 10.0 ** rng.integers(-20, 20)
        extent = abs(rng.standard_normal()) * 10.0 ** rng.integers(-20, 20)
        array = (low + extent * rng.random(count)).astype(np.float32)
        edges = np.linspace(array.min(), array.max(), 91)
        places = rng.permutation(count)[: count // 2]
        near = edges[rng.integers(0, 91, places.size)].astype(np.float32)
        for side in (-np.inf, np.inf):
            some = rng.random(near.size) < 0.3
            near[some] = np.nextafter(near[some], np.float32(side))
        array[places] = np.clip(near, array.min(), array.max())
        check(array)


@pytest.mark.parametrize(
    ("values", "nan", "positive", "negative"),
    [([], 0, 0, 0), ([np.nan] * 5, 5, 0, 0), ([np.inf, -np.inf, np.nan, np.inf], 1, 2, 1)],
    ids=["empty", "all NaN", "nothing finite"],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arrays_without_a_finite_value(values: list[float], nan: int, positive: int, negative: int, dtype: str) -> None:
    """There is no bucket and no extreme, but what there is is counted."""
    result = histogram.from_array(np.array(values, dtype))
    assert (result.left.size, result.width.size, result.counts.size) == (0, 0, 0)
    assert (result.count, result.nan_count) == (len(values), nan)
    assert (result.positive_infinity_count, result.negative_infinity_count) == (positive, negative)
    assert [math.isnan(value) for value in (result.min, result.max, result.sum)] == [True] * 3
    message = protobuf.message_class("Summary.Histogram").FromString(histogram.encode(result))
    assert not any(message.HasField(name) for name in ("min", "max", "sum"))
    check_bytes(result)


def test_integers_get_one_bucket_a_number() -> None:
    """Few different integers are counted one by one, each in the middle of its bucket."""
    result = histogram.from_array(np.repeat([3, 4, 6], [5, 7, 30]).astype(np.int32))
    assert result.left.tolist() == [2.5, 3.5, 4.5, 5.5]
    assert result.width.tolist() == [1.0] * 4
    assert result.counts.tolist() == [5, 7, 0, 30]
    assert (result.min, result.max, result.sum) == (3.0, 6.0, 15 + 28 + 180)


def test_digits_are_counted_evenly() -> None:
    """A thousand times each digit is a thousand in each of ten buckets."""
    assert histogram.from_array(CASES["int32 0..9"]).counts.tolist() == [1000] * 10


@pytest.mark.parametrize(
    ("size", "buckets"), [(1, 2), (5, 2), (6, 3), (10, 3), (11, 2), (100, 11), (880, 89), (900, 90), (10**5, 90)]
)
def test_the_number_of_buckets_is_mindspores(size: int, buckets: int) -> None:
    """About ten values a bucket, at most 90, which MindInsight still shows."""
    result = histogram.from_array(np.linspace(0, 1, size))
    assert result.counts.size == buckets


def test_buckets_of_equal_numbers_reach_half_a_unit_to_each_side() -> None:
    """One value, however often, stands in the middle of [v - 0.5, v + 0.5]."""
    result = histogram.from_array(np.full(4, 7.0))
    assert (result.left.tolist(), result.width.tolist(), result.counts.tolist()) == ([6.5, 7.0], [0.5, 0.5], [0, 4])


def test_seventy_thousand_half_float_ones() -> None:
    """The sum is not taken in the input's type, where it would be infinite."""
    result = histogram.from_array(CASES["float16 ones"])
    assert (result.sum, result.counts.sum()) == (70_000.0, 70_000)


def test_a_sum_that_overflows_on_its_way() -> None:
    """Large numbers that cancel have the sum that they have."""
    assert histogram.from_array(np.array([1.7e308, 1.7e308, -1.7e308, -1.7e308])).sum == 0.0
    assert histogram.from_array(np.array([MAX, MAX])).sum == math.inf


def test_extremes_that_a_file_leaves_out_are_nan() -> None:
    """MindSpore leaves min, max and sum out where nothing is finite; 0 would be a lie."""
    decoded = histogram.decode(
        memoryview(protobuf.message_class("Summary.Histogram")(count=3, nan_count=3).SerializeToString())
    )
    assert (decoded.count, decoded.nan_count) == (3, 3)
    assert [math.isnan(value) for value in (decoded.min, decoded.max, decoded.sum)] == [True] * 3


@pytest.mark.parametrize(
    "data",
    [
        wire.integer(1, 1),
        wire.double(8, 1.0),
        wire.integer(5, 1),
        wire.delimited(1, wire.integer(1, 1)),
        wire.delimited(1, wire.double(3, 1.0)),
        wire.delimited(1, wire.integer(3, -1)),
        wire.delimited(1, b"\x09"),
    ],
    ids=["bucket", "count", "max", "left", "bucket's count", "negative count", "truncated bucket"],
)
def test_hostile_bytes_are_corrupt(data: bytes) -> None:
    """Fields of another type and impossible counts are no histogram."""
    with pytest.raises(CorruptMessage):
        histogram.decode(memoryview(data))


def test_a_histogram_cut_anywhere_is_corrupt_or_shorter() -> None:
    """No prefix of the bytes raises anything else, or invents a bucket."""
    whole = histogram.from_array(np.arange(100.0))
    data = histogram.encode(whole)
    for size in range(len(data)):
        try:
            decoded = histogram.decode(memoryview(data)[:size])
        except CorruptMessage:
            continue
        np.testing.assert_array_equal(decoded.counts, whole.counts[: decoded.counts.size])
