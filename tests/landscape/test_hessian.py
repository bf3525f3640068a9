"""Eigenvectors: against NumPy's, of products that are exact, rounded, and noisy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from instrument.landscape.hessian import Product, top_eigenvectors


@pytest.fixture
def basis() -> Any:
    return np.linalg.qr(np.random.default_rng(5).standard_normal((60, 60)))[0]


def exact(matrix: Any) -> Product:
    return lambda vector, _: (vector, matrix @ vector)


def test_top_eigenvectors_are_those_of_the_matrix(basis: Any) -> None:
    """Lanczos finds the largest eigenvalues, not those of largest magnitude, and their vectors."""
    values = np.concatenate([[9.0, 5.0, 3.0], np.linspace(1, -7, 57)])
    matrix = basis @ np.diag(values) @ basis.T
    found, vectors = top_eigenvectors(exact(matrix), 60, 3, seed=1, tolerance=1e-9)
    np.testing.assert_allclose(found, [9, 5, 3], rtol=1e-6)
    for i in range(3):
        assert abs(vectors[i] @ basis[:, i]) > 0.9999
        assert vectors[i][np.argmax(np.abs(vectors[i]))] > 0


@pytest.mark.parametrize("seed", range(3))
def test_a_vector_that_was_rounded_costs_little(basis: Any, seed: int) -> None:
    """Who multiplies rounds to 7 bits, and tells so: the values are within 4e-4, and far from that if it does not."""
    matrix = basis @ np.diag(np.concatenate([[9.0, 5.0, 3.0], np.linspace(1, 0, 57)])) @ basis.T

    def away(tells: bool) -> float:
        def rounded(vector: Any, _: int) -> tuple[Any, Any]:
            taken = np.round(vector * 128) / 128
            return taken if tells else vector, matrix @ taken

        return float(np.abs(top_eigenvectors(rounded, 60, 3, seed, 40)[0] / [9, 5, 3] - 1).max())

    assert away(True) < 4e-4 < away(False)


def test_fewer_eigenvectors_where_there_are_fewer() -> None:
    """A matrix of size one gives one; the zero matrix gives a value of 0."""
    values, vectors = top_eigenvectors(lambda v, _: (v, 4 * v), 1, 2)
    assert (values.tolist(), vectors.tolist()) == ([4.0], [[1.0]])
    assert top_eigenvectors(lambda v, _: (v, 0 * v), 5, 2)[0].tolist() == [0.0]
