"""`instrument compare A B`: the final and the best values of two runs, and the hyper-parameters that differ."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from instrument.errors import NoSuchRun
from instrument.read.run import Run, read
from instrument.show import compare, forms
from instrument.show.describe import Row
from instrument.show.formats import matching, no_match
from instrument.show.runs import tell_losses, tell_replaced
from instrument.show.tables import Cell, escape, name, number, table

_FACTS = ("final", "best", "best_step")
_CSV = ("what", "name", "writer", "a", "b")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the directory of a run, or one of its event files")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument("--tag", metavar="GLOB", default="*", help="only tags that match, as in 'eval/*'")
    forms.add_forms(parser, "the comparison")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    a, b = read(arguments.a), read(arguments.b)
    scalars = compare.scalars(a, b, lambda tags: matching(tags, arguments.tag))
    if not scalars and arguments.tag != "*":
        raise NoSuchRun(no_match(a, arguments.tag, a.tags().get("scalar", [])))
    differences = compare.hyper_parameters(a, b)
    if arguments.json:
        runs = {key: {"name": one.name, "path": one.path} for key, one in (("a", a), ("b", b))}
        forms.print_json({**runs, "scalars": scalars, "hyper_parameters": differences})
    elif arguments.csv:
        forms.print_csv(_CSV, _csv(scalars, differences))
    else:
        print("\n\n".join(_texts(a, b, scalars, differences)))
    for one in (a, b):
        tell_replaced(one, matching(one.tags().get("scalar", []), arguments.tag))
        tell_losses(one)
    return 0


def _csv(scalars: list[Row], differences: list[Row]) -> Iterator[tuple[Any, ...]]:
    for row in scalars:
        for fact in _FACTS:
            what = row["best_is"] if fact == "best" else fact.replace("best", row["best_is"])
            yield what, row["tag"], row["writer"], *((row[key] or {}).get(fact) for key in "ab")
    for row in differences:
        yield "hyper_parameter", row["name"], None, row["a"], row["b"]


def _texts(a: Run, b: Run, scalars: list[Row], differences: list[Row]) -> Iterator[str]:
    yield f"A: {escape(a.path)}\nB: {escape(b.path)}"
    if scalars:
        has_writers = any(row["writer"] for row in scalars)
        heads = ["TAG", *(["WRITER"] if has_writers else []), "FINAL A", "FINAL B", "B - A", "BEST IS"]
        heads += ["BEST A", "AT STEP", "BEST B", "AT STEP"]
        yield table(heads, [list(_row(row, has_writers)) for row in scalars])
    else:
        yield "Neither has scalars."
    if differences:
        rows = [(name(row["name"]), _value(row["a"]), _value(row["b"])) for row in differences]
        yield table(("HYPER-PARAMETER", "A", "B"), rows)
    elif a.lineage and b.lineage:
        yield "No hyper-parameter differs."
    else:
        without = " and ".join(key for key, one in (("A", a), ("B", b)) if not one.lineage)
        yield f"No hyper-parameters to compare: no lineage in {without}."


def _row(row: Row, has_writers: bool) -> Iterator[Cell]:
    yield name(row["tag"])
    if has_writers:
        yield name(row["writer"] or "")
    one, other = ({} if row[key] is None else row[key] for key in "ab")
    yield from (one.get("final"), other.get("final"))
    yield other["final"] - one["final"] if one and other else None
    yield row["best_is"]
    yield from (values.get(key) for values in (one, other) for key in ("best", "best_step"))


def _value(value: Any) -> str:
    return number(value) if value is None or isinstance(value, float) else name(str(value))
