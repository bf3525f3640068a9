"""The numbers of one file, of all its tags together.

A training that records a thousand tags has as many numbers in a step as another has in its whole run, so nothing here
is done tag by tag while a file is read. Numbers arrive in two forms:

- rows of a table: events of one layout, each with a number for every one of the same tags. A table keeps a matrix with
  a line for each tag, and the steps and times of its events once;
- points: a tag, the row of its event, and the number. They are sorted by tag once, on first use.

A list of chunks for each tag, which is the simpler way, costs a microsecond for each tag and block of the file: more
than all checksums together where a block holds a few events of many tags.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from instrument.runs.columns import Columns, Extent

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


_NO_ROWS = Rows(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


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


class Points(NamedTuple):
    """Numbers, in file order: the number of the tag of each, the index of its row, and itself."""

    rows: Rows
    ids: Ids
    row: NDArray[np.int32]
    raw: NDArray[Any]

    def rows_of(self, begin: int, end: int) -> Rows:
        """Return the rows of some of the sorted points."""
        is_beside = self.rows.step.size == self.row.size
        return self.rows.only(slice(begin, end) if is_beside else self.row[begin:end])

    def joined(self, other: Points) -> Points:
        """Return these points, then others."""
        row = np.concatenate([self.row, other.row + np.int32(self.rows.step.size)])
        raw = np.concatenate([self.raw, other.raw])
        return Points(_joined([self.rows, other.rows]), np.concatenate([self.ids, other.ids]), row, raw)


T = TypeVar("T", _Part, Points)
_NO_POINTS = Points(_NO_ROWS, np.empty(0, _ID), np.empty(0, np.int32), np.empty(0, np.float32))


class Numbers:
    """All numbers of one file by the numbers of their tags, which count from 0."""

    def __init__(self) -> None:
        self._tables: dict[bytes, list[_Part]] = {}
        #: Of each tag the tables that have it, and its line there.
        self._lines: dict[int, list[tuple[bytes, int]]] = {}
        self._points: list[Points] = []
        #: Rows of the block at hand.
        self._new: dict[bytes, list[_Part]] = {}
        #: Points of the block at hand, with their positions in the file.
        self._block: list[tuple[NDArray[np.int64], Points]] = []
        self._singles = bytearray()
        #: Where the points of each tag begin in the sorted ones.
        self._bounds: NDArray[np.int64] = np.zeros(1, np.int64)
        #: The extents of tables and of sorted points, as far as their steps ascend.
        self._extents: dict[bytes | int, Extent | None] = {}
        #: By the number of a tag, what is equal for tags with the same rows; None until it is needed.
        self._together: list[object] | None = None
        self._is_sorted = True

    def add_rows(self, ids: Ids, rows: Rows, raw: NDArray[Any]) -> None:
        """Take events of the block at hand with one number for each of these tags: `raw` has a line for each tag."""
        key = ids.tobytes() + raw.dtype.char.encode()
        self._extents.pop(key, None)
        self._together = None
        if key not in self._tables:
            self._tables[key] = []
            for line, number in enumerate(ids.tolist()):
                self._lines.setdefault(number, []).append((key, line))
        self._new.setdefault(key, []).append(_Part(rows, raw))

    def add_points(self, positions: NDArray[np.int64], points: Points) -> None:
        """Take points of the block at hand; `positions` say where they stand in the file."""
        self._block.append((positions, points))

    def add_single(self, number: int, position: int, offset: int, step: int, wall_time: float, value: float) -> None:
        """Take one number of the block at hand, which stands at `position` in the frame at `offset`."""
        self._singles += _SINGLE.pack(position, offset, step, wall_time, value, number)

    def end_block(self) -> None:
        """Put what the block had in file order."""
        for key, parts in self._new.items():
            part = _whole(parts)
            if len(parts) > 1:  # events of the same tags, but of several layouts
                order = np.argsort(part.rows.offset)
                part = _Part(part.rows.only(order), part.raw[:, order])
            _append(self._tables[key], part)
        self._new = {}
        if self._singles:
            ones = np.frombuffer(self._singles, _ONE)
            rows = Rows(*(ones[name].copy() for name in ("offset", "step", "wall_time")))
            row = np.arange(ones.size, dtype=np.int32)
            self._block.append((ones["position"].copy(), Points(rows, ones["id"].copy(), row, ones["raw"].copy())))
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
                points = Points(points.rows, points.ids[order], points.row[order], points.raw[order])
        self._block = []
        _append(self._points, points)
        self._is_sorted, self._together = False, None

    def count(self, number: int) -> int:
        """Return how many numbers a tag has."""
        self._sort()
        begin, end = self._span(number)
        rows = (part.rows.step.size for key, _ in self._lines.get(number, ()) for part in self._tables[key])
        return end - begin + sum(rows)

    def columns(self, number: int) -> Columns:
        """Return the points of a tag in file order."""
        self._sort()
        begin, end = self._span(number)
        lines = self._lines.get(number, ())
        if begin == end and len(lines) == 1:
            rows, matrix = self._table(lines[0][0])
            return Columns(rows.step, rows.wall_time, matrix[lines[0][1]])
        parts = [(part.rows, part.raw[line]) for key, line in lines for part in (self._table(key),)]
        if begin != end or not parts:
            points = self._points[0] if self._points else _NO_POINTS
            parts.append((points.rows_of(begin, end), points.raw[begin:end]))
        if len(parts) == 1:
            rows, raw = parts[0]
            return Columns(rows.step, rows.wall_time, raw)
        rows = _joined([rows for rows, _ in parts])
        order = np.argsort(rows.offset, kind="stable")
        raw = np.concatenate([raw for _, raw in parts])
        return Columns(rows.step[order], rows.wall_time[order], raw[order])

    def together(self, number: int) -> object:
        """Return what is equal for tags with the same rows."""
        if self._together is None:
            self._sort()
            count = max(self._bounds.size - 1, max(self._lines, default=-1) + 1)
            self._together = [(id(self), tag) for tag in range(count)]
            for tag, lines in self._lines.items():
                begin, end = self._span(tag)
                if begin == end and len(lines) == 1:
                    self._together[tag] = lines[0][0]
        return self._together[number]

    def nonfinite(self) -> list[int]:
        """Return the numbers of the tags that have NaN or an infinity."""
        self._sort()
        numbers = [points.ids[~np.isfinite(points.raw)] for points in self._points]
        for key, parts in self._tables.items():
            lines = np.zeros(len(parts[0].raw), np.bool_)
            for part in parts:
                lines |= ~np.isfinite(part.raw).all(axis=1)
            numbers.append(np.frombuffer(key[: 2 * lines.size], _ID)[lines])
        return np.unique(np.concatenate(numbers)).tolist() if numbers else []

    def extent(self, number: int) -> Extent | None:
        """Return the first and the last step and the last time of a tag; None where its steps do not ascend."""
        self._sort()
        begin, end = self._span(number)
        lines = self._lines.get(number, ())
        if begin != end:
            return None if lines else self._extents.get(number)
        if len(lines) != 1:
            return None
        key = lines[0][0]
        if key not in self._extents:
            rows = self._table(key).rows
            is_ascending = (rows.step[1:] > rows.step[:-1]).all()
            extent = int(rows.step[0]), int(rows.step[-1]), float(rows.wall_time.max())
            self._extents[key] = extent if is_ascending else None
        return self._extents[key]

    def _span(self, number: int) -> tuple[int, int]:
        """Return where the points of a tag begin and end among the sorted ones."""
        if number + 1 >= self._bounds.size:
            return 0, 0
        return int(self._bounds[number]), int(self._bounds[number + 1])

    def _table(self, key: bytes) -> _Part:
        """Return a table as one part."""
        parts = self._tables[key]
        parts[:] = [_whole(parts)]
        return parts[0]

    def _sort(self) -> None:
        """Sort all points by tag; those of one tag stay in file order.

        Each part is sorted by itself, in the processor's cache, and its tags are copied behind those of earlier parts.
        """
        if self._is_sorted:
            return
        self._is_sorted = True
        parts, self._points = self._points, []
        count = 1 + max(int(part.ids.max()) for part in parts)
        counts = [np.bincount(part.ids, minlength=count) for part in parts]
        self._bounds = np.concatenate([[0], np.cumsum(np.sum(counts, axis=0))])
        size, rows = int(self._bounds[-1]), sum(part.rows.step.size for part in parts)
        is_beside = size == rows  # an event a value: its step and time stand beside it then
        raw = np.empty(size, np.result_type(*(part.raw for part in parts)))
        row = np.empty(0 if is_beside else size, np.int32)
        columns = Rows(np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.float64))
        free, first_row = self._bounds[:-1].copy(), 0
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
        ids = np.repeat(np.arange(count, dtype=_ID), np.diff(self._bounds))
        self._points = [Points(columns, ids, np.arange(size, dtype=np.int32) if is_beside else row, raw)]
        self._find_extents()

    def _find_extents(self) -> None:
        """Find the extents of the tags of all points at once."""
        (points,) = self._points
        begins = self._bounds[:-1]
        numbers = np.flatnonzero(begins < self._bounds[1:])
        begins = begins[numbers]
        if not begins.size:
            return
        _, step, wall_time = points.rows_of(0, points.row.size)
        is_ascending = np.append(step[1:] > step[:-1], True)
        ends = self._bounds[numbers + 1]
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
    def together(self) -> object:
        """An object that is equal for tags with the same steps and times."""
        return self._numbers.together(self.number)

    def extent(self) -> Extent | None:
        """Return the first and the last step and the last time; None where steps do not ascend."""
        return self._numbers.extent(self.number)
