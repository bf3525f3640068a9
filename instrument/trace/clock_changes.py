"""Times of a host whose wall clock was set while the window was open, brought back onto the clock of its opening.

Marks of the window are ordered by the monotonic clock and need nothing. Operators of the host have the wall clock as it
was when they ran. The window says between which two moments the clock was set, and by how much; of each time follows
when it was, as long as only one of these answers lies in the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from instrument.trace.events import Integers, Mask
from instrument.trace.text import LIMIT

_FIELDS = ("after_ns", "before_ns", "change_ns")
#: A window with more settings of the clock has none that can be followed.
_MOST = 1000


class Change(NamedTuple):
    """The wall clock was set by `change_ns` between two moments."""

    after_ns: int
    before_ns: int
    change_ns: int


def changes(window: Mapping[str, Any]) -> list[Change]:
    """Return the changes that a window tells of, in order; none where what it says makes no sense."""
    told = window.get("clock_changes")
    if not isinstance(told, list) or len(told) > _MOST:
        return []
    found = []
    for one in told:
        values = [one.get(name) for name in _FIELDS] if isinstance(one, dict) else []
        numbers = [value for value in values if isinstance(value, int) and abs(value) < LIMIT]
        if len(numbers) != len(_FIELDS):
            return []
        found.append(Change(*numbers))
    return found


def undone(times: Integers, known: list[Change], window: tuple[int, int]) -> tuple[Integers, Mask]:
    """Return `times` as they would be if the clock had not been set, and which of them are not certain.

    `window` is when it was opened and closed. A time that fits into no part of it stays as it is.
    """
    begins = [window[0], *(change.after_ns for change in known)]
    ends = [*(change.before_ns for change in known), window[1]]
    offset = 0
    result, fits = times.copy(), np.zeros(len(times), np.int64)
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        offset += known[place - 1].change_ns if place else 0
        moved = times - offset
        is_inside = (moved >= begin) & (moved <= end)
        result = np.where(is_inside & (fits == 0), moved, result)
        fits += is_inside
    return result, fits > 1
