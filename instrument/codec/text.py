"""Texts in files of MindSpore's dialect: an array of UTF-8 strings, in a field of ours that its other readers skip."""

from __future__ import annotations

import math

import numpy as np

from instrument.codec import wire
from instrument.codec.schema import MINDSPORE
from instrument.errors import CorruptMessage
from instrument.values import Text

_TEXT = MINDSPORE.type("Text")
_MAX_DIMS = 32


def encode(value: Text) -> wire.Pieces:
    """Return the content of the field: each element in C order, and the dims."""
    return _TEXT.pieces({"elements": elements_of(value), "dims": value.array.shape})


def elements_of(value: Text) -> list[bytes]:
    """Return each element in C order, in UTF-8."""
    return [str(element).encode("utf-8", "surrogateescape") for element in value.array.reshape(-1).tolist()]


def decode(data: memoryview) -> Text:
    """Return the texts; bytes that are not UTF-8 become surrogates.

    Raises:
        CorruptMessage: the bytes are no such content.
    """
    message = _TEXT.decode(data)
    elements, shape = message.texts("elements"), message.integers("dims")
    if len(shape) > _MAX_DIMS or any(extent < 0 for extent in shape) or math.prod(shape) != len(elements):
        raise CorruptMessage(f"texts of dims {tuple(shape[:8])} are {len(elements)} elements")
    array = np.empty(len(elements), object)
    array[:] = elements
    return Text(array.reshape(shape))
