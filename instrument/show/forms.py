"""The forms in which every verb prints its facts: text for people, JSON, and CSV.

The names of all fields, and the rules below, are in docs/reference/output.md. JSON is the whole of it: rows are
dictionaries, with further ones inside. CSV has the same rows flattened: a dictionary inside a row gives a column for
each of its keys (`tags.scalar`), a list is one cell of JSON. Where a verb has rows of several sorts the first column,
`table`, names the sort, and a row leaves the columns of the others empty.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from instrument.analyse.layout import escape, formula_safe
from instrument.show.describe import Row, plain


def add_forms(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--json` and `--csv`, which exclude each other; `what` says what they print."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help=f"print {what} as JSON; NaN and the infinities are texts")
    form.add_argument("--csv", action="store_true", help=f"print {what} as CSV; a value that is missing is empty")


def print_json(value: Any) -> None:
    """Print standard JSON, in ASCII."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def print_json_line(value: Any) -> None:
    """Print standard JSON on one line."""
    print(json.dumps(plain(value), allow_nan=False))


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print CSV under the names of its columns, control characters escaped; see `cell` for the rest."""
    write_csv(sys.stdout, _escaped(columns), map(_escaped, rows))


def print_csv_row(row: Iterable[Any]) -> None:
    """Print one line of CSV."""
    _write_row(csv.writer(sys.stdout, lineterminator="\n"), _escaped(row))


def _escaped(row: Iterable[Any]) -> list[Any]:
    return [escape(value) if isinstance(value, str) else value for value in row]


def print_records(records: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Print dictionaries as CSV, those in them flattened; what one of them lacks is empty.

    Without `columns` there is a column for each key, in the order in which the keys come.
    """
    rows: Iterable[Row] = (flattened(record) for record in records)
    if not columns:
        rows = list(rows)
        columns = list(dict.fromkeys(key for row in rows for key in row))
    print_csv(columns, ([row.get(column) for column in columns] for row in rows))


def print_tables(tables: Mapping[str, Iterable[Mapping[str, Any]]], columns: Sequence[str] = ()) -> None:
    """Print rows of several sorts as one CSV, whose first column `table` names the sort; `columns` as above."""
    rows = [{"table": name, **row} for name, rows in tables.items() for row in rows]
    print_records(rows, ["table", *columns] if columns or not rows else ())


def flattened(row: Mapping[str, Any]) -> Row:
    """Return the row with the entries of its dictionaries, at any depth, under names with dots between."""
    return dict(_leaves(row))


def _leaves(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def write_csv(file: IO[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write CSV with a heading, line ends as in Unix."""
    writer = csv.writer(file, lineterminator="\n")
    _write_row(writer, columns)
    for row in rows:
        _write_row(writer, row)


def _write_row(writer: Any, row: Iterable[Any]) -> None:
    writer.writerow([cell(value) for value in row])


def cell(value: Any) -> Any:
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
