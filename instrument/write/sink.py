"""Where events go: the target, its files, the `Sink` protocol with its statistics, and what all sinks share.

A sink takes events in order and is either a `PoolSink`, which hands them to worker processes, or a `FileSink`, which
writes them in the calling thread. Both own the same `Files`: names, dialect and export directory of one recorder.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from instrument.codec import lifecycle, wire
from instrument.codec.dialects import LAYOUTS, LINEAGE, MINDSPORE, SCALARS, SUMMARY
from instrument.descriptors import above_streams
from instrument.eventfile import frame, names
from instrument.eventfile.writer import EventFileWriter
from instrument.events import LINEAGE_KINDS, Event, StagedArray
from instrument.ringfile import commit
from instrument.ringfile.commit import Diagnostic
from instrument.ringfile.control import State
from instrument.write import resume
from instrument.write.diagnostics import Diagnostics, GapRecorder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Kinds whose tag TensorBoard sees.
_NAMED = ("tensor", "image", "histogram", "text")
#: Tags beyond this number are not remembered, and keep their names.
_MOST_TAGS = 100_000


@dataclass(frozen=True)
class Target:
    """Where a recorder's files lie and how they are named; `device` is the device or rank number in the name.

    `kind` is "summary", or "profile" for the pieces of a trace. `dialect` is a key of `dialects.LAYOUTS`; names of
    TensorBoard's files have neither suffix nor device, but `rank`, which is None outside of a training of several.
    With `is_start` the first file records that this recorder is a start of the run in the directory.
    """

    directory: str
    prefix: str = "events"
    suffix: str = names.SUFFIX
    device: int = 0
    max_file_bytes: int | None = None
    export_tensors: bool = False
    kind: str = names.SUMMARY
    dialect: str = MINDSPORE.dialect
    rank: int | None = None
    is_start: bool = False

    @property
    def first_kind(self) -> tuple[str, int]:
        """Kind and device in the name of the first file."""
        if LAYOUTS[self.dialect].has_mindspore:
            return self.kind, self.device
        return names.TENSORBOARD, -1 if self.rank is None else self.rank


@dataclass(frozen=True)
class Stats:
    """What became of the events so far.

    `events` and `bytes` are on disk (in all files); `pending` events are on their way. `stalled_seconds` is the
    time that training waited for room. `dropped` counts events that were refused: for want of room with
    `on_full="drop"` or while the disk takes nothing, or because a file is at its size limit. `lost` counts those that
    could not be encoded or written, and `errors` the errors behind them. Every event is in `events`, `pending`,
    `dropped` or `lost`.
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

    def write(self, event: Event, emit: bool = True) -> bool:
        """Take an event; return False where it, or a part of it, will not be in the file.

        Without `emit` nothing is logged: messages wait for `emit`, or for the next call of anything here.
        """

    def emit(self) -> None:
        """Log the messages that wait. The caller must hold no lock that a logging handler could want."""

    def stage(self, array: NDArray[np.generic]) -> StagedArray | None:
        """Return a copy of a contiguous array of numbers, valid until the next `write`, which need not copy it again.

        None: there is no room for it.
        """

    def flush(self, sync: bool = False) -> None:
        """Return when everything taken so far can be read by another process; with `sync`, when it is on the disk."""

    def close(self) -> None:
        """Flush and end. A second call does nothing, and a forked child's call neither."""

    def take_error(self) -> Diagnostic | None:
        """Return the first error since the last call."""


class BaseSink(ABC):
    """What the sinks with and without workers share: the guard around `write`, diagnostics, gaps, names of tags.

    One guard is enough for signal handlers, `__del__` and whatever else runs in the middle of a `write`, on the same
    thread or another one: threads wait for the lock, and a `write` inside a `write` is refused and counted, since the
    outer one may stand between any two of its steps. `close` inside of it leaves the end to the outer call.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._diagnostics = Diagnostics()
        self._gaps = GapRecorder(self._diagnostics, files.summary_path)
        self._tags = TagAliases(self._diagnostics) if files.layout.has_tensorboard else None
        self._lock = threading.RLock()
        self._is_writing = self._closed = False
        self._dropped = self._lost = 0

    @property
    def path(self) -> str:
        return self._files.summary_path

    def write(self, event: Event, emit: bool = True) -> bool:
        with self._lock:
            if self._closed:
                return False
            if self._is_writing:
                self._lost += 1  # without a gap: the outer call may be in the middle of writing one
                return self._report_lost(event.step, "it was recorded by a signal handler inside another record()")
            self._is_writing = True
            try:
                taken = self._write(event)
            finally:
                self._is_writing = False
                if self._closed:  # by a signal handler meanwhile
                    self._release()  # type: ignore[unreachable]
        if emit and self._diagnostics.waiting:
            self._diagnostics.emit()
        return taken

    @abstractmethod
    def _write(self, event: Event) -> bool:
        """Take an event; called with the lock held, and never inside of itself."""

    @abstractmethod
    def _release(self) -> None:
        """Give back what a sink that is closed holds, unless an outer call still needs it."""

    def _record_loss(self, step: int, reason: str, path: str = "") -> bool:
        """Count and report an event that cannot be written, for the next one to mention in the file: False."""
        self._lost += 1
        self._gaps.add(step, reason)
        return self._report_lost(step, reason, path)

    def _report_lost(self, step: int, reason: str, path: str = "") -> bool:
        self._diagnostics.add(Diagnostic("lost", step, path or self.path, reason))
        return False

    def emit(self) -> None:
        self._diagnostics.emit()

    def take_error(self) -> Diagnostic | None:
        return self._diagnostics.take_first()

    def abandon(self) -> None:
        """Do nothing any more, in a forked child: the files are its parent's."""
        self._closed = True
        self._lock = threading.RLock()  # the thread that held it in the parent does not exist here
        self._diagnostics = Diagnostics()
        self._gaps = GapRecorder(self._diagnostics, self.path)


class Files:
    """The names of a recorder's files: the first one of the layout exists at once, the others when they are needed.

    Raises:
        OSError: the directory cannot be made or written.
    """

    def __init__(self, target: Target) -> None:
        # A worker, and a later call, may have another working directory.
        self.target = target = replace(target, directory=os.path.abspath(target.directory))
        self.layout = LAYOUTS[target.dialect]
        self.seconds = int(time.time())
        os.makedirs(target.directory, exist_ok=True)
        start: wire.Pieces = []
        if target.is_start:
            begun, self.seconds = resume.number_start(target.directory, *target.first_kind)
            start = [lifecycle.encode_start(begun)]
        #: The path of the first file.
        self.summary_path = self._create(self.layout.roles[0])
        #: Those of all files; empty for one that is not there yet.
        self.paths = [self.summary_path, *[""] * (len(self.layout.roles) - 1)]
        version = frame.pack([*self.layout.version(0, time.time()), *start])
        writer = EventFileWriter(self.summary_path)
        try:
            #: The length of the first file.
            self.summary_bytes = writer.append(version, 0)
        except OSError:
            os.remove(self.summary_path)  # an empty file would only look like a run
            raise
        finally:
            writer.close()
        name = names.recognise(os.path.basename(self.summary_path))
        self.seconds = name.seconds if name is not None else self.seconds
        #: Where tensors go as `.npy`; empty if they are not exported.
        self.export_directory = self._claim_export_directory()
        #: Called with the place and the base name of each further file before anything is written to it.
        self.on_created: Callable[[int, str], None] | None = None

    def _claim_export_directory(self) -> str:
        """Make the directory for tensors as `.npy` and return its path; empty if they are not exported.

        Recorders that begin in the same second have one each: the next second's where it is taken, as event files have.
        """
        if not self.target.export_tensors:
            return ""
        # The first rank's is MindSpore's name.
        rank = f"_rank{self.target.device}" * (self.target.device > 0)
        for seconds in itertools.count(self.seconds):
            path = os.path.join(self.target.directory, f"export_{seconds}{rank}")
            try:
                os.mkdir(path)
            except FileExistsError:
                continue
            except OSError:
                pass  # the export reports why
            return path
        raise AssertionError("there is no end of seconds")

    def further_paths(self, event: Event) -> tuple[str, ...]:
        """Return the paths of the files behind the first, made on first use; empty for those that are not needed."""
        if not self.layout.has_tensorboard:
            for item in event.items:
                if item.kind in LINEAGE_KINDS:
                    break
            else:
                return ()  # as mostly: MindSpore's dialect has lineage alone in another file
        needed = self.layout.needed(event)
        for file in needed:
            if not self.paths[file]:
                path = self._create(self.layout.roles[file])
                if self.on_created is not None:
                    self.on_created(file, os.path.basename(path))
                self.paths[file] = path
        return tuple(path if file in needed else "" for file, path in enumerate(self.paths) if file)

    def _create(self, role: str) -> str:
        try:
            return self._create_in_directory(role)
        except FileNotFoundError:  # the directory was deleted or renamed since the first file was made
            os.makedirs(self.target.directory, exist_ok=True)
            return self._create_in_directory(role)

    def _create_in_directory(self, role: str) -> str:
        target = self.target
        if role == SUMMARY:
            return names.create(
                target.directory, target.prefix, self.seconds, target.device, target.suffix, target.kind
            )
        if role == LINEAGE:
            return names.create(target.directory, target.prefix, self.seconds, target.device, names.LINEAGE_SUFFIX)
        return names.create_tensorboard(target.directory, target.prefix, self.seconds, role == SCALARS, target.rank)

    def trim(self, state: State) -> None:
        """Cut the files to what is committed: a writer that died may have left more."""
        commit.trim(self.paths, state)

    def sync(self, report: commit.Report) -> None:
        """Return when all files and their directory are on the disk; what cannot be brought there is reported."""
        for path in filter(None, (*self.paths, self.target.directory)):
            try:
                _sync(path)
            except OSError as error:
                report(Diagnostic("sync", 0, path, os.strerror(error.errno or 0)))


def _sync(path: str) -> None:
    fd = above_streams(os.open(path, os.O_RDONLY))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class TagAliases:
    """Names for TensorBoard's dialect, where a tag belongs to the first kind that has it; others get an alias.

    Not for several threads at a time: the caller holds the sink's lock.
    """

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._kinds: dict[str, str] = {}
        self._aliases: dict[tuple[str, str], str] = {}

    def with_aliases(self, event: Event) -> Event:
        """Return the event with the aliases of its tags."""
        keys = [("scalar", tag) for tag in event.scalars]
        keys += [(item.kind, str.__str__(item.tag)) for item in event.items if item.kind in _NAMED]
        aliases = {key: alias for key in keys if (alias := self._alias(*key))}
        return event._replace(aliases=aliases) if aliases else event

    def _alias(self, kind: str, tag: str) -> str:
        """Return what a kind's tag is called; empty where it keeps its name."""
        owner = self._kinds.get(tag)
        if owner == kind:
            return ""
        if owner is None:
            if len(self._kinds) < _MOST_TAGS:
                self._kinds[tag] = kind
            return ""
        alias = self._aliases.get((kind, tag))
        if alias is None:
            alias = self._aliases[kind, tag] = self._free_name(tag, kind)
            text = "%r is a %s already, and TensorBoard shows one kind a tag: there the %s is called %r."
            self._diagnostics.note(logging.WARNING, text, tag, owner, kind, alias)
        return alias

    def _free_name(self, tag: str, kind: str) -> str:
        name = f"{tag}/{kind}"
        while self._kinds.setdefault(name, kind) != kind or name in self._aliases.values():
            name += "_"
        return name
