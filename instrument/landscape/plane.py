"""A plane in the space of weights and the points on it, as whoever evaluates them needs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.landscape.directions import Floats, Layout, Singles
from instrument.landscape.grid import Grid


@dataclass(frozen=True, eq=False)
class Plane:
    """Where the losses are wanted: on a grid, at the projected places of a path, and at checkpoints themselves.

    `origin` has all tensors of the checkpoint at (0, 0), by name; those of `layout` are moved along `directions` (2, P)
    float32, all others stay. `path` (k, 2) are the places of the checkpoints, the last being (0, 0); k is 0 for planes
    without a path.

    Points are numbered: those of the grid row by row, then the origin, then the k - 1 other places of the path, then
    the k - 1 other checkpoints themselves.
    """

    layout: Layout
    origin: Mapping[str, NDArray[Any]]
    directions: Singles
    grid: Grid
    path: Floats

    @property
    def others(self) -> int:
        """Checkpoints of the path but the last."""
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
        """Points of all kinds."""
        return self.true.stop

    def place(self, point: int) -> tuple[float, float]:
        """x and y of a point of the grid or the path."""
        if point > self.origin_point:
            x, y = self.path[point - self.projected.start].tolist()
            return x, y
        if point == self.origin_point:
            return 0.0, 0.0
        row, column = divmod(point, len(self.grid.x))
        return float(self.grid.x[column]), float(self.grid.y[row])

    def tensors(self, point: int) -> dict[str, Singles]:
        """The moved tensors at a point, each computed from the origin: nothing adds up on the way."""
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
        """The same for the same points with the same weights."""
        state = hashlib.sha256(json.dumps([self.layout.names, self.layout.shapes]).encode())
        for array in (self.directions, self.grid.x, self.grid.y, self.path):
            state.update(array.tobytes())
        for name, values in self.origin.items():
            state.update(name.encode())
            state.update(values.tobytes())
        return state.hexdigest()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name, to be kept in a file."""
        arrays: dict[str, NDArray[Any]] = {f"origin/{name}": values for name, values in self.origin.items()}
        own: dict[str, NDArray[Any]] = {
            "directions": self.directions,
            "x": self.grid.x,
            "y": self.grid.y,
            "path": self.path,
        }
        return {**arrays, **own, "names": np.array(self.layout.names, np.str_)}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> Plane:
        """What `arrays` gave."""
        prefix = "origin/"
        origin = {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
        names = tuple(map(str, arrays["names"]))
        layout = Layout(names, tuple(origin[name].shape for name in names))
        return cls(layout, origin, arrays["directions"], Grid(arrays["x"], arrays["y"]), arrays["path"])
