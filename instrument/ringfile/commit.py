"""Committing events to their files: the order, the limits of size, and gaps for events that cannot be written.

The problem: an event may have parts in up to four files. Whichever process writes them may be killed in the middle, and
its successor, a reader or the next recorder must be able to tell what counts. An event that cannot be encoded, or for
which a file has no room, must neither stop the others nor disappear without a trace.

The strategy:

- Encoding runs in any worker and in any order; a `Job` is its result. Committing happens in the order of the sequence
  numbers: the process that holds the next ones appends their frames behind the committed lengths, in one write a file,
  and publishes the new `State`.
- `State` is all that a successor needs. What stands behind its lengths was never committed, and is cut off. So an event
  is in all of its files or in none.
- An event that cannot be written becomes a job too, with a gap in its place: each number is committed exactly once.
- Near the limit of a file's size, room is kept for one gap, so that the file itself records that it is full.

Only `Committer` touches files, and callers can substitute them. The workers, the sink without workers, recovery, and
readers of dead rings all commit with this code, and thus agree to the byte.

Rejected: a journal beside the files. It would have to be written and synchronised for each event; the ring is one
already. Rejected as well: fsync at each commit. It costs milliseconds, and protects only from crashes of the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, Protocol

from instrument.codec import wire
from instrument.codec.dialects import MINDSPORE, Layout
from instrument.eventfile import frame
from instrument.eventfile.writer import EventFileWriter
from instrument.events import Event, Item, MessageItem
from instrument.ringfile.control import State

if TYPE_CHECKING:
    from instrument.values import Gap

#: Files by their place in the layout of MindSpore's dialect; the first one of any layout records gaps.
SUMMARY, LINEAGE = 0, 1
#: A file with less room than this share of its limit is closed by the first event that does not fit.
CLOSING_SHARE = 1 / 8
#: What an event has for the files that there may be, where it has nothing.
NO_FRAMES: Sequence[wire.Pieces] = ([], [], [], [])


class Diagnostic(NamedTuple):
    """A problem that is reported to the trainer.

    `kind` is "lost" (an event is missing), "stalled" (nothing can be written at the moment), "kept" (the ring file has
    what could not be written), "gone" (a file was taken away with what was written before), "limit" (a file is full),
    "large" (an event is too large for what is left of a file), "export" or "sync".
    """

    kind: str
    step: int
    path: str
    reason: str


Report = Callable[[Diagnostic], None]


class Job(NamedTuple):
    """An encoded event: framed pieces for each file of the layout; `paths` names the files.

    `gaps` are its items that record what is missing before it; `events` is 0 if it has nothing else.
    """

    sequence: int
    step: int
    wall_time: float
    frames: Sequence[wire.Pieces]
    paths: tuple[str, ...]
    failed: bool = False
    events: int = 1
    gaps: Sequence[Item] = ()

    @property
    def total_bytes(self) -> int:
        return sum(self.size_bytes(file) for file in range(len(self.frames)))

    def size_bytes(self, file: int) -> int:
        return wire.size(self.frames[file])

    def without_frames(self) -> Job:
        """Return the job of an event that is not written."""
        return self._replace(failed=True, frames=NO_FRAMES)

    def has_part_in(self, file: int) -> bool:
        return bool(self.frames[file])


def encode(sequence: int, event: Event, paths: tuple[str, ...], report: Report, layout: Layout = MINDSPORE) -> Job:
    """Encode and frame an event. An encoder's failure costs this event only, is reported, and leaves a gap."""
    gaps = _gaps(event)
    try:
        frames = _frames(event, layout)
    except Exception as error:  # noqa: BLE001  the edge of a worker: one event's fault must not stop the others
        return lost_job(sequence, event, paths, f"it cannot be encoded: {error!r:.500}", report, layout)
    events = 0 if gaps and len(event.items) == len(gaps) and not event.scalars else 1
    return Job(sequence, event.step, event.wall_time, frames, paths, events=events, gaps=gaps)


def _gaps(event: Event) -> list[Item]:
    return [item for item in event.items if item.kind == "gap"]


def _frames(event: Event, layout: Layout) -> list[wire.Pieces]:
    return [
        [piece for payload in payloads for piece in frame.pack(payload)] if payloads else []
        for payloads in layout.encode(event)
    ]


def lost_job(
    sequence: int, event: Event, paths: tuple[str, ...], reason: str, report: Report, layout: Layout = MINDSPORE
) -> Job:
    """Report an event that cannot be written; return the job of a gap in its place, behind its own gaps."""
    from instrument.values import Gap  # most workers never need one

    step = event.step
    report(Diagnostic("lost", step, paths[SUMMARY], reason))
    gap = gap_item(Gap(1, step, step, reason))
    frames = _frames(Event(step, event.wall_time, [*_gaps(event), gap]), layout)
    return Job(sequence, step, event.wall_time, frames, paths, failed=True)


def gap_event(gap: Gap) -> Event:
    """Return an event of this time that holds nothing but a gap."""
    return Event(gap.first_step, time.time(), [gap_item(gap)])


def gap_item(gap: Gap) -> MessageItem:
    from instrument.codec import lifecycle

    return MessageItem("gap", "", lifecycle.encode_gap(gap))


def limit_reason(max_file_bytes: int) -> str:
    """Return why an event is missing for which a file has no room."""
    return f"max_file_size is {max_file_bytes}"


def gap_bytes(max_file_bytes: int, layout: Layout) -> int:
    """Return the most bytes that an event takes which says that others are missing at the size limit."""
    from instrument.values import Gap

    largest = (1 << 63) - 1
    event = gap_event(Gap(largest, -1, -1, limit_reason(max_file_bytes)))._replace(step=-1)
    return wire.size(_frames(event, layout)[SUMMARY])


class OpenFile(Protocol):
    """A file that frames are appended to: `EventFileWriter`, or a stand-in that keeps them in memory."""

    @property
    def size_bytes(self) -> int: ...

    def append(self, pieces: Sequence[bytes | memoryview], committed_bytes: int) -> int: ...

    def cut(self, committed_bytes: int) -> None: ...

    def holds(self, committed_bytes: int) -> bool: ...

    def close(self) -> None: ...


class Committer:
    """Appends the frames of jobs to their files, in the order in which it is given them.

    `open_file` opens a file for appending and makes it, with its directory, where it is missing.
    """

    def __init__(
        self, max_file_bytes: int | None, report: Report, layout: Layout = MINDSPORE,
        open_file: Callable[[str], OpenFile] | None = None,
    ) -> None:  # fmt: skip
        self._max_file_bytes = max_file_bytes
        self._report = report
        self._layout = layout
        self._open = open_file or _open
        self._files = range(len(layout.roles))
        self._reserve_bytes = 0 if max_file_bytes is None else gap_bytes(max_file_bytes, layout)
        self._writers: dict[int, OpenFile] = {}

    def apply(self, state: State, jobs: Sequence[Job]) -> State:
        """Write consecutive jobs, the first being the one behind `state`, and return the state they lead to.

        All frames for a file go out in one write.

        Raises:
            OSError: nothing is committed, and the files end where they did; the same jobs can be tried again.
        """
        lengths = state.lengths
        refused: set[int] = set()
        full = state.full
        with ExitStack() as undo:
            for file in self._files:
                concerned = [job for job in jobs if job.has_part_in(file)]
                if not concerned:
                    continue
                length = lengths[file] or (wire.size(self._version(file, jobs[0])) if file else 0)
                accepted, full = self._within_limit(concerned, file, length, full)
                refused.update({job.sequence for job in concerned} - {job.sequence for job in accepted})
                if accepted:
                    start, lengths[file] = self._append(file, accepted, lengths[file])
                    undo.callback(self._writers[file].cut, start)
            undo.pop_all()
        lost = sum(job.events for job in jobs if job.failed)
        kept = sum(job.events for job in jobs if not job.failed and job.sequence not in refused)
        return State(
            jobs[-1].sequence, lengths[0], lengths[1], state.events + kept, state.lost + lost, full,
            state.refused + sum(job.events for job in jobs) - lost - kept, lengths[2], lengths[3],
        )  # fmt: skip

    def _within_limit(self, jobs: Sequence[Job], file: int, length: int, full: int) -> tuple[list[Job], int]:
        """Return the jobs whose frames fit into a file of `length` bytes, and `full` with this file's bit.

        One that is too large for a file with much room is left out alone. The first one that does not fit into a file
        that has little room left closes it, or every later event would have to be tried. What says that events are
        missing always finds room in the first file: other events leave it.
        """
        limit = self._max_file_bytes
        if limit is None:
            return list(jobs), full
        accepted = []
        for job in jobs:
            is_gap = job.failed or not job.events
            end = length + job.size_bytes(file)
            is_closed = bool(full & 1 << file)
            if end <= limit if is_gap else not is_closed and end + self.reserve_bytes(file) <= limit:
                accepted.append(job)
                length = end
                continue
            if is_gap or is_closed:
                continue
            closes = limit - self.reserve_bytes(file) - length < limit * CLOSING_SHARE
            full |= closes << file
            self._report(Diagnostic("limit" if closes else "large", job.step, job.paths[file], limit_reason(limit)))
        return accepted, full

    def reserve_bytes(self, file: int) -> int:
        """Return the room that is kept in a file for what says that events are missing."""
        return self._reserve_bytes if file == SUMMARY else 0

    def _append(self, file: int, jobs: list[Job], length: int) -> tuple[int, int]:
        """Write the frames behind the first `length` bytes of the file; return where they begin and end."""
        path = jobs[-1].paths[file]
        try:
            writer, start, version = self._writer(file, jobs[0], path, length)
            end = writer.append([*version, *(piece for job in jobs for piece in job.frames[file])], start)
        except OSError:
            self._close(file)
            raise
        if start < length:
            self._report(Diagnostic("gone", jobs[0].step, path, "it was deleted or cut"))
        return start, end

    def _writer(self, file: int, job: Job, path: str, length: int) -> tuple[OpenFile, int, wire.Pieces]:
        """Return the file's writer, the length of what is there, and what has to stand first in a new file."""
        writer = self._writers.get(file)
        if writer is not None and (length or file == SUMMARY) and writer.holds(length):
            return writer, length, []
        self._close(file)
        writer = self._writers[file] = self._open(path)
        start = min(writer.size_bytes, length)  # another worker has begun it anew where it is shorter
        is_new = not start and (file != SUMMARY or length > 0)  # the first file has its head already
        return writer, start, self._version(file, job) if is_new else []

    # ------------------------------------------------------------------ files

    def _version(self, file: int, job: Job) -> wire.Pieces:
        """Return the frame that stands first in a file, with the time of the event for which the file is made."""
        payload = self._layout.version(file, job.wall_time)
        return frame.pack(payload) if payload else []

    def _close(self, file: int) -> None:
        if (writer := self._writers.pop(file, None)) is not None:
            writer.close()

    def close(self) -> None:
        for file in list(self._writers):
            self._close(file)


def _open(path: str) -> EventFileWriter:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return EventFileWriter(path)


def trim(paths: Sequence[str], state: State) -> None:
    """Cut off what a writer that died left behind the committed lengths; for when nobody else writes.

    `paths` are those of the layout's files, empty for one that is not known.
    """
    for path, committed_bytes in zip(paths, state.lengths, strict=False):
        try:
            if path and os.path.getsize(path) > committed_bytes:
                os.truncate(path, committed_bytes)
        except OSError:
            pass  # it was taken away, or cannot be cut: a reader passes over the half frame
