"""Event payloads to columns: payloads of one length that differ in time, step and numbers only are read as one batch.

The problem: decoding an event field by field takes microseconds in Python, and a file holds millions of events. Almost
all of them repeat an earlier one but for a few bytes at fixed places. So the `Layout` of one payload is found, all
payloads of its length are compared with it under the mask of its fixed bytes, and those that agree are a `Batch`: its
times, steps and numbers are strided views of the file's bytes.

An event may hold thousands of numbers. The layout of a long payload that is a time, a step and plain numbers is found
for all numbers at once (`scan.plain_numbers`), that of others field by field (`instrument.codec.outline`).

Rejected: parsing each event with protobuf. It makes an object for each event and takes ten times as long
(`plain` in benchmarks/README.md). Comparing bytes needs nothing but NumPy and is safe against hostile files: a payload
that differs in a single fixed byte belongs to no batch.

Payloads that agree with none of the layouts that most of their length have are left for `instrument.runs.irregular`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec import wire
from instrument.codec.outline import Outline
from instrument.errors import CorruptMessage
from instrument.eventfile.blocks import Group
from instrument.runs import scan

Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]
Bytes = NDArray[np.uint8]
#: Fewer payloads than this are not compared, unless they are long.
_FEW = 8
LONG_BYTES = 1024
#: A layout is worth a comparison if at least one payload in eight has it.
_SHARE = 8
#: The most layouts of one length that are tried.
_LAYOUTS = 16
#: Up to this size rows of bytes are compared as a whole: they stay in the processor's cache, and need no new memory.
_SMALL_BYTES = 1 << 16
#: Two long payloads of one layout have this share of their bytes in common.
_ALIKE = 0.6

#: Returns the outline of the payload at an offset of the block, or None for one that is no event (which is noted).
Outliner = Callable[[int], Outline | None]


@dataclass(eq=False)
class Layout:
    """Payloads that differ in their time, step and numbers only; the steps of all have the same size.

    The number of each of `tags` stands at `starts` and has `sizes` bytes. `varying` are the spans (start, end) of the
    bytes that hold numbers.
    """

    tags: list[str]
    starts: Indices
    sizes: Indices
    varying: Indices
    wall_time_at: int | None
    step_at: tuple[int, int] | None
    _mask: Bytes | None = None

    @classmethod
    def of_outline(cls, outline: Outline) -> Layout:
        """Return the layout of a payload that holds plain numbers only."""
        starts = np.array([place.start for place in outline.places], np.int64)
        ends = np.array([place.end for place in outline.places], np.int64)
        varying = np.array(outline.varying, np.int64).reshape(-1, 2)
        tags = [place.tag for place in outline.places]
        return cls(tags, starts, ends - starts, varying, outline.wall_time_at, outline.step_at)

    @classmethod
    def of_wide(cls, payload: memoryview, plain_key: int) -> Layout | None:
        """Return the layout of a payload that is a time, a step and plain numbers, found for all of them at once.

        None for any other payload; `plain_key` is the key of a number.
        """
        spans: dict[int, wire.Span] = {}
        try:
            for span in wire.spans(payload, 0, len(payload)):
                if span[0] in spans or _HEAD_TYPES.get(span[0]) != span[1]:
                    return None
                spans[span[0]] = span
        except CorruptMessage:
            return None
        if scan.SUMMARY not in spans:
            return None
        numbers = scan.plain_numbers(payload, *spans[scan.SUMMARY][2:], plain_key)
        if numbers is None:
            return None
        wall_time, step = spans.get(scan.WALL_TIME), spans.get(scan.STEP)
        return cls(*numbers, None if wall_time is None else wall_time[2], None if step is None else step[2:])

    def mask(self, length: int) -> Bytes:
        """Return the bits of a payload of that length, which all have, in which those that have this layout agree."""
        if self._mask is None:
            mask = self._mask = np.full(length, 0xFF, np.uint8)
            if len(self.varying) > _FEW:
                sizes = self.varying[:, 1] - self.varying[:, 0]
                for size in set(sizes.tolist()):
                    mask[self.varying[sizes == size, :1] + np.arange(size)] = 0
            else:
                for start, end in self.varying.tolist():
                    mask[start:end] = 0
            if self.wall_time_at is not None:
                mask[self.wall_time_at : self.wall_time_at + 8] = 0
            if self.step_at is not None:
                mask[slice(*self.step_at)] = 0x80
        return self._mask

    def fixed_spans(self, length: int) -> list[tuple[int, int]]:
        """Return the spans (start, end) between the time, the step and the numbers."""
        varying: list[tuple[int, int]] = [(start, end) for start, end in self.varying.tolist()]
        if self.wall_time_at is not None:
            varying.append((self.wall_time_at, self.wall_time_at + 8))
        if self.step_at is not None:
            varying.append(self.step_at)
        spans, position = [], 0
        for start, end in [*sorted(varying), (length, length)]:
            if position < start:
                spans.append((position, start))
            position = end
        return spans


#: The fields of an event whose layout is found at once, and their wire types.
_HEAD_TYPES = {scan.WALL_TIME: wire.FIXED64, scan.STEP: wire.VARINT, scan.SUMMARY: wire.LENGTH_DELIMITED}


class Batch:
    """Payloads of one layout."""

    def __init__(self, layout: Layout, group: Group) -> None:
        self.layout = layout
        self.group = group

    def wall_times(self) -> NDArray[np.float64]:
        """Return the wall time of each payload."""
        at = self.layout.wall_time_at
        return np.zeros(self.group.starts.size) if at is None else self.group.column(at, "<f8").astype(np.float64)

    def steps(self) -> NDArray[np.int64]:
        """Return the step of each payload."""
        steps = np.zeros(self.group.starts.size, np.uint64)
        for index, at in enumerate(range(*(self.layout.step_at or (0, 0)))):
            steps |= (self.group.column(at, "u1") & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
        return steps.view(np.int64)

    def numbers(self, starts: Indices, size: int) -> NDArray[Any]:
        """Return the numbers of `size` bytes at these places of each payload, a line for each place."""
        group = self.group
        if starts.size == 1:
            return group.column(int(starts[0]), f"<f{size}").copy()[None]
        shape, strides = (group.length - size + 1, group.starts.size), (1, group.stride)
        everywhere: NDArray[Any] = np.ndarray(shape, f"<f{size}", group.buffer, group.origin, strides)
        return everywhere[starts]


class LayoutCache:
    """The last layout of each length: the steps of a run, and the runs of a tree, mostly record the same."""

    _MOST_LENGTHS = 256

    def __init__(self) -> None:
        self._last: dict[int, tuple[Layout, Bytes]] = {}

    def find(self, payload: memoryview) -> Layout | None:
        """Return the last layout of the payload's length if the payload has it."""
        if len(payload) in self._last:
            layout, example = self._last[len(payload)]
            if not ((np.frombuffer(payload, np.uint8) & layout.mask(len(payload))) ^ example).any():
                return layout
        return None

    def keep(self, payload: memoryview, layout: Layout) -> None:
        """Keep the layout of a payload."""
        if len(self._last) >= self._MOST_LENGTHS:
            self._last.clear()
        self._last[len(payload)] = layout, np.frombuffer(payload, np.uint8) & layout.mask(len(payload))


class Dialect(NamedTuple):
    """How events are read: `own` fields are values beside those of the summary, `plain_key` the key of a number.

    `layouts` holds those of one file; `wide_layouts` are found without the dialect's outline, and hold for all files.
    """

    outline: Callable[[memoryview], Outline]
    take_value: Callable[[Outline, memoryview, int, int], None]
    own: frozenset[int]
    plain_key: int
    layouts: LayoutCache
    wide_layouts: LayoutCache


def batches(group: Group, data: memoryview, dialect: Dialect, outline_at: Outliner) -> Iterator[Batch | Group]:
    """Split a group of payloads in `data` into batches, and at last a group of those that belong to none.

    Payloads that are no events are left out.
    """
    for _ in range(_LAYOUTS):
        count, is_long = group.starts.size, group.length >= LONG_BYTES
        if not count or (count < _FEW and not is_long):
            break
        start = int(group.starts[0])
        payload = data[start : start + group.length]
        layout = dialect.wide_layouts.find(payload) or dialect.layouts.find(payload) if is_long else None
        if layout is None and is_long:
            if not _look_alike(group):
                break
            layout = Layout.of_wide(payload, dialect.plain_key)
            if layout is not None:
                dialect.wide_layouts.keep(payload, layout)
        if layout is None:
            outline = outline_at(start)
            if outline is None:  # it has been noted
                group = group.only(np.arange(count) > 0)
                continue
            if not outline.is_regular:
                break
            layout = Layout.of_outline(outline)
            if is_long:
                dialect.layouts.keep(payload, layout)
        same = _agree(layout, group)
        if _SHARE * np.count_nonzero(same) < count:
            break
        yield Batch(layout, group.only(same))
        group = group.only(~same)
    if group.starts.size:
        yield group


def _look_alike(group: Group) -> bool:
    """Return True where the first two payloads have most of their bytes in common."""
    rows = group.rows[:2]
    return len(rows) > 1 and bool((rows[0] == rows[1]).mean() > _ALIKE)


def _agree(layout: Layout, group: Group) -> Mask:
    """Return True for each payload that has the layout of the first one."""
    count, length = group.starts.size, group.length
    if count * length <= _SMALL_BYTES or len(layout.tags) > _SHARE:
        mask, rows, at_once = layout.mask(length), group.rows, max(1, _SMALL_BYTES // max(length, 1))
        differs = np.empty(count, np.uint8)
        for first in range(0, count, at_once):
            part = rows[first : first + at_once] ^ rows[0]
            part &= mask
            np.bitwise_or.reduce(part, axis=1, out=differs[first : first + at_once])
        same: Mask = differs == 0
        return same
    same = np.ones(count, np.bool_)
    for start, end in layout.fixed_spans(length):
        while start < end:
            width = 1 << (min(end - start, 8).bit_length() - 1)
            column = group.column(start, f"<u{width}")
            same &= column == column[0]
            start += width
    for at in range(*(layout.step_at or (0, 0))):
        bits = group.column(at, "u1") & np.uint8(0x80)
        same &= bits == bits[0]
    return same
