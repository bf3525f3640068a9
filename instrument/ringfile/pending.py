"""Show what rings without living processes hold as the ends of their event files, without changing anything on disk.

Code that lists a directory calls `look` before its event files are opened; from then on `access.OpenFile` gives each of
them with its tail. A ring is decoded once. When its file is gone, the tails have been appended, and the event files are
read as they are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from instrument.errors import CorruptMessage
from instrument.eventfile import access
from instrument.eventfile.access import Identity, OpenFile
from instrument.eventfile.blocks import Damage
from instrument.ringfile import locks, snapshot
from instrument.ringfile.header import UnknownVersion, is_ring_file
from instrument.ringfile.replay import replay

#: Device, inode, size and first bytes, with the checksum of the header: its time is in it.
State = tuple[int, int, int, bytes]
_START_BYTES = 16
#: The first event of a file has the time at which it was made.
_FINGERPRINT_BYTES = 64


@dataclass
class Pending:
    """The content of one ring file: the event files that have a tail, how many events these hold, and damage."""

    state: State
    files: list[Identity] = field(default_factory=list)
    events: int = 0
    damage: list[Damage] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return self.state[2]


#: Directory -> path of a ring file without living processes -> what it holds.
_pending: dict[str, dict[str, Pending]] = {}


def look(directory: str, rings: Iterable[str]) -> None:
    """Read what the rings of a directory hold; `rings` are the paths of all ring files in it."""
    previous = _pending.get(directory, {})
    current: dict[str, Pending] = {}
    for path in rings:
        with suppress(FileNotFoundError):
            before = previous.get(path)
            state = _state(path)
            pending = before if before is not None and before.state == state else _read(path, state)
            if pending is not None:
                current[path] = pending
    shown = {identity for pending in current.values() for identity in pending.files}
    for pending in previous.values():
        for identity in pending.files:
            if identity not in shown:
                access.set_tail(identity, None)
    if current:
        _pending[directory] = current
    else:
        _pending.pop(directory, None)


def look_beside(path: str) -> None:
    """Learn what the rings in the directory of an event file hold; nothing if it cannot be listed."""
    directory = os.path.dirname(path) or os.curdir
    with suppress(OSError), os.scandir(directory) as entries:
        look(directory, [entry.path for entry in entries if is_ring_file(entry.name)])


def damage(directory: str) -> list[Damage]:
    """Return what of the rings of a directory, which `look` was called for, cannot be used."""
    return [damaged for pending in _pending.get(directory, {}).values() for damaged in pending.damage]


def waiting(directory: str) -> dict[str, Pending]:
    """Return the content of the rings of a directory, which `look` was called for, by their paths."""
    return dict(_pending.get(directory, {}))


def is_recording(directory: str) -> bool:
    """Return True where a process holds a ring file of a directory; False where the file system has no locks."""
    with suppress(OSError):
        with os.scandir(directory) as entries:
            rings = [entry.path for entry in entries if is_ring_file(entry.name)]
        return any(map(_is_held, rings))
    return False


def _is_held(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return locks.is_held(fd) is True
    finally:
        os.close(fd)


def _state(path: str) -> State:
    """Return what tells a ring file from another one that takes its place."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError:
        return 0, 0, 0, b""
    try:
        status = os.fstat(fd)
        start = os.pread(fd, _START_BYTES, 0) if stat.S_ISREG(status.st_mode) else b""
        return status.st_dev, status.st_ino, status.st_size, start
    finally:
        os.close(fd)


def _read(path: str, state: State) -> Pending | None:
    """Return what a ring holds, and show it; None where one of its processes lives."""
    pending = Pending(state)
    try:
        taken = snapshot.take(path)
        if taken is None:
            return None
        pending.damage = taken.damage
        result = replay(taken)
    except UnknownVersion as error:
        pending.damage = [_whole(path, state, f"{error}; what it holds is shown by a later release")]
        return pending
    except CorruptMessage as error:
        pending.damage = [_whole(path, state, f"{error}; what it may hold cannot be shown")]
        return pending
    except OSError as error:
        pending.damage = [_whole(path, state, f"it cannot be read: {os.strerror(error.errno or 0)}")]
        return pending
    pending.events = result.events
    for tail in result.tails:
        try:
            with OpenFile(tail.path) as file:
                identity, start = file.identity, bytes(file.read(0, min(tail.kept_bytes, _FINGERPRINT_BYTES)))
        except OSError:
            if tail.data:
                reason = f"its event file {tail.path} is gone; `instrument repair` makes it again"
                pending.damage.append(_whole(path, state, reason))
            continue
        name = os.path.basename(os.path.realpath(tail.path))
        access.set_tail(identity, access.UnwrittenEnd(tail.kept_bytes, tail.data, name, start))
        pending.files.append(identity)
    return pending


def _whole(path: str, state: State, reason: str) -> Damage:
    return Damage(path, 0, state[2], reason, torn=False)
