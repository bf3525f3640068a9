"""Smooth a series, and summarise several series that share an x axis.

Everything is computed from all points, never from those that a chart has room for. Values that are not finite stay
where they are and take no part.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.facts.decimate import bucket_starts

Centre = Literal["mean", "median", "min", "max"]
Spread = Literal["std", "standard_error", "range", "quartiles"]
CENTRES = ("mean", "median", "min", "max")
SPREADS = ("std", "standard_error", "range", "quartiles")
#: The medians of windows are computed for as many values at once as fit into this.
_BLOCK_BYTES = 16 << 20


def exponential(values: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """Return the exponential moving average of `values`, corrected for its start at 0.

    With n finite values up to here, the average is (1 - w) sum w^(n-k) v_k / (1 - w^n). It is updated by
    y += (v - y) (1 - w) / (1 - w^n), so that a constant stays the same to the bit, and the beginning of a
    series has the same averages as the whole of it.

    Raises:
        ValueError: `weight` is not from 0 to 0.9999.
    """
    if not 0 <= weight <= 0.9999:
        raise ValueError(f"weight is {weight}; expected a number from 0 to 0.9999.")
    average, share, result = 0.0, 0.0, []
    for value in values.tolist():
        if math.isfinite(value):
            share = share * weight + 1.0
            average = _moved(average, value, share)
            result.append(average)
        else:
            result.append(value)
    return np.asarray(result, np.float64)


def half_life(x: NDArray[np.generic], values: NDArray[np.float64], distance: float) -> NDArray[np.float64]:
    """Return the exponential moving average in which a value counts half after `distance` units of x.

    For points at irregular x. The average at a point is that of all finite values v_k up to it with the weights
    2^((x_k - x) / distance).

    Raises:
        ValueError: `distance` is not a finite number above 0, or `x` descends or is not finite.
    """
    if not (math.isfinite(distance) and distance > 0):
        raise ValueError(f"distance is {distance}; expected a finite number above 0.")
    positions = np.asarray(x, np.float64)
    if not (np.isfinite(positions).all() and np.all(positions[1:] >= positions[:-1])):
        raise ValueError("x descends or is not finite; expected points in the order of x.")
    average, share, before, result = 0.0, 0.0, 0.0, []
    for position, value in zip(positions.tolist(), values.tolist(), strict=True):
        if math.isfinite(value):
            share = share * 0.5 ** ((position - before) / distance) + 1.0 if share else 1.0
            before = position
            average = _moved(average, value, share)
            result.append(average)
        else:
            result.append(value)
    return np.asarray(result, np.float64)


def _moved(average: float, value: float, share: float) -> float:
    """Return the average moved towards a value that has the weight 1 / share in it."""
    if share == 1.0:
        return value
    change = value - average
    # The difference of two large numbers may be infinite.
    return average + change / share if math.isfinite(change) else average + (value / share - average / share)


def window_mean(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the mean of the `size` values around each value; at the ends, of those that there are.

    Sums are built by doubling, as running sums would lose small values behind large ones. A mean lies between the least
    and the greatest value of its window, so a constant stays the same to the bit.

    Raises:
        ValueError: `size` is not an odd number above 0.
    """
    _check_size(size)
    is_finite = np.isfinite(values)
    counts = _over_windows(is_finite.astype(np.float64), size, np.add, 0.0)
    # Divided first: the sum of large numbers may be infinite.
    scale = 2.0 ** math.ceil(math.log2(size))
    with np.errstate(all="ignore"):
        sums = _over_windows(np.where(is_finite, values / scale, 0.0), size, np.add, 0.0)
        means = sums / counts * scale
        low = _over_windows(np.where(is_finite, values, np.inf), size, np.minimum, np.inf)
        high = _over_windows(np.where(is_finite, values, -np.inf), size, np.maximum, -np.inf)
    return np.where(is_finite, np.minimum(np.maximum(means, low), high), values)


def window_median(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the median of the finite values among the `size` around each value; at the ends, of those that there are.

    Raises:
        ValueError: `size` is not an odd number above 0.
    """
    _check_size(size)
    half = size // 2
    finite = np.where(np.isfinite(values), values, np.nan)
    padded = np.concatenate([np.full(half, np.nan), finite, np.full(half, np.nan)])
    result = values.copy()
    rows = max(1, _BLOCK_BYTES // (8 * size))
    for start in range(0, values.size, rows):
        chosen = np.flatnonzero(np.isfinite(values[start : start + rows])) + start
        if chosen.size:
            windows = np.sort(np.lib.stride_tricks.sliding_window_view(padded, size)[chosen], axis=1)  # NaN comes last
            counts = np.count_nonzero(~np.isnan(windows), axis=1)
            row = np.arange(chosen.size)
            low, high = windows[row, (counts - 1) // 2], windows[row, counts // 2]
            # Halved first: the sum of large numbers may be infinite.
            result[chosen] = np.clip(low / 2 + high / 2, low, high)
    return result


def _check_size(size: int) -> None:
    if size < 1 or size % 2 == 0:
        raise ValueError(f"size is {size}; expected an odd number of values above 0.")


def _over_windows(values: NDArray[np.float64], size: int, combine: np.ufunc, neutral: float) -> NDArray[np.float64]:
    """Combine the `size` values around each value, in about log2(size) passes over all of them."""
    half = size // 2
    doubled = np.concatenate([np.full(half, neutral), values, np.full(half, neutral)])
    result, offset, width = np.full(values.size, neutral), 0, 1
    while offset < size:
        # doubled[i] combines `width` values from i on.
        if size & width:
            result = combine(result, doubled[offset : offset + values.size])
            offset += width
        if offset < size:
            doubled = combine(doubled[:-width], doubled[width:])
        width *= 2
    return np.asarray(result, np.float64)


class Group(NamedTuple):
    """Several series as one: centre, lower and upper end of the spread (float64), and the number of series (int64)."""

    centre: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    counts: NDArray[np.int64]


def bucket_means(
    x: NDArray[np.int64] | NDArray[np.float64], y: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean of the finite values in each bucket of `decimate.bucket_starts`, NaN where there is none."""
    starts = bucket_starts(x, edges)
    sizes = np.diff(starts)
    values = y[starts[0] : starts[-1]]
    buckets = np.repeat(np.arange(sizes.size), sizes)
    is_finite = np.isfinite(values)
    counts = np.bincount(buckets[is_finite], minlength=sizes.size)
    with np.errstate(all="ignore"):
        # Each value divided by the count first: the sum of large numbers may be infinite.
        means = np.bincount(buckets[is_finite], values[is_finite] / counts[buckets[is_finite]], minlength=sizes.size)
    return np.where(counts > 0, means, np.nan)


def grouped(members: NDArray[np.float64], centre: Centre = "mean", spread: Spread = "std") -> Group:
    """Summarise series at each place of their common x axis.

    `members` has shape (series, places); what is not finite is no value. `std` is the standard deviation of the sample
    (divided by n - 1; 0 for a single series), `standard_error` that by the root of n, `range` least to greatest,
    `quartiles` the 25th to the 75th percentile. Places without a value are NaN, and their count is 0.

    Raises:
        ValueError: `centre` or `spread` is unknown.
    """
    if centre not in CENTRES:
        raise ValueError(f"centre is {centre!r}; expected one of {', '.join(map(repr, CENTRES))}.")
    if spread not in SPREADS:
        raise ValueError(f"spread is {spread!r}; expected one of {', '.join(map(repr, SPREADS))}.")
    is_finite = np.isfinite(members)
    counts = np.count_nonzero(is_finite, axis=0)
    n = counts[counts > 0]
    chosen = np.where(is_finite, members, np.nan)[:, counts > 0]
    if not n.size:
        nothing = np.full(counts.size, np.nan)
        return Group(nothing, nothing.copy(), nothing.copy(), counts)
    # Scaled by a power of 2, as the square or the sum of large numbers is infinite.
    scale = 2.0 ** np.floor(np.log2(np.maximum(np.nanmax(np.abs(chosen)), np.finfo(np.float64).tiny)))
    chosen = chosen / scale
    if centre in ("mean", "median"):
        middle = np.nanmean(chosen, axis=0) if centre == "mean" else np.nanmedian(chosen, axis=0)
    else:
        middle = np.nanmin(chosen, axis=0) if centre == "min" else np.nanmax(chosen, axis=0)
    if spread == "range":
        low, high = np.nanmin(chosen, axis=0), np.nanmax(chosen, axis=0)
    elif spread == "quartiles":
        low, high = np.nanpercentile(chosen, [25, 75], axis=0)
    else:
        deviation = np.sqrt(np.nansum((chosen - np.nanmean(chosen, axis=0)) ** 2, axis=0) / np.maximum(n - 1, 1))
        deviation = deviation / np.sqrt(n) if spread == "standard_error" else deviation
        low, high = middle - deviation, middle + deviation
    # An end of the spread may lie beyond the largest float.
    with np.errstate(over="ignore"):
        centred, lower, upper = (_spread_out(part * scale, counts) for part in (middle, low, high))
    return Group(centred, lower, upper, counts)


def _spread_out(values: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return an array with the values at the places that have a count, and NaN elsewhere."""
    result = np.full(counts.size, np.nan)
    result[counts > 0] = values
    return result
