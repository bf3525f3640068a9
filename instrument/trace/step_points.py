"""Marks of a step trace, in record order -> steps, the communications in them, and the fetches of their data.

Both step traces (`training_trace`, `ts_track`) say when the forward pass starts, the backward pass ends and the step
ends; their modules turn marks into `POINT`, and this one into steps. The order of records is what counts, not that of
counters: some files hold each step's marks by kind. Everything here is in cycles; what a step lacks is `MISSING`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from instrument.trace.events import MISSING, Integers, Rows
from instrument.trace.text import Losses

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

    def rows(self) -> Integers:
        """The steps with forward and backward marks as step traces have always shown them, in cycles.

        Columns: step number, start, end, total, forward start, backward end, iteration interval, forward and backward,
        tail. Only these steps have a row, but each has its number.
        """
        steps = self.steps[(self.steps["forward"] != MISSING) & (self.steps["backward"] != MISSING)]
        start, forward, backward, end = (steps[name] for name in ("start", "forward", "backward", "end"))
        parts = (end - start, forward, backward, forward - start, backward - forward, end - backward)
        return np.stack((steps["step"], start, end, *parts), axis=1)


def trace(points: Rows, starts_are_odd: bool, skips_first: bool, losses: Losses) -> StepTrace:
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
    """The step that each mark belongs to, by the order of their ends; `MISSING` behind the last end of its model."""
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
    """A step for each end, in record order; the first forward and the last backward mark of a step count."""
    ends = np.flatnonzero(points["what"] == STEP_END)
    ends = ends[np.argsort(order[ends])]
    steps = np.full(len(ends), MISSING, np.int64).astype(STEP_CYCLES)
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
    """Marks 2i and 2i+1 of a stream in a step are pair i; an odd number of marks there tells none of them apart."""
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
