"""How an event crosses the border to a worker: a small marshalled head, then the arrays' own bytes.

Both ends are the same Python, so `marshal` serves; it is the fastest encoding of plain tuples that there is.
Arrays lie at multiples of 64 bytes, so that the worker can use them where they are.
"""

from __future__ import annotations

import marshal
import struct
from typing import Any

from instrument.values import Event, Item

ALIGNMENT_BYTES = 64

_HEAD_LENGTH = struct.Struct("<I")


def pack(event: Event, lineage_path: str) -> list[bytes | memoryview]:
    """The message in pieces. `lineage_path` names the file for lineage items; empty where there are none."""
    entries: list[tuple[Any, ...]] = []
    buffers: list[bytes | memoryview] = []
    for kind, tag, payload, dtype in event.items:
        if type(tag) is not str:
            tag = str.__str__(tag)  # marshal takes no subclass, and NumPy's for a buffer of bytes
        if kind == "scalar":
            entries.append((tag, float(payload)))
        elif isinstance(payload, bytes):
            entries.append((kind, tag, len(payload)))
            buffers.append(payload)
        else:
            array: Any = payload
            entries.append((kind, tag, dtype, array.dtype.str, array.shape))
            buffers.append(memoryview(array.ravel().view("u1")) if array.size else b"")
    head = marshal.dumps((event.step, event.wall_time, lineage_path, entries))
    pieces: list[bytes | memoryview] = [_HEAD_LENGTH.pack(len(head)) + head]
    for buffer in buffers:
        pieces.append(bytes(-len(pieces[-1]) % ALIGNMENT_BYTES))
        pieces.append(buffer)
    return pieces


def unpack(data: memoryview) -> tuple[Event, str]:
    """The event and the lineage file's path; arrays are views of `data`."""
    (head_length,) = _HEAD_LENGTH.unpack_from(data)
    offset = _HEAD_LENGTH.size + head_length
    step, wall_time, lineage_path, entries = marshal.loads(data[_HEAD_LENGTH.size : offset])
    items = []
    for entry in entries:
        if len(entry) == 2:
            items.append(Item("scalar", *entry))
            continue
        offset += -offset % ALIGNMENT_BYTES
        if len(entry) == 3:
            kind, tag, length = entry
            items.append(Item(kind, tag, bytes(data[offset : offset + length])))
        else:
            kind, tag, dtype, code, shape = entry
            array = _array(data[offset:], code, shape)
            length = array.nbytes
            items.append(Item(kind, tag, array, dtype))
        offset += length
    return Event(step, wall_time, items), lineage_path


def _array(data: memoryview, code: str, shape: tuple[int, ...]) -> Any:
    import numpy as np  # a worker that only ever sees scalars does without

    count = 1
    for extent in shape:
        count *= extent
    return np.frombuffer(data, np.dtype(code), count).reshape(shape)
