"""The order of a file's events, and what becomes of an event that cannot be written.

Encoding runs in any worker and in any order; a `Job` is its result. Committing happens in order: whoever holds the next
sequence number appends its frames behind the committed length and publishes the new state. `State` is all that a
successor needs to carry on: what lies behind its lengths was never committed and is cut off.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from instrument.codec import wire
from instrument.codec.dialects import MINDSPORE, Layout
from instrument.eventfile import frame
from instrument.eventfile.writer import EventFileWriter
from instrument.events import Event, Item

if TYPE_CHECKING:
    from instrument.values import Gap

#: Files by their place in the layout of MindSpore's dialect; the first one of any layout says what is missing.
SUMMARY, LINEAGE = 0, 1
#: What an event has for the files that there may be, where it has nothing.
NO_FRAMES: Sequence[wire.Pieces] = ([], [], [], [])


class Notice(NamedTuple):
    """A word to the trainer. `what` is "lost" (an event is missing), "stalled" (nothing can be written at the moment),
    "gone" (a file was taken away with what was written before), "limit" (a file is full), "export" or "sync"."""

    what: str
    step: int
    path: str
    reason: str


Report = Callable[[Notice], None]


class State(NamedTuple):
    """What is committed: everything up to `sequence`.

    The lengths are those of the layout's files in its order, and are called after those of the layout of both dialects.
    `full` has bit `1 << file` set for a file at its size limit; `refused` events, or parts of them, would have exceeded
    that.
    """

    sequence: int = 0
    summary_bytes: int = 0
    lineage_bytes: int = 0
    events: int = 0
    lost: int = 0
    full: int = 0
    refused: int = 0
    scalars_bytes: int = 0
    others_bytes: int = 0

    @property
    def lengths(self) -> list[int]:
        """The committed lengths of all files that there may be."""
        return [self.summary_bytes, self.lineage_bytes, self.scalars_bytes, self.others_bytes]


class Job(NamedTuple):
    """An encoded event: framed pieces for each file of the layout; `paths` names the files.

    `gaps` are the items by which it says what is missing before it; `events` is 0 for one that says nothing else.
    """

    sequence: int
    step: int
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
        """The job of an event that is not written."""
        return self._replace(failed=True, frames=NO_FRAMES)

    def has_part_in(self, file: int) -> bool:
        return bool(self.frames[file])


def encode(sequence: int, event: Event, paths: tuple[str, ...], report: Report, layout: Layout = MINDSPORE) -> Job:
    """Encode and frame an event. An encoder's failure costs this event only, is reported, and leaves a gap."""
    gaps = _gaps(event)
    try:
        frames = _frames(event, layout)
    except Exception as error:  # noqa: BLE001  the edge of a worker: one event's fault must not stop the others
        return lose(sequence, event, paths, f"it cannot be encoded: {error!r:.500}", report, layout)
    events = 0 if gaps and len(event.items) == len(gaps) and not event.scalars else 1
    return Job(sequence, event.step, frames, paths, events=events, gaps=gaps)


def _gaps(event: Event) -> list[Item]:
    return [item for item in event.items if item.kind == "gap"]


def _frames(event: Event, layout: Layout) -> list[wire.Pieces]:
    return [
        [piece for payload in payloads for piece in frame.pack(payload)] if payloads else []
        for payloads in layout.encode(event)
    ]


def lose(
    sequence: int, event: Event, paths: tuple[str, ...], reason: str, report: Report, layout: Layout = MINDSPORE
) -> Job:
    """Report an event that cannot be written, and have its file say so at its place, behind what it says itself."""
    from instrument.values import Gap  # most workers never need one

    step = event.step
    report(Notice("lost", step, paths[SUMMARY], reason))
    gap = gap_item(Gap(1, step, step, reason))
    return Job(sequence, step, _frames(Event(step, time.time(), [*_gaps(event), gap]), layout), paths, failed=True)


def gap_event(gap: Gap) -> Event:
    return Event(gap.first_step, time.time(), [gap_item(gap)])


def gap_item(gap: Gap) -> Item:
    from instrument.codec import gap as codec

    return Item("gap", "", codec.encode(gap))


class Committer:
    """Appends the frames of jobs to their files, in the order in which it is given them."""

    def __init__(self, max_file_bytes: int | None, report: Report, layout: Layout = MINDSPORE) -> None:
        self._max_file_bytes = max_file_bytes
        self._report = report
        self._layout = layout
        self._files = range(len(layout.roles))
        self._writers: dict[int, EventFileWriter] = {}

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
                length = lengths[file] or (wire.size(self._version(file)) if file else 0)
                accepted, full = self._within_limit(concerned, file, length, full)
                refused.update(job.sequence for job in concerned[len(accepted) :])
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
        """The first jobs, as far as their frames fit; the one that does not closes the file for all that follow."""
        if full & 1 << file:
            return [], full
        if self._max_file_bytes is None:
            return list(jobs), full
        for index, job in enumerate(jobs):
            length += job.size_bytes(file)
            if length > self._max_file_bytes:
                self._report(Notice("limit", job.step, job.paths[file], f"max_file_size is {self._max_file_bytes}"))
                return list(jobs[:index]), full | 1 << file
        return list(jobs), full

    def _append(self, file: int, jobs: list[Job], length: int) -> tuple[int, int]:
        """Write the frames behind the first `length` bytes of the file; where they begin and end."""
        path = jobs[-1].paths[file]
        try:
            writer, start, version = self._writer(file, path, length)
            end = writer.append([*version, *(piece for job in jobs for piece in job.frames[file])], start)
        except OSError:
            self._close(file)
            raise
        if start < length:
            self._report(Notice("gone", jobs[0].step, path, "it was deleted or cut"))
        return start, end

    def _writer(self, file: int, path: str, length: int) -> tuple[EventFileWriter, int, wire.Pieces]:
        """The file's writer, the length of what is there, and what has to stand first in a new file."""
        writer = self._writers.get(file)
        if writer is not None and (length or file == SUMMARY) and writer.holds(length):
            return writer, length, []
        self._close(file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        writer = self._writers[file] = EventFileWriter(path)
        start = min(writer.size_bytes, length)  # another worker has begun it anew where it is shorter
        is_new = not start and (file != SUMMARY or length > 0)  # the first file was begun by whoever made it
        return writer, start, self._version(file) if is_new else []

    # ------------------------------------------------------------------ files

    def _version(self, file: int) -> wire.Pieces:
        payload = self._layout.version(file, time.time())
        return frame.pack(payload) if payload else []

    def _close(self, file: int) -> None:
        if (writer := self._writers.pop(file, None)) is not None:
            writer.close()

    def close(self) -> None:
        for file in list(self._writers):
            self._close(file)


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
