"""Take the samples on which every point is evaluated from the dataset, once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.generic]
Batch = tuple[Column, ...]

#: Batches are put together up to so many bytes: what goes through the network at once has to fit in memory many times.
_MOST_BATCH_BYTES = 8 << 20


@dataclass(frozen=True, eq=False)
class Samples:
    """Batches as the network gets them, one array a column, the first extent being samples."""

    batches: tuple[Batch, ...]

    @property
    def count(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Return the number of samples in each batch."""
        return [len(batch[0]) for batch in self.batches]

    def digest(self) -> str:
        """Return a digest that is the same for the same samples in the same order, in whatever batches."""
        states = [hashlib.sha256(str(column.dtype).encode()) for column in self.batches[0]]
        for batch in self.batches:
            for state, column in zip(states, batch, strict=True):
                state.update(column.tobytes())
        return hashlib.sha256(b"".join(state.digest() for state in states)).hexdigest()

    def joined(self) -> Samples:
        """Return the samples in as few batches as memory allows."""
        groups: list[list[Batch]] = [[]]
        size = 0
        for batch in self.batches:
            bytes_ = sum(column.nbytes for column in batch)
            if groups[-1] and size + bytes_ > _MOST_BATCH_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(batch)
            size += bytes_
        return Samples(tuple(tuple(map(np.concatenate, zip(*group, strict=True))) for group in groups))

    def arrays(self) -> dict[str, Column]:
        """Return all arrays by name, to be kept in a file."""
        return {f"{i}/{j}": column for i, batch in enumerate(self.batches) for j, column in enumerate(batch)}

    @classmethod
    def of(cls, arrays: dict[str, Column]) -> Samples:
        """Make samples of what `arrays` returned."""
        places = sorted(tuple(map(int, name.split("/"))) for name in arrays)
        batches: list[list[Column]] = [[] for _ in range(places[-1][0] + 1)]
        for i, j in places:
            batches[i].append(arrays[f"{i}/{j}"])
        return cls(tuple(map(tuple, batches)))


def take(dataset: Any, count: int) -> Samples:
    """Return the first `count` samples of a dataset, or all if there are fewer, in the dataset's own batches.

    Raises:
        TypeError: it is no dataset of MindSpore's.
        ValueError: it is empty, or not batched.
    """
    if not callable(getattr(dataset, "create_tuple_iterator", None)):
        raise TypeError(
            f"callback_fn gave a {type(dataset).__name__} as dataset; expected one of mindspore.dataset, in batches."
        )
    batches: list[Batch] = []
    left = count
    for row in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True):
        columns = tuple(np.asarray(column) for column in row)
        _check(columns)
        size = len(columns[0])
        batches.append(columns if size <= left else tuple(column[:left] for column in columns))
        left -= size
        if left <= 0:
            break
    if not batches or not len(batches[0][0]):
        raise ValueError("The dataset of callback_fn is empty; expected at least one batch.")
    return Samples(tuple(batches))


def _check(columns: Sequence[Column]) -> None:
    lengths = {len(column) if column.ndim else -1 for column in columns}
    if len(lengths) != 1 or -1 in lengths:
        shapes = [column.shape for column in columns]
        raise ValueError(
            f"A row of callback_fn's dataset has columns of the shapes {shapes}; expected batches, whose first extent "
            "is the same in all columns: call .batch(n) on the dataset."
        )
