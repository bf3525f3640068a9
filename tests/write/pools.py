"""A pool's insides, and workers that stand still: what tests of the pool share."""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from instrument.processes import Process
from instrument.write.pool import PoolSink
from instrument.write.ring import Ring
from tests.write.build import wait_until

SMALL_RING = 64 << 10


def process(sink: PoolSink, index: int = 0) -> Process:
    """Return worker `index`, or its successor if it has just died."""
    supervisor = sink._producer.supervisor
    wait_until(lambda: supervisor.process(index) is not None)
    found = supervisor.process(index)
    assert found is not None
    return found


def ring(sink: PoolSink, index: int = 0) -> Ring:
    return sink._producer.pool.rings[index]


@contextmanager
def stopped(sink: PoolSink, index: int = 0) -> Iterator[Callable[[], None]]:
    """Worker `index` stands still until the end of the block, or until what is yielded is called."""
    worker = process(sink, index)
    go_on = functools.partial(worker.send_signal, signal.SIGCONT)
    in_any_case = threading.Timer(20, go_on)  # a test that waits in vain shall fail, not hang
    in_any_case.start()
    worker.send_signal(signal.SIGSTOP)
    try:
        yield go_on
    finally:
        in_any_case.cancel()
        go_on()


@contextmanager
def beside(function: Callable[[], None]) -> Iterator[None]:
    """Run a function in a thread beside the block, and fail where it fails."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  the main thread says it
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(30)
    assert not thread.is_alive()
    assert failed == []


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


@contextmanager
def handler(function: Callable[[], object]) -> Iterator[None]:
    """What SIGUSR1 does in this process during the block."""
    old = signal.signal(signal.SIGUSR1, lambda number, frame: function())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, old)


def signal_when(is_true: Callable[[], bool]) -> Any:
    """Send SIGUSR1 to the main thread when the condition holds."""

    def send() -> None:
        wait_until(is_true)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    return beside(send)


def is_waiting() -> bool:
    """True while the main thread waits for room: for a worker, or for all that is not committed."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_name != "_wait_for_room":
        frame = frame.f_back
    return frame is not None
