"""What a verb that makes files says of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import Any

from instrument.errors import InstrumentError
from instrument.runs.run import Run
from instrument.show import forms
from instrument.show.describe import Row
from instrument.show.formats import Written
from instrument.show.tables import escape, name, table


def row_of(run_name: str, run: Run, written: Written) -> Row:
    """Return a file that was made of a run as a row of the outputs."""
    return {"run": run_name, "path": run.path, **written._asdict()}


def print_written(
    arguments: argparse.Namespace, written: Sequence[Row], left_out: Iterable[Row], has_tags: bool = True
) -> None:
    """Print the files in the form that was asked for; without `has_tags` the table for people has no column for tags.

    `left_out` are rows with the run and the `reason`.
    """
    tables = {"written": list(written), "left_out": list(left_out)}
    if arguments.json:
        forms.print_json(tables)
    elif arguments.csv:
        forms.print_tables(tables)
    else:
        is_one = len({row["path"] for row in written}) < 2
        print(table(_heads(is_one, has_tags), [_cells(row, is_one, has_tags) for row in written]))


def _heads(is_one: bool, has_tags: bool) -> list[str]:
    return [*([] if is_one else ["RUN"]), "KIND", *(["TAG"] if has_tags else []), "POINTS", "FILE"]


def _cells(row: Row, is_one: bool, has_tags: bool) -> list[Any]:
    cells = [row["kind"], *([name(row["tag"])] if has_tags else []), row["points"], escape(row["file"])]
    return cells if is_one else [name(row["run"]), *cells]


def folders_of(paths: Sequence[str], out: str) -> list[str]:
    """Return where each path goes: one alone into the folder itself, several into folders of their names there.

    Raises:
        InstrumentError: two of the paths have one name.
    """
    if len(paths) == 1:
        return [out]
    names = [os.path.basename(os.path.abspath(path)) for path in paths]
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        raise InstrumentError(f"several of the paths end in {twice[0]!r}; take them one by one, each with its own -o")
    return [os.path.join(out, one) for one in names]
