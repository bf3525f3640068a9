"""The points of one tag in one file as columns, as they come out of its blocks.

Numbers are taken out at once. Every other value stays in the file: what is kept is where it stands and two states of
its frame's checksum, before it and behind it, so that it is read alone, when it is wanted, and still checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec.outline import Place
from instrument.errors import CorruptMessage
from instrument.eventfile import frame
from instrument.eventfile.access import OpenFile
from instrument.eventfile.crc import crc32c, unmask

#: What stands behind a value in its frame is read along up to this size, as the checksum at its end is known.
_SHORT_TAIL_BYTES = 4096

Column = NDArray[Any]


class Stored:
    """A value in its file: `length` bytes at `offset`, checked together with `tail` bytes behind them."""

    __slots__ = ("_crcs", "_decode", "_path", "_tail", "length", "offset")

    def __init__(self, path: str, base: int, payload: memoryview, footer: int, place: Place) -> None:
        assert place.decode is not None
        before = crc32c(payload[: place.start])
        self._tail = len(payload) - place.end
        if self._tail > _SHORT_TAIL_BYTES:
            self._tail, through = 0, crc32c(payload[place.start : place.end], before)
        else:
            through = unmask(footer)
        self._crcs = before, through
        self._path, self.offset, self.length = path, base + place.start, place.end - place.start
        self._decode = place.decode

    def __call__(self) -> Any:
        """Read and decode it.

        Raises:
            CorruptMessage: it is no such value, or no longer there as it was when the file was read.
        """
        return self._decode(self.data())

    def data(self) -> memoryview:
        """Its encoded bytes."""
        try:
            with OpenFile(self._path) as file:
                found = file.read(self.offset, self.length + self._tail)
        except OSError as error:
            raise CorruptMessage(f"{self._path} cannot be read: {error.strerror}") from error
        if len(found) < self.length + self._tail or crc32c(found, self._crcs[0]) != self._crcs[1]:
            raise CorruptMessage(f"{self._path} was changed at byte {self.offset} since it was read")
        return found[: self.length].toreadonly()


class Columns(NamedTuple):
    """Some points; `raw` are float32 or float64 numbers, or objects, functions that decode a value."""

    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]
    raw: Column


class Chunk(NamedTuple):
    """Points of one block, with where their frames stand in it."""

    starts: NDArray[np.int64]
    columns: Columns


class FilePoints:
    """What one file holds of one tag, in file order."""

    __slots__ = ("_block", "_settled", "_single")

    def __init__(self) -> None:
        self._settled: list[Columns] = []
        self._block: list[Chunk] = []
        self._single: list[tuple[int, int, float, Any]] = []

    def add(self, chunk: Chunk) -> None:
        """Take points of the block at hand."""
        self._block.append(chunk)

    def add_one(self, start: int, step: int, wall_time: float, raw: float | Callable[[], Any]) -> None:
        """Take one point of the block at hand: a number, or a function that decodes a value."""
        self._single.append((start, step, wall_time, raw))

    def end_block(self) -> None:
        """Put what the block had in the order of its frames."""
        if self._single:
            starts, steps, wall_times, raws = zip(*self._single, strict=True)
            columns = Columns(np.array(steps, np.int64), np.array(wall_times, np.float64), _column(raws))
            self._block.append(Chunk(np.array(starts, np.int64), columns))
            self._single = []
        columns = joined([chunk.columns for chunk in self._block])
        if len(self._block) > 1:
            order = np.argsort(np.concatenate([chunk.starts for chunk in self._block]), kind="stable")
            columns = Columns._make(column[order] for column in columns)
        self._settled.append(columns)
        self._block = []

    def columns(self) -> Columns:
        """All of it."""
        if len(self._settled) > 1:
            self._settled = [joined(self._settled)]
        return self._settled[0]


def _column(raw: tuple[Any, ...]) -> Column:
    if isinstance(raw[0], float):
        return np.array(raw, np.float64)
    column = np.empty(len(raw), object)
    column[:] = raw
    return column


def joined(parts: list[Columns]) -> Columns:
    """The points of several parts one after the other."""
    return parts[0] if len(parts) == 1 else Columns._make(map(np.concatenate, zip(*parts, strict=True)))


def stored(path: str, base: int, data: memoryview, start: int, length: int, place: Place) -> Stored:
    """The value at `place` of the payload at `start` of a block's `data`, which begins at `base` of the file."""
    (footer,) = frame.FOOTER.unpack_from(data, start + length)
    return Stored(path, base + start, data[start : start + length], footer, place)
