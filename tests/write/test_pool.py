"""What the pool adds: stalled, stopped, killed and missing workers, records larger than the rings, signal handlers."""

from __future__ import annotations

import functools
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from instrument.values import Event, Item
from instrument.write import crew, message
from instrument.write.pool import PoolSink, open_sink
from instrument.write.ring import Ring, chunks
from instrument.write.sink import FileSink, Target
from tests.write.build import numbers, records, scalar, steps, tensor, wait_until, workers
from tests.write.conftest import OpenSink

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool")

SMALL_RING = 64 << 10


def process(sink: PoolSink, index: int = 0) -> subprocess.Popen[bytes]:
    """Worker `index` as it is now."""
    found = sink._crew.process(index)
    assert found is not None
    return found


def ring(sink: PoolSink, index: int = 0) -> Ring:
    return sink._pool.rings[index]


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


# ---------------------------------------------------------------------- back-pressure


def test_a_full_ring_drops_when_asked_to(sink_at: OpenSink) -> None:
    """Events that found no room are answered False and counted; what was answered True is in the file."""
    sink = sink_at(1, ring_bytes=SMALL_RING, drop_when_full=True)
    with stopped(sink):
        answers = [sink.write(tensor(step, 100)) for step in range(200)]
        taken = [step for step in range(200) if answers[step]]
        assert taken == list(range(len(taken)))  # nothing gave room back
        assert 50 < len(taken) < 150
        assert sink.stats.dropped == 200 - len(taken)
    wait_until(lambda: ring(sink).tail == ring(sink).head)
    assert sink.write(tensor(200, 100))
    sink.close()
    assert steps(sink.path) == [*taken, 200]
    stats = sink.stats
    assert (stats.events, stats.dropped, stats.lost, stats.stalled_seconds) == (len(taken) + 1, 200 - len(taken), 0, 0)


def test_a_full_ring_makes_write_wait(sink_at: OpenSink) -> None:
    """By default an event waits for room; the time counts as stalled, and nothing is lost."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    waiting = threading.Event()

    def release() -> None:
        wait_until(lambda: ring(sink).capacity_bytes - (ring(sink).head - ring(sink).tail) < 1000)
        waiting.set()
        go_on()

    with stopped(sink) as go_on, beside(release):
        assert all(sink.write(tensor(step, 100)) for step in range(200))
    assert waiting.is_set()
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(200)]
    assert sink.stats.stalled_seconds > 0
    assert sink.stats.dropped == 0


def test_the_time_is_that_of_the_call(sink_at: OpenSink) -> None:
    """However long the worker stands still, an event has the time at which it was made, to the bit."""
    sink = sink_at(1)
    with stopped(sink):
        events = [scalar(step) for step in range(20)]
        for event in events:
            sink.write(event)
        made = time.time()
        select.select([], [], [], 0.05)
    sink.close()
    found = records(sink.path)
    assert [record.wall_time for record in found] == [event.wall_time for event in events]
    assert max(record.wall_time for record in found) <= made


def test_further_workers_start_when_one_is_busy(sink_at: OpenSink, tmp_path: Path) -> None:
    """One worker serves a light load; others start when its ring fills, and what they encode waits for its turn."""
    sink = sink_at(3, ring_bytes=3 * SMALL_RING)
    for step in range(50):
        sink.write(scalar(step))
        sink.flush()
    assert len(workers(tmp_path)) == 1
    with stopped(sink):
        for step in range(50, 200):
            assert sink.write(tensor(step, 100))
        assert len(workers(tmp_path)) == 3
        assert sink._pool.committed_sequence == 50
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(200)]


def test_more_workers_than_there_can_be(sink_at: OpenSink) -> None:
    """Any number of workers may be asked for."""
    sink = sink_at(1000, ring_bytes=1 << 20)
    for step in range(10):
        assert sink.write(scalar(step))
    sink.close()
    assert steps(sink.path) == list(range(10))


def test_an_idle_pool_sleeps(sink_at: OpenSink) -> None:
    """With nothing to write, neither the worker nor the watching thread runs at all."""
    sink = sink_at(1)
    sink.write(scalar(1))
    sink.flush()
    worker = psutil.Process(process(sink).pid)
    (watcher,) = [thread for thread in threading.enumerate() if thread.name == "instrument-watch"]

    def used() -> tuple[float, int, float]:
        times = worker.cpu_times()
        (own,) = [thread for thread in psutil.Process().threads() if thread.id == watcher.native_id]
        return times.user + times.system, worker.num_ctx_switches().voluntary, own.user_time + own.system_time

    def change_in(seconds: float) -> bool:
        before = used()
        assert select.select([unused], [], [], seconds) == ([], [], [])
        return used() != before

    unused, other_end = os.pipe()
    wait_until(lambda: not change_in(0.1))  # it looks a few times more before it falls asleep
    assert not change_in(1.0)
    os.close(unused)
    os.close(other_end)


# ---------------------------------------------------------------------- records larger than the rings


@pytest.mark.parametrize("count", [1, 3])
def test_a_record_larger_than_the_ring(sink_at: OpenSink, count: int) -> None:
    """8 MB pass through a ring of 1 MiB; events before and behind keep their place."""
    sink = sink_at(count, ring_bytes=1 << 20)
    expected = []
    for step in range(0, 30, 10):
        for event in (scalar(step), tensor(step + 1, 2_000_000), tensor(step + 2, 100_000), scalar(step + 3)):
            assert sink.write(event)
            expected.append((event.step, float(event.step)))
    sink.close()
    assert numbers(sink.path) == expected
    assert sink.stats.stalled_seconds > 0


@pytest.mark.parametrize("count", [1, 3])
def test_a_large_record_while_workers_die(sink_at: OpenSink, rng: np.random.Generator, count: int) -> None:
    """The worker is killed while the record passes, several times: it is there once and whole."""
    sink = sink_at(count, ring_bytes=1 << 20)
    moments = rng.integers(1, 8_000_000, 5).tolist()
    kills: list[int] = []

    def kill() -> None:
        for moment in moments:
            worker = process(sink)
            start = ring(sink).tail
            wait_until(lambda: ring(sink).tail - start > moment or sink._pool.committed_sequence > 1)  # noqa: B023
            if sink._pool.committed_sequence > 1:
                return
            worker.kill()
            kills.append(worker.pid)
            worker_is_replaced = functools.partial(lambda old: sink._crew.process(0) not in (old, None), worker)
            wait_until(worker_is_replaced)

    sink.write(scalar(0))
    sink.flush()
    with beside(kill):
        assert sink.write(tensor(1, 2_000_000))
        assert sink.write(scalar(2))
    sink.close()
    assert numbers(sink.path) == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert kills
    assert sink.stats.lost == 0


# ---------------------------------------------------------------------- workers that die


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
            wait_until(lambda: sink._pool.committed_sequence >= moment)  # noqa: B023
            running = [found for index in range(count) if (found := sink._crew.process(index)) is not None]
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
    wait_until(lambda: sink._crew.process(0) not in (first, None))
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


@pytest.fixture
def deadly_image(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Item:
    """A picture over which a worker dies at once: the Pillow that workers find here ends them."""
    folder = tmp_path_factory.mktemp("fake")
    (folder / "PIL").mkdir()
    (folder / "PIL" / "__init__.py").write_text("import os\nos._exit(7)\n")
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
            assert sink.write(Event(step, 1.0, (deadly_image,)) if step in (50, 51) else scalar(step))
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
    taken = sum(answers)
    stats = sink.stats
    assert (stats.events, stats.pending, stats.lost) == (0, taken, 300 - taken)
    assert stats.errors > 0
    said = messages(caplog)
    assert len([message for message in said if "status 1" in message]) == 1
    assert len([message for message in said if "no worker can be started" in message]) == 2  # at an event, at the end
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


# ---------------------------------------------------------------------- signal handlers and interrupts


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


def is_full(sink: PoolSink, need: int) -> Callable[[], bool]:
    """Whether ring 0 has less room than `need`: who writes so much waits."""
    first = ring(sink)
    return lambda: first.capacity_bytes - (first.head - first.tail) < need


def test_recording_in_a_signal_handler(sink_at: OpenSink, caplog: pytest.LogCaptureFixture) -> None:
    """Inside a `write` it is refused with an error, and outside it is an event like any other; nothing else suffers."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    answers: list[bool] = []

    def record() -> None:
        answers.append(sink.write(scalar(1000)))
        go_on()

    with stopped(sink) as go_on, handler(record):
        with signal_when(is_full(sink, 1000)):
            assert all(sink.write(tensor(step, 100)) for step in range(200))
        assert answers == [False]
        os.kill(os.getpid(), signal.SIGUSR1)
    assert answers == [False, True]
    assert sink.write(scalar(201))
    sink.close()
    assert steps(sink.path) == [*range(200), 1000, 201]
    assert (sink.stats.lost, sink.stats.pending) == (1, 0)
    (said,) = messages(caplog)
    assert "signal handler" in said
    assert "step 1000" in said


@pytest.mark.parametrize("elements", [100, 40_000])
def test_flushing_in_a_signal_handler(sink_at: OpenSink, elements: int) -> None:
    """Inside a `write`, of a record in one piece or in several, it returns when everything before is readable."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    found: list[list[int]] = []

    def flush() -> None:
        go_on()
        sink.flush()
        found.append(steps(sink.path))

    need = 1000 if elements == 100 else SMALL_RING // 4 + 64
    with stopped(sink) as go_on, handler(flush), signal_when(is_full(sink, need)):
        assert all(sink.write(tensor(step, 100 if step < 20 else elements)) for step in range(200))
    sink.close()
    (at_flush,) = found
    assert len(at_flush) >= 20
    assert at_flush == list(range(len(at_flush)))
    assert steps(sink.path) == list(range(200))


@pytest.mark.parametrize("elements", [100, 40_000])
@pytest.mark.parametrize("leaves", [False, True])
def test_closing_in_a_signal_handler(sink_at: OpenSink, elements: int, leaves: bool) -> None:
    """Inside a `write`: what came before is in the file, the one in progress was answered False or never answered."""
    sink = sink_at(1, ring_bytes=SMALL_RING)

    def close() -> None:
        go_on()
        sink.close()
        if leaves:
            raise SystemExit(3)

    answers: list[bool] = []
    need = 1000 if elements == 100 else SMALL_RING // 4 + 64
    with stopped(sink) as go_on, handler(close), signal_when(is_full(sink, need)):
        try:
            for step in range(200):
                answers.append(sink.write(tensor(step, 100 if step < 20 else elements)))
        except SystemExit:
            assert leaves
    assert sum(answers) < 200
    assert len(answers) == 200 or leaves
    taken = [step for step, answer in enumerate(answers) if answer]
    assert steps(sink.path) == taken
    assert sink.stats.pending == 0


@pytest.mark.parametrize("outer", ["flush", "close"])
@pytest.mark.parametrize("inner", ["flush", "close", "write"])
def test_a_signal_handler_inside_a_flush_or_close(sink_at: OpenSink, outer: str, inner: str) -> None:
    """Whatever it calls works, and the outer call returns at once when it is over."""
    sink = sink_at(1)
    calls = {"flush": sink.flush, "close": sink.close, "write": lambda: sink.write(scalar(100))}

    def call() -> None:
        go_on()
        calls[inner]()

    with stopped(sink) as go_on, handler(call):
        for step in range(100):
            sink.write(scalar(step))
        started = time.monotonic()
        with signal_when(lambda: sink._depth == 1):
            calls[outer]()
        assert time.monotonic() - started < 5
    sink.close()
    assert steps(sink.path) == list(range(101 if inner == "write" else 100))
    assert sink.stats.pending == 0


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("elements", "room"), [(100, 1000), (40_000, 32_832)], ids=["one piece", "chunks"])
def test_an_interrupt_while_write_waits_for_room(sink_at: OpenSink, elements: int, room: int) -> None:
    """An exception out of a blocked `write` leaves no gap and nothing of its event."""
    sink = sink_at(1, ring_bytes=128 << 10)
    written = []
    with stopped(sink) as go_on, handler(interrupt):
        with signal_when(is_full(sink, room)), pytest.raises(KeyboardInterrupt):  # noqa: PT012
            for step in range(400):
                assert sink.write(tensor(step, 100 if step == 0 else elements))
                written.append(step)
        assert sink.stats.pending == len(written)
        timer = threading.Timer(0.1, go_on)
        timer.start()
        assert sink.write(tensor(1000, elements))
        timer.join()
    for step in range(1001, 1050):
        assert sink.write(scalar(step))
    sink.close()
    assert steps(sink.path) == [*written, *range(1000, 1050)]
    assert sink.stats.pending == 0


@pytest.mark.parametrize("dies", [False, True])
def test_an_interrupt_while_a_large_record_is_encoded(sink_at: OpenSink, dies: bool) -> None:
    """All of it has been sent: it is in the file, unless its worker dies of all moments then; no gap either way."""
    sink = sink_at(1, ring_bytes=256 << 10)
    sink.write(scalar(0))
    sink.flush()
    wait_until(lambda: ring(sink).tail == ring(sink).head)
    event = Event(1, 1.0, (Item("histogram", "h", np.linspace(0.0, 1.0, 1_000_000), "float64"),))
    end = ring(sink).head
    for view, _ in chunks(message.pack(event, ""), (256 << 10) // 4):
        need = 64 + len(view) + -len(view) % 64
        before_end = ring(sink).capacity_bytes - end % ring(sink).capacity_bytes
        end += need + (before_end if before_end < need else 0)
    with handler(interrupt), signal_when(lambda: ring(sink).head == end), pytest.raises(KeyboardInterrupt):
        sink.write(event)
    if dies:
        process(sink).kill()
    for step in range(2, 50):
        assert sink.write(scalar(step))
    sink.close()
    found = steps(sink.path)
    assert found in ([0, *range(2, 50)], list(range(50)))
    assert dies or found == list(range(50))
    assert sink.stats.pending == 0
