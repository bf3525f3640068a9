"""Print the rows of a verb: `--json`, `--csv`, or tables for people.

The problem: a dozen verbs print facts, and programs read them. Each must be available whole, under names that do not
change, without a verb having to think of NaN, of control characters in a tag, or of a spreadsheet.

The strategy: a verb makes rows, dictionaries with the field names of docs/reference/output.md, and hands them over.
JSON is the whole of it: rows with further dictionaries inside. CSV has the same rows flattened: a dictionary inside a
row gives a column for each of its keys (`tags.scalar`), a list is one cell of JSON. If a verb has rows of several sorts
the first column, `table`, names the sort, and a row leaves the columns of the others empty.

Rejected: a file of CSV for each sort of rows. A verb prints on standard output, which is one stream.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from instrument.analyse.layout import escape
from instrument.errors import InstrumentError
from instrument.facts.describe import Row
from instrument.formats.job import Written
from instrument.formats.text import flatten_row, plain, write_csv
from instrument.runs.run import Run
from instrument.show.tables import Cell, name, table


def add_output_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--json` and `--csv`, which exclude each other; `what` is what they print."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help=f"print {what} as JSON; NaN and the infinities are texts")
    form.add_argument("--csv", action="store_true", help=f"print {what} as CSV; a value that is missing is empty")


def print_json(value: object) -> None:
    """Print standard JSON, in ASCII."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def print_json_line(value: object) -> None:
    """Print standard JSON on one line."""
    print(json.dumps(plain(value), allow_nan=False))


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print CSV under the names of its columns, with control characters escaped."""
    write_csv(sys.stdout, map(_escaped, itertools.chain([columns], rows)))


def print_csv_row(row: Sequence[object]) -> None:
    """Print one line of CSV."""
    write_csv(sys.stdout, [_escaped(row)])


def _escaped(row: Iterable[object]) -> list[object]:
    return [escape(value) if isinstance(value, str) else value for value in row]


def print_records(records: Iterable[Mapping[str, object]], columns: Sequence[str] = ()) -> None:
    """Print rows as CSV, flattened; a column that one of them lacks is empty.

    Without `columns` there is a column for each key, in the order in which the keys come.
    """
    rows: Iterable[Row] = (flatten_row(record) for record in records)
    if not columns:
        rows = list(rows)
        columns = list(dict.fromkeys(key for row in rows for key in row))
    print_csv(columns, ([row.get(column) for column in columns] for row in rows))


def print_tables(tables: Mapping[str, Iterable[Mapping[str, object]]], columns: Sequence[str] = ()) -> None:
    """Print rows of several sorts as one CSV, whose first column `table` names the sort; `columns` as above."""
    rows = [{"table": name, **row} for name, rows in tables.items() for row in rows]
    print_records(rows, ["table", *columns] if columns or not rows else ())


# ---------------------------------------------------------------- files that were written


def written_row(run_name: str, run: Run, written: Written) -> Row:
    """Return a file that was made of a run as a row."""
    return {"run": run_name, "path": run.path, **written._asdict()}


def print_written(
    arguments: argparse.Namespace, written: Sequence[Row], left_out: Iterable[Row], has_tags: bool = True
) -> None:
    """Print the rows of files in the form of the options; the table has a column for tags if `has_tags`.

    `left_out` are rows with the run and the `reason`.
    """
    tables = {"written": list(written), "left_out": list(left_out)}
    if arguments.json:
        print_json(tables)
    elif arguments.csv:
        print_tables(tables)
    else:
        is_one_run = len({row["path"] for row in written}) < 2
        heads = ["RUN", "KIND", "TAG", "POINTS", "FILE"]
        kept = [head for head in heads if not (head == "RUN" and is_one_run) and (head != "TAG" or has_tags)]
        print(table(kept, [[cells[head] for head in kept] for cells in map(_written_cells, written)]))


def _written_cells(row: Row) -> dict[str, Cell]:
    cells: dict[str, Cell] = {"RUN": name(row["run"]), "KIND": row["kind"], "TAG": name(row["tag"])}
    return cells | {"POINTS": row["points"], "FILE": escape(row["file"])}


def folders_of(paths: Sequence[str], out: str) -> list[str]:
    """Return the output folder of each path: `out` for a single path, else folders of their names in it.

    Raises:
        InstrumentError: two of the paths have one name.
    """
    if len(paths) == 1:
        return [out]
    names = [os.path.basename(os.path.abspath(path)) for path in paths]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InstrumentError(f"several of the paths end in {twice[0]!r}; take them one by one, each with its own -o")
    return [os.path.join(out, name) for name in names]
