"""Compare runs: the best and the last value of each tag and run, and the hyper-parameters that differ.

Patterns decide which value of a tag is its best one, the least or the greatest; if none matches, the name of the tag
does. It says that more is better if one of its words is that of such a metric (`accuracy`, `f1`, ...); of all other
tags less is better.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from instrument.facts.describe import leaves, number_summary
from instrument.facts.rows import Best, Compared, Setting
from instrument.facts.selection import TagFilter
from instrument.runs.points import Scalars
from instrument.runs.run import Run
from instrument.wording import natural

R = TypeVar("R", bound=Mapping[str, object])

MIN, MAX = "min", "max"
#: Words of a tag by which more is better.
MORE_IS_BETTER = frozenset(
    (
        "acc", "accuracy", "auc", "bleu", "dice", "f1", "iou", "map", "miou", "precision", "psnr", "r2", "recall",
        "reward", "rouge", "score", "ssim", "throughput", "top1", "top5",
    )
)  # fmt: skip
#: Names of a training lineage, by how they begin and end, that are results and no set-up.
_RESULTS = ("train.algorithm.loss", "train.model.")
_RESULT_ENDS = (".last_learning_rate",)
_SETUP = ("train", "dataset", "custom", "ran")


def is_setup(leaf: str) -> bool:
    """Return True for a leaf of a lineage that sets a training up, False for one that is its result."""
    return not leaf.startswith(_RESULTS) and not leaf.endswith(_RESULT_ENDS)


@dataclass(frozen=True)
class Directions:
    """Patterns of tags whose greatest value is the best, and of those whose least is; the name decides for others."""

    greatest: Sequence[str] = ()
    least: Sequence[str] = ()

    def __call__(self, tag: str) -> str:
        """Return "max" or "min"; of patterns that both match, one that is the tag itself counts, else `greatest`."""
        if tag in self.least and tag not in self.greatest:
            return MIN
        if self.greatest and TagFilter(self.greatest)([tag]):
            return MAX
        if self.least and TagFilter(self.least)([tag]):
            return MIN
        return MAX if is_more_better(tag) else MIN


def is_more_better(tag: str) -> bool:
    """Return True if a word of the name is that of a metric whose greatest value is the best."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", tag).lower()
    return not MORE_IS_BETTER.isdisjoint(re.split(r"[^a-z0-9]+", words))


def best(points: Scalars, direction: str) -> Best:
    """Return the best value and its first step; None for both if all values are NaN."""
    if np.isnan(points.value).all():
        return {"direction": direction, "best": None, "best_step": None}
    place = int((np.nanargmax if direction == MAX else np.nanargmin)(points.value))
    return {"direction": direction, "best": float(points.value[place]), "best_step": int(points.step[place])}


def sorted_rows(rows: Iterable[R], column: str, descending: bool) -> list[R]:
    """Return rows in the order of a column, those without a value last; "best" goes tag by tag, best first."""
    with_value, without = list[R](), list[R]()
    for row in rows:
        value = row.get(column)
        (without if value is None or value != value else with_value).append(row)
    with_value.sort(key=lambda row: _sort_key(row, column), reverse=descending)
    if column == "best":  # values of one tag alone can be compared
        with_value.sort(key=lambda row: str(row["tag"]))
    return with_value + without


def _sort_key(row: Mapping[str, object], column: str) -> float | tuple[list[str | int], str]:
    value = row[column]
    if isinstance(value, str):
        return natural(value)
    number = cast(float, value)
    return -number if column == "best" and row["direction"] == MAX else number


# ---------------------------------------------------------------- runs side by side


@dataclass(frozen=True)
class Side:
    """One run of a comparison: rows for its series, and the leaves of its lineage that set it up."""

    run: str
    path: str
    scalars: Sequence[Compared]
    setup: Mapping[str, object]


def read_side(name: str, run: Run, wanted: TagFilter, direction: Callable[[str], str]) -> Side:
    """Read one run: a row for each tag that `wanted` chooses, and for each writer of it."""
    lineage = {key: run.lineage[key] for key in _SETUP if key in run.lineage}
    setup = {name: value for name, value in leaves(lineage) if is_setup(name)}
    return Side(name, run.path, list(_compared(name, run, wanted, direction)), setup)


def _compared(name: str, run: Run, wanted: TagFilter, direction: Callable[[str], str]) -> Iterator[Compared]:
    for tag in wanted(run.tags().get("scalar", [])):
        for points in run.scalars(tag).by_writer().values():
            facts = number_summary(points)
            yield {
                "tag": tag,
                "run": name,
                "path": run.path,
                "device": facts["device"],
                "host": facts["host"],
                **best(points, direction(tag)),
                "points": facts["points"],
                "last": facts["last"],
                "last_step": facts["last_step"],
                "nan_count": facts["nan_count"],
                "positive_infinity_count": facts["positive_infinity_count"],
                "negative_infinity_count": facts["negative_infinity_count"],
                "first_nonfinite_step": facts["first_nonfinite_step"],
            }


def scalars(sides: Sequence[Side], sort: str = "best", descending: bool = False) -> list[Compared]:
    """Return the rows of all runs tag by tag, within a tag in the order of the field `sort`; "best" is best first."""
    by_tag: dict[str, list[Compared]] = {}
    for side in sides:
        for row in side.scalars:
            by_tag.setdefault(row["tag"], []).append(row)
    return [row for tag in sorted(by_tag, key=natural) for row in sorted_rows(by_tag[tag], sort, descending)]


def hyper_parameters(sides: Sequence[Side]) -> list[Setting]:
    """Return the set-up in which runs differ, by their lineage: a row for each name and run."""
    names = dict.fromkeys(name for side in sides for name in side.setup)
    return [
        {"run": side.run, "path": side.path, "name": name, "value": side.setup.get(name)}
        for name in names
        if _differs([side.setup.get(name) for side in sides])
        for side in sides
    ]


def _differs(values: Sequence[object]) -> bool:
    first = values[0]
    return any(not (other is first or other == first or (other != other and first != first)) for other in values[1:])
