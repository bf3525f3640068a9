"""Our own raw files: what the window is, and the marks that were set on the host while it was open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from instrument.trace import jsontext
from instrument.trace.events import MISSING, SPAN, SPAN_CALLBACK, SPAN_STEP, STEP, Mask, Problem, Rows
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


class Marks(NamedTuple):
    """Marks as `SPAN` by start, whose `name` is a row of `names`; one that never ended has a duration of `MISSING`."""

    names: list[str]
    spans: Rows
    problems: list[Problem]


def window(data: Buffer, file: str) -> tuple[dict[str, Any], list[Problem]]:
    """`instrument.window.<rank>.json`: what was captured, when, and why it ended; times in ns since the epoch."""
    losses = Losses(file)
    found = jsontext.mapping(data, losses)
    return found, losses.problems()


def names(data: Buffer, file: str) -> tuple[list[str], list[Problem]]:
    """`instrument.names.<rank>.json`: the names that marks refer to. Behind a damaged one none has its right number."""
    losses = Losses(file)
    found: list[str] = []
    for element in jsontext.elements(data, losses):
        if not isinstance(element, str) or len(losses):
            losses.add("names that cannot be told")
            break
        found.append(element)
    return found, losses.problems()


def marks(data: Buffer, file: str, known: Sequence[str]) -> Marks:
    """`instrument.marks.<rank>.bin`, with the names of `instrument.names.<rank>.json`.

    A record cut off at the end, and records of kinds that are not known, are left out and counted.
    """
    losses = Losses(file)
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
    return Marks(table, spans[np.argsort(spans["start_ns"], kind="stable")], losses.problems())


def within(spans: Rows, window: Mapping[str, Any]) -> Mask:
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
    result = np.empty(len(ended), STEP)
    result["step"], result["start_ns"] = ended["number"], ended["start_ns"]
    result["end_ns"] = ended["start_ns"] + ended["duration_ns"]
    result["fp_start_ns"] = result["bp_end_ns"] = result["model"] = MISSING
    return result
