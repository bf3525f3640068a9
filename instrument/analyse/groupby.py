"""Sums by group, exact in int64: the part of pandas' groupby that the tables need, and masks for missing values."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import MISSING, Integers, Mask

Key = TypeVar("Key", bound=Hashable)
Element = TypeVar("Element", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Sums:
    """One value for each group, 0 for a group without values."""

    count: Integers
    total: Integers
    min: Integers
    max: Integers


def aggregate(keys: Integers, values: Integers, groups: int) -> Sums:
    """Sum up the values of each key from 0 to `groups` - 1."""
    count = np.bincount(keys, minlength=groups).astype(np.int64)
    total, least, most = (np.zeros(groups, np.int64) for _ in range(3))
    present = np.flatnonzero(count)
    if len(present):
        ordered = values[np.argsort(keys, kind="stable")]
        first = np.concatenate([[0], np.cumsum(count[present])[:-1]])
        for result, ufunc in ((total, np.add), (least, np.minimum), (most, np.maximum)):
            result[present] = ufunc.reduceat(ordered, first)
    return Sums(count, total, least, most)


def factorize(keys: Iterable[Key]) -> tuple[list[Key], Integers]:
    """Return the different keys in the order in which they are first met, and for each key its index among them."""
    indices: dict[Key, int] = {}
    codes = np.array([indices.setdefault(key, len(indices)) for key in keys], np.int64)
    return list(indices), codes


def masked(values: NDArray[Element], is_missing: Mask) -> NDArray[Element]:
    """Return `values`, masked where `is_missing`, or as a plain array if nothing is."""
    if not is_missing.any():
        return values
    result: NDArray[Element] = np.ma.MaskedArray(values, is_missing)
    return result


def mask_missing(values: NDArray[Element]) -> NDArray[Element]:
    """Return `values`, masked where they are `MISSING`."""
    return masked(values, values == MISSING)
