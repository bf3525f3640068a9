"""The sink that encodes and writes in the calling thread: for `num_process=0`, and wherever no worker can be had."""

from __future__ import annotations

import mmap
import os
import weakref
from typing import TYPE_CHECKING

from instrument import forks
from instrument.eventfile import names
from instrument.events import Event, StagedArray
from instrument.ringfile import commit, header
from instrument.ringfile.control import CONTROL_WORDS, Control, State
from instrument.ringfile.header import CONTROL_AT
from instrument.write.limits import full_files, may_have_gap
from instrument.write.npy_export import export_tensors
from instrument.write.pool_memory import detach, map_once, remove
from instrument.write.sink import BaseSink, Files, Stats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FileSink(BaseSink):
    """Encodes and writes each event before `write` returns."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._layout = files.layout
        self._committer = commit.Committer(files.target.max_file_bytes, self._diagnostics.add, files.layout)
        self._state = State(summary_bytes=files.summary_bytes)
        self._state_file = StateFile(files, self._state)
        forks.register(self)

    @property
    def stats(self) -> Stats:
        state = self._state
        return Stats(
            state.events, sum(state.lengths), 0, 0.0, self._dropped + state.refused,
            self._lost + state.lost, self._diagnostics.errors,
        )  # fmt: skip

    def stage(self, array: NDArray[np.generic]) -> StagedArray | None:
        return None

    def _write(self, event: Event) -> bool:
        before = self._state
        if full_files(before, event, self._layout)[1]:
            self._dropped += 1
            self._add_gap_at_limit(event)
            return False
        has_gap = self._gaps.is_open
        if has_gap and self._files.target.max_file_bytes is not None:
            has_gap = may_have_gap(before, event, self._layout)
        try:
            paths = (self._files.summary_path, *self._files.further_paths(event))
        except OSError as error:
            return self._record_loss(event.step, _reason(error), self._files.target.directory)
        if self._files.export_directory:
            export_tensors(event, self._files.export_directory, self._diagnostics.add)
        if self._tags is not None:
            event = self._tags.with_aliases(event)
        whole = self._gaps.prepend_to(event) if has_gap else event
        job = commit.encode(before.sequence + 1, whole, paths, self._diagnostics.add, self._layout)
        try:
            self._state = after = self._committer.apply(before, [job])
            self._state_file.store(after)
        except OSError as error:
            return self._record_loss(event.step, _reason(error))
        except BaseException:  # an interrupt from the keyboard, maybe behind the write: the next one cuts it off
            self._committer.close()
            raise
        is_in_first = after.summary_bytes != before.summary_bytes
        if has_gap and is_in_first:
            self._gaps.close()
        if after.refused != before.refused and not is_in_first:
            self._add_gap_at_limit(event)
        return (after.lost, after.refused) == (before.lost, before.refused)

    def _add_gap_at_limit(self, event: Event) -> None:
        self._gaps.add(event.step, commit.limit_reason(self._files.target.max_file_bytes or 0))

    def flush(self, sync: bool = False) -> None:
        if sync and not self._closed:
            self._files.sync(self._diagnostics.add)
            self._diagnostics.emit()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                if not self._is_writing:  # a signal handler leaves it to the `write` that it came in
                    self._release()
        self._diagnostics.emit()

    def _release(self) -> None:
        if self._gaps.is_open:
            self._write_gap()
        self._committer.close()
        self._state_file.close()
        forks.unregister(self)

    def _write_gap(self) -> None:
        """Write what is missing: no event comes that could have it."""
        before = self._state
        paths = (self._files.summary_path,)
        job = commit.encode(before.sequence + 1, self._gaps.event, paths, self._diagnostics.add, self._layout)
        try:
            self._state = self._committer.apply(before, [job])
            self._state_file.store(self._state)
        except OSError:
            pass  # the disk is still full
        self._gaps.close(in_file=self._state.summary_bytes != before.summary_bytes)

    def abandon(self) -> None:
        super().abandon()
        self._state_file.abandon()


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0)


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
        files.on_created = self._set_name

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
