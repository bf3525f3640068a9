"""The directions along which the loss curves most: leading eigenvectors of the Hessian at a checkpoint.

A product of the Hessian with a vector is the central difference of two gradients: H v = (g(t + h v) - g(t - h v)) / 2h.
MindSpore's second derivatives fail for many layers; two gradients never do. Rounding of float32 asks for large steps,
kinks of relu for small ones: h is about 3e-5 for a vector v of length 1. Weights are rounded to float32 at both ends,
so that the product is really along another vector, half of what lies between them, and that one is told. On the digits
network whose curvature is known exactly the five largest eigenvalues are within 6e-4, with every one of twelve seeds.
"""

from __future__ import annotations

import logging

import numpy as np

from instrument.landscape.directions import Floats, Layout, Singles
from instrument.landscape.evaluate import known
from instrument.landscape.forward import Forward
from instrument.landscape.lanczos import TRIES, top_eigenvectors
from instrument.landscape.parts import EvaluationError
from instrument.landscape.weights import Tensors

log = logging.getLogger("instrument")

#: Of the first try of a vector, and of the others, whose rounding is another.
_STEPS = (3e-5, 2e-5, 2.5e-5, 3.5e-5)
assert len(_STEPS) == TRIES


def eigenvectors(forward: Forward, origin: Tensors, layout: Layout, seed: int, count: int = 5) -> tuple[Floats, Floats]:
    """The `count` largest eigenvalues of the mean loss's Hessian at `origin`, and vectors (count, P) of length 1.

    Raises:
        EvaluationError: the network has no gradient.
    """
    start = np.concatenate([origin[name].reshape(-1).astype(np.float64) for name in layout.names])
    forward.put(known(forward, origin))

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
