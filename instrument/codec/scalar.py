"""Scalars: `Summary.Value.scalar_value`, a float, and the exact double beside it where a float cannot hold it.

The exact number stands in field 100 of `Summary.Value`, which MindSpore's schema does not use and its readers skip.
"""

from __future__ import annotations

import struct

from instrument.codec import wire
from instrument.values import Scalar

NUMBER = 3
EXACT_NUMBER = 100

_FIELD = struct.Struct("<Bf")
_EXACT_FIELD = struct.Struct("<Bf2sd")
_FLOAT = struct.Struct("<f")
_KEY = wire.key(NUMBER, wire.FIXED32)[0]
_EXACT_KEY = wire.key(EXACT_NUMBER, wire.FIXED64)
_LARGEST_FLOAT = (2.0 - 2.0**-23) * 2.0**127
#: Numbers from here on round to infinity.
_OVERFLOW = _LARGEST_FLOAT + 2.0**103


def to_float32(value: float) -> float:
    """The nearest float32, ties to even; too large a number becomes an infinity, as NumPy has it."""
    if value != value or -_OVERFLOW < value < _OVERFLOW:
        result: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
        return result
    return float("inf") if value > 0 else float("-inf")


def encode(value: float) -> bytes:
    """The fields of a scalar inside its `Summary.Value`."""
    single = to_float32(value)
    if single == value or value != value:
        return _FIELD.pack(_KEY, single)
    return _EXACT_FIELD.pack(_KEY, single, _EXACT_KEY, value)


def decode(single: float, exact: float | None) -> Scalar:
    return Scalar(single if exact is None else exact)
