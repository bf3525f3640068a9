"""Keep our descriptors away from the numbers of the standard streams.

A daemon closes descriptors 0, 1 and 2. The next file, socket or memory that is opened gets one of these numbers, and is
written to by the next `print`, or replaced when a child process is started.
"""

from __future__ import annotations

import os
import socket

_FIRST_FREE = 3


def above_streams(fd: int) -> int:
    """Return the descriptor, or a duplicate with a number of at least 3 in its place (the original is closed)."""
    if fd >= _FIRST_FREE:
        return fd
    try:
        import fcntl
    except ImportError:  # Windows
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    finally:
        os.close(fd)


def socket_pair(kind: int = socket.SOCK_STREAM) -> tuple[socket.socket, socket.socket]:
    """Return two connected Unix sockets above the standard streams."""
    first, second = socket.socketpair(socket.AF_UNIX, kind)
    try:
        return _moved(first), _moved(second)
    except OSError:
        first.close()
        second.close()
        raise


def _moved(end: socket.socket) -> socket.socket:
    return end if end.fileno() >= _FIRST_FREE else socket.socket(fileno=above_streams(end.detach()))


def opener(path: str, flags: int) -> int:
    """An `opener` for `open` whose files are above the standard streams."""
    return above_streams(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666))
