"""The values of one tag in one file that are no numbers, as columns, as they come out of its blocks.

A value stays in the file: what is kept is where it stands and two states of its frame's checksum, before it and behind
it, so that it is read alone, when it is wanted, and still checked. That is a row of a table and no object, as a small
value takes fewer bytes in its file than an object does in memory. Numbers are in `instrument.runs.numbers`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec.outline import Decode, Place
from instrument.errors import CorruptMessage
from instrument.eventfile.access import OpenFile
from instrument.eventfile.crc import crc32c, unmask
from instrument.eventfile.names import Writer

#: What stands behind a value in its frame is read along up to this size, as the checksum at its end is known.
_SHORT_TAIL_BYTES = 4096
#: Parts of a column that have fewer points together are joined at once: an array takes a hundred bytes by itself.
_FEW_POINTS = 512

#: Where a value stands: `length` bytes at `offset`, checked together with `tail` bytes behind them.
_FIELDS = [("offset", "<i8"), ("length", "<i8"), ("tail", "<i4"), ("before", "<u4"), ("through", "<u4"),
           ("source", "<i4")]  # fmt: skip
_PLACE = np.dtype(_FIELDS)
_HEAD = [("start", "<i8"), ("step", "<i8"), ("wall_time", "<f8")]
_ONE_PLACE = np.dtype([*_HEAD, ("raw", _FIELDS)])
_PLACE_ROW = struct.Struct("<qqdqqiIIi")

#: What columns of zeros show, once for all their entries.
_ZERO = bytes(8)
Column = NDArray[Any]
#: First step, last step, and last wall time of some points.
Extent = tuple[int, int, float]


class Source(NamedTuple):
    """Where values of a kind come from."""

    path: str
    decode: Decode


class Stored(NamedTuple):
    """A value in its file; `place` is a row of the table."""

    source: Source
    place: np.void

    def __call__(self) -> Any:
        """Read and decode it.

        Raises:
            CorruptMessage: it is no such value, or no longer there as it was when the file was read.
        """
        return self.source.decode(self.data())

    @property
    def offset(self) -> int:
        """Its first byte in the file."""
        return int(self.place["offset"])

    @property
    def length(self) -> int:
        """Its bytes."""
        return int(self.place["length"])

    def data(self) -> memoryview:
        """Return its encoded bytes."""
        path, checked_bytes = self.source.path, self.length + int(self.place["tail"])
        try:
            with OpenFile(path) as file:
                content = file.read(self.offset, checked_bytes)
        except OSError as error:
            raise CorruptMessage(f"{path} cannot be read: {error.strerror}") from error
        if len(content) < checked_bytes or crc32c(content, int(self.place["before"])) != self.place["through"]:
            raise CorruptMessage(f"{path} was changed at byte {self.offset} since it was read")
        return content[: self.length].toreadonly()


class StoredColumn:
    """Values in files: an integer index gives a `Stored`, any other NumPy index a part of the column."""

    __slots__ = ("places", "sources")

    def __init__(self, places: Column, sources: list[Source]) -> None:
        self.places, self.sources = places, sources

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (int, np.integer)):
            place = self.places[key]
            return Stored(self.sources[place["source"]], place)
        return StoredColumn(self.places[key], self.sources)

    def __iter__(self) -> Iterator[Stored]:
        return (Stored(self.sources[place["source"]], place) for place in self.places)

    @classmethod
    def joined(cls, parts: list[StoredColumn]) -> StoredColumn:
        """Join parts of a column in order."""
        places, sources = [], list(dict.fromkeys(source for part in parts for source in part.sources))
        for part in parts:
            if part.sources == sources[: len(part.sources)]:
                places.append(part.places)
                continue
            moved = part.places.copy()
            moved["source"] = np.array([sources.index(source) for source in part.sources])[moved["source"]]
            places.append(moved)
        return cls(np.concatenate(places), sources)


NOT_CONTINUED: Mapping[Writer, Writer] = {}


class SeriesRows(NamedTuple):
    """All of a series but its values, one entry a point; series that were recorded together share it.

    `writer_index` points into `writers`. `continued` has the writers that another one has gone on with, and that one.
    """

    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]
    superseded: NDArray[np.bool_]
    writers: tuple[Writer, ...]
    writer_index: NDArray[np.intp]
    continued: Mapping[Writer, Writer] = NOT_CONTINUED

    @classmethod
    def of_one(
        cls,
        step: NDArray[np.int64],
        wall_time: NDArray[np.float64],
        writer: Writer,
        continued: Mapping[Writer, Writer] = NOT_CONTINUED,
    ) -> SeriesRows:
        """Return the rows of points of one writer, none of them superseded."""
        return cls(step, wall_time, *_zeros(step.size, writer), continued)

    def freeze(self) -> None:
        """Make the columns read-only, as several series show them."""
        for column in (self.step, self.wall_time, self.superseded, self.writer_index):
            column.flags.writeable = False


@functools.lru_cache(64)  # thousands of series have the same number of points
def _zeros(size: int, writer: Writer) -> tuple[NDArray[np.bool_], tuple[Writer], NDArray[np.intp]]:
    """Return the last columns of the rows of one writer, which take no memory of their own."""
    superseded: NDArray[np.bool_] = np.ndarray((size,), np.bool_, _ZERO, 0, (0,))
    index: NDArray[np.intp] = np.ndarray((size,), np.intp, _ZERO, 0, (0,))
    return superseded, (writer,), index


class Columns(NamedTuple):
    """Some points; `raw` are float32 or float64 numbers, or a `StoredColumn`."""

    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]
    raw: Any


def joined(raw: list[Any]) -> Any:
    """Return the values of several columns, one after the other."""
    if len(raw) == 1:
        return raw[0]
    return StoredColumn.joined(raw) if isinstance(raw[0], StoredColumn) else np.concatenate(raw)


def _joined(parts: list[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    step, wall_time, raw = zip(*parts, strict=True)
    return Columns(np.concatenate(step), np.concatenate(wall_time), joined(list(raw)))


class FilePoints:
    """What one file holds of one tag whose values stay in the file, in file order."""

    __slots__ = ("_block", "_settled", "_sources")

    def __init__(self) -> None:
        self._settled: list[Columns] = []
        #: Rows of the block at hand.
        self._block = bytearray()
        self._sources: list[Source] = []

    def add(self, start: int, step: int, wall_time: float, where: Where) -> None:
        """Take one value of the block at hand; its frame begins at `start`."""
        if where.source not in self._sources:
            self._sources.append(where.source)
        source = self._sources.index(where.source)
        self._block += _PLACE_ROW.pack(start, step, wall_time, *where.row, source)

    def end_block(self) -> None:
        """Put what the block had in the order of its frames."""
        rows = np.frombuffer(self._block, _ONE_PLACE)
        rows = rows[np.argsort(rows["start"], kind="stable")]
        raw = StoredColumn(rows["raw"].copy(), self._sources)
        self._settled.append(Columns(rows["step"].copy(), rows["wall_time"].copy(), raw))
        self._block = bytearray()
        while len(self._settled) > 1 and len(self._settled[-2].step) + len(self._settled[-1].step) < _FEW_POINTS:
            self._settled[-2:] = [_joined(self._settled[-2:])]

    def settle(self) -> None:
        """Put all blocks together."""
        self._settled = [_joined(self._settled)]

    def __len__(self) -> int:
        return sum(len(columns.step) for columns in self._settled)

    def columns(self) -> Columns:
        """Return all points, once they are settled."""
        return self._settled[0]

    @property
    def together(self) -> None:
        """Object that tags with the same steps and times have in common; here there are none."""

    def extent(self) -> Extent | None:
        """Return the first and the last step and the last time; None where steps do not ascend."""
        step, wall_time, _ = self.columns()
        if (step[1:] <= step[:-1]).any():
            return None
        return int(step[0]), int(step[-1]), float(wall_time.max())


class Where(NamedTuple):
    """A value in its file: the columns of its row but the last, which is `source`."""

    source: Source
    row: tuple[int, int, int, int, int]


class Payload:
    """A payload at `offset` of the file at `path`, whose frame ends in `footer`; says where its values stand."""

    def __init__(self, path: str, offset: int, data: memoryview, footer: int) -> None:
        self._path, self._offset, self._data, self._footer = path, offset, data, footer
        #: The checksum of the bytes before `_end`: a payload has many values, and is read through once.
        self._end = self._crc = 0

    def stored(self, place: Place) -> Where:
        """Return where the value at a place stands in the file."""
        assert place.decode is not None
        before = self._crc_of(place.start)
        tail = len(self._data) - place.end
        if tail > _SHORT_TAIL_BYTES:
            tail, through = 0, self._crc_of(place.end)
        else:
            through = unmask(self._footer)
        row = (self._offset + place.start, place.end - place.start, tail, before, through)
        return Where(Source(self._path, place.decode), row)

    def _crc_of(self, end: int) -> int:
        if end < self._end:
            self._end = self._crc = 0
        self._crc = crc32c(self._data[self._end : end], self._crc)
        self._end = end
        return self._crc
