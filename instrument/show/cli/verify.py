"""`instrument verify PATH...`: check every frame and every value; the exit status is 0 if all is whole, else 1.

What a ring buffer holds that outlived its recorder is checked as if it stood in the event files.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from instrument.analyse.layout import Cell, escape
from instrument.errors import NoSuchRun
from instrument.facts.describe import damage_facts
from instrument.runs import verify
from instrument.runs.verify import Report
from instrument.show.cli import options
from instrument.show.cli.output import put
from instrument.show.terminal import Progress, in_bytes, prose, safe_cell, table, tell
from instrument.wording import counted

ARGUMENTS = (options.FILES, options.printed("the files"))
EXAMPLES = (
    ("verify runs", "all event files at and below a directory"),
    ("verify runs --json", "where each one is damaged, for programs"),
)


def run(arguments: argparse.Namespace) -> int:
    files, status = _files_of(arguments.paths)
    reports, others = each_file("verify", [(path, partial(_check, path)) for path in files])
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
    options.tell_or_raise(others, bool(reports))
    show(arguments, reports)
    is_whole = len(reports) == len(files) and all(report.is_whole for report in reports)
    return status if is_whole else 1


def _check(path: str) -> Report | None:
    try:
        return verify.check(path)
    except OSError as error:
        tell(f"{path} cannot be read: {error.strerror}")
        return None


def each_file(
    verb: str, work: Sequence[tuple[str, Callable[[], Report | None]]]
) -> tuple[list[Report], list[NoSuchRun]]:
    """Do the work on each file, with progress; return the reports, and the errors of those that are no event files."""
    reports, others = list[Report](), list[NoSuchRun]()
    sizes = [_size(path) for path, _ in work]
    with Progress(verb, sum(sizes), in_bytes) as progress:
        for (path, report_on), size in zip(work, sizes, strict=True):
            progress.advance(path)
            try:
                reports += filter(None, [report_on()])
            except NoSuchRun as error:
                others.append(error)
            progress.advance("", size)
    return reports, others


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _files_of(paths: Iterable[str]) -> tuple[list[str], int]:
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
    status = options.tell_or_raise(wrong, bool(files))
    return list(dict.fromkeys(files)), status


def show(
    arguments: argparse.Namespace, reports: Sequence[Report], unit: str = "values", written: Iterable[str] = ()
) -> None:
    """Print reports in the form of the options; `unit` is what their `values` are.

    `written` are the files that were made of them, if any were.
    """
    rows = [_row(report, unit) for report in reports]
    damage = [[damage_facts(place) for place in report.damage] for report in reports]
    targets = [{"written": target} for target in written] or [{} for _ in reports]
    whole = [row | target | {"damage": places} for row, target, places in zip(rows, targets, damage, strict=True)]
    columns = ("file", "bytes", "frames", unit, "damaged_places", "damaged_bytes", "unfinished_ends")
    put(arguments, whole, _texts(reports, rows, columns), whole, () if whole else columns)


def _row(report: Report, unit: str) -> dict[str, Cell]:
    torn = sum(damage.torn for damage in report.damage)
    return {
        "file": report.path,
        "bytes": report.size_bytes,
        "frames": report.frames,
        unit: report.values,
        "damaged_places": len(report.damage) - torn,
        "damaged_bytes": sum(damage.bytes_skipped for damage in report.damage),
        "unfinished_ends": torn,
    }


def _texts(reports: Sequence[Report], rows: Iterable[dict[str, Cell]], columns: Iterable[str]) -> Iterator[str]:
    heads = [key.replace("_", " ").upper() for key in columns]
    lines = [table(heads, [list(map(safe_cell, row.values())) for row in rows])]
    for damage in (damage for report in reports for damage in report.damage):
        place = f"{escape(damage.path)} at byte {damage.offset}, {damage.bytes_skipped} bytes"
        lines.append(prose(f"{place}: {escape(damage.reason)}", "  "))
    damaged = sum(not report.is_whole for report in reports)
    yield "\n".join([*lines, f"{counted(len(reports), 'file')}, {damaged} damaged"])
