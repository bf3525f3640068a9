"""Lines of equal loss: marching squares. A cell with a hole at a corner has no line."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_Edges = tuple[tuple[int, int], ...]

# Corners of a cell, and with them its edges, go round: edge 0 leads from corner 0 to corner 1, edge 3 from 3 to 0.
_ROW = np.array([0, 0, 1, 1])
_COLUMN = np.array([0, 1, 1, 0])
#: Which corners are on the other side than corner 3 (bit 0 is corner 0) -> the two edges that a line goes between.
_LINES: dict[int, _Edges] = {1: ((3, 0),), 2: ((0, 1),), 3: ((3, 1),), 4: ((1, 2),), 6: ((0, 2),), 7: ((2, 3),)}
#: Two opposite corners, 0 and 2: cut off, unless the middle of the cell is on their side; then the other two are.
_SADDLE = 5
_APART: _Edges = ((3, 0), (1, 2))
_TOGETHER: _Edges = ((0, 1), (2, 3))


def lines(x: Floats, y: Floats, z: Floats, level: float) -> Floats:
    """The pieces of the line at `level`: (pieces, 4) with x and y of one end, then of the other.

    `x` is (columns,), `y` (rows,), `z` (rows, columns), NaN where there is a hole.
    """
    offsets = zip(_ROW.tolist(), _COLUMN.tolist(), strict=True)
    corners = np.stack([z[row : len(y) - 1 + row, column : len(x) - 1 + column] for row, column in offsets])
    sides = (corners >= level) ^ (corners[3] >= level)
    case = (sides * (1 << np.arange(4))[:, None, None]).sum(axis=0)
    case[~np.isfinite(corners).all(axis=0)] = 0
    is_joined = (corners.mean(axis=0) >= level) ^ (corners[3] >= level)
    chosen = [(case == number, edges) for number, edges in _LINES.items()]
    chosen += [((case == _SADDLE) & ~is_joined, _APART), ((case == _SADDLE) & is_joined, _TOGETHER)]
    pieces = [np.empty((0, 4))]
    for mask, edges in chosen:
        cells = np.argwhere(mask)
        pieces += [np.hstack([_crossing(x, y, z, level, cells, edge) for edge in pair]) for pair in edges]
    return np.concatenate(pieces)


def _crossing(x: Floats, y: Floats, z: Floats, level: float, cells: NDArray[np.intp], edge: int) -> Floats:
    """Where the level crosses an edge of some cells: (cells, 2)."""
    ends = [edge, (edge + 1) % 4]
    rows, columns = cells[:, :1] + _ROW[ends], cells[:, 1:] + _COLUMN[ends]
    first, second = z[rows, columns].T
    along = (level - first) / (second - first)
    places = (x[columns], y[rows])
    return np.stack([place[:, 0] + along * (place[:, 1] - place[:, 0]) for place in places], axis=1)
