"""The fields of a `TensorProto`, for whoever has its values as bytes: a worker then does without NumPy."""

from __future__ import annotations

from instrument.codec import wire
from instrument.events import BFLOAT16

DIMS, DATA_TYPE, FLOAT_DATA, DOUBLE_DATA, RAW_DATA = 1, 2, 3, 6, 8

#: `DataType` of MindSpore's anf_ir.proto.
DTYPE_NUMBERS = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, BFLOAT16: 46,
}  # fmt: skip
#: Types each of whose values is a float32.
HELD_BY_FLOAT32 = frozenset({"bool", "int8", "int16", "uint8", "uint16", "float16", "float32", BFLOAT16})


def may_need_raw_data(dtype: str) -> bool:
    """Whether there are values of this type that `float_data` alone would lose bits of."""
    return dtype == "float16" or dtype not in HELD_BY_FLOAT32


def content(dtype: str, shape: tuple[int, ...], singles: wire.Buffer, exact: wire.Buffer | None) -> wire.Pieces:
    """The content of a `TensorProto` around its values as float32 and, where those lose bits, as they are."""
    head = b"".join(wire.integer(DIMS, extent) for extent in shape)
    head += wire.integer(DATA_TYPE, DTYPE_NUMBERS[dtype])
    pieces: wire.Pieces = [head]
    if len(singles):
        pieces += wire.delimited_pieces(FLOAT_DATA, [singles])
    if exact is not None:
        pieces += wire.delimited_pieces(RAW_DATA, [exact])
    return pieces
