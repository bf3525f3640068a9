"""Plain values as JSON and as cells of CSV: the rules that every output shares.

JSON has no NaN and no lone surrogates, a spreadsheet runs some texts as formulas, and a row may hold dictionaries. The
rules for these stand here once, so that the same value is the same text wherever it is written.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from instrument.analyse.layout import formula_safe


def plain(value: Any) -> Any:
    """Return the value for standard JSON, which has no word for NaN and the infinities: they become texts.

    A surrogate stands for a byte of a name that is not UTF-8. JSON has no character for it: it becomes `\\udcXX`.
    """
    if isinstance(value, dict):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def csv_cell(value: object) -> object:
    """Return what the csv module takes: floats with all digits, NaN and the infinities in words, nothing for None.

    A text that a spreadsheet would run as a formula begins with an apostrophe; lists and dictionaries are JSON.
    """
    if isinstance(value, str):
        return formula_safe(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return value if math.isfinite(value) else plain(value)
    return json.dumps(plain(value), allow_nan=False) if isinstance(value, (list, tuple, dict)) else value


def flatten_row(row: Mapping[str, object]) -> dict[str, Any]:
    """Return the row with the entries of its dictionaries, at any depth, under names with dots between."""
    return dict(_leaves(row))


def _leaves(row: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def write_csv(file: IO[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows of cells as CSV, with the line ends of Unix."""
    csv.writer(file, lineterminator="\n").writerows([csv_cell(value) for value in row] for row in rows)
