"""What the pool adds: rings that fill, more workers when one is busy, sleep, records larger than the rings."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from instrument.values import ArrayItem, Event, StagedItem, Tensor
from instrument.write.ring import RESTART_BYTES
from tests.write.build import gaps, numbers, records, scalar, steps, tensor, wait_until, workers
from tests.write.conftest import OpenSink
from tests.write.pools import SMALL_RING, beside, messages, process, ring, stopped

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool")


# ---------------------------------------------------------------------- what is staged


def test_arrays_of_any_type_and_shape_can_be_staged(sink_at: OpenSink, rng: np.random.Generator) -> None:
    """The file holds what they were when they were staged."""
    sink = sink_at(1)
    types = (
        "bool",
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
        "float16",
        "float32",
        "float64",
    )
    arrays = [rng.integers(0, 2, shape).astype(name) for name in types for shape in ((), (1,), (3, 5), (1,) * 32)]
    for step, array in enumerate(arrays):
        given = array.copy()
        staged = sink.stage(given)
        given[...] = 1 - array if array.dtype != bool else ~array
        assert staged is not None
        assert sink.write(Event(step, 0.0, [StagedItem("tensor", "t", staged, array.dtype.name)]))
    sink.close()
    found = [record.value for record in records(sink.path)]
    assert len(found) == len(arrays)
    for value, array in zip(found, arrays, strict=True):
        assert isinstance(value, Tensor)
        assert (value.array.dtype, value.array.shape) == (array.dtype, array.shape)
        assert np.array_equal(value.array, array)


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


def test_one_worker_serves_a_light_load(sink_at: OpenSink, tmp_path: Path) -> None:
    """However slow it is: what counts is how much it has not written yet, and the padding of its ring is no work."""
    sink = sink_at(3, ring_bytes=3 * SMALL_RING)
    count = 0
    while ring(sink).head <= RESTART_BYTES or ring(sink).head != ring(sink).tail:
        count += sink.write(scalar(count))
        sink.flush()
    position = ring(sink).head
    with stopped(sink):
        for _ in range(5):
            assert sink.write(scalar(count))
            count += 1
        assert ring(sink).head - position > SMALL_RING // 2  # with the padding before the first of them
        assert len(workers(tmp_path)) == 1
    sink.close()
    assert steps(sink.path) == list(range(count))


def test_further_workers_start_when_one_is_busy(sink_at: OpenSink, tmp_path: Path) -> None:
    """When its ring fills, and what they encode waits for its turn."""
    sink = sink_at(3, ring_bytes=3 * SMALL_RING)
    assert sink.write(scalar(0))
    sink.flush()
    with stopped(sink):
        for step in range(1, 150):
            assert sink.write(tensor(step, 100))
        wait_until(lambda: len(workers(tmp_path)) == 3)
        assert sink._producer.pool.committed_sequence == 1
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(150)]


def test_more_workers_than_there_can_be(sink_at: OpenSink) -> None:
    """Any number of workers may be asked for."""
    sink = sink_at(1000, ring_bytes=1 << 20)
    for step in range(10):
        assert sink.write(scalar(step))
    sink.close()
    assert steps(sink.path) == list(range(10))


def test_an_idle_pool_sleeps(sink_at: OpenSink) -> None:
    """With nothing to write, neither the worker nor the monitor runs at all."""
    sink = sink_at(1)
    sink.write(scalar(1))
    sink.flush()
    worker = psutil.Process(process(sink).pid)
    (watcher,) = [thread for thread in threading.enumerate() if thread.name == "instrument-monitor"]

    def used() -> tuple[float, int, float]:
        times = worker.cpu_times()
        (own,) = [thread for thread in psutil.Process().threads() if thread.id == watcher.native_id]
        return times.user + times.system, worker.num_ctx_switches().voluntary, own.user_time + own.system_time

    def change_in(seconds: float) -> bool:
        before = used()
        assert select.select([unused], [], [], seconds) == ([], [], [])
        return used() != before

    unused, other_end = os.pipe()
    wait_until(lambda: not change_in(1.0))  # it looks a few times more before it falls asleep
    os.close(unused)
    os.close(other_end)


# ---------------------------------------------------------------------- records larger than the rings


@pytest.mark.parametrize("count", [1, 3])
def test_a_record_larger_than_the_ring(sink_at: OpenSink, count: int) -> None:
    """8 MB beside a ring of 1 MiB; events before and behind keep their place."""
    sink = sink_at(count, ring_bytes=1 << 20)
    expected = []
    for step in range(0, 30, 10):
        for event in (scalar(step), tensor(step + 1, 2_000_000), tensor(step + 2, 100_000), scalar(step + 3)):
            assert sink.write(event)
            expected.append((event.step, float(event.step)))
    sink.close()
    assert numbers(sink.path) == expected


@pytest.mark.parametrize("count", [1, 3])
def test_large_records_while_workers_die(sink_at: OpenSink, rng: np.random.Generator, count: int) -> None:
    """Workers are killed at random moments, before, while and after this process writes: each is there once."""
    sink = sink_at(count, ring_bytes=1 << 20)
    kills: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not over.wait(float(rng.uniform(0.0, 0.1))) and len(kills) < 20:
            worker = sink._producer.supervisor.process(0)
            if worker is not None:
                worker.kill()
                kills.append(worker.pid)

    with beside(kill):
        for step in range(40):
            assert sink.write(tensor(step, 2_000_000 if step % 4 == 0 else 1000))
            sink.flush()
        over.set()
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(40)]
    assert kills
    assert (sink.stats.lost, sink.stats.pending) == (0, 0)


@pytest.mark.parametrize("dialect", ["mindspore", "tensorboard", "both"])
def test_large_records_are_what_a_worker_writes(
    sink_at: OpenSink, tmp_path: Path, rng: np.random.Generator, dialect: str
) -> None:
    """Byte for byte, whoever writes them, for tensors of several types, pictures and histograms."""
    items = [
        ArrayItem("tensor", "a", rng.standard_normal(50_000).astype(np.float32), "float32"),
        ArrayItem("tensor", "b", rng.standard_normal((100, 300)), "float64"),
        ArrayItem("tensor", "c", rng.integers(0, 100, (3, 20_000)), "int64"),
        ArrayItem("histogram", "h", rng.standard_normal(100_000)),
        ArrayItem("image", "i", rng.integers(0, 256, (1, 3, 200, 200)).astype(np.uint8), "uint8"),
    ]
    contents = []
    for ring_bytes in (SMALL_RING, 24 << 20):
        directory = tmp_path / str(ring_bytes)
        sink = sink_at(1, ring_bytes=ring_bytes, directory=directory, dialect=dialect)
        heads = {path.name: path.stat().st_size for path in directory.iterdir()}
        assert sink.write(Event(1, 2.0, items, {"loss": 0.5}))
        sink.close()
        paths = sorted(directory.iterdir(), key=lambda path: path.name.split(".")[-1][-5:])
        contents.append([path.read_bytes()[heads.get(path.name, 0) :] for path in paths])
    for first, second in zip(*contents, strict=True):
        assert len(first) == len(second)
        assert dialect != "mindspore" or first == second  # the others' second file has a time of its own


def test_many_scalars(sink_at: OpenSink) -> None:
    """Thousands of long tags beside a tensor, and alone, larger than the ring: all of it is there."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    scalars = {"x" * 100 + str(index): float(index) for index in range(1000)}
    assert sink.write(tensor(1, 20_000)._replace(scalars=scalars))
    assert sink.write(Event(2, 2.0, (), scalars))
    sink.close()
    found = records(sink.path)
    assert [record.step for record in found] == [1] * 1001 + [2] * 1000
    for start in (0, 1001):
        values = {record.tag: record.value.value for record in found[start : start + 1000]}  # type: ignore[union-attr]
        assert values == scalars
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (2, 0, 0)


def test_a_large_event_that_cannot_be_encoded(sink_at: OpenSink) -> None:
    """It is answered False and counted once, the file says so once, and what comes next is written."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    bad = [
        ArrayItem("no kind", "t", np.ones(20_000)),
        ArrayItem("tensor", "t", np.ones(20_000, np.complex128), "complex128"),
    ]
    assert [sink.write(Event(step, 2.0, [item], {"loss": 1.0})) for step, item in enumerate(bad)] == [False, False]
    assert sink.write(tensor(2, 20_000))
    sink.close()
    assert numbers(sink.path) == [(2, 2.0)]
    assert sum(gap.events for gap in gaps(sink.path)) == 2
    assert (sink.stats.events, sink.stats.lost) == (1, 2)


def test_waiting_for_nothing(sink_at: OpenSink, caplog: pytest.LogCaptureFixture) -> None:
    """With `drop_when_full` a large record is refused at once where it would have to wait, and written where not."""
    sink = sink_at(1, ring_bytes=SMALL_RING, drop_when_full=True)
    assert sink.write(tensor(0, 100_000))
    with stopped(sink):
        assert sink.write(scalar(1))
        assert not sink.write(tensor(2, 100_000))
        assert not sink.write(tensor(3, 100_000))
    sink.flush()
    assert sink.write(tensor(4, 100_000))
    sink.close()
    assert steps(sink.path) == [0, 1, 4]
    assert [(gap.events, gap.first_step, gap.last_step) for gap in gaps(sink.path)] == [(2, 2, 3)]
    assert (sink.stats.dropped, sink.stats.stalled_seconds) == (2, 0.0)
    (message,) = messages(caplog)
    assert "from step 2 on, events for which there is no room are dropped" in message
