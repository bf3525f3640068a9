"""Numbers and lines of text files, without trusting either; what cannot be read is counted.

Times go from text to integer nanoseconds through decimal arithmetic: a float64 of microseconds since the epoch is wrong
by some hundred nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

import numpy as np

from instrument.trace.events import MISSING, Integers, Mask, Problem

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
        """One `Problem` for each kind of loss, in the order in which they were met."""
        return [Problem(self.file, what, amount) for what, amount in self._amounts.items()]


def lines(data: Buffer) -> Iterator[bytes]:
    """The lines of `data`, each with its end; only the last one may lack it."""
    return (match.group() for match in _LINE.finditer(data))


def spans_of_lines(data: Buffer) -> Iterator[tuple[int, int]]:
    """Return where each line starts and ends, its line feed included."""
    return (match.span() for match in _LINE.finditer(data))


def decode(data: bytes) -> str:
    """UTF-8, with replacement characters for what is none."""
    return data.decode("utf-8", "replace")


def is_cut(data: Buffer) -> bool:
    """Return True if the last line lacks its end, so that it may have been longer."""
    return len(data) > 0 and data[len(data) - 1] != 0x0A


def scaled(cell: str, factor: int = 1) -> int | None:
    """The number in `cell` times `factor`, rounded half to even; None where it is none or not below `LIMIT`."""
    if len(cell) > _LONGEST_NUMBER or not _NUMBER.fullmatch(cell):
        return None
    value = Decimal(cell)
    if value.adjusted() > _INT64_DIGITS:  # before anything would write out its digits
        return None
    number = int((value * factor).to_integral_value())
    return number if -LIMIT < number < LIMIT else None


def numbers(cells: Iterable[str], losses: Losses, column: str, factor: int = 1) -> tuple[Integers, Mask]:
    """The numbers in `cells` times `factor` as int64, and which of them are some; the others are `MISSING`.

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


class Index:
    """Gives each name a number, in the order in which they are first met."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._rows: dict[str, int] = {name: row for row, name in enumerate(names)}

    def __call__(self, name: str) -> int:
        return self._rows.setdefault(name, len(self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> list[str]:
        return list(self._rows)
