"""Which value of a tag is its best one: the least, or the greatest.

An option decides, `--max GLOB` or `--min GLOB`; where none matches, the name of the tag. It says that more is better
where one of its words is that of such a metric (`accuracy`, `f1`, ...); of all other tags less is better.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from instrument.runs.ordering import natural
from instrument.runs.points import Scalars
from instrument.show.tags import TagFilter

MIN, MAX = "min", "max"
#: Words in a tag that say that more is better.
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
    """Return True where a word of the name says that the greatest value is the best, as that of an accuracy does."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", tag).lower()
    return not MORE_IS_BETTER.isdisjoint(re.split(r"[^a-z0-9]+", words))


def best(points: Scalars, direction: str) -> dict[str, Any]:
    """Return the best value and its first step, under the names of the outputs; None where all values are NaN."""
    row: dict[str, Any] = {"direction": direction, "best": None, "best_step": None}
    if not np.isnan(points.value).all():
        place = int((np.nanargmax if direction == MAX else np.nanargmin)(points.value))
        row |= {"best": float(points.value[place]), "best_step": int(points.step[place])}
    return row


def best_first(row: dict[str, Any]) -> float:
    """Return the key by which rows of one tag come best first; rows without a value have none."""
    return -float(row["best"]) if row["direction"] == MAX else float(row["best"])


def add_direction_options(parser: argparse.ArgumentParser) -> None:
    """Add `--max` and `--min`, each of which may be given several times."""
    for option, word in (("--max", "greatest"), ("--min", "least")):
        text = f"of tags that match, the {word} value is the best; without these options the name of a tag decides"
        parser.add_argument(option, metavar="GLOB", action="append", default=[], help=text)


def chosen_directions(arguments: argparse.Namespace) -> Directions:
    """Return what the options of `add_direction_options` mean."""
    return Directions(tuple(arguments.max), tuple(arguments.min))


def sorted_rows(rows: Iterable[dict[str, Any]], column: str, descending: bool) -> list[dict[str, Any]]:
    """Return rows in the order of a column, `best` tag by tag with the best first; those without a value come last."""
    known, unknown = list[dict[str, Any]](), list[dict[str, Any]]()
    for row in rows:
        value = row.get(column)
        (unknown if value is None or value != value else known).append(row)
    key: Callable[[dict[str, Any]], Any] = best_first if column == "best" else lambda row: _order(row[column])
    known.sort(key=key, reverse=descending)
    if column == "best":  # values of one tag alone can be compared
        known.sort(key=lambda row: str(row["tag"]))
    return known + unknown


def _order(value: Any) -> Any:
    return natural(value) if isinstance(value, str) else value
