"""Events larger than the ring: encoded and written while their bytes come in, and never held as a whole.

The size of a tensor in the file follows from its type and shape, so a frame can be begun before its values are there.
A tensor whose values stand twice in the file, as float32 and exactly, is sent twice. What must be seen as a whole
(an image, a histogram, a message) is gathered first.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from instrument.codec import event as event_codec
from instrument.codec import tensor_fields, tensorboard_fields, wire
from instrument.codec.dialects import MINDSPORE, Layout
from instrument.eventfile import frame
from instrument.eventfile.crc import crc32c, mask
from instrument.events import Event, Item
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

    @property
    def is_as_given(self) -> bool:
        """Whether these are the bytes that were sent."""
        return self._code == self._wanted

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


def order(items: Sequence[Item], layout: Layout = MINDSPORE) -> list[Item]:
    """The order in which the bytes of items are sent: tensors as often as files hold them, file by file."""
    first = [item for item in items for _ in range(passes(item, layout))]
    return first + [item for item in items if item.kind == "tensor"] if layout.has_both else first


def passes(item: Item | Part, layout: Layout = MINDSPORE) -> int:
    """How many times over the bytes of an item are sent for the dialect that comes first."""
    if item.kind != "tensor" or not layout.has_mindspore:
        return 1
    return 2 if tensor_fields.may_need_raw_data(item.dtype) else 1


def gather_head(arrive: Arrive) -> memoryview:
    """The head of an event; its length comes before it, by itself."""
    length = int.from_bytes(arrive(), "little")
    head = bytearray()
    while len(head) < length:
        head += arrive()
    return memoryview(head)


def gather(part: Part, arrive: Arrive, layout: Layout = MINDSPORE) -> Item:
    """An item as a whole."""
    if not part.length:
        return part.item(memoryview(b""))
    whole = memoryview(mmap.mmap(-1, part.length))  # given back to the system at once when it is no longer needed
    offset = 0
    while offset < part.length:
        data = arrive()
        whole[offset : offset + len(data)] = data
        offset += len(data)
    for _ in range(passes(part, layout) - 1):
        offset = 0
        while offset < part.length:
            offset += len(arrive())
    return part.item(whole)


def begin(
    bare: Event, parts: Sequence[Part], arrive: Arrive, layout: Layout, is_whole: bool
) -> tuple[Event, Event | None]:
    """The event of a head, tensors of which are still to come unless it `is_whole`; and that for TensorBoard's files
    where it differs."""
    is_coming = [part.kind == "tensor" and part.length > 0 and not is_whole for part in parts]
    items = [
        begin_tensor(part) if coming else gather(part, arrive, layout)
        for part, coming in zip(parts, is_coming, strict=True)
    ]
    if not (layout.has_tensorboard and any(is_coming)):
        return bare._replace(items=items), None
    items = [event_codec.finish(item) for item in items]
    both = zip(parts, items, is_coming, strict=True)
    copies = [begin_copy(part) if coming else item for part, item, coming in both]
    return bare._replace(items=items), bare._replace(items=copies)


def begin_tensor(part: Part) -> Item:
    """A tensor whose values are still to come: its payload is its encoded content in pieces."""
    singles: Any = Later(4 * math.prod(part.shape), part.code, "<f4")
    exact: Any = None
    if tensor_fields.may_need_raw_data(part.dtype):
        exact = Later(part.length, part.code, "<" + part.code[1:])
    pieces: Any = tensor_fields.content(part.dtype, part.shape, singles, exact)
    return Item(part.kind, part.tag, pieces, part.dtype)


def begin_copy(part: Part) -> Item:
    """The same for TensorBoard's dialect."""
    values: Any = Later(part.length, part.code, part.code if part.code[0] == "|" else "<" + part.code[1:])
    pieces: Any = tensorboard_fields.tensor_content(part.dtype, part.shape, values)
    return Item(part.kind, part.tag, pieces, part.dtype)
