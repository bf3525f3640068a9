"""`instrument ls DIR`: the runs at or below a directory, one a line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from instrument.read.index import Index
from instrument.read.points import clock
from instrument.read.run import Run
from instrument.show import describe, forms
from instrument.show.runs import runs_at
from instrument.show.tables import Cell, name, table
from instrument.values import KINDS, LINEAGE_KINDS

_KINDS = [kind for kind in (*KINDS, "profile") if kind not in LINEAGE_KINDS]
_LOSSES = ("missing_events", "damaged_places", "unfinished_ends")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", nargs="?", default=".", help="where to look (default: here)")
    forms.add_forms(parser, "the runs")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    facts = _facts(arguments.directory)
    if arguments.json:
        forms.print_json([row for _, row in facts])
    elif arguments.csv:
        rows = ({**row, **row["tags"]} for _, row in facts)
        steps = ("first_step", "last_step", "last_wall_time")
        forms.print_records(rows, ("run", "path", *_KINDS, *steps, "replaced_points", *_LOSSES))
    else:
        shown = [_row(one, row) for one, row in facts]
        heads = [head for head in shown[0] if head != "RANKS" or any(cells[head] for cells in shown)]
        print(table(heads, [[cells[head] for head in heads] for cells in shown]))
    return 0


def _facts(root: str) -> Iterator[tuple[str, describe.Row]]:
    """What is missing of each run, in words, and all else."""
    runs = runs_at(root)
    index = Index(root, "ls")
    while runs:  # a run keeps what it has read, so each is let go in turn
        found = runs.pop(0)
        kept = index.facts(found)
        if kept is None:
            kept = {"losses": describe.losses(found), "row": describe.listed(found, _name(found, root))}
            index.keep(found, kept)
        yield kept["losses"], kept["row"]
    index.save()


def _name(found: Run, root: str) -> str:
    return found.name if os.path.isfile(root) else os.path.relpath(found.path, root)


def _replaced(facts: describe.Row) -> str:
    count = facts["replaced_points"]
    return f"a later start replaced {count} point{'s' * (count != 1)}" if count else ""


def _row(losses: str, facts: describe.Row) -> dict[str, Cell]:
    tags = ", ".join(f"{count} {kind}" for kind, count in facts["tags"].items())
    ranks = len(facts["ranks"])
    row: dict[str, Cell] = {"RUN": name(facts["run"]), "RANKS": ranks if ranks > 1 else ""}
    row |= {
        "TAGS": tags or "-",
        "STEPS": "-",
        "LAST": "-",
        "NOTES": ", ".join(filter(None, [_replaced(facts), losses])),
    }
    if facts["first_step"] is not None:
        row |= {"STEPS": f"{facts['first_step']}..{facts['last_step']}", "LAST": clock(facts["last_wall_time"])}
    return row
