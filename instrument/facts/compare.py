"""Compare runs: the best and the last value of each tag and run, and the hyper-parameters that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from instrument.facts import directions
from instrument.facts.describe import Row, leaves, summary
from instrument.runs.ordering import natural
from instrument.runs.run import Run

#: Names of a training lineage, by how they begin and end, that are results and no set-up.
_RESULTS = ("train.algorithm.loss", "train.model.")
_RESULT_ENDS = (".last_learning_rate",)
_SETUP = ("train", "dataset", "custom", "ran")
_SUMMARY = (
    "points", "last", "last_step", "nan_count", "positive_infinity_count", "negative_infinity_count",
    "first_nonfinite_step",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One run of a comparison: rows for its series, and the leaves of its lineage that set it up."""

    run: str
    path: str
    scalars: Sequence[Row]
    setup: Row

    @property
    def head(self) -> Row:
        return {"run": self.run, "path": self.path}


def read_side(
    name: str, run: Run, wanted: Callable[[Iterable[str]], list[str]], direction: Callable[[str], str]
) -> Side:
    """Read one run: a row for each tag that `wanted` chooses, and for each writer of it."""
    rows = []
    for tag in wanted(run.tags().get("scalar", [])):
        for points in run.scalars(tag).by_writer().values():
            facts = summary(points)
            row: Row = {"tag": tag, "run": name, "path": run.path, "device": facts["device"], "host": facts["host"]}
            row |= directions.best(points, direction(tag)) | {key: facts[key] for key in _SUMMARY}
            rows.append(row)
    return Side(name, run.path, rows, _setup(run))


def scalars(sides: Sequence[Side], sort: str = "best", descending: bool = False) -> list[Row]:
    """Return the rows of all runs tag by tag, within a tag in the order of the field `sort`; "best" is best first."""
    by_tag: dict[str, list[Row]] = {}
    for side in sides:
        for row in side.scalars:
            by_tag.setdefault(row["tag"], []).append(row)
    return [row for tag in sorted(by_tag, key=natural) for row in directions.sorted_rows(by_tag[tag], sort, descending)]


def hyper_parameters(sides: Sequence[Side]) -> list[Row]:
    """Return the set-up in which runs differ, by their lineage: a row for each name and run."""
    names = list(dict.fromkeys(name for side in sides for name in side.setup))
    return [
        {**side.head, "name": name, "value": side.setup.get(name)}
        for name in names
        if _differs([side.setup.get(name) for side in sides])
        for side in sides
    ]


def _differs(values: Sequence[Any]) -> bool:
    first = values[0]
    return any(not (other is first or other == first or (other != other and first != first)) for other in values[1:])


def _setup(run: Run) -> Row:
    lineage = {key: run.lineage[key] for key in _SETUP if key in run.lineage}
    return {
        name: value
        for name, value in leaves(lineage)
        if not name.startswith(_RESULTS) and not name.endswith(_RESULT_ENDS)
    }
