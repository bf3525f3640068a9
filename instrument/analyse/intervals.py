"""Sets of times: when anything of many executions was running."""

from __future__ import annotations

import numpy as np

from instrument.trace.events import Integers, Mask, Rows

#: A range that lies so many times the extent of nearly all others away from them, and at least a minute, may have a
#: damaged time. A pause in a training is shorter than that, or has more than a tenth of the ranges behind it.
_FAR_FACTOR, _FAR_NS = 20, 60 * 10**9
#: Of fewer ranges nearly all is nothing.
_FEWEST = 5


def far(start_ns: Integers, end_ns: Integers) -> Mask:
    """Return which ranges begin or end far away from nearly all others."""
    if len(start_ns) < _FEWEST:
        return np.zeros(len(start_ns), np.bool_)
    ordered = np.sort(start_ns)
    low = int(ordered[int(np.ceil(0.1 * (len(ordered) - 1)))])
    high = int(ordered[int(0.9 * (len(ordered) - 1))])
    bound = max(_FAR_FACTOR * (high - low), _FAR_NS)
    is_far: Mask = (start_ns < low - bound) | (np.maximum(start_ns, end_ns) > high + bound)
    return is_far


class Union:
    """The union of half-open ranges of time, as ranges that neither touch nor overlap, `start_ns[i]` to `end_ns[i]`."""

    def __init__(self, start_ns: Integers, end_ns: Integers) -> None:
        is_range = end_ns > start_ns
        start, end = start_ns[is_range], end_ns[is_range]
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order])
        is_first = np.ones(len(start), np.bool_)
        is_first[1:] = start[1:] > reach[:-1]
        is_last = np.append(is_first[1:], True)[: len(start)]
        self.start_ns: Integers = start[is_first]
        self.end_ns: Integers = reach[is_last]
        self._sum = np.concatenate([[0], np.cumsum(self.end_ns - self.start_ns)]).astype(np.int64)

    @classmethod
    def of(cls, rows: Rows) -> Union:
        """Return the times in which any of `rows` ran, by their `start_ns` and `duration_ns`."""
        return cls(rows["start_ns"], rows["start_ns"] + rows["duration_ns"])

    @property
    def total_ns(self) -> int:
        """The length of all ranges together."""
        return int(self._sum[-1])

    def until(self, times: Integers) -> Integers:
        """Return how much of the union lies before each time, in ns."""
        place = np.searchsorted(self.start_ns, times, "right")
        last = np.maximum(place - 1, 0)
        if not len(self.start_ns):
            return np.zeros(len(times), np.int64)
        over = np.where(place > 0, np.maximum(self.end_ns[last] - times, 0), 0)
        result: Integers = self._sum[place] - over
        return result

    def within(self, start_ns: Integers, end_ns: Integers) -> Integers:
        """Return how much of the union lies in each range, in ns."""
        return self.until(end_ns) - self.until(start_ns)

    def joined(self, other: Union) -> Union:
        """Return the union of both."""
        return Union(np.concatenate([self.start_ns, other.start_ns]), np.concatenate([self.end_ns, other.end_ns]))
