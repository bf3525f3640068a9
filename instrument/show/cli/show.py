"""`instrument show RUN...`: what runs recorded, as tables, JSON or CSV."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from typing import Any

from instrument.errors import NoSuchRun
from instrument.facts import describe
from instrument.runs.points import called, clock
from instrument.runs.run import Run
from instrument.show import follow, options, output
from instrument.show.opened_runs import PATHS, OpenedRuns, tell_or_raise
from instrument.show.tables import BOLD, Cell, escape, name, number, paint, prose, table
from instrument.wording import ranges

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


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help=PATHS)
    options.add_tag_options(parser, "show every point of the tags that match, as in 'loss/*'")
    parser.add_argument("--rank", metavar="N", type=int, help="only what this rank of a training recorded")
    parser.add_argument("--superseded", action="store_true", help="with --tag: also points that a restart replaced")
    follow.add_follow_option(parser)
    output.add_output_options(parser, "all of it")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.superseded and not arguments.tag:
        arguments.wrong_call("--superseded is for the points of tags; give --tag too")
    if arguments.follow:
        return follow.follow(arguments, "", (*_POINT, *describe.VALUE_FIELDS), lambda runs: _now(arguments, runs))
    runs = OpenedRuns(arguments.runs)
    reports, lacking = [], []
    for run_name, opened in runs.quietly():  # the reports have what is missing
        try:
            reports.append(_report(arguments, run_name, opened))
        except NoSuchRun as error:
            lacking.append(error)
    status = tell_or_raise(lacking, bool(reports))
    if arguments.json:
        output.print_json(reports)
    elif arguments.csv:
        output.print_tables(_tables(reports))
    else:
        print("\n\n".join(text for report in reports for text in _texts(arguments, report)))
    return runs.status or status


def _report(arguments: argparse.Namespace, run_name: str, run: Run) -> describe.Row:
    """Return what is shown of a run; raise `NoSuchRun` if it has no such tag or rank."""
    wanted = options.chosen_tags(arguments)
    if arguments.rank is not None:
        run = run.of_rank(arguments.rank)
    if not arguments.tag:
        return describe.overview(run, run_name, wanted)
    report = describe.series_of(run, run_name, wanted, arguments.superseded)
    if not report["series"]:
        raise NoSuchRun(wanted.no_match(run, [tag for names in run.tags().values() for tag in names]))
    return report


def _now(arguments: argparse.Namespace, runs: list[tuple[str, Run]]) -> str:
    """Return the text of runs that are followed, as they are now."""
    reports = [_report(arguments, run_name, run) for run_name, run in runs]
    return "\n\n".join(text for report in reports for text in _texts(arguments, report))


def _tables(reports: list[describe.Row]) -> dict[str, list[describe.Row]]:
    """Return the rows of all runs by their sort; each row names its run."""
    tables: dict[str, list[describe.Row]] = {}
    for report in reports:
        run = {"run": report["run"], "path": report["path"]}
        if "series" in report:
            rows = {"values": [_point(series, row) for series in report["series"] for row in series["values"]]}
        else:
            rows = {
                "runs": [{"ranks": report["ranks"], "state": report["state"], "has_profile": report["has_profile"]}]
            }
            rows |= {"files": report["files"]}
            rows |= {"tags": [{"kind": kind, **row} for kind, rows in report["tags"].items() for row in rows]}
            rows |= {
                "lineage": [{"name": key, "value": value} for key, value in describe.leaves(report["lineage"]) if key]
            }
        rows |= {"gaps": report["gaps"], "damage": report["damage"]}
        for sort, some in rows.items():
            tables.setdefault(sort, []).extend({**run, **row} for row in some)
    return tables


def _point(series: describe.Row, row: describe.Row) -> describe.Row:
    return {key: series[key] for key in ("kind", "tag", "superseded_points")} | row


# ---------------------------------------------------------------- text


def _texts(arguments: argparse.Namespace, report: describe.Row) -> Iterator[str]:
    yield from _points(report) if arguments.tag else _overview(report)
    for title in ("gaps", "damage"):
        if report[title]:
            yield _section(title, report[title])


def _overview(report: describe.Row) -> Iterator[str]:
    ranks = f", ranks {ranges(report['ranks'])}" if len(report["ranks"]) > 1 else ""
    state = describe.notable_state(report["state"])
    yield prose(f"{name(report['run'])} in {escape(report['path'])}{ranks}{', ' * bool(state)}{state}", "  ")
    yield _section("files", report["files"])
    if report["has_profile"]:
        yield prose(f"A profile is there, too: instrument profile {shlex.quote(escape(report['path']))}", "  ")
    for kind, rows in report["tags"].items():
        yield _section(kind, rows)
    if report["lineage"]:
        rows = [{"lineage": key, "value": _leaf(value)} for key, value in describe.leaves(report["lineage"])]
        yield _section("", rows)


def _points(report: describe.Row) -> Iterator[str]:
    for series in report["series"]:
        yield prose(f"{name(series['tag'])} of {name(report['run'])} in {escape(report['path'])}", "  ")
        yield _section(series["kind"], series["values"])
        if series["superseded_points"]:
            count = series["superseded_points"]
            yield prose(f"superseded points that are not shown (--superseded shows them): {count}", "  ")


def _section(title: str, rows: list[describe.Row]) -> str:
    cells = [_cells(row) for row in rows]
    keys = list(dict.fromkeys(key for row in cells for key in row))
    keys = [key for key in keys if key not in _OPTIONAL or _says_something(key, [row.get(key) for row in cells])]
    heads = [_HEADS.get(key, key.replace("_", " ").upper()) for key in keys]
    body = table(heads, [[row.get(key) for key in keys] for row in cells])
    return f"{paint(title, BOLD)}\n{body}" if title else body


def _says_something(key: str, cells: list[Cell]) -> bool:
    return len(set(cells)) > 1 if key == "writer" else any(cells)


def _cells(row: describe.Row) -> dict[str, Cell]:
    """Return the cells of a row: two steps in one cell, device and host in one, times as local time."""
    if "first_nonfinite_step" in row:
        counts = ("nan_count", "positive_infinity_count", "negative_infinity_count")
        row = {key: value for key, value in row.items() if key not in counts} | {
            "not finite": describe.nonfinite_text(row)
        }
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


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else ""
    return name(value) if isinstance(value, str) else value


def _leaf(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
