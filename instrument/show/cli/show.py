"""`instrument show RUN...`: print what runs recorded, as tables, JSON or CSV."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from instrument.analyse.layout import BOLD, Cell, escape, name, number
from instrument.errors import NoSuchRun
from instrument.facts.describe import leaves, nonfinite_text, notable_state, overview, series_of
from instrument.facts.rows import VALUE_FIELDS, NumberSummary, Overview, Row, RunPoints
from instrument.runs.points import called, clock
from instrument.runs.run import Run
from instrument.show.cli import options
from instrument.show.cli.follow import FOLLOW, follow
from instrument.show.cli.output import put
from instrument.show.terminal import paint, prose, table
from instrument.wording import ranges

ARGUMENTS = (
    options.RUNS,
    *options.tags("show every point of the tags that match, as in 'loss/*'"),
    options.argument("--rank", metavar="N", type=int, help="only what this rank of a training recorded"),
    options.flag("--superseded", "with --tag: also points that a restart replaced"),
    *FOLLOW,
    options.printed("all of it"),
)
EXAMPLES = (
    ("show runs/adam", "tags, files, hyper-parameters"),
    ("show runs/adam --tag loss/auto", "every point of a tag"),
)
#: Columns that are left out if they say nothing: all zero, all empty, or one writer only.
_OPTIONAL = (
    "writer", "superseded", "superseded_points", "not finite", "nan_count", "positive_infinity_count",
    "negative_infinity_count", "mapping",
)  # fmt: skip
_HEADS = {
    "nan_count": "NAN", "positive_infinity_count": "INFINITY", "negative_infinity_count": "-INFINITY",
    "superseded_points": "SUPERSEDED",
}  # fmt: skip
#: Fields of a row that other columns show.
_ELSEWHERE = ("host", "last_step", "torn", "min_step", "max_step", "first_nonfinite_step")
_POINT = ("run", "path", "kind", "tag", "device", "host", "step", "wall_time")

#: All points of some tags of a run, or all of it but the points.
Report = Overview | RunPoints


def run(arguments: argparse.Namespace) -> int:
    if arguments.superseded and not arguments.tag:
        arguments.wrong_call("--superseded is for the points of tags; give --tag too")
    if arguments.follow:
        return follow(arguments, "", (*_POINT, *VALUE_FIELDS), lambda runs: _now(arguments, runs))
    runs = options.OpenedRuns(arguments.runs)
    reports = runs.results(lambda run_name, opened: _report(arguments, run_name, opened))
    put(arguments, reports, _texts(reports), _tables(reports) if arguments.csv else ())
    return runs.status


def _report(arguments: argparse.Namespace, run_name: str, run: Run) -> Report:
    """Return what is shown of a run; raise `NoSuchRun` if it has no such tag or rank."""
    wanted = options.chosen_tags(arguments)
    if arguments.rank is not None:
        run = run.of_rank(arguments.rank)
    if not arguments.tag:
        return overview(run, run_name, wanted)
    report = series_of(run, run_name, wanted, arguments.superseded)
    if not report["series"]:
        raise NoSuchRun(wanted.no_match(run))
    return report


def _now(arguments: argparse.Namespace, runs: list[tuple[str, Run]]) -> str:
    """Return the text of runs that are followed, as they are now."""
    return "\n\n".join(_texts([_report(arguments, run_name, run) for run_name, run in runs]))


def _tables(reports: Iterable[Report]) -> dict[str, list[Row]]:
    """Return the rows of all runs by their sort; each row names its run."""
    tables: dict[str, list[Row]] = {}
    for report in reports:
        rows: dict[str, Iterable[Row]]
        if "series" in report:
            rows = {
                "values": [
                    {
                        "kind": series["kind"],
                        "tag": series["tag"],
                        "superseded_points": series["superseded_points"],
                        **point,
                    }
                    for series in report["series"]
                    for point in series["values"]
                ]
            }
        else:
            rows = {
                "runs": [{"ranks": report["ranks"], "state": report["state"], "has_profile": report["has_profile"]}],
                "files": report["files"],
                "tags": [{"kind": kind, **row} for kind, some in report["tags"].items() for row in some],
                "lineage": [{"name": key, "value": value} for key, value in leaves(report["lineage"]) if key],
            }
        for sort, some in (*rows.items(), ("gaps", report["gaps"]), ("damage", report["damage"])):
            named = ({"run": report["run"], "path": report["path"], **row} for row in some)
            tables.setdefault(sort, []).extend(named)
    return tables


# ---------------------------------------------------------------- text


def _texts(reports: Iterable[Report]) -> Iterator[str]:
    for report in reports:
        yield from _points(report) if "series" in report else _overview(report)
        for title, rows in (("gaps", report["gaps"]), ("damage", report["damage"])):
            if rows:
                yield _section(title, rows)


def _overview(report: Overview) -> Iterator[str]:
    ranks = f", ranks {ranges(report['ranks'])}" if len(report["ranks"]) > 1 else ""
    state = notable_state(report["state"])
    yield prose(f"{name(report['run'])} in {escape(report['path'])}{ranks}{', ' * bool(state)}{state}", "  ")
    yield _section("files", report["files"])
    if report["has_profile"]:
        yield prose(f"A profile is there, too: instrument profile {shlex.quote(escape(report['path']))}", "  ")
    for kind, rows in report["tags"].items():
        yield _section(kind, rows)
    if report["lineage"]:
        yield _section("", [{"lineage": key, "value": _leaf(value)} for key, value in leaves(report["lineage"])])


def _points(report: RunPoints) -> Iterator[str]:
    for series in report["series"]:
        yield prose(f"{name(series['tag'])} of {name(report['run'])} in {escape(report['path'])}", "  ")
        yield _section(series["kind"], series["values"])
        if series["superseded_points"]:
            count = series["superseded_points"]
            yield prose(f"superseded points that are not shown (--superseded shows them): {count}", "  ")


def _section(title: str, rows: Iterable[Row]) -> str:
    cells = [_cells(row) for row in rows]
    keys = list(dict.fromkeys(key for row in cells for key in row))
    keys = [key for key in keys if key not in _OPTIONAL or _says_something(key, [row.get(key) for row in cells])]
    heads = [_HEADS.get(key, key.replace("_", " ").upper()) for key in keys]
    body = table(heads, [[row.get(key) for key in keys] for row in cells])
    return f"{paint(title, BOLD)}\n{body}" if title else body


def _says_something(key: str, cells: list[Cell]) -> bool:
    return len(set(cells)) > 1 if key == "writer" else any(cells)


def _cells(row: Mapping[str, Any]) -> dict[str, Cell]:
    """Return the cells of a row: two steps in one cell, device and host in one, times as local time."""
    if "first_nonfinite_step" in row:
        counts = ("nan_count", "positive_infinity_count", "negative_infinity_count")
        text = nonfinite_text(cast(NumberSummary, row))
        row = {key: value for key, value in row.items() if key not in counts} | {"not finite": text}
    cells: dict[str, Cell] = {}
    for key, value in row.items():
        if key == "first_step":
            cells["steps"] = f"{value}..{row['last_step']}"
        elif key == "device":
            cells["writer"] = name(called((value, row["host"])))
        elif key in ("wall_time", "last_wall_time"):
            cells[key.replace("wall_", "")] = clock(value)
        elif key == "file":
            cells[key] = name(os.path.basename(value))
        elif key == "shape":
            cells[key] = "x".join(map(str, value)) or "scalar"
        elif key in ("reason", "error"):
            cells[key] = escape(value)
        elif key not in _ELSEWHERE:
            cells[key] = _cell(value)
    return cells


def _cell(value: Cell) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else ""
    return name(value) if isinstance(value, str) else value


def _leaf(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
