"""Payloads of one length to columns: those that differ in their time, step and numbers only are taken together.

One of them is outlined; the others are compared with it in all other bytes, eight at a time. Where many series have
names of one length, payloads are first sorted into families by a hash of those bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec.outline import Outline
from instrument.eventfile.blocks import Group

Mask = NDArray[np.bool_]
#: Fewer payloads than this are taken one by one.
_FEW = 8
#: So many different layouts of one length are tried; the payloads of any further one are taken one by one.
_LAYOUTS = 16
#: A matrix of bytes up to this size is compared as a whole, a larger one column by column.
_SMALL_BYTES = 1 << 16

#: Says where everything stands in a payload of a block; None for one that is no event, which is noted.
Read = Callable[[int], Outline | None]


class Family:
    """Payloads with the outline of their first."""

    def __init__(self, outline: Outline, group: Group) -> None:
        self.outline = outline
        self.group = group

    def wall_times(self) -> NDArray[np.float64]:
        """The time of each."""
        at = self.outline.wall_time_at
        return np.zeros(self.group.starts.size) if at is None else self.group.column(at, "<f8").astype(np.float64)

    def steps(self) -> NDArray[np.int64]:
        """The step of each."""
        steps = np.zeros(self.group.starts.size, np.uint64)
        for index, at in enumerate(range(*(self.outline.step_at or (0, 0)))):
            steps |= (self.group.column(at, "u1") & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
        return steps.view(np.int64)

    def numbers(self, start: int, end: int) -> NDArray[Any]:
        """The number at a place of each."""
        return self.group.column(start, f"<f{end - start}").copy()


class One(NamedTuple):
    """A payload that is taken alone, and where it begins."""

    outline: Outline
    start: int


def families(group: Group, read: Read) -> Iterator[Family | One]:
    """All payloads of the group but those that are no events, in families or alone."""
    for _ in range(_LAYOUTS):
        if group.starts.size < _FEW:
            break
        start = int(group.starts[0])
        outline = read(start)
        if outline is None or not outline.is_regular:
            if outline is not None:
                yield One(outline, start)
            group = group.only(np.arange(group.starts.size) > 0)
            continue
        same = _agree(outline, group)
        if same.all():
            yield Family(outline, group)
            return
        if 2 * np.count_nonzero(same) >= same.size:
            yield Family(outline, group.only(same))
            group = group.only(~same)
            continue
        found, is_left = _by_hash(outline, group, read)
        yield from found
        group = group.only(is_left)
    for start in group.starts.tolist():
        outline = read(start)
        if outline is not None:
            yield One(outline, start)


def _agree(outline: Outline, group: Group) -> Mask:
    """Which payloads have the outline of the first one."""
    if group.starts.size * group.length <= _SMALL_BYTES:
        mask = np.frombuffer(outline.mask(group.length), np.uint8)
        rows = group.rows
        differs: Mask = ((rows ^ rows[0]) & mask).any(axis=1)
        return ~differs
    same = np.ones(group.starts.size, np.bool_)
    for start, end in _fixed_spans(outline, group.length):
        while start < end:
            width = 1 << (min(end - start, 8).bit_length() - 1)
            column = group.column(start, f"<u{width}")
            same &= column == column[0]
            start += width
    for at in range(*(outline.step_at or (0, 0))):
        bits = group.column(at, "u1") & np.uint8(0x80)
        same &= bits == bits[0]
    return same


def _fixed_spans(outline: Outline, length: int) -> list[tuple[int, int]]:
    """What lies between the time, the step and the numbers."""
    varying = list(outline.varying)
    if outline.wall_time_at is not None:
        varying.append((outline.wall_time_at, outline.wall_time_at + 8))
    if outline.step_at is not None:
        varying.append(outline.step_at)
    spans, position = [], 0
    for start, end in [*sorted(varying), (length, length)]:
        if position < start:
            spans.append((position, start))
        position = end
    return spans


def _by_hash(outline: Outline, group: Group, read: Read) -> tuple[list[Family], Mask]:
    """Families of the layout of `outline`, and which payloads have another one."""
    keys = _hashes(outline, group)
    order = np.argsort(keys, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
    parts.sort(key=lambda part: int(part[0]))
    found: list[Family] = []
    is_left = np.ones(keys.size, np.bool_)
    for part in parts:
        mask = np.zeros(part.size, np.bool_)
        members = Group(group.length, group.starts[part], group.rows[part].data, 0, group.length)
        other = read(int(members.starts[0]))
        if other is None:  # it has been noted
            mask[0] = True
        elif other.is_regular and _layout(other) == _layout(outline):
            mask = _agree(other, members)
            found.append(Family(other, members.only(mask)))
        is_left[part[mask]] = False
    return found, is_left


def _layout(outline: Outline) -> object:
    return outline.wall_time_at, outline.step_at, outline.varying


def _hashes(outline: Outline, group: Group) -> NDArray[np.float64]:
    """A number for each payload, equal for equal bytes in all places that the outline says to be fixed."""
    rows = group.rows & np.frombuffer(outline.mask(group.length), np.uint8)
    # Sums of products of whole numbers below 2**53 are exact, in whatever order they are added.
    weights = np.random.default_rng(group.length).integers(0, 1 << 32, group.length).astype(np.float64)
    hashes: NDArray[np.float64] = rows.astype(np.float64) @ weights
    return hashes
