"""Where events go: the `Sink` protocol, what it is told, and the sink that writes in this process."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from instrument import forks
from instrument.codec import event as event_codec
from instrument.eventfile import frame, names
from instrument.eventfile.writer import EventFileWriter
from instrument.values import LINEAGE_KINDS, Event, Gap, Item
from instrument.write import commit
from instrument.write.commit import LINEAGE, SUMMARY, Notice, State

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("instrument")


@dataclass(frozen=True)
class Target:
    """Where a recorder's files lie and how they are named; `device` is the device or rank number in the name.

    `kind` is "summary", or "profile" for the pieces of a trace.
    """

    directory: str
    prefix: str = "events"
    suffix: str = names.SUFFIX
    device: int = 0
    max_file_bytes: int | None = None
    export_tensors: bool = False
    kind: str = names.SUMMARY


@dataclass(frozen=True)
class Stats:
    """What became of the events so far.

    `events` and `bytes` are on disk (files of both kinds); `pending` events are on their way. `stalled_seconds` is the
    time that `write` waited for room. `dropped` counts events that were refused: for want of room with
    `on_full="drop"` or while the disk is full, or since a file is at its size limit. `lost` counts those that could not
    be encoded or written, and `errors` the errors behind them.
    """

    events: int
    bytes: int
    pending: int
    stalled_seconds: float
    dropped: int
    lost: int
    errors: int


class Sink(Protocol):
    """Takes events in the order in which they are to stand in the file."""

    @property
    def path(self) -> str:
        """The summary file."""

    @property
    def stats(self) -> Stats: ...

    def write(self, event: Event) -> bool:
        """Take an event; False where it, or a part of it, will not be in the file."""

    def stage(self, array: NDArray[np.generic]) -> NDArray[np.generic] | None:
        """A copy of a contiguous array, valid until the next `write`, which will not have to copy it; None: no room."""

    def flush(self, sync: bool = False) -> None:
        """Return when everything taken so far can be read by another process; with `sync`, when it is on the disk."""

    def close(self) -> None:
        """Flush and end. A second call does nothing, and a forked child's call neither."""

    def take_error(self) -> Notice | None:
        """The first error since the last call."""


class Files:
    """The names of a recorder's two files: the summary file exists at once, its lineage twin when it is needed.

    Raises:
        OSError: the directory cannot be made or written.
    """

    def __init__(self, target: Target) -> None:
        # A worker, and whoever writes later, may stand in another directory.
        self.target = target = replace(target, directory=os.path.abspath(target.directory))
        self._lineage_path = ""
        self.seconds = int(time.time())
        os.makedirs(target.directory, exist_ok=True)
        self.summary_path = names.create(
            target.directory, target.prefix, self.seconds, target.device, target.suffix, target.kind
        )
        version = frame.pack(event_codec.encode_version(time.time()))
        writer = EventFileWriter(self.summary_path)
        try:
            self.summary_bytes = writer.append(version, 0)
        except OSError:
            os.remove(self.summary_path)  # an empty file would only look like a run
            raise
        finally:
            writer.close()
        parsed = names.parse(os.path.basename(self.summary_path), target.kind)
        self.seconds = parsed.seconds if parsed is not None else self.seconds

    @property
    def export_directory(self) -> str:
        """Where tensors go as `.npy`; empty where nobody asked."""
        return os.path.join(self.target.directory, f"export_{self.seconds}") if self.target.export_tensors else ""

    def lineage_path(self, items: Sequence[Item]) -> str:
        """The lineage file, created on first use; empty where no item needs it."""
        if not any(item.kind in LINEAGE_KINDS for item in items):
            return ""
        if not self._lineage_path:
            target = self.target
            self._lineage_path = names.create(
                target.directory, target.prefix, self.seconds, target.device, names.LINEAGE_SUFFIX
            )
        return self._lineage_path

    def sync(self, report: commit.Report) -> None:
        """Return when both files and their directory are on the disk; what cannot be brought there is reported."""
        for path in filter(None, (self.summary_path, self._lineage_path, self.target.directory)):
            try:
                _sync(path)
            except OSError as error:
                report(Notice("sync", 0, path, os.strerror(error.errno or 0)))


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Notices:
    """What the writing side has to say: logged once a cause, counted, and kept for `take_error`.

    It is logged by `say`, for which nobody should hold a lock: a logging handler may want to record something itself.
    """

    def __init__(self) -> None:
        self.errors = 0
        self._known: set[tuple[str, str, str]] = set()
        self._first: Notice | None = None
        self._unsaid: deque[tuple[object, ...]] = deque()
        self._lock = threading.RLock()  # a signal handler may have something to say in the middle of this

    def add(self, notice: Notice) -> None:
        with self._lock:
            # Each exported tensor is a file of its own; what keeps one from being written will keep the others.
            path = os.path.dirname(notice.path) if notice.what == "export" else notice.path
            cause = (notice.what, path, notice.reason)
            if cause not in self._known:
                self._known.add(cause)
                self.note(*_WORDING[notice.what], notice.path, notice.step, notice.reason)
            if notice.what != "limit":
                self.errors += 1
                self._first = self._first or notice

    @property
    def is_unsaid(self) -> bool:
        """Whether `say` has something to log."""
        return bool(self._unsaid)

    def note(self, level: int, text: str, *arguments: object) -> None:
        """Have a message logged that is no error of recording."""
        self._unsaid.append((level, text, *arguments))

    def say(self) -> None:
        """Log what is still unsaid."""
        while self._unsaid:
            try:
                level, text, *arguments = self._unsaid.popleft()
            except IndexError:  # another thread was faster
                return
            log.log(level, text, *arguments)  # type: ignore[arg-type]

    def take_first(self) -> Notice | None:
        with self._lock:
            first, self._first = self._first, None
            return first


class Missing:
    """Counts the events that a disk did not take, until one that it takes says so in the file."""

    def __init__(self, notices: Notices, path: str) -> None:
        self._notices = notices
        self._path = path
        self._gap: Gap | None = None
        self.is_any = False

    def add(self, step: int, reason: str) -> None:
        gap = self._gap
        self.is_any = True
        self._gap = Gap(1, step, step, reason) if gap is None else replace(gap, events=gap.events + 1, last_step=step)

    @property
    def event(self) -> Event:
        """An event that says nothing but what is missing."""
        assert self._gap is not None
        return commit.gap_event(self._gap)

    def before(self, event: Event) -> Event:
        """The event that says so too, at its beginning."""
        if self._gap is None:
            return event
        return event._replace(items=[commit.gap_item(self._gap), *event.items])

    def said(self) -> None:
        """It is in the file, or on its way there."""
        gap, self._gap, self.is_any = self._gap, None, False
        if gap is not None:
            text = "%d events are missing from %s, between steps %d and %d (%s); the file says so at its place."
            arguments = (gap.events, self._path, gap.first_step, gap.last_step, gap.reason)
            self._notices.note(logging.WARNING, text, *arguments)


_WORDING = {
    "lost": (
        logging.ERROR,
        "Events are missing from %s, the first at step %d: %s. Training goes on; recording is tried again each step.",
    ),
    "stalled": (
        logging.ERROR,
        "Nothing can be written to %s at step %d: %s. Training goes on; what fits into memory is kept until there is "
        "room, then events are dropped.",
    ),
    "gone": (
        logging.ERROR,
        "What %s held before step %d is lost: %s. Recording goes on there, in a new file where none is left.",
    ),
    "limit": (logging.WARNING, "%s is full: step %d and what follows is not recorded (%s). Training goes on."),
    "sync": (
        logging.ERROR,
        "%s (up to step %d) may not survive a power failure: %s. It can be read all the same.",
    ),
    "export": (
        logging.ERROR,
        "%s (step %d) cannot be exported, nor may others: %s. The event file goes on without regard to it.",
    ),
}


def upper_bound_bytes(event: Event) -> int:
    """No event takes more room in its file than this; what `max_file_size` is checked against before encoding."""
    scalars = sum(len(tag.encode()) + 128 for tag in event.scalars)
    return scalars + sum(item_bound_bytes(item) for item in event.items) + 256


def item_bound_bytes(item: Item) -> int:
    """No item takes more room than this."""
    named = len(item.tag.encode()) + 128
    if isinstance(item.payload, bytes):
        return named + len(item.payload)
    if isinstance(item.payload, (int, float)):
        return named
    if item.kind == "tensor":
        from instrument.codec import tensor

        elements: int = item.payload.size
        return named + 11 * len(item.payload.shape) + tensor.encoded_bytes(item.dtype, elements)
    if item.kind == "histogram":
        return named + 90 * 32
    # A picture's grid has at most seven empty cells; PNG adds little to bytes that do not compress.
    pictures: int = item.payload.shape[0]
    cells = item.payload.size // pictures * (pictures + 7)
    rows: int = item.payload.shape[2] * (pictures // 8 + 1)  # PNG adds a byte to each
    return named + cells + rows + (cells + rows) // 64 + 4096


class FileSink:
    """Encodes and writes in the calling thread: `num_process=0`, and wherever no worker can be had."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._notices = Notices()
        self._committer = commit.Committer(files.target.max_file_bytes, self._notices.add)
        self._state = State(summary_bytes=self._files.summary_bytes)
        self._lock = threading.RLock()
        self._closed = False
        self._is_writing = False
        self._refused = 0
        self._lost = 0
        self._missing = Missing(self._notices, files.summary_path)
        forks.tell(self)

    @property
    def path(self) -> str:
        return self._files.summary_path

    @property
    def stats(self) -> Stats:
        state = self._state
        written = state.summary_bytes + state.lineage_bytes
        lost = state.lost + self._lost
        return Stats(state.events, written, 0, 0.0, self._refused, lost, self._notices.errors)

    def stage(self, array: NDArray[np.generic]) -> NDArray[np.generic] | None:
        return None

    def write(self, event: Event) -> bool:
        with self._lock:
            if self._closed:
                return False
            if self._is_writing:
                reason = "it was recorded by a signal handler inside another record()"
                self._notices.add(Notice("lost", event.step, self.path, reason))
                self._refused += 1
                return False
            self._is_writing = True
            try:
                taken = self._write(event)
            finally:
                self._is_writing = False
                self._end_if_closed()
        self._notices.say()
        return taken

    def _write(self, event: Event) -> bool:
        before = self._state
        if full_files(before, event)[1]:
            self._refused += 1
            return False
        try:
            paths = (self._files.summary_path, self._files.lineage_path(event.items))
        except OSError as error:
            return self._lose(event.step, self._files.target.directory, error)
        if self._files.export_directory:
            commit.export_tensors(event, self._files.export_directory, self._notices.add)
        job = commit.encode(before.sequence + 1, self._missing.before(event), paths, self._notices.add)
        try:
            self._state = self._committer.apply(before, [job])
        except OSError as error:
            return self._lose(event.step, self.path, error)
        except BaseException:  # an interrupt from the keyboard, maybe behind the write: the next one cuts it off
            self._committer.close()
            raise
        if not job.failed:
            self._missing.said()
        is_refused = full_files(self._state, event)[0]
        self._refused += is_refused
        return self._state.lost == before.lost and not is_refused

    def _lose(self, step: int, path: str, error: OSError) -> bool:
        reason = os.strerror(error.errno or 0)
        self._notices.add(Notice("lost", step, path, reason))
        self._missing.add(step, reason)
        self._lost += 1
        return False

    def _say_what_is_missing(self) -> None:
        paths = (self._files.summary_path, "")
        job = commit.encode(self._state.sequence + 1, self._missing.event, paths, self._notices.add)
        try:
            self._state = self._committer.apply(self._state, [job])
        except OSError:
            return  # the disk is still full; the log has said it
        self._missing.said()

    def flush(self, sync: bool = False) -> None:
        if sync and not self._closed:
            self._files.sync(self._notices.add)
            self._notices.say()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                forks.forget(self)
                if not self._is_writing:
                    if self._missing.is_any:
                        self._say_what_is_missing()
                    self._committer.close()
        self._notices.say()

    def abandon(self) -> None:
        self._lock = threading.RLock()  # whoever held it in the parent does not exist here
        self._closed = True
        self._notices = Notices()

    def _end_if_closed(self) -> None:
        """Do what `close` could not, called by a signal handler inside a `write`."""
        if self._closed:
            self._committer.close()

    def take_error(self) -> Notice | None:
        return self._notices.take_first()


def full_files(state: State, event: Event) -> tuple[bool, bool]:
    """Whether any, and whether each, of the files that an event's items belong to is at its size limit."""
    needed = {LINEAGE if item.kind in LINEAGE_KINDS else SUMMARY for item in event.items}
    if event.scalars:
        needed.add(SUMMARY)
    full = [bool(state.full & 1 << file) for file in needed]
    return any(full), bool(full) and all(full)
