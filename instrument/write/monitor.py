"""Monitor thread: sleep until a worker's socket becomes readable, then have its sink look after the workers."""

from __future__ import annotations

import select
import socket
import threading
import weakref
from typing import Protocol


class Monitored(Protocol):
    """A sink with workers, as seen from here."""

    def look_after(self) -> float | None:
        """Receive reports and replace workers.

        Return the seconds until the next call (-1: when a worker is heard), or None at the end.
        """


def start(sink: Monitored, readable: select.epoll, end: socket.socket) -> threading.Thread:
    """Start the monitor of a sink; it ends when the sink is closed or garbage, and closes both descriptors.

    `readable` becomes readable when there is something to do. `end` is in it, and wakes the thread in other cases.

    Raises:
        RuntimeError: no thread can be started.
    """
    arguments = (weakref.ref(sink), readable, end)
    thread = threading.Thread(target=_run, args=arguments, name="instrument-monitor", daemon=True)
    thread.start()
    return thread


def _run(reference: weakref.ref[Monitored], readable: select.epoll, end: socket.socket) -> None:
    seconds: float | None = -1
    with end, readable:
        while seconds is not None:
            readable.poll(seconds)
            try:
                end.recv(64)  # how often it was woken does not matter
            except BlockingIOError:
                pass
            sink = reference()
            seconds = sink.look_after() if sink is not None else None
            del sink
