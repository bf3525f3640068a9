"""Numbers, lines and CSV tables of text files, without trusting any of them; what cannot be read is counted.

Times go from text to integer nanoseconds through decimal arithmetic: a float64 of microseconds since the epoch is wrong
by some hundred nanoseconds. CSV goes through a real parser, as names and shapes hold commas, quotes and line feeds.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from instrument.trace.events import MISSING, Integers, Mask, Problem, Rows, unknown

Key = TypeVar("Key", bound=Hashable)

#: Bytes in one piece, as the parsers take them.
Buffer = bytes | memoryview

#: The loss of a file of lines that does not end with the end of one.
CUT_LINE = "the last line is cut off"

#: What files write where they have no value.
NOT_AVAILABLE = frozenset({"", "N/A", "NA", "-", "null", "None"})
#: Times and sizes stay below this, so that sums and differences of two fit an int64.
LIMIT = 2**62
#: More characters than this are no number of a trace, and would be slow to convert.
_LONGEST_NUMBER = 64
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_INT64_DIGITS = 18


class Losses:
    """What is lost of one file while it is read; losses of one kind are added up."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._amounts: dict[str, int] = {}

    def add(self, what: str, amount: int = 1) -> None:
        if amount:
            self._amounts[what] = self._amounts.get(what, 0) + amount

    def __len__(self) -> int:
        return len(self._amounts)

    def problems(self) -> list[Problem]:
        """Return one `Problem` for each kind of loss, in the order in which they were met."""
        return [Problem(self.file, what, amount) for what, amount in self._amounts.items()]


def lines(data: Buffer) -> Iterator[bytes]:
    """Yield the lines of `data`, each with its end; only the last one may lack it."""
    return (match.group() for match in _LINE.finditer(data))


def spans_of_lines(data: Buffer) -> Iterator[tuple[int, int]]:
    """Return where each line starts and ends, its line feed included."""
    return (match.span() for match in _LINE.finditer(data))


def decode(data: bytes) -> str:
    """Decode UTF-8, with replacement characters for what is none."""
    return data.decode("utf-8", "replace")


def is_cut(data: Buffer) -> bool:
    """Return True if the last line lacks its end, so that it may have been longer."""
    return len(data) > 0 and data[len(data) - 1] != 0x0A


def scaled(cell: str, factor: int = 1) -> int | None:
    """Return the number in `cell` times `factor`, rounded half to even, or None if it is none or not below `LIMIT`."""
    if len(cell) > _LONGEST_NUMBER or not _NUMBER.fullmatch(cell):
        return None
    value = Decimal(cell)
    if value.adjusted() > _INT64_DIGITS:  # before anything would write out its digits
        return None
    number = int((value * factor).to_integral_value())
    return number if -LIMIT < number < LIMIT else None


def numbers(cells: Iterable[str], losses: Losses, column: str, factor: int = 1) -> tuple[Integers, Mask]:
    """Return the numbers in `cells` times `factor` as int64, and which are some; the others are `MISSING`.

    Cells without a value ("N/A") and cells that hold no number are counted apart, by the name of their `column`.
    """
    cells = [cell.strip() for cell in cells]
    values = [scaled(cell, factor) for cell in cells]
    bad = [cell for cell, value in zip(cells, values, strict=True) if value is None]
    absent = sum(cell in NOT_AVAILABLE for cell in bad)
    losses.add(f"cells of {column} that say N/A", absent)
    losses.add(f"cells of {column} that hold no number", len(bad) - absent)
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return np.array([MISSING if value is None else value for value in values], np.int64), valid


def number(cell: str) -> float | None:
    """The finite number in `cell`; None where there is none."""
    if len(cell) > _LONGEST_NUMBER or not _NUMBER.fullmatch(cell.strip()):
        return None
    value = float(cell)
    return value if np.isfinite(value) else None


class Index(Generic[Key]):
    """Gives each name, or other key, a number, in the order in which they are first met."""

    def __init__(self, names: Sequence[Key] = ()) -> None:
        self._rows: dict[Key, int] = {name: row for row, name in enumerate(names)}

    def __call__(self, name: Key) -> int:
        return self._rows.setdefault(name, len(self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> list[Key]:
        return list(self._rows)


# ---------------------------------------------------------------- CSV

#: Rows that are held as text at a time.
_BLOCK_ROWS = 1 << 15
#: The headings under which a table says which device a row is of: a number, or "NPU:" and a number.
_DEVICE_HEADINGS = ("Device_id", "Device ID", "Device Id", "Device Type")
_DEVICE = re.compile(r"(?:[A-Z]{3}:)?(\d{1,9})", re.ASCII)
_FIRST_CELL = re.compile(rb"^\s*\"?(?:[A-Z]{3}:)?(\d{1,9})\"?\s*,", re.MULTILINE)


class Column(NamedTuple):
    """A column by the headings that it has had; a number in it times `factor` is in the unit of the result.

    A table without a required column has no rows, and a row without a number in one is not usable.
    """

    headings: tuple[str, ...]
    factor: int = 1
    is_required: bool = False


class CsvRows:
    """Some rows of a table. `places` has index and heading of each column; one that the file lacks is all missing."""

    def __init__(
        self,
        rows: list[list[str]],
        columns: Mapping[str, Column],
        places: Mapping[str, tuple[int, str]],
        losses: Losses,
    ) -> None:
        self._rows, self._columns, self._places, self._losses = rows, columns, places, losses

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, kept: Mask) -> CsvRows:
        """Return the rows of which `kept` is true."""
        rows = [row for row, is_kept in zip(self._rows, kept.tolist(), strict=True) if is_kept]
        return CsvRows(rows, self._columns, self._places, self._losses)

    def text(self, key: str) -> list[str]:
        """Return the cells of a column as they are; empty ones where the file lacks it."""
        if key not in self._places:
            return [""] * len(self._rows)
        place, _ = self._places[key]
        return [row[place] for row in self._rows]

    def numbers(self, key: str) -> tuple[Integers, Mask]:
        """Return the numbers of a column, and which cells hold one; the others are `MISSING`."""
        if key not in self._places:
            return np.full(len(self._rows), MISSING, np.int64), np.zeros(len(self._rows), np.bool_)
        return numbers(self.text(key), self._losses, self._places[key][1], self._columns[key].factor)

    def array(self, layout: np.dtype[np.void]) -> tuple[Rows, Mask]:
        """Return the columns that are fields of `layout`, the other fields `MISSING`, and which rows are usable."""
        result = unknown(layout, len(self._rows))
        usable = np.ones(len(self._rows), np.bool_)
        for key, column in self._columns.items():
            if key in (layout.names or ()):
                result[key], has_value = self.numbers(key)
                usable &= has_value | (not column.is_required)
        return result, usable


def csv_rows(
    data: Buffer, losses: Losses, columns: Mapping[str, Column], device: int | None = None, is_whole: bool = False
) -> Iterator[CsvRows]:
    """Yield the rows of `data` in blocks, less those whose cells are too few or too many: they are in wrong columns.

    Of a table of several devices `device` chooses the rows of one. `is_whole` says that whole files have all of the
    columns, so that one that is not there is counted.
    """
    rows = _csv(data, losses)
    heading = _heading(rows)
    places = {}
    for key, column in columns.items():
        name = next((name for name in column.headings if name in heading), None)
        if name is not None:
            places[key] = heading.index(name), name
    absent = [column.headings[0] for key, column in columns.items() if column.is_required and key not in places]
    if absent:
        losses.add(f"no column {' nor '.join(absent)}: bytes not read", len(data))
        return
    for key, column in columns.items() if is_whole else ():
        losses.add(f"no column {column.headings[0]}: its values are not known", key not in places)
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
        if len(pending) == _BLOCK_ROWS:
            yield CsvRows(pending, columns, places, losses)
            pending = []
    if is_cut(data):
        losses.add("the last row has no end and may be cut")
    if pending:
        yield CsvRows(pending, columns, places, losses)


def csv_heading(data: Buffer) -> list[str]:
    """Return the cells of the first row."""
    return _heading(_csv(data, Losses("")))


def csv_devices(data: Buffer) -> frozenset[int]:
    """Return the devices that a table has rows of; none where it has no column for that."""
    rows = _csv(data, Losses(""))
    heading = _heading(rows)
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


def _heading(rows: Iterator[list[str]]) -> list[str]:
    return [cell.strip().lstrip("\ufeff") for cell in next(rows, [])]


def _csv(data: Buffer, losses: Losses) -> Iterator[list[str]]:
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
