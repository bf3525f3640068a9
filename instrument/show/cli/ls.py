"""`instrument ls DIR`: the runs at or below a directory, one a line."""

from __future__ import annotations

import argparse
import os
import sys

from instrument.read.points import clock
from instrument.read.run import Run, find_runs
from instrument.show.describe import extent
from instrument.show.tables import Cell, escape, name, table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", nargs="?", default=".", help="where to look (default: here)")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    root: str = arguments.directory
    runs = find_runs(root)
    for note in runs.notes:
        print(f"instrument: {escape(note)}", file=sys.stderr)
    if not runs:
        print(f"instrument: no event file in {escape(root)} or in a folder below it", file=sys.stderr)
        return 1
    rows = []
    while runs:  # a run keeps what it has read, so each is let go in turn
        rows.append(_row(runs.pop(0), root))
    print(table(("RUN", "TAGS", "STEPS", "LAST", "NOTES"), rows))
    return 0


def _row(run: Run, root: str) -> list[Cell]:
    tags = ", ".join(f"{len(tags)} {kind}" for kind, tags in run.tags().items())
    row: list[Cell] = [name(os.path.relpath(run.path, root)), tags or "-"]
    reach = extent(run)
    row += ["-", "-"] if reach is None else [f"{reach[0]}..{reach[1]}", clock(reach[2])]
    return [*row, _notes(run)]


def _notes(run: Run) -> str:
    torn = sum(damage.torn for damage in run.damage)
    damaged = len(run.damage) - torn
    missing = sum(gap.events for gap in run.gaps)
    counts = {"missing event": missing, "damaged place": damaged, "unfinished end": torn}
    return ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items() if count)
