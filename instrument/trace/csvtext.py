"""CSV files in blocks of rows, by the names of their columns.

A real CSV parser reads them, as names and shapes hold commas, quotes and line feeds. A row whose number of cells is not
that of the heading has its values in the wrong columns: it is left out and counted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping

import numpy as np

from instrument.trace.events import MISSING, Integers, Mask
from instrument.trace.text import Buffer, Losses, decode, is_cut, lines, numbers

#: Rows that are held as text at a time.
BLOCK_ROWS = 1 << 15


class Block:
    """Some rows of a table; a column that the file lacks is all missing."""

    def __init__(self, rows: list[list[str]], places: Mapping[str, tuple[int, str]], losses: Losses) -> None:
        self._rows, self._places, self._losses = rows, places, losses

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, kept: Mask) -> Block:
        """The rows of which `kept` is true."""
        rows = [row for row, is_kept in zip(self._rows, kept.tolist(), strict=True) if is_kept]
        return Block(rows, self._places, self._losses)

    def text(self, key: str) -> list[str]:
        """The cells of a column, as they are; empty where the file lacks it."""
        if key not in self._places:
            return [""] * len(self._rows)
        place = self._places[key][0]
        return [row[place] for row in self._rows]

    def numbers(self, key: str, factor: int = 1) -> tuple[Integers, Mask]:
        """The numbers of a column times `factor`, and which of them are some; the others are `MISSING`."""
        if key not in self._places:
            return np.full(len(self._rows), MISSING, np.int64), np.zeros(len(self._rows), np.bool_)
        return numbers(self.text(key), self._losses, self._places[key][1], factor)


#: The headings under which a table says which device a row is of: a number, or "NPU:" and a number.
_DEVICE_HEADINGS = ("Device_id", "Device ID", "Device Id", "Device Type")
_DEVICE = re.compile(r"(?:[A-Z]{3}:)?(\d{1,9})", re.ASCII)

_FIRST_CELL = re.compile(rb"^\s*\"?(?:[A-Z]{3}:)?(\d{1,9})\"?\s*,", re.MULTILINE)


def devices(data: Buffer) -> frozenset[int]:
    """Return the devices that a table has rows of; none where it has no column for that."""
    rows = _rows(data, Losses(""))
    heading = [cell.strip().lstrip("\ufeff") for cell in next(rows, [])]
    place = _device_place(heading)
    if place is None:
        return frozenset()
    if place == 0 and len(begins := set(_FIRST_CELL.findall(data))) <= 1:  # far faster than all of the cells
        return frozenset(map(int, begins))
    cells = {row[place] for row in rows if len(row) == len(heading)}
    return frozenset(number for number in map(_device_of, cells) if number is not None)


def _device_place(heading: list[str]) -> int | None:
    return next((heading.index(name) for name in _DEVICE_HEADINGS if name in heading), None)


def _device_of(cell: str) -> int | None:
    match = _DEVICE.fullmatch(cell.strip())
    return int(match[1]) if match else None


def blocks(
    data: Buffer,
    losses: Losses,
    columns: Mapping[str, tuple[str, ...]],
    required: tuple[str, ...] = (),
    device: int | None = None,
    expected: bool = False,
) -> Iterator[Block]:
    """The rows of `data` in blocks.

    `columns` says under which headings each column may stand; without one of those `required` there are no rows at all.
    Of a table of several devices `device` chooses the rows of one. `expected` says that whole files have all of the
    columns, so that one that is not there is told.
    """
    rows = _rows(data, losses)
    heading = [cell.strip().lstrip("\ufeff") for cell in next(rows, [])]
    places = _places(heading, columns)
    absent = [columns[key][0] for key in required if key not in places]
    if absent:
        losses.add(f"no column {' nor '.join(absent)}: bytes not read", len(data))
        return
    for key in columns if expected else ():
        losses.add(f"no column {columns[key][0]}: its values are not known", key not in places)
    pending: list[list[str]] = []
    device_place = None if device is None else _device_place(heading)
    for row in rows:
        if len(row) != len(heading):
            losses.add("rows with too few or too many cells")
            continue
        if device_place is not None and (number := _device_of(row[device_place])) != device:
            losses.add("rows that do not say which device they are of", number is None)
            continue
        pending.append(row)
        if len(pending) == BLOCK_ROWS:
            yield Block(pending, places, losses)
            pending = []
    if is_cut(data):
        losses.add("the last row has no end and may be cut")
    if pending:
        yield Block(pending, places, losses)


def _places(heading: list[str], columns: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[int, str]]:
    place_of = {name: place for place, name in reversed(list(enumerate(heading)))}
    found = {key: next((name for name in names if name in place_of), None) for key, names in columns.items()}
    return {key: (place_of[name], name) for key, name in found.items() if name is not None}


def heading_of(data: Buffer) -> list[str]:
    """The cells of the first row."""
    return [cell.strip().lstrip("\ufeff") for cell in next(_rows(data, Losses("")), [])]


def _rows(data: Buffer, losses: Losses) -> Iterator[list[str]]:
    # csv refuses NUL on Python 3.10.
    reader = csv.reader(decode(line).replace("\0", "\ufffd") for line in lines(data))
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a cell without end that swallows all that follows: the reader starts afresh behind it
            losses.add("rows that are no CSV")
            continue
        if any(cell.strip() for cell in row):
            yield row
