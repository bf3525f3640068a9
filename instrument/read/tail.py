"""Follow a run that is being recorded: each point as it comes.

What was handed out is counted for each series of each file. A file that was replaced begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from instrument.errors import CorruptMessage
from instrument.read.event_file import EventFile, Key

if TYPE_CHECKING:
    from instrument.read.run import Run


class Point(NamedTuple):
    """One point: `value` is a number for scalars, else one of `instrument.values`; `wall_time` as there."""

    kind: str
    tag: str
    step: int
    wall_time: float
    value: Any
    device: int
    host: str


def follow(run: Run, interval_s: float, wait: Callable[[], bool] | None) -> Iterator[Point]:
    """The points of a run, in the order of their times as far as they come together; see `Run.follow`."""
    handed_out: dict[EventFile, dict[Key, int]] = {}
    while True:
        run.refresh()
        files = run.contents.files
        handed_out = {file: handed_out.get(file, {}) for file in files}
        found = [point for file in files for point in _new(file, handed_out[file])]
        for point in sorted(found, key=lambda one: one.wall_time):
            try:
                yield point._replace(value=point.value()) if callable(point.value) else point
            except CorruptMessage:
                continue  # its series says why when it is asked
        if not found and not (wait() if wait is not None else _sleep(interval_s)):
            return


def _new(file: EventFile, counts: dict[Key, int]) -> Iterator[Point]:
    """What a file holds beyond what was handed out, undecoded."""
    for key, points in file.points.items():
        columns = points.columns()
        first = counts.get(key, 0)
        counts[key] = len(columns[0])
        step, wall_time, raw = (column[first:] for column in columns)
        values = raw.tolist() if isinstance(raw, np.ndarray) else raw
        for point in zip(step.tolist(), wall_time.tolist(), values, strict=True):
            yield Point(*key, *point, *file.name.writer)


def _sleep(interval_s: float) -> bool:
    time.sleep(interval_s)
    return True
