"""Event payloads to columns: payloads of one length that differ in time, step and numbers only are read as one batch.

The problem: decoding an event field by field takes microseconds in Python, and a file holds millions of events. Almost
all of them repeat an earlier one but for a few bytes at fixed places. So one payload of each layout is outlined
(`instrument.codec.outline`), all payloads of its length are compared with it under the mask of its fixed bytes, and
those that agree are a `Batch`: its times, steps and numbers are strided views of the file's bytes.

Rejected: parsing each event with protobuf. It makes an object for each event and takes ten times as long
(`plain` in benchmarks/README.md). Comparing bytes needs nothing but NumPy and is safe against hostile files: a payload
that differs in a single fixed byte belongs to no batch.

Payloads that agree with none of the layouts that most of their length have are left for `instrument.runs.irregular`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec.outline import Outline
from instrument.eventfile.blocks import Group

Mask = NDArray[np.bool_]
#: Fewer payloads than this are not compared, unless they are long.
_FEW = 8
_LONG_BYTES = 1024
#: A layout is worth a comparison if at least one payload in eight has it.
_SHARE = 8
#: The most layouts of one length that are tried.
_LAYOUTS = 16
#: A matrix of bytes up to this size is compared as a whole, a larger one column by column.
_SMALL_BYTES = 1 << 16
#: Two long payloads of one layout have this share of their bytes in common.
_ALIKE = 0.6

#: Returns the outline of the payload at an offset of the block, or None for one that is no event (which is noted).
Read = Callable[[int], Outline | None]


class Batch:
    """Payloads with the layout of their first one, whose outline is `outline`."""

    def __init__(self, outline: Outline, group: Group) -> None:
        self.outline = outline
        self.group = group

    def wall_times(self) -> NDArray[np.float64]:
        """Return the wall time of each payload."""
        at = self.outline.wall_time_at
        return np.zeros(self.group.starts.size) if at is None else self.group.column(at, "<f8").astype(np.float64)

    def steps(self) -> NDArray[np.int64]:
        """Return the step of each payload."""
        steps = np.zeros(self.group.starts.size, np.uint64)
        for index, at in enumerate(range(*(self.outline.step_at or (0, 0)))):
            steps |= (self.group.column(at, "u1") & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
        return steps.view(np.int64)

    def numbers(self, starts: NDArray[np.int64], size: int) -> NDArray[Any]:
        """Return the numbers of `size` bytes at these places of each payload, a line for each place."""
        group = self.group
        if starts.size == 1:
            return group.column(int(starts[0]), f"<f{size}").copy()[None]
        shape, strides = (group.length - size + 1, group.starts.size), (1, group.stride)
        everywhere: NDArray[Any] = np.ndarray(shape, f"<f{size}", group.buffer, group.origin, strides)
        return everywhere[starts]


def batches(group: Group, read: Read, recall: Read) -> Iterator[Batch | Group]:
    """Split a group into batches, and at last a group of the payloads that belong to none.

    Payloads that are no events are left out. `recall` returns an outline that is known already, or None.
    """
    for _ in range(_LAYOUTS):
        count, is_long = group.starts.size, group.length >= _LONG_BYTES
        if not count or (count < _FEW and not is_long):
            break
        start = int(group.starts[0])
        outline = recall(start) if is_long else None
        if outline is None:
            if is_long and not _look_alike(group):
                break
            outline = read(start)
        if outline is None:  # it has been noted
            group = group.only(np.arange(count) > 0)
            continue
        if not outline.is_regular:
            break
        same = _agree(outline, group)
        if _SHARE * np.count_nonzero(same) < count:
            break
        yield Batch(outline, group.only(same))
        group = group.only(~same)
    if group.starts.size:
        yield group


def _look_alike(group: Group) -> bool:
    """Return True where the first two payloads have most of their bytes in common."""
    rows = group.rows[:2]
    return len(rows) > 1 and bool((rows[0] == rows[1]).mean() > _ALIKE)


def _agree(outline: Outline, group: Group) -> Mask:
    """Return True for each payload that has the layout of the first one."""
    if group.starts.size * group.length <= _SMALL_BYTES or len(outline.places) > _SHARE:
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
    """Return the spans (start, end) between the time, the step and the numbers."""
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


class LayoutCache:
    """The last outline of each length: the steps of a run, and the runs of a tree, mostly record the same."""

    _MOST_LENGTHS = 256

    def __init__(self) -> None:
        self._known: dict[int, tuple[Outline, NDArray[np.uint8], NDArray[np.uint8]]] = {}

    def find(self, payload: memoryview) -> Outline | None:
        """Return the outline of a payload that agrees with the last one of its length."""
        entry = self._known.get(len(payload))
        if entry is None:
            return None
        outline, mask, example = entry
        if ((np.frombuffer(payload, np.uint8) & mask) ^ example).any():
            return None
        return outline.with_head(payload)

    def keep(self, payload: memoryview, outline: Outline) -> None:
        """Keep the outline of a long payload of plain numbers."""
        if len(payload) < _LONG_BYTES or not outline.is_regular or not outline.places:
            return
        if len(self._known) >= self._MOST_LENGTHS:
            self._known.clear()
        mask = np.frombuffer(outline.mask(len(payload)), np.uint8)
        self._known[len(payload)] = outline, mask, np.frombuffer(payload, np.uint8) & mask
