"""A plane in the space of weights, the points on it, and the order in which they are evaluated: coarse to fine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from instrument.landscape.directions import Floats, Layout, Singles

#: x from, to; y from, to.
Extent = tuple[float, float, float, float]

#: How far the plane reaches beyond the path, in shares of the path's width: MindSpore's margin.
MARGIN = 0.2
#: The first pictures have about this many points along an axis.
_COARSE = 4


@dataclass(frozen=True, eq=False)
class Grid:
    """The values of the axes, ascending: `x` (columns,), `y` (rows,); a line has one row."""

    x: Floats
    y: Floats

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.y), len(self.x)

    def levels(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Return rows and columns of ever finer grids; each has all those of the one before, the last is the whole."""
        stride, result = 1, []
        while max(self.shape) - 1 >= 2 * stride * _COARSE:
            stride *= 2
        while stride >= 1:
            result.append((_every(len(self.y), stride), _every(len(self.x), stride)))
            stride //= 2
        return result

    def order(self) -> list[NDArray[np.intp]]:
        """Return for each level the points that are new in it, as indices row * columns + column, row by row."""
        columns, seen, result = len(self.x), np.zeros(self.shape[0] * len(self.x), np.bool_), []
        for rows, cells in self.levels():
            points = (rows[:, None] * columns + cells).reshape(-1)
            result.append(points[~seen[points]])
            seen[points] = True
        return result


def _every(count: int, stride: int) -> NDArray[np.intp]:
    """Return 0, stride, 2 * stride ... and the last."""
    return np.unique(np.append(np.arange(0, count, stride), count - 1))


def around(path: Floats) -> Extent:
    """Return the extent of a path (n, 2) with a margin on each side, 1 along an axis on which the path has no width."""
    low, high = path.min(axis=0), path.max(axis=0)
    width = high - low
    margin = np.where(width > 0, MARGIN * width, 1.0)
    (left, bottom), (right, top) = (low - margin).tolist(), (high + margin).tolist()
    return left, right, bottom, top


def make_grid(extent: Extent, size: int) -> Grid:
    """Return a grid of `size` evenly spaced values along each axis, both ends among them."""
    return Grid(np.linspace(extent[0], extent[1], size), np.linspace(extent[2], extent[3], size))


@dataclass(frozen=True, eq=False)
class Plane:
    """The points whose losses are computed: on a grid, at the projected places of a path, and checkpoints themselves.

    `origin` has all tensors of the checkpoint at (0, 0), by name; those of `layout` are moved along `directions` (2, P)
    float32, all others stay. `path` (k, 2) are the places of the checkpoints, the last being (0, 0); k is 0 for planes
    without a path.

    Points are numbered: those of the grid row by row, then the origin, then the k - 1 other places of the path, then
    the k - 1 other checkpoints themselves.
    """

    layout: Layout
    origin: Mapping[str, NDArray[np.generic]]
    directions: Singles
    grid: Grid
    path: Floats

    @property
    def others(self) -> int:
        """Return the number of checkpoints of the path but the last."""
        return max(len(self.path) - 1, 0)

    @property
    def origin_point(self) -> int:
        rows, columns = self.grid.shape
        return rows * columns

    @property
    def projected(self) -> range:
        first = self.origin_point + 1
        return range(first, first + self.others)

    @property
    def true(self) -> range:
        return range(self.projected.stop, self.projected.stop + self.others)

    @property
    def count(self) -> int:
        """Return the number of points of all kinds."""
        return self.true.stop

    def place(self, point: int) -> tuple[float, float]:
        """Return x and y of a point of the grid or the path."""
        if point > self.origin_point:
            x, y = self.path[point - self.projected.start].tolist()
            return x, y
        if point == self.origin_point:
            return 0.0, 0.0
        row, column = divmod(point, len(self.grid.x))
        return float(self.grid.x[column]), float(self.grid.y[row])

    def tensors(self, point: int) -> dict[str, Singles]:
        """Compute the moved tensors at a point, each from the origin: nothing adds up on the way."""
        x, y = self.place(point)
        first, second = self.directions
        result = {}
        for name, shape, place in zip(self.layout.names, self.layout.shapes, self.layout.slices, strict=True):
            moved = np.float32(x) * first[place]
            moved += np.float32(y) * second[place]
            moved += self.origin[name].reshape(-1).astype(np.float32, copy=False)
            result[name] = moved.reshape(shape)
        return result

    def digest(self) -> str:
        """Return a digest that is the same for the same points with the same weights."""
        state = hashlib.sha256(json.dumps([self.layout.names, self.layout.shapes]).encode())
        for array in (self.directions, self.grid.x, self.grid.y, self.path):
            state.update(array.tobytes())
        for name, values in self.origin.items():
            state.update(name.encode())
            state.update(values.tobytes())
        return state.hexdigest()
