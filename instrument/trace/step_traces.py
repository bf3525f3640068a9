"""Step traces of an Ascend device: marks in record order -> steps, the communications in them, fetches of their data.

Both step traces, `training_trace` (2020 to mid 2021) and `ts_track` (since then, among records of other kinds), say
when the forward pass starts, the backward pass ends and the step ends. Each becomes marks (dtype POINT), and these
become steps. The order of records is what counts, not that of counters: some files hold each step's marks by kind.
Everything here is in cycles; what a step lacks is `MISSING`.

One ts_track may hold the marks of several models (graphs). A device runs one after the other, so a step starts where
the one before ended, whatever its model; forward and backward marks belong to the step of their own model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import MISSING, Integers, Rows, unknown
from instrument.trace.records import TOO_LARGE, UNKNOWN_RECORDS, records
from instrument.trace.text import Buffer, Losses

#: A mark; `index` is the number that the device itself gives the iteration.
POINT = np.dtype(
    [
        ("what", "u1"), ("cycles", "i8"), ("tag", "i8"), ("stream", "i8"), ("task", "i8"), ("model", "i8"),
        ("index", "i8"),
    ]
)  # fmt: skip
OTHER, FORWARD, BACKWARD, STEP_END, REDUCE, FETCH = range(6)

#: A step; its start is the end of the step before, whatever its model, and in the first its forward start.
STEP_CYCLES = np.dtype([(name, "i8") for name in ("step", "start", "forward", "backward", "end", "model", "index")])
#: A pair of marks inside a step: number `number` of `stream` there, of the mark `tag`, whose own task is `task`.
PAIR_CYCLES = np.dtype([(name, "i8") for name in ("step", "stream", "number", "tag", "task", "start", "end")])


@dataclass(frozen=True, eq=False)
class StepTrace:
    """`steps` (dtype STEP_CYCLES) in record order; `reduces` and `fetches` (dtype PAIR_CYCLES) by step and stream."""

    steps: Rows
    reduces: Rows
    fetches: Rows


def _trace(points: Rows, starts_are_odd: bool, skips_first: bool, losses: Losses) -> StepTrace:
    """The steps of a file whose marks are `points` (dtype POINT), in record order.

    `starts_are_odd` says which tag of a pair is its start; `skips_first`, that the first step is the set-up of the
    queue: it has no number, but the next step starts at its end. Marks behind the last end are counted as lost.
    """
    order = np.argsort(points["model"], kind="stable")
    points = points[order]
    row = _rows(points, order)
    steps = _steps(points, order, row, losses)
    losses.add("marks of a step that does not end", int(np.count_nonzero((row == MISSING) & (points["what"] != OTHER))))
    first = int(skips_first and len(steps) > 0)
    losses.add("steps that set up the queue", first)
    steps = steps[first:]
    steps["step"] = np.arange(1, len(steps) + 1)
    row = np.where(row >= first, row - first, MISSING)
    reduces, fetches = (_pairs(points, row, what, starts_are_odd, losses) for what in (REDUCE, FETCH))
    return StepTrace(steps, reduces, fetches)


def _rows(points: Rows, order: Integers) -> Integers:
    """Return the step of each mark, by the order of their ends; `MISSING` behind the last end of its model."""
    if not len(points):
        return np.empty(0, np.int64)
    is_end = points["what"] == STEP_END
    is_other_model = np.append(False, points["model"][1:] != points["model"][:-1])
    # An end closes its group, and so does the last mark of a model: each group has one end, or none.
    group = np.cumsum(is_end) - is_end + np.cumsum(is_other_model)
    ends = np.flatnonzero(is_end)
    row_of_group = np.full(group[-1] + 1, MISSING)
    row_of_group[group[ends[np.argsort(order[ends])]]] = np.arange(len(ends))
    return np.asarray(row_of_group[group])


def _steps(points: Rows, order: Integers, row: Integers, losses: Losses) -> Rows:
    """Return a step for each end, in record order; its first forward and its last backward mark count."""
    ends = np.flatnonzero(points["what"] == STEP_END)
    ends = ends[np.argsort(order[ends])]
    steps = unknown(STEP_CYCLES, len(ends))
    for name, source in (("end", "cycles"), ("model", "model"), ("index", "index")):
        steps[name] = points[source][ends]
    repeated = 0
    for name, what, way in (("forward", FORWARD, -1), ("backward", BACKWARD, 1)):
        marks = np.flatnonzero((points["what"] == what) & (row != MISSING))[::way]
        steps[name][row[marks]] = points["cycles"][marks]  # of several the last one stays
        repeated += len(marks) - len(np.unique(row[marks]))
    losses.add("forward and backward marks that a step has more than once", repeated)
    steps["start"][1:] = steps["end"][:-1]
    steps["start"][:1] = steps["forward"][:1]
    return steps


def _pairs(points: Rows, row: Integers, what: int, starts_are_odd: bool, losses: Losses) -> Rows:
    """Pair marks 2i and 2i+1 of a stream in a step; an odd number of marks there tells none of them apart."""
    chosen = np.flatnonzero((points["what"] == what) & (row != MISSING))
    chosen = chosen[np.lexsort((points["stream"][chosen], row[chosen]))]
    stream, step = points["stream"][chosen], row[chosen]
    is_first = np.append(True, (stream[1:] != stream[:-1]) | (step[1:] != step[:-1]))[: len(chosen)]
    places = np.flatnonzero(is_first)
    counts = np.diff(places, append=len(chosen))
    is_even = np.repeat(counts % 2 == 0, counts)
    number = (np.arange(len(chosen)) - np.repeat(places, counts))[is_even][::2] // 2
    first, second = chosen[is_even][::2], chosen[is_even][1::2]
    tag = points["tag"][first]
    is_pair = (points["tag"][second] == tag + 1) & (tag % 2 == int(starts_are_odd))
    kind = "communication" if what == REDUCE else "fetch"
    losses.add(f"{kind} marks without their other half", len(chosen) - 2 * int(np.count_nonzero(is_pair)))
    first, second = first[is_pair], second[is_pair]
    pairs = np.empty(len(first), PAIR_CYCLES)
    pairs["step"], pairs["number"] = row[first] + 1, number[is_pair]
    for name, source in (("stream", "stream"), ("tag", "tag"), ("task", "task"), ("start", "cycles")):
        pairs[name] = points[source][first]
    pairs["end"] = points["cycles"][second]
    return pairs


# ---------------------------------------------------------------- training_trace

TRAINING_RECORD = np.dtype([("tag", "<u8"), ("task", "<u2"), ("stream", "<u2"), ("cycles", "<i8")])
#: The end of a step in files written before 2020-12-16, and in later ones.
_OLD_END_TAG, _END_TAG = 255, 65_535
_LARGEST_TAG = (1 << 63) - 1


def training_trace(data: Buffer, losses: Losses, skips_first: bool = False) -> StepTrace:
    """Return the steps of a `training_trace` file, 20 packed bytes a mark; for `skips_first` see `_trace`.

    Communications have odd tags at their start and even ones at their end.
    """
    rows = records(data, TRAINING_RECORD, losses)
    tags = rows["tag"]
    end_tag = end_tag_of(tags)
    is_of_job = (tags == 0) | (tags > end_tag)
    marks = np.empty(len(rows), POINT)
    marks["what"] = np.select(
        [tags == 1, tags == 2, tags == end_tag, is_of_job], [FORWARD, BACKWARD, STEP_END, OTHER], REDUCE
    )
    marks["tag"] = np.minimum(tags, _LARGEST_TAG)
    for name in ("cycles", "stream", "task"):
        marks[name] = rows[name]
    marks["model"], marks["index"] = 0, MISSING
    jobs = len(np.unique(tags[is_of_job]))
    losses.add("changes of the job's number, which is one in a whole file", max(0, jobs - 1))
    losses.add(TOO_LARGE, int(np.count_nonzero(rows["cycles"] < 0)))
    return _trace(marks[rows["cycles"] >= 0], True, skips_first, losses)


def end_tag_of(tags: NDArray[np.uint64]) -> int:
    """Return the tag that ends a step here: up to the second forward start there is one, if it is the later one."""
    forward = np.flatnonzero(tags == 1)
    head = tags[: forward[1]] if len(forward) > 1 else tags
    return _END_TAG if np.any(head == _END_TAG) else _OLD_END_TAG


# ---------------------------------------------------------------- ts_track

TS_RECORD = np.dtype(
    [
        ("mode", "u1"), ("kind", "u1"), ("size", "<u2"), ("reserved", "<u4"), ("cycles", "<i8"), ("index", "<i8"),
        ("model", "<i8"), ("stream", "<u2"), ("task", "<u2"), ("tag", "<u2"), ("reserved2", "<u2"),
    ]
)  # fmt: skip
#: The kind of a mark of the step trace, and those of memcpy, task types, wrapped task ids and block numbers.
MARK, _OTHER_KINDS = 10, (11, 12, 13, 14, 15)
#: Tags of the starts and ends of models are below: 0 and 1.
_FORWARD_TAG, _BACKWARD_TAG, _STEP_END_TAG = 2, 3, 4
#: The first tag of communications, of fetches of data, and the first one behind them.
REDUCE_TAG, _FETCH_TAG, _STEP_TAG = 10_000, 20_000, 60_000


def ts_track(data: Buffer, losses: Losses, skips_first: bool = False) -> StepTrace:
    """Return the steps of a `ts_track` file, 40 bytes a record; for `skips_first` see `_trace`.

    Pairs have even tags at their start and odd ones at their end.
    """
    rows = records(data, TS_RECORD, losses)
    is_mark, is_other = rows["kind"] == MARK, np.isin(rows["kind"], _OTHER_KINDS)
    losses.add("records of memcpy, task types, wrapped ids and blocks", int(is_other.sum()))
    losses.add(UNKNOWN_RECORDS, int((~is_mark & ~is_other).sum()))
    losses.add(TOO_LARGE, int((is_mark & (rows["cycles"] < 0)).sum()))
    rows = rows[is_mark & (rows["cycles"] >= 0)]
    tags = rows["tag"]
    is_known = (tags <= _STEP_END_TAG) | ((tags >= REDUCE_TAG) & (tags <= _STEP_TAG + 1))
    losses.add("marks with an unknown tag", int((~is_known).sum()))
    marks = np.empty(len(rows), POINT)
    is_reduce, is_fetch = (
        (tags >= first) & (tags < stop) for first, stop in ((REDUCE_TAG, _FETCH_TAG), (_FETCH_TAG, _STEP_TAG))
    )
    marks["what"] = np.select(
        [tags == _FORWARD_TAG, tags == _BACKWARD_TAG, tags == _STEP_END_TAG, is_reduce, is_fetch],
        [FORWARD, BACKWARD, STEP_END, REDUCE, FETCH],
        OTHER,
    )
    for name in ("cycles", "tag", "stream", "task", "model", "index"):
        marks[name] = rows[name]
    return _trace(marks, False, skips_first, losses)
