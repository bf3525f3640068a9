"""The order of a file's events, and what becomes of an event that cannot be written.

Encoding runs in any worker and in any order; a `Job` is its result. Committing happens in order: whoever holds the next
sequence number appends its frames behind the committed length and publishes the new state. `State` is all that a
successor needs to carry on: what lies behind its lengths was never committed and is cut off.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from instrument.codec import event as event_codec
from instrument.codec import wire
from instrument.eventfile import frame
from instrument.eventfile.writer import EventFileWriter
from instrument.values import LINEAGE_KINDS, Event, Item

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SUMMARY, LINEAGE = 0, 1
FILES = (SUMMARY, LINEAGE)

_LONGEST_NAME_BYTES = 200


class Notice(NamedTuple):
    """A word to the trainer. `what` is "lost" (events are missing), "gone" (a file was taken away with what was written
    before), "limit" (a file is full), "export" or "sync"."""

    what: str
    step: int
    path: str
    reason: str


Report = Callable[[Notice], None]


class State(NamedTuple):
    """What is committed: everything up to `sequence`. `full` has bit `1 << file` set for a file at its size limit."""

    sequence: int = 0
    summary_bytes: int = 0
    lineage_bytes: int = 0
    events: int = 0
    lost: int = 0
    full: int = 0


class Job(NamedTuple):
    """An encoded event: framed pieces for each file, in the order of `FILES`; `paths` names the files."""

    sequence: int
    step: int
    frames: tuple[wire.Pieces, wire.Pieces]
    paths: tuple[str, str]
    failed: bool = False


def encode(sequence: int, event: Event, paths: tuple[str, str], report: Report) -> Job:
    """Encode and frame an event. An encoder's failure costs this event only, and is reported."""
    try:
        summary: wire.Pieces = []
        for payload in event_codec.encode(event):
            summary += frame.pack(payload)
        lineage: wire.Pieces = []
        for item in event.items:
            if item.kind in LINEAGE_KINDS:
                lineage += frame.pack(_lineage_payload(item, event.wall_time))
    except Exception as error:  # noqa: BLE001  the edge of a worker: one event's fault must not stop the others
        report(Notice("lost", event.step, paths[SUMMARY], f"it cannot be encoded: {error!r:.500}"))
        return Job(sequence, event.step, ([], []), paths, failed=True)
    return Job(sequence, event.step, (summary, lineage), paths)


def _lineage_payload(item: Item, wall_time: float) -> wire.Pieces:
    from instrument.codec import lineage

    assert isinstance(item.payload, bytes)
    return lineage.encode_event(item.kind, item.payload, wall_time)


class Committer:
    """Appends the frames of jobs to their files, in the order in which it is given them."""

    def __init__(self, max_file_bytes: int | None, report: Report) -> None:
        self._max_file_bytes = max_file_bytes
        self._report = report
        self._writers: dict[int, EventFileWriter] = {}

    def apply(self, state: State, jobs: Sequence[Job]) -> State:
        """Write consecutive jobs, the first being the one behind `state`, and return the state they lead to.

        All frames for a file go out in one write. Where that fails nothing of it is kept, the jobs count as lost, and
        the next call tries again.
        """
        lengths = [state.summary_bytes, state.lineage_bytes]
        lost = {job.sequence for job in jobs if job.failed}
        refused: set[int] = set()
        full = state.full
        for file in FILES:
            concerned = [job for job in jobs if job.frames[file]]
            accepted, full = self._within_limit(concerned, file, lengths[file], full)
            refused.update(job.sequence for job in concerned[len(accepted) :])
            if not accepted:
                continue
            try:
                lengths[file] = self._append(file, accepted, lengths[file])
            except OSError as error:
                self._close(file)
                lost.update(job.sequence for job in accepted)
                for job in accepted:
                    self._report(Notice("lost", job.step, job.paths[file], os.strerror(error.errno or 0)))
        events = state.events + len(jobs) - len(lost | refused)
        return State(jobs[-1].sequence, lengths[SUMMARY], lengths[LINEAGE], events, state.lost + len(lost), full)

    def _within_limit(self, jobs: Sequence[Job], file: int, length: int, full: int) -> tuple[list[Job], int]:
        """The first jobs, as far as their frames fit; the one that does not closes the file for all that follow."""
        if full & 1 << file:
            return [], full
        for index, job in enumerate(jobs):
            length += wire.size(job.frames[file])
            if self._max_file_bytes is not None and length > self._max_file_bytes:
                self._report(Notice("limit", job.step, job.paths[file], f"max_file_size is {self._max_file_bytes}"))
                return list(jobs[:index]), full | 1 << file
        return list(jobs), full

    def _append(self, file: int, jobs: list[Job], length: int) -> int:
        """Write the frames behind the first `length` bytes of the file and return its new length."""
        path = jobs[-1].paths[file]
        pieces = [piece for job in jobs for piece in job.frames[file]]
        writer = self._writers.get(file)
        if writer is not None and writer.holds(length):
            return writer.append(pieces, length)
        self._close(file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        writer = self._writers[file] = EventFileWriter(path)
        there = writer.size_bytes
        if there < length:  # otherwise another worker has begun it anew
            self._report(Notice("gone", jobs[0].step, path, "it was deleted or cut"))
            length = there
            if file == SUMMARY and not there:
                pieces = [*frame.pack(event_codec.encode_version(time.time())), *pieces]
        return writer.append(pieces, length)

    def _close(self, file: int) -> None:
        if (writer := self._writers.pop(file, None)) is not None:
            writer.close()

    def close(self) -> None:
        for file in FILES:
            self._close(file)


def export_tensors(event: Event, directory: str, report: Report) -> None:
    """Write each tensor of the event to `{directory}/tensor/{tag}_{step}.npy`; bfloat16 as float32.

    The tag is percent-encoded, so that different tags are different files inside the directory.
    """
    import numpy as np

    for item in event.items:
        if item.kind != "tensor":
            continue
        path = os.path.join(directory, "tensor", f"{_file_stem(item.tag)}_{event.step}.npy")
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _save(path, np.asarray(item.payload))
        except OSError as error:
            report(Notice("export", event.step, path, os.strerror(error.errno or 0)))
        except ValueError as error:  # objects
            report(Notice("export", event.step, path, str(error)))


def _save(path: str, array: NDArray[np.generic]) -> None:
    """Write an `.npy` file, or leave none behind."""
    import numpy as np

    partial = path + ".part"
    try:
        with open(partial, "wb") as file:
            np.save(file, array, allow_pickle=False)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise


def _file_stem(tag: str) -> str:
    data = tag.encode("utf-8", "surrogatepass")
    stem = quote(data, safe="")
    if len(stem) <= _LONGEST_NAME_BYTES:
        return stem
    from hashlib import sha256

    # "~" is never percent-encoded, but a digest behind it makes a clash with a shorter tag's name impossible in effect.
    return f"{stem[: _LONGEST_NAME_BYTES - 65]}~{sha256(data).hexdigest()}"
