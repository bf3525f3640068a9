"""Runs side by side: of each tag the last and the best value of each run, and the hyper-parameters that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from instrument.runs.ordering import natural
from instrument.runs.run import Run
from instrument.show import directions
from instrument.show.describe import Row, flat, summary

#: What a training lineage tells of results, not of how it was set up: beginnings and ends of names.
_RESULTS = ("train.algorithm.loss", "train.model.")
_RESULT_ENDS = (".last_learning_rate",)
_SETUP = ("train", "dataset", "custom")
_SUMMARY = (
    "points", "last", "last_step", "nan_count", "positive_infinity_count", "negative_infinity_count",
    "first_nonfinite_step",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """What a comparison needs of one run: rows for its series, and how it was set up."""

    run: str
    path: str
    scalars: Sequence[Row]
    setup: Row

    @property
    def head(self) -> Row:
        return {"run": self.run, "path": self.path}


def side(name: str, run: Run, wanted: Callable[[Iterable[str]], list[str]], direction: Callable[[str], str]) -> Side:
    """Read one run: a row for each tag that is wanted, and for each writer where the run has several."""
    rows = []
    for tag in wanted(run.tags().get("scalar", [])):
        for points in run.scalars(tag).by_writer().values():
            facts = summary(points)
            row: Row = {"tag": tag, "run": name, "path": run.path, "device": facts["device"], "host": facts["host"]}
            row |= directions.best(points, direction(tag)) | {key: facts[key] for key in _SUMMARY}
            rows.append(row)
    return Side(name, run.path, rows, _setup(run))


def scalars(sides: Sequence[Side], sort: str = "best", descending: bool = False) -> list[Row]:
    """Return the rows of all runs, tag by tag; within a tag in the order of a field, `best` with the best first."""
    by_tag: dict[str, list[Row]] = {}
    for one in sides:
        for row in one.scalars:
            by_tag.setdefault(row["tag"], []).append(row)
    return [row for tag in sorted(by_tag, key=natural) for row in directions.sorted_rows(by_tag[tag], sort, descending)]


def hyper_parameters(sides: Sequence[Side]) -> list[Row]:
    """Return what differs in how runs were set up, as their lineage tells: a row for each name and run."""
    names = list(dict.fromkeys(name for one in sides for name in one.setup))
    return [
        {**one.head, "name": name, "value": one.setup.get(name)}
        for name in names
        if _differs([one.setup.get(name) for one in sides])
        for one in sides
    ]


def _differs(values: Sequence[Any]) -> bool:
    first = values[0]
    return any(not (other is first or other == first or (other != other and first != first)) for other in values[1:])


def _setup(run: Run) -> Row:
    known = {key: run.lineage[key] for key in _SETUP if key in run.lineage}
    return {
        name: value for name, value in flat(known) if not name.startswith(_RESULTS) and not name.endswith(_RESULT_ENDS)
    }
