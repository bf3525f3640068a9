"""The fields of TensorBoard's `TensorProto`, for whoever has its values as bytes."""

from __future__ import annotations

from typing import Any

from instrument.codec import tensorboard as tb
from instrument.codec import wire
from instrument.events import BFLOAT16

_NUMBERS = {**tb.DTYPE_NUMBERS, "string": tb.DT_STRING, BFLOAT16: tb.DT_FLOAT}  # which TensorBoard can read


def tensor_content(dtype: str, shape: tuple[int, ...], data: Any) -> wire.Pieces:
    """A `TensorProto` around the little-endian bytes of its values, or what stands for them and has their length.

    Values of bfloat16 are float32 here.
    """
    dims = b"".join(wire.delimited(tb.DIM, wire.integer(tb.DIM_SIZE, extent)) for extent in shape)
    pieces: wire.Pieces = [wire.integer(tb.DTYPE, _NUMBERS[dtype]) + wire.delimited(tb.SHAPE, dims)]
    return pieces + wire.delimited_pieces(tb.TENSOR_CONTENT, [data]) if len(data) else pieces
