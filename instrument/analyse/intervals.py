"""Ranges of time: which are far from all others, when any of many was running, and lanes to draw them in.

In a lane of a Chrome trace events follow or enclose each other. One that only overlaps another is dropped by some
viewers and becomes its child in others. So it goes to a further lane.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import Integers, Mask, Rows

#: A range this many times the extent of nearly all others away from them, and at least a minute, may have a
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


#: More lanes of one stream nobody reads, and each costs a look at every event that overlaps others.
MOST_LANES = 32
#: The lane of an event for which none is free.
NO_LANE = -1


def drawing_order(start_ns: Integers, duration_ns: Integers, nests: bool) -> NDArray[np.intp]:
    """Return the order for `lanes`: by start. Of equal starts the shortest first, or if events nest, the longest."""
    return np.lexsort((-duration_ns if nests else duration_ns, start_ns))


def lanes(start_ns: Integers, end_ns: Integers, nests: bool) -> Integers:
    """Return the lane of each event, from 0, `NO_LANE` for what has more than `MOST_LANES` others beside it.

    Events are given in `drawing_order`. Where they nest, one that lies within another stays in its lane.
    """
    result = np.zeros(len(start_ns), np.int64)
    crowded = np.flatnonzero(~_alone(start_ns, end_ns))
    starts, ends = start_ns[crowded].tolist(), end_ns[crowded].tolist()
    result[crowded] = _nested(starts, ends) if nests else _one_after_another(starts, ends)
    return result


def _alone(start_ns: Integers, end_ns: Integers) -> Mask:
    """Return a mask of the events that begin after all before them have ended, and end before the next begins."""
    reach = np.maximum.accumulate(end_ns)
    alone = np.ones(len(start_ns), np.bool_)
    is_clear = start_ns[1:] >= reach[:-1]
    alone[1:] &= is_clear
    alone[:-1] &= is_clear
    return alone


def _one_after_another(starts: list[int], ends: list[int]) -> list[int]:
    """Fill lane by lane with as many events as fit.

    Of two that overlap the one that ends first stays, so that a single impossible duration does not drive all others
    out.
    """
    lanes = [NO_LANE] * len(starts)
    pending = list(range(len(starts)))
    for lane in range(MOST_LANES):
        kept, rest = _most(pending, starts, ends)
        for event in kept:
            lanes[event] = lane
        pending = sorted(rest)
        if not pending:
            break
    return lanes


def _most(events: list[int], starts: list[int], ends: list[int]) -> tuple[list[int], list[int]]:
    """Return the largest set of events that do not overlap, and the others."""
    kept: list[int] = []
    rest = []
    until = 0
    for event in events:
        if not kept or starts[event] >= until:
            kept.append(event)
        elif ends[event] < until:
            rest.append(kept[-1])
            kept[-1] = event
        else:
            rest.append(event)
            continue
        until = ends[event]
    return kept, rest


def _nested(starts: list[int], ends: list[int]) -> list[int]:
    stacks: list[list[int]] = []
    lanes = []
    for start, end in zip(starts, ends, strict=True):
        for lane, stack in enumerate(stacks):
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or end <= stack[-1]:
                stack.append(end)
                lanes.append(lane)
                break
        else:
            is_full = len(stacks) == MOST_LANES
            lanes.append(NO_LANE if is_full else len(stacks))
            stacks += [] if is_full else [[end]]
    return lanes
