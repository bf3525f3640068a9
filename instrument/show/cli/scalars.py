"""`instrument scalars RUN...`: print the numbers of runs, a row with a curve for each series, or every point."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from instrument.errors import NoSuchRun
from instrument.facts import describe, directions
from instrument.runs.points import Scalars, called, clock
from instrument.runs.run import Run
from instrument.show import follow, options, output, sparkline
from instrument.show.opened_runs import PATHS, OpenedRuns, tell, tell_replaced
from instrument.show.tables import Cell, escape, name, prose, table, width

_COLUMNS = ("run", "path", "tag", "device", "host", "step", "wall_time", "value")
_SORTABLE = (
    "run", "tag", "points", "first_step", "last_step", "last_wall_time", "first", "last", "min", "min_step", "max",
    "max_step", "best", "best_step", "nan_count", "first_nonfinite_step",
)  # fmt: skip
#: On a terminal that is less than wide, curves are narrow.
_WIDE, _NARROW_CURVE = 100, 12
#: Fields that the column of steps shows.
_IN_STEPS = ("first_step", "last_step")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help=PATHS)
    options.add_tag_options(parser)
    parser.add_argument("--last", metavar="N", type=int, help="also the last N points of each series")
    order = f"the series in the order of this field, with `best` the best first: {', '.join(_SORTABLE)}"
    parser.add_argument("--sort", metavar="FIELD", choices=_SORTABLE, help=order)
    parser.add_argument("--descending", action="store_true", help="with --sort: the other way round")
    options.add_direction_options(parser)
    follow.add_follow_option(parser)
    output.add_output_options(parser, "every point, or the last N,")
    parser.set_defaults(command=run)


@dataclass
class _Series:
    """The numbers that one writer recorded under one tag; `columns` has the `last` of them, if that is a number."""

    name: str
    run: Run
    points: Scalars
    direction: str
    last: int | None

    def columns(self) -> dict[str, list[Any]]:
        part = slice(None) if self.last is None else slice(-self.last, None)
        points = self.points
        columns = {"step": points.step, "wall_time": points.wall_time, "value": points.value}
        return {name: column[part].tolist() for name, column in columns.items()}

    def row(self) -> describe.Row:
        """Return all but the points."""
        row = {"run": self.name, "path": self.run.path, **describe.summary(self.points)}
        del row["superseded_points"]  # printed on stderr for the whole series
        return row | directions.best(self.points, self.direction)


def run(arguments: argparse.Namespace) -> int:
    if arguments.last is not None and arguments.last < 1:
        arguments.wrong_call(f"--last is {arguments.last}; it is a number of points from 1 on")
    if arguments.descending and arguments.sort is None:
        arguments.wrong_call("--descending is for --sort; give it too")
    if arguments.follow:
        return follow.follow(arguments, "scalar", _COLUMNS, lambda runs: "\n\n".join(_texts(arguments, runs)))
    runs = OpenedRuns(arguments.runs)
    series = _series(arguments, runs)
    first = next(series, None)
    if first is None:
        return 1
    chained = itertools.chain([first], series)
    if arguments.csv and arguments.sort is None:
        output.print_csv(_COLUMNS, (row for entry in chained for row in _points(entry)))
    elif arguments.csv:
        rows = _sorted(arguments, (entry.row() | {"points_of": list(_points(entry))} for entry in chained))
        output.print_csv(_COLUMNS, (point for row in rows for point in row["points_of"]))
    elif arguments.json:
        output.print_json(_sorted(arguments, (entry.row() | {"values": entry.columns()} for entry in chained)))
    else:
        print("\n\n".join(_texts_of(arguments, chained)))
    return runs.status


def _series(arguments: argparse.Namespace, runs: OpenedRuns) -> Iterator[_Series]:
    """Iterate over the series of all runs; a run without one is reported on stderr."""
    wanted, direction = options.chosen_tags(arguments), options.chosen_directions(arguments)
    for run_name, opened in runs:
        names = opened.tags().get("scalar", [])
        chosen = wanted(names)
        if not names:
            tell(f"{opened.path}: no scalars")
        elif not chosen:
            tell(str(NoSuchRun(wanted.no_match(opened, names))))
        yield from _series_of(arguments, run_name, opened, chosen, direction)
        tell_replaced(opened, chosen)


def _series_of(
    arguments: argparse.Namespace, run_name: str, run: Run, chosen: list[str], direction: directions.Directions
) -> Iterator[_Series]:
    for tag in chosen:
        for points in run.scalars(tag).by_writer().values():
            yield _Series(run_name, run, points, direction(tag), arguments.last)


def _points(series: _Series) -> Iterator[tuple[object, ...]]:
    head = (series.name, series.run.path, series.points.tag, *series.points.writers[0])
    return ((*head, *point) for point in zip(*series.columns().values(), strict=True))


def _sorted(arguments: argparse.Namespace, rows: Iterator[describe.Row]) -> list[describe.Row]:
    return list(rows) if arguments.sort is None else directions.sorted_rows(rows, arguments.sort, arguments.descending)


# ---------------------------------------------------------------- text


def _texts(arguments: argparse.Namespace, runs: list[tuple[str, Run]]) -> Iterator[str]:
    """Yield the texts of runs that are followed, as they are now."""
    wanted, direction = options.chosen_tags(arguments), options.chosen_directions(arguments)
    series = [
        one
        for run_name, run in runs
        for one in _series_of(arguments, run_name, run, wanted(run.tags().get("scalar", [])), direction)
    ]
    if series:
        yield from _texts_of(arguments, iter(series))


def _texts_of(arguments: argparse.Namespace, series: Iterator[_Series]) -> Iterator[str]:
    """Yield one table without columns that say nothing (the only run, the only writer, no NaN), then points.

    The curves of a tag have one scale, so that those of several runs can be compared.
    """
    ordered = _sorted(arguments, (one.row() | {"shown": _shown(one, arguments.sort)} for one in series))
    shown = [row["shown"] for row in ordered]
    by_tag: dict[Cell, list[sparkline.Reduced]] = {}
    for one in shown:
        by_tag.setdefault(one.cells["tag"], []).append(one.curve)
    scales = {tag: sparkline.common_scale(curves) for tag, curves in by_tag.items()}
    marks = sparkline.marks(getattr(sys.stdout, "encoding", None))
    rows = [one.cells | {"curve": one.curve.text(marks, scales[one.cells["tag"]])} for one in shown]
    keys = [key for key in rows[0] if _tells(key, [row[key] for row in rows])]
    yield table([key.upper().replace("_", " ") for key in keys], [[row[key] for key in keys] for row in rows])
    yield from (one.last_points for one in shown if one.last_points)


@dataclass
class _Shown:
    """The printed row of a series, and its last points as a table."""

    cells: dict[str, Cell]
    curve: sparkline.Reduced
    last_points: str


def _shown(series: _Series, sort: str | None) -> _Shown:
    row = series.row()
    cells: dict[str, Cell] = {"run": name(series.name), "tag": name(row["tag"])}
    cells["writer"] = name(called(series.points.writers[0]))
    cells["curve"] = ""  # drawn when the scale of all that are shown is known
    cells |= {key: row[key] for key in ("last", "min", "max")}
    cells |= {"not finite": describe.nonfinite_text(row), "points": row["points"]}
    cells["steps"] = f"{row['first_step']}..{row['last_step']}"
    if sort not in (*cells, *_IN_STEPS, None):
        cells |= {key: row[key] for key in (("best", "best_step") if str(sort).startswith("best") else (str(sort),))}
    drawn = sparkline.reduced(series.points.value, _NARROW_CURVE if (width() or _WIDE) < _WIDE else sparkline.WIDTH)
    return _Shown(cells, drawn, "" if series.last is None else _last_points(series))


def _last_points(series: _Series) -> str:
    columns = series.columns()
    rows = [(step, clock(wall_time), value) for step, wall_time, value in zip(*columns.values(), strict=True)]
    count = f"the last {len(rows)} of {len(series.points)} points"
    head = f"{name(series.points.tag)} of {escape(series.name)}: {count}"
    return f"{prose(head)}\n{table(('STEP', 'TIME', 'VALUE'), rows)}"


def _tells(key: str, cells: list[Cell]) -> bool:
    if key == "not finite":
        return any(cells)
    return len(set(cells)) > 1 if key in ("run", "writer") else True
