"""Signal handlers that call the sink in the middle of a call, and interrupts: no gap, no half event, no deadlock."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from instrument.codec import outline
from instrument.eventfile.blocks import EventFileReader
from instrument.write.supervisor import Supervisor
from tests.write.build import scalar, steps, tensor, wait_for_workers_to_end
from tests.write.conftest import OpenSink
from tests.write.pools import SMALL_RING, handler, is_waiting, messages, signal_when, stopped

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool")


def test_recording_in_a_signal_handler(sink_at: OpenSink, caplog: pytest.LogCaptureFixture) -> None:
    """Inside a `write` it is refused with an error, and outside it is an event like any other; nothing else suffers."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    answers: list[bool] = []

    def record() -> None:
        answers.append(sink.write(scalar(1000)))
        go_on()

    with stopped(sink) as go_on, handler(record):
        with signal_when(is_waiting):
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


def steps_so_far(path: str) -> list[int]:
    """Those of whole frames; an event that is larger than the ring is on its way into the file, maybe."""
    reader = EventFileReader(path)
    found = [record.step for payload in reader for record in outline.records(payload)]
    assert all(damage.torn for damage in reader.damage)
    return found


@pytest.mark.parametrize("elements", [100, 40_000])
def test_flushing_in_a_signal_handler(sink_at: OpenSink, elements: int) -> None:
    """Inside a `write`, of a record smaller or larger than the ring, it returns when all before it is readable."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    found: list[list[int]] = []

    def flush() -> None:
        go_on()
        sink.flush()
        found.append(steps_so_far(sink.path))

    assert all(sink.write(tensor(step, 100)) for step in range(20))
    sink.flush()
    with stopped(sink) as go_on, handler(flush), signal_when(is_waiting):
        assert sink.write(scalar(20))
        assert all(sink.write(tensor(step, elements)) for step in range(21, 200))
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

    answers = [sink.write(tensor(step, 100)) for step in range(20)]
    sink.flush()
    with stopped(sink) as go_on, handler(close), signal_when(is_waiting):
        try:
            answers.append(sink.write(scalar(20)))
            for step in range(21, 200):
                answers.append(sink.write(tensor(step, elements)))
        except SystemExit:
            assert leaves
    assert sum(answers) < 200
    assert len(answers) == 200 or leaves
    taken = [step for step, answer in enumerate(answers) if answer]
    assert steps(sink.path) == taken
    assert sink.stats.pending == 0


@pytest.mark.alone
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


@pytest.mark.parametrize("elements", [100, 40_000], ids=["smaller", "larger"])
def test_an_interrupt_while_write_waits_for_room(sink_at: OpenSink, elements: int) -> None:
    """An exception out of a blocked `write` leaves no gap and nothing of its event."""
    sink = sink_at(1, ring_bytes=128 << 10)
    assert sink.write(tensor(0, 100))
    sink.flush()
    written = [0]
    with stopped(sink) as go_on, handler(interrupt):
        with signal_when(is_waiting), pytest.raises(KeyboardInterrupt):  # noqa: PT012
            for step in range(1, 400):
                assert sink.write(tensor(step, elements if step > 1 else 100))
                written.append(step)
        assert sink.stats.pending == len(written) - 1
        timer = threading.Timer(0.1, go_on)
        timer.start()
        assert sink.write(tensor(1000, elements))
        timer.join()
    for step in range(1001, 1050):
        assert sink.write(scalar(step))
    sink.close()
    assert steps(sink.path) == [*written, *range(1000, 1050)]
    assert sink.stats.pending == 0


def test_an_interrupt_while_a_large_record_is_written(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a part of it in the file: nothing of it stays there, whoever writes next, and nothing is missing."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.write(scalar(0))
    sink.flush()
    whole = os.path.getsize(sink.path)
    real = os.pwritev

    def interrupted(fd: int, pieces: list[memoryview], offset: int) -> int:
        assert real(fd, pieces, offset) > 100_000
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sink.write(tensor(1, 100_000))
    assert os.path.getsize(sink.path) == whole
    for step in range(2, 50):
        assert sink.write(tensor(step, 100_000 if step == 20 else 100))
    sink.close()
    assert steps(sink.path) == [0, *range(2, 50)]
    assert (sink.stats.events, sink.stats.pending, sink.stats.lost) == (49, 0, 0)


def test_closing_while_a_large_record_is_written(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a signal handler: it is whole in the file, and answered so; all is given back behind it."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.write(scalar(0))
    sink.flush()
    real = os.pwritev

    def interrupted(fd: int, pieces: list[memoryview], offset: int) -> int:
        written = real(fd, [memoryview(b"".join(pieces))[:100_000]], offset)
        monkeypatch.setattr(os, "pwritev", real)
        sink.close()
        return written

    monkeypatch.setattr(os, "pwritev", interrupted)
    assert sink.write(tensor(1, 100_000))
    assert not sink.write(scalar(2))
    assert steps(sink.path) == [0, 1]
    assert (sink.stats.events, sink.stats.pending, sink.stats.lost) == (2, 0, 0)


def test_an_interrupt_where_close_ends_its_workers(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end all the same, though whoever keeps the exception keeps everything that `close` was about to end."""
    sink = sink_at(1)
    assert sink.write(scalar(1))

    def interrupted(supervisor: Supervisor) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Supervisor, "end", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:
        sink.close()
    wait_for_workers_to_end(os.path.dirname(sink.path))
    assert kept.tb is not None
    assert steps(sink.path) == [1]
