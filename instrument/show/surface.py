"""What is drawn of a loss landscape: its points, the path that training took over it, and the scale of its colours.

Points whose loss is not finite are holes. They stay in the grid, take part in no minimum, no level and no face, and are
never filled in from their neighbours.
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
#: From this ratio of the highest to the lowest loss on, the lower levels could not be told apart on a linear scale.
_LOG_FROM_RATIO = 30.0
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
    """(rows, columns): where the loss is not finite."""
    return ~np.isfinite(surface.z)


def is_line(surface: LossSurface) -> bool:
    """Whether there is one axis only."""
    return len(surface.y) == 1


def lowest(surface: LossSurface) -> Point | None:
    """The first point of the grid with the smallest loss; None where all are holes."""
    return _at(surface, int(np.argmin(np.where(holes(surface), np.inf, surface.z))))


def highest(surface: LossSurface) -> Point | None:
    """The first point of the grid with the largest finite loss; None where all are holes."""
    return _at(surface, int(np.argmax(np.where(holes(surface), -np.inf, surface.z))))


def _at(surface: LossSurface, index: int) -> Point | None:
    row, column = divmod(index, len(surface.x))
    point = Point(float(surface.x[column]), float(surface.y[row]), float(surface.z[row, column]))
    return point if math.isfinite(point.loss) else None


def checkpoints(surface: LossSurface) -> list[Checkpoint]:
    """The checkpoints in their order."""
    columns = (surface.path[:, 0], surface.path[:, 1], surface.path_loss, surface.true_loss, surface.unexplained)
    return [*map(Checkpoint, surface.numbers.tolist(), *(column.tolist() for column in columns))]


def is_inside(surface: LossSurface, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint lies within the grid's ends."""
    inside_x = surface.x[0] <= checkpoint.x <= surface.x[-1]
    return bool(inside_x and (is_line(surface) or surface.y[0] <= checkpoint.y <= surface.y[-1]))


def check(surface: LossSurface) -> None:
    """Raises `InstrumentError` for axes that nothing can be drawn on."""
    for name, axis in (("x", surface.x), ("y", surface.y)):
        if not np.isfinite(axis).all() or not (np.diff(axis) > 0).all():
            raise InstrumentError(
                f"landscape {surface.tag!r} cannot be drawn: its {name} axis has values that are not finite or do not "
                "ascend; the file is damaged, or was written by a program that does not know the format"
            )


@dataclass(frozen=True)
class Scale:
    """From losses to shares of the drawn range, 0 at `low` and 1 at `high`.

    On the scale `log` shares go with the logarithm of the loss, and around 0, within `linear_below`, with the loss.
    `is_clipped` says that there are losses above `high`, whose share is 1 as well.
    """

    name: str
    low: float
    high: float
    linear_below: float = 0.0
    is_clipped: bool = False

    @classmethod
    def of(cls, surface: LossSurface, name: str = "auto", clip: float | None = None) -> Scale:
        """The scale for all finite losses of a surface and its path, up to `clip`."""
        values = np.concatenate([surface.z.ravel(), surface.path_loss, surface.true_loss])
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        is_clipped = clip is not None and clip < high
        if clip is not None and is_clipped:
            high = max(clip, low)
        if name == "auto":
            name = "log" if low > 0 and high / low >= _LOG_FROM_RATIO else "linear"
        return cls(name, low, high, _linear_below(values) if name == "log" and low <= 0 else 0.0, is_clipped)

    def shares(self, losses: Floats) -> Floats:
        """Of losses of any shape; NaN for holes, 0.5 where all are equal."""
        low, high = self._forward(np.array([self.low, self.high]))
        finite = np.where(np.isfinite(losses), np.clip(losses, self.low, self.high), np.nan)
        if not high > low:
            return np.where(np.isnan(finite), np.nan, 0.5)
        return np.asarray((self._forward(finite) - low) / (high - low))

    def losses(self, shares: Floats) -> Floats:
        """The other way round."""
        low, high = self._forward(np.array([self.low, self.high]))
        position = low + shares * (high - low)
        if self.name == "linear":
            return np.asarray(position)
        return np.asarray(np.sinh(position) * self.linear_below if self.linear_below else 10.0**position)

    def levels(self, count: int) -> Floats:
        """So many shares between the ends, evenly apart; none where all losses are equal."""
        return np.arange(1, count + 1) / (count + 1) if self.high > self.low else np.empty(0)

    def _forward(self, losses: Floats) -> Floats:
        if self.name == "linear":
            return losses
        return np.arcsinh(losses / self.linear_below) if self.linear_below else np.log10(losses)


def _linear_below(values: Floats) -> float:
    sizes = np.abs(values[values != 0])
    return max(float(sizes.min()), _LINEAR_SHARE * float(sizes.max())) if len(sizes) else 1.0


class Drawing(NamedTuple):
    """What one picture shows: `what` is the name of the values, `loss` or that of a metric."""

    surface: LossSurface
    scale: Scale
    title: str
    what: str = "loss"
