"""Landscapes made by hand, and runs that hold them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from instrument.codec import landscape
from instrument.show.cli import main
from instrument.values import Event, LossSurface, MessageItem
from tests.runs.build import write

#: Rows follow y, columns x; three holes.
GRID = [[4.0, 2.0, 8.0, math.nan], [3.0, 1.0, 3.0, math.inf], [6.0, 2.0, -math.inf, 9.0]]


def plane(**changes: Any) -> LossSurface:
    """4 columns and 3 rows; a path of three steps that ends at the origin."""
    surface = LossSurface(
        tag="landscape_[1, 4]",
        x=np.array([-1.0, 0.0, 1.0, 2.0]),
        y=np.array([-0.5, 0.0, 0.5]),
        z=np.array(GRID),
        numbers=np.array([1, 2, 4]),
        path=np.array([[1.5, 0.25], [0.5, 0.5], [0.0, 0.0]]),
        path_loss=np.array([7.0, 5.0, 1.0]),
        true_loss=np.array([7.5, 5.25, 1.0]),
        unexplained=np.array([0.125, 0.25, 0.0]),
        explained=np.array([0.75, 0.125, 0.0625]),
        convergence=np.array([0.0, 0.0, 1.0]),
        metrics={"accuracy": np.arange(12).reshape(3, 4) / 16},
        metadata={"decomposition": "PCA", "unit": "step", "step_per_epoch": 2, "seed": 7},
    )
    return replace(surface, **changes)


def no_path(**changes: Any) -> LossSurface:
    """A random plane: no checkpoints, and nothing that is known about them."""
    none = np.empty(0)
    surface = plane(
        tag="landscape_[4]",
        numbers=np.empty(0, np.int64),
        path=np.empty((0, 2)),
        path_loss=none,
        true_loss=none,
        unexplained=none,
        explained=none,
        metrics={},
        metadata={"decomposition": "Random", "unit": "step", "step_per_epoch": 2},
    )
    return replace(surface, **changes)


def line() -> LossSurface:
    """Between two checkpoints, with a hole."""
    return no_path(
        tag="line_[1, 4]",
        x=np.array([-0.5, 0.0, 0.5, 1.0]),
        y=np.zeros(1),
        z=np.array([[8.0, 4.0, math.inf, 1.0]]),
        numbers=np.array([1, 4]),
        path=np.array([[0.0, 0.0], [1.0, 0.0]]),
        path_loss=np.array([4.0, 1.0]),
        true_loss=np.array([4.0, 1.0]),
        unexplained=np.zeros(2),
        convergence=np.array([1.0, 0.0, 1.0]),
    )


def write_run(directory: Path, *surfaces: LossSurface) -> Path:
    """A run with these landscapes, in this order."""
    items = [(surface.tag, landscape.from_surface(surface)) for surface in surfaces]
    write(
        directory,
        [
            Event.of(0, 1000.0 + index, (MessageItem("landscape", tag, data),))
            for index, (tag, data) in enumerate(items)
        ],
    )
    return directory


def written(tmp_path: Path, surface: LossSurface, suffix: str, *words: object) -> bytes:
    """The file that the command makes of one landscape."""
    path = tmp_path / f"out{suffix}"
    run = write_run(tmp_path / "one", surface)
    assert main(["landscape", str(run), "-o", str(path), *map(str, words)]) == 0
    assert [one.name for one in tmp_path.iterdir() if one != run] == [path.name]
    return path.read_bytes()
