"""`instrument verify PATH...`: check every frame and every value; the exit status is 0 if all is whole, else 1.

What a ring buffer holds that outlived its recorder is checked as if it stood in the event files.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable

from instrument.errors import NoSuchRun
from instrument.facts.describe import Row, damage_row
from instrument.runs import verify
from instrument.runs.verify import Report
from instrument.show import output
from instrument.show.opened_runs import tell, tell_or_raise
from instrument.show.progress import Progress, in_bytes
from instrument.show.tables import Cell, escape, name, prose, table


def configure(parser: argparse.ArgumentParser) -> None:
    what = "an event file, a run, or a directory with runs below it"
    parser.add_argument("paths", metavar="PATH", nargs="+", help=what)
    output.add_output_options(parser, "the files")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    files, status = files_of(arguments.paths)
    reports, others = list[Report](), list[Exception]()
    with Progress("verify", sum(map(size, files)), in_bytes) as progress:
        for path in files:
            progress.advance(path)
            try:
                reports.append(verify.check(path))
            except NoSuchRun as error:
                others.append(error)
            except OSError as error:
                tell(f"{path} cannot be read: {error.strerror}")
            progress.advance("", size(path))
    rings = {path: ring for place in arguments.paths for path, ring in verify.rings_at(place)}
    for path, ring in rings.items():
        if ring.events:
            tell(
                f"{path} holds {ring.events} events of a recorder that was killed; readers show them, and `instrument "
                f"repair {os.path.dirname(path) or os.curdir}` appends them to their event files"
            )
        if ring.damage:
            reports.append(Report(path, ring.size_bytes, values=ring.events, damage=ring.damage))
            files.append(path)
    tell_or_raise(others, bool(reports))
    show(reports, arguments)
    is_whole = len(reports) == len(files) and all(report.is_whole for report in reports)
    return status if is_whole else 1


def size(path: str) -> int:
    """Return the size of a file in bytes, 0 if that is unknown."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def files_of(paths: Iterable[str]) -> tuple[list[str], int]:
    """Return the event files at some paths, each once, and the exit status: 1 if one of the paths has none.

    Such a path is reported on stderr. Raises `NoSuchRun` if none of them has one.
    """
    files, wrong = list[str](), list[NoSuchRun]()
    for path in paths:
        try:
            some, notes = verify.files_at(path)
        except NoSuchRun as error:
            wrong.append(error)
            continue
        files += some
        for note in notes:
            tell(note)
    status = tell_or_raise(wrong, bool(files))
    return list(dict.fromkeys(files)), status


def show(
    reports: Iterable[Report], arguments: argparse.Namespace, counted: str = "values", written: Iterable[str] = ()
) -> None:
    """Print reports in the form that was asked for; `counted` is what their `values` are.

    `written` are the files that were made of them, if any were.
    """
    rows = [(_row(report, counted), report) for report in reports]
    for (row, _), target in zip(rows, written, strict=False):
        row["written"] = target
    if arguments.json or arguments.csv:
        whole = [row | {"damage": [damage_row(damage) for damage in report.damage]} for row, report in rows]
        if arguments.json:
            output.print_json(whole)
        else:
            output.print_records(whole, () if whole else _columns(counted))
        return
    heads = [key.replace("_", " ").upper() for key in _columns(counted)]
    print(table(heads, [_cells(row) for row, _ in rows]))
    for _, report in rows:
        for damage in report.damage:
            place = (
                f"{escape(damage.path)} at byte {damage.offset}, {damage.bytes_skipped} bytes: {escape(damage.reason)}"
            )
            print(prose(place, "  "))
    whole_count = sum(report.is_whole for _, report in rows)
    print(f"{len(rows)} file{'s' * (len(rows) != 1)}, {len(rows) - whole_count} damaged")


def _columns(counted: str) -> tuple[str, ...]:
    return "file", "bytes", "frames", counted, "damaged_places", "damaged_bytes", "unfinished_ends"


def _row(report: Report, counted: str) -> Row:
    torn = sum(damage.torn for damage in report.damage)
    return {
        "file": report.path,
        "bytes": report.size_bytes,
        "frames": report.frames,
        counted: report.values,
        "damaged_places": len(report.damage) - torn,
        "damaged_bytes": sum(damage.bytes_skipped for damage in report.damage),
        "unfinished_ends": torn,
    }


def _cells(row: Row) -> list[Cell]:
    return [name(value) if isinstance(value, str) else value for key, value in row.items() if key != "written"]
