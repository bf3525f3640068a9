"""Prepare a loss landscape for drawing: its points, the path of the training over it, and the scale of its colours.

The problem: a grid of losses has holes (NaN, infinities), spans many powers of ten, and a few far outliers would leave
one colour for all other points; and it is drawn by several means, in a browser and by matplotlib.

The strategy: a `Drawing` holds what every picture shows. Its `Scale` maps losses to shares from 0 to 1, so that a
renderer maps shares to colours and heights and decides nothing else. Holes stay in the grid, take part in no minimum,
no level and no face, and are never filled in from their neighbours.

Rejected: clipping at a fixed percentile, which takes colours from landscapes without outliers. Here points are cut off
only if they lie far above the bulk of the others, and the picture says how many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.errors import InstrumentError
from instrument.values import LossSurface

Floats = NDArray[np.float64]
SCALES = ("auto", "linear", "log")
#: Lines of equal loss of a picture, and losses beside its bar of colours.
LEVELS, _TICKS = 12, 5
#: From this ratio of the highest to the lowest loss on, the lower levels could not be told apart on a linear scale.
_LOG_FROM_RATIO = 30.0
#: A few points may lie far above all others, and would leave one colour to these. Points beyond this share, sorted by
#: loss, are cut off where they lie further above it than this multiple of what lies below it.
_BULK_SHARE, _FAR = 0.98, 3.0
_LEAST_POINTS = 10
#: A logarithmic scale with losses at or below 0 is linear around 0, up to this share of the largest one at least.
_LINEAR_SHARE = 1e-6


class Point(NamedTuple):
    """A point of the grid."""

    x: float
    y: float
    loss: float


class Checkpoint(NamedTuple):
    """A checkpoint on the plane, as `LossSurface` has it."""

    number: int
    x: float
    y: float
    path_loss: float
    true_loss: float
    unexplained: float


def holes(surface: LossSurface) -> NDArray[np.bool_]:
    """Return a mask of the points whose loss is not finite, (rows, columns)."""
    return ~np.isfinite(surface.z)


def is_line(surface: LossSurface) -> bool:
    """Return True if there is one axis only."""
    return len(surface.y) == 1


def lowest(surface: LossSurface) -> Point | None:
    """Return the first point of the grid with the smallest loss, None if all are holes."""
    return _at(surface, int(np.argmin(np.where(holes(surface), np.inf, surface.z))))


def highest(surface: LossSurface) -> Point | None:
    """Return the first point of the grid with the largest finite loss, None if all are holes."""
    return _at(surface, int(np.argmax(np.where(holes(surface), -np.inf, surface.z))))


def convergence(surface: LossSurface) -> Point | None:
    """Return the point of convergence, None if it is not known."""
    return Point(*surface.convergence.tolist()) if surface.convergence.size else None


def _at(surface: LossSurface, index: int) -> Point | None:
    row, column = divmod(index, len(surface.x))
    point = Point(float(surface.x[column]), float(surface.y[row]), float(surface.z[row, column]))
    return point if math.isfinite(point.loss) else None


def checkpoints(surface: LossSurface) -> list[Checkpoint]:
    """Return the checkpoints in their order."""
    columns = (surface.path[:, 0], surface.path[:, 1], surface.path_loss, surface.true_loss, surface.unexplained)
    return [*map(Checkpoint, surface.numbers.tolist(), *(column.tolist() for column in columns))]


def is_inside(surface: LossSurface, checkpoint: Checkpoint) -> bool:
    """Return True if a checkpoint lies within the ends of the grid."""
    inside_x = surface.x[0] <= checkpoint.x <= surface.x[-1]
    return bool(inside_x and (is_line(surface) or surface.y[0] <= checkpoint.y <= surface.y[-1]))


def check(surface: LossSurface) -> None:
    """Raise `InstrumentError` if an axis has values that are not finite or do not ascend."""
    for name, axis in (("x", surface.x), ("y", surface.y)):
        if not np.isfinite(axis).all() or not (np.diff(axis) > 0).all():
            raise InstrumentError(
                f"landscape {surface.tag!r} cannot be drawn: its {name} axis has values that are not finite or do not "
                "ascend; the file is damaged, or was written by a program that does not know the format"
            )


@dataclass(frozen=True)
class Scale:
    """Maps losses to shares of the drawn range, 0 at `low` and 1 at `high`.

    On the scale `log` shares go with the logarithm of the loss, and around 0, within `linear_below`, with the loss.
    `clipped` points of the surface lie above `high`; their share is 1 as well. `suggests_log` says that a linear scale
    was asked for, or had to be taken, on which most levels fall together.
    """

    name: str
    low: float
    high: float
    linear_below: float = 0.0
    clipped: int = 0
    suggests_log: bool = False

    @property
    def is_clipped(self) -> bool:
        return self.clipped > 0

    @classmethod
    def of(cls, surface: LossSurface, name: str = "auto", clip: float | None = None) -> Scale:
        """Return the scale for the finite losses of a surface, up to `clip`, or else without far outliers.

        The losses of checkpoints do not count: those beyond the range take the colour of its end.
        """
        values = surface.z[np.isfinite(surface.z)]
        if not len(values):
            values = np.concatenate([surface.path_loss, surface.true_loss])
            values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        linear_below = _linear_below(values) if low <= 0 else 0.0
        limit = _bulk_end(values, "log" if name == "log" else "linear", linear_below) if clip is None else clip
        top = high if high <= limit else max(limit, low)
        wants_log = low > 0 and top / low >= _LOG_FROM_RATIO
        if name == "auto":
            name = "log" if wants_log else "linear"
        clipped = int((values > top).sum()) if len(values) else 0
        below = linear_below if name == "log" else 0.0
        return cls(name, low, top, below, clipped, name == "linear" and (wants_log or clipped > 0) and low > 0)

    def shares(self, losses: Floats) -> Floats:
        """Return the shares of losses of any shape: NaN for holes, 0.5 if all losses are equal."""
        low, high = self._forward(np.array([self.low, self.high]))
        finite = np.where(np.isfinite(losses), np.clip(losses, self.low, self.high), np.nan)
        if not high > low:
            return np.where(np.isnan(finite), np.nan, 0.5)
        return np.asarray((self._forward(finite) - low) / (high - low))

    def losses(self, shares: Floats) -> Floats:
        """Return the losses of shares of any shape."""
        low, high = self._forward(np.array([self.low, self.high]))
        position = low + shares * (high - low)
        if self.name == "linear":
            return np.asarray(position)
        return np.asarray(np.sinh(position) * self.linear_below if self.linear_below else 10.0**position)

    def levels(self, count: int) -> Floats:
        """Return `count` shares between the ends, evenly apart; none if all losses are equal."""
        return np.arange(1, count + 1) / (count + 1) if self.high > self.low else np.empty(0)

    def ticks(self) -> list[tuple[float, float]]:
        """Return the shares, evenly apart, and the losses that stand beside the bar of colours."""
        shares = np.linspace(0, 1, _TICKS) if self.high > self.low else np.array([0.5])
        return list(zip(shares.tolist(), self.losses(shares).tolist(), strict=True))

    def _forward(self, losses: Floats) -> Floats:
        return _forward(losses, self.name, self.linear_below)


def _forward(losses: Floats, name: str, linear_below: float) -> Floats:
    if name == "linear":
        return losses
    return np.asarray(np.arcsinh(losses / linear_below) if linear_below else np.log10(losses))


def _bulk_end(values: Floats, name: str, linear_below: float) -> float:
    """Return the highest loss that is no far outlier on a scale, infinity if there are too few points to decide."""
    if len(values) < _LEAST_POINTS:
        return math.inf
    heights = np.sort(_forward(values, name, linear_below))
    low, end = float(heights[0]), float(heights[min(int(_BULK_SHARE * len(heights)), len(heights) - 2)])
    if not end > low or heights[-1] <= end + _FAR * (end - low):
        return math.inf
    return float(np.sort(values)[np.searchsorted(heights, end + _FAR * (end - low), side="right") - 1])


def _linear_below(values: Floats) -> float:
    sizes = np.abs(values[values != 0])
    return max(float(sizes.min()), _LINEAR_SHARE * float(sizes.max())) if len(sizes) else 1.0


class Drawing(NamedTuple):
    """The content of one picture: `quantity` is the name of the values, `loss` or that of a metric."""

    surface: LossSurface
    scale: Scale
    title: str
    quantity: str = "loss"


#: Titles of the axes by the kind of plane.
_AXIS_TITLES = {
    "random": "random direction", "hessian": "eigenvector of the Hessian", "given": "given direction",
}  # fmt: skip


def axis_titles(surface: LossSurface) -> tuple[str, str]:
    """Return the titles of the x and y axis, with the share of the path that each explains if that is known."""
    if is_line(surface):
        first, last = surface.numbers[[0, -1]].tolist() if surface.numbers.size else ("the first", "the last")
        return f"share of the way from {unit(surface)} {first} to {last}", ""
    kind = str(surface.metadata.get("axes") or "")
    name = _AXIS_TITLES.get(kind, "random direction" if not surface.numbers.size else "principal axis")
    shares = surface.explained.tolist() if name == "principal axis" else []
    words = [f", {100 * share:.3g} % of the path" for share in shares[:2]] + ["", ""]
    return f"x ({name} 1{words[0]})", f"y ({name} 2{words[1]})"


def unit(surface: LossSurface) -> str:
    """Return the noun for the numbers of checkpoints: step, epoch or number."""
    return str(surface.metadata.get("unit") or "number")
