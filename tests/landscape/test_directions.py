"""Directions: against NumPy's SVD and eigenvalues, rules of normalisation, and paths that span no plane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from instrument.landscape import directions
from instrument.landscape.directions import Layout, NoPlane

LAYOUT = Layout(("conv", "fc", "bias"), ((4, 3, 2), (5, 7), (6,)))


def path_of(rng: np.random.Generator, count: int, *sizes: int) -> list[list[Any]]:
    """A random walk: checkpoints that go one way more than another."""
    steps = [np.cumsum(rng.standard_normal((count, size)), axis=0).astype(np.float32) for size in sizes]
    return [[tensor[i] for tensor in steps] for i in range(count)]


def matrix(path: list[list[Any]]) -> np.ndarray[Any, Any]:
    return np.array([np.concatenate(one) for one in path], np.float64)


def rows_of(path: list[list[Any]], kind: str) -> np.ndarray[Any, Any]:
    whole = matrix(path)
    if kind == "centred":
        return whole - whole.mean(axis=0)
    rows = whole[:-1] - whole[-1]
    return rows - rows.mean(axis=1, keepdims=True) if kind == "mindspore" else rows


@pytest.mark.parametrize("kind", directions.PRINCIPAL)
@pytest.mark.parametrize("count", [3, 8, 30])
def test_axes_are_the_leading_singular_vectors(rng: np.random.Generator, kind: str, count: int) -> None:
    """Of the rows that define each kind, with tensors that are larger than a block, and the sign rule."""
    path = path_of(rng, count, 40_000, 3, 513)
    found = directions.principal_axes(path, kind)
    _, singular, vectors = np.linalg.svd(rows_of(path, kind), full_matrices=False)
    for axis, vector in zip(found.vectors, vectors, strict=False):
        sign = np.sign(vector[np.argmax(np.abs(vector))])
        np.testing.assert_allclose(axis, sign * vector, rtol=0, atol=1e-9)
        assert axis[np.argmax(np.abs(axis))] > 0
    np.testing.assert_allclose(found.singular_values[:2], singular[:2], rtol=1e-10)
    np.testing.assert_allclose(found.explained, singular**2 / np.sum(singular**2), atol=1e-10)


def test_coordinates_are_least_squares(rng: np.random.Generator) -> None:
    """On axes that are neither orthogonal nor of length 1, with the share of each difference off the plane."""
    path = path_of(rng, 6, 2000, 10)
    axes = rng.standard_normal((2, 2010))
    coordinates, share = directions.project(path, axes)
    rows = matrix(path) - matrix(path)[-1]
    expected = np.linalg.lstsq(axes.T, rows.T, rcond=None)[0].T
    np.testing.assert_allclose(coordinates, expected, atol=1e-9)
    off = np.linalg.norm(rows - expected @ axes, axis=1)
    np.testing.assert_allclose(share[:-1], (off / np.linalg.norm(rows, axis=1).clip(1e-9))[:-1], atol=1e-9)
    assert (coordinates[-1].tolist(), share[-1]) == ([0.0, 0.0], 0.0)


@pytest.mark.parametrize("kind", directions.PRINCIPAL)
def test_paths_without_a_plane_are_refused(rng: np.random.Generator, kind: str) -> None:
    """A constant path, and one along a line, say which of the two they are."""
    start, along = rng.standard_normal((2, 50))
    with pytest.raises(NoPlane, match=r"4 checkpoints hold the same weights"):
        directions.principal_axes([[start.astype(np.float32)]] * 4, kind)
    with pytest.raises(NoPlane, match=r"lie on one line.*compute_line"):
        directions.principal_axes([[start + t * along] for t in (0.0, 1.0, 2.0, 4.0)], kind)


def test_layer_normalisation_gives_each_tensor_its_length(rng: np.random.Generator) -> None:
    """Biases too; what has no length, there or here, is not moved, and nothing is NaN."""
    origin = [rng.standard_normal(24), np.zeros(35), rng.standard_normal(6)]
    direction = rng.standard_normal(65)
    direction[59:] = 0
    found = directions.normalized(direction, origin, LAYOUT, "layer")
    assert np.linalg.norm(found[:24]) == pytest.approx(np.linalg.norm(origin[0]))
    np.testing.assert_allclose(found[:24] / np.linalg.norm(found[:24]), direction[:24] / np.linalg.norm(direction[:24]))
    assert not found[24:].any()


def test_filter_normalisation_gives_each_row_its_length(rng: np.random.Generator) -> None:
    """Filter by filter; a filter of zeros, and all biases, are not moved."""
    origin = [rng.standard_normal(24), rng.standard_normal(35), rng.standard_normal(6)]
    origin[0].reshape(4, 6)[2] = 0
    direction = rng.standard_normal(65)
    found = directions.normalized(direction, origin, LAYOUT, "filter")
    for place, rows, tensor in ((slice(0, 24), 4, origin[0]), (slice(24, 59), 5, origin[1])):
        lengths = np.linalg.norm(found[place].reshape(rows, -1), axis=1)
        np.testing.assert_allclose(lengths, np.linalg.norm(tensor.reshape(rows, -1), axis=1), rtol=1e-12)
    assert not found[12:18].any()
    assert not found[59:].any()
    assert np.isfinite(found).all()


def test_random_axes_are_the_same_for_a_seed() -> None:
    """Standard normal entries, the same for the same seed and others for another."""
    layout = Layout(("w",), ((100, 100),))
    found = directions.random_axes(layout, 3)
    np.testing.assert_array_equal(found, directions.random_axes(layout, 3))
    assert not np.array_equal(found, directions.random_axes(layout, 4))
    assert abs(found.std() - 1) < 0.02


def test_directions_without_a_plane_are_refused() -> None:
    """A direction that is zero, or parallel to the other, is said."""
    one = np.ones(8)
    with pytest.raises(NoPlane, match="Direction 2 is zero"):
        directions.cosine(np.array([one, 0 * one]))
    with pytest.raises(NoPlane, match="parallel"):
        directions.cosine(np.array([one, -3 * one]))
    assert directions.cosine(np.array([[1.0, 0.0], [1.0, 1.0]])) == pytest.approx(np.sqrt(0.5))


def test_unmoved_tensors_are_found() -> None:
    """A tensor that is the same in all checkpoints, to the last bit."""
    still, moved = np.ones(3), [np.full(2, t) for t in (1.0, 1.0, 1.0 + 1e-15)]
    assert directions.unmoved([[still, one] for one in moved]) == [True, False]
