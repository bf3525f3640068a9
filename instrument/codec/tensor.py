"""Tensors: `TensorProto`, with the values as float32 for MindInsight and exactly where float32 cannot hold them.

MindInsight reads `float_data` only, whatever `data_type` says. Types that float32 does not hold exactly carry their
own little-endian bytes in `raw_data` beside it; this reader prefers those.

NumPy is imported inside functions: a worker that is given the float32 values as bytes does without it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from instrument.codec import wire
from instrument.errors import CorruptMessage
from instrument.events import BFLOAT16

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from instrument.values import Tensor

_DIMS, _DATA_TYPE, _FLOAT_DATA, _DOUBLE_DATA, _RAW_DATA = 1, 2, 3, 6, 8
#: `DataType` of MindSpore's anf_ir.proto.
DTYPE_NUMBERS = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, BFLOAT16: 46,
}  # fmt: skip
_DTYPE_NAMES = {number: name for name, number in DTYPE_NUMBERS.items()}
#: What a value takes in `raw_data`, of the types that may need it. Half floats do for the payloads of their NaNs only.
_EXACT_BYTES = {"float16": 2, "int32": 4, "int64": 8, "uint32": 4, "uint64": 8, "float64": 8}
#: The most that any NumPy has.
_MAX_DIMS = 64
#: Values in several fields are copied into one piece, up to this size.
_MOST_JOINED_BYTES = 32 << 20


def encoded_bytes(dtype: str, elements: int) -> int:
    """Return how many bytes a tensor of `elements` elements takes in a file at most, its dims and keys apart."""
    return elements * (4 + _EXACT_BYTES.get(dtype, 0))


def content(dtype: str, shape: tuple[int, ...], singles: wire.Buffer, exact: wire.Buffer | None) -> wire.Pieces:
    """Return MindSpore's message around the values as float32 and, where those lose bits, as they are."""
    head = b"".join(wire.integer(_DIMS, extent) for extent in shape)
    head += wire.integer(_DATA_TYPE, DTYPE_NUMBERS[dtype])
    pieces: wire.Pieces = [head]
    if len(singles):
        pieces += wire.delimited_pieces(_FLOAT_DATA, [singles])
    if exact is not None:
        pieces += wire.delimited_pieces(_RAW_DATA, [exact])
    return pieces


def encode(value: Tensor) -> wire.Pieces:
    """Return the content of a `TensorProto`; the array's own memory is used where its layout allows."""
    import numpy as np

    array: NDArray[Any] = np.ascontiguousarray(value.array).reshape(value.array.shape)
    exact = None
    if value.dtype in _EXACT_BYTES and (value.dtype != "float16" or np.isnan(array).any()):
        exact = _bytes_of(array.reshape(-1).astype(array.dtype.newbyteorder("<"), copy=False))
    with np.errstate(all="ignore"):
        singles = np.ascontiguousarray(array.reshape(-1), dtype="<f4")
    return content(value.dtype, array.shape, _bytes_of(singles), exact)


def _bytes_of(flat: NDArray[np.generic]) -> memoryview:
    return flat.view("u1").data if flat.size else memoryview(b"")


def decode(data: memoryview) -> Tensor:
    """Return a tensor with its recorded dtype and shape; the array may be a read-only view of `data`.

    Raises:
        CorruptMessage: dims and data do not fit together, or the type is unknown.
    """
    shape: list[int] = []
    dtype_number = 0
    singles: list[memoryview] = []
    doubles: memoryview | None = None
    raw: memoryview | None = None
    for field in wire.few_fields(data):
        number, wire_type, content = field
        if number == _DIMS:
            shape += wire.integers(field, _MAX_DIMS)
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
        return _shaped(_numbers(raw, dtype), dtype, shape)
    if doubles is not None and not singles:
        return _shaped(_numbers(doubles, "float64"), dtype, shape)
    return _shaped(_numbers(_joined(singles), "float32"), dtype, shape)


def _joined(pieces: list[memoryview]) -> memoryview:
    if len(pieces) == 1:
        return pieces[0]
    if sum(map(len, pieces)) > _MOST_JOINED_BYTES:
        raise CorruptMessage(f"a tensor's values stand in {len(pieces)} pieces of more than {_MOST_JOINED_BYTES} bytes")
    return memoryview(b"".join(pieces))


def _numbers(data: memoryview, name: str) -> NDArray[np.generic]:
    """Return the little-endian numbers of a type that are these bytes."""
    import numpy as np

    dtype: np.dtype[np.generic] = np.dtype(name).newbyteorder("<")
    if len(data) % dtype.itemsize:
        raise CorruptMessage(f"{len(data)} bytes are no whole number of {name} values")
    return np.frombuffer(data, dtype=dtype)


def _shaped(flat: NDArray[np.generic], dtype: str, shape: list[int]) -> Tensor:
    if len(shape) > _MAX_DIMS or any(extent < 0 for extent in shape) or math.prod(shape) != flat.size:
        raise CorruptMessage(f"a tensor of {len(shape)} dims {tuple(shape[:8])} holds {flat.size} values")
    import numpy as np

    from instrument.values import Tensor

    array = _cast(flat, np.dtype(np.float32 if dtype == BFLOAT16 else dtype))
    try:
        return Tensor(array.reshape(shape), dtype)
    except ValueError as error:  # more dims than this NumPy has, or an empty array with huge ones
        raise CorruptMessage(f"a tensor of dims {tuple(shape)} cannot be made: {error}") from error


def _cast(flat: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values as `dtype`. A float beyond an integer's range becomes the range's end, not the other end.

    Files without `raw_data` hold the largest int32 and int64 as floats that are one too large.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        result = flat.astype(dtype, copy=False)
    if flat.dtype.kind == "f" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        result[flat >= flat.dtype.type(limits.max)] = limits.max
        result[flat <= flat.dtype.type(limits.min)] = limits.min
    return result
