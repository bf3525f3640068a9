"""Append whole frames to a file whose good length is known.

The caller keeps the length of what is committed and hands it in; what lies behind it is the rest of a writer that died
and is cut off first. A write that fails leaves the file at the committed length: a half frame makes MindInsight spin.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from instrument.descriptors import above_streams
from instrument.undo import UndoOnError

#: Pieces below this size are joined before the system call: copying them costs less than handing them over singly.
_JOIN_BELOW_BYTES = 64 * 1024
_MAX_PIECES = 512
#: One call writes about this much. Of a call with more, Linux makes pages of many megabytes, which take longer to find.
_CALL_BYTES = 1 << 20


def coalesce(pieces: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Join small pieces; large ones are passed on uncopied."""
    result: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < _JOIN_BELOW_BYTES:
            small.append(piece)
            continue
        if small:
            result.append(b"".join(small))
            small = []
        result.append(piece)
    if small:
        result.append(b"".join(small))
    return result


class EventFileWriter:
    """Write frames at a given offset of one file, which is created when absent (mode 0666 less the umask)."""

    def __init__(self, path: str) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        self._fd = above_streams(os.open(path, flags, 0o666))
        self._tail_unknown = True
        _lock(self._fd, is_shared=True)

    def append(self, pieces: Sequence[bytes | memoryview], committed_bytes: int) -> int:
        """Write `pieces` behind the first `committed_bytes` of the file and return the new committed length.

        Raises:
            OSError: nothing was kept; the file ends at `committed_bytes` again.
        """
        if self._tail_unknown:
            self._cut(committed_bytes)
            self._tail_unknown = False
        end = committed_bytes
        with UndoOnError(self.cut, committed_bytes):  # also an interrupt from the keyboard between two parts
            remaining = coalesce(pieces)
            while remaining:
                written = _write_at(self._fd, _batch(remaining), end)
                end += written
                remaining = _drop(remaining, written)
        return end

    def cut(self, committed_bytes: int) -> None:
        """Take back what was written behind the first `committed_bytes`; if not now, before the next `append`.

        That may go back further.
        """
        self._tail_unknown = True
        self._cut(committed_bytes)

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def holds(self, committed_bytes: int) -> bool:
        """Return True if the file is still there with its first `committed_bytes`: it was neither deleted nor cut.

        What another writer that died has left behind them is cut off by the next `append`.
        """
        status = os.fstat(self._fd)
        self._tail_unknown = self._tail_unknown or status.st_size > committed_bytes
        return status.st_nlink > 0 and status.st_size >= committed_bytes

    def _cut(self, committed_bytes: int) -> None:
        if self.size_bytes > committed_bytes:
            os.ftruncate(self._fd, committed_bytes)

    def sync(self) -> None:
        """Return when the file's bytes are on the disk itself."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_being_written(path: str) -> bool:
    """Return True if an `EventFileWriter` has the file open, here or in another process of this machine.

    False also where the file system knows no locks, and where the file cannot be opened.
    """
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    try:
        return not _lock(fd, is_shared=False)
    finally:
        os.close(fd)


def _lock(fd: int, is_shared: bool) -> bool:
    """Lock a file until its descriptor is closed; return False if another process holds a lock.

    It is never waited for: a writer's lock only shows that there is a writer.
    """
    try:
        import fcntl

        fcntl.flock(fd, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows, or a file system without locks
        pass
    return True


def _write_at(fd: int, pieces: list[bytes | memoryview], offset: int) -> int:
    if hasattr(os, "pwritev"):
        return os.pwritev(fd, pieces, offset)
    os.lseek(fd, offset, os.SEEK_SET)  # Windows has neither pwrite nor pwritev
    return os.write(fd, pieces[0])


def _batch(pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the first of `pieces`, as far as one call writes them."""
    batch: list[bytes | memoryview] = []
    room = _CALL_BYTES
    for piece in pieces[:_MAX_PIECES]:
        if len(piece) > 2 * room:
            batch.append(memoryview(piece)[:room])
            break
        batch.append(piece)
        room -= len(piece)
        if room <= 0:
            break
    return batch


def _drop(pieces: list[bytes | memoryview], count: int) -> list[bytes | memoryview]:
    """Return what is left of `pieces` behind their first `count` bytes."""
    index = 0
    while index < len(pieces) and count >= len(pieces[index]):
        count -= len(pieces[index])
        index += 1
    rest = pieces[index:]
    if count:
        rest[0] = memoryview(rest[0])[count:]
    return rest
