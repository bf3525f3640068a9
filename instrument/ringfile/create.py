"""Make a ring file, whole: allocated, locked and with its header before it has its name."""

from __future__ import annotations

import itertools
import os

from instrument.descriptors import above_streams
from instrument.ringfile import header as headers
from instrument.ringfile import locks
from instrument.ringfile.header import Header

#: What a ring file is called until it is whole; whoever finds one that nobody holds may remove it.
PART_SUFFIX = ".part"
_ATTEMPTS = 100


def create(directory: str, header: Header) -> tuple[str, int]:
    """Make a ring file that this process holds, with its data allocated; return its path and an open descriptor.

    The data are allocated since a hole that is touched while the disk is full ends the process.

    Raises:
        OSError: the file cannot be made, allocated or mapped there.
    """
    for number in itertools.count():
        path = os.path.join(directory, headers.file_name(number))
        partial = path + PART_SUFFIX
        try:
            fd = _open(partial)  # nobody else makes this path now
        except FileExistsError:
            if number < _ATTEMPTS:
                continue
            raise
        try:
            is_taken = os.path.lexists(path)
            if not is_taken:
                locks.hold(fd)
                initialise(fd, header)
                os.rename(partial, path)
        except BaseException:
            os.close(fd)
            _remove(partial)
            raise
        if not is_taken:
            return path, fd
        os.close(fd)
        _remove(partial)
    raise AssertionError("there is no end of numbers")


def initialise(fd: int, header: Header, allocates: bool = True) -> None:
    """Give an empty file its size and its header; anonymous memory need not be allocated.

    Raises:
        OSError: there is no room.
    """
    if allocates:
        os.posix_fallocate(fd, 0, header.file_bytes)
    else:
        os.ftruncate(fd, header.file_bytes)
    os.pwrite(fd, headers.encode(header._replace(inode=os.fstat(fd).st_ino)), 0)


def _open(path: str) -> int:
    """Open a new file."""
    return above_streams(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        pass
