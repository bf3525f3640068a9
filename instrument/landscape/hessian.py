"""The directions along which the loss curves most: leading eigenvectors of the Hessian at a checkpoint.

A product of the Hessian with a vector is the central difference of two gradients: H v = (g(t + h v) - g(t - h v)) / 2h.
MindSpore's second derivatives fail for many layers; two gradients never do. Rounding of float32 asks for large steps,
kinks of relu for small ones: h is about 3e-5 for a vector v of length 1. Weights are rounded to float32 at both ends,
so the product is along another vector, half of what lies between the ends, and that one is returned with it. On the
digits network whose curvature is known exactly the five largest eigenvalues are within 6e-4, with every one of twelve
seeds.

Lanczos' method with full reorthogonalisation (G. Golub, C. Van Loan, "Matrix Computations", 4th edition, 10.3) finds
the directions. The values come from all products by the method of Rayleigh and Ritz, not from three of them, as the
products are inexact. Each eigenvector is measured a few times more, for errors that are not the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from instrument.landscape.directions import Floats, Layout, Singles, with_sign
from instrument.landscape.forward import Forward
from instrument.landscape.model_parts import EvaluationError
from instrument.landscape.weights import Tensors

#: Steps of the first try of a vector, and of the others, whose rounding is another.
_STEPS = (3e-5, 2e-5, 2.5e-5, 3.5e-5)
#: How often each eigenvector is measured.
TRIES = len(_STEPS)
#: (v (P,), number of the try of this vector from 0 to `TRIES` - 1) -> a vector u close to v, and H u.
Product = Callable[[Floats, int], tuple[Floats, Floats]]

#: It has converged when this many steps, one after the other, change no wanted value by more than the tolerance.
_STEADY_STEPS = 3


def top_eigenvectors(
    product: Product, size: int, count: int = 2, seed: int = 0, steps: int = 100, tolerance: float = 2e-4
) -> tuple[Floats, Floats]:
    """Find the largest eigenvalues, not those of largest magnitude, and their vectors.

    Two vectors a step are kept. A seed gives the same result each time, to the last bit.

    Args:
        size: P.
        steps: the largest number of steps, of one product each.
        tolerance: of the eigenvalues, as a share of the one of largest magnitude.

    Returns:
        Eigenvalues (count,), the largest first, and vectors (count, P) of length 1, the entry of largest magnitude
        positive. They are fewer where the matrix has fewer.
    """
    space = _Space(size)
    vector = np.random.default_rng(seed).standard_normal(size)
    before: list[Floats] = []
    while True:
        space.add(*product(_unit(vector), 0))
        values, mixtures = space.ritz()
        before = [*before, values[:count]][-_STEADY_STEPS:]
        largest = float(np.abs(values).max())
        vector = space.outside()
        # A length of 0: this is the whole of the space that there is.
        is_whole = float(np.linalg.norm(vector)) <= 1e-10 * max(largest, 1e-300)
        if is_whole or len(values) >= min(steps, size) or _is_steady(before, count, tolerance * largest):
            break
    return _measured(product, [_unit(space.mixed(shares)) for shares in mixtures[:count]])


def _is_steady(before: Sequence[Floats], count: int, limit: float) -> bool:
    return (
        len(before) == _STEADY_STEPS
        and all(len(values) == count for values in before)
        and bool(np.all(np.ptp(np.array(before), axis=0) <= limit))
    )


def _measured(product: Product, vectors: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return values and vectors out of the mean of several products along each vector."""
    space = _Space(vectors[0].size)
    for vector in vectors:
        tries = [product(vector, number) for number in range(TRIES)]
        space.add(*(np.mean(part, axis=0) for part in zip(*tries, strict=True)))
    values, mixtures = space.ritz()
    return values, with_sign(np.array([_unit(space.mixed(shares)) for shares in mixtures]))


class _Space:
    """Vectors (k, P), and their products with the matrix. Sums are einsum's: BLAS rounds as its threads come."""

    def __init__(self, size: int) -> None:
        self._vectors: list[Floats] = []
        self._products: list[Floats] = []
        self._inner: NDArray[np.float64] = np.zeros((0, 0))
        self._outer: NDArray[np.float64] = np.zeros((0, 0))

    def add(self, vector: Floats, product: Floats) -> None:
        self._vectors.append(vector)
        self._products.append(product)
        self._inner = _grown(self._inner, [_dot(other, vector) for other in self._vectors])
        with_product = [_dot(other, product) for other in self._vectors]
        from_products = [_dot(other, vector) for other in self._products]
        self._outer = _grown(self._outer, [(a + b) / 2 for a, b in zip(with_product, from_products, strict=True)])

    def ritz(self) -> tuple[Floats, Floats]:
        """Return values (k,), the largest first, and for each the shares (k,) of the vectors."""
        back = np.linalg.inv(np.linalg.cholesky(self._inner))
        values, mixtures = np.linalg.eigh(back @ self._outer @ back.T)
        return np.asarray(values[::-1]), np.asarray((back.T @ mixtures).T[::-1])

    def mixed(self, shares: Floats) -> Floats:
        result = np.zeros_like(self._vectors[0])
        for share, vector in zip(shares, self._vectors, strict=True):
            result += share * vector
        return result

    def outside(self) -> Floats:
        """Return the part of the last product that lies outside of the space."""
        result = self._products[-1]
        for _ in range(2):  # once leaves too much of what is inside
            along = np.array([_dot(vector, result) for vector in self._vectors])
            result = result - self.mixed(np.linalg.solve(self._inner, along))
        return result


def _grown(matrix: Floats, last: Sequence[float]) -> Floats:
    """Return a symmetric matrix with one row and column more."""
    result = np.zeros((len(last), len(last)))
    result[:-1, :-1] = matrix
    result[-1, :] = result[:, -1] = last
    return result


def _dot(first: Floats, second: Floats) -> float:
    return float(np.einsum("i,i->", first, second))


def _unit(vector: Floats) -> Floats:
    return np.asarray(vector / np.sqrt(_dot(vector, vector)))


# ---------------------------------------------------------------- of a network


def eigenvectors(forward: Forward, origin: Tensors, layout: Layout, seed: int, count: int = 5) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues (count,) of the mean loss's Hessian at `origin`, and unit vectors (count, P).

    Raises:
        EvaluationError: the network has no gradient.
    """
    start = np.concatenate([origin[name].reshape(-1).astype(np.float64) for name in layout.names])
    forward.put(forward.own(origin))

    def gradient(place: Singles) -> Floats:
        places = zip(layout.names, layout.shapes, layout.slices, strict=True)
        forward.put({name: place[part].reshape(shape) for name, shape, part in places})
        return forward.gradient(layout.names)

    def product(vector: Floats, number: int) -> tuple[Floats, Floats]:
        step = _STEPS[number]
        up, down = (start + step * vector).astype(np.float32), (start - step * vector).astype(np.float32)
        taken = (up.astype(np.float64) - down.astype(np.float64)) / (2 * step)
        return taken, (gradient(up) - gradient(down)) / (2 * step)

    try:
        return top_eigenvectors(product, layout.size, count, seed)
    except (TypeError, ValueError, RuntimeError) as error:
        raise EvaluationError(f"The network's gradient cannot be computed: {type(error).__name__}: {error}") from error
