"""Detect whether a ring's processes are alive, by locks on the first byte of its file; recognise processes.

Trainer and workers have a read lock each, which belongs to an open file description: the kernel releases it with the
last process that holds that, however it ends. An `mmap.mmap` of the file has a copy of the descriptor and holds the
lock, too, also in a forked child. Asking takes no lock, so readers never get in each other's way. Recovery takes the
write lock first.

Rejected: process numbers in a file. They are used again, and mean nothing in another container or on another machine.
They are looked at only where the file system has no locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

_F_OFD_GETLK, _F_OFD_SETLK = 36, 37
#: `struct flock`: type, whence, start, length, process.
_LOCK = struct.Struct("hhqqi0q")
_REFUSED = (errno.EAGAIN, errno.EACCES)


def acquire_shared(fd: int) -> bool:
    """Take the read lock until the last copy of `fd` is closed; return False where there are no locks."""
    try:
        return _set(fd, fcntl.F_RDLCK)
    except OSError:
        return False


def acquire_exclusive(fd: int) -> bool:
    """Take the write lock until `fd` is closed; return False where somebody holds a lock.

    Raises:
        OSError: the file system has no locks.
    """
    return _set(fd, fcntl.F_WRLCK)


def release(fd: int) -> None:
    """Give the lock of `fd` up."""
    try:
        _set(fd, fcntl.F_UNLCK)
    except OSError:
        pass  # there was none


def is_held(fd: int) -> bool | None:
    """Return True where another open file holds a lock, None where the file system has no locks."""
    try:
        answer = fcntl.fcntl(fd, _F_OFD_GETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError:
        return None
    return bool(_LOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _set(fd: int, kind: int) -> bool:
    try:
        fcntl.fcntl(fd, _F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, 0, 1, 0))
    except OSError as error:
        if error.errno in _REFUSED:
            return False
        raise
    return True


def start_ticks(pid: int) -> int:
    """Return when a process started, in ticks since the machine did; 0 where there is no such process any more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def boot_id() -> bytes:
    """Return 16 bytes that are others after each start of the machine; zeros where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def pid_namespace() -> int:
    """Return the number of the namespace that process numbers of this process belong to; 0 where there is none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
