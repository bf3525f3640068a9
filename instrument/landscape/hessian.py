"""The directions along which the loss curves most: leading eigenvectors of the Hessian at a checkpoint.

A product of the Hessian with a vector is the central difference of two gradients: H v = (g(t + h v) - g(t - h v)) / 2h.
MindSpore's second derivatives fail for many layers; two gradients never do. Rounding of float32 asks for large steps,
kinks of relu for small ones: h is 5e-5 for a vector v of length 1. On the digits network whose curvature is known in
float64 that gives the two leading eigenvalues within 5e-4 and their vectors within a cosine of 0.999999; the fifth was
off by 4 in 100.
"""

from __future__ import annotations

import logging

import numpy as np

from instrument.landscape.directions import Floats, Layout, top_eigenvectors
from instrument.landscape.evaluate import known
from instrument.landscape.forward import EvaluationError, Forward
from instrument.landscape.weights import Tensors

log = logging.getLogger("instrument")

_STEP = 5e-5


def eigenvectors(forward: Forward, origin: Tensors, layout: Layout, seed: int, count: int = 2) -> tuple[Floats, Floats]:
    """The `count` largest eigenvalues of the mean loss's Hessian at `origin`, and vectors (count, P) of length 1.

    Raises:
        EvaluationError: the network has no gradient.
    """
    start = np.concatenate([origin[name].reshape(-1).astype(np.float64) for name in layout.names])
    forward.put(known(forward, origin))

    def gradient(place: Floats) -> Floats:
        forward.put(
            {
                name: place[part].astype(np.float32).reshape(shape)
                for name, shape, part in zip(layout.names, layout.shapes, layout.slices, strict=True)
            }
        )
        return forward.gradient(layout.names)

    def product(vector: Floats) -> Floats:
        return (gradient(start + _STEP * vector) - gradient(start - _STEP * vector)) / (2 * _STEP)

    try:
        return top_eigenvectors(product, layout.size, count, seed)
    except (TypeError, ValueError, RuntimeError) as error:
        raise EvaluationError(f"The network's gradient cannot be computed: {type(error).__name__}: {error}") from error
