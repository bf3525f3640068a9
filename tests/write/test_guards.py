"""Calls that come at a bad moment: inside another call, from a logging handler, in a process with an odd `sys.path`."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.codec import event, wire
from instrument.ringfile.commit import Committer
from instrument.values import ArrayItem, Event, MessageItem
from instrument.write.limits import item_bound_bytes
from instrument.write.supervisor import Supervisor
from tests.write.build import gaps, scalar, steps, tensor
from tests.write.conftest import OpenSink
from tests.write.pools import process


def test_a_write_inside_a_write_without_workers(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler may call it: refused and counted, and the outer one is in the file."""
    sink = sink_at(0)
    answers: list[bool] = []
    apply = Committer.apply

    def interrupted(self: Committer, *arguments: Any) -> Any:
        monkeypatch.setattr(Committer, "apply", apply)
        answers.append(sink.write(scalar(99)))
        return apply(self, *arguments)

    monkeypatch.setattr(Committer, "apply", interrupted)
    assert sink.write(scalar(1))
    assert sink.write(scalar(2))
    assert answers == [False]
    assert steps(sink.path) == [1, 2]
    assert sink.stats.lost == 1


def test_a_close_inside_a_write_without_workers(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event in progress is written, and nothing is left open."""
    before = len(os.listdir("/proc/self/fd"))
    sink = sink_at(0)
    assert sink.write(scalar(0))
    apply = Committer.apply

    def interrupted(self: Committer, *arguments: Any) -> Any:
        sink.close()
        return apply(self, *arguments)

    monkeypatch.setattr(Committer, "apply", interrupted)
    assert sink.write(scalar(1))
    assert not sink.write(scalar(2))
    assert steps(sink.path) == [0, 1]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_logging_handler_that_records(sink_at: OpenSink) -> None:
    """Workers die and the log says so, to a handler that records it, while the main thread logs and records too."""
    sink = sink_at(1)
    answers: list[bool] = []

    class Recording(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            answers.append(sink.write(scalar(record.lineno, tag="log")))

    handler, log = Recording(), logging.getLogger("instrument")
    log.addHandler(handler)
    done = threading.Event()

    def run() -> None:
        for step in range(200):
            if step % 50 == 0:
                sink.flush()
                os.kill(sink._producer.supervisor._workers[0].process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
            log.warning("step %d", step)
            sink.write(scalar(step))
        sink.flush()
        done.set()

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
        assert done.wait(60)
    finally:
        log.removeHandler(handler)
    assert len(answers) > 200
    assert all(answers)


def test_no_thread_makes_memory_ready(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started any more, large records are taken all the same."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sink = sink_at(1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert sink.write(tensor(1, 1_000_000))
    sink.close()
    assert steps(sink.path) == [1]


def test_an_odd_path_of_modules(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that Python itself passes over do no harm to workers."""
    monkeypatch.setattr(sys, "path", [*sys.path, None, b"bytes", 3, "nul\0"])
    sink = sink_at(1)
    assert sink.write(scalar(1))
    sink.flush()
    assert steps(sink.path) == [1]


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (9, 3, 1, 1), (4000, 1, 100, 1), (3, 1, 1, 500), (17, 3, 31, 29)], ids=str
)
def test_no_picture_is_larger_than_its_bound(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    """Noise, which no compression shrinks, of every proportion."""
    item = ArrayItem("image", "noise", rng.integers(0, 256, shape).astype(np.uint8))
    (payload,) = event.encode(Event.of(1, 1.0, (item,)))
    assert wire.size(payload) <= item_bound_bytes(item) + 256


def test_a_fork_while_a_lock_is_held(sink_at: OpenSink, tmp_path: Path) -> None:
    """A child forked while another thread writes can close, though nobody there will ever give the lock back."""
    sink = sink_at(0)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with sink._lock:  # type: ignore[attr-defined]
            held.set()
            release.wait(60)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        sink.close()
        os._exit(0 if not sink.write(scalar(1)) else 1)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_while_workers_end(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that another thread forks in the middle of `close` waits for no lock either."""
    sink = sink_at(1)
    end, answers = Supervisor.end, []

    def fork_and_end(self: Supervisor) -> bool:
        thread = threading.Thread(target=lambda: answers.append(in_a_fork(lambda: sink.stats.events == 0)))
        thread.start()
        thread.join()
        return end(self)

    monkeypatch.setattr(Supervisor, "end", fork_and_end)
    assert sink.write(scalar(1))
    sink.close()
    assert answers == [True]
    assert steps(sink.path) == [1]


def in_a_fork(is_true: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if is_true() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_last_words_of_a_worker(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker says of the last events, when nobody waits for these any more, is heard."""
    sink = sink_at(1)
    monkeypatch.setattr(sink, "_flush_rings", lambda is_end: None)
    sink.write(Event(7, 1.0, (MessageItem("no kind", "t", b""),)))
    sink.close()
    error = sink.take_error()
    assert error is not None
    assert (error.kind, error.step) == ("lost", 7)
    assert (sink.stats.lost, sink.stats.pending) == (1, 0)


def test_a_close_inside_a_write_says_what_is_missing(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without workers it is the outer call that does, at its end."""
    sink = sink_at(0)
    assert sink.write(scalar(0))
    apply = Committer.apply

    def close_and_fail(self: Committer, *arguments: Any) -> Any:
        sink.close()
        monkeypatch.setattr(Committer, "apply", apply)
        raise OSError(errno.ENOSPC, "no")

    monkeypatch.setattr(Committer, "apply", close_and_fail)
    assert not sink.write(scalar(1))
    assert steps(sink.path) == [0]
    assert [(gap.events, gap.first_step) for gap in gaps(sink.path)] == [(1, 1)]


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="this system has no scheduling classes")
def test_workers_give_way_to_training(sink_at: OpenSink) -> None:
    """They do not take a processor away from whom they are woken by, and get little of one that is busy."""
    sink = sink_at(1)
    assert sink.write(scalar(0))
    sink.flush()
    worker = process(sink).pid
    assert os.sched_getscheduler(worker) == os.SCHED_BATCH
    assert os.getpriority(os.PRIO_PROCESS, worker) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    sink.close()
