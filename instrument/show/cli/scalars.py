"""`instrument scalars RUN...`: the numbers of runs, a row with a curve for each series, or every point."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from instrument.errors import NoSuchRun
from instrument.read.points import Scalars, called, clock
from instrument.read.run import Run
from instrument.show import curve, describe, forms
from instrument.show.formats import matching, no_match
from instrument.show.runs import one_by_one, tell, tell_replaced
from instrument.show.tables import Cell, escape, name, table

_COLUMNS = ("run", "tag", "device", "host", "step", "wall_time", "value")


def configure(parser: argparse.ArgumentParser) -> None:
    runs = "the directory of a run or of several, or an event file"
    parser.add_argument("runs", metavar="RUN", nargs="+", help=runs)
    parser.add_argument("--tag", metavar="GLOB", default="*", help="only tags that match, as in 'loss/*'")
    parser.add_argument("--last", metavar="N", type=int, help="also the last N points of each series")
    forms.add_forms(parser, "every point, or the last N,")
    parser.set_defaults(command=run)


@dataclass
class _Series:
    """The numbers that one writer recorded under one tag; of its columns the last entries where so many were asked."""

    run: Run
    points: Scalars
    last: int | None

    def columns(self) -> dict[str, list[Any]]:
        part = slice(None) if self.last is None else slice(-self.last, None)
        points = self.points
        columns = {"step": points.step, "wall_time": points.wall_time, "value": points.value}
        return {name: column[part].tolist() for name, column in columns.items()}


def run(arguments: argparse.Namespace) -> int:
    if arguments.last is not None and arguments.last < 1:
        print(f"instrument scalars: --last is {arguments.last}; it is a number of points from 1 on", file=sys.stderr)
        return 2
    series = _series(arguments)
    first = next(series, None)
    if first is None:
        return 1
    if arguments.csv:
        forms.print_csv(_COLUMNS, (row for one in _chain(first, series) for row in _points(one)))
    elif arguments.json:
        forms.print_json([_json(one) for one in _chain(first, series)])
    else:
        print("\n\n".join(_texts([_shown(one) for one in _chain(first, series)])))
    return 0


def _chain(first: _Series, others: Iterator[_Series]) -> Iterator[_Series]:
    yield first
    yield from others


def _series(arguments: argparse.Namespace) -> Iterator[_Series]:
    """The series of all runs, one after the other; runs without one are told on stderr."""
    for found in one_by_one(arguments.runs):
        known = found.tags().get("scalar", [])
        tags = matching(known, arguments.tag)
        if not known:
            tell(f"{found.path}: no scalars")
        elif not tags:
            tell(str(NoSuchRun(no_match(found, arguments.tag, known))))
        for tag in tags:
            for points in found.scalars(tag).by_writer().values():
                yield _Series(found, points, arguments.last)
        tell_replaced(found, tags)


def _points(series: _Series) -> Iterator[tuple[Any, ...]]:
    head = (series.run.path, series.points.tag, *series.points.writers[0])
    return ((*head, *point) for point in zip(*series.columns().values(), strict=True))


def _json(series: _Series) -> describe.Row:
    row = {key: value for key, value in describe.summary(series.points).items() if key != "superseded"}
    return {"run": series.run.path, **row, "values": series.columns()}


# ---------------------------------------------------------------- text


@dataclass
class _Shown:
    """What is printed of a series, without its points."""

    cells: dict[str, Cell]
    last_points: str


def _shown(series: _Series) -> _Shown:
    row = describe.summary(series.points)
    marks = curve.marks(getattr(sys.stdout, "encoding", None))
    cells: dict[str, Cell] = {"run": name(series.run.path), "tag": name(row["tag"])}
    cells["writer"] = name(called(series.points.writers[0]))
    cells["curve"] = curve.text(series.points.value, marks)
    cells |= {key: row[key] for key in ("last", "min", "max", "nan", "points")}
    cells["steps"] = f"{row['first_step']}..{row['last_step']}"
    return _Shown(cells, "" if series.last is None else _last_points(series))


def _last_points(series: _Series) -> str:
    columns = series.columns()
    rows = [(step, clock(wall_time), value) for step, wall_time, value in zip(*columns.values(), strict=True)]
    count = f"the last {len(rows)} of {len(series.points)} points"
    head = f"{name(series.points.tag)} of {escape(series.run.path)}: {count}"
    return f"{head}\n{table(('STEP', 'TIME', 'VALUE'), rows)}"


def _texts(shown: list[_Shown]) -> Iterator[str]:
    """One table, without the columns that say nothing: the only run, the only writer, no NaN; then points."""
    rows = [one.cells for one in shown]
    keys = [key for key in rows[0] if key not in ("run", "writer", "nan") or _tells(key, [row[key] for row in rows])]
    yield table([key.upper() for key in keys], [[row[key] for key in keys] for row in rows])
    yield from (one.last_points for one in shown if one.last_points)


def _tells(key: str, cells: list[Cell]) -> bool:
    return any(cells) if key == "nan" else len(set(cells)) > 1
