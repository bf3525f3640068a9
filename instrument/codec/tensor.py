"""Tensors: `TensorProto`, with the values as float32 for MindInsight and exactly where float32 cannot hold them.

MindInsight reads `float_data` only, whatever `data_type` says. Types that float32 does not hold exactly carry their
own little-endian bytes in `raw_data` beside it; this reader prefers those.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import wire
from instrument.errors import CorruptMessage
from instrument.values import BFLOAT16, Tensor

NUMBER = 8

#: `DataType` of MindSpore's anf_ir.proto.
DTYPE_NUMBERS = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, BFLOAT16: 46,
}  # fmt: skip
_DTYPE_NAMES = {number: name for name, number in DTYPE_NUMBERS.items()}
#: Types each of whose values is a float32.
_HELD_BY_FLOAT32 = frozenset({"bool", "int8", "int16", "uint8", "uint16", "float16", "float32", BFLOAT16})

#: The most that any NumPy has.
_MAX_DIMS = 64

_DIMS, _DATA_TYPE, _FLOAT_DATA, _DOUBLE_DATA, _RAW_DATA = 1, 2, 3, 6, 8


def may_need_raw_data(dtype: str) -> bool:
    """Whether there are values of this type that `float_data` alone would lose bits of."""
    return dtype == "float16" or dtype not in _HELD_BY_FLOAT32


def needs_raw_data(dtype: str, array: NDArray[np.generic]) -> bool:
    """Whether `float_data` alone would lose bits. Half floats convert exactly, but for the payloads of their NaNs."""
    if dtype == "float16":
        return bool(np.isnan(array).any())
    return dtype not in _HELD_BY_FLOAT32


def encoded_bytes(dtype: str, elements: int) -> int:
    """At most so many bytes does a tensor of `elements` elements take in a file, its dims and keys apart."""
    exact = 0 if dtype in _HELD_BY_FLOAT32 and dtype != "float16" else np.dtype(dtype).itemsize
    return elements * (4 + exact)


def encode(value: Tensor) -> wire.Pieces:
    """The content of a `TensorProto`; the array's own memory is used where its layout allows."""
    array: NDArray[Any] = np.ascontiguousarray(value.array).reshape(value.array.shape)
    exact = None
    if needs_raw_data(value.dtype, array):
        exact = _bytes_of(array.reshape(-1).astype(array.dtype.newbyteorder("<"), copy=False))
    with np.errstate(all="ignore"):
        singles = np.ascontiguousarray(array.reshape(-1), dtype="<f4")
    return frame_data(value.dtype, array.shape, _bytes_of(singles), exact)


def frame_data(dtype: str, shape: tuple[int, ...], singles: wire.Buffer, exact: wire.Buffer | None) -> wire.Pieces:
    """The content of a `TensorProto` around its values as float32 and, where those lose bits, as they are."""
    head = b"".join(wire.integer(_DIMS, extent) for extent in shape)
    head += wire.integer(_DATA_TYPE, DTYPE_NUMBERS[dtype])
    pieces: wire.Pieces = [head]
    if len(singles):
        pieces += wire.delimited_pieces(_FLOAT_DATA, [singles])
    if exact is not None:
        pieces += wire.delimited_pieces(_RAW_DATA, [exact])
    return pieces


def _bytes_of(flat: NDArray[np.generic]) -> memoryview:
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def decode(data: memoryview) -> Tensor:
    """A tensor with its recorded dtype and shape; the array may be a read-only view of `data`.

    Raises:
        CorruptMessage: dims and data do not fit together, or the type is unknown.
    """
    shape: list[int] = []
    dtype_number = 0
    singles: list[memoryview] = []
    doubles: memoryview | None = None
    raw: memoryview | None = None
    for field in wire.fields(data):
        number, wire_type, content = field
        if number == _DIMS:
            shape += _dims(field)
        elif number == _DATA_TYPE:
            dtype_number = wire.as_int(field)
        elif number == _FLOAT_DATA:
            if isinstance(content, int) or wire_type == wire.FIXED64:
                raise CorruptMessage(f"float_data has wire type {wire_type}")
            singles.append(content)  # packed, or one float a field
        elif number == _DOUBLE_DATA:
            doubles = wire.as_bytes(field)
        elif number == _RAW_DATA:
            raw = wire.as_bytes(field)
    dtype = _DTYPE_NAMES.get(dtype_number)
    if dtype is None:
        raise CorruptMessage(f"a tensor has the unknown data type {dtype_number}")
    if raw is not None and dtype != BFLOAT16:
        return _shaped(_numbers(raw, np.dtype(dtype).newbyteorder("<")), dtype, shape)
    if doubles is not None and not singles:
        return _shaped(_numbers(doubles, np.dtype("<f8")), dtype, shape)
    joined = singles[0] if len(singles) == 1 else memoryview(b"".join(singles))
    return _shaped(_numbers(joined, np.dtype("<f4")), dtype, shape)


def _dims(field: wire.Field) -> list[int]:
    if field[1] == wire.VARINT:
        return [wire.as_int(field)]
    packed, result, offset = wire.as_bytes(field), [], 0
    while offset < len(packed):
        extent, offset = wire.read_varint(packed, offset)
        result.append(wire.signed(extent))
    return result


def _numbers(data: memoryview, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    if len(data) % dtype.itemsize:
        raise CorruptMessage(f"{len(data)} bytes are no whole number of {dtype.name} values")
    return np.frombuffer(data, dtype=dtype)


def _shaped(flat: NDArray[np.generic], dtype: str, shape: list[int]) -> Tensor:
    if len(shape) > _MAX_DIMS or any(extent < 0 for extent in shape) or math.prod(shape) != flat.size:
        raise CorruptMessage(f"a tensor of {len(shape)} dims {tuple(shape[:8])} holds {flat.size} values")
    array = _cast(flat, np.dtype(np.float32 if dtype == BFLOAT16 else dtype))
    try:
        return Tensor(array.reshape(shape), dtype)
    except ValueError as error:  # more dims than this NumPy has, or an empty array with huge ones
        raise CorruptMessage(f"a tensor of dims {tuple(shape)} cannot be made: {error}") from error


def _cast(flat: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values as `dtype`. A float beyond an integer's range becomes the range's end, not the other end.

    Files without `raw_data` hold the largest int32 and int64 as floats that are one too large.
    """
    with np.errstate(all="ignore"):
        result = flat.astype(dtype, copy=False)
    if flat.dtype.kind == "f" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        result[flat >= flat.dtype.type(limits.max)] = limits.max
        result[flat <= flat.dtype.type(limits.min)] = limits.min
    return result
