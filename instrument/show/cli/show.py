"""`instrument show RUN`: what a run recorded, as tables, JSON or CSV."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any

from instrument.read.points import called, clock
from instrument.read.run import read
from instrument.show import describe
from instrument.show.forms import add_forms, print_json, print_records
from instrument.show.tables import Cell, escape, name, number, table

#: Columns that are left out where they say nothing: all zero, all empty, or one writer only.
_OPTIONAL = ("writer", "superseded", "nan", "positive_infinity", "negative_infinity", "mapping")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the directory of a run, or one of its event files")
    parser.add_argument("--tag", help="show every point of this tag")
    parser.add_argument("--rank", metavar="N", type=int, help="only what this rank of a training recorded")
    parser.add_argument("--superseded", action="store_true", help="with --tag: also points that a restart replaced")
    add_forms(parser, "all of it (CSV: the tags, or the points of the tag)")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.superseded and arguments.tag is None:
        print("instrument show: --superseded is for the points of one tag; give --tag too", file=sys.stderr)
        return 2
    opened = read(arguments.run)
    if arguments.rank is not None:
        opened = opened.of_rank(arguments.rank)
    if arguments.tag is None:
        report = describe.overview(opened)
    else:
        report = describe.points_of(opened, arguments.tag, arguments.superseded)
    if arguments.json:
        print_json(report)
    elif arguments.csv:
        _csv(report)
    else:
        print("\n\n".join(_overview(report) if arguments.tag is None else _points(report)))
    return 0


def _csv(report: describe.Row) -> None:
    kinds = report["tags"] if "tags" in report else report["kinds"]
    rows = [{"kind": kind, **row} for kind, rows in kinds.items() for row in rows]
    print_records(rows, list(dict.fromkeys(key for row in rows for key in row)) or ["kind"])


def _overview(report: describe.Row) -> Iterator[str]:
    ranks = f", ranks {', '.join(map(str, report['ranks']))}" if len(report["ranks"]) > 1 else ""
    yield f"{name(report['name'])} in {escape(report['path'])}{ranks}"
    yield _section("files", report["files"])
    if report["has_profile"]:
        yield f"A profile is there, too: instrument profile {shlex.quote(escape(report['path']))}"
    for kind, rows in report["tags"].items():
        yield _section(kind, rows)
    if report["lineage"]:
        rows = [{"lineage": key, "value": _leaf(value)} for key, value in describe.flat(report["lineage"])]
        yield _section("", rows)
    yield from _missing(report)


def _points(report: describe.Row) -> Iterator[str]:
    yield f"{name(report['tag'])} of {name(report['name'])} in {escape(report['path'])}"
    for kind, rows in report["kinds"].items():
        yield _section(kind, rows)
        if report["not_shown"][kind]:
            yield f"superseded points that are not shown (--superseded shows them): {report['not_shown'][kind]}"
    yield from _missing(report)


def _missing(report: describe.Row) -> Iterator[str]:
    for title in ("gaps", "damage"):
        if report[title]:
            yield _section(title, report[title])


def _section(title: str, rows: list[describe.Row]) -> str:
    cells = [_cells(row) for row in rows]
    keys = list(dict.fromkeys(key for row in cells for key in row))
    keys = [key for key in keys if key not in _OPTIONAL or _says_something(key, [row.get(key) for row in cells])]
    body = table([key.replace("_", " ").upper() for key in keys], [[row.get(key) for key in keys] for row in cells])
    return f"{title}\n{body}" if title else body


def _says_something(key: str, cells: list[Cell]) -> bool:
    return len(set(cells)) > 1 if key == "writer" else any(cells)


def _cells(row: describe.Row) -> dict[str, Cell]:
    """A row as it is shown: two steps in one cell, device and host in one, times as local time."""
    cells: dict[str, Cell] = {}
    for key, value in row.items():
        if key == "first_step":
            cells["steps"] = f"{value}..{row['last_step']}"
        elif key == "device":
            cells["writer"] = name(called((value, row["host"])))
        elif key in ("wall_time", "last_wall_time"):
            cells[key.replace("wall_", "")] = clock(value)
        elif key == "path":
            cells["file"] = name(os.path.basename(value))
        elif key == "shape":
            cells[key] = "x".join(map(str, value)) or "scalar"
        elif key in ("reason", "error"):
            cells[key] = escape(value)
        elif key not in ("host", "last_step", "torn"):
            cells[key] = _cell(value)
    return cells


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else ""
    return name(value) if isinstance(value, str) else value


def _leaf(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)
