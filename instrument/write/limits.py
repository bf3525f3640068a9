"""Limits of size: what an event takes in a file at most, what readers take, and which files are full."""

from __future__ import annotations

import sys

from instrument.codec import event as event_codec
from instrument.codec.dialects import MINDSPORE, Layout
from instrument.events import LINEAGE_KINDS, ArrayItem, Event, Item, MessageItem, StagedItem
from instrument.ringfile.commit import SUMMARY
from instrument.ringfile.control import State


def upper_bound_bytes(event: Event, layout: Layout = MINDSPORE) -> int:
    """Return the most bytes that an event takes in any file, for the check of `max_file_size` before encoding."""
    scalars = sum(len(tag.encode()) + 128 for tag in event.scalars)
    # TensorBoard has graphs and lineage in forms of its own, which tell their size only when they are made.
    if layout.has_tensorboard and any(item.kind in ("graph", *LINEAGE_KINDS) for item in event.items):
        return sys.maxsize
    return scalars + sum(item_bound_bytes(item) for item in event.items) + 256


def item_bound_bytes(item: Item) -> int:
    """Return the most bytes that an item of a recorder takes in a file."""
    named = len(item.tag.encode()) + 128
    if isinstance(item, MessageItem):
        return named + len(item.data)
    assert isinstance(item, (ArrayItem, StagedItem)), item
    shape: tuple[int, ...] = item.array.shape
    elements = item.array.size
    if item.kind == "tensor":
        from instrument.codec import tensor

        return named + 11 * len(shape) + tensor.encoded_bytes(item.dtype, elements)
    if item.kind == "histogram":
        return named + 90 * 32
    # A picture's grid has at most seven empty cells; PNG adds little to bytes that do not compress.
    pictures = shape[0]
    cells = elements // pictures * (pictures + 7)
    rows = shape[2] * (pictures // 8 + 1)  # PNG adds a byte to each
    return named + cells + rows + (cells + rows) // 64 + 4096


def is_too_large(item: Item) -> bool:
    """Return True if readers would skip the item, since it is too large for them."""
    # Most are far from it: numbers take at most four times their own bytes in a file, pictures less.
    if isinstance(item, (ArrayItem, StagedItem)) and 10 * item.array.nbytes < event_codec.MAX_PAYLOAD_BYTES:
        return False
    return item_bound_bytes(item) > event_codec.MAX_PAYLOAD_BYTES


def may_have_gap(state: State, event: Event, layout: Layout) -> bool:
    """Return True if an event can record the gap before it: it goes into the first file, which is not full.

    A file that is full has room for one gap more, which is written at the end.
    """
    return not state.full & 1 << SUMMARY and SUMMARY in layout.needed(event)


def full_files(state: State, event: Event, layout: Layout = MINDSPORE) -> tuple[bool, bool]:
    """Return if any, and if each, of the files that an event's items belong to is at its size limit."""
    full = [bool(state.full & 1 << file) for file in layout.needed(event)]
    return any(full), bool(full) and all(full)
