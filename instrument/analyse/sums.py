"""Which executions count, and with how much time.

A trace holds impossible executions: ends that were lost, counters that ran over, durations of seconds among ones of
microseconds. Each stays in the timeline; here it is left out of sums, or cut where the next one begins on a stream that
does one after the other, and counted by kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from instrument.trace.events import AI_CPU, COMMUNICATION, CPU, MISSING, Capture, Operator, Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Nothing that a device executes lasts eleven days.
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
class Counted:
    """`executions` (dtype EXECUTION, by start) that count in sums, with the durations that count.

    `left_out` says how many of which kind do not count; kinds without any are not in it. `clipped_ns` was cut off
    `clipped` of those that do. `zero_duration` is how many last 0 ns: they count as executions.
    """

    executions: NDArray[np.void]
    left_out: dict[str, int]
    clipped: int = 0
    clipped_ns: int = 0
    zero_duration: int = 0

    def problems(self) -> list[Problem]:
        found = [Problem("executions", f"{_WORDS[kind]}, left out of sums", n) for kind, n in self.left_out.items()]
        if self.clipped:
            what = f"executions that reach past the next one or the window's end, cut by {self.clipped_ns} ns together"
            found.append(Problem("executions", what, self.clipped))
        if self.zero_duration:
            found.append(Problem("executions", "executions of 0 ns, counted as executions", self.zero_duration))
        return found


def counted(capture: Capture) -> Counted:
    """The executions of `capture` that count in sums."""
    rows = capture.executions
    kinds = _bad(rows, window_of(capture))
    is_good = np.ones(len(rows), np.bool_)
    left_out: dict[str, int] = {}
    for kind, is_bad in kinds.items():  # each is counted under its first kind
        number = int((is_good & is_bad).sum())
        is_good &= ~is_bad
        left_out |= {kind: number} if number else {}
    good = rows[is_good]
    good = good[np.argsort(good["start_ns"], kind="stable")]
    before = good["duration_ns"].copy()
    _clip_at_window(good, capture)
    _clip_at_next(good, capture)
    cut = before - good["duration_ns"]
    return Counted(good, left_out, int((cut > 0).sum()), int(cut.sum()), int((before == 0).sum()))


def _bad(rows: NDArray[np.void], window: tuple[int, int] | None) -> dict[str, NDArray[np.bool_]]:
    start, duration = rows["start_ns"], rows["duration_ns"]
    outside = np.zeros(len(rows), np.bool_)
    if window is not None:
        outside = (start < window[0]) | (start >= window[1])
    return {
        "zero_timestamp": start <= 0,
        "open": duration == MISSING,
        "negative": duration < 0,
        "too_long": duration > _LONGEST_NS,
        "outside": outside,
    }


def window_of(capture: Capture) -> tuple[int, int] | None:
    """When the window was opened and closed, on the axis of the capture; None where it does not say."""
    times = (capture.metadata.get("start_ns"), capture.metadata.get("stop_ns"))
    if capture.clock != "epoch" or not all(isinstance(time, int) for time in times):
        return None
    start, stop = (int(time) for time in times)  # type: ignore[call-overload]
    return (start, stop) if 0 < start < stop else None


def _clip_at_window(rows: NDArray[np.void], capture: Capture) -> None:
    window = window_of(capture)
    if window is not None:
        rows["duration_ns"] = np.minimum(rows["duration_ns"], window[1] - rows["start_ns"])


def _clip_at_next(rows: NDArray[np.void], capture: Capture) -> None:
    """Cut each execution of a stream that does one after the other at the next later start there."""
    is_serial = chosen(capture, rows, lambda operator: operator.side not in _PARALLEL) & (rows["stream"] != MISSING)
    places = np.flatnonzero(is_serial)
    places = places[np.lexsort((rows["start_ns"][places], rows["stream"][places]))]
    start, stream = rows["start_ns"][places], rows["stream"][places]
    following = _next_later(start, stream)
    has_next = following >= 0
    room = start[following[has_next]] - start[has_next]
    mine = places[has_next]
    rows["duration_ns"][mine] = np.minimum(rows["duration_ns"][mine], room)


def _next_later(start: NDArray[np.int64], stream: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row, the first one behind it of the same stream with a later start; -1 without one."""
    count = len(start)
    result = np.full(count, -1, np.int64)
    if count < 2:
        return result
    is_new = (start[1:] != start[:-1]) | (stream[1:] != stream[:-1])
    borders = np.flatnonzero(is_new) + 1
    group = np.concatenate([[0], np.cumsum(is_new)])
    ahead = np.append(borders, -1)[group]
    is_same_stream = (ahead >= 0) & (stream[ahead] == stream)
    result[is_same_stream] = ahead[is_same_stream]
    return result


def chosen(capture: Capture, rows: NDArray[np.void], choose: Callable[[Operator], bool]) -> NDArray[np.bool_]:
    """Which of `rows` (dtype EXECUTION) are of operators that `choose` says yes to."""
    is_chosen = np.array([choose(operator) for operator in capture.operators] + [False], np.bool_)
    result: NDArray[np.bool_] = is_chosen[rows["operator"]]
    return result


def communicates(operator: Operator) -> bool:
    """Whether an operator is a communication between devices, which some sources list among those that compute."""
    return operator.side == COMMUNICATION or is_collective(operator.type)


def is_collective(kind: str) -> bool:
    """Whether operators of a type are a communication between devices."""
    return kind.lower().startswith(_COLLECTIVES)


def computes(operator: Operator) -> bool:
    """Whether an operator is the device's own work."""
    return operator.side != CPU and not communicates(operator)


def grouped(keys: NDArray[np.int64], values: NDArray[np.int64], groups: int) -> dict[str, NDArray[np.int64]]:
    """`count`, `total`, `min` and `max` of the values of each key below `groups`, exact; 0 where there is none."""
    order = np.argsort(keys, kind="stable")
    count = np.bincount(keys, minlength=groups).astype(np.int64)
    found = {"count": count, **{name: np.zeros(groups, np.int64) for name in ("total", "min", "max")}}
    places = np.flatnonzero(count)
    if len(places):
        first = np.concatenate([[0], np.cumsum(count[places])[:-1]])
        ordered = values[order]
        for name, ufunc in (("total", np.add), ("min", np.minimum), ("max", np.maximum)):
            found[name][places] = ufunc.reduceat(ordered, first)
    return found


def masked(values: NDArray[Any], is_missing: NDArray[np.bool_]) -> NDArray[Any]:
    """`values`, masked where `is_missing`; plain where nothing is."""
    if not is_missing.any():
        return values
    result: NDArray[Any] = np.ma.MaskedArray(values, is_missing)
    return result


def unmissing(values: NDArray[Any]) -> NDArray[Any]:
    """`values`, masked where they are `MISSING`."""
    return masked(values, values == MISSING)


def distinct(keys: Sequence[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """The different keys as they are first met, and for each key its place among them."""
    known: dict[Any, int] = {}
    places = np.fromiter((known.setdefault(key, len(known)) for key in keys), np.int64, len(keys))
    return list(known), places
