"""Compute, for each event file of a dead ring, the length to keep and the bytes to append.

The bytes to append, the tail, are what a worker would have written, made by the worker's own code. They depend on the
ring and the files only. So a reader that shows them, a recorder that appends them, and its successor after a kill in
between all get the same bytes.

As long as the machine was not restarted, the committed lengths are exact: bytes behind them belong to an unfinished
write, whose record is still in the ring, and are cut off. After a crash of the machine, and in a copy of a directory
that was in use, ring and files may have different ages. Then all valid frames are kept, and only frames that the file
lacks are appended; the wall time in each tells two events apart. If a file is shorter than its committed length,
committed events that are still in the ring are replayed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from instrument.codec.dialects import LAYOUTS
from instrument.errors import CorruptMessage
from instrument.eventfile import frame
from instrument.eventfile.blocks import BlockReader
from instrument.events import Event
from instrument.ringfile import commit
from instrument.ringfile.commit import Committer, Diagnostic, Job, Report
from instrument.ringfile.control import State
from instrument.ringfile.snapshot import Record, Snapshot
from instrument.ringfile.unpack import unpack

_BATCH_BYTES = 1 << 20
_DAMAGED = "the ring buffer was damaged when its processes ended"
_MOST_TOGETHER = 1 << 31


@dataclass
class Tail:
    """The event file at `path` is its first `kept_bytes` and `data` behind them."""

    path: str
    kept_bytes: int
    data: bytes

    @property
    def size_bytes(self) -> int:
        return self.kept_bytes + len(self.data)


@dataclass
class Replay:
    """The tails of a snapshot's files and the state that they lead to; `diagnostics` are what a worker would report."""

    snapshot: Snapshot
    tails: list[Tail]
    state: State
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def events(self) -> int:
        """Number of events in the tails."""
        return self.state.events - self.snapshot.state.events


#: Called with each event before it is encoded.
Watch = Callable[[Event], None]


def replay(snapshot: Snapshot, watch: Watch | None = None) -> Replay:
    """Return what belongs into the files of a snapshot, which lie beside the ring file.

    Raises:
        OSError: an event file cannot be looked at.
    """
    directory = os.path.dirname(snapshot.path)
    files: dict[str, _TailBuffer] = {}

    def open_file(path: str) -> _TailBuffer:
        return files.setdefault(path, _TailBuffer(path))

    diagnostics: list[Diagnostic] = []
    layout = LAYOUTS[snapshot.header.dialect]
    paths = tuple(os.path.join(directory, name) if name else "" for name in snapshot.names[: len(layout.roles)])
    committer = Committer(snapshot.header.max_file_bytes, diagnostics.append, layout, open_file)
    state = snapshot.state
    is_behind = not snapshot.is_exact and any(
        path and _size(path) < committed_bytes for path, committed_bytes in zip(paths, state.lengths, strict=False)
    )
    records = [each for each in snapshot.records if is_behind or each.sequence > state.sequence]
    batch: list[Job] = []
    size = 0
    for job in _jobs(snapshot, records, paths, diagnostics.append, watch):
        batch.append(job)
        size += job.total_bytes
        if size >= _BATCH_BYTES:
            state, batch, size = committer.apply(state, batch), [], 0
    if batch:
        state = committer.apply(state, batch)
    tails = []
    for path, committed_bytes in zip(paths, snapshot.state.lengths, strict=False):
        if path:
            appended = files.get(path)
            data = b"" if appended is None else appended.data
            tails.append(_tail(path, committed_bytes, data, snapshot.is_exact, is_behind))
    return Replay(snapshot, tails, state, diagnostics)


def _jobs(
    snapshot: Snapshot, records: list[Record], paths: tuple[str, ...], report: Report, watch: Watch | None
) -> Iterator[Job]:
    """Encode records of a snapshot; events that are missing between two of them leave a gap."""
    layout = LAYOUTS[snapshot.header.dialect]
    expected = min([snapshot.state.sequence + 1, *(each.sequence for each in records[:1])])
    last = Event(0, snapshot.header.created)
    for each in records:
        try:
            event = unpack(each.payload, each.head_offset)
        except CorruptMessage as error:
            yield _lost(each.sequence, last, 1, f"it cannot be decoded: {error}", paths, report, snapshot)
            expected = each.sequence + 1
            continue
        if each.sequence > expected:
            yield _lost(each.sequence - 1, event, each.sequence - expected, _DAMAGED, paths, report, snapshot)
        expected, last = each.sequence + 1, event
        if watch is not None:
            watch(event)
        job = commit.encode(each.sequence, event, paths, report, layout)
        if any(job.has_part_in(file) and not path for file, path in enumerate(paths)):
            job = commit.lost_job(each.sequence, event, paths, "the name of its file is unknown", report, layout)
        yield job


def _lost(
    sequence: int, near: Event, count: int, reason: str, paths: tuple[str, ...], report: Report, snapshot: Snapshot
) -> Job:
    from instrument.values import Gap

    count = min(count, _MOST_TOGETHER)
    report(Diagnostic("lost", near.step, paths[0], reason))
    event = Event(near.step, near.wall_time, [commit.gap_item(Gap(count, near.step, near.step, reason))])
    job = commit.encode(sequence, event, paths, report, LAYOUTS[snapshot.header.dialect])
    return job._replace(failed=True, events=count)


class _TailBuffer:
    """Stands for an event file while its tail is made: what is appended stays in memory."""

    def __init__(self, path: str) -> None:
        self._existing_bytes = _size(path)
        self._start: int | None = None
        self._pieces: list[bytes] = []

    @property
    def data(self) -> bytes:
        return b"".join(self._pieces)

    @property
    def size_bytes(self) -> int:
        return self._existing_bytes if self._start is None else self._start + sum(map(len, self._pieces))

    def append(self, pieces: Sequence[bytes | memoryview], committed_bytes: int) -> int:
        if self._start is None:
            self._start = committed_bytes
        self._pieces.append(b"".join(pieces))
        return self.size_bytes

    def holds(self, committed_bytes: int) -> bool:
        return self.size_bytes >= committed_bytes

    def cut(self, committed_bytes: int) -> None:
        raise AssertionError("memory takes all that it is given")

    def close(self) -> None:
        pass


def _tail(path: str, committed_bytes: int, data: bytes, is_exact: bool, is_behind: bool) -> Tail:
    size_bytes = _size(path)
    kept_bytes = min(committed_bytes, size_bytes)
    if is_exact or not size_bytes:
        return Tail(path, kept_bytes, data)
    missing = dict.fromkeys(_frames(data))
    for end, standing in _frames_of(path, 0 if is_behind else kept_bytes):
        missing.pop(standing, None)
        kept_bytes = max(kept_bytes, end)
    return Tail(path, kept_bytes, b"".join(missing))


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _frames(data: bytes) -> Iterator[bytes]:
    """Iterate over the frames that `data` consists of, each as a whole."""
    offset = 0
    while (result := frame.unpack(data, offset)) is not None:
        yield data[offset : result[1]]
        offset = result[1]


def _frames_of(path: str, offset: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the valid frames of a file from `offset` on, also behind damage; each with where it ends."""
    for block in BlockReader(path, offset, as_it_is=True):
        for start, payload in block.payloads():
            begin, end = start - frame.HEADER.size, start + len(payload) + frame.FOOTER.size
            yield block.base + end, bytes(block.data[begin:end])
