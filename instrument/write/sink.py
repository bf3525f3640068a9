"""Where events go: the `Sink` protocol, what it is told and what it tells, and the files that it writes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from instrument.codec import event as event_codec
from instrument.eventfile import frame, names
from instrument.eventfile.writer import EventFileWriter
from instrument.values import LINEAGE_KINDS, Event, Item
from instrument.write import commit
from instrument.write.commit import Notice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
        if not self.target.export_tensors:
            return ""
        # The first rank's is MindSpore's name; two that began in the same second must not write into one directory.
        rank = f"_rank{self.target.device}" * (self.target.device > 0)
        return os.path.join(self.target.directory, f"export_{self.seconds}{rank}")

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
