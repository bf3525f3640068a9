"""A decimated series has the range of all its points in each bucket, and only recorded points."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from instrument.facts.decimate import Decimated, Scale, decimate, edges_between

#: Values that no average may hide and no axis can show.
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308, 5e-324])


def series(rng: np.random.Generator, size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Points with repeated and missing steps, spikes and values that are not finite."""
    steps = np.sort(rng.integers(-50, max(2, 3 * size), size))
    values = rng.normal(size=size)
    chosen = rng.random(size) < rng.choice([0.0, 0.2, 1.0])
    values[chosen] = rng.choice(ODD, int(chosen.sum()))
    return steps, values


def expected(x: NDArray[np.int64], y: NDArray[np.float64], edges: NDArray[np.float64]) -> Decimated:
    """The same by a loop over buckets."""
    points, counts = [], []
    for bucket in range(edges.size - 1):
        is_last = bucket == edges.size - 2
        inside = (x >= edges[bucket]) & ((x <= edges[bucket + 1]) if is_last else (x < edges[bucket + 1]))
        places = np.flatnonzero(inside & np.isfinite(y))
        ends = sorted([places[np.argmin(y[places])], places[np.argmax(y[places])]]) if places.size else [-1, -1]
        points.append(ends)
        values = y[inside]
        counts.append([places.size, np.isnan(values).sum(), (values == np.inf).sum(), (values == -np.inf).sum()])
    finite = np.flatnonzero((x >= edges[0]) & (x <= edges[-1]) & np.isfinite(y))
    ends = (int(finite[0]), int(finite[-1])) if finite.size else (-1, -1)
    return Decimated(np.array(points), *np.array(counts).T, *ends)


def test_buckets_have_the_least_and_the_greatest_point(rng: np.random.Generator) -> None:
    """As a loop over the buckets finds them, for series and ranges of all kinds."""
    for _ in range(300):
        x, y = series(rng, int(rng.integers(0, 60)))
        low, high = np.sort(rng.choice(np.arange(-60, 200), 2, replace=False))
        edges = edges_between(float(low), float(high), int(rng.integers(1, 12)))
        for found, one in zip(decimate(x, y, edges), expected(x, y, edges), strict=True):
            np.testing.assert_array_equal(found, one)


def test_a_million_points_keep_their_spike() -> None:
    """One outlier among 1,000,000 points is drawn, with at most two points a bucket and the two ends."""
    x, y = np.arange(1_000_000), np.sin(np.arange(1_000_000) / 1000)
    y[765_432] = 40.0
    drawn = decimate(x, y, edges_between(0, 999_999, 1000)).drawn()
    assert 765_432 in drawn
    assert (drawn[0], drawn[-1]) == (0, 999_999)
    assert drawn.size <= 2002


def test_edges_on_a_logarithmic_axis() -> None:
    """They ascend by one factor."""
    np.testing.assert_allclose(edges_between(1, 1000, 3, "log"), [1, 10, 100, 1000], rtol=1e-12)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_edges_meet_their_ends(scale: Scale) -> None:
    """Whatever the rounding in between, also for the largest floats and for neighbouring ones."""
    for low, high in ((1.0, 1.0 + 2**-52), (5e-324, 1.7e308), (0.1, 0.3)):
        edges = edges_between(low, high, 7, scale)
        assert (edges[0], edges[-1]) == (low, high)
        assert np.all(np.diff(edges) >= 0)
    if scale == "linear":
        assert np.isfinite(edges_between(-1.7e308, 1.7e308, 5)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 1.0, 5), "The x range is 1.0 to 1.0; expected two finite numbers, the smaller one first."),
        ((0.0, np.nan, 5), "The x range is 0.0 to nan; expected two finite numbers, the smaller one first."),
        ((0.0, 1.0, 0), "buckets is 0; expected at least 1."),
        ((0.0, 1.0, 5, "log"), "The x range begins at 0.0; a logarithmic axis expects numbers above 0."),
    ],
)
def test_edges_refuse_what_no_axis_has(arguments: tuple[float, float, int], message: str) -> None:
    """The message says what was given and what is expected."""
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.")):
        edges_between(*arguments)


def test_points_out_of_order_are_refused() -> None:
    """Their place is named; NaN has no place on an axis either."""
    edges = np.array([0.0, 1.0])
    with pytest.raises(ValueError, match=r"x descends from 2\.0 to 1\.0 at point 1; expected points in the order of x"):
        decimate(np.array([2.0, 1.0]), np.zeros(2), edges)
    with pytest.raises(ValueError, match=r"x descends from 2\.0 to nan at point 1"):
        decimate(np.array([2.0, np.nan]), np.zeros(2), edges)
    with pytest.raises(ValueError, match=r"x has shape \(2,\) and y \(3,\); expected one x for each y"):
        decimate(np.zeros(2), np.zeros(3), edges)
    with pytest.raises(ValueError, match="edges descend, or are fewer than 2; expected ascending numbers"):
        decimate(np.zeros(2), np.zeros(2), edges[::-1])
