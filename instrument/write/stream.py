"""Events larger than the ring: encoded and written while their bytes come in, and never held as a whole.

The size of a tensor in the file follows from its type and shape, so a frame can be begun before its values are there.
A tensor whose values stand twice in the file, as float32 and exactly, is sent twice. What must be seen as a whole
(an image, a histogram, a message) is gathered first.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from instrument.codec import tensor_fields, wire
from instrument.eventfile import frame
from instrument.eventfile.crc import crc32c, mask
from instrument.values import Item
from instrument.write.message import Part

#: The next bytes of the event, as they come in: of one item, and whole values of it; valid until the next call.
Arrive = Callable[[], memoryview]


class Abandoned(Exception):
    """The rest of an event will not come."""


class Later:
    """`length` bytes of a payload that are still to come: values of type `code`, converted to type `wanted`."""

    def __init__(self, length: int, code: str, wanted: str) -> None:
        self._length = length
        self._code = code
        self._wanted = wanted

    def __len__(self) -> int:
        return self._length

    def buffers(self, arrive: Arrive) -> Iterator[memoryview]:
        rest = self._length
        while rest:
            data = arrive()
            if self._code != self._wanted:
                data = _converted(data, self._code, self._wanted)
            rest -= len(data)
            yield data


def _converted(data: memoryview, code: str, wanted: str) -> memoryview:
    import numpy as np

    with np.errstate(all="ignore"):
        return np.frombuffer(data, code).astype(wanted).view("u1").data


class Frame(NamedTuple):
    """A frame whose payload may have parts that are still to come."""

    payload: list[Any]

    @property
    def size_bytes(self) -> int:
        return frame.OVERHEAD_BYTES + wire.size(self.payload)

    def buffers(self, arrive: Arrive) -> Iterator[bytes | memoryview]:
        yield frame.head(wire.size(self.payload))
        crc = 0
        for piece in self.payload:
            for data in piece.buffers(arrive) if isinstance(piece, Later) else (piece,):
                crc = crc32c(data, crc)
                yield data
        yield frame.FOOTER.pack(mask(crc))


def passes(item: Item) -> int:
    """How many times over the bytes of an item are sent."""
    if item.kind != "tensor":
        return 1
    return 2 if tensor_fields.may_need_raw_data(item.dtype) else 1


def gather_head(arrive: Arrive) -> memoryview:
    """The head of an event; its length comes before it, by itself."""
    length = int.from_bytes(arrive(), "little")
    head = bytearray()
    while len(head) < length:
        head += arrive()
    return memoryview(head)


def gather(part: Part, arrive: Arrive) -> Item:
    """An item as a whole."""
    if not part.length:
        return part.item(memoryview(b""))
    whole = memoryview(mmap.mmap(-1, part.length))  # given back to the system at once when it is no longer needed
    offset = 0
    while offset < part.length:
        data = arrive()
        whole[offset : offset + len(data)] = data
        offset += len(data)
    item = part.item(whole)
    for _ in range(passes(item) - 1):
        offset = 0
        while offset < part.length:
            offset += len(arrive())
    return item


def begin_tensor(part: Part) -> Item:
    """A tensor whose values are still to come: its payload is its encoded content in pieces."""
    singles: Any = Later(4 * math.prod(part.shape), part.code, "<f4")
    exact: Any = None
    if tensor_fields.may_need_raw_data(part.dtype):
        exact = Later(part.length, part.code, "<" + part.code[1:])
    pieces: Any = tensor_fields.content(part.dtype, part.shape, singles, exact)
    return Item(part.kind, part.tag, pieces, part.dtype)
