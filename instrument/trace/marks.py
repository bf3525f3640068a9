"""Our own raw files: the marks that were set on the host while the window was open, and changes of its clock then.

Marks are ordered by the monotonic clock and need nothing. Operators of the host have the wall clock as it was when they
ran. The window's own file says between which two moments the clock was set, and by how much; of each time follows when
it was, as long as only one of these answers lies in the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from instrument.trace.events import (
    MISSING,
    SPAN,
    SPAN_CALLBACK,
    SPAN_STEP,
    STEP,
    Integers,
    Mask,
    NamedRows,
    Rows,
    by_start,
    unknown,
)
from instrument.trace.jsontext import elements
from instrument.trace.text import LIMIT, Buffer, Losses

#: One mark as the file has it: 40 bytes, little-endian. A duration of -1 is one that was still open.
MARK = np.dtype(
    [
        ("start_ns", "<i8"), ("duration_ns", "<i8"), ("thread", "<i8"), ("number", "<i8"), ("name", "<u4"),
        ("kind", "u1"), ("zero", "u1", 3),
    ]
)  # fmt: skip
_NAMELESS = "?"
#: Older versions took the times of marks and of the window from a clock that is steered.
_SLACK_NS = 10**9
#: A window with more settings of the clock has none that can be followed.
_MOST_CHANGES = 1000


def names(data: Buffer, losses: Losses) -> list[str]:
    """Read `instrument.names.<rank>.json`, the names that marks refer to, up to the first damaged one."""
    result: list[str] = []
    for element in elements(data, losses):
        if not isinstance(element, str) or len(losses):
            losses.add("names that cannot be told")
            break
        result.append(element)
    return result


def marks(data: Buffer, losses: Losses, known: Sequence[str]) -> NamedRows:
    """Read `instrument.marks.<rank>.bin`, with the names of `instrument.names.<rank>.json`, as SPAN by start.

    A record cut off at the end, and records of kinds that are not known, are left out and counted. One that never ended
    has a duration of `MISSING`.
    """
    records = np.frombuffer(data, MARK, len(data) // MARK.itemsize)
    losses.add("bytes of a mark that is cut off", len(data) % MARK.itemsize)
    usable = (records["kind"] <= SPAN_CALLBACK) & (records["duration_ns"] >= MISSING)
    usable &= (records["duration_ns"] < LIMIT) & (records["start_ns"] >= 0) & (records["start_ns"] < LIMIT)
    losses.add("marks of an unknown kind or with impossible times", int((~usable).sum()))
    records = records[usable]
    spans = np.empty(len(records), SPAN)
    for name in ("start_ns", "duration_ns", "kind", "thread", "number"):
        spans[name] = records[name]
    is_named = records["name"] < len(known)
    losses.add("marks without a name", int((~is_named).sum()))
    spans["name"] = np.where(is_named, records["name"], len(known))
    table = list(known) if is_named.all() else [*known, _NAMELESS]
    return NamedRows(table, by_start(spans))


def within(spans: Rows, window: Mapping[str, object]) -> Mask:
    """Return which marks are of the window: they end in it, or are open at its end. All are where it has no times."""
    start, stop = window.get("start_ns"), window.get("stop_ns")
    if not isinstance(start, int) or not isinstance(stop, int) or not 0 < start < stop < LIMIT:
        return np.ones(len(spans), np.bool_)
    end = spans["start_ns"] + np.maximum(spans["duration_ns"], 0)
    is_late = (spans["duration_ns"] == MISSING) | (end >= start - _SLACK_NS)
    is_within: Mask = (end <= stop + _SLACK_NS) & (spans["start_ns"] > 0) & is_late
    return is_within


def steps(spans: Rows) -> Rows:
    """The steps among the marks that have ended, as `STEP`; where forward and backward are, marks do not tell."""
    ended = spans[(spans["kind"] == SPAN_STEP) & (spans["duration_ns"] >= 0)]
    result = unknown(STEP, len(ended))
    result["step"], result["start_ns"] = ended["number"], ended["start_ns"]
    result["end_ns"] = ended["start_ns"] + ended["duration_ns"]
    return result


class Change(NamedTuple):
    """The wall clock was set by `change_ns` between two moments."""

    after_ns: int
    before_ns: int
    change_ns: int


def changes(window: Mapping[str, object]) -> list[Change]:
    """Return the changes that a window tells of, in order; none where what it says makes no sense."""
    entries = window.get("clock_changes")
    if not isinstance(entries, list) or len(entries) > _MOST_CHANGES:
        return []
    result = []
    for change in entries:
        values = [change.get(name) for name in Change._fields] if isinstance(change, dict) else []
        numbers = [value for value in values if isinstance(value, int) and abs(value) < LIMIT]
        if len(numbers) != len(Change._fields):
            return []
        result.append(Change(*numbers))
    return result


def undone(times: Integers, settings: list[Change], window: tuple[int, int]) -> tuple[Integers, Mask]:
    """Return `times` as they would be if the clock had not been set, and which of them are not certain.

    `window` is when it was opened and closed. A time that fits into no part of it stays as it is.
    """
    begins = [window[0], *(change.after_ns for change in settings)]
    ends = [*(change.before_ns for change in settings), window[1]]
    offset = 0
    result, fits = times.copy(), np.zeros(len(times), np.int64)
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        offset += settings[place - 1].change_ns if place else 0
        moved = times - offset
        is_inside = (moved >= begin) & (moved <= end)
        result = np.where(is_inside & (fits == 0), moved, result)
        fits += is_inside
    return result, fits > 1
