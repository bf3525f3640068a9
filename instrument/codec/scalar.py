"""Scalars: `Summary.Value.scalar_value`, a float, and the exact double beside it where a float cannot hold it.

The exact number stands in field 100 of `Summary.Value`, which MindSpore's schema does not use and its readers skip.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

from instrument.codec import wire

NUMBER = 3
EXACT_NUMBER = 100

_VALUE, _TAG = 1, 1
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_EXACT_KEY = wire.key(EXACT_NUMBER, wire.FIXED64)
_SINGLE_BYTES = 5
_EXACT_BYTES = _SINGLE_BYTES + len(_EXACT_KEY) + 8
_LARGEST_FLOAT = (2.0 - 2.0**-23) * 2.0**127
#: Numbers from here on round to infinity.
_OVERFLOW = _LARGEST_FLOAT + 2.0**103


def to_float32(value: float) -> float:
    """Return the nearest float32, ties to even; too large a number becomes an infinity, as NumPy has it."""
    if value != value or -_OVERFLOW < value < _OVERFLOW:
        result: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
        return result
    return float("inf") if value > 0 else float("-inf")


Heads = Callable[[str], tuple[bytes, bytes]]


def heads_of(number: int) -> Heads:
    """Return the function that makes, for a tag, the heads of its `value` field: of a single and of an exact number.

    `number` is the field of the single one.
    """
    return functools.lru_cache(maxsize=4096)(functools.partial(_heads, number))


def _heads(number: int, tag: str) -> tuple[bytes, bytes]:
    name = wire.delimited(_TAG, tag.encode())
    heads = []
    for content_bytes in (_SINGLE_BYTES, _EXACT_BYTES):
        length = len(name) + content_bytes
        head = wire.key(_VALUE, wire.LENGTH_DELIMITED) + wire.varint(length) + name
        heads.append(head + wire.key(number, wire.FIXED32))
    return heads[0], heads[1]


_mindspore_heads = heads_of(NUMBER)


def encode_field(tag: str, value: float, heads: Heads = _mindspore_heads) -> bytes:
    """Return the `value` field of a summary that holds this number under this tag."""
    single_head, exact_head = heads(tag)
    try:
        data = _FLOAT.pack(value)
    except OverflowError:
        data = _FLOAT.pack(to_float32(value))
    if value != value or _FLOAT.unpack(data)[0] == value:
        return single_head + data
    return b"".join((exact_head, data, _EXACT_KEY, _DOUBLE.pack(value)))
