"""`TensorProto` of both dialects around values that are bytes already: a worker then does without NumPy."""

from __future__ import annotations

from instrument.codec import tensorboard as tb
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
    """Return True if there are values of this type that `float_data` alone would lose bits of."""
    return dtype == "float16" or dtype not in HELD_BY_FLOAT32


def content(dtype: str, shape: tuple[int, ...], singles: wire.Buffer, exact: wire.Buffer | None) -> wire.Pieces:
    """Return MindSpore's message around the values as float32 and, where those lose bits, as they are."""
    head = b"".join(wire.integer(DIMS, extent) for extent in shape)
    head += wire.integer(DATA_TYPE, DTYPE_NUMBERS[dtype])
    pieces: wire.Pieces = [head]
    if len(singles):
        pieces += wire.delimited_pieces(FLOAT_DATA, [singles])
    if exact is not None:
        pieces += wire.delimited_pieces(RAW_DATA, [exact])
    return pieces


#: Type by name, bfloat16 as float32, which TensorBoard can read.
_TENSORBOARD_NUMBERS = {**tb.DTYPE_NUMBERS, "string": tb.DT_STRING, BFLOAT16: tb.DT_FLOAT}


def tensorboard_content(dtype: str, shape: tuple[int, ...], data: wire.Buffer) -> wire.Pieces:
    """Return TensorBoard's message around the little-endian bytes of the values; those of bfloat16 are float32 here."""
    dims = b"".join(wire.delimited(tb.DIM, wire.integer(tb.DIM_SIZE, extent)) for extent in shape)
    pieces: wire.Pieces = [wire.integer(tb.DTYPE, _TENSORBOARD_NUMBERS[dtype]) + wire.delimited(tb.SHAPE, dims)]
    return pieces + wire.delimited_pieces(tb.TENSOR_CONTENT, [data]) if len(data) else pieces
