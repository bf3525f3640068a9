"""Print the rows of a verb: `--json`, `--csv`, or tables for people.

The problem: a dozen verbs print facts, and programs read them. Each must be available whole, under names that do not
change, without a verb having to think of NaN, of control characters in a tag, or of a spreadsheet.

The strategy: a verb makes rows, dictionaries with the field names of docs/reference/output.md, and hands them over with
the texts for people; `put` prints one of these. JSON is the whole of it: rows with further dictionaries inside. CSV has
the same rows flattened: a dictionary inside a row gives a column for each of its keys (`tags.scalar`), a list is one
cell of JSON. If a verb has rows of several sorts the first column, `table`, names the sort, and a row leaves the
columns of the others empty.

Rejected: a file of CSV for each sort of rows. A verb prints on standard output, which is one stream.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from instrument.analyse.layout import Cell, escape
from instrument.facts.rows import Row
from instrument.formats.job import Written
from instrument.formats.text import flatten_row, plain, write_csv
from instrument.runs.run import Run
from instrument.show.terminal import safe_cell, table


def put(
    arguments: argparse.Namespace,
    result: object,
    texts: Iterable[str],
    rows: Iterable[Row] | Mapping[str, Iterable[Row]],
    columns: Sequence[str] = (),
) -> None:
    """Print what the options ask for: `result` as JSON, `rows` as CSV, or `texts` with an empty line between them.

    Args:
        texts: computed only if they are printed, where this is an iterator.
        rows: those of one sort, or of several sorts by their names.
        columns: of the CSV; without them there is one for each key, in the order in which the keys come.
    """
    if arguments.json:
        print_json(list(result) if isinstance(result, Iterator) else result)
    elif arguments.csv:
        if isinstance(rows, Mapping):
            rows = [{"table": sort, **row} for sort, some in rows.items() for row in some]
            columns = ["table", *columns] if columns or not rows else ()
        _print_records(rows, columns)
    else:
        print("\n\n".join(texts))


def print_json(value: object, indent: int | None = 2) -> None:
    """Print standard JSON, in ASCII; on one line without `indent`."""
    print(json.dumps(plain(value), indent=indent, allow_nan=False))


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print CSV under the names of its columns."""
    print_csv_rows(itertools.chain([columns], rows))


def print_csv_rows(rows: Iterable[Sequence[object]]) -> None:
    """Print lines of CSV, with control characters escaped."""
    write_csv(sys.stdout, ([escape(value) if isinstance(value, str) else value for value in row] for row in rows))


def _print_records(records: Iterable[Row], columns: Sequence[str]) -> None:
    rows: Iterable[Row] = map(flatten_row, records)
    if not columns:
        rows = list(rows)
        columns = list(dict.fromkeys(key for row in rows for key in row))
    print_csv(columns, ([row.get(column) for column in columns] for row in rows))


# ---------------------------------------------------------------- files that were written


def written_row(run_name: str, run: Run, written: Written) -> dict[str, Cell]:
    """Return a file that was made of a run as a row."""
    return {"run": run_name, "path": run.path, **written._asdict()}


def put_written(
    arguments: argparse.Namespace, written: Sequence[dict[str, Cell]], left_out: Sequence[Row], has_tags: bool = True
) -> None:
    """Print the rows of files, and those with a `reason` of what was left out, in the form of the options.

    The table has a column for tags if `has_tags`, and one for runs if there are several.
    """
    tables: dict[str, Sequence[Row]] = {"written": written, "left_out": left_out}
    keys = ["run"] if len({row["path"] for row in written}) > 1 else []
    keys += ["kind", *(["tag"] if has_tags else []), "points", "file"]
    cells = [[safe_cell(row[key]) for key in keys] for row in written]
    put(arguments, tables, [table([key.upper() for key in keys], cells)], tables)
