"""Assign the events of a stream or thread to lanes in which a viewer can draw them.

In a lane of a Chrome trace events follow or enclose each other. One that only overlaps another is dropped by some
viewers and becomes its child in others. So it goes to a further lane.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import Integers, Mask

#: More lanes of one stream nobody reads, and each costs a look at every event that overlaps others.
MOST_LANES = 32
#: The lane of an event for which none is free.
NO_LANE = -1


def order(start_ns: Integers, duration_ns: Integers, nests: bool) -> NDArray[np.intp]:
    """Return the order for `assign`: by start. Of equal starts the shortest first, or if events nest, the longest."""
    return np.lexsort((-duration_ns if nests else duration_ns, start_ns))


def assign(start_ns: Integers, end_ns: Integers, nests: bool) -> Integers:
    """Return the lane of each event, from 0, `NO_LANE` for what has more than `MOST_LANES` others beside it.

    Events are given in `order`. Where they nest, one that lies within another stays in its lane.
    """
    lanes = np.zeros(len(start_ns), np.int64)
    crowded = np.flatnonzero(~_alone(start_ns, end_ns))
    starts, ends = start_ns[crowded].tolist(), end_ns[crowded].tolist()
    lanes[crowded] = _nested(starts, ends) if nests else _one_after_another(starts, ends)
    return lanes


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
