"""`instrument ls DIR...`: list the runs at or below directories, one a line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from instrument.facts import describe
from instrument.runs.index import Index
from instrument.runs.points import clock
from instrument.runs.starts import RUNNING
from instrument.show import output
from instrument.show.opened_runs import PATHS, OpenedRuns
from instrument.show.tables import WHOLE, Cell, Column, name, table
from instrument.values import KINDS, LINEAGE_KINDS

_KINDS = [kind for kind in (*KINDS, "profile") if kind not in LINEAGE_KINDS]
_COLUMNS = (
    "run", "path", "ranks", "state", *(f"tags.{kind}" for kind in _KINDS), "first_step", "last_step", "last_wall_time",
)  # fmt: skip
_COUNTS = (
    "superseded_points", "nonfinite_points", "first_nonfinite_step", "missing_events", "damaged_places",
    "unfinished_ends",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="DIR", nargs="*", default=["."], help=f"{PATHS} (default: here)")
    output.add_output_options(parser, "the runs")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    runs = OpenedRuns(arguments.paths)
    facts = _facts(runs)
    if arguments.json:
        output.print_json([row for _, row in facts])
    elif arguments.csv:
        output.print_records((row for _, row in facts), (*_COLUMNS, *_COUNTS))
    else:
        shown = [_row(losses, row) for losses, row in facts]
        heads = [head for head in shown[0] if head != "RANKS" or any(cells[head] for cells in shown)]
        laid_out = [Column(head, 6, WHOLE) if head == "LAST" else head for head in heads]
        print(table(laid_out, [[cells[head] for head in heads] for cells in shown]))
    return runs.status


def _facts(runs: OpenedRuns) -> Iterator[tuple[str, describe.Row]]:
    """Yield the losses in words and the listing of each run, from the index if it is up to date."""
    index = Index(runs.paths, "ls")
    for run_name, run in runs.quietly():
        kept = index.facts(run)
        if kept is None:
            kept = {"losses": describe.losses_text(run), "row": describe.listing(run, run_name)}
            if kept["row"]["state"] != RUNNING:  # that ends without a change of the files
                index.keep(run, kept)
        yield kept["losses"], {**kept["row"], "run": run_name, "path": run.path}
    index.save()


def _superseded(facts: describe.Row) -> str:
    count = facts["superseded_points"]
    return f"{count} superseded point{'s' * (count != 1)}" if count else ""


def _row(losses: str, facts: describe.Row) -> dict[str, Cell]:
    tags = ", ".join(f"{count} {kind}" for kind, count in facts["tags"].items())
    ranks = len(facts["ranks"])
    row: dict[str, Cell] = {"RUN": name(facts["run"]), "RANKS": ranks if ranks > 1 else ""}
    notes = ", ".join(
        filter(
            None,
            [
                describe.notable_state(facts["state"]),
                describe.listing_nonfinite_text(facts),
                _superseded(facts),
                losses,
            ],
        )
    )
    row |= {"TAGS": tags or "-", "STEPS": "-", "LAST": "-", "NOTES": notes}
    if facts["first_step"] is not None:
        row |= {"STEPS": f"{facts['first_step']}..{facts['last_step']}", "LAST": clock(facts["last_wall_time"])}
    return row
