"""Append the events left in dead rings to the event files of a directory, exactly once.

A ring is dead when none of its processes is alive. Under the write lock of its file each event file is cut to its valid
length and the tail is appended; then the ring file is removed. If recovery is killed, the ring file stays, and the next
recovery produces the same bytes.

The next recorder recovers at its start, and `instrument repair` on request. A recorder skips a ring whose owner may be
alive on a machine whose locks it cannot see, and a ring on which five recoveries in a row were interrupted: what an
earlier training left behind must not make recording fail again and again.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from instrument.errors import CorruptMessage
from instrument.eventfile.writer import EventFileWriter
from instrument.events import Event
from instrument.ringfile import header as headers
from instrument.ringfile import locks, snapshot
from instrument.ringfile.control import ATTEMPTS
from instrument.ringfile.header import CONTROL_AT, PART_SUFFIX, Header, UnknownVersion
from instrument.ringfile.replay import Replay, replay

_MOST_ATTEMPTS = 5
#: A ring of another machine that was changed so recently may be in use, where that machine's locks are not seen.
_QUIET_SECONDS = 60.0
_WORD = struct.Struct("=Q")

#: Called with each event of a ring and its header, before it is encoded: tensors may have to be exported.
Export = Callable[[Event, Header], None]


@dataclass(frozen=True)
class Recovered:
    """What became of one ring file: `events` were appended to `files`, or `problem` says why it was left as it is."""

    path: str
    events: int = 0
    lost: int = 0
    refused: int = 0
    files: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    problem: str = ""


def ring_files(directory: str) -> list[str]:
    """Return the paths of the ring files in a directory, in the order of their names.

    Raises:
        OSError: the directory cannot be listed.
    """
    with os.scandir(directory) as entries:
        return sorted(entry.path for entry in entries if headers.is_ring_file(entry.name))


def recover_all(directory: str, export: Export | None = None, is_asked: bool = False) -> list[Recovered]:
    """Recover each ring file of a directory that has no living process; return what became of each of them.

    `is_asked` says that a user wants it, who knows more than a recorder at its start.

    Raises:
        OSError: the directory cannot be listed.
    """
    _remove_unfinished(directory)
    results = [recover(path, export, is_asked) for path in ring_files(directory)]
    return [result for result in results if result is not None]


def recover(path: str, export: Export | None = None, is_asked: bool = False) -> Recovered | None:
    """Append what a ring file holds to its event files and remove it; return None where one of its processes lives."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Recovered(path, problem=os.strerror(error.errno or 0))
    try:
        return _recover(path, fd, export, is_asked)
    except UnknownVersion as error:
        return Recovered(path, problem=f"{error}; a later release recovers it")
    except CorruptMessage as error:
        return Recovered(path, problem=f"{error}; its event files are as they were")
    except OSError as error:
        return Recovered(path, problem=os.strerror(error.errno or 0))
    finally:
        os.close(fd)


def _recover(path: str, fd: int, export: Export | None, is_asked: bool) -> Recovered | None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise CorruptMessage("it is no regular file")
    try:
        if not locks.acquire_exclusive(fd):
            return None
    except OSError:
        if not is_asked and not _is_surely_dead(fd):
            return Recovered(path, problem="this file system has no locks, so its processes may still live")
    if not _is_at(path, fd):
        return None  # somebody else has done it
    taken = snapshot.take(path, fd)
    if taken is None:
        return None
    if not is_asked:
        if taken.header.host != os.uname().nodename and time.time() - os.fstat(fd).st_mtime < _QUIET_SECONDS:
            return Recovered(path, problem=f"{taken.header.host} may still use it, it was changed just now")
        attempts = _attempts(fd)
        if attempts >= _MOST_ATTEMPTS:
            return Recovered(path, problem=f"{attempts} attempts were cut short")
        _set_attempts(fd, attempts + 1)

    def watch(event: Event) -> None:
        if export is not None and taken.header.export_directory:
            export(event, taken.header)

    result = replay(taken, watch)
    try:
        _append(result)
    finally:
        if not is_asked:
            _set_attempts(fd, attempts)
    os.unlink(path)
    return Recovered(
        path, result.events, result.state.lost - taken.state.lost, result.state.refused - taken.state.refused,
        tuple(tail.path for tail in result.tails if tail.data), tuple(damage.reason for damage in taken.damage),
    )  # fmt: skip


def _append(result: Replay) -> None:
    """Write the tails, all of them or none that counts: the ring file stays until they are on the disk."""
    for tail in result.tails:
        if not tail.data and not _is_longer(tail.path, tail.kept_bytes):
            continue
        os.makedirs(os.path.dirname(tail.path), exist_ok=True)
        writer = EventFileWriter(tail.path)
        try:
            writer.append([tail.data], tail.kept_bytes)
            writer.sync()
        finally:
            writer.close()


def _is_longer(path: str, size_bytes: int) -> bool:
    try:
        return os.path.getsize(path) > size_bytes
    except OSError:
        return False


def _is_at(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd))
    except FileNotFoundError:
        return False


def _is_surely_dead(fd: int) -> bool:
    """Return True for a ring of this machine, or of an earlier start of it: its processes can be looked for."""
    header = headers.decode(os.pread(fd, CONTROL_AT, 0))
    return header.host == os.uname().nodename


def _attempts(fd: int) -> int:
    (count,) = _WORD.unpack(os.pread(fd, 8, CONTROL_AT + 8 * ATTEMPTS))
    return int(count)


def _set_attempts(fd: int, count: int) -> None:
    os.pwrite(fd, _WORD.pack(count), CONTROL_AT + 8 * ATTEMPTS)


def _remove_unfinished(directory: str) -> None:
    """Remove ring files whose recorders ended while they made them."""
    with os.scandir(directory) as entries:
        partial = [entry.path for entry in entries if _is_unfinished(entry.name)]
    for path in partial:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if locks.acquire_exclusive(fd):
                os.unlink(path)
        except OSError:
            pass
        finally:
            os.close(fd)


def _is_unfinished(name: str) -> bool:
    return name.endswith(PART_SUFFIX) and headers.is_ring_file(name.removesuffix(PART_SUFFIX))
