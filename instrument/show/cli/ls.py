"""`instrument ls DIR...`: list the runs at or below directories, one a line."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import cast

from instrument.analyse.layout import WHOLE, Cell, Column, name
from instrument.facts.describe import listing, listing_nonfinite_text, losses_text, notable_state, tags_text
from instrument.facts.rows import Listing
from instrument.runs.index import Index
from instrument.runs.points import clock
from instrument.runs.starts import RUNNING
from instrument.show.cli import options
from instrument.show.cli.output import put
from instrument.show.terminal import table
from instrument.values import KINDS, LINEAGE_KINDS
from instrument.wording import counted

ARGUMENTS = (options.DIRECTORIES, options.printed("the runs"))
EXAMPLES = (
    ("ls", "the runs here and below"),
    ("ls runs --json", "the same, for programs"),
)
_KINDS = [kind for kind in (*KINDS, "profile") if kind not in LINEAGE_KINDS]
_COLUMNS = (
    "run", "path", "ranks", "state", *(f"tags.{kind}" for kind in _KINDS), "first_step", "last_step", "last_wall_time",
)  # fmt: skip
_COUNTS = (
    "superseded_points", "nonfinite_points", "first_nonfinite_step", "missing_events", "damaged_places",
    "unfinished_ends",
)  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    runs = options.OpenedRuns(arguments.paths)
    facts = _facts(runs)
    rows = (row for _, row in facts)
    put(arguments, rows, _texts(facts), rows, (*_COLUMNS, *_COUNTS))
    return runs.status


def _facts(runs: options.OpenedRuns) -> Iterator[tuple[str, Listing]]:
    """Yield the losses in words and the listing of each run, from the index if it is up to date."""
    index = Index(runs.paths, "ls")
    for run_name, run in runs.quietly():
        kept = index.facts(run)
        if kept is None:
            kept = {"losses": losses_text(run), "row": listing(run, run_name)}
            if kept["row"]["state"] != RUNNING:  # that ends without a change of the files
                index.keep(run, kept)
        yield kept["losses"], {**cast(Listing, kept["row"]), "run": run_name, "path": run.path}
    index.save()


def _texts(facts: Iterable[tuple[str, Listing]]) -> Iterator[str]:
    shown = [_cells(losses, row) for losses, row in facts]
    heads = [head for head in shown[0] if head != "RANKS" or any(cells[head] for cells in shown)]
    laid_out = [Column(head, 6, WHOLE) if head == "LAST" else head for head in heads]
    yield table(laid_out, [[cells[head] for head in heads] for cells in shown])


def _cells(losses: str, row: Listing) -> dict[str, Cell]:
    superseded = row["superseded_points"]
    notes = [
        notable_state(row["state"]),
        listing_nonfinite_text(row),
        counted(superseded, "superseded point") if superseded else "",
        losses,
    ]
    steps, last = "-", "-"
    if row["last_wall_time"] is not None:
        steps, last = f"{row['first_step']}..{row['last_step']}", clock(row["last_wall_time"])
    return {
        "RUN": name(row["run"]),
        "RANKS": len(row["ranks"]) if len(row["ranks"]) > 1 else "",
        "TAGS": tags_text(row) or "-",
        "STEPS": steps,
        "LAST": last,
        "NOTES": ", ".join(filter(None, notes)),
    }
