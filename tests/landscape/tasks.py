"""Tasks for workers. Nothing here needs MindSpore, so that a worker which imports this module is ready at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        threading.Event().wait(0.02)


def end_once(path: str) -> int:
    """End this process the first time; answer afterwards."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return os.getpid()
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def end_always() -> None:
    os._exit(3)


def fail() -> None:
    raise ValueError("no such thing")


class Unpicklable(Exception):
    """Holds what cannot be sent."""

    def __init__(self) -> None:
        super().__init__("only here")
        self.lock = threading.Lock()


def fail_oddly() -> None:
    raise Unpicklable


def leave() -> None:
    """Close the socket, and live on."""
    os.closerange(3, 4096)
    time.sleep(1000)


def meet(folder: Path) -> int:
    """Wait until another process does the same."""
    mine = folder / str(os.getpid())
    mine.touch()
    try:
        wait_for(lambda: len(list(folder.iterdir())) == 2, 50)
        threading.Event().wait(0.2)
    finally:
        mine.unlink()
    return os.getpid()
