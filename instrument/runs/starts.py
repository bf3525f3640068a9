"""The starts of a run: which one goes on from which, and how each ended.

A recorder writes a number in its first file that is greater than those of all starts it found, and lists the files that
had no end yet, with their sizes. A file with a greater number goes on from one with a smaller number, unless it lists
that file and the file has grown since: then both were written at the same time. On one host the times of events decide
as well, as a worker may write for a moment what a killed training has recorded.

Files without such a start, of MindSpore's recorder, other tools or release 0.1.0, are ordered by the wall times of
their points, and only with those of the same host. So are two files with the same number, which know nothing of each
other: they were started at the same moment, or where the directory could not be listed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from instrument.eventfile import names
from instrument.eventfile.names import Writer
from instrument.eventfile.writer import is_being_written
from instrument.values import ENDED, FAILED, FINISHED, Start

if TYPE_CHECKING:
    from instrument.runs.event_file import EventFile

RUNNING, KILLED, UNKNOWN = "running", "killed", "unknown"
#: A run of several ranks is in the first of these states in which one of them is.
_STATES = (RUNNING, KILLED, FAILED, UNKNOWN, ENDED, FINISHED)


class Origin(NamedTuple):
    """The recorder that wrote a file, as far as the file tells: `began` is the wall time of its start."""

    file_name: str
    writer: Writer
    first_wall_time: float
    last_wall_time: float
    content_bytes: int
    start: Start | None
    began: float

    def follows(self, other: Origin) -> bool:
        """Return True if this recorder began after the other one of the same rank had ended."""
        if self.writer[0] != other.writer[0]:
            return False
        if self.start is None or (other.start is not None and other.start.number == self.start.number):
            return self.writer == other.writer and other.last_wall_time < self.first_wall_time
        size_bytes = self.start.unfinished.get(other.file_name)
        if other.start is None:
            if size_bytes is None:
                return False  # it was not there yet
        elif other.start.number > self.start.number:
            return False
        return size_bytes is None or not self._has_seen_growing(other, size_bytes)

    def _has_seen_growing(self, other: Origin, size_bytes: int) -> bool:
        """Return True if the other one, whose file had a size, has recorded something since this one began."""
        if other.content_bytes <= size_bytes:
            return False
        return self.writer != other.writer or other.last_wall_time >= self.began


def joined(origins: Iterable[Origin]) -> dict[Writer, Writer]:
    """Return the writers that one of another host has gone on with, and the last of these."""
    of_rank: dict[int, list[Origin]] = {}
    for origin in origins:
        of_rank.setdefault(origin.writer[0], []).append(origin)
    latest: dict[Writer, Writer] = {}
    for group in of_rank.values():
        if len({origin.writer for origin in group}) > 1:
            for later in sorted(group, key=_number):
                latest |= {
                    other.writer: later.writer
                    for other in group
                    if other.writer != later.writer and later.follows(other)
                }
    return {writer: _last(writer, latest) for writer in latest}


def _last(writer: Writer, latest: dict[Writer, Writer]) -> Writer:
    seen = {writer}
    while (further := latest.get(writer)) is not None and further not in seen:
        seen.add(further)
        writer = further
    return writer


def _number(origin: Origin) -> int:
    return 0 if origin.start is None else origin.start.number


def replaced_from(origins: Sequence[Origin], first_steps: Sequence[int]) -> list[int | None]:
    """Return for each file of a series the step from which on files that go on from it replace it; None for none.

    `first_steps` are the smallest steps that the files have of the series. Mostly each start goes on from all before
    it, so that a thousand starts need not be compared with each other.
    """
    if len(origins) == 1:
        return [None]
    starts = [origin.start for origin in origins if origin.start is not None and not origin.start.unfinished]
    is_plain = len(starts) == len({start.number for start in starts}) == len(origins)
    is_plain = is_plain and len({origin.writer[0] for origin in origins}) == 1
    result: list[int | None] = [None] * len(origins)
    if is_plain:
        least: int | None = None
        for index in sorted(range(len(origins)), key=lambda index: -_number(origins[index])):
            result[index] = least
            least = first_steps[index] if least is None else min(least, first_steps[index])
        return result
    # Points without a time, which are NaN, begin after they have ended.
    if all(origin.start is None and origin.first_wall_time <= origin.last_wall_time for origin in origins):
        return _replaced_by_time(origins, first_steps)
    for index, origin in enumerate(origins):
        steps = [first_steps[other] for other, later in enumerate(origins) if other != index and later.follows(origin)]
        result[index] = min(steps, default=None)
    return result


def _replaced_by_time(origins: Sequence[Origin], first_steps: Sequence[int]) -> list[int | None]:
    """Return the same for files that say nothing of their start: those follow that began after the last point."""
    by_writer: dict[Writer, list[int]] = {}
    for index, origin in enumerate(origins):
        by_writer.setdefault(origin.writer, []).append(index)
    result: list[int | None] = [None] * len(origins)
    for indexes in by_writer.values():
        indexes.sort(key=lambda index: origins[index].first_wall_time)
        began = [origins[index].first_wall_time for index in indexes]
        least = list(accumulate((first_steps[index] for index in reversed(indexes)), min))[::-1]
        for index in indexes:
            later = bisect_right(began, origins[index].last_wall_time)
            result[index] = least[later] if later < len(least) else None
    return result


@dataclass(frozen=True)
class RunStart:
    """One start of a run. Times are seconds since the epoch (UTC); `ended` is None where the file does not say.

    `number` counts the starts of a rank in the directory, from 1. `state` is

    - `"finished"`: the recorder was closed, and the training came to its end;
    - `"failed"`: an exception ended it, which `reason` names;
    - `"ended"`: the program ended, or let go of the recorder, without closing it;
    - `"running"`: the file is being written at this moment, by a process of this machine;
    - `"killed"`: nobody writes the file, and it says nothing of an end;
    - `"unknown"`: the same, but its recorder ran on another machine, where it may still run.
    """

    number: int
    id: str
    device: int
    host: str
    file: str
    began: float
    ended: float | None
    state: str
    reason: str = ""


def starts_in(files: Iterable[EventFile]) -> list[RunStart]:
    """Return the starts that files tell of, by number, then by rank."""
    result = []
    for file in files:
        if file.begun is None:
            continue
        began, start = file.begun
        ended, end = file.ended or (None, None)
        device, host = file.name.writer
        state = _state_without_end(file.path, host) if end is None else end.status
        reason = "" if end is None else end.reason
        result.append(RunStart(start.number, start.id, device, host, file.path, began, ended, state, reason))
    return sorted(result, key=lambda one: (one.number, one.device, one.began, os.path.basename(one.file)))


def _state_without_end(path: str, host: str) -> str:
    if is_being_written(path):
        return RUNNING
    return KILLED if host == names.host() else UNKNOWN


def state_of(starts: Iterable[RunStart]) -> str:
    """Return the state of a run: of the last starts of all ranks the one that needs most attention; else unknown."""
    last = {start.device: start.state for start in starts}
    return next((state for state in _STATES if state in last.values()), UNKNOWN)
