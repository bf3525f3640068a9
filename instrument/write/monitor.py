"""Monitor thread: sleep until a worker's socket becomes readable, then have its sink look after the workers."""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref
from typing import Protocol

from instrument.descriptors import above_streams, socket_pair


class Monitored(Protocol):
    """A sink with workers, as seen from here."""

    def service(self) -> float | None:
        """Receive reports and replace workers.

        Return the seconds until the next call (-1: when a worker is heard), or None at the end.
        """


class Monitor:
    """The descriptors of the monitor thread: an epoll object over the workers' sockets, and a socket that wakes it.

    Once started, the thread closes them, all but `waker`. Shut down, `waker` ends the thread; a descriptor that is
    merely closed would not.
    """

    def __init__(self) -> None:
        self.waker, self._woken = socket_pair()
        self.waker.setblocking(False)
        self._woken.setblocking(False)
        with select.epoll() as first:
            self._readable = select.epoll.fromfd(above_streams(os.dup(first.fileno())))
        self._readable.register(self._woken, select.EPOLLIN)

    def start(self, sink: Monitored) -> threading.Thread:
        """Start the thread for a sink; it ends when the sink is closed or garbage.

        Raises:
            RuntimeError: no thread can be started.
        """
        arguments = (weakref.ref(sink), self._readable, self._woken)
        thread = threading.Thread(target=_run, args=arguments, name="instrument-monitor", daemon=True)
        thread.start()
        return thread

    def watch(self, end: socket.socket) -> None:
        """Wake up when this end of a worker's socket is readable: the worker reports something or is dead."""
        self._readable.register(end.fileno(), select.EPOLLIN)

    def unwatch(self, end: socket.socket) -> None:
        self._readable.unregister(end.fileno())

    def wake(self) -> None:
        try:
            self.waker.send(b"!")
        except BlockingIOError:
            pass  # it has been woken often enough

    def close(self) -> None:
        """Close what the thread would, where none runs."""
        self._woken.close()
        self._readable.close()


def _run(reference: weakref.ref[Monitored], readable: select.epoll, woken: socket.socket) -> None:
    seconds: float | None = -1
    with woken, readable:
        while seconds is not None:
            readable.poll(seconds)
            try:
                woken.recv(64)  # how often it was woken does not matter
            except BlockingIOError:
                pass
            sink = reference()
            seconds = sink.service() if sink is not None else None
            del sink
