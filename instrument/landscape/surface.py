"""Losses -> `LossSurface`, the landscape as arrays and as the event that is written.

Its metadata, beside `decomposition`, `unit` and `step_per_epoch`:

- `axes`, `normalize`, `seed`; `number`, the step or epoch at the origin; `repeated`, checkpoints that were left out as
  they are the same point as a later one.
- `parameters` that take part and `excluded` ones that stay; of those that take part, `frozen` ones that are equal in
  all checkpoints (their direction is zero for the axes "anchored" and "centred", as in MindSpore for "mindspore", as
  given for the user's own), and `unmoved` ones, not among the frozen, whose direction is zero.
- `direction_cosine` of the angle between the axes; `singular_values` or `eigenvalues`.
- `samples` used and `samples_wanted`; `mode` of the network; `unfold`, whether convolutions were matrix products, and
  `unfold_difference`, the largest relative difference of the loss that this made where it was tried.
- `points` of the whole grid, `points_done`, `not_finite` of those; `complete`; `resumed` points of an earlier process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import landscape as codec
from instrument.landscape.compute import Answer, Question
from instrument.landscape.planes import Known
from instrument.values import Item, LossSurface


def surface_of(
    question: Question, known: Known, answer: Answer, level: int, excluded: list[str], unit: str, steps_per_epoch: int
) -> LossSurface:
    """The landscape as it is when a level of the grid is whole: with the points of that level, and no others."""
    plane = question.plane
    rows, columns = plane.grid.levels()[level]
    index = rows[:, None] * len(plane.grid.x) + columns
    grids = answer.values[index]
    path, true = _paths(plane, answer)
    metadata = {
        **known.metadata, "unit": unit, "step_per_epoch": steps_per_epoch, "parameters": list(plane.layout.names),
        "excluded": excluded, "samples": answer.samples, "samples_wanted": question.samples, "mode": "evaluation",
        "unfold": answer.form.unfold, "unfold_difference": answer.difference if answer.form.unfold else 0.0,
        "points": plane.origin_point, "points_done": index.size, "complete": index.size == plane.origin_point,
        "not_finite": int((~np.isfinite(grids[..., 0])).sum()), "resumed": answer.resumed,
    }  # fmt: skip
    origin = answer.values[plane.origin_point, 0]
    shift = np.array([known.shift, 0.0])
    return LossSurface(
        question.tag, plane.grid.x[columns] + known.shift, plane.grid.y[rows], grids[..., 0],
        np.array(known.numbers, np.int64), plane.path + shift, path, true, known.unexplained, known.explained,
        np.append(shift, origin), {name: grids[..., 1 + i] for i, name in enumerate(answer.metrics)}, metadata,
    )  # fmt: skip


def _paths(plane: Any, answer: Answer) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses (k,) at the projected places, and of the checkpoints themselves."""
    if not len(plane.path):
        return np.empty(0), np.empty(0)
    losses, last = answer.values[:, 0], answer.values[plane.origin_point, 0]
    return np.append(losses[plane.projected], last), np.append(losses[plane.true], last)


def item_of(surface: LossSurface) -> Item:
    return Item("landscape", surface.tag, codec.from_surface(surface))
