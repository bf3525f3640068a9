"""The numbers of one file, of all its tags together.

One step of a training may record thousands of tags, so no part of reading a file loops over tags. Numbers arrive in two
forms:

- rows of a table: events of one layout, each with a number for every one of the same tags. A table keeps a matrix with
  a line for each tag, and the steps and times of its events once;
- points: a tag, the row of its event, and the number. They are sorted by tag once, on first use.

A list of chunks for each tag, which is the simpler way, costs a microsecond for each tag and block of the file: more
than all checksums together where a block holds a few events of many tags.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Collection
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from instrument.eventfile.names import Writer
from instrument.runs.columns import Columns, Extent, SeriesRows

#: Which tags there can be: their numbers have to fit into `_ID`.
MOST_TAGS = 50_000
_ID = np.uint16
_SINGLE = struct.Struct("<qqqddH")
_ONE = np.dtype([("position", "<i8"), ("offset", "<i8"), ("step", "<i8"), ("wall_time", "<f8"), ("raw", "<f8"),
                 ("id", "<u2")])  # fmt: skip

Ids = NDArray[np.uint16]


class Rows(NamedTuple):
    """Events, one entry each: where their frames begin in the file, their steps and their times."""

    offset: NDArray[np.int64]
    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]

    def only(self, index: slice | NDArray[np.bool_] | NDArray[np.intp] | NDArray[np.int32]) -> Rows:
        """Return some of the rows."""
        return Rows(self.offset[index], self.step[index], self.wall_time[index])


def _joined(parts: list[Rows]) -> Rows:
    """Return rows of several parts, one after the other."""
    offset, step, wall_time = zip(*parts, strict=True)
    return Rows(np.concatenate(offset), np.concatenate(step), np.concatenate(wall_time))


class _Part(NamedTuple):
    """Some rows of a table; `raw` has a line for each tag and a column for each row."""

    rows: Rows
    raw: NDArray[Any]

    def joined(self, other: _Part) -> _Part:
        """Return the rows of this part, then those of another."""
        return _whole([self, other])


def _whole(parts: list[_Part]) -> _Part:
    """Return several parts as one."""
    if len(parts) == 1:
        return parts[0]
    return _Part(_joined([part.rows for part in parts]), np.concatenate([part.raw for part in parts], axis=1))


N = TypeVar("N", bound=np.generic)


class _Table:
    """Events that have a number for each of the same tags, whose numbers are `ids`."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self.parts: list[_Part] = []
        #: Rows of the block at hand.
        self.new: list[_Part] = []
        #: The first and the last step and the last time, and the rows that all series of the table share; None where
        #: steps do not ascend. Set by `settle`.
        self.extent: Extent | None = None
        self.series_rows: SeriesRows | None = None

    def end_block(self) -> None:
        """Put what the block had in file order."""
        part = _whole(self.new)
        if len(self.new) > 1:  # events of the same tags, but of several layouts
            order = np.argsort(part.rows.offset)
            part = _Part(part.rows.only(order), part.raw[:, order])
        _append(self.parts, part)
        self.new = []

    def settle(self, writer: Writer) -> None:
        """Join all rows to one part, and measure them."""
        if len(self.parts) == 1 and self.series_rows is not None and self.series_rows.step.size == self.size():
            return
        self.parts = [_whole(self.parts)]
        _, step, wall_time = self.parts[0].rows
        self.extent = self.series_rows = None
        if (step[1:] > step[:-1]).all():
            self.extent = int(step[0]), int(step[-1]), float(wall_time.max())
            self.series_rows = SeriesRows.of_one(_shared(step), _shared(wall_time), writer)

    def size(self) -> int:
        return sum(part.rows.step.size for part in self.parts)


#: A table and a line in it.
_Line = tuple[_Table, int]


def _key(ids: Ids, size: int) -> bytes:
    return ids.tobytes() + bytes([size])


def _shared(column: NDArray[N]) -> NDArray[N]:
    """Return a column that cannot be changed, as several series show it."""
    view = column[:]
    view.flags.writeable = False
    return view


class TaggedNumbers(NamedTuple):
    """Numbers, in file order: the number of the tag of each, the index of its row, and itself."""

    rows: Rows
    ids: Ids
    row: NDArray[np.int32]
    raw: NDArray[Any]

    def part(self, begin: int, end: int) -> slice | NDArray[np.int32]:
        """Return the index of the rows of some of the sorted numbers."""
        return slice(begin, end) if self.rows.step.size == self.row.size else self.row[begin:end]

    def joined(self, other: TaggedNumbers) -> TaggedNumbers:
        """Return these numbers, then others."""
        row = np.concatenate([self.row, other.row + np.int32(self.rows.step.size)])
        raw = np.concatenate([self.raw, other.raw])
        return TaggedNumbers(_joined([self.rows, other.rows]), np.concatenate([self.ids, other.ids]), row, raw)


T = TypeVar("T", _Part, TaggedNumbers)


class Numbers:
    """All numbers of one file, which `writer` wrote. A tag is known by its number, which counts from 0."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        #: The number of each tag.
        self.ids: dict[str, int] = {}
        self._tables: dict[bytes, _Table] = {}
        self._points: list[TaggedNumbers] = []
        self._is_sorted = True
        #: Points of the block at hand, with their positions in the file.
        self._block: list[tuple[NDArray[np.int64], TaggedNumbers]] = []
        self._singles = bytearray()
        #: Set by `_settle`: what follows is of all that was read.
        self._is_settled = True
        #: Where the points of each tag begin in the sorted ones.
        self._bounds = [0]
        #: By tag: the first and the last of its lines in `_lines`, which are its lines in tables.
        self._line_bounds = [0]
        self._lines: list[_Line] = []
        #: By tag: its line in a table if it has no other points.
        self._sole_lines: list[_Line | None] = [None]
        #: The extents of tags that have points, as far as their steps ascend.
        self._extents: dict[int, Extent | None] = {}

    def ids_of(self, tags: Collection[str], most: int) -> list[int]:
        """Return the number of each tag; -1 for those that are new where there are `most` tags."""
        ids = self.ids
        new = dict.fromkeys([tag for tag in tags if tag not in ids])
        ids.update(zip(itertools.islice(new, max(0, most - len(ids))), itertools.count(len(ids)), strict=False))
        return [ids.get(tag, -1) for tag in tags]

    def add_rows(self, ids: Ids, rows: Rows, raw: NDArray[Any]) -> None:
        """Take events of the block at hand with one number for each of these tags: `raw` has a line for each tag."""
        key = _key(ids, raw.itemsize)
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = _Table(ids)
        table.new.append(_Part(rows, raw))

    def has_rows(self, ids: Ids, size: int) -> bool:
        """Return True if events with numbers of `size` bytes for the same tags were taken."""
        return _key(ids, size) in self._tables

    def add_points(self, positions: NDArray[np.int64], points: TaggedNumbers) -> None:
        """Take points of the block at hand; `positions` say where they stand in the file."""
        self._block.append((positions, points))

    def add_single(self, number: int, position: int, offset: int, step: int, wall_time: float, value: float) -> None:
        """Take one number of the block at hand, which stands at `position` in the frame at `offset`."""
        self._singles += _SINGLE.pack(position, offset, step, wall_time, value, number)

    def end_block(self) -> None:
        """Put what the block had in file order."""
        for table in self._tables.values():
            if table.new:
                table.end_block()
        self._is_settled = False
        if self._singles:
            ones = np.frombuffer(self._singles, _ONE)
            rows = Rows(*(ones[name].copy() for name in ("offset", "step", "wall_time")))
            row = np.arange(ones.size, dtype=np.int32)
            points = TaggedNumbers(rows, ones["id"].copy(), row, ones["raw"].copy())
            self._block.append((ones["position"].copy(), points))
            self._singles = bytearray()
        if not self._block:
            return
        points = self._block[0][1]
        for _, other in self._block[1:]:
            points = points.joined(other)
        if len(self._block) > 1 or len(self._block[0][0]) > 1:
            positions = np.concatenate([positions for positions, _ in self._block])
            if (positions[1:] < positions[:-1]).any():
                order = np.argsort(positions, kind="stable")
                points = TaggedNumbers(points.rows, points.ids[order], points.row[order], points.raw[order])
        self._block = []
        _append(self._points, points)
        self._is_sorted = False

    def series(self, tag: str) -> tuple[SeriesRows, NDArray[Any]] | None:
        """Return the rows and the numbers of a tag whose steps ascend; None for others, which are to be merged.

        There may be thousands of tags: those of one table share their rows.
        """
        if not self._is_settled:
            self._settle()
        number = self.ids.get(tag, -1)
        line = self._sole_lines[number]
        if line is not None:
            table, index = line
            return None if table.series_rows is None else (table.series_rows, table.parts[0].raw[index])
        if self._line_bounds[number] != self._line_bounds[number + 1] or self._extents.get(number) is None:
            return None
        begin, end = self._bounds[number], self._bounds[number + 1]
        (points,) = self._points
        part = points.part(begin, end)
        step, wall_time = points.rows.step[part], points.rows.wall_time[part]
        return SeriesRows.of_one(step, wall_time, self._writer), points.raw[begin:end]

    def count(self, number: int) -> int:
        """Return how many numbers a tag has."""
        begin, end = self._span(number)
        return end - begin + sum(table.size() for table, _ in self._lines_of(number))

    def columns(self, number: int) -> Columns:
        """Return the points of a tag in file order."""
        begin, end = self._span(number)
        parts = [(table.parts[0].rows, table.parts[0].raw[line]) for table, line in self._lines_of(number)]
        if begin != end:
            (points,) = self._points
            parts.append((points.rows.only(points.part(begin, end)), points.raw[begin:end]))
        if len(parts) == 1:
            rows, raw = parts[0]
            return Columns(rows.step, rows.wall_time, raw)
        rows = _joined([rows for rows, _ in parts])
        order = np.argsort(rows.offset, kind="stable")
        raw = np.concatenate([raw for _, raw in parts])
        return Columns(rows.step[order], rows.wall_time[order], raw[order])

    def tables(self) -> list[_Table | None]:
        """Return what tags with the same rows have in common, by tag; None for one that has rows of its own."""
        self._settle()
        return [None if line is None else line[0] for line in self._sole_lines[:-1]]

    def together(self, number: int) -> object | None:
        """Return what tags with the same rows have in common; None for a tag that has rows of its own."""
        self._settle()
        line = self._sole_lines[number]
        return None if line is None else line[0]

    def nonfinite(self) -> list[str]:
        """Return the tags that have NaN or an infinity."""
        numbers = [points.ids[~np.isfinite(points.raw)] for points in self._points]
        for table in self._tables.values():
            lines = np.zeros(table.ids.size, np.bool_)
            for part in table.parts:
                lines |= ~np.isfinite(part.raw).all(axis=1)
            numbers.append(table.ids[lines])
        tags = list(self.ids)
        return [tags[number] for number in np.unique(np.concatenate(numbers)).tolist()] if numbers else []

    def extent(self, number: int) -> Extent | None:
        """Return the first and the last step and the last time of a tag; None where its steps do not ascend."""
        begin, end = self._span(number)
        lines = self._lines_of(number)
        if begin != end:
            return None if lines else self._extents[number]
        return lines[0][0].extent if len(lines) == 1 else None

    def _span(self, number: int) -> tuple[int, int]:
        """Return where the points of a tag begin and end among the sorted ones."""
        self._settle()
        return self._bounds[number], self._bounds[number + 1]

    def _lines_of(self, number: int) -> list[_Line]:
        """Return the tables that have a tag, and its line there, once all is settled."""
        return self._lines[self._line_bounds[number] : self._line_bounds[number + 1]]

    def _settle(self) -> None:
        """Sort all points by tag, and find the lines of each tag in tables."""
        if self._is_settled:
            return
        self._is_settled = True
        self._sort()
        tables = list(self._tables.values())
        for table in tables:
            table.settle(self._writer)
        ids = np.concatenate([np.empty(0, _ID), *(table.ids for table in tables)])
        lines = [line for table in tables for line in zip(itertools.repeat(table), range(table.ids.size))]
        if len(tables) > 1 or (ids[1:] < ids[:-1]).any():
            lines = [lines[index] for index in np.argsort(ids, kind="stable").tolist()]
        counts = np.bincount(ids, minlength=len(self.ids))
        self._lines = lines
        self._line_bounds = np.append(0, np.cumsum(counts)).tolist()
        sole: list[_Line | None] = [*lines]
        if (counts != 1).any() or self._points:
            is_sole = (counts == 1) & (np.diff(self._bounds) == 0)
            places = zip(is_sole.tolist(), self._line_bounds, strict=False)
            sole = [lines[first] if is_alone else None for is_alone, first in places]
        self._sole_lines = [*sole, None]  # what is no tag has the number -1

    def _sort(self) -> None:
        """Sort all points by tag; those of one tag stay in file order.

        Each part is sorted by itself, in the processor's cache, and its tags are copied behind those of earlier parts.
        """
        count = len(self.ids)
        if not self._points or self._is_sorted:
            self._bounds += [self._bounds[-1]] * (count + 1 - len(self._bounds))
            return
        self._is_sorted = True
        parts, self._points = self._points, []
        counts = [np.bincount(part.ids, minlength=count) for part in parts]
        bounds = np.concatenate([[0], np.cumsum(np.sum(counts, axis=0))])
        self._bounds = bounds.tolist()
        size, rows = self._bounds[-1], sum(part.rows.step.size for part in parts)
        is_beside = size == rows  # an event a value: its step and time stand beside it then
        raw = np.empty(size, np.result_type(*(part.raw for part in parts)))
        row = np.empty(0 if is_beside else size, np.int32)
        columns = Rows(np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.float64))
        free, first_row = bounds[:-1].copy(), 0
        for of_part in counts:
            part = parts.pop(0)  # it is let go of, once it is copied
            order = np.argsort(part.ids, kind="stable")  # of numbers of 16 bits that takes linear time
            where = np.arange(order.size) + np.repeat(free - np.cumsum(of_part) + of_part, of_part)
            free += of_part
            raw[where] = part.raw[order]
            rows_of_part = slice(first_row, first_row + part.rows.step.size)
            if not is_beside:
                row[where] = part.row[order] + np.int32(first_row)
            for column, of_rows in zip(columns, part.rows, strict=True):
                if is_beside:
                    column[where] = of_rows[part.row[order]]
                else:
                    column[rows_of_part] = of_rows
            first_row += part.rows.step.size
        columns = Rows(columns.offset, _shared(columns.step), _shared(columns.wall_time))
        ids = np.repeat(np.arange(count, dtype=_ID), np.diff(bounds))
        row = np.arange(size, dtype=np.int32) if is_beside else row
        self._points = [TaggedNumbers(columns, ids, row, raw)]
        self._find_extents(bounds)

    def _find_extents(self, bounds: NDArray[np.int64]) -> None:
        """Find the extents of the tags of all points at once."""
        (points,) = self._points
        begins = bounds[:-1]
        numbers = np.flatnonzero(begins < bounds[1:])
        begins = begins[numbers]
        if not begins.size:
            return
        _, step, wall_time = points.rows.only(points.part(0, points.row.size))
        is_ascending = np.append(step[1:] > step[:-1], True)
        ends = bounds[numbers + 1]
        is_ascending[ends - 1] = True  # the next one is another tag
        columns = (
            numbers, np.logical_and.reduceat(is_ascending, begins), step[begins], step[ends - 1],
            np.maximum.reduceat(wall_time, begins),
        )  # fmt: skip
        for number, is_right, *extent in zip(*(column.tolist() for column in columns), strict=True):
            self._extents[number] = tuple(extent) if is_right else None


def _append(parts: list[T], part: T) -> None:
    """Append a part; small ones are joined with the one before, so that a file that is followed has few."""
    parts.append(part)
    while len(parts) > 1 and parts[-2].rows.step.size <= parts[-1].rows.step.size < _FEW_ROWS:
        parts[-2:] = [parts[-2].joined(parts[-1])]


#: A part takes some hundred bytes by itself.
_FEW_ROWS = 512


class NumberPoints:
    """What one file holds of one tag, whose number is `number`."""

    __slots__ = ("_numbers", "number")

    def __init__(self, numbers: Numbers, number: int) -> None:
        self._numbers, self.number = numbers, number

    def __len__(self) -> int:
        return self._numbers.count(self.number)

    def columns(self) -> Columns:
        """Return all points, in file order."""
        return self._numbers.columns(self.number)

    @property
    def together(self) -> object | None:
        """Object that tags with the same steps and times have in common; None if there are no others."""
        return self._numbers.together(self.number)

    def extent(self) -> Extent | None:
        """Return the first and the last step and the last time; None where steps do not ascend."""
        return self._numbers.extent(self.number)
