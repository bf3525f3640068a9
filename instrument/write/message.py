"""How an event crosses the border to a worker: a small marshalled head, and the bytes of its arrays and messages.

Both ends are the same Python, so `marshal` serves; it is the fastest encoding of plain tuples that there is.
Arrays lie at multiples of 64 bytes, so that the worker can use them where they are.
"""

from __future__ import annotations

import marshal
import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from instrument.codec import tensor_fields
from instrument.events import Event, Item

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALIGNMENT_BYTES = 64

_Piece = bytes | memoryview


#: `dtype.str` of those that were met: NumPy makes the text anew each time, which takes long after a pause.
_codes: dict[Any, str] = {}
#: The paths of the files behind the first one, empty for those that an event does not need.
Paths = tuple[str, ...]
#: The pieces of a message, how many bytes it has in all, and where its head begins, behind all arrays.
Packed = tuple[list[_Piece], int, int]


class Staged:
    """The payload of an item whose array lies in `place` already, at `offset` of the message.

    An array over that place would say the same; to make one takes as long as several calls, after a pause.
    """

    __slots__ = ("dtype", "nbytes", "offset", "place", "shape")

    def __init__(self, array: NDArray[np.generic], place: memoryview, offset: int) -> None:
        self.dtype, self.shape, self.nbytes = array.dtype, array.shape, len(place)
        self.place, self.offset = place, offset

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def array(self) -> NDArray[np.generic]:
        """Return the array where it lies."""
        import numpy as np

        return np.ndarray(self.shape, self.dtype, self.place)

    def copy(self) -> NDArray[np.generic]:
        """Return the array, anywhere else."""
        return self.array().copy()


def pack(event: Event, paths: Paths, staged: Collection[int] = (), staged_bytes: int = 0) -> Packed:
    """The message, but for what is in place already: `staged` has the `id` of each payload that still is.

    `paths` name the files behind the first, as far as the event needs them.
    """
    if not event.items:
        head = _head(event, paths, [])
        return [head], staged_bytes + len(head), staged_bytes
    pieces: list[_Piece] = []
    offset = staged_bytes
    entries: list[tuple[Any, ...]] = []
    for item in event.items:
        payload: Any = item.payload
        if staged and id(payload) in staged:
            entries.append((*_describe(item), payload.offset))
            continue
        entries.append((*_describe(item), offset))
        buffer = _buffer(item)
        padding = -len(buffer) % ALIGNMENT_BYTES
        pieces += (buffer, bytes(padding)) if padding else (buffer,)
        offset += len(buffer) + padding
    pieces.append(head := _head(event, paths, entries))
    return pieces, offset + len(head), offset


def _head(event: Event, paths: Paths, entries: list[tuple[Any, ...]]) -> bytes:
    step, wall_time, _, numbers, aliases = event
    scalars: Any = numbers if type(numbers) is dict else dict(numbers)  # marshal takes no other mapping
    return marshal.dumps((step, wall_time, paths, scalars, aliases, entries))


def _describe(item: Item) -> tuple[Any, ...]:
    kind, tag, payload, dtype = item
    if type(tag) is not str:
        tag = str.__str__(tag)  # marshal takes no subclass, and NumPy's for a buffer of bytes
    if isinstance(payload, bytes):
        return (kind, tag, len(payload))
    array: Any = payload
    code = _codes.get(array.dtype)
    if code is None:
        code = _codes[array.dtype] = array.dtype.str
    return (kind, tag, dtype, code, array.shape, array.nbytes)


def _buffer(item: Item) -> _Piece:
    payload: Any = item.payload
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, Staged):
        return payload.place
    return memoryview(payload.ravel().view("u1")) if payload.size else b""


class Part(NamedTuple):
    """What a head says of one item: `length` bytes, from `offset` on; of a message where there is no `code`."""

    kind: str
    tag: str
    length: int
    offset: int
    dtype: str = ""
    code: str = ""
    shape: tuple[int, ...] = ()

    def item(self, data: memoryview) -> Item:
        """The item whose bytes `data` are; an array is a view of them."""
        if not self.code:
            return Item(self.kind, self.tag, bytes(data))
        import numpy as np  # a worker that only ever sees scalars and tensors of float32 does without

        array = np.ndarray(self.shape, self.code, data if self.length else None)
        return Item(self.kind, self.tag, array, self.dtype)

    def content(self, data: memoryview) -> Item:
        """A tensor of float32 whose values `data` are, with its encoded content in pieces as payload."""
        pieces: Any = tensor_fields.content(self.dtype, self.shape, data, None)
        return Item(self.kind, self.tag, pieces, self.dtype)


def unpack(data: memoryview, head_offset: int, encodes: bool = False) -> tuple[Event, Paths]:
    """The event and the paths; arrays are views of `data`.

    With `encodes`, tensors that stand in the file as they are, those of float32, are their encoded content in pieces.
    """
    event, paths, parts = unpack_head(data[head_offset:])
    if not parts:
        return event, paths
    items = []
    for part in parts:
        place = data[part.offset : part.offset + part.length]
        is_as_it_is = encodes and part.kind == "tensor" and part.code == "<f4"
        items.append(part.content(place) if is_as_it_is else part.item(place))
    return event._replace(items=items), paths


def unpack_head(head: memoryview) -> tuple[Event, Paths, list[Part]]:
    """The event without its items, the paths, and what the items are."""
    step, wall_time, paths, scalars, aliases, entries = marshal.loads(head)
    return Event(step, wall_time, (), scalars, aliases), paths, [_part(entry) for entry in entries]


def _part(entry: tuple[Any, ...]) -> Part:
    if isinstance(entry[2], int):
        kind, tag, length, offset = entry
        return Part(kind, tag, length, offset)
    kind, tag, dtype, code, shape, length, offset = entry
    return Part(kind, tag, length, offset, dtype, code, shape)
