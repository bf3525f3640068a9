"""Decide which value of a tag is its best one, the least or the greatest, and order rows by it.

Patterns decide; if none matches, the name of the tag does. It says that more is better if one of its words is that of
such a metric (`accuracy`, `f1`, ...); of all other tags less is better.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from instrument.facts.describe import Row
from instrument.facts.tags import TagFilter
from instrument.runs.ordering import natural
from instrument.runs.points import Scalars

MIN, MAX = "min", "max"
#: Words of a tag by which more is better.
MORE_IS_BETTER = frozenset(
    (
        "acc", "accuracy", "auc", "bleu", "dice", "f1", "iou", "map", "miou", "precision", "psnr", "r2", "recall",
        "reward", "rouge", "score", "ssim", "throughput", "top1", "top5",
    )
)  # fmt: skip


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


def best(points: Scalars, direction: str) -> Row:
    """Return the best value and its first step as fields of a row; None for both if all values are NaN."""
    row: Row = {"direction": direction, "best": None, "best_step": None}
    if not np.isnan(points.value).all():
        place = int((np.nanargmax if direction == MAX else np.nanargmin)(points.value))
        row |= {"best": float(points.value[place]), "best_step": int(points.step[place])}
    return row


def best_first(row: Row) -> float:
    """Return the sort key by which rows of one tag come best first; a row without a value has none."""
    return -float(row["best"]) if row["direction"] == MAX else float(row["best"])


def sorted_rows(rows: Iterable[Row], column: str, descending: bool) -> list[Row]:
    """Return rows in the order of a column, those without a value last; "best" goes tag by tag, best first."""
    with_value, without = list[Row](), list[Row]()
    for row in rows:
        value = row.get(column)
        (without if value is None or value != value else with_value).append(row)
    key: Callable[[Row], Any] = best_first if column == "best" else lambda row: _order(row[column])
    with_value.sort(key=key, reverse=descending)
    if column == "best":  # values of one tag alone can be compared
        with_value.sort(key=lambda row: str(row["tag"]))
    return with_value + without


def _order(value: Any) -> Any:
    return natural(value) if isinstance(value, str) else value
