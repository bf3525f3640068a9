"""Reduce a series to what a chart can show: the least and the greatest point of each bucket of x.

The problem: a chart is some thousand pixels wide and a series may have millions of points. Sampling them loses the one
spike that the user is looking for, and averaging draws values that nobody recorded.

The strategy: the caller lays edges over the x axis, about one bucket for two pixels. Of each bucket the points with the
least and the greatest value are kept, in the order in which they were recorded, so that every drawn value is a recorded
one and the drawn range of each bucket is that of all its points. Series that share edges can be drawn on one x axis.
NaN and infinities have no place on a y axis; they are counted for each bucket.

Rejected: largest triangle three buckets (LTTB). It looks smoother, and drops extremes that stand beside larger ones.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Scale = Literal["linear", "log"]


class Decimated(NamedTuple):
    """The points that represent a series of n points in b buckets.

    `points` (int64, shape (b, 2)) are the indices of the least and the greatest finite value of each bucket, ascending;
    both are -1 where a bucket has none. `finite`, `nan`, `positive_infinity` and `negative_infinity` (int64,
    shape (b,)) count the values of each bucket. `first` and `last` are the indices of the first and the last finite
    value within the edges, -1 if there is none.
    """

    points: NDArray[np.int64]
    finite: NDArray[np.int64]
    nan: NDArray[np.int64]
    positive_infinity: NDArray[np.int64]
    negative_infinity: NDArray[np.int64]
    first: int
    last: int

    def drawn(self) -> NDArray[np.int64]:
        """Return the indices of all points to be drawn, ascending and each once."""
        ends = [index for index in (self.first, self.last) if index >= 0]
        return np.unique(np.concatenate([self.points[self.points >= 0], np.asarray(ends, np.int64)]))


def edges_between(first: float, last: float, buckets: int, scale: Scale = "linear") -> NDArray[np.float64]:
    """Return `buckets + 1` ascending edges from `first` to `last`, equally wide on the given scale.

    Raises:
        ValueError: `first` is not below `last`, one of them is not finite, or is not above 0 on a logarithmic scale.
    """
    if buckets < 1:
        raise ValueError(f"buckets is {buckets}; expected at least 1.")
    if not (np.isfinite(first) and np.isfinite(last) and first < last):
        raise ValueError(f"The x range is {first} to {last}; expected two finite numbers, the smaller one first.")
    if scale == "log" and first <= 0:
        raise ValueError(f"The x range begins at {first}; a logarithmic axis expects numbers above 0.")
    # Interpolated between the halves, as last - first may be beyond the largest float.
    share = np.arange(buckets + 1) / buckets
    low, high = (np.log(first), np.log(last)) if scale == "log" else (first, last)
    edges = low * (1 - share) + high * share
    edges = np.exp(edges) if scale == "log" else edges
    edges[0], edges[-1] = first, last
    return np.asarray(np.maximum.accumulate(edges), np.float64)


def decimate(
    x: NDArray[np.int64] | NDArray[np.float64], y: NDArray[np.float64], edges: NDArray[np.float64]
) -> Decimated:
    """Reduce the points within `edges` to the least and the greatest of each bucket.

    Args:
        x: Positions of the n points, not descending, without NaN.
        y: Their values, float64.
        edges: b + 1 edges of the buckets, not descending. Bucket i covers `edges[i] <= x < edges[i + 1]`; the last one
            includes its right edge.

    Raises:
        ValueError: lengths differ, or `x` or `edges` descend.
    """
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"x has shape {x.shape} and y {y.shape}; expected one x for each y.")
    # The first position that descends, or that is NaN: neither comparison holds for it.
    if x.size > 1 and not np.all(x[1:] >= x[:-1]):
        at = int(np.argmin(x[1:] >= x[:-1])) + 1
        raise ValueError(f"x descends from {x[at - 1]} to {x[at]} at point {at}; expected points in the order of x.")
    if edges.size < 2 or not np.all(edges[1:] >= edges[:-1]):
        raise ValueError("edges descend, or are fewer than 2; expected ascending numbers.")
    starts = bucket_starts(x, edges)
    sizes = np.diff(starts)
    values = y[starts[0] : starts[-1]]
    is_finite = np.isfinite(values)
    nan, above, below = (_count(kind, sizes) for kind in (np.isnan(values), values == np.inf, values == -np.inf))
    finite = sizes - nan - above - below
    points = np.full((sizes.size, 2), -1, np.int64)
    is_filled = finite > 0
    for column, extreme, neutral in ((0, np.minimum, np.inf), (1, np.maximum, -np.inf)):
        comparable = values if is_finite.all() else np.where(is_finite, values, neutral)
        points[is_filled, column] = starts[0] + _first_extremes(comparable, sizes, is_filled, extreme)
    points.sort(axis=1)
    places = starts[0] + np.flatnonzero(is_finite)
    first, last = (int(places[0]), int(places[-1])) if places.size else (-1, -1)
    return Decimated(points, finite, nan, above, below, first, last)


def bucket_starts(x: NDArray[np.int64] | NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the index of the first point of each bucket, and behind them that of the first point after the last one.

    Bucket i covers `edges[i] <= x < edges[i + 1]`; the last one includes its right edge.
    """
    starts = np.searchsorted(x, edges, side="left")
    starts[-1] = np.searchsorted(x, edges[-1], side="right")
    return starts


def _count(is_kind: NDArray[np.bool_], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of True values in each of the successive buckets of these sizes."""
    if not is_kind.any():
        return np.zeros(sizes.size, np.int64)
    return np.bincount(np.repeat(np.arange(sizes.size), sizes)[is_kind], minlength=sizes.size)


def _first_extremes(
    values: NDArray[np.float64], sizes: NDArray[np.int64], is_filled: NDArray[np.bool_], extreme: np.ufunc
) -> NDArray[np.int64]:
    """Return the index of the first least (or greatest) value of each bucket that has a finite one."""
    filled = np.flatnonzero(is_filled)
    if not filled.size:
        return np.empty(0, np.int64)
    starts = np.cumsum(sizes) - sizes
    has_points = sizes > 0
    extremes = np.empty(sizes.size)
    extremes[has_points] = extreme.reduceat(values, starts[has_points])
    hits = np.flatnonzero(values == np.repeat(extremes, sizes))
    return hits[np.searchsorted(hits, starts[filled])]
