"""The executions that count in sums, and with how much time.

An execution counts with the time from its start to its end, as the capture and the timeline have it: kernels of one
task may run inside each other on one stream, and each counts in full. The time in which a stream was busy is a union of
intervals (see `intervals`).

A trace also holds impossible executions: ends that were lost, counters that ran over. Each stays in the timeline. Here
it is left out of sums and counted by kind. Only where the trace itself says that records were lost inside of an
execution, it ends at the latest where the next one of its stream begins after that place.

The roles of operators (forward, backward, optimizer) come from the scopes in their full names. In graph mode
`Default/network...` is the forward pass, `Gradients/...` the backward pass and `.../optimizer...` the update of the
weights. In PyNative mode a name has no scope, or nothing but `Default/`, and nothing says what it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from instrument.analyse.intervals import far
from instrument.trace.events import (
    AI_CPU,
    COMMUNICATION,
    CPU,
    MISSING,
    Capture,
    Integers,
    Mask,
    Operator,
    Problem,
    Rows,
    by_start,
)

#: Nothing lasts eleven days, and a timeline of that range shows nothing else.
_LONGEST_NS = 10**15
#: Sides that do several things at once, also on what the trace calls one stream.
_PARALLEL = frozenset({CPU, AI_CPU, COMMUNICATION})
_COLLECTIVES = (
    "allreduce", "allgather", "reducescatter", "alltoall", "neighborexchange", "hcom", "hccl", "nccl",
)  # fmt: skip
#: Kind of what is left out -> in words.
_WORDS = {
    "zero_timestamp": "executions without a start (a time of zero)",
    "open": "executions without an end",
    "negative": "executions with a negative duration",
    "too_long": "executions that last more than eleven days",
    "outside": "executions outside of the window",
}


@dataclass(frozen=True, eq=False)
class CountedExecutions:
    """`executions` (dtype EXECUTION, by start) that count in sums, with the durations that count.

    `left_out` says how many of which kind do not count. Kinds without any are not in it. `clipped_ns` was cut off
    `clipped` of those that do, as they reach over the end of the window or over a place where records were lost.
    `uncertain` is how many have such a place inside, cut or not. `overlapping` reach past the start of another task on
    their stream. `far` lie far away from nearly all others: their durations count, but the time between does not.
    `zero_duration` is how many last 0 ns: they count as executions.
    """

    executions: Rows
    left_out: dict[str, int]
    clipped: int = 0
    clipped_ns: int = 0
    zero_duration: int = 0
    uncertain: int = 0
    overlapping: int = 0
    far: int = 0

    @cached_property
    def near(self) -> Rows:
        """The executions that tell how much time passed: without those that are far away from nearly all others."""
        rows = self.executions
        return rows[~far(rows["start_ns"], rows["start_ns"] + rows["duration_ns"])] if self.far else rows

    def problems(self) -> list[Problem]:
        """List what is not in the sums, or not certain in them."""
        problems = [Problem("executions", f"{_WORDS[kind]}, left out of sums", n) for kind, n in self.left_out.items()]
        if self.clipped:
            text = (
                "executions that reach over the end of the window or a place where records were lost, cut by "
                f"{self.clipped_ns} ns together"
            )
            problems.append(Problem("executions", text, self.clipped))
        if self.uncertain:
            text = "executions in whose middle records were lost: their durations are not certain"
            problems.append(Problem("executions", text, self.uncertain))
        if self.overlapping:
            text = "executions that reach past the start of another task on their stream, counted in full"
            problems.append(Problem("executions", text, self.overlapping))
        if self.far:
            text = "executions that begin or end far away from all others, left out of the window and of idle times"
            problems.append(Problem("executions", text, self.far))
        if self.zero_duration:
            problems.append(Problem("executions", "executions of 0 ns, counted as executions", self.zero_duration))
        return problems


def count_executions(capture: Capture) -> CountedExecutions:
    """Choose the executions of `capture` that count in sums."""
    rows = capture.executions
    window = window_of(capture)
    kinds = impossible(rows)
    if window is not None:
        kinds["outside"] = (rows["start_ns"] < window[0]) | (rows["start_ns"] >= window[1])
    is_good, left_out = sort_out(kinds, len(rows))
    good = rows[is_good]
    good = by_start(good)
    before = good["duration_ns"].copy()
    if window is not None:
        good["duration_ns"] = np.minimum(good["duration_ns"], window[1] - good["start_ns"])
    streams = _serial_streams(good, capture)
    uncertain = _clip_where_records_were_lost(good, streams, capture.lost)
    cut = before - good["duration_ns"]
    overlapping = sum(_overlapping(good[places]) for places in streams)
    zero = int((before == 0).sum())
    distant = int(far(good["start_ns"], good["start_ns"] + good["duration_ns"]).sum())
    return CountedExecutions(
        good, left_out, int((cut > 0).sum()), int(cut.sum()), zero, uncertain, overlapping, distant
    )


def impossible(rows: Rows, may_be_open: bool = False) -> dict[str, Mask]:
    """Return which rows have times that cannot be, by kind. `may_be_open`: rows without an end are none of them."""
    start, duration = rows["start_ns"], rows["duration_ns"]
    is_open = duration == MISSING
    return {
        "zero_timestamp": start <= 0,
        "open": is_open & (not may_be_open),
        "negative": (duration < 0) & ~is_open,
        "too_long": duration > _LONGEST_NS,
    }


def sort_out(kinds: Mapping[str, Mask], count: int) -> tuple[Mask, dict[str, int]]:
    """Return which of `count` rows are of none of the kinds, and how many others there are, each by its first kind."""
    is_good = np.ones(count, np.bool_)
    left_out: dict[str, int] = {}
    for kind, is_bad in kinds.items():
        if number := int((is_good & is_bad).sum()):
            left_out[kind] = number
        is_good &= ~is_bad
    return is_good, left_out


def window_of(capture: Capture) -> tuple[int, int] | None:
    """Return when the window was opened and closed, on the clock of the capture, or None if the trace does not say."""
    times = (capture.metadata.get("start_ns"), capture.metadata.get("stop_ns"))
    if capture.clock != "epoch" or not all(isinstance(time, int) for time in times):
        return None
    start, stop = (int(time) for time in times)  # type: ignore[call-overload]
    return (start, stop) if 0 < start < stop else None


def _serial_streams(rows: Rows, capture: Capture) -> list[NDArray[np.intp]]:
    """Return the indices of the rows of each stream that runs one task after the other, by start."""
    is_serial = operator_mask(capture, rows, lambda operator: operator.side not in _PARALLEL) & (
        rows["stream"] != MISSING
    )
    places = np.flatnonzero(is_serial)
    places = places[np.argsort(rows["stream"][places], kind="stable")]
    stream = rows["stream"][places]
    return np.split(places, np.flatnonzero(stream[1:] != stream[:-1]) + 1) if len(places) else []


def _clip_where_records_were_lost(rows: Rows, streams: Sequence[NDArray[np.intp]], lost: Rows) -> int:
    """Cut executions in whose middle records were lost at the next start of their stream. Return how many these are.

    The end that such an execution was given may be that of a later one of its task.
    """
    lost = lost[lost["end_ns"] >= lost["start_ns"]]
    lost = by_start(lost)
    if not len(lost):
        return 0
    reopened = np.minimum.accumulate(lost["end_ns"][::-1])[::-1]  # the earliest end of this place and all later ones
    uncertain = 0
    for places in streams:
        start = rows["start_ns"][places]
        end = start + rows["duration_ns"][places]
        place = np.searchsorted(lost["start_ns"], start, "left")
        is_inside = place < len(lost)
        after = reopened[np.minimum(place, len(lost) - 1)]
        is_inside &= after <= end
        following = np.searchsorted(start, after, "left")
        has_next = is_inside & (following < len(start))
        room = start[np.minimum(following, len(start) - 1)] - start
        is_cut = has_next & (room < end - start)
        rows["duration_ns"][places[is_cut]] = room[is_cut]
        uncertain += int(is_inside.sum())
    return uncertain


def _overlapping(rows: Rows) -> int:
    """Count the executions of a stream, by start, that reach past the start of another task.

    Kernels of one task may run inside each other.
    """
    if len(rows) < 2:
        return 0
    end = rows["start_ns"] + rows["duration_ns"]
    reach = np.maximum.accumulate(end)
    is_latest = np.append(True, end[1:] > reach[:-1])
    latest = np.maximum.accumulate(np.where(is_latest, np.arange(len(rows)), 0))[:-1]
    task = rows["task"]
    is_other = (task[latest] != task[1:]) | (task[1:] == MISSING)
    return len(np.unique(latest[(rows["start_ns"][1:] < reach[:-1]) & is_other]))


def operator_mask(capture: Capture, rows: Rows, accepts: Callable[[Operator], bool]) -> Mask:
    """Return a mask of `rows` (dtype EXECUTION): True where `accepts` is true of the row's operator."""
    is_accepted = np.array([accepts(operator) for operator in capture.operators] + [False], np.bool_)
    mask: Mask = is_accepted[rows["operator"]]
    return mask


def communicates(operator: Operator) -> bool:
    """Return True for communication between devices, which some sources list among the operators that compute."""
    return operator.side == COMMUNICATION or is_collective(operator.type)


def is_collective(kind: str) -> bool:
    """Return True if operators of a type are communication between devices."""
    return kind.lower().startswith(_COLLECTIVES)


def computes(operator: Operator) -> bool:
    """Return True if an operator is the device's own work."""
    return operator.side != CPU and not communicates(operator)


# ---------------------------------------------------------------- roles of operators, by the scopes in their full names

NO_ROLE, FORWARD, BACKWARD, OPTIMIZER = range(4)
_GRADIENTS = "Gradients/"
_OPTIMIZER = "optimizer"
_NETWORK = "network"


def roles(operators: Sequence[Operator]) -> Integers:
    """Return the role of each operator.

    Where nothing is in a scope `network`, as in a network of the user's own making, all that is in a scope and has no
    other role is forward.
    """
    names = [operator.full_name for operator in operators]
    result = np.array([_role(name) for name in names], np.int64)
    if not (result == FORWARD).any():
        result[has_scope(operators) & (result == NO_ROLE)] = FORWARD
    return result


def has_scope(operators: Sequence[Operator]) -> Mask:
    """Return a mask of the operators that are in a scope of the network."""
    names = (operator.full_name for operator in operators)
    return np.array([name.startswith(_GRADIENTS) or name.count("/") > 1 for name in names], np.bool_)


def _role(full_name: str) -> int:
    if full_name.startswith(_GRADIENTS):
        return BACKWARD
    scopes = full_name.split("/")[:-1]
    if any(scope.startswith(_OPTIMIZER) for scope in scopes):
        return OPTIMIZER
    return FORWARD if any(scope.startswith(_NETWORK) for scope in scopes) else NO_ROLE
