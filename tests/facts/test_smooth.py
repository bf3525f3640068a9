"""Smoothed series and groups of series, beside the definitions computed with NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from instrument.facts import smooth
from instrument.facts.decimate import edges_between

Smoother = Callable[[NDArray[np.float64]], NDArray[np.float64]]
SMOOTHERS: dict[str, Smoother] = {
    "exponential": lambda values: smooth.exponential(values, 0.97),
    "half_life": lambda values: smooth.half_life(np.arange(values.size), values, 7.5),
    "window_mean": lambda values: smooth.window_mean(values, 7),
    "window_median": lambda values: smooth.window_median(values, 7),
}


@pytest.fixture(params=SMOOTHERS)
def smoother(request: pytest.FixtureRequest) -> Smoother:
    """Each way to smooth."""
    return SMOOTHERS[request.param]


def test_exponential_average_is_the_weighted_mean(rng: np.random.Generator) -> None:
    """Of all finite values up to each point, with weights that fall by a factor from value to value."""
    values = rng.normal(size=200)
    values[rng.choice(200, 40, replace=False)] = np.nan
    finite = values[~np.isnan(values)]
    expected = [np.average(finite[: n + 1], weights=0.9 ** np.arange(n, -1, -1.0)) for n in range(finite.size)]
    found = smooth.exponential(values, 0.9)
    np.testing.assert_allclose(found[~np.isnan(values)], expected, rtol=1e-12)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))


def test_half_life_weighs_by_distance(rng: np.random.Generator) -> None:
    """A value counts half after that distance, at whatever distances the points stand."""
    x = np.sort(rng.integers(0, 100, 50))
    values = rng.normal(size=50)
    expected = [np.average(values[: n + 1], weights=0.5 ** ((x[n] - x[: n + 1]) / 8.0)) for n in range(50)]
    np.testing.assert_allclose(smooth.half_life(x, values, 8.0), expected, rtol=1e-10)


@pytest.mark.parametrize("size", [1, 3, 5, 7, 15, 33, 101])
def test_windows_are_centred(rng: np.random.Generator, size: int) -> None:
    """Mean and median of the finite values around each point, fewer at the ends."""
    values = rng.normal(size=60) * 10.0 ** rng.integers(-3, 3, 60)
    values[rng.choice(60, 9, replace=False)] = rng.choice([np.nan, np.inf, -np.inf], 9)
    finite = np.where(np.isfinite(values), values, np.nan)
    half = size // 2
    windows = [finite[max(0, place - half) : place + half + 1] for place in range(60)]
    for found, compute in ((smooth.window_mean, np.nanmean), (smooth.window_median, np.nanmedian)):
        expected = np.array([compute(window) if np.isfinite(window).any() else np.nan for window in windows])
        expected[~np.isfinite(values)] = values[~np.isfinite(values)]
        np.testing.assert_allclose(found(values, size), expected, rtol=1e-12)


def test_a_constant_stays_the_same_to_the_bit(smoother: Smoother) -> None:
    """Of any size, and behind values that are not finite."""
    for constant in (0.1, -1e308, 5e-324, 0.0):
        values = np.full(100, constant)
        values[[0, 50]] = np.nan
        np.testing.assert_array_equal(smoother(values), values)


def test_what_comes_later_changes_no_average_before(rng: np.random.Generator) -> None:
    """The beginning of a series smooths to the beginning of the smoothed series, to the bit."""
    values = rng.normal(size=500)
    for name in ("exponential", "half_life"):
        np.testing.assert_array_equal(SMOOTHERS[name](values)[:123], SMOOTHERS[name](values[:123]))


def test_large_and_small_numbers(smoother: Smoother) -> None:
    """Averages of the largest floats are finite; small values behind a large one keep their digits."""
    assert np.isfinite(smoother(np.array([1.7e308, -1.7e308, 1.7e308] * 5))).all()
    values = np.concatenate([[1e30], np.full(50, 1e-3)])
    assert smooth.window_mean(values, 7)[10:] == pytest.approx(1e-3, rel=1e-12)


def test_no_weight_changes_nothing(rng: np.random.Generator) -> None:
    """Weight 0 and windows of one value."""
    values = rng.normal(size=20)
    np.testing.assert_array_equal(smooth.exponential(values, 0.0), values)
    np.testing.assert_array_equal(smooth.window_mean(values, 1), values)
    np.testing.assert_array_equal(smooth.window_median(values, 1), values)


def test_an_empty_series(smoother: Smoother) -> None:
    """Smooths to an empty one."""
    assert smoother(np.empty(0)).shape == (0,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smooth.exponential(np.zeros(1), 1.0), "weight is 1.0; expected a number from 0 to 0.9999."),
        (lambda: smooth.half_life(np.zeros(1), np.zeros(1), 0.0), "distance is 0.0; expected a finite number above 0."),
        (lambda: smooth.half_life(np.array([1, 0]), np.zeros(2), 1.0), "x descends or is not finite; expected points"),
        (lambda: smooth.window_mean(np.zeros(1), 4), "size is 4; expected an odd number of values above 0."),
        (lambda: smooth.window_median(np.zeros(1), 0), "size is 0; expected an odd number of values above 0."),
        (lambda: smooth.grouped(np.zeros((1, 1)), "mode"), "centre is 'mode'; expected one of 'mean', 'median'"),  # type: ignore[arg-type]
        (lambda: smooth.grouped(np.zeros((1, 1)), spread="iqr"), "spread is 'iqr'; expected one of 'std'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_refused(call: Callable[[], object], message: str) -> None:
    """The message says what was given and what is expected."""
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        call()


def test_bucket_means_are_those_of_their_points(rng: np.random.Generator) -> None:
    """Of finite values only; NaN where a bucket has none."""
    x, y = np.sort(rng.integers(0, 100, 80)), rng.normal(size=80)
    y[::9] = np.nan
    edges = edges_between(5, 95, 13)
    expected = []
    for bucket in range(13):
        inside = (x >= edges[bucket]) & ((x <= edges[-1]) if bucket == 12 else (x < edges[bucket + 1])) & ~np.isnan(y)
        expected.append(y[inside].mean() if inside.any() else np.nan)
    np.testing.assert_allclose(smooth.bucket_means(x, y, edges), expected, rtol=1e-12)
    assert smooth.bucket_means(np.zeros(2), np.full(2, 1.7e308), np.array([0.0, 1.0])) == pytest.approx(1.7e308)


def test_groups_summarise_the_series_that_have_a_value(rng: np.random.Generator) -> None:
    """Centre and spread at each place, beside NumPy's; the number of series is counted."""
    members = rng.normal(size=(6, 40))
    members[rng.random((6, 40)) < 0.4] = np.nan
    members[:, 7] = np.nan
    members[1:, 8] = np.nan
    places = [members[~np.isnan(members[:, place]), place] for place in range(40)]
    counts = np.array([values.size for values in places])
    filled = counts > 0

    def at_places(compute: Callable[[NDArray[np.float64]], float]) -> NDArray[np.float64]:
        return np.array([compute(values) if values.size else np.nan for values in places])

    mean = at_places(lambda values: float(values.mean()))
    deviation = at_places(lambda values: float(values.std(ddof=1)) if values.size > 1 else 0.0)
    for spread, low, high in (
        ("std", mean - deviation, mean + deviation),
        (
            "standard_error",
            mean - deviation / np.sqrt(np.maximum(counts, 1)),
            mean + deviation / np.sqrt(np.maximum(counts, 1)),
        ),
        ("range", at_places(np.min), at_places(np.max)),
        (
            "quartiles",
            at_places(lambda v: float(np.percentile(v, 25))),
            at_places(lambda v: float(np.percentile(v, 75))),
        ),
    ):
        found = smooth.grouped(members, "mean", spread)  # type: ignore[arg-type]
        for part, one in zip(found[:3], (mean, low, high), strict=True):
            np.testing.assert_allclose(part, one, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(found.counts, counts)
    for centre, compute in (("median", np.median), ("min", np.min), ("max", np.max)):
        found = smooth.grouped(members, centre, "range")  # type: ignore[arg-type]
        np.testing.assert_array_equal(found.centre[filled], at_places(compute)[filled])


def test_groups_without_values_and_of_large_numbers() -> None:
    """Nothing is NaN but places without a value; the largest floats have a mean and a spread."""
    for members in (np.full((2, 2), np.nan), np.empty((0, 2)), np.array([[np.inf, np.nan], [-np.inf, np.nan]])):
        for spread in ("std", "standard_error", "range", "quartiles"):
            found = smooth.grouped(members, "mean", spread)  # type: ignore[arg-type]
            np.testing.assert_array_equal(found.counts, [0, 0])
            assert np.isnan(found[:3]).all()
    assert smooth.grouped(np.empty((3, 0))).counts.shape == (0,)
    found = smooth.grouped(np.array([[1e200], [3e200]]))
    np.testing.assert_allclose(
        [found.centre, found.low, found.high], [[2e200], [2e200 - 2**0.5 * 1e200], [2e200 + 2**0.5 * 1e200]]
    )
    assert smooth.grouped(np.array([[1e308], [1.7e308]])).centre == pytest.approx(1.35e308)
    quartiles = smooth.grouped(np.array([[-1.7e308], [1.7e308]]), "median", "quartiles")
    assert quartiles.low[0] < quartiles.centre[0] == 0.0 < quartiles.high[0]
