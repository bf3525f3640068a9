"""`instrument show RUN`: what a run recorded, as tables or as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from instrument.read.points import clock
from instrument.read.run import read
from instrument.show import describe
from instrument.show.tables import Cell, escape, name, number, table

#: Columns that are left out where they say nothing: all zero, all empty, or one writer only.
_OPTIONAL = ("writer", "superseded", "nan", "positive_infinity", "negative_infinity", "mapping")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the directory of a run, or one of its event files")
    parser.add_argument("--tag", help="show every point of this tag")
    parser.add_argument("--superseded", action="store_true", help="with --tag: also points that a restart replaced")
    parser.add_argument("--json", action="store_true", help="print JSON; NaN and the infinities are texts in it")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.superseded and arguments.tag is None:
        print("instrument show: --superseded is for the points of one tag; give --tag too", file=sys.stderr)
        return 2
    opened = read(arguments.run)
    if arguments.tag is None:
        report = describe.overview(opened)
    else:
        report = describe.points_of(opened, arguments.tag, arguments.superseded)
    if arguments.json:
        print(json.dumps(describe.plain(report), indent=2, allow_nan=False))
    else:
        print("\n\n".join(_overview(report) if arguments.tag is None else _points(report)))
    return 0


def _overview(report: describe.Row) -> Iterator[str]:
    yield f"{name(report['name'])} in {escape(report['path'])}"
    yield _section("files", report["files"])
    for kind, rows in report["tags"].items():
        yield _section(kind, rows)
    if report["lineage"]:
        rows = [{"lineage": key, "value": value} for key, value in _flat(report["lineage"], "")]
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
            cells["writer"] = name(f"{value} on {row['host']}")
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


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The leaves of nested dictionaries and lists with the way to each."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{index}]")
    else:
        yield path, number(value) if isinstance(value, float) else str(value)
