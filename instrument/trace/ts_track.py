"""ts_track: the step trace since mid 2021, among records of other kinds, 40 bytes each.

One file may hold the marks of several models (graphs). A device runs one after the other, so a step starts where the
one before ended, whatever its model; forward and backward marks belong to the step of their own model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from instrument.trace.events import Rows
from instrument.trace.records import TOO_LARGE, UNKNOWN_RECORDS, records
from instrument.trace.step_points import BACKWARD, FETCH, FORWARD, OTHER, POINT, REDUCE, STEP_END, StepTrace, trace
from instrument.trace.text import Buffer, Losses

RECORD = np.dtype(
    [
        ("mode", "u1"), ("kind", "u1"), ("size", "<u2"), ("reserved", "<u4"), ("cycles", "<i8"), ("index", "<i8"),
        ("model", "<i8"), ("stream", "<u2"), ("task", "<u2"), ("tag", "<u2"), ("reserved2", "<u2"),
    ]
)  # fmt: skip
#: The kind of a mark of the step trace, and those of memcpy, task types, wrapped task ids and block numbers.
MARK, OTHER_KINDS = 10, (11, 12, 13, 14, 15)
MODEL_START_TAG, MODEL_END_TAG, FORWARD_TAG, BACKWARD_TAG, END_TAG = range(5)
#: The first tag of communications, of fetches of data, and the first one behind them.
REDUCE_TAG, FETCH_TAG, STEP_TAG = 10_000, 20_000, 60_000


@dataclass(frozen=True, eq=False)
class TsTrack:
    """The steps in cycles, and how many records of each kind the file holds."""

    trace: StepTrace
    kind_counts: dict[int, int]


def decode(data: Buffer, losses: Losses, skips_first: bool = False) -> TsTrack:
    """The steps of a file, in cycles; for `skips_first` see `step_points.trace`."""
    found = records(data, RECORD, losses)
    counts = np.bincount(found["kind"], minlength=256)
    known = int(counts[list(OTHER_KINDS)].sum())
    losses.add("records of memcpy, task types, wrapped ids and blocks", known)
    losses.add(UNKNOWN_RECORDS, len(found) - known - int(counts[MARK]))
    marks = points(found[found["kind"] == MARK], losses)
    kind_counts = {int(kind): int(counts[kind]) for kind in np.flatnonzero(counts)}
    return TsTrack(trace(marks, False, skips_first, losses), kind_counts)


def points(found: Rows, losses: Losses) -> Rows:
    """Records of the kind `MARK` as marks; pairs have even tags at their start and odd ones at their end."""
    good = found["cycles"] >= 0
    losses.add(TOO_LARGE, len(found) - int(np.count_nonzero(good)))
    found = found[good]
    tags = found["tag"]
    is_known = (tags <= END_TAG) | ((tags >= REDUCE_TAG) & (tags <= STEP_TAG + 1))
    losses.add("marks with an unknown tag", len(found) - int(np.count_nonzero(is_known)))
    marks = np.empty(len(found), POINT)
    marks["what"] = np.select(
        [
            tags == FORWARD_TAG,
            tags == BACKWARD_TAG,
            tags == END_TAG,
            (tags >= REDUCE_TAG) & (tags < FETCH_TAG),
            (tags >= FETCH_TAG) & (tags < STEP_TAG),
        ],
        [FORWARD, BACKWARD, STEP_END, REDUCE, FETCH],
        OTHER,
    )
    for name in ("cycles", "tag", "stream", "task", "model", "index"):
        marks[name] = found[name]
    return marks
