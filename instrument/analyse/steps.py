"""The parts of a step: waiting for data, forward and backward, and the rest.

iteration interval = from the start of the step to its first forward operator
fp and bp          = from there to the end of the last gradient operator
tail               = from there to the end of the step, the optimiser's work

Devices mark these points themselves (training_trace, ts_track, step traces of GPUs). On the host a step is what its
marks say, from the end of the step before it, and the points come from the scopes of the operators in it. The three
parts add up to the step. One that is not known is masked, and a note has the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from instrument.analyse.executions import (
    BACKWARD,
    FORWARD,
    NO_ROLE,
    OPTIMIZER,
    CountedExecutions,
    communicates,
    has_scope,
    operator_mask,
    roles,
    window_of,
)
from instrument.analyse.groupby import aggregate, mask_missing, masked
from instrument.analyse.intervals import Union
from instrument.analyse.table import ColumnArray, ColumnData, Table
from instrument.trace.assembly import EXECUTIONS
from instrument.trace.events import MISSING, SPAN_STEP, STEP, Capture, Integers, Mask, Rows, by_start, rows_at, unknown

PARTS = ("iteration_interval_ns", "fp_and_bp_ns", "tail_ns")
_NO_SCOPES = (
    "fp and bp, and tail are n/a: the names of most operators have no scopes, as in PyNative mode.",
    "The iteration interval is until the first operator of any kind.",
)
_STEPS_OF_CALLS = (
    "A step is from one call of Profiler.step() to the next: a micro-batch where it is called for each of them."
)
_STEPS_OF_EXECUTIONS = (
    "No file has steps; these are the ones that the rows of kernels name. A step lasts from its first task to the "
    "first one of the next step, the last step until its last task ends. Their parts are n/a."
)
#: What the parts are, for who reads a report and not this page.
_MEANINGS = (
    "iteration_interval is from the start of the step to its first forward operator: data, callbacks, Python.",
    "fp_and_bp is from there to the end of the last gradient operator, tail the rest: the optimizer.",
)
#: No step of a training lasts a day.
_LONGEST_NS = 86_400 * 10**9
#: A step that takes this many times the median is named, and at most this many are.
_LONG_FACTOR, _FEWEST_STEPS, _MOST_NAMED = 1000, 3, 5
#: The first step spoils the mean when it takes this many times the median of the others.
_WARM_UP_FACTOR = 2.0


def per_step(capture: Capture, counted: CountedExecutions) -> Table:
    """Tabulate the steps by start: number, start, total, the three parts, communication and number of operators.

    `model` is there where steps of several graphs are. Times are int64 in nanoseconds. `start_ns` is on the axis of the
    capture. Without any step marks the whole window is one row without a number.
    """
    points = _points(capture, counted)
    if capture.metadata.get("step_source") == "step()":
        points.notes.insert(0, _STEPS_OF_CALLS)
    rows = points.rows
    total, parts = _parts(points)
    columns: dict[str, ColumnData] = {"step": mask_missing(rows["step"])}
    if len(np.unique(rows["model"])) > 1:
        columns["model"] = mask_missing(rows["model"])
        graphs = len(np.unique(rows["model"]))
        points.notes.append(f"Steps of {graphs} graphs: a row is one run of one graph, not a step of the training.")
    columns |= {"start_ns": mask_missing(rows["start_ns"]), "total_ns": total, **parts}
    columns["all_reduce_ns"] = _communication(capture, counted, rows, points.notes)
    columns["operators"] = operators = _operators_of(counted, rows)
    points.notes.extend(_on_the_rest(capture, counted, int(operators.sum())))
    return Table("steps", columns, "Steps", points.notes)


def _on_the_rest(capture: Capture, counted: CountedExecutions, in_steps: int) -> Iterator[str]:
    """Say which steps and executions of the window are in no row."""
    marks = capture.spans[(capture.spans["kind"] == SPAN_STEP) & (capture.spans["duration_ns"] == MISSING)]
    for number in marks["number"].tolist():
        yield f"Step {number} had not ended when the window closed, and is no row."
    executions = len(counted.executions)
    if len(capture.steps) and 0 < in_steps < executions:
        yield (
            f"{executions - in_steps} of {executions} executions ran in no step: between steps, as in an evaluation, "
            "or in one that had not ended."
        )


# ---------------------------------------------------------------- the points of a step


@dataclass(frozen=True, eq=False)
class _Points:
    """Steps with the points that are known, and why others are not."""

    rows: Rows
    notes: list[str]
    #: Whether the points are marks of the device.
    is_of_device: bool = False


def _points(capture: Capture, counted: CountedExecutions) -> _Points:
    if not len(capture.steps):
        return _whole_window(capture, counted)
    rows = by_start(capture.steps)
    if capture.metadata.get("steps_from") == EXECUTIONS:
        return _Points(rows, [_STEPS_OF_EXECUTIONS])
    if (rows["fp_start_ns"] == MISSING).all() and (rows["bp_end_ns"] == MISSING).all():
        return _by_scopes(rows, capture, counted)
    return _Points(rows, [], is_of_device=True)


def _whole_window(capture: Capture, counted: CountedExecutions) -> _Points:
    """Make one row for all of the window, or none if its length is not known."""
    window = window_of(capture)
    executions = counted.near
    if window is None and len(executions):
        window = int(executions["start_ns"][0]), int((executions["start_ns"] + executions["duration_ns"]).max())
    rows = unknown(STEP, int(window is not None))
    notes = ["n/a: the trace has no step marks and no operators."]
    if window is not None:
        rows["start_ns"], rows["end_ns"] = window
        notes = ["The trace has no step marks: the whole window is shown as one step, its parts are n/a."]
    return _Points(rows, notes)


def _by_scopes(rows: Rows, capture: Capture, counted: CountedExecutions) -> _Points:
    rows, notes = _inside(rows.copy(), capture)
    executions = counted.executions
    row = rows_at(executions["start_ns"], rows)
    if not (row >= 0).any():
        return _Points(rows, [*notes, "The parts are n/a: no usable execution of an operator is in a step."])
    is_scoped = np.append(has_scope(capture.operators), False)[executions["operator"]]
    if 2 * int(is_scoped.sum()) < len(is_scoped):
        rows["fp_start_ns"] = _extent(executions, row, row >= 0, len(rows)).first
        return _Points(rows, [*notes, *_NO_SCOPES])
    role = roles(capture.operators)[executions["operator"]]
    forward, backward, update = (
        _extent(executions, row, role == wanted, len(rows)) for wanted in (FORWARD, BACKWARD, OPTIMIZER)
    )
    rows["fp_start_ns"], rows["bp_end_ns"] = forward.first, np.minimum(backward.last, rows["end_ns"])
    notes += _notes_on_scopes(forward, backward, update)
    _count(notes, ~is_scoped & (role == NO_ROLE), "executions have no scope, and may belong to any part")
    _count(notes, backward.last > rows["end_ns"], "steps have gradient operators that end behind it; its end counts")
    return _Points(rows, notes)


def _inside(rows: Rows, capture: Capture) -> tuple[Rows, list[str]]:
    """Cut steps at the moment when the window opened: what is before it holds the opening of the window, too."""
    window = window_of(capture)
    if window is None:
        return rows, []
    early = np.flatnonzero((rows["start_ns"] < window[0]) & (rows["end_ns"] > window[0]))
    before = [(int(rows["step"][place]), window[0] - int(rows["start_ns"][place])) for place in early.tolist()]
    rows["start_ns"][early] = window[0]
    return rows, [
        f"Step {step} began {ns / 10**6:.3f} ms before the window was open, and is counted from there."
        for step, ns in before
    ]


@dataclass(frozen=True, eq=False)
class _Extent:
    """When the operators of one role started first and ended last in each step, `MISSING` where there is none."""

    first: Integers
    last: Integers
    is_there: Mask


def _extent(executions: Rows, row: Integers, is_of_role: Mask, steps: int) -> _Extent:
    mine = is_of_role & (row >= 0)
    start = executions["start_ns"][mine]
    end = start + executions["duration_ns"][mine]
    starts, ends = (aggregate(row[mine], values, steps) for values in (start, end))
    is_there = starts.count > 0
    return _Extent(np.where(is_there, starts.min, MISSING), np.where(is_there, ends.max, MISSING), is_there)


def _notes_on_scopes(forward: _Extent, backward: _Extent, update: _Extent) -> list[str]:
    notes = ["The parts come from the scopes of operators (network, Gradients, optimizer)."]
    if not backward.is_there.any():
        notes.append("fp and bp, and tail are n/a: no operator is in the scope Gradients, as in an evaluation.")
    else:
        _count(notes, ~backward.is_there, "steps have no gradient operators; what follows of it is n/a")
    _count(notes, ~forward.is_there, "steps have no forward operators; what follows of it is n/a")
    updates, gradients = int(update.is_there.sum()), int(backward.is_there.sum())
    if 0 < updates < gradients:
        notes.append(f"The optimizer ran in {updates} of {gradients} steps with gradients: gradients are accumulated.")
    return notes


# ---------------------------------------------------------------- the columns


def _parts(points: _Points) -> tuple[ColumnArray, dict[str, ColumnArray]]:
    """Return total and the three parts, masked where they are not known, or where the points contradict each other."""
    rows, notes = points.rows, points.notes
    start, forward, backward, end = (rows[name] for name in ("start_ns", "fp_start_ns", "bp_end_ns", "end_ns"))
    has_start, has_forward, has_backward = start != MISSING, forward != MISSING, backward != MISSING
    has_total = has_start & (end > start)
    doubtful = has_total & _beside_damage(start, end, has_start & ~has_total)
    endless = has_total & ~doubtful & (end - start > _LONGEST_NS)
    has_total &= ~doubtful & ~endless
    wrong = (has_forward & has_start & (forward < start)) | (has_backward & (backward > end))
    wrong |= (has_forward & (forward > end)) | (has_backward & has_start & (backward < start))
    wrong |= has_forward & has_backward & (backward < forward)
    _count(notes, ~has_total & ~doubtful & ~endless, "steps have no start or no length; their times are n/a")
    _count(notes, doubtful, "steps share a moment that cannot be right with their neighbour; their times are n/a")
    _count(notes, endless, "steps last more than a day, which looks like a damaged time; their times are n/a")
    notes.extend(_on_long_steps(rows["step"], np.where(has_total, end - start, 0)))
    _count(notes, wrong & has_total, "steps have points in an impossible order; their parts are n/a")
    if points.is_of_device:
        _count(notes, ~has_forward, "steps have no mark of the start of the forward pass")
        _count(notes, ~has_backward, "steps have no mark of the end of the backward pass")
    usable = has_total & ~wrong
    masks = (usable & has_forward, usable & has_forward & has_backward, usable & has_backward)
    values = (forward - start, backward - forward, end - backward)
    parts = {
        name: masked(np.where(is_known, value, 0), ~is_known)
        for name, value, is_known in zip(PARTS, values, masks, strict=True)
    }
    return masked(np.where(has_total, end - start, 0), ~has_total), parts


def _beside_damage(start: Integers, end: Integers, is_bad: Mask) -> Mask:
    """Return the steps whose start or end is the moment that turns a neighbour's length around.

    A step starts where the one before it ended. Of a step without a length either its start is too late, or its end too
    early. Which of them shows in the neighbours, and where it does not, both are in doubt.
    """
    row_at_end = {time: row for row, time in enumerate(end.tolist())}
    row_at_start = {time: row for row, time in enumerate(start.tolist())}
    doubtful = np.zeros(len(start), np.bool_)
    for row in np.flatnonzero(is_bad).tolist():
        before, after = row_at_end.get(int(start[row])), row_at_start.get(int(end[row]))
        start_may_be_late = before is not None and start[before] < end[row]
        end_may_be_early = after is not None and end[after] > start[row]
        for neighbour, may_be in ((before, start_may_be_late), (after, end_may_be_early)):
            if neighbour is not None and neighbour != row and may_be:
                doubtful[neighbour] = True
    return doubtful


def _on_long_steps(numbers: Integers, total_ns: Integers) -> Iterator[str]:
    """Name steps that last so long that a time may be damaged. The first one warms up and may take its time."""
    later = total_ns[1:][total_ns[1:] > 0]
    if len(later) < _FEWEST_STEPS:
        return
    median = float(np.median(later))
    for row in (1 + np.flatnonzero(total_ns[1:] > _LONG_FACTOR * median)).tolist()[:_MOST_NAMED]:
        yield (
            f"Step {numbers[row]} lasts {total_ns[row] / 1e9:.3f} s, {total_ns[row] / median:.0f} times the median: a "
            "time in the trace may be damaged, or the training was stopped meanwhile."
        )


def _count(notes: list[str], concerned: Mask, text: str) -> None:
    """Add a note with the number of steps or executions that are concerned, if there are any."""
    count = int(concerned.sum())
    if count:
        notes.append(f"{count} of {len(concerned)} {text}.")


def _communication(capture: Capture, counted: CountedExecutions, rows: Rows, notes: list[str]) -> ColumnArray:
    """Return how long any communication was running in each step."""
    communication = capture.reduces[capture.reduces["duration_ns"] >= 0]
    if not len(communication):
        communication = counted.executions[operator_mask(capture, counted.executions, communicates)]
    if not len(communication):
        notes.append("all_reduce is n/a: the trace has no communication.")
        return masked(np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_))
    running = Union.of(communication)
    is_known = (rows["start_ns"] != MISSING) & (rows["end_ns"] > rows["start_ns"])
    return masked(np.where(is_known, running.within(rows["start_ns"], rows["end_ns"]), 0), ~is_known)


def _operators_of(counted: CountedExecutions, rows: Rows) -> Integers:
    row = rows_at(counted.executions["start_ns"], rows)
    numbers, places = np.unique(rows["step"], return_index=True)
    if len(numbers) == len(rows) and len(rows) and numbers[0] != MISSING:  # the source may know better than the time
        step = counted.executions["step"]
        place = np.minimum(np.searchsorted(numbers, step), len(numbers) - 1)
        row = np.where(numbers[place] == step, places[place], np.where(step == MISSING, row, MISSING))
    return np.bincount(row[row >= 0], minlength=len(rows)).astype(np.int64)


# ---------------------------------------------------------------- on average


def averages(table: Table) -> Table:
    """Average the parts of the steps of `per_step`: mean, share of the mean step, median, least, most.

    `mean_without_first_ns` leaves the first step out, which often warms up. Steps whose parts are not all known are in
    none of it, so that the parts add up. Where no step has all of its parts, each one counts where it is known.
    """
    names = ("total_ns", *PARTS, "all_reduce_ns")
    is_whole, notes = _whole(table)
    rows = [_average(table[name], is_whole) for name in names]
    whole = rows[0][0]
    shares = [None if row[0] is None or not whole else 100 * row[0] / whole for row in rows]
    parts = [name.removesuffix("_ns") for name in names]
    cells = [(part, row[0], share, *row[1:]) for part, share, row in zip(parts, shares, rows, strict=True)]
    heads = ("part", "mean_ns", "share_percent", "median_ns", "min_ns", "max_ns", "mean_without_first_ns")
    notes += filter(None, [warm_up(table)])
    steps = int(is_whole.sum())
    return Table.of_rows("step_parts", heads, cells, f"The parts of {steps} step{'' if steps == 1 else 's'}", notes)


def explained(parts: Table) -> Table:
    """Return the known parts for a report, with notes on their meaning if all are known."""
    shown = parts.take(~np.ma.getmaskarray(parts["mean_ns"]))
    is_whole = {f"{name}_ns" for name in shown["part"].tolist()}.issuperset(PARTS)
    return shown.with_notes(*_MEANINGS) if is_whole else shown


def _whole(table: Table) -> tuple[Mask, list[str]]:
    """Choose the steps that are averaged. A note counts the others."""
    is_whole = ~np.logical_or.reduce([np.ma.getmaskarray(table[name]) for name in ("total_ns", *PARTS)])
    without = len(is_whole) - int(is_whole.sum())
    if without in (0, len(is_whole)):
        return np.ones(len(is_whole), np.bool_), []
    return is_whole, [f"{without} of {len(is_whole)} steps are not averaged: not all of their parts are known."]


def _average(column: ColumnArray, is_whole: Mask) -> tuple[float | None, ...]:
    """Return mean, median, least, most, and mean without the first row."""
    is_known = is_whole & ~np.ma.getmaskarray(column)
    values, later = (np.ma.getdata(column)[part][is_known[part]] for part in (slice(0, None), slice(1, None)))
    if not len(values):
        return (None,) * 5
    without_first = float(later.mean()) if len(later) else None
    return float(values.mean()), float(np.median(values)), float(values.min()), float(values.max()), without_first


def warm_up(table: Table) -> str:
    """Return a sentence if the first step takes so long that it spoils the mean, else nothing."""
    (values,) = table.known("total_ns")
    if len(values) < 3 or np.ma.getmaskarray(table["total_ns"])[0]:
        return ""
    median = float(np.median(values[1:]))
    if not median or values[0] < _WARM_UP_FACTOR * median:
        return ""
    return (
        f"The first step takes {values[0] / 1e6:.3f} ms, {values[0] / median:.1f} times the median of the others; "
        f"the mean is {values.mean() / 1e6:.3f} ms with it and {values[1:].mean() / 1e6:.3f} ms without it."
    )
