"""Text in columns: numbers, and names that cannot disturb a terminal. What `show` prints and what `str(table)` is.

A name out of a file is never printed as it is: control characters, and those that change the direction of writing,
stand as escapes.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

Cell = str | int | float | None

_NAME_COLUMNS = 60
#: What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_GAP = "  "


def escape(text: str) -> str:
    """The text on one line, with everything that is not printable as a Python escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def formula_safe(text: str) -> str:
    """A text for CSV: one that a spreadsheet would run as a formula begins with an apostrophe."""
    return "'" + text if text.startswith(_FORMULA) else text


def name(text: str, width: int = _NAME_COLUMNS) -> str:
    """A name for a table: escaped, and one longer than `width` shortened in the middle.

    Of scopes, as in the name of an operator, the first stays, and as many of the last as there is room for.
    """
    text = escape(text)
    if len(text) <= width:
        return text
    first, *scopes = text.split("/")
    for place in range(1, len(scopes)):
        short = "/".join([first, "...", *scopes[place:]])
        if len(short) <= width:
            return short
    half = (width - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def number(value: float | None) -> str:
    """Seven digits of a float, all of an int, the words of JSON for what is no number; a dash for none."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        return f"{value:.7g}"
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Columns under their names: texts to the left, columns of numbers only to the right. No line ends in a space."""
    is_number = [bool(rows) and not any(isinstance(row[column], str) for row in rows) for column in range(len(header))]
    lines = [[cell if isinstance(cell, str) else number(cell) for cell in row] for row in rows]
    return aligned(header, lines, is_number)


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], is_right: Sequence[bool]) -> str:
    """Columns of finished texts under their names; `is_right` says which of them stand to the right."""
    lines = [list(header), *(list(row) for row in rows)]
    for column, right in enumerate(is_right):
        width = max(columns(line[column]) for line in lines)
        for line in lines:
            gap = " " * (width - columns(line[column]))
            line[column] = gap + line[column] if right else line[column] + gap
    return "\n".join(_GAP.join(line).rstrip() for line in lines)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: East Asian characters and emoji two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
