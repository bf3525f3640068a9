"""Tensors larger than the ring, written before the rest of their event is known: finished, or as if never begun."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import read
from instrument.codec import event as event_codec
from instrument.eventfile import frame
from instrument.eventfile.reader import EventFileReader
from instrument.values import BFLOAT16, Event, Item
from instrument.write.ahead import Ahead, Ticket
from instrument.write.pool import PoolSink
from instrument.write.shared import PoolMemory
from tests.write.build import custom, gaps, numbers, records, scalar, steps, tensor, wait_until
from tests.write.conftest import OpenSink
from tests.write.pools import SMALL_RING, beside, handler, messages, process, ring, signal_when, stopped

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool")

LARGE = 40_000  # float32 values: more than twice what a small ring holds
DTYPES = ("float32", "float64", "float16", "int64", "uint8", "bool", BFLOAT16)


def large(step: float = 1.0, tag: str = "large") -> Item:
    """A tensor filled with a number."""
    return Item("tensor", tag, np.full(LARGE, step, np.float32), "float32")


def send(sink: Any, item: Item, make_way: Callable[[], None] = lambda: None) -> Item:
    """The item with the ticket that it was given."""
    ticket = sink.ahead(item, make_way)
    assert isinstance(ticket, Ticket)
    return item._replace(payload=ticket)  # type: ignore[arg-type]


def half_frame(path: str) -> int:
    """Bytes behind the last whole frame of a file, which has no other damage."""
    reader = EventFileReader(path)
    end = max((start + len(payload) + frame.OVERHEAD_BYTES for start, payload in located(reader)), default=0)
    return os.path.getsize(path) - end


def located(reader: EventFileReader) -> list[tuple[int, memoryview]]:
    found, start = [], 0
    for payload in reader:
        found.append((start, payload))
        start += len(payload) + frame.OVERHEAD_BYTES
    return found


# ---------------------------------------------------------------------- the bytes


def test_time_and_step() -> None:
    """Twenty bytes for any step, which say the same as an event's own."""
    golden = "09 000000000000f83f 10 ff808080808080808000"
    assert event_codec.encode_tail(1.5, 127) == bytes.fromhex(golden)
    golden = "09 000000000000f83f 10 ffffffffffffffffff01"
    assert event_codec.encode_tail(1.5, -1) == bytes.fromhex(golden)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    edges = [0, 1, 127, 128, 2**31, 2**62, 2**63 - 1, -1, -(2**63)]
    ((_, *summary),) = event_codec.encode(Event(0, 0.0, [Item("tensor", "t", np.ones(1, np.float32), "float32")]))
    for step in [*edges, *(dice.randrange(-(2**63), 2**63) for _ in range(200))]:
        tail = event_codec.encode_tail(step / 3, step)
        assert len(tail) == event_codec.TAIL_BYTES == 20
        (record,) = event_codec.decode(memoryview(b"".join(summary) + tail))
        assert (record.step, record.wall_time, record.tag) == (step, step / 3, "t")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_any_type(sink_at: OpenSink, tmp_path: Path, rng: np.random.Generator, dtype: str) -> None:
    """Its values as they were when it was sent, beside what else its event holds."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    code = "float32" if dtype == BFLOAT16 else dtype
    array = (rng.standard_normal(200_000) * 50).astype(code)
    if dtype == BFLOAT16:
        array = (array.view("u4") & np.uint32(0xFFFF0000)).view("f4")
    before = array.copy()
    assert sink.write(scalar(1, 0.5))
    item = send(sink, Item("tensor", "large", array.reshape(400, 500), dtype))
    array[:] = 0
    assert sink.write(Event(-3, 77.0, [item, *tensor(0, 5, "small").items], {"loss": 2.0}))
    assert sink.write(scalar(4, 0.25))
    sink.close()
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (3, 0, 0)
    assert sink.stats.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    run = read(tmp_path)
    assert run.damage == []
    points = run.tensors("large")
    assert (points.step.tolist(), points.wall_time.tolist()) == ([-3], [77.0])
    assert (points.values[0].dtype, points.values[0].array.shape) == (dtype, (400, 500))
    assert points.values[0].array.tobytes() == before.tobytes()
    assert run.tensors("small").step.tolist() == [-3]
    assert run.scalars("loss").step.tolist() == [-3, 1, 4]


def test_nothing_else_in_the_event(sink_at: OpenSink) -> None:
    """A tensor alone is an event, too: one frame, with its time and step last."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    item = send(sink, large(5.0))
    assert sink.write(Event(3, 4.0, [item]))
    sink.close()
    _, payload = EventFileReader(sink.path)
    ((head, *pieces),) = event_codec.encode(Event(3, 4.0, [large(5.0)]))
    assert len(head) == 11
    assert bytes(payload) == b"".join(pieces) + event_codec.encode_tail(4.0, 3)
    assert sink.stats.events == 1


def test_a_frame_that_is_still_being_written(sink_at: OpenSink, tmp_path: Path) -> None:
    """Until the event comes a reader sees an unfinished frame, as it may at any time, and then all of it."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.write(scalar(1))
    item = send(sink, large(2.0))
    run = read(tmp_path)
    assert run.tags() == {"scalar": ["loss"]}
    assert [damage.torn for damage in run.damage] == [True]
    assert half_frame(sink.path) > 4 * LARGE
    assert sink.stats.events == 1
    assert sink.stats.bytes < 1000
    assert sink.stats.pending == 0
    assert sink.write(Event(2, 4.0, [item]))
    sink.flush()
    run.refresh()
    assert run.tags() == {"scalar": ["loss"], "tensor": ["large"]}
    assert run.damage == []
    assert numbers(sink.path) == [(1, 1.0), (2, 2.0)]
    assert half_frame(sink.path) == 0


# ---------------------------------------------------------------------- never finished


@pytest.mark.parametrize("count", [1, 2])
def test_something_else_is_written_over_it(sink_at: OpenSink, caplog: pytest.LogCaptureFixture, count: int) -> None:
    """Its ticket is worth nothing then: that event is lost, which the log, the file and the counts say."""
    sink = sink_at(count, ring_bytes=count * SMALL_RING)
    item = send(sink, large(2.0))
    assert sink.write(scalar(1))
    sink.flush()
    assert half_frame(sink.path) == 0
    assert sink.write(Event(2, 4.0, [item], {"loss": 2.0}))
    assert sink.write(scalar(3))
    sink.close()
    assert numbers(sink.path) == [(1, 1.0), (3, 3.0)]
    assert [(gap.events, gap.first_step, gap.reason) for gap in gaps(sink.path)] == [
        (1, 2, "what was written of it is gone")
    ]
    assert (sink.stats.events, sink.stats.lost) == (2, 1)
    (said,) = messages(caplog)
    assert "the first at step 2: what was written of it is gone" in said


def test_the_end_cuts_it_off(sink_at: OpenSink) -> None:
    """What was never finished is not in the file of a closed sink."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.write(scalar(1))
    send(sink, large(2.0))
    sink.close()
    assert numbers(sink.path) == [(1, 1.0)]
    assert half_frame(sink.path) == 0
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (1, 0, 0)


def test_a_second_one_takes_its_place(sink_at: OpenSink) -> None:
    """Sent again, only the second can be finished; the first ticket is worth nothing."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    send(sink, large(1.0))
    item = send(sink, large(2.0))
    assert sink.write(Event(1, 4.0, [item]))
    first, second = send(sink, large(3.0)), send(sink, large(4.0))
    assert sink.write(Event(2, 4.0, [first]))
    assert sink.write(Event(3, 4.0, [second]))
    sink.close()
    assert numbers(sink.path) == [(1, 2.0)]
    assert [gap.first_step for gap in gaps(sink.path)] == [2, 3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_can_be_read_back(sink_at: OpenSink, rng: np.random.Generator, dtype: str) -> None:
    """Before something else is written its values are there, bit for bit, and behind it they are not."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    array = (rng.standard_normal((300, 700)) * 50).astype("float32" if dtype == BFLOAT16 else dtype)
    ticket = send(sink, Item("tensor", "large", array, dtype)).payload
    assert isinstance(sink, PoolSink)
    assert isinstance(ticket, Ticket)
    found = sink.fetch(ticket)
    assert found is not None
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    send(sink, large())
    assert sink.fetch(ticket) is None
    os.truncate(sink.path, 10)
    sink.close()
    assert sink.fetch(ticket) is None


def test_a_ticket_without_its_file(tmp_path: Path) -> None:
    """Neither a missing nor a shortened file gives values."""
    ticket = Ticket(1, np.dtype("<f4"), (10,))
    assert ticket.read(str(tmp_path / "none"), 0) is None
    (tmp_path / "short").write_bytes(bytes(39))
    assert ticket.read(str(tmp_path / "short"), 0) is None
    (tmp_path / "whole").write_bytes(bytes(40))
    assert ticket.read(str(tmp_path / "whole"), 0) is not None


# ---------------------------------------------------------------------- where it is not done


@pytest.mark.parametrize(
    "options",
    [
        {"max_file_bytes": 1 << 30}, {"export_tensors": True}, {"drop_when_full": True}, {"dialect": "both"},
        {"dialect": "tensorboard"},
    ],
)  # fmt: skip
def test_where_nothing_is_sent_ahead(sink_at: OpenSink, tmp_path: Path, options: dict[str, Any]) -> None:
    """With a size limit, exports, nobody waiting for room, and in TensorBoard's files a tensor comes with its event."""
    sink = sink_at(1, ring_bytes=SMALL_RING, **options)
    called: list[int] = []
    assert sink.ahead(large(), lambda: called.append(1)) is None
    assert len(called) <= 1
    assert sink.write(Event(1, 2.0, [large(1.0)]))
    sink.close()
    assert read(tmp_path).tensors("large").step.tolist() == [1]


def test_what_fits_into_the_ring_is_not_sent(sink_at: OpenSink) -> None:
    """Nor does a sink without workers send anything, nor one that is closed."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.ahead(tensor(1, 1000).items[0], pytest.fail) is None
    sink.close()
    assert sink.ahead(large(), pytest.fail) is None
    direct = sink_at(0)
    assert direct.ahead(large(), pytest.fail) is None
    assert direct.fetch(Ticket(1, np.dtype("f4"), (3,))) is None


def test_what_was_staged_makes_way(sink_at: OpenSink) -> None:
    """Whoever staged something is asked to copy it, before its place is used."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    staged = sink.stage(np.full(1000, 7.0, np.float32))
    assert staged is not None
    copies: list[Any] = []
    item = send(sink, large(2.0), lambda: copies.append(staged.copy()))
    (copied,) = copies
    again = sink.stage(np.full(500, 8.0, np.float32))
    assert again is not None
    items = [item, Item("tensor", "a", copied, "float32"), Item("tensor", "b", again, "float32")]
    assert sink.write(Event(1, 4.0, items))
    sink.close()
    found = {record.tag: record.value.array for record in records(sink.path)}  # type: ignore[union-attr]
    assert [(tag, array.size, float(array[0])) for tag, array in found.items()] == [
        ("large", LARGE, 2.0), ("a", 1000, 7.0), ("b", 500, 8.0)
    ]  # fmt: skip
    assert all((array == array[0]).all() for array in found.values())


def test_an_event_that_is_larger_than_the_ring_by_itself(sink_at: OpenSink) -> None:
    """One tensor was sent ahead, another comes in chunks with the event."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    item = send(sink, large(2.0))
    assert sink.write(Event(1, 4.0, [item, large(3.0, "other")], {"loss": 1.0}))
    assert sink.write(scalar(2))
    sink.close()
    found = {(record.tag, record.step): record for record in records(sink.path)}
    assert list(found) == [("large", 1), ("loss", 1), ("other", 1), ("loss", 2)]
    assert sink.stats.events == 2
    assert sink.stats.errors == 0


def test_what_is_missing_is_said_first(sink_at: OpenSink) -> None:
    """Events that were refused before it are told before it: nothing is sent ahead of that."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert isinstance(sink, PoolSink)
    sink._missing.add(1, "no reason")
    assert sink.ahead(large(), pytest.fail) is None
    assert sink.write(Event(2, 4.0, [large(2.0)]))
    assert send(sink, large()).payload
    sink.close()
    assert [gap.first_step for gap in gaps(sink.path)] == [1]


# ---------------------------------------------------------------------- faults


def test_a_successor_finishes_it(sink_at: OpenSink, tmp_path: Path) -> None:
    """The worker that wrote it dies: its successor knows where it ends."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert isinstance(sink, PoolSink)
    assert sink.write(scalar(1))
    item = send(sink, large(2.0))
    first = process(sink)
    first.send_signal(signal.SIGKILL)
    first.wait(20)
    wait_until(lambda: process(sink) is not first if sink._feed.crew.process(0) else False)
    assert sink.write(Event(2, 4.0, [item], {"loss": 2.0}))
    sink.close()
    run = read(tmp_path)
    assert run.damage == []
    assert run.tensors("large").step.tolist() == [2]
    assert (run.tensors("large").values[0].array == 2.0).all()
    assert run.scalars("loss").step.tolist() == [1, 2]
    assert (sink.stats.events, sink.stats.lost) == (2, 0)


def test_a_worker_that_nobody_knows(sink_at: OpenSink) -> None:
    """One that was started and then forgotten by an interrupt takes nothing away from the one that is known."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert isinstance(sink, PoolSink)
    assert sink.write(scalar(1))
    item = send(sink, large(2.0))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    crew, first = sink._feed.crew, process(sink)
    with theirs:
        stray = crew._spawn(0, theirs)
    ours.close()
    # It waits for the end of the first, and so is there before that one's successor.
    wait_until(lambda: f" {stray.pid} " in Path("/proc/locks").read_text())
    first.send_signal(signal.SIGKILL)
    assert stray.wait(20) == 0
    wait_until(lambda: process(sink) is not first if crew.process(0) else False)
    assert sink.write(Event(2, 4.0, [item]))
    sink.close()
    assert numbers(sink.path) == [(1, 1.0), (2, 2.0)]
    assert sink.stats.lost == 0


def test_a_worker_dies_while_it_writes(sink_at: OpenSink) -> None:
    """It is sent again, from the values as they are then."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.write(scalar(1))
    sink.flush()
    with stopped(sink):
        worker = process(sink)

        def kill() -> None:
            wait_until(lambda: ring(sink).head - ring(sink).tail > SMALL_RING // 2)
            worker.send_signal(signal.SIGKILL)

        with beside(kill):
            item = send(sink, large(2.0))
    assert process(sink) is not worker
    assert sink.write(Event(2, 4.0, [item]))
    sink.close()
    assert numbers(sink.path) == [(1, 1.0), (2, 2.0)]
    assert sink.stats.lost == 0


def test_its_file_is_deleted(sink_at: OpenSink, caplog: pytest.LogCaptureFixture) -> None:
    """With what was written of it the event is lost, which a new file and the log say; what follows is there."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.write(scalar(1))
    item = send(sink, large(2.0))
    os.remove(sink.path)
    assert sink.write(Event(2, 4.0, [item], {"loss": 2.0}))
    assert sink.write(scalar(3))
    sink.close()
    assert steps(sink.path) == [3]
    assert [(gap.events, gap.first_step) for gap in gaps(sink.path)] == [(1, 2)]
    assert sink.stats.lost == 1
    assert any("the first at step 2: what was written of it is gone" in text for text in messages(caplog))
    assert any("What" in text and "is lost: it was deleted or cut" in text for text in messages(caplog))


def test_its_file_is_deleted_before(sink_at: OpenSink) -> None:
    """Then it is not sent ahead: the event, which says so, begins the file anew."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.write(scalar(1))
    sink.flush()
    os.remove(sink.path)
    assert sink.ahead(large(2.0), lambda: None) is None
    assert sink.write(Event(2, 4.0, [large(2.0)]))
    sink.close()
    assert numbers(sink.path) == [(2, 2.0)]


def test_a_full_disk(sink_at: OpenSink, small_disk_of: Callable[[str], Path]) -> None:
    """What has no room is not kept ahead, and leaves nothing behind; the event says what is to be said."""
    disk = small_disk_of("1m")
    sink = sink_at(1, ring_bytes=SMALL_RING, directory=disk)
    assert sink.write(scalar(1))
    sink.flush()
    size_bytes = os.path.getsize(sink.path)
    item = Item("tensor", "large", np.zeros(400_000, np.float32), "float32")
    assert sink.ahead(item, lambda: None) is None
    assert os.path.getsize(sink.path) == size_bytes
    assert sink.stats.errors == 0
    assert not sink.write(Event(2, 4.0, [item]))
    assert sink.ahead(large(), lambda: None) is None  # what is missing comes first
    assert sink.write(Event(3, 4.0, [large(3.0)]))
    assert send(sink, large()).payload
    sink.close()
    assert numbers(sink.path) == [(1, 1.0), (3, 3.0)]
    assert [gap.first_step for gap in gaps(sink.path)] == [2]


def test_a_disk_that_is_full_at_the_tail(sink_at: OpenSink, small_disk_of: Callable[[str], Path]) -> None:
    """The tensor found room and its tail does not: it waits, and is there when there is room again."""
    disk = small_disk_of("1m")
    sink = sink_at(1, ring_bytes=SMALL_RING, directory=disk)
    item = send(sink, large(2.0))
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    room = 4096 - os.path.getsize(sink.path) % 4096  # in the last page of the file
    assert sink.write(Event(2, 4.0, [item], {"loss" + "x" * room: 1.0}))
    wait_until(lambda: sink.stats.errors == 1)
    assert sink.stats.pending == 1
    ballast.unlink()
    sink.flush()
    sink.close()
    assert [record.step for record in records(sink.path)] == [2, 2]
    assert (sink.stats.events, sink.stats.lost) == (1, 0)


def test_an_interrupt_while_the_rest_is_sent(sink_at: OpenSink) -> None:
    """The event is not there, and nothing of what was sent ahead of it stays behind what comes next."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert isinstance(sink, PoolSink)
    assert sink.write(scalar(1))
    item = send(sink, large(2.0))
    size_bytes = os.path.getsize(sink.path)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with (
        handler(interrupt),
        signal_when(lambda: os.path.getsize(sink.path) > size_bytes),
        pytest.raises(KeyboardInterrupt),
    ):
        sink.write(Event(2, 4.0, [item, Item("tensor", "other", np.zeros(20_000_000, np.float32), "float32")]))
    assert sink.write(scalar(3))
    sink.flush()
    assert half_frame(sink.path) == 0
    assert numbers(sink.path) == [(1, 1.0), (3, 3.0)]


def test_a_disk_that_is_full_in_the_second_file(sink_at: OpenSink, small_disk_of: Callable[[str], Path]) -> None:
    """One file has taken all of an event and the other has no room: neither keeps anything behind what comes next."""
    disk = small_disk_of("1m")
    sink = sink_at(1, ring_bytes=SMALL_RING, directory=disk)
    assert sink.write(scalar(1))
    item = send(sink, large(2.0))
    assert not sink.write(Event(2, 4.0, [item, *custom(2, "x" * 2_000_000).items], {"loss": 2.0}))
    assert sink.write(scalar(3))
    sink.flush()
    run = read(disk)
    assert run.damage == []
    assert run.tags() == {"scalar": ["loss"]}
    assert run.scalars("loss").step.tolist() == [1, 3]
    assert [gap.first_step for gap in run.gaps] == [2]
    sink.close()


# ---------------------------------------------------------------------- shared memory


def test_where_it_stands_is_shared(tmp_path: Path) -> None:
    """All of it comes back; a ticket is there last."""
    with open(tmp_path / "memory", "w+b") as file:
        file.truncate(PoolMemory.size_bytes(1, 4096))
        pool = PoolMemory(file.fileno(), 1, 4096)
        assert pool.ahead == Ahead()
        written = Ahead(7, 8, 1 << 40, 1, 1 << 41, 0xFFFFFFFF)
        pool.ahead = written
        assert pool.ahead == written
        assert pool.ticket == 7
        assert pool.state.sequence == 0
        state = pool.state._replace(sequence=5, others_bytes=6)
        pool.state = pool.state = state
        assert pool.ahead == written
        assert pool.state == state
