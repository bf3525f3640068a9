"""A signal handler at each place of a call where Python may run one: whatever it does, the file is what was answered.

Python runs handlers where a function begins and where a built-in one returns; a profile function is called just there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from instrument.values import ArrayItem, Event, StagedItem
from instrument.write.pool import PoolSink
from tests.write.build import scalar, steps, tensor, wait_for_workers_to_end
from tests.write.conftest import OpenSink
from tests.write.pools import SMALL_RING, process, ring

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool"),
    # An interrupt where a generator ends is no exception to anybody.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

#: The step that a handler records.
INNER = 1000
_OURS = os.sep + os.path.join("instrument", "write") + os.sep


class Handler:
    """Runs a function at place number `place` of a call, and counts the places until then."""

    def __init__(self, place: int, function: Callable[[], object]) -> None:
        self._place = place
        self._function = function
        self.seen = 0

    def during(self, call: Callable[[], object]) -> None:
        sys.setprofile(self._come_by)
        try:
            call()
        finally:
            sys.setprofile(None)

    def _come_by(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_return") or _OURS not in frame.f_code.co_filename:
            return
        self.seen += 1
        if self.seen > self._place:
            sys.setprofile(None)
            self._function()


class Book:
    """A sink, and what it answered."""

    def __init__(self, sink: PoolSink) -> None:
        self.sink = sink
        self.answers: dict[int, bool | None] = {}

    def write(self, event: Event) -> None:
        self.answers[event.step] = None
        self.answers[event.step] = self.sink.write(event)

    def write_staged(self, event: Event) -> None:
        (item,) = event.items
        assert isinstance(item, ArrayItem)
        staged = self.sink.stage(item.array)
        if staged is not None:
            event = event._replace(items=[StagedItem(item.kind, item.tag, staged, item.dtype)])
        self.write(event)

    def check(self, is_sure: bool) -> None:
        """What was answered True is in the file, once and in order; what was answered False is not, if that is sure."""
        found = steps(self.sink.path)
        taken = [step for step, answer in self.answers.items() if answer]
        unknown = {step for step, answer in self.answers.items() if answer is None or not (answer or is_sure)}
        assert sorted(set(found) - unknown) == sorted(set(taken) - unknown)
        ordered = [step for step in found if step != INNER]  # its place is that of the handler
        assert ordered == sorted(ordered)
        assert len(set(found)) == len(found)
        assert self.sink.stats.pending == 0


def interrupt() -> None:
    raise KeyboardInterrupt


def small(book: Book) -> Callable[[], object]:
    return lambda: book.write(scalar(10))


def staged(book: Book) -> Callable[[], object]:
    return lambda: book.write_staged(tensor(10, 1000))


def with_another_worker(book: Book) -> Callable[[], object]:
    """The next event finds its worker busy, and starts another."""
    process(book.sink).send_signal(signal.SIGSTOP)
    first, step = ring(book.sink), 10
    while first.head - first.tail <= SMALL_RING // 4:
        book.write(tensor(step, 1000))
        step += 1
    return lambda: book.write(tensor(step, 1000))


def flush(book: Book) -> Callable[[], object]:
    book.write(scalar(10))
    return book.sink.flush


def close(book: Book) -> Callable[[], object]:
    book.write(scalar(10))
    return book.sink.close


def flush_without_a_worker(book: Book) -> Callable[[], object]:
    """The worker is dead, and it is `flush` that replaces it."""
    sink = book.sink
    sink._lock.acquire()  # the monitor does not
    worker = process(sink)
    worker.kill()
    assert worker.wait(20)
    book.write(scalar(10))

    def call() -> None:
        try:
            sink.flush()
        finally:
            sink._lock.release()

    return call


CALLS = [small, staged, with_another_worker, flush, close, flush_without_a_worker]
ACTIONS: dict[str, Callable[[Book], object]] = {
    "write": lambda book: book.write(scalar(INNER)),
    "flush": lambda book: book.sink.flush(),
    "close": lambda book: book.sink.close(),
    "stats": lambda book: book.sink.stats,
    "interrupt": lambda book: interrupt(),
}


def places_before(sink_at: OpenSink, prepare: Callable[[Book], Callable[[], object]], action: str, place: int) -> int:
    """Do it once, with the action at a place; how many places there were before that."""
    book = Book(sink_at(3 if prepare is with_another_worker else 1, ring_bytes=3 * SMALL_RING))
    worker = process(book.sink)
    book.write(scalar(0))
    book.sink.flush()
    call = prepare(book)

    def act() -> None:
        worker.send_signal(signal.SIGCONT)
        ACTIONS[action](book)

    handler = Handler(place, act)
    try:
        handler.during(call)
    except KeyboardInterrupt:
        assert action == "interrupt"
    worker.send_signal(signal.SIGCONT)
    for step in range(2000, 2003):
        book.write(scalar(step))
        assert book.answers[step] or book.sink._producer.is_over
    book.sink.close()
    wait_for_workers_to_end(
        os.path.dirname(book.sink.path)
    )  # one that an interrupted `close` did not wait for ends by itself
    book.check(is_sure=action != "close")
    return handler.seen


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("prepare", CALLS, ids=lambda prepare: prepare.__name__)
def test_a_handler_at_some_places(
    sink_at: OpenSink, rng: np.random.Generator, prepare: Callable[[Book], Callable[[], object]], action: str
) -> None:
    """Nothing is raised, nothing hangs, and the file holds what was answered True, once and in order."""
    count = places_before(sink_at, prepare, action, 1 << 30)
    assert count > 10
    for place in rng.choice(count, 2, replace=False).tolist():
        places_before(sink_at, prepare, action, place)


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("prepare", CALLS, ids=lambda prepare: prepare.__name__)
def test_a_handler_at_each_place(
    sink_at: OpenSink, prepare: Callable[[Book], Callable[[], object]], action: str
) -> None:
    """The same at all of them."""
    place = 0
    while places_before(sink_at, prepare, action, place) > place:
        place += 1
