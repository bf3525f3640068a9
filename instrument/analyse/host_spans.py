"""Spans of the host by name: the user's, those of callbacks, and those of the framework."""

from __future__ import annotations

import numpy as np

from instrument.analyse.groupby import aggregate, factorize
from instrument.analyse.table import ColumnData, Table
from instrument.trace.events import MISSING, SPAN_CALLBACK, SPAN_FRAMEWORK, SPAN_USER, Capture, Integers

_KINDS = {SPAN_USER: "span", SPAN_CALLBACK: "callback", SPAN_FRAMEWORK: "framework"}
_SUMS = "Spans lie inside of each other and run on several threads: their times do not add up."


def by_name(capture: Capture) -> Table:
    """Tabulate the spans, one row a name and kind ("span", "callback" or "framework"), most time first.

    `threads` is on how many threads it ran. `open` is how many had not ended when the window closed, which are not in
    `count` and the times.
    """
    rows = capture.spans[np.isin(capture.spans["kind"], list(_KINDS))]
    keys, group = factorize(list(zip(rows["name"].tolist(), rows["kind"].tolist(), strict=True)))
    ended = rows["duration_ns"] != MISSING
    sums = aggregate(group[ended], rows["duration_ns"][ended], len(keys))
    columns: dict[str, ColumnData] = {
        "name": [capture.names[name] for name, _ in keys],
        "kind": [_KINDS[kind] for _, kind in keys],
        "threads": _threads(group, rows["thread"], len(keys)),
        "count": sums.count,
        "open": np.bincount(group[~ended], minlength=len(keys)),
        "total_ns": sums.total,
        "mean_ns": sums.total / np.maximum(sums.count, 1),
        "min_ns": sums.min,
        "max_ns": sums.max,
    }
    notes = [_SUMS] if len(keys) else ["n/a: the trace has no spans."]
    return Table("spans", columns, "Spans of the host", notes).sorted_by("total_ns")


def _threads(group: Integers, thread: Integers, groups: int) -> Integers:
    pairs = np.unique(np.stack([group, thread]), axis=1)
    return np.bincount(pairs[0], minlength=groups)
