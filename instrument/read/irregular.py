"""The numbers of events that have no layout in common with enough others, all of a block at once.

What is no plain number with a known tag (a histogram between scalars, the first number of a tag in some form that was
not seen yet) is left for the dialect's own outline, value by value; so are events that hold more than a summary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec import wire
from instrument.codec.outline import Outline
from instrument.errors import CorruptMessage
from instrument.eventfile.blocks import Block
from instrument.read import scan
from instrument.read.numbers import Points, Rows
from instrument.read.scan import Values
from instrument.read.templates import PADDING, SIZES, Templates

Indices = NDArray[np.int64]
#: From so many events on it pays to take them together, however few values each has.
_MANY_EVENTS = 32
#: An event of this size may have many values by itself.
_LONG_BYTES = 1024
#: What the field of the exact number begins with (`instrument.codec.scalar.EXACT_NUMBER`), and its size.
_EXACT_KEY = wire.key(100, wire.FIXED64)
_EXACT_BYTES = len(_EXACT_KEY) + 8


class Dialect(NamedTuple):
    """How events are read: `own` fields are values beside those of the summary, `plain_key` the key of a number."""

    outline: Callable[[memoryview], Outline]
    take_value: Callable[[Outline, memoryview, int, int], None]
    own: frozenset[int]
    plain_key: int


class Found(NamedTuple):
    """What events hold: numbers with their positions, values to be taken one by one, events to be read alone."""

    positions: Indices
    points: Points | None
    others: list[tuple[int, Outline]]
    alone: list[int]


def is_worth_it(data: memoryview, starts: Indices, lengths: Indices) -> NDArray[np.bool_]:
    """Return which payloads are better taken together than one by one."""
    if starts.size >= _MANY_EVENTS:
        return np.ones(starts.size, np.bool_)
    return np.fromiter(
        map(_is_wide, (data[at : at + size] for at, size in zip(starts, lengths, strict=True))), np.bool_
    )


def _is_wide(payload: memoryview) -> bool:
    """Return True for a payload that is long, by its values and not by their sizes."""
    if len(payload) < _LONG_BYTES:
        return False
    try:
        for number, wire_type, start, end in wire.spans(payload, 0, len(payload)):
            if number == 5 and wire_type == wire.LENGTH_DELIMITED:
                _, _, _, following = next(wire.spans(payload, start, end), (0, 0, 0, end))
                return following - start <= PADDING and following < end
    except CorruptMessage:
        pass
    return False


class Irregular:
    """Takes numbers out of the events of one file; it remembers what values look like."""

    def __init__(self, dialect: Dialect, number_of: Callable[[str], int]) -> None:
        self._dialect = dialect
        #: The number of a tag; -1 where the file has too many.
        self._number_of = number_of
        self._templates: list[Templates] = []

    def take(self, block: Block, starts: Indices, lengths: Indices) -> Found:
        """Read the payloads at `starts` of the block's data, which ascend."""
        self._templates = self._templates or [Templates(size) for size in SIZES]
        data = np.concatenate([np.frombuffer(block.data, np.uint8), np.zeros(PADDING, np.uint8)])
        heads = scan.heads(data, starts, starts + lengths, self._dialect.own)
        values, is_plain = scan.values(data, heads)
        values = values.only(is_plain[values.event])
        template, size_class = self._matched(data, values)
        alone = np.flatnonzero(~is_plain).tolist()
        others = self._others(block.data, starts, lengths, heads, values.only(template < 0))
        is_known = template >= 0
        if not is_known.any():
            return Found(np.empty(0, np.int64), None, others, alone)
        known, template, size_class = values.only(is_known), template[is_known], size_class[is_known]
        facts = np.empty((template.size, 4), np.int32)
        for index, templates in enumerate(self._templates):
            of_class = size_class == index
            facts[of_class] = templates.facts[template[of_class]]
        positions = known.start + facts[:, 1]
        has_values = np.zeros(starts.size, np.bool_)
        has_values[known.event] = True
        rows = Rows(block.base + starts, heads.step, heads.wall_time).only(has_values)
        row = (np.cumsum(has_values) - 1)[known.event].astype(np.int32)
        points = Points(rows, facts[:, 3].astype(np.uint16), row, _numbers(data, positions, facts[:, 2]))
        return Found(block.base + positions, points, others, alone)

    def _matched(self, data: NDArray[np.uint8], values: Values) -> tuple[Indices, Indices]:
        """Return the template of each value, -1 where there is none, and the size of the template."""
        size_class = np.searchsorted(SIZES, values.end - values.start)
        template = np.full(size_class.size, -1, np.int64)
        hashes = np.zeros(size_class.size, np.uint64)
        is_new = np.zeros(size_class.size, np.bool_)
        for index, templates in enumerate(self._templates):
            of_class = np.flatnonzero(size_class == index)
            if of_class.size:
                found, hashes_found = templates.match(data, values.start[of_class], values.end[of_class])
                template[of_class], hashes[of_class] = found, hashes_found
                is_new[of_class] = (found < 0) & (hashes_found != 0) & ~templates.is_known(hashes_found)
        new = np.flatnonzero(is_new)
        if new.size:
            _, first = np.unique(hashes[new], return_index=True)
            self._learn(data, values, hashes, size_class, new[np.sort(first)])
            for index, templates in enumerate(self._templates):
                again = new[size_class[new] == index]
                if again.size:
                    template[again], _ = templates.match(data, values.start[again], values.end[again])
        return template, size_class

    def _learn(
        self, data: NDArray[np.uint8], values: Values, hashes: NDArray[np.uint64], size_class: Indices, new: Indices
    ) -> None:
        """Make templates of those values that are plain numbers, in file order."""
        start, length = values.start[new], values.end[new] - values.start[new]
        number_at, size = self._plain(data, start, length)
        facts = np.stack([length, number_at, size, np.full(new.size, -1)], axis=1).astype(np.int32)
        varying = np.zeros((new.size, 2, 2), np.int64)
        varying[:, 0, 0], varying[:, 0, 1] = number_at, number_at + size
        varying[:, 1, 0], varying[:, 1, 1] = number_at, np.where(size == 8, number_at - len(_EXACT_KEY) - 4, number_at)
        varying[size == 8, 1] = varying[size == 8, 1, ::-1] - [[0, len(_EXACT_KEY)]]
        view = data.data
        for index, (at, size_bytes, number_size) in enumerate(
            zip(start.tolist(), length.tolist(), size.tolist(), strict=True)
        ):
            if number_size:
                tag = str(view[at + 2 : at + 2 + view[at + 1]], "utf-8", "surrogateescape")
            else:
                outline = Outline()
                try:
                    self._dialect.take_value(outline, view[at : at + size_bytes], 0, size_bytes)
                except CorruptMessage:
                    continue
                if not outline.is_regular or len(outline.places) != 1 or len(outline.varying) > 2:
                    continue
                (place,) = outline.places
                tag, facts[index, 1], facts[index, 2] = place.tag, place.start, place.end - place.start
                varying[index] = (outline.varying * 2)[:2]
            facts[index, 3] = self._number_of(tag)
        for index, templates in enumerate(self._templates):
            chosen = (size_class[new] == index) & (facts[:, 3] >= 0)
            if chosen.any():
                templates.learn(data, start[chosen], hashes[new[chosen]], facts[chosen], varying[chosen])

    def _plain(self, data: NDArray[np.uint8], start: Indices, length: Indices) -> tuple[Indices, Indices]:
        """Return where the number stands in values that are a tag and a number, and its size; 0 for others."""
        number = 2 + data[start + 1].astype(np.int64) + 1
        rest = length - number
        has_key = (rest >= 4) & (data[start + number - 1] == self._dialect.plain_key)
        is_single = has_key & (rest == 4)
        is_exact = has_key & (rest == 4 + _EXACT_BYTES)
        for index, byte in enumerate(_EXACT_KEY):
            is_exact &= data[start + number + 4 * is_exact + index * is_exact] == byte
        return number + is_exact * (4 + len(_EXACT_KEY)), is_single * 4 + is_exact * 8

    def _others(
        self, data: memoryview, starts: Indices, lengths: Indices, heads: scan.Heads, values: Values
    ) -> list[tuple[int, Outline]]:
        """Outline values one by one; return them by the index of their event."""
        result: list[tuple[int, Outline]] = []
        for event, start, end in zip(*(column.tolist() for column in values), strict=True):
            if not result or result[-1][0] != event:
                result.append((event, Outline(int(heads.step[event]), float(heads.wall_time[event]))))
            outline, begin = result[-1][1], int(starts[event])
            try:
                payload = data[begin : begin + int(lengths[event])]
                self._dialect.take_value(outline, payload, start - begin, end - begin)
            except CorruptMessage as error:
                outline.problem(error)
        return result


def _numbers(data: NDArray[np.uint8], positions: Indices, sizes: NDArray[np.int32]) -> NDArray[Any]:
    """Return the numbers of four or eight bytes at these places, as float32 where all are."""
    singles: NDArray[np.float32] = np.ndarray((data.size - 3,), "<f4", data, 0, (1,))
    is_single = sizes == 4
    if is_single.all():
        return singles[positions]
    doubles: NDArray[np.float64] = np.ndarray((data.size - 7,), "<f8", data, 0, (1,))
    return np.where(is_single, singles[positions], doubles[positions])
