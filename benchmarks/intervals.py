"""What many small differences say together, where single ones are disturbed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: Of a normal distribution: 95 % lie within so many standard deviations.
_NORMAL_95 = 1.959964
#: With fewer pairs the interval is not one of 95 %.
LEAST_PAIRS = 10


def interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """The Hodges-Lehmann estimate of the middle of `values`, and the ends of its 95 % interval."""
    count = len(values)
    first, second = np.triu_indices(count)
    means = np.sort((values[first] + values[second]) / 2)
    middle = count * (count + 1) / 4
    spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    rank = max(math.floor(middle - _NORMAL_95 * spread) - 1, 0)
    return float(np.median(means)), float(means[rank]), float(means[-1 - rank])
