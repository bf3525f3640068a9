"""Workers that die, kill themselves over an event, cannot be started or never come to life."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.values import Event, Item
from instrument.write import crew
from instrument.write.file_sink import FileSink
from instrument.write.pool import open_sink
from instrument.write.sink import Target
from tests.write.build import numbers, scalar, steps, tensor, wait_until, workers
from tests.write.conftest import OpenSink
from tests.write.pools import SMALL_RING, beside, messages, process, stopped

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool")


@pytest.mark.parametrize("count", [1, 3])
def test_killed_workers_lose_nothing(
    sink_at: OpenSink, rng: np.random.Generator, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Workers are killed at random moments: every event is in the file, once and in its place."""
    sink = sink_at(count, ring_bytes=512 << 10)
    total = 3000
    sizes = rng.choice([0, 10, 1000, 20_000], total, p=[0.7, 0.2, 0.09, 0.01]).tolist()
    moments = sorted(rng.integers(0, total, 8).tolist())
    kills: list[int] = []

    def kill() -> None:
        for moment in moments:
            wait_until(lambda: sink._feed.pool.committed_sequence >= moment)  # noqa: B023
            running = [found for index in range(count) if (found := sink._feed.crew.process(index)) is not None]
            if running:
                victim = running[int(rng.integers(len(running)))]
                victim.kill()
                kills.append(victim.pid)

    with beside(kill):
        for step, elements in enumerate(sizes):
            assert sink.write(tensor(step, elements) if elements else scalar(step))
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(total)]
    assert len(kills) >= 3
    assert (sink.stats.events, sink.stats.lost, sink.stats.pending) == (total, 0, 0)
    said = messages(caplog)
    assert len(said) <= len(set(kills))
    assert all(sink.path in message and "status -9" in message for message in said)


def test_a_killed_idle_worker_is_replaced(sink_at: OpenSink, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has to write or flush for that, and one warning says it."""
    sink = sink_at(1)
    sink.write(scalar(1))
    sink.flush()
    first = process(sink)
    first.kill()
    wait_until(lambda: sink._feed.crew.process(0) not in (first, None))
    assert len(messages(caplog)) == 1
    sink.write(scalar(2))
    sink.close()
    assert steps(sink.path) == [1, 2]


def test_signals_to_the_whole_job_leave_workers_alone(sink_at: OpenSink) -> None:
    """SIGINT, SIGTERM and SIGHUP do not end a worker: its trainer decides when it ends."""
    sink = sink_at(1)
    sink.write(scalar(1))
    sink.flush()
    worker = process(sink)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        worker.send_signal(number)
    for step in range(2, 100):
        sink.write(scalar(step))
    sink.flush()
    assert process(sink) is worker
    assert worker.poll() is None
    assert os.getsid(worker.pid) == worker.pid
    assert steps(sink.path) == list(range(1, 100))


DEADLY = """
import os, sys
class Deadly:
    def find_spec(self, name, *rest):
        if name == "instrument.codec.image":
            os._exit(7)
sys.meta_path.insert(0, Deadly())
"""


@pytest.fixture
def deadly_image(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Item:
    """A picture over which a worker dies at once: it ends where it imports what encodes pictures."""
    folder = tmp_path_factory.mktemp("deadly")
    (folder / "sitecustomize.py").write_text(DEADLY)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return Item("image", "i", np.zeros((1, 1, 2, 2), np.uint8), "uint8")


@pytest.mark.parametrize("count", [1, 3])
def test_an_event_that_ends_workers(
    sink_at: OpenSink, deadly_image: Item, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """After three workers died over it, it is given up with an error; its neighbours in the same batch are not."""
    sink = sink_at(count)
    with stopped(sink):  # all of them are in one batch
        for step in range(100):
            assert sink.write(Event.of(step, 1.0, (deadly_image,)) if step in (50, 51) else scalar(step))
    sink.close()
    assert steps(sink.path) == [step for step in range(100) if step not in (50, 51)]
    assert (sink.stats.events, sink.stats.lost, sink.stats.pending) == (98, 2, 0)
    error = sink.take_error()
    assert error is not None
    assert (error.step, error.reason) == (50, "workers die of it")
    assert len([message for message in messages(caplog) if "status 7" in message]) == 6


# ---------------------------------------------------------------------- workers that cannot be had


class NoProcess:
    """A stand-in for `Popen` that refuses while `refuses` is set."""

    def __init__(self) -> None:
        self.refuses = False
        self.calls = 0
        self._real = subprocess.Popen

    def __call__(self, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        self.calls += 1
        if self.refuses:
            raise BlockingIOError(11, "no process to be had")
        started: subprocess.Popen[bytes] = self._real(*arguments, **options)
        return started


@pytest.fixture
def popen(monkeypatch: pytest.MonkeyPatch) -> NoProcess:
    stand_in = NoProcess()
    monkeypatch.setattr(subprocess, "Popen", stand_in)
    return stand_in


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def no_descriptor(*arguments: Any, **options: Any) -> int:
    raise OSError(24, "Too many open files")


#: What is missing -> how a test takes it away.
MISSING: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "processes": lambda patch: patch.setattr(subprocess, "Popen", no_descriptor),
    "an interpreter": lambda patch: patch.setattr(sys, "executable", ""),
    "the interpreter's file": lambda patch: patch.setattr(sys, "executable", "/nowhere/python"),
    "memfd": lambda patch: patch.delattr(os, "memfd_create"),
    "eventfd": lambda patch: patch.delattr(os, "eventfd"),
    "epoll": lambda patch: patch.delattr(select, "epoll"),
    "memory": lambda patch: patch.setattr(os, "memfd_create", no_descriptor),
    "descriptors": lambda patch: patch.setattr(os, "eventfd", no_descriptor),
    "threads": lambda patch: patch.setattr(threading.Thread, "start", no_thread),
}


@pytest.mark.parametrize("what", MISSING)
def test_without_workers_this_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """One warning says so and why, everything is written, and nothing is left open."""
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        MISSING[what](patch)
        sink = open_sink(Target(str(tmp_path)), 2)
    assert isinstance(sink, FileSink)
    (said,) = messages(caplog)
    assert said.startswith("No worker can be started (")
    assert sink.path in said
    assert all(sink.write(scalar(step)) for step in range(20))
    sink.close()
    assert steps(sink.path) == list(range(20))
    assert len(os.listdir("/proc/self/fd")) == before
    assert workers(tmp_path) == []


def test_a_second_worker_that_cannot_be_started(
    sink_at: OpenSink, popen: NoProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one does it all; one warning, nothing raised, nothing lost, and no try at every event."""
    sink = sink_at(3, ring_bytes=3 * SMALL_RING)
    popen.refuses = True
    for step in range(500):
        assert sink.write(tensor(step, 100))
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(500)]
    assert popen.calls == 2
    (said,) = messages(caplog)
    assert "No further worker" in said


@pytest.mark.parametrize("count", [1, 3])
def test_a_successor_that_cannot_be_started_yet(sink_at: OpenSink, popen: NoProcess, count: int) -> None:
    """Meanwhile events wait in the ring; later one worker, and only one, takes it over. Nothing is lost or doubled."""
    sink = sink_at(count)
    sink.write(scalar(0))
    sink.flush()
    popen.refuses = True
    process(sink).kill()
    wait_until(lambda: popen.calls >= 3)
    assert all(sink.write(tensor(step, 1000)) for step in range(1, 500))
    assert sink.stats.pending == 499
    popen.refuses = False
    wait_until(lambda: sink.stats.pending == 0)  # without a flush: the watching thread looks again
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(500)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter times in the crew, so that giving up can be seen."""
    monkeypatch.setattr(crew, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(crew, "_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(crew, "_RARE_RETRY_SECONDS", 1.0)


@pytest.mark.usefixtures("impatient")
def test_workers_that_never_come_to_life(
    sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where each ends at its start, training is held for a moment once, not at each event; `close` comes back."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        sink = sink_at(1, ring_bytes=SMALL_RING)
        answers = [sink.write(tensor(step, 100)) for step in range(300)]
        assert answers.index(False) > 50
        assert not any(answers[answers.index(False) :])
        started = time.monotonic()
        sink.close()
        assert time.monotonic() - started < 5
    stats = sink.stats
    assert (stats.events, stats.pending, stats.lost) == (0, 0, 300)
    assert stats.errors > 0
    said = messages(caplog)
    assert len([message for message in said if "status 1" in message]) == 1
    # At an event, at the end, and how many there were.
    assert len([message for message in said if "no worker can be started" in message]) == 3
    assert steps(sink.path) == []


@pytest.mark.usefixtures("impatient")
def test_workers_that_come_to_life_again(
    sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Given up is not for ever: when workers can be had again, what waits in the ring is written."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        sink = sink_at(1, ring_bytes=SMALL_RING)
        answers = [sink.write(tensor(step, 100)) for step in range(300)]
    taken = [step for step in range(300) if answers[step]]
    assert len(taken) < 300
    wait_until(lambda: sink.stats.pending == 0)
    assert sink.write(scalar(1000))
    sink.close()
    assert steps(sink.path) == [*taken, 1000]


def test_the_working_directory_is_not_imported_from(
    sink_at: OpenSink, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file there that is named like a module of the standard library, or like ours, does not reach the workers."""
    folder = tmp_path_factory.mktemp("cwd")
    for name in ("json", "struct", "socket", "instrument"):
        (folder / f"{name}.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(folder)
    sink = sink_at(1)
    first = process(sink)
    sink.write(scalar(1))
    sink.flush()
    assert process(sink) is first
    assert steps(sink.path) == [1]
