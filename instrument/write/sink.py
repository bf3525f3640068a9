"""Where events go: the `Sink` protocol, its statistics, and the files that it writes."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from instrument.codec import lifecycle, wire
from instrument.codec.dialects import LAYOUTS, LINEAGE, MINDSPORE, SCALARS, SUMMARY
from instrument.descriptors import above_streams
from instrument.eventfile import frame, names
from instrument.eventfile.writer import EventFileWriter
from instrument.events import LINEAGE_KINDS, Event
from instrument.ringfile import commit
from instrument.ringfile.commit import Notice
from instrument.ringfile.control import State
from instrument.ringfile.record import Staged
from instrument.write import resume
from instrument.write.diagnostics import Diagnostics

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Kinds whose tag TensorBoard sees.
_NAMED = ("tensor", "image", "histogram", "text")
#: Tags beyond so many are not remembered, and keep their names.
_MOST_TAGS = 100_000


@dataclass(frozen=True)
class Target:
    """Where a recorder's files lie and how they are named; `device` is the device or rank number in the name.

    `kind` is "summary", or "profile" for the pieces of a trace. `dialect` is a key of `dialects.LAYOUTS`; names of
    TensorBoard's files have neither suffix nor device, but `rank`, which is None outside of a training of several.
    With `is_start` the first file says so: this recorder is a start of the run in the directory.
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
        """The kind and the device in the name of the first file."""
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

    def write(self, event: Event, says: bool = True) -> bool:
        """Take an event; False where it, or a part of it, will not be in the file.

        Without `says` nothing is logged: what there is to say waits for `say`, or for the next call of anything here.
        """

    def say(self) -> None:
        """Log what is still unsaid. Whoever calls holds no lock that a logging handler could want."""

    def stage(self, array: NDArray[np.generic]) -> Staged | None:
        """A copy of a contiguous array of numbers, as a payload that is valid until the next `write` and need not be
        copied there; None: no room."""

    def flush(self, sync: bool = False) -> None:
        """Return when everything taken so far can be read by another process; with `sync`, when it is on the disk."""

    def close(self) -> None:
        """Flush and end. A second call does nothing, and a forked child's call neither."""

    def take_error(self) -> Notice | None:
        """The first error since the last call."""


class Files:
    """The names of a recorder's files: the first one of the layout exists at once, the others when they are needed.

    Raises:
        OSError: the directory cannot be made or written.
    """

    def __init__(self, target: Target) -> None:
        # A worker, and whoever writes later, may stand in another directory.
        self.target = target = replace(target, directory=os.path.abspath(target.directory))
        self.layout = LAYOUTS[target.dialect]
        self.seconds = int(time.time())
        os.makedirs(target.directory, exist_ok=True)
        start: wire.Pieces = []
        if target.is_start:
            begun, self.seconds = resume.begin(target.directory, *target.first_kind)
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
        #: Where tensors go as `.npy`; empty where nobody asked.
        self.export_directory = self._claim_export_directory()
        #: Called with the place and the base name of each further file before anything is written to it.
        self.on_made: Callable[[int, str], None] | None = None

    def _claim_export_directory(self) -> str:
        """Make the directory for tensors as `.npy` and return its path; empty where nobody asked for them.

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
                pass  # exporting says why
            return path
        raise AssertionError("there is no end of seconds")

    def further(self, event: Event) -> tuple[str, ...]:
        """The paths of the files behind the first, made on first use; empty for those that the event does not need."""
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
                if self.on_made is not None:
                    self.on_made(file, os.path.basename(path))
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
                report(Notice("sync", 0, path, os.strerror(error.errno or 0)))


def _sync(path: str) -> None:
    fd = above_streams(os.open(path, os.O_RDONLY))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class TagNames:
    """Which kind each tag belongs to, and what it is called for another. Whoever calls holds the sink's lock."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._kinds: dict[str, str] = {}
        self._aliases: dict[tuple[str, str], str] = {}

    def named(self, event: Event) -> Event:
        """The event with the names that differ from its tags."""
        keys = [("scalar", tag) for tag in event.scalars]
        keys += [(item.kind, str.__str__(item.tag)) for item in event.items if item.kind in _NAMED]
        aliases = {key: alias for key in keys if (alias := self._alias(*key))}
        return event._replace(aliases=aliases) if aliases else event

    def _alias(self, kind: str, tag: str) -> str:
        """The name of a kind's tag where it is not the tag itself; else empty."""
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
