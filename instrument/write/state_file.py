"""The committed state of a sink without workers, in a ring file whose ring stays empty.

A step may have parts in several files, which are written one after the other. When the process is killed in between,
readers and the next recorder cut each file to its committed length, as they do for a ring: the step is in all of its
files or in none.
"""

from __future__ import annotations

import mmap
import os
import weakref

from instrument.eventfile import names
from instrument.ringfile import create, header
from instrument.ringfile.control import CONTROL_WORDS, Control, State
from instrument.ringfile.header import CONTROL_AT
from instrument.write import memory
from instrument.write.shared import remove
from instrument.write.sink import Files


class StateFile:
    """Shows to others how much of a sink's files counts; does nothing where there can be no ring file."""

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
            path, self._fd = create.create(target.directory, first)
        except OSError:
            return  # a reader sees a step that was under way in some of its files
        self._remove = weakref.finalize(self, _remove, path, self._fd, os.getpid())
        try:
            self._memory = memory.map_once(self._fd, 0, first.data_at)
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
            memory.detach(self._memory)
        self._memory = memoryview(bytearray())


def _remove(path: str, fd: int, pid: int) -> None:
    if os.getpid() == pid:
        remove(path, fd)
    os.close(fd)
