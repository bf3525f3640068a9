"""Tensors, arrays and numbers to numpy: every dtype, every layout, and what is refused."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument.collect import convert

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
INTEGERS = DTYPES[1:9]
FLOATS = DTYPES[9:]


def sample(dtype: str) -> np.ndarray[Any, Any]:
    """A 2 x 3 array with the limits of its type in it."""
    if dtype == "bool":
        return np.array([[True, False, True], [False, False, True]])
    limits = np.iinfo(dtype) if dtype in INTEGERS else np.finfo(dtype)
    small = limits.tiny if dtype in FLOATS else 1
    return np.array([[limits.min, limits.max, 0], [1, 3, small]], dtype)


def bfloat16_of(number: float) -> float:
    """The nearest number with eight significant bits, ties to even, which is what bfloat16 holds."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(float(round(mantissa * 256)), exponent - 8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [np.asarray, ms.Tensor, lambda array: ms.Parameter(ms.Tensor(array), name="p")])
def test_every_dtype_comes_as_it_is(make: Callable[[Any], Any], dtype: str) -> None:
    """Arrays, tensors and parameters keep dtype, shape and every bit, at the limits of the type too."""
    given = sample(dtype)
    array, name = convert.to_array(make(given), "w")
    assert (name, array.dtype, array.shape) == (dtype, given.dtype, (2, 3))
    assert array.tobytes() == given.tobytes()


def bfloat16_tensor(array: np.ndarray[Any, Any]) -> Any:
    return ms.Tensor(array).astype(ms.bfloat16)


def bfloat16_parameter(array: np.ndarray[Any, Any]) -> Any:
    parameter = ms.Parameter(ms.Tensor(array), name="p")  # of a bfloat16 tensor it cannot be made with NumPy 2
    parameter.set_dtype(ms.bfloat16)
    return parameter


@pytest.mark.parametrize("make", [bfloat16_tensor, bfloat16_parameter])
def test_bfloat16_comes_as_float32(make: Callable[[Any], Any]) -> None:
    """A bfloat16 tensor or parameter comes as the float32 of each value, under its own name."""
    numbers = [1.0, -2.5, 1 / 3, 3.0e38, 257.0, 255.5, 1e-30, 0.0]
    array, name = convert.to_array(make(np.array(numbers, np.float32)), "w")
    assert (name, array.dtype) == ("bfloat16", np.float32)
    assert array.tolist() == [bfloat16_of(number) for number in numbers]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_bfloat16_keeps_what_is_not_finite(number: float) -> None:
    """NaN and both infinities survive the way over bfloat16."""
    array, _ = convert.to_array(ms.Tensor([number], ms.bfloat16), "w")
    np.testing.assert_array_equal(array, np.array([number], np.float32))


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (True, "bool"), (7, "int64"), (-(2**63), "int64"), (2**64 - 1, "uint64"), (0.1, "float64"),
        (np.float32(0.1), "float32"), (np.float16(0.1), "float16"), (np.uint8(200), "uint8"), (np.bool_(True), "bool"),
        (np.int64(2**53 + 1), "int64"), (np.array(4, np.int16), "int16"),
    ],
)  # fmt: skip
def test_numbers_are_arrays_without_dimension(given: Any, dtype: str) -> None:
    """A Python or NumPy number becomes a 0-d array of the type that holds it exactly."""
    array, name = convert.to_array(given, "w")
    assert (name, array.shape, array.item()) == (dtype, (), given)


@pytest.mark.parametrize(
    "layout",
    [
        lambda array: array.astype(array.dtype.newbyteorder(">")),
        lambda array: np.asfortranarray(array),
        lambda array: array.T.copy().T,
        lambda array: np.repeat(array, 2, axis=1)[:, ::2],
        lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    ],
    ids=["big-endian", "Fortran order", "transposed", "every second", "backwards"],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_come_in_c_order_and_native_bytes(
    layout: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]], dtype: str
) -> None:
    """However the numbers lie in memory, the result is contiguous and native, with the same numbers in it."""
    given = sample(dtype)
    array, name = convert.to_array(layout(given), "w")
    assert array.flags.c_contiguous
    assert array.dtype.isnative
    assert (name, array.shape, array.tobytes()) == (dtype, given.shape, given.tobytes())


def test_read_only_and_broadcast_arrays_are_taken() -> None:
    """An array that may not be written to, and one whose elements share memory, come with their numbers."""
    frozen = sample("float32")
    frozen.flags.writeable = False
    assert convert.to_array(frozen, "w")[0].tobytes() == frozen.tobytes()
    spread = np.broadcast_to(np.float32(1.5), (3, 4))
    assert convert.to_array(spread, "w")[0].tolist() == [[1.5] * 4] * 3


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 5), ()])
def test_shapes_without_extent_are_kept(shape: tuple[int, ...]) -> None:
    """Empty arrays keep their shape, and a 0-d one is not made 1-d."""
    assert convert.to_array(np.zeros(shape, np.float32), "w")[0].shape == shape
    assert convert.to_array(np.zeros(shape, ">f4"), "w")[0].shape == shape


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (np.array([1 + 2j], np.complex64), "complex64"), (np.array([1 + 2j]), "complex128"), (np.str_("x"), "<U1"),
        (np.array(["a", "b"]), "<U1"), (np.array([b"a"]), "|S1"), (np.array([None]), "object"), (2**64, "object"),
        (-(2**63) - 1, "object"), (np.array(["2020-01-01"], "M8[D]"), "datetime64"), ("text", "str"),
        (b"bytes", "bytes"),
        ([1.0, 2.0], "list"), ((1.0,), "tuple"), ({"a": 1}, "dict"), (None, "NoneType"), (1 + 2j, "complex"),
        (np.longdouble(1.0), "float128"), (object(), "object"), (np.zeros(2, "f4,i4"), r"\[\('f0'"),
        (np.ma.masked_array([1 + 2j], mask=[True]), "complex128"),
    ],
)  # fmt: skip
def test_other_types_are_refused_by_name(given: Any, named: str) -> None:
    """Complex numbers, text, objects, lists and integers beyond 64 bits: the error names tag and type."""
    with pytest.raises(TypeError, match=named) as error:
        convert.to_array(given, "layer/w")
    assert "'layer/w'" in str(error.value)
    assert "expected" in str(error.value)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (np.array([1j]), "Record the parts"), (1j, "Record the parts"), (np.clongdouble(1), "Record the parts"),
        (np.longdouble(1), r"value\.astype\(numpy\.float64\), which rounds"), ("a", "add_value\\('text'"),
        (b"a", "add_value\\('text'"), (np.array(["a"]), "add_value\\('text'"), (np.array([b"a"]), "add_value\\('text'"),
        (np.datetime64("2020-01-01"), "seconds since"), (np.timedelta64(1, "s"), "seconds since"),
        (datetime.date(2020, 1, 1), "seconds since"), (datetime.timedelta(1), "seconds since"),
        (np.array([None]), r"numpy\.asarray\(value, numpy\.float64\)"), (2**64, r"numpy\.asarray"),
        ([1.0], r"numpy\.asarray"), (Fraction(1, 2), r"float\(value\)"), (Decimal(1), r"float\(value\)"),
        (np.zeros(2, "f4,i4"), "Record each field"),
    ],
)  # fmt: skip
def test_the_error_says_what_to_do_with_such_a_value(given: Any, advice: str) -> None:
    """Each kind of value has its own advice: complex numbers, long doubles, dates, texts, objects, records."""
    with pytest.raises(TypeError, match=advice):
        convert.to_array(given, "w")


# ---------------------------------------------------------------- subclasses of NumPy's array


def masked(values: Any, mask: Any, dtype: str) -> Any:
    return np.ma.masked_array(np.array(values, dtype), mask=mask)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_masked_floats_are_nan(dtype: str) -> None:
    """In a tensor of the same type and shape; the caller's array stays as it is."""
    given = masked([[1, 2], [3, 4]], [[False, True], [False, False]], dtype)
    array, name = convert.to_array(given, "w")
    np.testing.assert_array_equal(array, np.array([[1, np.nan], [3, 4]], dtype))
    assert (name, type(array), given.data[0, 1]) == (dtype, np.ndarray, 2)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "uint64"])
def test_masked_integers_are_no_tensor(dtype: str) -> None:
    """No integer says that there is none; without a masked element they are taken."""
    with pytest.raises(TypeError, match=rf"'w' has masked elements of dtype {dtype}, .* value\.filled\(n\)"):
        convert.to_array(masked([1, 0], [False, True], dtype), "w")
    for mask in ([False, False], np.ma.nomask):
        np.testing.assert_array_equal(convert.to_array(masked([1, 0], mask, dtype), "w")[0], np.array([1, 0], dtype))


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float16", "float64"])
def test_masked_values_are_left_out_of_a_histogram(dtype: str) -> None:
    """Of any type; what is left is flat, and may be nothing."""
    array, name = convert.to_array(masked([[1, 0], [1, 1]], [[False, True], [True, False]], dtype), "w", "histogram")
    np.testing.assert_array_equal(array, np.array([1, 1], dtype))
    assert name == dtype
    assert convert.to_array(masked([1, 2], True, "float32"), "w", "histogram")[0].size == 0


@pytest.mark.parametrize(
    "given",
    [np.ma.masked, masked([5], [True], "float64"), masked([5], [True], "int32"), masked(True, True, "bool"),
     np.ma.masked_array([5.0], mask=[True]).mean(), masked([[5]], [[True]], "uint64")],
)  # fmt: skip
def test_a_masked_scalar_is_nan(given: Any) -> None:
    """Of any type, an array of one element and NumPy's constant."""
    assert math.isnan(convert.to_scalar(given, "s"))


def test_a_scalar_that_is_not_masked_is_its_number() -> None:
    """Beside others that are."""
    assert convert.to_scalar(masked([1, 2, 1000], [False, False, True], "float64")[1:2], "s") == 2.0


def test_masked_pixels_are_black() -> None:
    """As NaN is drawn; bytes stay bytes, as they are recorded without a change."""
    shape = (1, 1, 2, 2)
    mask = np.array([True, False, False, False]).reshape(shape)
    for dtype, expected in (("uint8", np.uint8(0)), ("float32", np.float32(np.nan)), ("int32", np.float64(np.nan))):
        picture = convert.to_image(np.ma.masked_array(np.ones(shape, dtype), mask=mask), "i")
        assert picture.dtype == expected.dtype
        np.testing.assert_array_equal(picture.reshape(-1), np.array([expected, 1, 1, 1], expected.dtype))


class Meters(np.ndarray[Any, Any]):
    """As libraries of units have them."""


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize(
    "wrap",
    [
        np.asmatrix, lambda array: array.view(Meters), lambda array: array.view(np.recarray),
        lambda array: np.ma.masked_array(array), lambda array: np.require(array, requirements="W"),
    ],
)  # fmt: skip
def test_other_subclasses_are_plain_arrays(wrap: Callable[[Any], Any]) -> None:
    """Matrices, arrays with units, record arrays of numbers, masked ones without a mask."""
    array, name = convert.to_array(wrap(np.array([[1.0, 2.0]])), "w")
    assert (type(array), array.tolist(), name) == (np.ndarray, [[1.0, 2.0]], "float64")


def test_a_mapped_file_is_a_plain_array(tmp_path: Path) -> None:
    """Its numbers are taken as they are at the moment."""
    mapped = np.memmap(tmp_path / "m", "int32", "w+", shape=(3,))
    mapped[:] = [1, 2, 3]
    array, _ = convert.to_array(mapped, "w")
    assert (type(array), array.tolist()) == (np.ndarray, [1, 2, 3])


def test_a_complex_tensor_is_refused() -> None:
    """A complex tensor is refused as an array and as a scalar, with a hint at its parts."""
    tensor = ms.Tensor(np.array([1 + 2j], np.complex64))
    for function in (convert.to_array, convert.to_scalar):
        with pytest.raises(TypeError, match=r"'z' has dtype complex64; .* Record the parts"):
            function(tensor, "z")


# ---------------------------------------------------------------- scalars


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.1, 0.1), (1e300, 1e300), (5e-324, 5e-324), (-0.0, -0.0), (True, 1.0), (7, 7.0), (2**53 + 1, float(2**53)),
        (2**1023, 2.0**1023), (np.float64(0.1), 0.1), (np.float32(0.1), float(np.float32(0.1))), (np.bool_(True), 1.0),
        (np.float16(0.1), float(np.float16(0.1))), (np.int64(2**62), 2.0**62), (np.uint64(2**64 - 1), 2.0**64),
        (np.array([[3]], np.int8), 3.0), (np.array(2.5, ">f8"), 2.5),
    ],
)  # fmt: skip
def test_numbers_are_scalars(given: Any, expected: float) -> None:
    """Python and NumPy numbers, and arrays with one element, become the nearest float64."""
    number = convert.to_scalar(given, "loss")
    assert type(number) is float
    assert math.copysign(1.0, number) == math.copysign(1.0, expected)
    assert number == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
def test_a_tensor_with_one_element_is_a_scalar(dtype: str, shape: tuple[int, ...]) -> None:
    """Of any dtype and any number of dimensions, with its largest number and its exact value."""
    largest = sample(dtype).max()
    tensor = ms.Tensor(np.full(shape, largest, dtype))
    assert convert.to_scalar(tensor, "loss") == float(largest)
    assert convert.to_scalar(ms.Parameter(tensor, name="p"), "loss") == float(largest)


@pytest.mark.parametrize("make", [bfloat16_tensor, bfloat16_parameter])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_bfloat16_tensor_is_a_scalar(make: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    """NumPy has no bfloat16; its number comes exactly all the same."""
    assert convert.to_scalar(make(np.full(shape, 1 / 3, np.float32)), "loss") == bfloat16_of(1 / 3)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_a_scalar(number: float) -> None:
    """NaN and infinities pass, from Python, NumPy and MindSpore."""
    for given in (number, np.float32(number), ms.Tensor(number, ms.float32), ms.Tensor([number], ms.float16)):
        np.testing.assert_array_equal(convert.to_scalar(given, "loss"), number)


@pytest.mark.parametrize("shape", [(2,), (0,), (3, 1), (0, 1)])
def test_more_or_fewer_elements_are_no_scalar(shape: tuple[int, ...]) -> None:
    """The error names the tag and the shape."""
    for given in (np.zeros(shape, np.float32), ms.Tensor(np.zeros(shape, np.float32))):
        with pytest.raises(ValueError, match="one element") as error:
            convert.to_scalar(given, "acc")
        assert f"'acc' has shape {shape}" in str(error.value)


@pytest.mark.parametrize("given", [2**1024, -(2**1024), 10**400])
def test_an_int_beyond_float64_is_refused(given: int) -> None:
    """Where float64 ends, an int is refused with its size in bits instead of becoming infinite."""
    with pytest.raises(ValueError, match=f"'n' has {given.bit_length()} bits"):
        convert.to_scalar(given, "n")


@pytest.mark.parametrize("given", ["0.5", b"1", None, [1.0], {"loss": 1.0}, 1j, np.complex64(1j), np.array("a")])
def test_what_is_no_number_is_no_scalar(given: Any) -> None:
    """Text, lists, dictionaries and complex numbers raise TypeError and name the tag."""
    with pytest.raises(TypeError, match="'loss'"):
        convert.to_scalar(given, "loss")


# ---------------------------------------------------------------- pictures


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((2, 3, 32, 30), (2, 3, 32, 30)), ((2, 1, 8, 9), (2, 1, 8, 9)), ((2, 512, 500, 3), (2, 3, 512, 500)),
        ((2, 8, 9, 1), (2, 1, 8, 9)), ((1, 3, 5, 3), (1, 3, 5, 3)), ((1, 1, 5, 3), (1, 1, 5, 3)),
        ((1, 3, 5, 1), (1, 3, 5, 1)), ((1, 1, 1, 1), (1, 1, 1, 1)), ((4, 2, 2, 3), (4, 3, 2, 2)),
        ((5, 7), (1, 1, 5, 7)), ((1, 3), (1, 1, 1, 3)), ((3, 3), (1, 1, 3, 3)),
        ((3, 5, 7), (1, 3, 5, 7)), ((1, 5, 7), (1, 1, 5, 7)), ((5, 7, 3), (1, 3, 5, 7)), ((5, 7, 1), (1, 1, 5, 7)),
        ((3, 5, 3), (1, 3, 5, 3)), ((1, 5, 3), (1, 1, 5, 3)), ((3, 5, 1), (1, 3, 5, 1)), ((3, 3, 3), (1, 3, 3, 3)),
    ],
)  # fmt: skip
def test_pictures_come_as_batches_with_channels_second(given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """(N, C, H, W) is kept, (N, H, W, C) is turned, where both would do the first is taken; one picture is a batch."""
    array = np.arange(math.prod(given), dtype=np.float32).reshape(given)
    for value in (array, ms.Tensor(array)):
        picture = convert.to_image(value, "i")
        assert picture.shape == expected
        assert picture.flags.c_contiguous
        batch = array.reshape((1,) * (4 - array.ndim) + given)
        np.testing.assert_array_equal(picture, batch if batch.shape == expected else batch.transpose(0, 3, 1, 2))


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a\nb", "a\nb"), ("", ""), ("准确率 🙂", "准确率 🙂"), (np.str_("a"), "a"), (["a", "b"], ["a", "b"]),
        (("ab", "cd"), ["ab", "cd"]), ([], []), (np.array([["a"], ["b"]]), [["a"], ["b"]]), (np.array("a"), "a"),
        (np.array(["a", "bc"], object), ["a", "bc"]), ("nul\0", "nul\0"),
    ],
)  # fmt: skip
def test_texts(given: Any, expected: Any) -> None:
    """A text is 0-d, a list has one dimension, an array keeps its shape."""
    assert convert.to_text(given, "t").array.tolist() == expected


@pytest.mark.parametrize(
    "given", [b"a", 1, None, [1], ["a", b"b"], [("a", "b"), ("c", "d")], np.array([1]), np.array([b"a"]), {"a": "b"}]
)
def test_what_is_no_text(given: Any) -> None:
    """Bytes, numbers, and lists that hold any: the error names the tag and what is expected."""
    with pytest.raises(TypeError, match=r"The text 't' (is|holds) a .*; expected"):
        convert.to_text(given, "t")


def test_a_text_that_is_no_unicode_is_refused() -> None:
    """With its place in the list, and how it can be written."""
    with pytest.raises(ValueError, match=r"Text 1 of 't' is no valid Unicode: .* at position 2.*backslashreplace"):
        convert.to_text(["good", "ab\udcff"], "t")


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((2, 32, 32), r"expected 1 or 3 channels as first or last dimension.* value\[:, None\]"),
        ((2,), "expected one picture, "), ((), "expected one picture, "), ((1, 1, 1, 1, 3), "expected one picture, "),
        ((0, 5), "holds no pixel"), ((3, 0, 5), "holds no pixel"),
        ((2, 4, 64, 64), "expected 1 or 3 channels"), ((2, 5, 5, 2), "expected 1 or 3 channels"),
        ((0, 3, 8, 8), "holds no pixel"), ((2, 3, 0, 8), "holds no pixel"),
    ],
)  # fmt: skip
def test_other_shapes_are_no_pictures(shape: tuple[int, ...], reason: str) -> None:
    """The error names the tag, the shape and what would be right."""
    with pytest.raises(ValueError, match=reason) as error:
        convert.to_image(np.zeros(shape, np.float32), "i")
    assert f"'i' has shape {shape}" in str(error.value)
