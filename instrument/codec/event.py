"""Whole events of MindSpore's dialect: what one `record(step)` becomes in a file. `outline` finds it there again.

Modules of kinds are imported on first use, so that a worker that writes only scalars never loads NumPy. Numbers of
fields are those of MindSpore's summary.proto.
"""

from __future__ import annotations

import struct

from instrument.codec import scalar, wire
from instrument.events import (
    LINEAGE_KINDS,
    SESSION_END,
    TRACE_KIND,
    ArrayItem,
    EncodedItem,
    Event,
    Item,
    MessageItem,
    ValueItem,
)

#: MindInsight drops an event whose payload is larger.
MAX_PAYLOAD_BYTES = 500_000_000
VERSION = "MindSpore.Event:1"

_WALL_TIME, _STEP, _VERSION, GRAPH, SUMMARY = 1, 2, 3, 4, 5
#: A field of ours, which MindSpore's schema lacks and all readers of its files skip.
TRACE = 100
GAP = 101
#: Kinds whose item is an event of its own: the field that holds the message.
_OWN_EVENTS = {"graph": GRAPH, TRACE_KIND: TRACE, "gap": GAP}
#: Kinds of other files.
_ELSEWHERE = (*LINEAGE_KINDS, SESSION_END)
_VALUE, _TAG = 1, 1
#: Kinds beside the scalar that are values of a summary: their number there. Texts have a field of
#: ours: MindSpore has none for them, and its readers pass over such a value.
VALUE_NUMBERS = {"image": 4, "tensor": 8, "histogram": 9, "landscape": 10, "text": 102}
_SUMMARY_KEY = wire.key(SUMMARY, wire.LENGTH_DELIMITED)
#: What almost every payload begins with: the wall time, and the key of the step.
_HEAD = struct.Struct("<BdB")
_WALL_TIME_KEY, _STEP_KEY = _WALL_TIME << 3 | wire.FIXED64, _STEP << 3 | wire.VARINT


def encode_version(wall_time: float) -> wire.Pieces:
    """Return the payload that stands first in a file."""
    return [wire.double(_WALL_TIME, wall_time) + wire.delimited(_VERSION, VERSION.encode())]


def encode(event: Event) -> list[wire.Pieces]:
    """Return the payloads for the file.

    A graph or a piece of a trace is one of its own; values share one, or several if it grows too large. Items of
    lineage kinds are left to `lineage.encode_event`.
    """
    head = _HEAD.pack(_WALL_TIME_KEY, event.wall_time, _STEP_KEY) + wire.varint(event.step)
    scalars = b"".join([scalar.encode_field(tag, number) for tag, number in event.scalars.items()])
    if not event.items:
        return [[b"".join((head, _SUMMARY_KEY, wire.varint(len(scalars)), scalars))]] if scalars else []
    payloads: list[wire.Pieces] = []
    values: wire.Pieces = [scalars] if scalars else []
    values_bytes = len(scalars)
    for item in event.items:
        if item.kind in _OWN_EVENTS:
            payloads.append([head, *wire.delimited_pieces(_OWN_EVENTS[item.kind], [message_data(item)])])
            continue
        if item.kind in _ELSEWHERE:
            continue
        value = encode_value(item)
        value_bytes = wire.size(value)
        if values and values_bytes + value_bytes > MAX_PAYLOAD_BYTES - 64:
            payloads.append([head, *wire.delimited_pieces(SUMMARY, values)])
            values, values_bytes = [], 0
        values += value
        values_bytes += value_bytes
    if values:
        payloads.append([head, *wire.delimited_pieces(SUMMARY, values)])
    return payloads


def message_data(item: Item) -> bytes:
    """Return the message of an item whose kind is always one."""
    assert isinstance(item, MessageItem), item.kind
    return item.data


def finish(item: ArrayItem) -> ValueItem:
    """Make the tensor, the histogram or the picture of an array."""
    from instrument.values import Tensor

    if item.kind == "tensor":
        return ValueItem(item.kind, item.tag, Tensor(item.array, item.dtype))
    if item.kind == "histogram":
        from instrument.codec import histogram

        return ValueItem(item.kind, item.tag, histogram.from_array(item.array))
    assert item.kind == "image", item.kind
    from instrument.codec import image

    return ValueItem(item.kind, item.tag, image.from_array(item.array))


def encode_value(item: Item) -> wire.Pieces:
    """Return a `value` field of a summary, of any kind but a scalar."""
    content = _content(item)
    named = [wire.delimited(_TAG, item.tag.encode()), *wire.delimited_pieces(VALUE_NUMBERS[item.kind], content)]
    return wire.delimited_pieces(_VALUE, named)


def _content(item: Item) -> wire.Pieces:
    """Return the content of the field of a kind."""
    if isinstance(item, EncodedItem):
        return item.pieces
    if isinstance(item, MessageItem):
        return [item.data]
    if isinstance(item, ArrayItem):
        item = finish(item)
    assert isinstance(item, ValueItem)
    value = item.value
    from instrument.codec import histogram, image, tensor, text
    from instrument.values import Histogram, Image, Tensor, Text

    if isinstance(value, Tensor):
        return tensor.encode(value)
    if isinstance(value, Histogram):
        return [histogram.encode(value)]
    if isinstance(value, Image):
        return image.encode(value)
    assert isinstance(value, Text), value
    return text.encode(value)
