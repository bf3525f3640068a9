"""Snapshots of ring files that nobody writes any more: the records that no event file has, and what is damaged.

Nothing on disk is changed, and nothing in a file is believed before it was checked: counts, lengths and positions
against what is there, records by their checksums. Behind a damaged record the next one is searched for at each multiple
of 64 bytes.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.errors import CorruptMessage
from instrument.eventfile.blocks import Damage, note
from instrument.ringfile import header as headers
from instrument.ringfile import locks, record
from instrument.ringfile.control import (
    CONTROL_WORDS,
    HEAD,
    TAIL,
    VERSION,
    WORKER_PID,
    WORKER_START,
    Control,
    State,
    word_of,
)
from instrument.ringfile.header import CONTROL_AT, Header

#: No recorder leaves more bytes than this behind.
_MOST_UNREAD_BYTES = 1 << 30
#: The search behind damage checks heads of no more bytes than this many times the ring's.
_SEARCH_SHARE = 4


class Record(NamedTuple):
    """A record whose checksums hold; its payload is in memory of the snapshot's own."""

    sequence: int
    payload: memoryview
    head_offset: int


@dataclass
class Snapshot:
    """What a ring file without living processes holds beyond what is committed.

    `names` are those of the event files, by their place in the dialect, and empty for one that was not made. `records`
    are in order of their numbers, none twice. `damage` says what could not be used.

    `is_exact` is False where ring and event files may be older in one place than in another: the machine was started
    anew since, or is another, so that what its memory held is lost; or the ring file is a copy, made while the recorder
    went on. Then records that were committed are among `records`, too.
    """

    path: str
    header: Header
    state: State
    names: list[str]
    is_exact: bool
    records: list[Record] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def take(path: str, lock: int | None = None) -> Snapshot | None:
    """Return a snapshot of a ring file; None where one of its processes lives, or it is gone.

    `lock` is a descriptor through which the caller holds the write lock, or would where there are locks.

    Raises:
        UnknownVersion: a later release wrote it.
        CorruptMessage: it is no ring file, or so damaged that nothing in it can be used.
        OSError: it cannot be read.
    """
    if lock is not None:
        return _take(lock, path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        return _take(fd, path)
    finally:
        os.close(fd)


def _take(fd: int, path: str) -> Snapshot | None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise CorruptMessage("it is no regular file")
    front = os.pread(fd, CONTROL_AT + 8 * CONTROL_WORDS, 0)
    header = headers.decode(front)
    if len(front) < CONTROL_AT + 8 * CONTROL_WORDS:
        raise CorruptMessage(f"a ring file of {len(front)} bytes ends inside its control words")
    control = Control(memoryview(front)[CONTROL_AT:].cast("Q"))
    if has_living_process(fd, header, control):
        return None
    return _read(fd, path, header, control, headers.decode_names(front))


def has_living_process(fd: int, header: Header, control: Control) -> bool:
    """Return True where a process of a ring file lives, or may live.

    Where the file system has no locks, processes of this machine are looked for by their numbers; those of another
    machine are taken to be gone.
    """
    held = locks.is_held(fd)
    if held is not None:
        return held
    if header.boot_id != locks.boot_id():
        return False
    if header.pid_namespace != locks.pid_namespace():
        return True
    words = control.words
    workers = [
        (words[word_of(index, WORKER_PID)], words[word_of(index, WORKER_START)]) for index in range(header.ring_count)
    ]
    return any(
        pid and pid < 1 << 31 and locks.start_ticks(pid) == start
        for pid, start in [(header.pid, header.start_ticks), *workers]
    )


def _read(fd: int, path: str, header: Header, control: Control, names: list[str]) -> Snapshot:
    words = control.words
    ends = [(words[word_of(index, TAIL)], words[word_of(index, HEAD)]) for index in range(header.ring_count)]
    is_unused = not words[VERSION] and not any(head for _, head in ends)  # its recorder ended before it was ready
    state = State() if is_unused else control.checked_state()
    unread = sum(max(head - tail, 0) for tail, head in ends)
    if unread > _MOST_UNREAD_BYTES:
        raise CorruptMessage(f"it claims {unread} bytes that were not read")
    runs_on = header.boot_id == locks.boot_id() != bytes(16)
    is_exact = runs_on and header.inode == os.fstat(fd).st_ino
    snapshot = Snapshot(path, header, state, [] if is_unused else names, is_exact)
    records: dict[int, Record] = {}
    for index, (tail, head) in enumerate(ends):
        for each in _Ring(snapshot, fd, index, trusts_unsealed=runs_on).records(tail, head):
            if each.sequence > state.sequence or not is_exact:
                records.setdefault(each.sequence, each)
    snapshot.records = [records[sequence] for sequence in sorted(records)]
    return snapshot


class _Ring:
    """One ring of a snapshot."""

    def __init__(self, snapshot: Snapshot, fd: int, index: int, trusts_unsealed: bool) -> None:
        self._snapshot = snapshot
        self._fd = fd
        self._capacity_bytes = snapshot.header.ring_bytes
        self._data_at = snapshot.header.data_at + index * self._capacity_bytes
        self._trusts_unsealed = trusts_unsealed
        #: Where behind damage a record may begin; found when it is needed.
        self._candidates: NDArray[np.int64] | None = None
        self._budget = 0

    def records(self, tail: int, head: int) -> list[Record]:
        """Return the records between two positions that are whole."""
        if not tail <= head <= tail + self._capacity_bytes or tail % record.ALIGNMENT_BYTES:
            self._note(0, self._capacity_bytes, f"a ring claims to begin at {tail} and to end at {head}")
            return []
        data = self._copy(tail, head)
        self._budget = _SEARCH_SHARE * len(data)
        records, position = [], 0
        while position < len(data):
            try:
                header = record.read_header(data, position, len(data) - position)
                record.verify(data, position, header, self._trusts_unsealed)
            except CorruptMessage as error:
                following = self._following(data, position)
                is_last = following == len(data)
                self._note((tail + position) % self._capacity_bytes, following - position, str(error), torn=is_last)
                position = following
                continue
            if header.kind == record.EVENT:
                start = position + record.HEADER_BYTES
                payload = data[start : start + header.length]
                records.append(Record(header.sequence, payload, header.head_offset))
            position += header.end
        return records

    def _copy(self, tail: int, head: int) -> memoryview:
        """Return what stands between two positions in one piece; the end of a file that was cut is missing."""
        begin = tail % self._capacity_bytes
        first = min(head - tail, self._capacity_bytes - begin)
        parts = [
            os.pread(self._fd, first, self._data_at + begin),
            os.pread(self._fd, head - tail - first, self._data_at),
        ]
        if len(parts[0]) < first:
            parts[1] = b""
        data = memoryview(b"".join(parts))
        if len(data) < head - tail:
            self._note(begin, head - tail - len(data), "the file was cut", torn=True)
        return data

    def _following(self, data: memoryview, position: int) -> int:
        """Return where to read on behind the damaged record at `position`; the end of `data` where nothing follows."""
        try:
            header = record.read_header(data, position, len(data) - position)
            record.verify_head(data, position, header)
            return min(position + header.end, len(data))  # a body may itself hold records, which are not the ring's
        except CorruptMessage:
            pass
        if self._candidates is None:
            self._candidates = _plausible(data)
        first = int(np.searchsorted(self._candidates, position, side="right"))
        for candidate in self._candidates[first:].tolist():
            try:
                header = record.read_header(data, candidate, len(data) - candidate)
                if self._budget < 0:
                    break
                self._budget -= header.length
                record.verify_head(data, candidate, header)
            except CorruptMessage:
                continue
            return int(candidate)
        return len(data)

    def _note(self, offset: int, count: int, reason: str, torn: bool = False) -> None:
        note(self._snapshot.damage, Damage(self._snapshot.path, self._data_at + offset, count, reason, torn))


def _plausible(data: memoryview) -> NDArray[np.int64]:
    """Return the multiples of 64 bytes at which kind, seal and length of a record could stand."""
    count = len(data) // record.ALIGNMENT_BYTES
    if not count:
        return np.empty(0, np.int64)
    starts = np.arange(count, dtype=np.int64) * record.ALIGNMENT_BYTES
    stride = (record.ALIGNMENT_BYTES,)
    lengths: NDArray[np.uint64] = np.ndarray((count,), "<u8", data, 0, stride)
    kinds: NDArray[np.uint32] = np.ndarray((count,), "<u4", data, 24, stride)
    seals: NDArray[np.uint32] = np.ndarray((count,), "<u4", data, 36, stride)
    room = (len(data) - starts - record.HEADER_BYTES).astype(np.uint64)
    return starts[(lengths <= room) & (kinds >= record.EVENT) & (kinds <= record.PAD) & (seals <= 1)]
