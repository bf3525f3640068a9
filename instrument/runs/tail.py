"""Follow a run that is being recorded: each point as it comes, and whether more can come.

What was handed out is counted for each series of each file. A file that was replaced begins anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from instrument.errors import CorruptMessage
from instrument.eventfile.writer import is_being_written
from instrument.ringfile import pending
from instrument.runs.event_file import EventFile, Key
from instrument.runs.run_data import RunData

#: A recorder that hands its files from one process to the next leaves them unlocked for less than this.
HANDOVER_S = 3.0


class Point(NamedTuple):
    """One point: `value` is a number for scalars, else one of `instrument.values`; `wall_time` as there."""

    kind: str
    tag: str
    step: int
    wall_time: float
    value: Any
    device: int
    host: str


class Followed(Protocol):
    """A run, as far as following it goes."""

    path: str
    files: list[str]
    traces: list[str]

    @property
    def contents(self) -> RunData:
        """Return what the files hold."""

    def refresh(self) -> None:
        """Read what has come since."""


R = TypeVar("R", bound=Followed)


class Tail(Generic[R]):
    """The points of a run that were not handed out yet."""

    def __init__(self, run: R) -> None:
        self.run = run
        self._handed_out: dict[EventFile, dict[Key, int]] = {}

    def new(self) -> list[Point]:
        """Bring the run up to date; return what came since the last call, in the order of times, not decoded."""
        self.run.refresh()
        files = self.run.contents.files
        self._handed_out = {file: self._handed_out.get(file, {}) for file in files}
        points = [point for file in files for point in _new(file, self._handed_out[file])]
        return sorted(points, key=lambda point: point.wall_time)


def decoded(point: Point) -> Point:
    """Return the point with its value.

    Raises:
        CorruptMessage: it is damaged.
    """
    return point._replace(value=point.value()) if callable(point.value) else point


def follow(run: Followed, interval_s: float, wait: Callable[[], bool] | None) -> Iterator[Point]:
    """Iterate over the points of a run, in the order of their times as far as they come together; see `Run.follow`."""
    tail = Tail(run)
    while True:
        points = tail.new()
        for point in points:
            try:
                yield decoded(point)
            except CorruptMessage:
                continue  # its series says why when it is asked
        if not points and not (wait() if wait is not None else _sleep(interval_s)):
            return


class Ending:
    """Decide when a run that is followed has ended.

    Recorders of instrument hold locks on the ring file and the event files until the last byte is written, also when
    the training is killed: the run has ended when the locks are gone, and stay gone for `HANDOVER_S`. Other recorders
    hold none: their run has ended when its files hold something and have not changed for `idle_s`.
    """

    def __init__(self, run: Followed, idle_s: float, now: Callable[[], float] = time.time) -> None:
        self._run = run
        self._idle_s = idle_s
        self._now = now
        self._directory = os.path.dirname(run.path) or os.curdir if os.path.isfile(run.path) else run.path
        self._last_locked: float | None = None

    def is_over(self) -> bool:
        """Return True where no more can be expected; False while the run holds nothing yet."""
        files, now = [*self._run.files, *self._run.traces], self._now()
        if any(map(is_being_written, files)) or pending.is_recording(self._directory):
            self._last_locked = now
            return False
        if self._last_locked is not None:
            return now - self._last_locked >= min(HANDOVER_S, self._idle_s)
        if not files or not self._run.contents.keys():
            return False
        return now - max(map(_changed, files)) >= self._idle_s


def _changed(path: str) -> float:
    try:
        return os.path.getmtime(path)
    except OSError:
        return 0.0


def _new(file: EventFile, counts: dict[Key, int]) -> Iterator[Point]:
    """Iterate over what a file holds beyond what was handed out, not decoded."""
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
