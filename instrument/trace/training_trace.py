"""training_trace: the step trace of 2020 to mid 2021, 20 bytes a mark, packed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import MISSING, Rows
from instrument.trace.records import TOO_LARGE, records
from instrument.trace.step_points import BACKWARD, FORWARD, OTHER, POINT, REDUCE, STEP_END, StepTrace, trace
from instrument.trace.text import Buffer, Losses

RECORD = np.dtype([("tag", "<u8"), ("task", "<u2"), ("stream", "<u2"), ("cycles", "<i8")])
FORWARD_TAG, BACKWARD_TAG = 1, 2
#: The end of a step in files written before 2020-12-16, and in later ones.
OLD_END_TAG, END_TAG = 255, 65_535

_LARGEST_TAG = (1 << 63) - 1


def decode(data: Buffer, losses: Losses, skips_first: bool = False) -> StepTrace:
    """The steps of a file, in cycles; for `skips_first` see `step_points.trace`."""
    return trace(points(records(data, RECORD, losses), losses), True, skips_first, losses)


def points(found: Rows, losses: Losses) -> Rows:
    """Records as marks; communications have odd tags at their start and even ones at their end."""
    tags = found["tag"]
    end_tag = end_tag_of(tags)
    marks = np.empty(len(found), POINT)
    marks["what"] = np.select(
        [tags == FORWARD_TAG, tags == BACKWARD_TAG, tags == end_tag, (tags == 0) | (tags > end_tag)],
        [FORWARD, BACKWARD, STEP_END, OTHER],
        REDUCE,
    )
    marks["tag"] = np.minimum(tags, _LARGEST_TAG)
    for name in ("cycles", "stream", "task"):
        marks[name] = found[name]
    marks["model"], marks["index"] = 0, MISSING
    jobs = np.unique(tags[(tags == 0) | (tags > end_tag)])
    losses.add("changes of the job's number, which is one in a whole file", max(0, len(jobs) - 1))
    losses.add(TOO_LARGE, int(np.count_nonzero(found["cycles"] < 0)))
    return marks[found["cycles"] >= 0]


def end_tag_of(tags: NDArray[np.uint64]) -> int:
    """The tag that ends a step here: up to the second forward start there is one, if it is the later one."""
    forward = np.flatnonzero(tags == FORWARD_TAG)
    head = tags[: forward[1]] if len(forward) > 1 else tags
    return END_TAG if np.any(head == END_TAG) else OLD_END_TAG
