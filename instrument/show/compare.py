"""Two runs side by side: of each tag the final and the best value, and the hyper-parameters that differ."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from instrument.read.points import Scalars, called
from instrument.read.run import Run
from instrument.show.describe import Row, flat

#: Words in a tag that say that more is better; of all other tags less is.
_MORE_IS_BETTER = frozenset(
    [
        "acc",
        "accuracy",
        "auc",
        "bleu",
        "dice",
        "f1",
        "iou",
        "map",
        "miou",
        "precision",
        "psnr",
        "r2",
        "recall",
        "reward",
        "rouge",
        "score",
        "ssim",
        "throughput",
        "top1",
        "top5",
    ]
)
#: What a training lineage tells of results, not of how it was set up.
_RESULTS = ("train.algorithm.loss", "train.model.")
_SETUP = ("train", "dataset", "custom")


def is_more_better(tag: str) -> bool:
    """Whether the name says that the greatest value is the best one, as that of an accuracy does."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", tag).lower()
    return not _MORE_IS_BETTER.isdisjoint(re.split(r"[^a-z0-9]+", words))


def scalars(one: Run, other: Run, wanted: Callable[[list[str]], list[str]]) -> list[Row]:
    """A row for each tag, and for each writer where a run has several; None where a run has no such series."""
    rows = []
    known = [(run, frozenset(run.tags().get("scalar", []))) for run in (one, other)]
    for tag in wanted(sorted(frozenset().union(*(tags for _, tags in known)))):
        more = is_more_better(tag)
        found = [_by_writer(run, tag) if tag in tags else {} for run, tags in known]
        if max(map(len, found)) == 1:
            found = [dict(zip([None], writers.values(), strict=False)) for writers in found]
        for writer in sorted({writer for writers in found for writer in writers}, key=str):
            pair = [_ends(writers.get(writer), more) for writers in found]
            row: Row = {"tag": tag, "writer": writer, "best_is": "max" if more else "min"}
            rows.append({**row, "a": pair[0], "b": pair[1]})
    return rows


def _by_writer(run: Run, tag: str) -> dict[str | None, Scalars]:
    """The series of each writer by device and host."""
    return {called(writer): points for writer, points in run.scalars(tag).by_writer().items()}


def _ends(points: Scalars | None, more: bool) -> Row | None:
    """The final value and the best one with their steps; the best is None where all are NaN."""
    if points is None:
        return None
    values = points.value
    row: Row = {"final": float(values[-1]), "final_step": int(points.step[-1]), "best": None, "best_step": None}
    if not np.isnan(values).all():
        best = int(np.nanargmax(values) if more else np.nanargmin(values))
        row |= {"best": float(values[best]), "best_step": int(points.step[best])}
    return row


def hyper_parameters(one: Run, other: Run) -> list[Row]:
    """What differs in how two runs were set up, as their lineage tells: name, and the value of each."""
    a, b = _setup(one), _setup(other)
    return [{"name": name, "a": a.get(name), "b": b.get(name)} for name in {**a, **b} if not _same(a, b, name)]


def _same(a: Row, b: Row, name: str) -> bool:
    one, other = a.get(name), b.get(name)
    return one is other or bool(one == other) or (one != one and other != other)


def _setup(run: Run) -> dict[str, Any]:
    known = {key: run.lineage[key] for key in _SETUP if key in run.lineage}
    return {name: value for name, value in flat(known) if not name.startswith(_RESULTS)}
