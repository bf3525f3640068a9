"""Several ranks of one training: which of them is the slowest, and how far they are apart in each step.

Ranks wait for each other in communication, so their steps take the same time whoever is slow. What tells them apart is
a rank's own time: the step less the time in which it did nothing but communicate. Steps are matched by their number, as
clocks of several hosts differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from instrument.analyse import overlap
from instrument.analyse.intervals import Union
from instrument.analyse.sums import chosen, communicates, computes
from instrument.analyse.table import Table
from instrument.trace.events import MISSING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from instrument.analyse.profile import Profile


class Verdict(NamedTuple):
    """The slowest rank, with means over the steps that all ranks have.

    `own_ns` is its own time a step, `others_ns` that of the others, `behind_percent` the difference as a share of the
    step. It was the slowest in `slowest_in` of `steps`. `spread_ns` lie between the slowest and the fastest of a step,
    `spread_percent` of it. `late_ns` is how much longer than on the others it takes until the first operator of a step
    runs; None where that is not known.
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


def own_ns(profile: Profile) -> dict[int, int]:
    """Step -> the time of the rank itself, for the steps whose time is known."""
    table = profile.steps
    begin, length = (np.ma.asarray(table[name]).filled(0) for name in ("start_ns", "total_ns"))
    waits = _alone(profile, begin, begin + length)
    return {step: max(total - waits[row], 0) for row, step, total in _known(table)}


def _known(table: Table) -> Iterator[tuple[int, int, int]]:
    """Row, number and total of the steps that have both; of several graphs the first one of a number."""
    seen: set[int] = set()
    columns = (np.ma.asarray(table[name]).tolist() for name in ("step", "total_ns"))
    for row, (step, total) in enumerate(zip(*columns, strict=True)):
        if step is not None and total is not None and step not in seen:
            seen.add(step)
            yield row, step, total


def _alone(profile: Profile, start: NDArray[np.int64], end: NDArray[np.int64]) -> list[int]:
    """How long each step communicated and did nothing else."""
    capture, rows = profile.capture, profile.counted.executions
    if len(capture.overlap):
        told = (capture.overlap[name].tolist() for name in ("step", "communication_not_overlapped_ns"))
        known = {number: time for number, time in zip(*told, strict=True) if time != MISSING}
        return [known.get(number, 0) for number in np.ma.asarray(profile.steps["step"]).tolist()]
    work = rows[chosen(capture, rows, computes)]
    if not len(work):  # a trace of the host alone
        work = rows[~chosen(capture, rows, communicates)]
    working = _running(work)
    either = working.joined(_running(overlap.communication(capture, profile.counted)))
    alone: list[int] = (either.within(start, end) - working.within(start, end)).tolist()
    return alone


def _running(rows: NDArray[np.void]) -> Union:
    return Union(rows["start_ns"], rows["start_ns"] + rows["duration_ns"])


def spread(profiles: Sequence[Profile]) -> Table:
    """One row for each step that all ranks have: the slowest and the fastest rank by their own times, and between them.

    `step_ns` is the longest of that step, `spread_percent` what lies between them as a share of it.
    """
    owns = [own_ns(one) for one in profiles]
    numbers = sorted(set.intersection(*map(set, owns)))
    devices = np.array([one.device for one in profiles], np.int64)
    times = np.array([[own[number] for number in numbers] for own in owns], np.int64).reshape(len(owns), len(numbers))
    order = np.argsort(times, axis=0, kind="stable")
    fastest, slowest = order[:1].ravel(), order[-1:].ravel()
    place = np.arange(len(numbers))
    least, most = times[fastest, place], times[slowest, place]
    totals = [{step: total for _, step, total in _known(one.steps)} for one in profiles]
    longest = np.array([max(total[number] for total in totals) for number in numbers], np.int64)
    columns: dict[str, Any] = {
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


_NOTHING = "n/a: there is no step that all ranks have."


def verdict(profiles: Sequence[Profile], apart: Table) -> Verdict | None:
    """Which rank is the slowest, of the table that `spread` made; None where there is nothing to compare."""
    if len(profiles) < 2 or not len(apart):
        return None
    numbers = apart["step"].tolist()
    means = {one.device: _mean(own_ns(one), numbers) for one in profiles}
    device = max(means, key=lambda number: means[number])
    others = [mean for number, mean in means.items() if number != device]
    intervals = {one.device: _interval(one, numbers) for one in profiles}
    mine, theirs = intervals[device], [value for number, value in intervals.items() if number != device]
    known = [value for value in theirs if value is not None]
    late = mine - sum(known) / len(known) if mine is not None and len(known) == len(theirs) else None
    own, rest = means[device], sum(others) / len(others)
    step, between = (max(float(apart[name].mean()), 1.0) for name in ("step_ns", "spread_ns"))
    often = int((apart["slowest"] == device).sum())
    return Verdict(device, own, rest, 100 * (own - rest) / step, often, len(apart), between, 100 * between / step, late)


def _mean(times: dict[int, int], numbers: Sequence[int]) -> float:
    return sum(times[number] for number in numbers) / len(numbers)


def _interval(profile: Profile, numbers: Sequence[int]) -> float | None:
    """The mean time until the first operator of a step runs."""
    table = profile.steps
    is_wanted = np.isin(np.ma.asarray(table["step"]).filled(MISSING), numbers)
    values = np.ma.compressed(np.ma.asarray(table["iteration_interval_ns"])[is_wanted])
    return float(values.mean()) if len(values) else None


def in_words(found: Verdict) -> str:
    """The verdict as sentences."""
    return (
        f"Rank {found.device} is the slowest: its own time is {found.own_ns / 1e6:.3f} ms a step, that of the others "
        f"{found.others_ns / 1e6:.3f} ms; it is the slowest in {found.slowest_in} of {found.steps} steps. The ranks "
        f"are {found.spread_ns / 1e6:.3f} ms apart in a mean step ({found.spread_percent:.1f} % of it)."
    )


def devices(profiles: Sequence[Profile], apart: Table) -> Table:
    """One row a rank: steps, mean step and own time, in how many steps it was the slowest, operators and their time.

    With several ranks the notes have the verdict.
    """
    totals = [np.ma.compressed(np.ma.asarray(one.steps["total_ns"])) for one in profiles]
    numbers = apart["step"].tolist() if len(profiles) > 1 else []
    slowest = [int((apart["slowest"] == one.device).sum()) if numbers else None for one in profiles]
    columns: dict[str, Any] = {
        "device": [one.device for one in profiles],
        "target": [one.target for one in profiles],
        "steps": [len(one.capture.steps) for one in profiles],
        "mean_step_ns": [float(total.mean()) if len(total) else None for total in totals],
        "mean_own_ns": [_mean(own_ns(one), numbers) if numbers else None for one in profiles],
        "slowest_in_steps": slowest,
        "executions": [len(one.counted.executions) for one in profiles],
        "operators_ns": [int(one.sides["total_ns"].sum()) for one in profiles],
    }
    found = verdict(profiles, apart)
    return Table("devices", columns, "Ranks", [in_words(found)] if found is not None else [])
