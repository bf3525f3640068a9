"""Who looks after a pool that nobody calls: a thread that sleeps until workers say something."""

from __future__ import annotations

import select
import socket
import threading
import weakref
from typing import Protocol


class Watched(Protocol):
    """A pool's sink, as seen from here."""

    def watch_once(self) -> float | None:
        """Hear and replace workers. In how many seconds to look again (-1: when one is heard); None at the end."""


def start(sink: Watched, watched: select.epoll, end: socket.socket) -> threading.Thread:
    """Watch a sink from now on, until it says that it is over or is no more; both descriptors are closed then.

    `watched` becomes readable when there is something to look after. `end` is in it, and is told so in other cases.

    Raises:
        RuntimeError: no thread can be started.
    """
    arguments = (weakref.ref(sink), watched, end)
    thread = threading.Thread(target=_watch, args=arguments, name="instrument-watch", daemon=True)
    thread.start()
    return thread


def _watch(sink: weakref.ref[Watched], watched: select.epoll, end: socket.socket) -> None:
    seconds: float | None = -1
    with end, watched:
        while seconds is not None:
            watched.poll(seconds)
            try:
                end.recv(64)  # how often it was told does not matter
            except BlockingIOError:
                pass
            alive = sink()
            seconds = alive.watch_once() if alive is not None else None
            del alive
