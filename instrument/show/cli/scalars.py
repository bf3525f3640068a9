"""`instrument scalars RUN...`: print the numbers of runs, a row with a curve for each series, or every point."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

from instrument.analyse.layout import Cell, escape, name
from instrument.errors import NoSuchRun
from instrument.facts.compare import best, sorted_rows
from instrument.facts.describe import nonfinite_text, number_summary
from instrument.runs.points import Scalars, called, clock
from instrument.runs.run import Run
from instrument.show import charts
from instrument.show.cli import options
from instrument.show.cli.follow import FOLLOW, follow
from instrument.show.cli.output import print_csv, print_json
from instrument.show.terminal import prose, screen, table, tell

T = TypeVar("T")

_COLUMNS = ("run", "path", "tag", "device", "host", "step", "wall_time", "value")
_SORTABLE = (
    "run", "tag", "points", "first_step", "last_step", "last_wall_time", "first", "last", "min", "min_step", "max",
    "max_step", "best", "best_step", "nan_count", "first_nonfinite_step",
)  # fmt: skip
_ORDER = f"the series in the order of this field, with `best` the best first: {', '.join(_SORTABLE)}"
ARGUMENTS = (
    options.RUNS,
    *options.tags(),
    options.argument("--last", metavar="N", type=int, help="also the last N points of each series"),
    options.argument("--sort", metavar="FIELD", choices=_SORTABLE, help=_ORDER),
    options.DESCENDING,
    *options.DIRECTIONS,
    *FOLLOW,
    options.printed("every point, or the last N,"),
)
EXAMPLES = (
    ("scalars runs --tag 'loss/*'", "the losses of all runs, with curves"),
    ("scalars runs/adam --last 5", "and their last 5 points"),
    ("scalars runs/adam --follow", "as the training goes on"),
    ("scalars runs/adam --csv > adam.csv", "every point, for programs"),
)
#: On a terminal that is less than wide, curves are narrow.
_WIDE, _NARROW_CURVE = 100, 12
#: Fields that the column of steps shows.
_IN_STEPS = ("first_step", "last_step")


@dataclass
class _Series:
    """The numbers that one writer recorded under one tag; `columns` has the `last` of them, if that is a number."""

    name: str
    run: Run
    points: Scalars
    direction: str
    last: int | None

    def columns(self) -> dict[str, list[float]]:
        part = slice(None) if self.last is None else slice(-self.last, None)
        points = self.points
        columns = {"step": points.step, "wall_time": points.wall_time, "value": points.value}
        return {name: column[part].tolist() for name, column in columns.items()}

    def row(self) -> dict[str, object]:
        """Return all but the points, and but the number of superseded ones, which is reported for the whole run."""
        facts = {**number_summary(self.points), **best(self.points, self.direction)}
        del facts["superseded_points"]
        return {"run": self.name, "path": self.run.path, **facts}


def run(arguments: argparse.Namespace) -> int:
    if arguments.last is not None and arguments.last < 1:
        arguments.wrong_call(f"--last is {arguments.last}; it is a number of points from 1 on")
    if arguments.descending and arguments.sort is None:
        arguments.wrong_call("--descending is for --sort; give it too")
    if arguments.follow:
        return follow(arguments, "scalar", _COLUMNS, lambda runs: "\n\n".join(_texts(arguments, runs)))
    runs = options.OpenedRuns(arguments.runs)
    series = _told(arguments, runs)
    first = next(series, None)
    if first is None:
        return 1
    chained = itertools.chain([first], series)
    if arguments.csv and arguments.sort is None:
        print_csv(_COLUMNS, (row for entry in chained for row in _points(entry)))
    elif arguments.csv:
        points = _sorted(arguments, ((entry, list(_points(entry))) for entry in chained))
        print_csv(_COLUMNS, (row for rows in points for row in rows))
    elif arguments.json:
        print_json(_sorted(arguments, ((entry, entry.row() | {"values": entry.columns()}) for entry in chained)))
    else:
        print("\n\n".join(_texts_of(arguments, chained)))
    return runs.status


def _told(arguments: argparse.Namespace, runs: options.OpenedRuns) -> Iterator[_Series]:
    """Iterate over the series of all runs; a run without one is reported on stderr."""
    wanted = options.chosen_tags(arguments)
    for run_name, opened in runs:
        names = opened.tags().get("scalar", [])
        if not names:
            tell(f"{opened.path}: no scalars")
        elif not wanted(names):
            tell(str(NoSuchRun(wanted.no_match(opened, names))))
        yield from _series(arguments, run_name, opened)
        options.tell_replaced(opened, wanted(names))


def _series(arguments: argparse.Namespace, run_name: str, run: Run) -> Iterator[_Series]:
    wanted, direction = options.chosen_tags(arguments), options.chosen_directions(arguments)
    for tag in wanted(run.tags().get("scalar", [])):
        for points in run.scalars(tag).by_writer().values():
            yield _Series(run_name, run, points, direction(tag), arguments.last)


def _points(series: _Series) -> Iterator[tuple[object, ...]]:
    head = (series.name, series.run.path, series.points.tag, *series.points.writers[0])
    return ((*head, *point) for point in zip(*series.columns().values(), strict=True))


def _sorted(arguments: argparse.Namespace, made: Iterable[tuple[_Series, T]]) -> list[T]:
    """Return what was made of each series in the order of the options; no series is kept, as its run may be large."""
    if arguments.sort is None:
        return [result for _, result in made]
    results, rows = list[T](), list[dict[str, object]]()
    for place, (series, result) in enumerate(made):
        rows.append(series.row() | {"place": place})
        results.append(result)
    return [results[cast(int, row["place"])] for row in sorted_rows(rows, arguments.sort, arguments.descending)]


# ---------------------------------------------------------------- text


def _texts(arguments: argparse.Namespace, runs: list[tuple[str, Run]]) -> Iterator[str]:
    """Yield the texts of runs that are followed, as they are now."""
    series = [entry for run_name, run in runs for entry in _series(arguments, run_name, run)]
    if series:
        yield from _texts_of(arguments, series)


def _texts_of(arguments: argparse.Namespace, series: Iterable[_Series]) -> Iterator[str]:
    """Yield one table without columns that say nothing (the only run, the only writer, no NaN), then points.

    The curves of a tag have one scale, so that those of several runs can be compared.
    """
    shown = _sorted(arguments, ((entry, _shown(entry, arguments.sort)) for entry in series))
    by_tag: dict[Cell, list[charts.Reduced]] = {}
    for row in shown:
        by_tag.setdefault(row.cells["tag"], []).append(row.curve)
    scales = {tag: charts.common_scale(curves) for tag, curves in by_tag.items()}
    marks = charts.marks(getattr(sys.stdout, "encoding", None))
    rows = [row.cells | {"curve": row.curve.text(marks, scales[row.cells["tag"]])} for row in shown]
    keys = [key for key in rows[0] if _tells(key, [row[key] for row in rows])]
    yield table([key.upper().replace("_", " ") for key in keys], [[row[key] for key in keys] for row in rows])
    yield from (row.last_points for row in shown if row.last_points)


@dataclass
class _Shown:
    """The printed row of a series, and its last points as a table."""

    cells: dict[str, Cell]
    curve: charts.Reduced
    last_points: str


def _shown(series: _Series, sort: str | None) -> _Shown:
    facts = number_summary(series.points)
    cells: dict[str, Cell] = {
        "run": name(series.name),
        "tag": name(facts["tag"]),
        "writer": name(called(series.points.writers[0])),
        "curve": "",  # drawn when the scale of all that are shown is known
        "last": facts["last"],
        "min": facts["min"],
        "max": facts["max"],
        "not finite": nonfinite_text(facts),
        "points": facts["points"],
        "steps": f"{facts['first_step']}..{facts['last_step']}",
    }
    if sort is not None and sort not in (*cells, *_IN_STEPS):
        row = cast(dict[str, Cell], series.row())
        cells |= {key: row[key] for key in (("best", "best_step") if sort.startswith("best") else (sort,))}
    width = _NARROW_CURVE if (screen().width or _WIDE) < _WIDE else charts.WIDTH
    return _Shown(
        cells, charts.reduced(series.points.value, width), "" if series.last is None else _last_points(series)
    )


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
