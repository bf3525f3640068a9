"""Slices of tensors: the text of a slice as indices, and the statistics, histogram and picture of what it selects.

The text is that of NumPy's basic indexing, `[2:5, :, -1]`, with or without its brackets: integers, `a:b`, `a:b:c`, `:`
and `...`. It is parsed by hand and never evaluated, as it may come out of an address.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: One index for each dimension of a tensor.
Slice = tuple[int | slice, ...]
_INTEGER = re.compile("[+-]?[0-9]{1,18}")
#: Statistics are computed of this many values at a time, which bounds the memory that a large tensor takes.
_BLOCK_VALUES = 1 << 20
_GRAMMAR = "integers, a:b, a:b:c, : and ... are understood, as in [2:5, :, -1]"


class WrongSlice(ValueError):
    """A text that is no slice of the tensor. `position` is the place of the wrong part in the text, from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def parse_slice(text: str, shape: Sequence[int]) -> Slice:
    """Return the index of each dimension of a tensor that `text` names; dimensions that it leaves out are whole.

    An empty text selects everything. Ends of ranges may lie outside, as in Python; integers may not.

    Raises:
        WrongSlice: the text is no slice, has more parts than `shape`, or an integer outside of its dimension.
    """
    body, offset = _without_brackets(text)
    # Each part with the place where it begins.
    parts, place = list[tuple[str, int]](), offset
    for part in body.split(","):
        parts.append((part.strip(), place + len(part) - len(part.lstrip())))
        place += len(part) + 1
    if len(parts) > 1 and not parts[-1][0]:
        parts.pop()  # as in Python, a comma may end the list
    if parts == [("", parts[0][1])]:
        parts = []
    dots = [position for part, position in parts if part == "..."]
    if len(dots) > 1:
        raise WrongSlice("... stands twice in a slice; expected once at most.", dots[1])
    named = len(parts) - len(dots)
    if named > len(shape):
        position = [position for part, position in parts if part != "..."][len(shape)]
        raise WrongSlice(f"The slice has {named} parts; the tensor has {_dimensions(len(shape))}.", position)
    result = list[int | slice]()
    for part, position in parts:
        if part == "...":
            result += [slice(None)] * (len(shape) - named)
        else:
            result.append(_index(part, position, len(result), shape[len(result)]))
    return (*result, *[slice(None)] * (len(shape) - len(result)))


def slice_text(selected: Slice) -> str:
    """Return the text of a slice, as `parse_slice` reads it."""
    parts = []
    for index in selected:
        if isinstance(index, int):
            parts.append(str(index))
        else:
            ends = [("" if end is None else str(end)) for end in (index.start, index.stop)]
            parts.append(":".join(ends) + ("" if index.step in (None, 1) else f":{index.step}"))
    return f"[{', '.join(parts)}]"


def shown_slice(selected: Slice, shape: Sequence[int]) -> Slice:
    """Return the slice with at most two dimensions left: leading ones are fixed at the first index that they select.

    Raises:
        WrongSlice: a dimension to be fixed selects nothing.
    """
    free = [place for place, index in enumerate(selected) if isinstance(index, slice)]
    result = list(selected)
    for place in free[:-2]:
        chosen = range(shape[place])[selected[place]]
        if not isinstance(chosen, range) or not chosen:
            raise WrongSlice(f"The slice selects nothing of dimension {place}, which has length {shape[place]}.", 0)
        result[place] = chosen[0]
    return tuple(result)


def _without_brackets(text: str) -> tuple[str, int]:
    """Return what stands between the brackets, and its place in the text."""
    stripped = text.strip()
    offset = len(text) - len(text.lstrip())
    if stripped.startswith("[") != stripped.endswith("]") or stripped == "[":
        raise WrongSlice(f"One bracket is missing in {text!r}; {_GRAMMAR}.", offset)
    return (stripped[1:-1], offset + 1) if stripped.startswith("[") else (stripped, offset)


def _index(part: str, position: int, dimension: int, length: int) -> int | slice:
    """Return one part of a slice as the index of a dimension."""
    numbers = [number.strip() for number in part.split(":")]
    if len(numbers) > 3 or any(number and not _INTEGER.fullmatch(number) for number in numbers) or not part:
        raise WrongSlice(f"{part!r} is no part of a slice; {_GRAMMAR}.", position)
    if len(numbers) == 1:
        index = int(numbers[0])
        if not -length <= index < length:
            raise WrongSlice(f"Index {index} is outside of dimension {dimension}, which has length {length}.", position)
        return index
    start, stop, step = ([int(number) if number else None for number in numbers] + [None])[:3]
    if step == 0:
        raise WrongSlice(f"The step of {part!r} is 0; expected another number.", position)
    return slice(start, stop, step)


def _dimensions(count: int) -> str:
    return f"{count} dimension{'s' * (count != 1)}"


class Statistics(NamedTuple):
    """Facts on the values of an array; those of its finite values are NaN if it has none.

    `min` and `max` are Python's int for integers of any size, and float otherwise. `std` is that of all values (divided
    by n), in float64.
    """

    size: int
    min: float | int
    max: float | int
    mean: float
    std: float
    zeros: int
    nan: int
    positive_infinity: int
    negative_infinity: int


def statistics(array: NDArray[np.generic]) -> Statistics:
    """Return the statistics of a numeric or boolean array of any shape; for complex numbers, of their magnitudes."""
    flat: NDArray[Any] = np.abs(array.reshape(-1)) if array.dtype.kind == "c" else array.reshape(-1)
    nan = above = below = 0
    if flat.dtype.kind == "f":
        nan = int(np.count_nonzero(np.isnan(flat)))
        above, below = (int(np.count_nonzero(flat == infinity)) for infinity in (np.inf, -np.inf))
    finite = flat[np.isfinite(flat)] if nan or above or below else flat
    zeros = flat.size - int(np.count_nonzero(flat))
    if not finite.size:
        return Statistics(flat.size, np.nan, np.nan, np.nan, np.nan, zeros, nan, above, below)
    low, high = finite.min().item(), finite.max().item()
    if flat.dtype.kind == "b":
        low, high = int(low), int(high)
    # Divided by the greatest magnitude, as the square of a large number is infinite.
    scale = max(abs(float(low)), abs(float(high))) or 1.0
    blocks = range(0, finite.size, _BLOCK_VALUES)
    mean = sum(float((finite[i : i + _BLOCK_VALUES].astype(np.float64) / scale).sum()) for i in blocks) / finite.size
    squares = sum(float(((finite[i : i + _BLOCK_VALUES].astype(np.float64) / scale - mean) ** 2).sum()) for i in blocks)
    deviation = math.sqrt(squares / finite.size)
    return Statistics(flat.size, low, high, mean * scale, deviation * scale, zeros, nan, above, below)


class Heat(NamedTuple):
    """Least, greatest and mean finite value of each cell, float64 of shape (rows, columns); NaN for an empty cell."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    mean: NDArray[np.float64]


def heat(array: NDArray[np.generic], rows: int, columns: int) -> Heat:
    """Reduce a matrix to at most `rows` times `columns` cells of nearly equal size.

    Raises:
        ValueError: `array` is no matrix, or `rows` or `columns` is below 1.
    """
    if array.ndim != 2:
        raise ValueError(f"array has {_dimensions(array.ndim)}; expected 2.")
    if rows < 1 or columns < 1:
        raise ValueError(f"rows is {rows} and columns {columns}; expected at least 1.")
    if not array.size:
        empty = np.empty((0, 0))
        return Heat(empty, empty, empty)
    values = array.astype(np.float64)
    is_finite = np.isfinite(values)

    def reduced(source: NDArray[np.float64], combine: np.ufunc) -> NDArray[np.float64]:
        result = source
        for axis, cells in enumerate((rows, columns)):
            length = source.shape[axis]
            starts = np.arange(min(cells, length)) * length // min(cells, length)
            result = combine.reduceat(result, starts, axis=axis)
        return result

    counts = reduced(is_finite.astype(np.float64), np.add)
    with np.errstate(all="ignore"):
        mean = reduced(np.where(is_finite, values, 0.0), np.add) / counts
    low = reduced(np.where(is_finite, values, np.inf), np.minimum)
    high = reduced(np.where(is_finite, values, -np.inf), np.maximum)
    return Heat(*(np.where(counts > 0, part, np.nan) for part in (low, high, mean)))


def rebinned(
    left: NDArray[np.float64], width: NDArray[np.float64], counts: NDArray[np.generic], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Share the counts of a histogram out among other buckets, float64 of shape (edges - 1,).

    A bucket that lies in several new ones is split by its overlap with each, as if its values were spread evenly; one
    without width goes whole into the bucket that holds it, the last of which includes its right edge. What lies outside
    of `edges` is left out; otherwise the sum of the counts is kept.
    """
    heights = counts.astype(np.float64)
    right = left + width
    is_point = ~(right > left)  # also if the width is below the resolution of the edge
    result = np.zeros(edges.size - 1)
    if is_point.any():
        places = np.searchsorted(edges, left[is_point], side="right") - 1
        places[left[is_point] == edges[-1]] = edges.size - 2
        is_inside = (places >= 0) & (places < edges.size - 1)
        np.add.at(result, places[is_inside], heights[is_point][is_inside])
    if not is_point.all():
        wide = ~is_point
        # The share of each bucket below each edge, from 0 to 1.
        below = np.clip((edges[None, :] - left[wide, None]) / (right - left)[wide, None], 0.0, 1.0)
        result += heights[wide] @ np.diff(below, axis=1)
    return result
