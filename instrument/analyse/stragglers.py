"""Stragglers: the slowest of several ranks of one training, and how far the ranks are apart in each step.

Ranks wait for each other in communication, so all steps take the same time, whichever rank is slow. What tells them
apart is a rank's own time: the step less the time in which it did nothing but communicate. Steps are matched by their
number, as clocks of several hosts differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from instrument.analyse.table import ColumnData, Table
from instrument.analyse.tables import ProfileTables


class Straggler(NamedTuple):
    """The slowest rank, with means over the steps that all ranks have.

    `own_ns` is its own time a step, `others_ns` that of the others, `behind_percent` the difference as a share of the
    step. It was the slowest in `slowest_in` of `steps`. `spread_ns` lie between the slowest and the fastest of a step,
    `spread_percent` of it. `late_ns` is how much longer than on the others it takes until the first operator of a step
    runs, or None where that is not known.
    """

    device: int
    own_ns: float
    others_ns: float
    behind_percent: float
    slowest_in: int
    steps: int
    spread_ns: float
    spread_percent: float
    late_ns: float | None


def spread(ranks: Sequence[ProfileTables]) -> Table:
    """Tabulate the steps that all ranks have: the slowest and the fastest rank by their own times, and between them.

    `step_ns` is the longest of that step, `spread_percent` what lies between them as a share of it.
    """
    numbers = sorted(set.intersection(*(set(rank.own_ns) for rank in ranks)))
    devices = np.array([rank.device for rank in ranks], np.int64)
    own = [[rank.own_ns[number] for number in numbers] for rank in ranks]
    times = np.array(own, np.int64).reshape(len(ranks), len(numbers))
    order = np.argsort(times, axis=0, kind="stable")
    fastest, slowest = order[:1].ravel(), order[-1:].ravel()
    place = np.arange(len(numbers))
    least, most = times[fastest, place], times[slowest, place]
    totals = [_totals(rank.steps) for rank in ranks]
    longest = np.array([max(total[number] for total in totals) for number in numbers], np.int64)
    columns: dict[str, ColumnData] = {
        "step": np.array(numbers, np.int64),
        "step_ns": longest,
        "slowest": devices[slowest],
        "slowest_own_ns": most,
        "fastest": devices[fastest],
        "fastest_own_ns": least,
        "spread_ns": most - least,
        "spread_percent": 100 * (most - least) / np.maximum(longest, 1),
    }
    notes = ["A rank's own time is the step less the time in which it only communicates, and so waits for others."]
    return Table("spread", columns, "How far the ranks are apart", notes if numbers else [_NOTHING])


def _totals(steps: Table) -> dict[int, int]:
    """Return step -> total of the steps that have both. Of several graphs the first one of a number."""
    columns = (column.tolist()[::-1] for column in steps.known("step", "total_ns"))
    return dict(zip(*columns, strict=True))


_NOTHING = "n/a: there is no step that all ranks have."


def verdict(ranks: Sequence[ProfileTables], apart: Table) -> Straggler | None:
    """Find the slowest rank in the table that `spread` made, or None if there is nothing to compare."""
    if len(ranks) < 2 or not len(apart):
        return None
    numbers = apart["step"].tolist()
    slowest, *others = sorted(ranks, key=lambda rank: -_mean(rank.own_ns, numbers))
    device, own = slowest.device, _mean(slowest.own_ns, numbers)
    rest = sum(_mean(rank.own_ns, numbers) for rank in others) / len(others)
    mine, times = _interval(slowest, numbers), [_interval(rank, numbers) for rank in others]
    known = [time for time in times if time is not None]
    late = mine - sum(known) / len(known) if mine is not None and len(known) == len(times) else None
    step, between = (max(float(apart[name].mean()), 1.0) for name in ("step_ns", "spread_ns"))
    often = int((apart["slowest"] == device).sum())
    return Straggler(
        device, own, rest, 100 * (own - rest) / step, often, len(apart), between, 100 * between / step, late
    )


def _mean(times: dict[int, int], numbers: Sequence[int]) -> float:
    return sum(times[number] for number in numbers) / len(numbers)


def _interval(rank: ProfileTables, numbers: Sequence[int]) -> float | None:
    """Return the mean time until the first operator of a step runs."""
    step, interval = rank.steps.known("step", "iteration_interval_ns")
    values = interval[np.isin(step, numbers)]
    return float(values.mean()) if len(values) else None


def in_words(slowest: Straggler) -> str:
    """Return the verdict as sentences."""
    return (
        f"Rank {slowest.device} is the slowest: its own time is {slowest.own_ns / 1e6:.3f} ms a step, that of the "
        f"others {slowest.others_ns / 1e6:.3f} ms; it is the slowest in {slowest.slowest_in} of {slowest.steps} steps. "
        f"The ranks are {slowest.spread_ns / 1e6:.3f} ms apart in a mean step ({slowest.spread_percent:.1f} % of it)."
    )


def devices(ranks: Sequence[ProfileTables], apart: Table) -> Table:
    """Tabulate the ranks: steps, mean step, own time, number of steps as the slowest, operators and their time.

    With several ranks the notes have the verdict.
    """
    totals = [rank.steps.known("total_ns")[0] for rank in ranks]
    numbers = apart["step"].tolist() if len(ranks) > 1 else []
    columns: dict[str, ColumnData] = {
        "device": [rank.device for rank in ranks],
        "target": [rank.target for rank in ranks],
        "steps": [len(rank.capture.steps) for rank in ranks],
        "mean_step_ns": [float(total.mean()) if len(total) else None for total in totals],
        "mean_own_ns": [_mean(rank.own_ns, numbers) if numbers else None for rank in ranks],
        "slowest_in_steps": [int((apart["slowest"] == rank.device).sum()) if numbers else None for rank in ranks],
        "executions": [len(rank.counted.executions) for rank in ranks],
        "operators_ns": [int(rank.sides["total_ns"].sum()) for rank in ranks],
    }
    slowest = verdict(ranks, apart)
    return Table("devices", columns, "Ranks", [in_words(slowest)] if slowest is not None else [])
