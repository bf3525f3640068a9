"""`instrument compare RUN...`: print the best and the last values of runs, and the hyper-parameters that differ."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from instrument.analyse.layout import Cell, Column, escape, name, number
from instrument.errors import NoSuchRun
from instrument.facts.compare import Side, hyper_parameters, read_side, scalars
from instrument.facts.describe import nonfinite_text
from instrument.facts.rows import Compared, Row, Setting
from instrument.runs.points import called
from instrument.show.cli import options
from instrument.show.cli.output import put
from instrument.show.terminal import prose, table

_SORTABLE = ("run", "best", "best_step", "last", "last_step", "points")
_ORDER = f"the runs of each tag in the order of this field (default: best, the best first): {', '.join(_SORTABLE)}"
ARGUMENTS = (
    options.RUNS,
    *options.tags(),
    options.argument("--sort", metavar="FIELD", choices=_SORTABLE, default="best", help=_ORDER),
    options.flag("--descending", "the other way round"),
    *options.DIRECTIONS,
    options.printed("the comparison"),
)
EXAMPLES = (
    ("compare runs --tag 'eval/*'", "which run was best, and at which step"),
    ("compare runs/adam runs/momentum --sort last", "two of them, by their last values"),
    ("compare runs --max 'reward*'", "where the name does not say which value is best"),
)


def run(arguments: argparse.Namespace) -> int:
    runs = options.OpenedRuns(arguments.runs)
    wanted, direction = options.chosen_tags(arguments), options.chosen_directions(arguments)
    sides, names = list[Side](), list[str]()
    for run_name, opened in runs:
        sides.append(read_side(run_name, opened, wanted, direction))
        names += opened.tags().get("scalar", [])
        options.tell_replaced(opened, wanted(opened.tags().get("scalar", [])))
    rows = scalars(sides, arguments.sort, arguments.descending)
    if not rows and not wanted.takes_all:
        raise NoSuchRun(wanted.no_match(opened, names))
    differences = hyper_parameters(sides)
    heads = [{"run": side.run, "path": side.path} for side in sides]
    tables: dict[str, Sequence[Row]] = {"runs": heads, "scalars": rows, "hyper_parameters": differences}
    put(arguments, tables, _texts(sides, rows, differences), tables)
    return runs.status


def _texts(sides: Sequence[Side], rows: Sequence[Compared], differences: Sequence[Setting]) -> Iterator[str]:
    yield "\n".join(prose(f"{name(side.run)}: {escape(side.path)}", "  ") for side in sides)
    if rows:
        has_writers = len({(row["tag"], row["run"]) for row in rows}) < len(rows)
        has_gaps = any(nonfinite_text(row) for row in rows)
        heads: list[str | Column] = ["TAG", Column("BEST IS", 5), "RUN", *(["WRITER"] if has_writers else [])]
        heads += [Column("BEST", 0), Column("AT STEP", 1), Column("LAST", 3), Column("AT STEP", 6)]
        heads += [Column("NOT FINITE", 2)] if has_gaps else []
        yield table(heads, [list(_cells(row, has_writers, has_gaps)) for row in rows])
    else:
        yield "None of them has scalars."
    if differences:
        names = dict.fromkeys(row["name"] for row in differences)
        values = {(row["name"], row["path"]): row["value"] for row in differences}
        lines = [[name(key), *(_value(values[key, side.path]) for side in sides)] for key in names]
        yield table(["HYPER-PARAMETER", *(name(side.run) for side in sides)], lines)
    without = [side.run for side in sides if not side.setup]
    if without:
        yield prose(f"No hyper-parameters to compare: no lineage in {', '.join(map(name, without))}.")
    elif not differences and len(sides) > 1:
        yield "No hyper-parameter differs."


def _cells(row: Compared, has_writers: bool, has_gaps: bool) -> Iterator[Cell]:
    yield from (name(row["tag"]), row["direction"], name(row["run"]))
    if has_writers:
        yield name(called((row["device"], row["host"])))
    yield from (row["best"], row["best_step"], row["last"], row["last_step"])
    if has_gaps:
        yield nonfinite_text(row)


def _value(value: object) -> str:
    return number(value) if value is None or isinstance(value, float) else name(str(value))
