"""`instrument verify PATH`: check every frame and every value; exit code 0 where all is whole, 1 where not.

What a ring buffer holds that outlived its recorder is checked as if it stood in the event files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from instrument.read import verify
from instrument.read.verify import Report
from instrument.show import forms
from instrument.show.runs import tell
from instrument.show.tables import escape, name, table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="an event file, a run, or a directory with runs below it")
    forms.add_forms(parser, "the files")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    files, notes = verify.files_at(arguments.path)
    for note in notes:
        tell(note)
    reports = []
    for path in files:
        try:
            reports.append(verify.check(path))
        except OSError as error:
            tell(f"{path} cannot be read: {error.strerror}")
    for path, ring in verify.rings_at(arguments.path):
        if ring.events:
            tell(
                f"{path} holds {ring.events} events of a recorder that was killed; readers show them, and `instrument "
                f"repair {os.path.dirname(path) or os.curdir}` appends them to their event files"
            )
        if ring.damage:
            reports.append(Report(path, ring.size_bytes, values=ring.events, damage=ring.damage))
            files.append(path)
    show(reports, arguments)
    return 0 if len(reports) == len(files) and all(report.is_whole for report in reports) else 1


def show(reports: Iterable[Report], arguments: argparse.Namespace, counted: str = "values") -> None:
    """Print reports in the form that was asked for; `counted` is what their `values` are."""
    rows = [(_row(report, counted), report) for report in reports]
    if arguments.json:
        forms.print_json([row | {"damage": [asdict(one) for one in report.damage]} for row, report in rows])
    elif arguments.csv:
        forms.print_records((row for row, _ in rows), _columns(counted))
    else:
        heads = [key.replace("_", " ").upper() for key in _columns(counted)]
        print(table(heads, [_cells(row) for row, _ in rows]))
        for _, report in rows:
            for one in report.damage:
                print(f"{escape(one.path)} at byte {one.offset}, {one.bytes_skipped} bytes: {escape(one.reason)}")
        whole = sum(report.is_whole for _, report in rows)
        print(f"{len(rows)} file{'s' * (len(rows) != 1)}, {len(rows) - whole} damaged")


def _columns(counted: str) -> tuple[str, ...]:
    return "path", "bytes", "frames", counted, "damaged_places", "damaged_bytes", "unfinished_end"


def _row(report: Report, counted: str) -> dict[str, Any]:
    torn = sum(one.torn for one in report.damage)
    return {
        "path": report.path,
        "bytes": report.size_bytes,
        "frames": report.frames,
        counted: report.values,
        "damaged_places": len(report.damage) - torn,
        "damaged_bytes": sum(one.bytes_skipped for one in report.damage),
        "unfinished_end": bool(torn),
    }


def _cells(row: dict[str, Any]) -> list[Any]:
    shown = row | {"path": name(row["path"]), "unfinished_end": "yes" if row["unfinished_end"] else ""}
    return list(shown.values())
