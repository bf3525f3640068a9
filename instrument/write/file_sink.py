"""The sink that encodes and writes in the calling thread: for `num_process=0`, and wherever no worker can be had."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from typing import TYPE_CHECKING

from instrument import forks
from instrument.eventfile import names
from instrument.events import Event
from instrument.ringfile import commit, header
from instrument.ringfile.commit import Notice
from instrument.ringfile.control import CONTROL_WORDS, Control, State
from instrument.ringfile.header import CONTROL_AT
from instrument.ringfile.record import Staged
from instrument.write.diagnostics import Diagnostics, Missing
from instrument.write.limits import full_files, may_have_gap
from instrument.write.npy_export import export_tensors
from instrument.write.pool_memory import detach, map_once, remove
from instrument.write.sink import Files, Stats, TagNames

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FileSink:
    """Encodes and writes each event before `write` returns."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._diagnostics = Diagnostics()
        self._layout = files.layout
        self._tags = TagNames(self._diagnostics)
        self._committer = commit.Committer(files.target.max_file_bytes, self._diagnostics.add, files.layout)
        self._state = State(summary_bytes=self._files.summary_bytes)
        self._state_file = StateFile(files, self._state)
        self._lock = threading.RLock()
        self._closed = False
        self._is_writing = False
        self._dropped = 0
        self._lost = 0
        self._missing = Missing(self._diagnostics, files.summary_path)
        forks.tell(self)

    @property
    def path(self) -> str:
        return self._files.summary_path

    @property
    def stats(self) -> Stats:
        state = self._state
        return Stats(
            state.events, sum(state.lengths), 0, 0.0, self._dropped + state.refused,
            self._lost + state.lost, self._diagnostics.errors,
        )  # fmt: skip

    def stage(self, array: NDArray[np.generic]) -> Staged | None:
        return None

    def write(self, event: Event, says: bool = True) -> bool:
        with self._lock:
            if self._closed:
                return False
            if self._is_writing:
                reason = "it was recorded by a signal handler inside another record()"
                self._diagnostics.add(Notice("lost", event.step, self.path, reason))
                self._lost += 1
                return False
            self._is_writing = True
            try:
                taken = self._write(event)
            finally:
                self._is_writing = False
                self._end_if_closed()
        if says:
            self._diagnostics.emit()
        return taken

    def say(self) -> None:
        self._diagnostics.emit()

    def _write(self, event: Event) -> bool:
        before = self._state
        if full_files(before, event, self._layout)[1]:
            self._dropped += 1
            self._miss(event)
            return False
        says_missing = self._missing.is_any
        if says_missing and self._files.target.max_file_bytes is not None:
            says_missing = may_have_gap(before, event, self._layout)
        try:
            paths = (self._files.summary_path, *self._files.further(event))
        except OSError as error:
            return self._lose(event.step, self._files.target.directory, error)
        if self._files.export_directory:
            export_tensors(event, self._files.export_directory, self._diagnostics.add)
        if self._layout.has_tensorboard:
            event = self._tags.named(event)
        whole = self._missing.before(event) if says_missing else event
        job = commit.encode(before.sequence + 1, whole, paths, self._diagnostics.add, self._layout)
        try:
            self._state = after = self._committer.apply(before, [job])
            self._state_file.store(after)
        except OSError as error:
            return self._lose(event.step, self.path, error)
        except BaseException:  # an interrupt from the keyboard, maybe behind the write: the next one cuts it off
            self._committer.close()
            raise
        is_in_first = after.summary_bytes != before.summary_bytes
        if says_missing and is_in_first:
            self._missing.reported()
        if after.refused != before.refused and not is_in_first:
            self._miss(event)
        return (after.lost, after.refused) == (before.lost, before.refused)

    def _miss(self, event: Event) -> None:
        """Have the file say that an event is missing for which it has no room."""
        self._missing.add(event.step, commit.limit_reason(self._files.target.max_file_bytes or 0))

    def _lose(self, step: int, path: str, error: OSError) -> bool:
        reason = os.strerror(error.errno or 0)
        self._diagnostics.add(Notice("lost", step, path, reason))
        self._missing.add(step, reason)
        self._lost += 1
        return False

    def flush(self, sync: bool = False) -> None:
        if sync and not self._closed:
            self._files.sync(self._diagnostics.add)
            self._diagnostics.emit()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                if not self._is_writing:
                    self._end()
        self._diagnostics.emit()

    def _end_if_closed(self) -> None:
        """Do what `close` could not, called by a signal handler inside a `write`."""
        if self._closed:
            self._end()

    def _end(self) -> None:
        if self._missing.is_any:
            self._say_what_is_missing()
        self._committer.close()
        self._state_file.close()
        forks.forget(self)

    def _say_what_is_missing(self) -> None:
        """The last chance for it: no event comes that could."""
        before = self._state
        paths = (self._files.summary_path,)
        job = commit.encode(before.sequence + 1, self._missing.event, paths, self._diagnostics.add, self._layout)
        try:
            self._state = self._committer.apply(before, [job])
            self._state_file.store(self._state)
        except OSError:
            pass  # the disk is still full
        self._missing.reported(in_file=self._state.summary_bytes != before.summary_bytes)

    def abandon(self) -> None:
        self._lock = threading.RLock()  # whoever held it in the parent does not exist here
        self._closed = True
        self._state_file.abandon()
        self._diagnostics = Diagnostics()
        self._missing = Missing(self._diagnostics, self.path)

    def take_error(self) -> Notice | None:
        return self._diagnostics.take_first()


class StateFile:
    """Shows to others how much of a sink's files counts; does nothing where there can be no ring file.

    A step may have parts in several files, which are written one after the other. When the process is killed in
    between, readers and the next recorder cut each file to its committed length, as they do for a ring: the step is in
    all of its files or in none.
    """

    def __init__(self, files: Files, state: State) -> None:
        self._control: Control | None = None
        self._memory = memoryview(bytearray())
        self._fd = -1
        self._remove: weakref.finalize[..., StateFile] | None = None
        target = files.target
        if target.kind != names.SUMMARY:
            return  # windows of a profiler go to one file, where an event is whole or cut off
        export = os.path.basename(files.export_directory)
        first = header.of_this_process(target.dialect, 1, mmap.PAGESIZE, target.max_file_bytes, export)
        try:
            path, self._fd = header.create(target.directory, first)
        except OSError:
            return  # a reader sees a step that was under way in some of its files
        self._remove = weakref.finalize(self, _remove, path, self._fd, os.getpid())
        try:
            self._memory = map_once(self._fd, 0, first.data_at)
            self._control = Control(self._memory[CONTROL_AT:][: 8 * CONTROL_WORDS].cast("Q"))
            self._set_name(0, os.path.basename(files.summary_path))
        except OSError:
            self.close()
            return
        self.store(state)
        files.on_made = self._set_name

    def _set_name(self, file: int, name: str) -> None:
        if self._fd < 0:  # closed, or in a forked child
            return
        os.pwrite(self._fd, header.encode_name(name), header.slot_at(file))

    def store(self, state: State) -> None:
        """Publish what is committed."""
        if self._control is not None:
            self._control.state = state

    def close(self) -> None:
        """Remove the file: what stands in the event files counts. The end of the sink without `close` does it, too."""
        self._control, self._fd = None, -1
        self._unmap()
        if self._remove is not None:
            self._remove()

    def abandon(self) -> None:
        """Let go of it in a forked child, which must not keep others from recovering."""
        self._control = None
        self._unmap()
        fd, self._fd = self._fd, -1
        if self._remove is not None and self._remove.detach():
            os.close(fd)

    def _unmap(self) -> None:
        """Give the mapping up, which holds the file and its lock."""
        if self._memory.nbytes:
            detach(self._memory)
        self._memory = memoryview(bytearray())


def _remove(path: str, fd: int, pid: int) -> None:
    if os.getpid() == pid:
        remove(path, fd)
    os.close(fd)
