"""The byte ring between two processes: contiguous records, nothing half published, nothing lost, nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator

import crc32c
import numpy as np
import pytest

from instrument.write.commit import State
from instrument.write.ring import CONTROL_BYTES, MORE, START, Ring, chunks
from instrument.write.worker import POOL_CONTROL_BYTES, PoolMemory
from tests.write.build import ROOT

BLOCK = 64


def make(capacity: int) -> Ring:
    return Ring(memoryview(bytearray(CONTROL_BYTES + capacity)))


def put(ring: Ring, data: bytes, sequence: int = 1, flags: int = START) -> bool:
    return ring.put([data], len(data), sequence, flags)


def take(ring: Ring, position: int | None = None) -> tuple[int, int, bytes]:
    """The record at `position` (the tail by default), given back to the producer."""
    chunk = ring.get(ring.tail if position is None else position)
    assert chunk is not None
    result = (chunk.sequence, chunk.flags, bytes(chunk.payload))
    ring.release(chunk.end)
    return result


def advance(ring: Ring, offset: int) -> None:
    """Move an empty ring's positions on to `offset`, a multiple of the block that a record takes at least."""
    while ring.head % ring.capacity_bytes != offset:
        assert put(ring, b"")
        take(ring)


@pytest.mark.parametrize("capacity", [0, 192, 255, 300])
def test_sizes_that_are_no_ring(capacity: int) -> None:
    """A ring holds at least four blocks of 64 bytes, and whole ones."""
    with pytest.raises(ValueError, match=f"a ring of {capacity} bytes"):
        make(capacity)


def test_records_come_out_as_they_went_in() -> None:
    """Payload, sequence number and flags; in order; None behind the last."""
    ring = make(1024)
    assert ring.get(0) is None
    assert put(ring, b"one", 1)
    assert put(ring, b"", 2**63, START | MORE)
    assert ring.put([b"th", memoryview(b"r"), b"", b"ee"], 5, 3, MORE)
    assert [take(ring) for _ in range(3)] == [(1, START, b"one"), (2**63, START | MORE, b""), (3, MORE, b"three")]
    assert ring.get(ring.tail) is None
    assert ring.head == ring.tail == 2 * BLOCK + BLOCK + 2 * BLOCK


def test_reading_does_not_release() -> None:
    """The consumer may look ahead; the room is the producer's again when it is released."""
    ring = make(256)
    assert put(ring, b"", 1)
    assert put(ring, b"", 2)
    first = ring.get(0)
    assert first is not None
    second = ring.get(first.end)
    assert second is not None
    assert (first.sequence, second.sequence) == (1, 2)
    assert put(ring, b"", 3)
    assert put(ring, b"", 4)
    assert not put(ring, b"", 5)
    ring.release(second.end)
    assert put(ring, b"", 5)
    assert [take(ring)[0] for _ in range(3)] == [3, 4, 5]


def test_a_full_ring_changes_nothing() -> None:
    """Where there is no room, `put` answers False and neither positions nor data change, nor are the pieces asked."""
    memory = bytearray(CONTROL_BYTES + 512)
    ring = Ring(memoryview(memory))
    for sequence in range(4):
        assert put(ring, b"x" * 64, sequence)
    before = bytes(memory)

    def no_pieces() -> Iterator[bytes]:
        raise AssertionError("asked for pieces")
        yield b""

    assert not ring.put(no_pieces(), 1, 9)
    assert bytes(memory) == before
    take(ring)
    assert put(ring, b"y" * 64, 4)
    assert [take(ring) for _ in range(4)] == [(n, START, (b"x" if n < 4 else b"y") * 64) for n in (1, 2, 3, 4)]


def test_a_record_wraps_by_padding() -> None:
    """A record that does not fit before the end begins at the start; the padding counts as used until it is read."""
    ring = make(512)
    for sequence in (1, 2):
        assert put(ring, b"a" * 128, sequence)
    take(ring)
    assert put(ring, b"b" * 128, 3)  # 384 of 512 used up: 128 are left at the end, 192 are needed
    assert ring.head == 384 + 128 + 192
    assert not put(ring, b"", 4)
    assert take(ring) == (2, START, b"a" * 128)
    assert take(ring) == (3, START, b"b" * 128)
    assert ring.tail == ring.head


def test_a_record_that_ends_at_the_end_needs_no_padding() -> None:
    """Positions at the very end go on at offset 0."""
    ring = make(512)
    advance(ring, 320)
    assert put(ring, b"c" * 128, 7)
    assert ring.head == 512
    assert put(ring, b"d" * 128, 8)
    assert ring.head == 704
    assert [take(ring) for _ in range(2)] == [(7, START, b"c" * 128), (8, START, b"d" * 128)]


@pytest.mark.parametrize("capacity", [256, 320, 384, 448, 512, 1024, 4096, 64 * 67])
def test_the_largest_record_fits_at_every_offset(capacity: int) -> None:
    """Wherever an empty ring's positions stand, a record of the largest size fits and comes out whole."""
    ring = make(capacity)
    data = bytes(index % 251 for index in range(ring.largest_record_bytes))
    for offset in range(0, capacity, BLOCK):
        advance(ring, offset)
        assert put(ring, data, offset + 1)
        assert take(ring) == (offset + 1, START, data)
        assert ring.head == ring.tail
    with pytest.raises(ValueError, match=f"expected at most {len(data)}"):
        put(ring, data + b"x")


def test_an_exception_while_copying_leaves_nothing() -> None:
    """What comes between the copy and the publishing never happened, at any offset, with padding or without."""
    ring = make(512)

    def interrupted() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    for offset in range(0, 512, BLOCK):
        advance(ring, offset)
        head = ring.head
        with pytest.raises(KeyboardInterrupt):
            ring.put(interrupted(), 128, 1)
        assert ring.head == head
        assert ring.get(ring.tail) is None
        assert put(ring, b"whole" * 10, 2)
        assert take(ring) == (2, START, b"whole" * 10)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 1000])
def test_chunks(chunk_bytes: int) -> None:
    """Pieces are cut into chunks: the first has START, all but the last MORE; their bytes are those of the pieces."""
    pieces: list[bytes | memoryview] = [b"abc", b"", memoryview(bytes(range(100))), b"z"]
    found = chunks(pieces, chunk_bytes)
    assert b"".join(view for view, _ in found) == b"".join(pieces)
    assert all(0 < len(view) <= chunk_bytes for view, _ in found)
    assert [flags for _, flags in found] == [START | MORE, *[MORE] * (len(found) - 2), 0]


def test_one_chunk() -> None:
    """A record that is one chunk has START alone, as a whole one has."""
    assert [flags for _, flags in chunks([b"abc"], 3)] == [START]


def random_records(rng: np.random.Generator, ring: Ring, count: int) -> Iterator[bytes]:
    """Records of all sizes, small ones and the largest more often than chance has it."""
    largest = ring.largest_record_bytes
    for kind in rng.integers(0, 4, count).tolist():
        yield rng.bytes((0, largest, int(rng.integers(0, 65)), int(rng.integers(0, largest + 1)))[kind])


def checksum(records: Iterable[tuple[int, bytes]]) -> int:
    crc = 0
    for sequence, data in records:
        crc = crc32c.crc32c(sequence.to_bytes(8, "little") + len(data).to_bytes(8, "little") + data, crc)
    return crc


@pytest.mark.parametrize("capacity", [512, 1024, 65_536])
def test_two_threads(rng: np.random.Generator, capacity: int) -> None:
    """What a random producer puts is what a random consumer gets: each record once, in order, bit for bit."""
    ring = make(capacity)
    sent = list(enumerate(random_records(rng, ring, 1000), 1))
    ahead = rng.integers(1, 4, len(sent)).tolist()
    received: list[tuple[int, bytes]] = []

    def consume() -> None:
        position = 0
        while len(received) < len(sent):
            # Look at a few records before their room is given back.
            for _ in range(ahead[len(received)]):
                chunk = ring.get(position)
                if chunk is None:
                    break
                received.append((chunk.sequence, bytes(chunk.payload)))
                position = chunk.end
                if len(received) == len(sent):
                    break
            ring.release(position)
            os.sched_yield()

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    for sequence, data in sent:
        while not put(ring, data, sequence):
            assert consumer.is_alive()
            os.sched_yield()
    consumer.join(30)
    assert not consumer.is_alive()
    assert checksum(received) == checksum(sent)


CONSUME = """
import mmap, os, sys
sys.path.insert(0, sys.argv[4])
from instrument.write.ring import Ring
from tests.write.test_ring import checksum
fd, size, count = map(int, sys.argv[1:4])
ring = Ring(memoryview(mmap.mmap(fd, size)))
def records():
    position = 0
    for _ in range(count):
        while (chunk := ring.get(position)) is None:
            ring.release(position)
            os.sched_yield()
        yield chunk.sequence, bytes(chunk.payload)
        position = chunk.end
    ring.release(position)
print(checksum(records()))
"""

needs_memfd = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memfd")


@needs_memfd
def test_two_processes(rng: np.random.Generator) -> None:
    """The same between processes, where no interpreter lock puts loads and stores in order."""
    import mmap

    size = CONTROL_BYTES + 65_536
    fd = os.memfd_create("test")
    os.ftruncate(fd, size)
    ring = Ring(memoryview(mmap.mmap(fd, size)))
    count = 20_000
    with subprocess.Popen(
        [sys.executable, "-c", CONSUME, str(fd), str(size), str(count), str(ROOT)],
        pass_fds=[fd], stdout=subprocess.PIPE,
    ) as consumer:  # fmt: skip
        block = rng.bytes(4096)
        sizes = rng.integers(0, 4097, count).tolist()
        sent = [(sequence, block[-size:] if size else b"") for sequence, size in enumerate(sizes, 1)]
        for sequence, data in sent:
            while not put(ring, data, sequence):
                assert consumer.poll() is None
                os.sched_yield()
        out, _ = consumer.communicate(timeout=30)
    os.close(fd)
    assert int(out) == checksum(sent)
    assert ring.head == ring.tail


WRITE_STATES = """
import mmap, sys, time
sys.path.insert(0, sys.argv[4])
from instrument.write.commit import State
from instrument.write.worker import PoolMemory
pool = PoolMemory(memoryview(mmap.mmap(int(sys.argv[1]), int(sys.argv[2]))), int(sys.argv[3]))
deadline = time.monotonic() + 1
number = 0
while time.monotonic() < deadline:
    number += 1
    pool.state = State(*[number] * len(State._fields))
print(number)
"""


@needs_memfd
def test_the_state_is_never_half_written() -> None:
    """Read as fast as one can while another process writes: all fields are of one state, and states only grow."""
    import mmap

    ring_bytes = 4096
    size = POOL_CONTROL_BYTES + CONTROL_BYTES + ring_bytes
    fd = os.memfd_create("test")
    os.ftruncate(fd, size)
    pool = PoolMemory(memoryview(mmap.mmap(fd, size)), ring_bytes)
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_STATES, str(fd), str(size), str(ring_bytes), str(ROOT)],
        pass_fds=[fd], stdout=subprocess.PIPE,
    ) as writer:  # fmt: skip
        last = 0
        while writer.poll() is None:
            sequence, state = pool.committed_sequence, pool.state
            assert state == State(*[state.sequence] * len(state))
            assert last <= sequence <= state.sequence
            last = state.sequence
        out, _ = writer.communicate(timeout=30)
    os.close(fd)
    assert pool.state == State(*[int(out)] * len(State._fields))
    assert last > 0


def test_what_a_dead_worker_leaves() -> None:
    """The event that it had in hand, unless that is committed; afterwards its words are those of a new worker."""
    pool = PoolMemory(memoryview(bytearray(POOL_CONTROL_BYTES + 2 * (CONTROL_BYTES + 4096))), 4096)
    assert pool.bury(1) == (False, 0)
    pool.come_to_life(1)
    assert pool.bury(1) == (True, 0)
    pool.come_to_life(1)
    pool.take_in_hand(1, 8)
    pool.await_turn(1, 7)
    assert pool.waiting_for(7) == 1
    pool.state = State(sequence=7)
    assert pool.bury(1) == (True, 8)
    assert pool.bury(1) == (False, 0)
    assert pool.waiting_for(7) is None
    pool.take_in_hand(1, 8)
    pool.state = State(sequence=8)
    assert pool.bury(1) == (False, 0)
