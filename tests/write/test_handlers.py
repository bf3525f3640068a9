"""Signal handlers that call the sink in the middle of a call, and interrupts: no gap, no half event, no deadlock."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from instrument.codec import event
from instrument.eventfile.reader import EventFileReader
from instrument.values import Event, Item
from instrument.write import message, stream
from instrument.write.crew import Crew
from instrument.write.ring import chunks
from tests.write.build import scalar, steps, tensor, wait_for_workers_to_end, wait_until
from tests.write.conftest import OpenSink
from tests.write.pools import SMALL_RING, handler, is_full, messages, process, ring, signal_when, stopped

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool")


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


def steps_so_far(path: str) -> list[int]:
    """Those of whole frames; an event that is larger than the ring is on its way into the file, maybe."""
    reader = EventFileReader(path)
    found = [record.step for payload in reader for record in event.decode(payload)]
    assert all(damage.torn for damage in reader.damage)
    return found


@pytest.mark.parametrize("elements", [100, 40_000])
def test_flushing_in_a_signal_handler(sink_at: OpenSink, elements: int) -> None:
    """Inside a `write`, of a record in one piece or in several, it returns when everything before is readable."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    found: list[list[int]] = []

    def flush() -> None:
        go_on()
        sink.flush()
        found.append(steps_so_far(sink.path))

    need = 1000 if elements == 100 else SMALL_RING // 4 + 64
    assert all(sink.write(tensor(step, 100)) for step in range(20))
    sink.flush()
    with stopped(sink) as go_on, handler(flush), signal_when(is_full(sink, need)):
        assert all(sink.write(tensor(step, elements)) for step in range(20, 200))
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

    need = 1000 if elements == 100 else SMALL_RING // 4 + 64
    answers = [sink.write(tensor(step, 100)) for step in range(20)]
    sink.flush()
    with stopped(sink) as go_on, handler(close), signal_when(is_full(sink, need)):
        try:
            for step in range(20, 200):
                answers.append(sink.write(tensor(step, elements)))
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
    assert sink.write(tensor(0, 100))
    sink.flush()
    written = [0]
    with stopped(sink) as go_on, handler(interrupt):
        with signal_when(is_full(sink, room)), pytest.raises(KeyboardInterrupt):  # noqa: PT012
            for step in range(1, 400):
                assert sink.write(tensor(step, elements))
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


@pytest.mark.parametrize("count", [1, 3])
def test_an_interrupt_between_chunks(sink_at: OpenSink, count: int) -> None:
    """Who has begun to write a large record takes it back before anything else is written, and nothing else with it."""
    sink = sink_at(count, ring_bytes=count * (128 << 10))
    assert sink.write(tensor(0, 100))
    sink.flush()
    with stopped(sink), handler(interrupt), signal_when(is_full(sink, 32_832)), pytest.raises(KeyboardInterrupt):
        sink.write(tensor(1, 100_000))
    for step in range(2, 50):
        assert sink.write(tensor(step, 1000))
    sink.flush()
    assert steps(sink.path) == [0, *range(2, 50)]
    sink.close()
    assert steps(sink.path) == [0, *range(2, 50)]
    assert (sink.stats.events, sink.stats.pending, sink.stats.lost) == (49, 0, 0)


@pytest.mark.parametrize("dies", [False, True])
def test_an_interrupt_while_a_large_record_is_encoded(sink_at: OpenSink, dies: bool) -> None:
    """All of it has been sent: it is in the file, unless its worker dies of all moments then; no gap either way."""
    sink = sink_at(1, ring_bytes=256 << 10)
    sink.write(scalar(0))
    sink.flush()
    wait_until(lambda: ring(sink).tail == ring(sink).head)
    event = Event.of(1, 1.0, (Item("histogram", "h", np.linspace(0.0, 1.0, 1_000_000), "float64"),))
    end = ring(sink).head
    for view, _ in chunks(message.pack_for_stream(event, "", stream.order), (256 << 10) // 4):
        end += 64 + len(view) + -len(view) % 64
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


def test_a_large_event_that_is_given_up(sink_at: OpenSink) -> None:
    """Interrupted on its way, by whose worker died then: no half frame stays in the file, although nothing follows."""
    sink = sink_at(1, ring_bytes=256 << 10)
    sink.write(scalar(0))
    sink.flush()
    whole = os.path.getsize(sink.path)
    with handler(interrupt), signal_when(lambda: os.path.getsize(sink.path) > whole), pytest.raises(KeyboardInterrupt):
        sink.write(tensor(1, 25_000_000))
    process(sink).kill()
    sink.close()
    assert steps(sink.path) == [0]
    assert os.path.getsize(sink.path) == whole == sink.stats.bytes


def test_an_interrupt_where_close_ends_its_workers(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end all the same, though whoever keeps the exception keeps everything that `close` was about to end."""
    sink = sink_at(1)
    assert sink.write(scalar(1))

    def interrupted(crew: Crew) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Crew, "end", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:
        sink.close()
    wait_for_workers_to_end(sink.path)
    assert kept.tb is not None
    assert steps(sink.path) == [1]
