"""Which points of a plane are evaluated, and in which order: the whole of it coarsely, then finer and finer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: x from, to; y from, to.
Extent = tuple[float, float, float, float]

#: How far the plane reaches beyond the path, in shares of the path's width: MindSpore's margin.
MARGIN = 0.2
#: The first pictures have about so many points along an axis.
_COARSE = 4
#: A task is so much work: little enough that a lost worker costs little, and enough that handing it out costs nothing.
TASK_SECONDS = 2.0


@dataclass(frozen=True, eq=False)
class Grid:
    """The values of the axes, ascending: `x` (columns,), `y` (rows,); a line has one row."""

    x: Floats
    y: Floats

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.y), len(self.x)

    def levels(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Rows and columns of ever finer grids; each has all those of the one before, the last is the whole."""
        stride, result = 1, []
        while max(self.shape) - 1 >= 2 * stride * _COARSE:
            stride *= 2
        while stride >= 1:
            result.append((_every(len(self.y), stride), _every(len(self.x), stride)))
            stride //= 2
        return result

    def order(self) -> list[NDArray[np.intp]]:
        """For each level the points that are new in it, as indices row * columns + column, row by row."""
        columns, known, result = len(self.x), np.zeros(self.shape[0] * len(self.x), np.bool_), []
        for rows, cells in self.levels():
            points = (rows[:, None] * columns + cells).reshape(-1)
            result.append(points[~known[points]])
            known[points] = True
        return result


def _every(count: int, stride: int) -> NDArray[np.intp]:
    """0, stride, 2 * stride ... and the last."""
    return np.unique(np.append(np.arange(0, count, stride), count - 1))


def around(path: Floats) -> Extent:
    """The extent of a path (n, 2) with the margin on each side; an axis along which it has no width gets 1 each way."""
    low, high = path.min(axis=0), path.max(axis=0)
    width = high - low
    margin = np.where(width > 0, MARGIN * width, 1.0)
    return (
        float(low[0] - margin[0]),
        float(high[0] + margin[0]),
        float(low[1] - margin[1]),
        float(high[1] + margin[1]),
    )


def check_extent(given: Any) -> Extent | str:
    """`"auto"`, or numbers out of one number (as far to each side), or four: x from, to, y from, to.

    Raises:
        TypeError, ValueError: it is something else, not finite, or empty.
    """
    if isinstance(given, str) and given == "auto":
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        given = (-given, given, -given, given)
    try:
        numbers = [float(number) for number in np.asarray(given, np.float64).reshape(-1)]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 4:
        raise TypeError(f"extent is {given!r}; expected 'auto', a number, or four: x from, to, y from, to.")
    if not np.all(np.isfinite(numbers)) or not (numbers[0] < numbers[1] and numbers[2] < numbers[3]):
        raise ValueError(f"extent is {given!r}; expected finite numbers, each axis ascending.")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def make(extent: Extent, size: int) -> Grid:
    """`size` evenly spaced values along each axis, both ends among them."""
    return Grid(np.linspace(extent[0], extent[1], size), np.linspace(extent[2], extent[3], size))


def tasks(points: Sequence[int], seconds_per_point: float, workers: int) -> list[list[int]]:
    """Points in pieces of about `TASK_SECONDS`, but small enough that each worker gets one."""
    most = max(len(points) // max(workers, 1), 1)
    length = int(min(max(TASK_SECONDS / max(seconds_per_point, 1e-9), 1), most))
    return [list(points[start : start + length]) for start in range(0, len(points), length)]
