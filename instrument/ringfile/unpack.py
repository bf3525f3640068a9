"""Decode records of the ring; every count, length and offset is checked before it is used."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, NamedTuple

from instrument.codec import tensor
from instrument.errors import CorruptMessage
from instrument.events import ArrayItem, EncodedItem, Event, Item, MessageItem
from instrument.ringfile.record import (
    ALIAS,
    ARRAY,
    CODES_BY_NUMBER,
    DTYPES_BY_NUMBER,
    EVENT_HEAD,
    ITEM,
    KINDS_BY_NUMBER,
    MESSAGE,
    MOST_CACHED,
    MOST_CACHED_BYTES,
    MOST_DIMS,
    MOST_ITEMS,
    MOST_SCALARS,
    U32,
)  # fmt: skip

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Tags by their encoding: those of a training's steps are mostly the same.
_tags: dict[bytes, tuple[str, ...]] = {}


def unpack(payload: memoryview, head_offset: int, encodes: bool = False) -> Event:
    """Return the event of a payload; its arrays are views of `payload`.

    With `encodes`, tensors that stand in the file as they are, those of float32, are their encoded content in pieces.
    Every count, length and offset is checked against the payload before it is used.

    Raises:
        CorruptMessage: the payload is no event.
    """
    try:
        return _unpack(payload, head_offset, encodes)
    except (struct.error, UnicodeDecodeError, IndexError, ValueError, OverflowError) as error:
        raise error if isinstance(error, CorruptMessage) else CorruptMessage(f"a record is no event: {error}") from None


def _unpack(payload: memoryview, head_offset: int, encodes: bool) -> Event:
    step, wall_time, count, tag_bytes, alias_count, item_count = EVENT_HEAD.unpack_from(payload, head_offset)
    start = head_offset + EVENT_HEAD.size + 8 * count
    offset = start + tag_bytes
    if offset > len(payload):
        raise CorruptMessage(f"a record claims {count} scalars in {len(payload) - head_offset} bytes")
    if count > MOST_SCALARS or alias_count > MOST_SCALARS or item_count > MOST_ITEMS:
        raise CorruptMessage(f"a record has {count} scalars, {alias_count} aliases and {item_count} items")
    values = struct.unpack_from(f"<{count}d", payload, head_offset + EVENT_HEAD.size)
    scalars = dict(zip(_scalar_tags(bytes(payload[start:offset]), count), values, strict=True))
    step -= (step >> 63) << 64
    if not (alias_count or item_count):
        return Event(step, wall_time, (), scalars)
    rest = len(payload) - offset
    if alias_count * ALIAS.size > rest or item_count * ITEM.size > rest:
        raise CorruptMessage(f"a record claims {alias_count} aliases and {item_count} items in {rest} bytes")
    aliases: dict[tuple[str, str], str] = {}
    for _ in range(alias_count):
        kind, tag_length, alias_length = ALIAS.unpack_from(payload, offset)
        tag, offset = _text(payload, offset + ALIAS.size, tag_length)
        alias, offset = _text(payload, offset, alias_length)
        aliases[KINDS_BY_NUMBER[kind], tag] = alias
    items: list[Item] = []
    left = head_offset  # items never share bytes, so together they have no more than the body
    for _ in range(item_count):
        part, offset = _part(payload, offset)
        left -= part.length
        if left < 0 or part.offset + part.length > head_offset:
            raise CorruptMessage(f"an item claims {part.length} bytes at {part.offset} of a body of {head_offset}")
        items.append(part.item(payload[part.offset : part.offset + part.length], encodes))
    return Event(step, wall_time, items, scalars, aliases)


def _scalar_tags(data: bytes, count: int) -> tuple[str, ...]:
    tags = _tags.get(data)
    if tags is None:
        tags = tuple(_texts(data))
        if len(data) <= MOST_CACHED_BYTES:
            if len(_tags) >= MOST_CACHED:
                _tags.clear()
            _tags[data] = tags
    if len(tags) != count:
        raise CorruptMessage(f"a record has {count} scalars and {len(tags)} tags")
    return tags


def _texts(data: bytes) -> list[str]:
    texts, offset, view = [], 0, memoryview(data)
    while offset < len(data):
        (length,) = U32.unpack_from(data, offset)
        text, offset = _text(view, offset + U32.size, length)
        texts.append(text)
    return texts


def _text(data: memoryview, offset: int, length: int) -> tuple[str, int]:
    """Return the text of `length` bytes at `offset` and the offset behind it."""
    end = offset + length
    if end > len(data):
        raise CorruptMessage(f"a text claims {length} bytes where {len(data) - offset} are left")
    return str(data[offset:end], "utf-8", "surrogatepass"), end


class _Part(NamedTuple):
    """The description of one item: `length` bytes at `offset` of the body; of a message where there is no `code`."""

    kind: str
    tag: str
    length: int
    offset: int
    dtype: str
    code: str
    shape: tuple[int, ...]

    def item(self, data: memoryview, encodes: bool) -> Item:
        """Return the item whose bytes `data` are; an array is a view of them."""
        if not self.code:
            return MessageItem(self.kind, self.tag, bytes(data))
        if encodes and self.kind == "tensor" and self.code == "<f4" and self.dtype:
            return EncodedItem(self.kind, self.tag, tensor.content(self.dtype, self.shape, data, None))
        import numpy as np  # a worker that only ever sees scalars and tensors of float32 does without

        array: NDArray[np.generic] = np.ndarray(self.shape, self.code, data if self.length else None)
        return ArrayItem(self.kind, self.tag, array, self.dtype)


def _part(payload: memoryview, offset: int) -> tuple[_Part, int]:
    """Return the description at `offset` of a payload and the offset behind it."""
    kind, form, dtype, code, dims, tag_length, start, length = ITEM.unpack_from(payload, offset)
    tag, offset = _text(payload, offset + ITEM.size, tag_length)
    if form == MESSAGE:
        return _Part(KINDS_BY_NUMBER[kind], tag, length, start, "", "", ()), offset
    if form != ARRAY or dims > MOST_DIMS:
        raise CorruptMessage(f"an item of form {form} has {dims} dims")
    shape = struct.unpack_from(f"<{dims}Q", payload, offset)
    part = _Part(KINDS_BY_NUMBER[kind], tag, length, start, DTYPES_BY_NUMBER[dtype], CODES_BY_NUMBER[code], shape)
    if math.prod(shape) * int(part.code[2]) != length:
        raise CorruptMessage(f"an array of dims {shape[:8]} and type {part.code} has {length} bytes")
    return part, offset + 8 * dims
