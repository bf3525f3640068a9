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

from instrument import processes
from instrument.values import ArrayItem, Event, Item
from instrument.write import producer, supervisor
from instrument.write.factory import open_sink
from instrument.write.file_sink import FileSink
from instrument.write.sink import Target
from tests.write.build import gaps, numbers, scalar, steps, tensor, wait_until, workers
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
            wait_until(lambda: sink._producer.pool.committed_sequence >= moment)  # noqa: B023
            running = [
                found for index in range(count) if (found := sink._producer.supervisor.process(index)) is not None
            ]
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
    said = [message for message in messages(caplog) if "is written more slowly" not in message]
    assert len(said) <= len(set(kills))
    assert all(sink.path in message and "ended unexpectedly" in message for message in said)


def test_a_killed_idle_worker_is_replaced(sink_at: OpenSink, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has to write or flush for that, and one warning says it."""
    sink = sink_at(1)
    sink.write(scalar(1))
    sink.flush()
    first = process(sink)
    first.kill()
    wait_until(lambda: sink._producer.supervisor.process(0) not in (first, None))
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
    assert worker.is_alive
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
def deadly_image(monkeypatch: pytest.MonkeyPatch) -> Item:
    """A picture over which a worker dies at once: it ends where it imports what encodes pictures."""
    monkeypatch.setattr(processes, "_BOOTSTRAP", DEADLY + processes._BOOTSTRAP)
    return ArrayItem("image", "i", np.zeros((1, 1, 2, 2), np.uint8), "uint8")


@pytest.mark.parametrize("count", [1, 3])
def test_an_event_that_ends_workers(
    sink_at: OpenSink, deadly_image: Item, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """After twenty workers died over it, it is left out with an error; its neighbours in the same batch are not."""
    sink = sink_at(count)
    with stopped(sink):  # all of them are in one batch
        for step in range(100):
            assert sink.write(Event.of(step, 1.0, (deadly_image,)) if step in (50, 51) else scalar(step))
    sink.close()
    assert steps(sink.path) == [step for step in range(100) if step not in (50, 51)]
    assert [gap.first_step for gap in gaps(sink.path)] == [50, 51]
    assert (sink.stats.events, sink.stats.lost, sink.stats.pending) == (98, 2, 0)
    error = sink.take_error()
    assert error is not None
    assert (error.step, error.reason) == (50, "workers die of it")


def test_a_worker_is_killed_often_over_a_record(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is not the record's fault: the next one writes it."""
    deaths = 0
    sink = sink_at(1)
    assert sink.write(scalar(0))
    sink.flush()
    slow = "import os, time; real = os.pwritev; os.pwritev = lambda *a: (time.sleep(0.1), real(*a))[1]\n"
    monkeypatch.setattr(processes, "_BOOTSTRAP", slow + processes._BOOTSTRAP)
    pool = sink._producer.pool
    process(sink).kill()
    assert sink.write(scalar(1))
    while deaths < 12:
        wait_until(lambda: pool.is_busy or pool.committed_sequence > 1)
        assert pool.committed_sequence == 1
        worker = process(sink)
        worker.kill()
        deaths += 1
        wait_until(lambda: sink._producer.supervisor.process(0) not in (worker, None))  # noqa: B023
    sink.close()
    assert steps(sink.path) == [0, 1]
    assert (sink.stats.lost, gaps(sink.path)) == (0, [])


# ---------------------------------------------------------------------- workers that never come


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
    "an interpreter": lambda patch: patch.setattr(processes, "interpreters", list),
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
    """Shorter times in the supervisor, so that the end of its patience can be seen; a worker has all its time."""
    monkeypatch.setattr(supervisor, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(supervisor, "_RETRY_SECONDS", 0.02)


def program(folder: Path, name: str, code: str) -> str:
    """A program that is no Python, whatever its name says, and counts its starts in a file beside it."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho start >> {folder}/starts\n{code}\n")
    path.chmod(0o755)
    return str(path)


def start_count(folder: Path) -> int:
    starts = folder / "starts"
    return len(starts.read_text().splitlines()) if starts.exists() else 0


#: What an interpreter that is none does, and how often it may be started.
PROGRAMS = {"ends": ("exit 0", 12), "fails": ("exit 1", 12), "stays": ("exec sleep 60", 1), "dies": ("kill -9 $$", 12)}


@pytest.mark.alone
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("count", [1, 3])
def test_programs_that_are_no_interpreter(
    sink_at: OpenSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    kind: str, count: int,
) -> None:  # fmt: skip
    """The training process writes what waits, and goes on writing; one warning, nothing lost, few starts."""
    code, most_starts = PROGRAMS[kind]
    path = program(tmp_path, "python", code)
    monkeypatch.setattr(supervisor, "_READY_SECONDS", 0.5)
    monkeypatch.setattr(processes, "interpreters", lambda: [path])
    sink = sink_at(count, ring_bytes=count * SMALL_RING, directory=tmp_path / "run")
    assert all(sink.write(tensor(step, 100)) for step in range(300))
    assert sink.write(tensor(300, 100_000))  # larger than the ring
    sink.flush()
    assert steps(sink.path) == list(range(301))
    assert all(sink.write(scalar(step)) for step in range(301, 400))
    assert steps(sink.path) == list(range(400))
    started = time.monotonic()
    sink.close()
    assert time.monotonic() - started < 5
    assert steps(sink.path) == list(range(400))
    assert (sink.stats.events, sink.stats.pending, sink.stats.lost) == (400, 0, 0)
    assert start_count(tmp_path) <= most_starts * count
    (message,) = messages(caplog)
    assert message.startswith(f"No worker process writes {sink.path} any more ({path} ")


@pytest.mark.usefixtures("impatient")
def test_the_next_interpreter(
    sink_at: OpenSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the first is none, the second is started, and nobody needs to be told."""
    path, real = program(tmp_path, "python", "exec sleep 60"), processes.interpreters()
    monkeypatch.setattr(supervisor, "_READY_SECONDS", 0.5)
    monkeypatch.setattr(processes, "interpreters", lambda: [path, *real])
    sink = sink_at(1, directory=tmp_path / "run")
    assert sink.write(scalar(0))
    monkeypatch.setattr(supervisor, "_READY_SECONDS", 20.0)
    sink.flush()
    assert process(sink).is_alive
    assert sink.write(scalar(1))
    sink.close()
    assert steps(sink.path) == [0, 1]
    assert start_count(tmp_path) == 1
    assert messages(caplog) == []


def test_what_may_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedding program, a frozen application and files that are not there are no interpreters."""
    real = processes.interpreters()
    assert real[0] == sys.executable
    for name in ("uwsgi", "app", "blender"):
        monkeypatch.setattr(sys, "executable", program(tmp_path, name, "exit 0"))
        assert sys.executable not in processes.interpreters()
        assert [os.path.realpath(path) for path in processes.interpreters()] == [os.path.realpath(real[0])]
    for value in ("", None, "/nowhere/python", "python"):
        monkeypatch.setattr(sys, "executable", value)
        assert value not in processes.interpreters()
    mine = program(tmp_path, "python3.11", "exit 0")
    monkeypatch.setattr(sys, "executable", mine)
    assert processes.interpreters()[0] == mine
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert mine not in processes.interpreters()


def test_a_program_that_starts_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for an interpreter, it records nothing, and starts no process of its own."""
    monkeypatch.setenv(processes.MARK, "1234")
    with pytest.raises(RuntimeError, match="started as a Python interpreter by process 1234"):
        open_sink(Target(str(tmp_path / "run")), 1)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("impatient")
def test_no_process_for_long(sink_at: OpenSink, popen: NoProcess, caplog: pytest.LogCaptureFixture) -> None:
    """A worker dies, and the system gives no other: after a while the training process writes, without a call."""
    sink = sink_at(1)
    sink.write(scalar(0))
    sink.flush()
    popen.refuses = True
    process(sink).kill()
    assert all(sink.write(scalar(step)) for step in range(1, 100))
    wait_until(lambda: sink.stats.pending == 0)
    assert all(sink.write(scalar(step)) for step in range(100, 200))
    sink.close()
    assert steps(sink.path) == list(range(200))
    assert sink.stats.lost == 0
    assert [message for message in messages(caplog) if "no process to be had" in message]


def test_workers_that_end_again_and_again(
    sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ready, each ends before it commits anything: at most forty are started, and nothing is lost."""
    ends = "import instrument.write.worker as w; w.Worker._work = lambda self: w.os._exit(5)\n"
    start = "importlib.import_module(module)"
    monkeypatch.setattr(processes, "_BOOTSTRAP", processes._BOOTSTRAP.replace(start, f"{ends}{start}"))
    sink = sink_at(1)
    assert all(sink.write(scalar(step)) for step in range(100))
    sink.flush()
    assert steps(sink.path) == list(range(100))
    assert sink._producer.supervisor._starts <= 40
    sink.close()
    assert (sink.stats.events, sink.stats.lost) == (100, 0)
    assert [message for message in messages(caplog) if "(workers end again and again)" in message]


def test_there_is_a_bound_of_starts(
    sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However much the workers write between their deaths."""
    monkeypatch.setattr(supervisor, "MOST_STARTS", 4)
    sink = sink_at(1)
    for step in range(6):
        assert sink.write(scalar(step))
        sink.flush()
        if sink._producer.drain is None:
            process(sink).kill()
    assert sink._producer.supervisor._starts == 4
    sink.close()
    assert steps(sink.path) == list(range(6))
    assert [message for message in messages(caplog) if "4 workers were started and ended" in message]


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


def test_a_worker_that_hangs(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lives and commits nothing: whoever waits kills it after a while, and its successor goes on."""
    monkeypatch.setattr(producer, "_HANGING_SECONDS", 3.0)
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.write(scalar(0))
    sink.flush()
    first = process(sink)
    first.send_signal(signal.SIGSTOP)
    for step in range(1, 400):
        assert sink.write(tensor(step, 100))
    sink.flush()
    assert process(sink) is not first
    process(sink).send_signal(signal.SIGSTOP)
    assert sink.write(scalar(400))
    sink.close()
    assert steps(sink.path) == list(range(401))
    assert sink.stats.lost == 0
