"""Lines of equal loss."""

from __future__ import annotations

import math

import numpy as np
import pytest

from instrument.show import charts, landscape
from instrument.show.landscape import contour_lines

X, Y = np.array([0.0, 1.0]), np.array([0.0, 10.0])


def pieces(z: list[list[float]], level: float) -> list[tuple[tuple[float, float], ...]]:
    """Each piece as its two ends in order, and all in order."""
    found = contour_lines(X, Y, np.array(z), level).tolist()
    return sorted(tuple(sorted([(piece[0], piece[1]), (piece[2], piece[3])])) for piece in found)


@pytest.mark.parametrize(
    ("z", "expected"),
    [
        ([[0, 0], [0, 0]], []),
        ([[1, 1], [1, 1]], []),
        ([[0, 0], [1, 1]], [((0.0, 2.5), (1.0, 2.5))]),
        ([[0, 1], [0, 1]], [((0.25, 0.0), (0.25, 10.0))]),
        ([[1, 0], [0, 0]], [((0.0, 7.5), (0.75, 0.0))]),
        ([[0, 1], [0, 0]], [((0.25, 0.0), (1.0, 7.5))]),
        ([[0, 0], [0, 1]], [((0.25, 10.0), (1.0, 2.5))]),
        ([[0, 0], [1, 0]], [((0.0, 2.5), (0.75, 10.0))]),
    ],
)
def test_a_cell(z: list[list[float]], expected: list[tuple[tuple[float, float], ...]]) -> None:
    """A line passes where a level of a quarter lies on the edges; upside down, the same line at three quarters."""
    assert pieces(z, 0.25) == expected
    assert pieces([[1 - value for value in row] for row in z], 0.75) == expected


def test_a_saddle_follows_its_middle() -> None:
    """Below the middle of 0.5 the high corners belong together, above it the low ones do."""
    saddle = [[1.0, 0.0], [0.0, 1.0]]
    assert pieces(saddle, 0.25) == [((0.0, 7.5), (0.25, 10.0)), ((0.75, 0.0), (1.0, 2.5))]
    assert pieces(saddle, 0.75) == [((0.0, 2.5), (0.25, 0.0)), ((0.75, 10.0), (1.0, 7.5))]


@pytest.mark.parametrize("hole", [math.nan, math.inf, -math.inf])
def test_a_cell_with_a_hole_has_no_line(hole: float) -> None:
    """Whatever the other corners are."""
    for place in range(4):
        z = np.array([0.0, 0.0, 1.0, 1.0])
        z[place] = hole
        assert contour_lines(X, Y, z.reshape(2, 2), 0.5).shape == (0, 4)


def test_a_circle(rng: np.random.Generator) -> None:
    """All ends are as far from the middle as the level says, and each end but none is where another piece goes on."""
    middle = rng.uniform(-0.2, 0.2, 2)
    x, y = np.linspace(-2, 2, 81), np.linspace(-2, 2, 61)
    z = np.hypot(*np.meshgrid(x - middle[0], y - middle[1]))
    found = contour_lines(x, y, z, 1.0)
    ends = found.reshape(-1, 2)
    assert np.abs(np.hypot(*(ends - middle).T) - 1).max() < 1e-3
    _, counts = np.unique(ends.round(9), axis=0, return_counts=True)
    assert set(counts.tolist()) == {2}
    length = np.hypot(found[:, 0] - found[:, 2], found[:, 1] - found[:, 3]).sum()
    assert length == pytest.approx(2 * math.pi, rel=1e-3)


def test_a_single_row_has_no_lines() -> None:
    """Nor has a single point."""
    assert contour_lines(X, np.zeros(1), np.array([[0.0, 1.0]]), 0.5).shape == (0, 4)
    assert contour_lines(np.zeros(1), np.zeros(1), np.zeros((1, 1)), 0.0).shape == (0, 4)


def test_colours() -> None:
    """From dark to light, black where there is no share."""
    assert landscape.hexes(2) == ["#440154", "#fde725"]
    assert landscape.colours(np.array([[0.0, math.nan]])).tolist() == [[[0x44, 0x01, 0x54], [0, 0, 0]]]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-10.3, 1.72, [-10.0, -5.0, 0.0]),
        (-3e-7, 2e-7, [-3e-7, -2e-7, -1e-7, 0.0, 1e-7, 2e-7]),
        (5.0, 5.0, [5.0]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    """And lie between the ends, these included."""
    assert charts.ticks(low, high) == pytest.approx(expected, abs=1e-20)
