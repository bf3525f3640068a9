"""The forms in which every verb shows its facts: text for people, JSON, and CSV."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from instrument.analyse.layout import escape, formula_safe
from instrument.show.describe import plain


def add_forms(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--json` and `--csv`, which exclude each other; `what` says what they print."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help=f"print {what} as JSON; NaN and the infinities are texts")
    form.add_argument("--csv", action="store_true", help=f"print {what} as CSV; a value that is missing is empty")


def print_json(value: Any) -> None:
    """Standard JSON, in ASCII."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """CSV under the names of its columns, control characters escaped; see `cell` for the rest."""
    write_csv(sys.stdout, _escaped(columns), map(_escaped, rows))


def _escaped(row: Iterable[Any]) -> list[Any]:
    return [escape(one) if isinstance(one, str) else one for one in row]


def print_records(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Dictionaries as CSV; what one of them lacks is empty."""
    print_csv(columns, ([record.get(column) for column in columns] for record in records))


def write_csv(file: IO[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """CSV with a heading, line ends as in Unix."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([cell(column) for column in columns])
    writer.writerows([cell(value) for value in row] for row in rows)


def cell(value: Any) -> Any:
    """What the csv module takes: floats with all digits, NaN and the infinities in words, nothing for None.

    A text that a spreadsheet would run as a formula begins with an apostrophe; lists and dictionaries are JSON.
    """
    if isinstance(value, str):
        return formula_safe(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return value if math.isfinite(value) else plain(value)
    return json.dumps(plain(value), allow_nan=False) if isinstance(value, (list, tuple, dict)) else value
