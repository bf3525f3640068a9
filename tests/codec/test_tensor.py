"""Tensors: every dtype and layout bit for bit, what MindInsight reads beside it, and bytes that are no tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from instrument.codec import tensor, wire
from instrument.errors import CorruptMessage
from instrument.values import BFLOAT16, Tensor
from tests import protobuf

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
DTYPES = ["bool", *INTEGERS, *FLOATS]


def encoded(array: NDArray[Any], dtype: str = "") -> bytes:
    return b"".join(tensor.encode(Tensor(array, dtype or array.dtype.name)))


def check_round_trip(array: NDArray[Any], dtype: str = "") -> Any:
    """Encode and decode: dtype, shape and bits stay, `float_data` is the array as float32. Return the message."""
    data = encoded(array, dtype)
    decoded = tensor.decode(memoryview(data))
    native = array.dtype.newbyteorder("=")
    assert decoded.dtype == (dtype or array.dtype.name)
    assert (decoded.array.dtype, decoded.array.shape) == (native, array.shape)
    assert decoded.array.tobytes() == array.astype(native).tobytes()
    message = protobuf.message_class("TensorProto").FromString(data)
    with np.errstate(all="ignore"):
        singles = array.astype(np.float32).reshape(-1)
    np.testing.assert_array_equal(np.array(message.float_data, np.float32), singles)
    assert list(message.dims) == list(array.shape)
    assert message.data_type == tensor.DTYPE_NUMBERS[dtype or array.dtype.name]
    assert len(message.float_data) * 4 + len(message.raw_data) <= tensor.encoded_bytes(decoded.dtype, array.size)
    return message


def limits(dtype: str) -> NDArray[Any]:
    """The extremes of a dtype and what lies beside them."""
    if dtype == "bool":
        return np.array([True, False])
    if dtype in INTEGERS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.array([low, low + 1, 0, 1, high // 2, high - 1, high], dtype)
    info = np.finfo(dtype)
    numbers = [info.min, info.max, info.tiny, info.smallest_subnormal, info.eps, 1.0, -0.0, 0.0]
    return np.array([*numbers, np.inf, -np.inf, np.nan], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_limits_of_each_dtype(dtype: str) -> None:
    """The smallest, the largest and the special values of a dtype come back bit for bit."""
    check_round_trip(limits(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0, 4), (1,), (3,), (2, 3), (1, 1, 1, 1), (2, 3, 4, 5)])
def test_shapes(dtype: str, shape: tuple[int, ...]) -> None:
    """A number without dims, arrays without numbers and ordinary ones keep their shape."""
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    check_round_trip(array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "view",
    [
        lambda array: array.T,
        lambda array: array[::2, 1:],
        lambda array: array[:, ::-1],
        lambda array: array[::-1],
        lambda array: np.asfortranarray(array),
        lambda array: np.broadcast_to(array[0], (3, array.shape[1])),
        lambda array: array[2, 3],
    ],
    ids=["transposed", "strided", "reversed columns", "reversed rows", "fortran", "broadcast", "scalar"],
)
def test_layouts(dtype: str, view: Callable[[NDArray[Any]], Any]) -> None:
    """How the numbers lie in memory does not show in the file."""
    array = np.asarray(view(np.resize(limits(dtype), (4, 7))))
    assert encoded(array) == encoded(np.array(array, order="C"))
    check_round_trip(array)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_big_endian_arrays(dtype: str) -> None:
    """The byte order of the input does not show either."""
    array = limits(dtype)
    swapped = array.astype(array.dtype.newbyteorder(">"))
    assert encoded(swapped, dtype) == encoded(array)
    check_round_trip(swapped, dtype)


def test_every_float16() -> None:
    """All 65536 bit patterns of a half float come back, payloads of NaN included."""
    message = check_round_trip(np.arange(65536, dtype=np.uint16).view(np.float16))
    assert message.HasField("raw_data")  # some processors change a NaN on its way through float32


def test_float16_without_nan_needs_no_second_copy() -> None:
    """A half float that is a number is a float32 exactly."""
    assert not check_round_trip(np.array([1.5, -0.0, 6e-8, 65504, np.inf], np.float16)).HasField("raw_data")


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "uint8", "uint16", "float32"])
def test_types_that_float32_holds_need_no_second_copy(dtype: str) -> None:
    """What MindInsight reads is exact already."""
    assert not check_round_trip(limits(dtype)).HasField("raw_data")


@pytest.mark.parametrize(("dtype", "size"), [("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8), ("float64", 8)])
def test_types_that_float32_does_not_hold_carry_their_bytes(dtype: str, size: int) -> None:
    """The exact bytes stand in `raw_data`, little endian, beside what MindInsight reads."""
    message = check_round_trip(limits(dtype))
    assert message.raw_data == limits(dtype).astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    assert len(message.raw_data) == size * limits(dtype).size


def test_payloads_of_nan(rng: np.random.Generator) -> None:
    """Quiet and signalling NaNs of float32 and float64 keep each bit."""
    patterns = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFBFFFFF, 0x7FFFFFFF], np.uint32)
    check_round_trip(patterns.view(np.float32))
    random = rng.integers(0, 2**52, 50, dtype=np.uint64) | np.uint64(0x7FF0000000000001)
    check_round_trip(random.view(np.float64))


def test_random_bits_of_each_dtype(rng: np.random.Generator) -> None:
    """So does any other bit pattern."""
    for dtype in [*INTEGERS, *FLOATS]:
        check_round_trip(np.frombuffer(rng.bytes(8 * 60), dtype).reshape(-1, 5))


def test_bfloat16_travels_as_float32() -> None:
    """Each of the 65536 bfloat16 values is a float32; the name of the type is kept."""
    array = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32).reshape(256, 256)
    message = check_round_trip(array, BFLOAT16)
    assert message.data_type == 46
    assert not message.HasField("raw_data")


def test_a_contiguous_array_is_not_copied() -> None:
    """The pieces of a large float32 tensor hold its own memory; decoding gives a view of the bytes."""
    array = np.arange(1000, dtype=np.float32)
    pieces = tensor.encode(Tensor(array, "float32"))
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), array) for piece in pieces)
    data = np.frombuffer(b"".join(pieces), np.uint8)
    assert np.shares_memory(tensor.decode(data.data).array, data)


def proto(**fields: Any) -> memoryview:
    return memoryview(protobuf.message_class("TensorProto")(**fields).SerializeToString())


@pytest.mark.parametrize("dtype", DTYPES)
def test_mindspores_tensors_are_read(dtype: str) -> None:
    """MindSpore writes each dtype as float_data only: the recorded type and the nearest values come back."""
    values = np.array([1, 0, 1, 100]).astype(dtype)
    number = tensor.DTYPE_NUMBERS[dtype]
    decoded = tensor.decode(proto(dims=[2, 2], data_type=number, float_data=values.astype(np.float32)))
    assert decoded.dtype == dtype
    assert decoded.array.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(decoded.array, values.reshape(2, 2))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_floats_beyond_an_integer_type_become_its_end(dtype: str) -> None:
    """The largest int64 as a float is one too large; it does not become the smallest."""
    info = np.iinfo(dtype)
    floats = np.array([info.max, info.min, 1e30, -1e30, np.inf, -np.inf], np.float32)
    decoded = tensor.decode(proto(dims=[6], data_type=tensor.DTYPE_NUMBERS[dtype], float_data=floats))
    np.testing.assert_array_equal(decoded.array, np.array([info.max, info.min] * 3, dtype))


def test_double_data_is_read() -> None:
    """A tensor that holds its values as doubles, and not as floats, keeps them."""
    decoded = tensor.decode(proto(dims=[2], data_type=12, double_data=[0.1, 1e300]))
    np.testing.assert_array_equal(decoded.array, [0.1, 1e300])


def test_fields_may_come_in_any_form() -> None:
    """Packed dims and floats one a field are the same message to protobuf, and so they are here."""
    data = wire.delimited(1, wire.varint(1) + wire.varint(2)) + wire.integer(2, 11)
    data += b"".join(wire.key(3, wire.FIXED32) + np.float32(value).tobytes() for value in (1.5, 2.5))
    decoded = tensor.decode(memoryview(data))
    np.testing.assert_array_equal(decoded.array, np.array([[1.5, 2.5]], np.float32))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dims": [3], "data_type": 11, "float_data": [1, 2]}, r"of 1 dims \(3,\) holds 2 values"),
        ({"dims": [], "data_type": 11, "float_data": [1, 2]}, "holds 2 values"),
        ({"dims": [], "data_type": 11}, "holds 0 values"),
        ({"dims": [-1], "data_type": 11, "float_data": [1, 2]}, "holds 2 values"),
        ({"dims": [-1, -2], "data_type": 11, "float_data": [1, 2]}, "holds 2 values"),
        ({"dims": [0, -5], "data_type": 11}, "holds 0 values"),
        ({"dims": [2**62, 4], "data_type": 11}, "holds 0 values"),
        ({"dims": [2**32, 2**32], "data_type": 11}, "holds 0 values"),
        ({"dims": [2**63 - 1], "data_type": 11, "float_data": [1]}, "holds 1 values"),
        ({"dims": [0, 2**62, 2**62], "data_type": 11}, "cannot be made"),
        ({"dims": [1] * 65, "data_type": 11, "float_data": [1]}, "of 65 dims"),
        ({"dims": [2**63 - 1] * 50_000, "data_type": 11, "float_data": [1]}, "of 50000 dims"),
        ({"dims": [2], "data_type": 12, "raw_data": bytes(15)}, "15 bytes are no whole number of float64"),
        ({"dims": [2], "data_type": 12, "raw_data": bytes(8)}, "holds 1 values"),
        ({"dims": [1], "data_type": 4, "raw_data": bytes(8)}, "holds 2 values"),
        ({"dims": [1], "data_type": 0, "float_data": [1]}, "unknown data type 0"),
        ({"dims": [1], "data_type": 13, "float_data": [1]}, "unknown data type 13"),
        ({"dims": [1], "data_type": -1, "float_data": [1]}, "unknown data type -1"),
        ({"dims": [1], "float_data": [1]}, "unknown data type 0"),
    ],
)
def test_what_does_not_fit_together_is_corrupt(fields: dict[str, Any], reason: str) -> None:
    """Dims, type and bytes are checked against each other before an array is made."""
    with pytest.raises(CorruptMessage, match=reason):
        tensor.decode(proto(**fields))


@pytest.mark.parametrize(
    "data",
    [
        wire.integer(1, 1) + wire.integer(2, 11) + wire.delimited(3, bytes(3)),
        wire.integer(1, 2) + wire.integer(2, 11) + wire.double(3, 0.0),
        wire.integer(1, 1) + wire.integer(2, 11) + wire.integer(3, 1),
        wire.integer(1, 1) + wire.double(2, 11.0) + wire.delimited(3, bytes(4)),
        wire.double(1, 1.0) + wire.integer(2, 11) + wire.delimited(3, bytes(4)),
        wire.delimited(1, b"\x80") + wire.integer(2, 11),
        wire.integer(1, 1) + wire.integer(2, 5) + wire.integer(8, 1),
    ],
    ids=[
        "3 bytes of floats",
        "float_data fixed64",
        "float_data varint",
        "data_type",
        "dims",
        "packed dims",
        "raw_data",
    ],
)
def test_fields_of_another_wire_type_are_corrupt(data: bytes) -> None:
    """A field that is not what the schema says is not guessed at."""
    with pytest.raises(CorruptMessage):
        tensor.decode(memoryview(data))


def test_damaged_tensors_raise_nothing_else(rng: np.random.Generator) -> None:
    """Any damage gives a tensor or a corrupt message."""
    whole = encoded(np.arange(6, dtype=np.int64).reshape(2, 3))
    for _ in range(3000):
        data = bytearray(whole[: int(rng.integers(len(whole) + 1))])
        for position in rng.integers(0, len(data), 2) if data else ():
            data[position] = int(rng.integers(256))
        try:
            decoded = tensor.decode(memoryview(data))
        except CorruptMessage:
            continue
        assert decoded.array.dtype == np.dtype("float32" if decoded.dtype == BFLOAT16 else decoded.dtype)
