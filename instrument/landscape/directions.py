"""Compute two directions in the space of all weights, and where checkpoints lie on their plane.

Weights are never put together into one matrix: a checkpoint is a list of flat arrays, one a tensor, and everything here
goes over them in blocks. The principal axes of n checkpoints with P weights come from the n x n matrix of their inner
products (the method of snapshots: L. Sirovich, "Turbulence and the dynamics of coherent structures", 1987), which takes
n * n * P operations and no memory to speak of. The origin of a plane is always the last checkpoint, t_n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from instrument.errors import InstrumentError

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
#: The tensors of one checkpoint, each as a flat array of floats.
Weights = Sequence[NDArray[np.floating]]

PRINCIPAL = ("anchored", "centred", "mindspore")
NORMALIZATIONS = ("filter", "layer")
#: This many weights of each checkpoint are in memory as float64 at a time, which a processor's cache holds.
_BLOCK = 1 << 14
#: BLAS would give larger products to several threads, which for so few rows takes ten times as long, and rounds
#: differently from time to time.
_PIECE = 512
#: An axis shorter than this share of the first one is rounding: the checkpoints lie on a line.
_FLAT = 1e-6


class NoPlane(InstrumentError, ValueError):
    """The checkpoints, or the given directions, span no plane."""


@dataclass(frozen=True)
class Layout:
    """Which tensors make up the flat vector of all weights, in their order; a tensor is flattened row by row."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]

    @property
    def slices(self) -> list[slice]:
        """Return the slice of the flat vector that each tensor takes."""
        ends = np.cumsum([0, *self.sizes]).tolist()
        return [slice(start, end) for start, end in pairwise(ends)]

    @property
    def size(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True, eq=False)
class Axes:
    """Principal axes: `vectors` (2, P) float64 of length 1, `singular_values` of all, the largest first.

    `explained` are their squares over the sum of the squares.
    """

    vectors: Floats
    singular_values: Floats

    @property
    def explained(self) -> Floats:
        squares = self.singular_values**2
        return np.asarray(squares / squares.sum())


# ---------------------------------------------------------------- principal axes


def principal_axes(path: Sequence[Weights], kind: str) -> Axes:
    """Compute the two leading principal axes of the checkpoints t_1 ... t_n.

    Args:
        path: the checkpoints in their order, at least three of which differ.
        kind: `"anchored"`: of the differences t_i - t_n. `"centred"`: of the checkpoints less their mean, the usual
            principal-component analysis. `"mindspore"`: of the differences t_i - t_n, each less its own mean over all
            weights, as `SummaryLandscape` of MindSpore 2.10 has it.

    Each axis points where its entry of largest magnitude is positive.

    Raises:
        NoPlane: they are all the same, or lie on a line.
    """
    count = len(path) - (kind != "centred")
    gram, sums = np.zeros((count, count)), np.zeros(count)
    for _, rows in _rows(path, kind):
        gram += _inner_products(rows)
        sums += rows.sum(axis=1)
    means = sums / _size(path) if kind == "mindspore" else np.zeros(count)
    gram -= _size(path) * np.outer(means, means)
    squares, left = np.linalg.eigh(gram)
    singular = np.sqrt(np.maximum(squares[::-1], 0.0))
    _check_spread(singular, len(path))
    mixture = (left[:, ::-1][:, :2] / singular[:2]).T
    vectors = np.empty((2, _size(path)))
    for place, rows in _rows(path, kind):
        vectors[:, place] = np.einsum("ij,jk->ik", mixture, rows - means[:, None])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)  # rounding of the inner products is in the lengths
    return Axes(with_sign(vectors), singular)


def _inner_products(rows: Floats) -> Floats:
    """Return rows @ rows.T."""
    whole = rows.shape[1] // _PIECE * _PIECE
    pieces = rows[:, :whole].reshape(len(rows), -1, _PIECE).transpose(1, 0, 2)
    rest = rows[:, whole:]
    return np.asarray(np.matmul(pieces, pieces.transpose(0, 2, 1)).sum(axis=0) + np.einsum("ij,kj->ik", rest, rest))


def _check_spread(singular: Floats, count: int) -> None:
    if not singular[0] > 0:
        raise NoPlane(f"The {count} checkpoints hold the same weights: training did not move, and there is no path.")
    if len(singular) < 2 or singular[1] <= _FLAT * singular[0]:
        raise NoPlane(
            f"The {count} checkpoints lie on one line, so that there is no second axis. Draw the line between two of "
            "them with compute_line(), or take axes='random'."
        )


def with_sign(vectors: Floats) -> Floats:
    """Return the vectors, each pointing where its entry of largest magnitude is positive."""
    largest = np.argmax(np.abs(vectors), axis=1)
    signs = np.sign(vectors[np.arange(len(vectors)), largest])
    return np.asarray(vectors * signs[:, None])


def _size(path: Sequence[Weights]) -> int:
    return sum(tensor.size for tensor in path[0])


def _rows(path: Sequence[Weights], kind: str) -> Iterator[tuple[slice, Floats]]:
    """Yield, block by block, where it lies in the flat vector and the rows whose axes are looked for."""
    for place, block in _blocks(path):
        yield place, block - block.mean(axis=0) if kind == "centred" else block[:-1] - block[-1]


def _blocks(path: Sequence[Weights]) -> Iterator[tuple[slice, Floats]]:
    """Yield where a block lies in the flat vector, and its weights (n, at most `_BLOCK`) as float64."""
    offset = 0
    for tensors in zip(*path, strict=True):
        size = tensors[0].size
        for start in range(0, size, _BLOCK):
            end = min(start + _BLOCK, size)
            block = np.empty((len(path), end - start))
            for row, tensor in zip(block, tensors, strict=True):
                row[:] = tensor[start:end]
            yield slice(offset + start, offset + end), block
        offset += size


def unmoved(path: Sequence[Weights]) -> list[bool]:
    """Return for each tensor True if it is the same in all checkpoints."""
    return [all(np.array_equal(tensor, tensors[0]) for tensor in tensors[1:]) for tensors in zip(*path, strict=True)]


# ---------------------------------------------------------------- other axes, and their lengths


def random_axes(layout: Layout, seed: int) -> Floats:
    """Return two directions (2, P) of standard normal entries, float64; a seed gives the same ones everywhere."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((2, layout.size))


def normalized(direction: Floats, origin: Weights, layout: Layout, how: str) -> Floats:
    """Return the direction with the lengths of the weights at the origin.

    Args:
        direction: (P,).
        origin: the tensors of the last checkpoint.
        how: `"layer"`: each tensor gets the length of the tensor at the origin. `"filter"`: each row of a tensor (all
            that goes into one output of a layer) gets that row's length, and tensors with fewer than two dimensions,
            biases and the parameters of normalisation among them, are not moved: H. Li et al., "Visualizing the Loss
            Landscape of Neural Nets", 2018, section 4 and its code.

    A filter or tensor without length, at the origin or in the direction, is not moved.
    """
    result = np.zeros_like(direction)
    for place, shape, tensor in zip(layout.slices, layout.shapes, origin, strict=True):
        if how == "filter" and len(shape) < 2:
            continue
        rows = shape[0] if how == "filter" else 1
        if tensor.size:
            part = direction[place].reshape(rows, -1)
            lengths = _lengths(tensor.reshape(rows, -1).astype(np.float64))
            result[place] = (part * _ratio(lengths, _lengths(part))).reshape(-1)
    return result


def _lengths(rows: Floats) -> Floats:
    return np.asarray(np.linalg.norm(rows, axis=1, keepdims=True))


def _ratio(wanted: Floats, lengths: Floats) -> Floats:
    return np.divide(wanted, lengths, out=np.zeros_like(wanted), where=lengths > 0)


def without(direction: Floats, layout: Layout, is_out: Sequence[bool]) -> Floats:
    """Return the direction with zeros for the tensors that are out."""
    result = direction.copy()
    for place, out in zip(layout.slices, is_out, strict=True):
        if out:
            result[place] = 0.0
    return result


# ---------------------------------------------------------------- the plane


def cosine(directions: NDArray[np.floating]) -> float:
    """Return the cosine of the angle between two directions (2, P).

    Raises:
        NoPlane: one of them is zero, or they are parallel.
    """
    inner = _inner(directions)
    if not (inner[0, 0] > 0 and inner[1, 1] > 0):
        raise NoPlane(
            f"Direction {1 + int(inner[0, 0] > 0)} is zero in every parameter that takes part; there is no plane."
        )
    result = float(inner[0, 1] / np.sqrt(inner[0, 0] * inner[1, 1]))
    if abs(result) > 1 - 1e-9:
        raise NoPlane("The two directions are parallel; there is no plane.")
    return result


def _inner(directions: NDArray[np.floating]) -> Floats:
    inner = np.zeros((2, 2))
    for start in range(0, directions.shape[1], _BLOCK):
        block = directions[:, start : start + _BLOCK].astype(np.float64)
        inner += _inner_products(block)
    return inner


def project(path: Sequence[Weights], directions: NDArray[np.floating]) -> tuple[Floats, Floats]:
    """Project checkpoints onto the plane through the last one along two directions (2, P), by least squares.

    Returns:
        Coordinates (n, 2), the last being (0, 0), and the unexplained share (n,) of each: the length of what lies off
        the plane over the length of the difference to the last one, 0 where there is no difference.
    """
    count = len(path)
    along, squares = np.zeros((count, 2)), np.zeros(count)
    for place, block in _blocks(path):
        rows = block - block[-1]
        along += np.einsum("ij,kj->ik", rows, directions[:, place].astype(np.float64))
        squares += np.einsum("ij,ij->i", rows, rows)
    coordinates = np.linalg.solve(_inner(directions), along.T).T
    outside = np.maximum(squares - np.einsum("ij,ij->i", coordinates, along), 0.0)
    share = np.sqrt(np.divide(outside, squares, out=np.zeros(count), where=squares > 0))
    return np.asarray(coordinates, np.float64), np.asarray(share, np.float64)
