"""Texts in files of MindSpore's dialect: an array of UTF-8 strings, in a field of ours that its other readers skip."""

from __future__ import annotations

import math

import numpy as np

from instrument.codec import wire
from instrument.errors import CorruptMessage
from instrument.values import Text

_ELEMENT, _DIM = 1, 2
_MAX_DIMS = 32


def encode(value: Text) -> wire.Pieces:
    """The content of the field: each element in C order, and the dims."""
    elements = [str(one).encode("utf-8", "surrogateescape") for one in value.array.reshape(-1).tolist()]
    pieces: wire.Pieces = [wire.delimited(_ELEMENT, one) for one in elements]
    return [*pieces, *(wire.integer(_DIM, extent) for extent in value.array.shape)]


def decode(data: memoryview) -> Text:
    """The texts; bytes that are not UTF-8 become surrogates. Raises `CorruptMessage` for what is no such content."""
    elements, shape = [], []
    for field in wire.fields(data):
        if field[0] == _ELEMENT:
            elements.append(wire.as_text(field))
        elif field[0] == _DIM:
            shape.append(wire.as_int(field))
    if len(shape) > _MAX_DIMS or any(extent < 0 for extent in shape) or math.prod(shape) != len(elements):
        raise CorruptMessage(f"texts of dims {tuple(shape[:8])} are {len(elements)} elements")
    array = np.empty(len(elements), object)
    array[:] = elements
    return Text(array.reshape(shape))
