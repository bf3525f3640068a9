"""What is given to `add_value` is what is read back: every kind, dtype and tag, through workers and without."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument import Run, SummaryRecord, read
from instrument.codec import histogram as histogram_codec
from instrument.codec import image as image_codec

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
INTEGERS = DTYPES[1:9]

Record = Callable[..., Run]


@pytest.fixture(params=[0, 2], ids=["in this process", "in workers"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Record:
    """Record values given as (plugin, name, value) at step 1 and read the run."""

    def write(*values: tuple[str, str, Any]) -> Run:
        with SummaryRecord(tmp_path, num_process=request.param) as recorder:
            for value in values:
                recorder.add_value(*value)
            assert recorder.record(1)
        run = read(tmp_path)
        assert run.damage == []
        return run

    return write


def full_range(dtype: str, rng: np.random.Generator, count: int = 300) -> np.ndarray[Any, Any]:
    """Random numbers over the whole range of an integer type, both limits among them."""
    limits = np.iinfo(dtype)
    array = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
    array[:2] = limits.min, limits.max
    return array


def same(left: Any, right: Any) -> bool:
    """Equal dtype, shape and bits."""
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


def test_every_dtype_comes_back_exactly(record: Record, rng: np.random.Generator) -> None:
    """Tensors of all dtypes keep each bit; scalars and histograms of them hold the numbers."""
    arrays = {}
    for dtype in DTYPES:
        if dtype in INTEGERS:
            arrays[dtype] = full_range(dtype, rng).reshape(3, 100)
        else:
            arrays[dtype] = rng.standard_normal((3, 100)).astype(dtype)
    run = record(
        *(("tensor", f"t/{dtype}", ms.Tensor(array)) for dtype, array in arrays.items()),
        *(("histogram", f"h/{dtype}", array) for dtype, array in arrays.items()),
        *(("scalar", f"s/{dtype}", array[0, 0]) for dtype, array in arrays.items()),
    )
    for dtype, array in arrays.items():
        assert same(run.tensors(f"t/{dtype}")[1], array)
        assert run.tensors(f"t/{dtype}").values[0].dtype == dtype
        assert run.scalars(f"s/{dtype}")[1] == float(array[0, 0])
        found = run.histograms(f"h/{dtype}")[1]
        numbers = array.astype(np.float64)
        assert (found.count, found.counts.sum()) == (300, 300)
        assert (found.min, found.max) == (numbers.min(), numbers.max())
        assert found.sum == pytest.approx(numbers.sum(), rel=1e-9, abs=1e-6)


def test_texts_come_back_exactly(record: Record) -> None:
    """A text, a list and an array of them, with any character; one that is larger than a worker's memory too."""
    given = {
        "note": "two\nlines, 准确率 🙂 \0", "list": ["a", ""], "array": np.array([["a", "b"]]), "none": [],
        "long": "0123456789" * (3 << 20),
    }  # fmt: skip
    run = record(*(("text", tag, value) for tag, value in given.items()), ("scalar", "note", 0.5))
    assert run.tags()["text"] == sorted(given)
    for tag, value in given.items():
        assert run.texts(tag)[1].array.tolist() == np.array(value, object).tolist()
    assert run.scalars("note")[1] == 0.5


def test_masked_values_are_no_values(record: Record) -> None:
    """NaN as a scalar and in a tensor, left out of a histogram, black in a picture."""
    loss = np.ma.masked_array([1.0, 2.0, 1000.0], mask=[False, False, True])
    pixels = np.ma.masked_array(np.full((2, 2), 255, np.uint8), mask=[[True, False], [False, False]])
    run = record(
        ("scalar", "mean", np.ma.masked_array([5.0], mask=[True]).mean()), ("scalar", "one", loss[2:]),
        ("histogram", "h", loss), ("tensor", "t", loss), ("image", "i", pixels),
    )  # fmt: skip
    assert math.isnan(run.scalars("mean")[1])
    assert math.isnan(run.scalars("one")[1])
    assert (run.histograms("h")[1].count, run.histograms("h")[1].max) == (2, 2.0)
    np.testing.assert_array_equal(run.tensors("t")[1], [1.0, 2.0, math.nan])
    assert image_codec.pixels(run.images("i")[1])[:, :, 0].tolist() == [[0, 255], [255, 255]]


@pytest.mark.parametrize("shape", [(4, 6), (1, 4, 6), (4, 6, 1), (3, 4, 6), (4, 6, 3)])
def test_one_picture_comes_back(record: Record, shape: tuple[int, ...]) -> None:
    """(H, W), (C, H, W) or (H, W, C), from an array or a tensor."""
    given = np.arange(math.prod(shape), dtype=np.uint8).reshape(shape)
    run = record(("image", "array", given), ("image", "tensor", ms.Tensor(given)))
    channels_last = given[:, :, None] if len(shape) == 2 else given.transpose(1, 2, 0) if shape[0] in (1, 3) else given
    for tag in ("array", "tensor"):
        np.testing.assert_array_equal(image_codec.pixels(run.images(tag)[1]), channels_last)


def test_bfloat16_comes_back_exactly(record: Record) -> None:
    """As a tensor under its own name, as a scalar, as a histogram; each number with eight significant bits."""
    numbers = np.array([[1.0, 257.0], [1 / 3, -(1.5 * 2.0**127)]], np.float32)
    tensor = ms.Tensor(numbers).astype(ms.bfloat16)
    exact = tensor.astype(ms.float32).asnumpy()
    assert exact.tolist() == [[1.0, 256.0], [0.333984375, -(1.5 * 2.0**127)]]
    run = record(("tensor", "t", tensor), ("histogram", "h", tensor), ("scalar", "s", tensor[1][0]))
    found = run.tensors("t").values[0]
    assert (found.dtype, found.array.dtype) == ("bfloat16", np.float32)
    assert same(found.array, exact)
    assert run.scalars("s")[1] == 0.333984375
    assert (run.histograms("h")[1].min, run.histograms("h")[1].max) == (exact.min(), exact.max())


def test_statistics_of_half_floats_are_not_half(record: Record) -> None:
    """70000 float16 ones add up to 70000, which float16 cannot hold."""
    found = record(("histogram", "h", np.ones(70000, np.float16))).histograms("h")[1]
    assert (found.sum, found.count, found.min, found.max) == (70000.0, 70000, 1.0, 1.0)


@pytest.mark.parametrize("number", [1.0, 0.1, 16777217.0, 1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf, -0.0])
def test_a_python_float_comes_back_exactly(record: Record, number: float) -> None:
    """Every float64, beyond float32 too, and what is not finite."""
    got = record(("scalar", "loss", number)).scalars("loss")[1]
    np.testing.assert_array_equal(got, number)
    assert math.copysign(1, got) == math.copysign(1, number)


@pytest.mark.parametrize("number", [2**24 + 1, 2**53 + 1, -(2**63), 2**63 - 1])
def test_integers_are_exact_in_tensors(record: Record, number: int) -> None:
    """An int64 beyond float32 and float64 comes back to the last bit; as a scalar it is the nearest float64."""
    run = record(("tensor", "t", ms.Tensor([number, -1], ms.int64)), ("scalar", "s", np.int64(number)))
    assert run.tensors("t")[1].tolist() == [number, -1]
    assert run.scalars("s")[1] == float(number)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 4)])
def test_empty_values(record: Record, shape: tuple[int, ...]) -> None:
    """An empty tensor keeps its shape, an empty histogram has no bucket and counts nothing."""
    run = record(("tensor", "t", ms.Tensor(np.zeros(shape, np.float32))), ("histogram", "h", np.zeros(shape)))
    assert run.tensors("t")[1].shape == shape
    found = run.histograms("h")[1]
    assert (found.count, found.counts.size) == (0, 0)
    assert math.isnan(found.min)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(50, np.uint8), np.zeros(50, np.bool_), np.ones(50, np.bool_), np.arange(1000, dtype=np.int32) % 10,
        np.full(100, -3, np.int32), np.linspace(2048, 2056, 500).astype(np.float16), np.full(100, 1e9, np.float32),
        np.full(5, np.nan), np.array([1, np.nan, np.inf, -np.inf]), np.full(1000, 7), np.zeros(1),
        np.array([1e38, -1e38]), np.array([5e-324]), np.array([-0.0]), np.array([1.7e308, -1.7e308]),
        np.full(9, np.inf), np.array(3.0), np.array([[1, 2], [3, 4]], np.uint64) * 2**60,
    ],
    ids=str,
)  # fmt: skip
def test_odd_histograms(record: Record, array: np.ndarray[Any, Any]) -> None:
    """Constants, flags, limits and what is not finite give buckets that ascend, are finite, and count every number."""
    found = record(("histogram", "h", array)).histograms("h")[1]
    finite = array[np.isfinite(array)].astype(np.float64)
    outside = found.nan_count + found.positive_infinity_count + found.negative_infinity_count
    assert (found.count, found.counts.sum() + outside) == (array.size, array.size)
    assert found.nan_count == np.isnan(array).sum()
    assert found.positive_infinity_count == np.isposinf(array.astype(np.float64)).sum()
    assert len(found.counts) <= 90
    assert np.isfinite(found.left).all()
    assert (found.width > 0).all()
    assert (np.diff(found.left) > 0).all()
    if finite.size:
        assert (found.min, found.max) == (finite.min(), finite.max())
        assert found.left[0] <= finite.min() <= finite.max() <= found.left[-1] + found.width[-1]
    else:
        assert (len(found.counts), math.isnan(found.min), math.isnan(found.max)) == (0, True, True)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_histograms_equal_numpys(record: Record, rng: np.random.Generator, dtype: str) -> None:
    """Over the whole range of the type, counts are those of numpy.histogram in float64; 0..n is counted one each."""
    array = full_range(dtype, rng)
    run = record(("histogram", "wide", array), ("histogram", "few", np.arange(6).astype(dtype)))
    wide, few = run.histograms("wide")[1], run.histograms("few")[1]
    edges = np.append(wide.left, wide.left[-1] + wide.width[-1])
    assert wide.counts.tolist() == np.histogram(array.astype(np.float64), edges)[0].tolist()
    assert few.counts.sum() == 6
    assert few.counts.max() <= 3


def test_a_histogram_is_the_codecs(record: Record, rng: np.random.Generator) -> None:
    """What a worker counts is what `codec.histogram.from_array` counts here."""
    array = rng.standard_normal((64, 33)).astype(np.float32)
    found = record(("histogram", "h", ms.Parameter(ms.Tensor(array), name="w"))).histograms("h")[1]
    expected = histogram_codec.from_array(array)
    assert same(found.left, expected.left)
    assert same(found.width, expected.width)
    assert same(found.counts, expected.counts)
    assert (found.sum, found.min, found.max) == (expected.sum, expected.min, expected.max)


# ---------------------------------------------------------------- pictures


def pixels(run: Run, tag: str) -> np.ndarray[Any, Any]:
    return image_codec.pixels(run.images(tag)[1])


def test_bytes_are_taken_as_they_are_and_fractions_times_255(record: Record, rng: np.random.Generator) -> None:
    """The same picture as bytes and as floats in [0, 1] has the same pixels; bytes are not stretched."""
    batch = rng.integers(100, 150, (2, 3, 16, 18), np.uint8)
    run = record(
        ("image", "bytes", batch), ("image", "floats", batch / 255.0), ("image", "tensor", ms.Tensor(batch / 255.0)),
        ("image", "half", (batch / 255.0).astype(np.float32)), ("image", "nhwc", batch.transpose(0, 2, 3, 1)),
    )  # fmt: skip
    expected = batch.transpose(2, 0, 3, 1).reshape(16, 36, 3)
    for tag in ("bytes", "floats", "tensor", "half", "nhwc"):
        np.testing.assert_array_equal(pixels(run, tag), expected)


def test_values_out_of_range_do_not_wrap(record: Record, rng: np.random.Generator) -> None:
    """Shifted beyond [0, 1] a batch is mapped linearly as a whole, and the mapping is told."""
    batch = rng.integers(0, 256, (2, 3, 8, 8), np.uint8)
    batch[0, 0, 0, :2] = 0, 255
    run = record(("image", "above", batch / 255.0 + 0.5), ("image", "below", batch / 255.0 - 0.5))
    expected = batch.transpose(2, 0, 3, 1).reshape(8, 16, 3)
    for tag, low, high in (("above", "0.5", "1.5"), ("below", "-0.5", "0.5")):
        assert np.abs(pixels(run, tag).astype(int) - expected).max() <= 1
        assert run.images(tag)[1].mapping == f"linear, {low} to 0 and {high} to 255"


def test_equal_values_are_equal_grey_in_all_pictures_of_a_batch(record: Record) -> None:
    """One rule holds for the batch: -1 is black and 1 white in each picture; a constant is drawn, not divided by."""
    batch = np.stack([np.full((1, 8, 8), -1.0), np.ones((1, 8, 8)), np.linspace(-1, 1, 64).reshape(1, 8, 8)])
    run = record(("image", "normalised", batch), ("image", "constant", np.full((1, 1, 4, 4), 5.0)))
    grey = pixels(run, "normalised")[:, :, 0]
    assert (np.unique(grey[:, :8]).tolist(), np.unique(grey[:, 8:16]).tolist()) == ([0], [255])
    assert (grey[0, 16], grey[7, 23]) == (0, 255)
    assert np.unique(pixels(run, "constant")).tolist() == [128]


def test_not_finite_pixels_spoil_nothing(record: Record) -> None:
    """A NaN and infinities in one picture leave the others as they are."""
    batch = np.full((3, 1, 4, 4), 0.5, np.float32)
    batch[1, 0, 0, :3] = np.nan, np.inf, -np.inf
    grey = pixels(record(("image", "i", batch)), "i")[:, :, 0]
    assert grey[0, 4:8].tolist() == [0, 255, 0, 128]
    assert np.unique(np.delete(grey, range(4, 8), axis=1)).tolist() == [128]


# ---------------------------------------------------------------- tags


ODD_TAGS = [
    "a b", "a:b", "a_b", "a/b", "/a/b", "a//b", "准确率", "loss %", "x" * 300, "x" * 5000, "a\nb", "..", "a\\b", "CON",
    "é", "e\u0301", "😀", "a[:Scalar]", "nul\0byte", " ", "cpu -> gpu %", "[#1]", "\U0010ffff", "loss[#3bz][:Tensor]",
]  # fmt: skip


def test_tags_come_back_as_given(record: Record) -> None:
    """Blanks, slashes, other scripts, control characters and 5000 characters: each tag is a series of its own."""
    run = record(
        *(("scalar", tag, float(number)) for number, tag in enumerate(ODD_TAGS)),
        *(("tensor", tag, np.array([number])) for number, tag in enumerate(ODD_TAGS)),
    )
    assert run.tags() == {"scalar": sorted(ODD_TAGS), "tensor": sorted(ODD_TAGS)}
    for number, tag in enumerate(ODD_TAGS):
        assert run.scalars(tag)[1] == number
        assert run.tensors(tag)[1].tolist() == [number]


class Name(str, enum.Enum):
    LOSS = "loss"


@pytest.mark.parametrize("name", [np.str_("loss"), Name.LOSS])
def test_a_name_of_a_derived_type(record: Record, name: str) -> None:
    """NumPy's strings and enumerations are the text that they are."""
    run = record(("scalar", name, 1.5), ("tensor", name, np.array([2])), ("scalar", "other", 3.0))
    assert run.tags() == {"scalar": ["loss", "other"], "tensor": ["loss"]}
    assert run.scalars("loss")[1] == 1.5


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("a\udcffb", ValueError, "no valid Unicode: surrogates not allowed at position 1"),
        ("", ValueError, "The name is empty; expected at least one character"),
        (7, TypeError, "The name is 7 of type int; expected str"),
        (None, TypeError, "The name is None of type NoneType"),
        (b"loss", TypeError, "of type bytes; expected str"),
    ],
)
def test_a_refused_tag_harms_nothing(
    tmp_path: Path, processes: int, name: Any, error: type[Exception], message: str
) -> None:
    """A tag that no file can hold raises at once, and the recorder goes on with everything else."""
    with SummaryRecord(tmp_path, num_process=processes) as recorder:
        recorder.add_value("scalar", "before", 1.0)
        with pytest.raises(error, match=message):
            recorder.add_value("scalar", name, 2.0)
        recorder.add_value("scalar", "after", 3.0)
        assert recorder.record(1)
    run = read(tmp_path)
    assert run.tags() == {"scalar": ["after", "before"]}


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize(
    ("plugin", "value", "error"),
    [
        ("scalar", [1.0], TypeError), ("scalar", "1", TypeError), ("scalar", 1j, TypeError),
        ("scalar", None, TypeError),
        ("scalar", np.zeros(2), ValueError), ("scalar", np.zeros(0), ValueError), ("scalar", 10**400, ValueError),
        ("tensor", np.array([1j], np.complex64), TypeError), ("tensor", [1, 2], TypeError),
        ("histogram", np.array([1j], np.complex64), TypeError), ("histogram", np.array(["a"]), TypeError),
        ("image", np.zeros((2, 4, 8, 8)), ValueError), ("image", np.zeros(8), ValueError),
        ("image", np.zeros((0, 3, 8, 8)), ValueError), ("image", np.zeros((1, 3, 8, 8), np.complex64), TypeError),
        ("text", 1.0, TypeError), ("text", "\udcff", ValueError), ("text", [b"a"], TypeError),
        ("loss", 1.0, ValueError), ("Scalar", 1.0, ValueError), (None, 1.0, ValueError),
    ],
)  # fmt: skip
def test_a_refused_value_harms_nothing(
    tmp_path: Path, processes: int, plugin: Any, value: Any, error: type[Exception]
) -> None:
    """A value of the wrong type or shape raises at once, naming tag or plugin; the recorder goes on."""
    with SummaryRecord(tmp_path, num_process=processes) as recorder:
        with pytest.raises(error) as caught:
            recorder.add_value(plugin, "wrong", value)
        assert "'wrong'" in str(caught.value) or repr(plugin) in str(caught.value)
        recorder.add_value("scalar", "right", 1.0)
        assert recorder.record(1)
    assert read(tmp_path).tags() == {"scalar": ["right"]}


def test_the_first_number_that_is_not_finite_is_said_once(tmp_path: Path, said: Callable[..., list[str]]) -> None:
    """One hint a tag, with the step and the value; every number is recorded as it is."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        for step, number in enumerate([1.0, float("nan"), float("inf"), 2.0]):
            record.add_value("scalar", "loss", number)
            record.add_value("scalar", "fine", 1.0)
            assert record.record(step)
    values = read(tmp_path).scalars("loss").value
    np.testing.assert_array_equal(values, [1.0, np.nan, np.inf, 2.0])
    assert said("is nan at step 1") == said("at step")
    assert len(said("at step")) == 1


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("dialect", ["mindspore", "tensorboard"])
def test_what_a_user_changes_stays_his(tmp_path: Path, dialect: str, restarted: bool) -> None:
    """`value` may be changed in place and changes no other series; columns that series share refuse it."""
    for start in range(1 + restarted):
        with SummaryRecord(tmp_path, num_process=0, dialect=dialect) as record:
            for step in range(start * 3, 5):
                record.add_value("scalar", "a", step / 3)
                record.add_value("scalar", "b", step / 3)
                record.record(step)
    run = read(tmp_path)
    series = run.scalars("a")
    before = series.value.copy()
    series.value[:] = -1.0
    assert series.value.tolist() == [-1.0] * 5
    for other in (run.scalars("a"), run.scalars("b"), read(tmp_path).scalars("a")):
        np.testing.assert_array_equal(other.value, before)
    for column in (series.step, series.wall_time, series.superseded, series.writer_index):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1
