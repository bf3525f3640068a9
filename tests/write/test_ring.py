"""The byte ring between two processes: contiguous records, nothing half published, nothing lost, nothing twice."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator

import crc32c
import numpy as np
import pytest

from instrument.errors import CorruptMessage
from instrument.ringfile import record
from instrument.write.pool_memory import map_twice
from instrument.write.ring import Ring
from tests.write.build import ROOT

BLOCK = 64
PAGE = mmap.PAGESIZE
HEAD, TAIL = 3, 5


def make(capacity: int = PAGE, position: int = 0) -> Ring:
    """An empty ring whose positions stand at `position`."""
    words = memoryview(bytearray(64)).cast("Q")
    words[HEAD] = words[TAIL] = position
    with tempfile.TemporaryFile() as file:
        file.truncate(capacity)
        return Ring(map_twice(file.fileno(), 0, capacity), words, HEAD, TAIL)


def move(ring: Ring, position: int) -> None:
    """Have the positions of an empty ring stand elsewhere."""
    ring._words[HEAD] = ring._words[TAIL] = position


def put(ring: Ring, data: bytes, sequence: int = 1) -> bool:
    return ring.put([data], len(data), sequence)


def take(ring: Ring) -> tuple[int, bytes]:
    """The record at the tail, given back to the producer."""
    chunk = ring.get(ring.tail)
    assert chunk is not None
    result = (chunk.sequence, bytes(chunk.payload))
    ring.release(chunk.end)
    return result


def room(length: int) -> int:
    """The bytes that a record of `length` takes in a ring."""
    return BLOCK + length + -length % BLOCK


@pytest.mark.parametrize("capacity", [0, 192, 255, 300])
def test_sizes_that_are_no_ring(capacity: int) -> None:
    """A ring holds at least four blocks of 64 bytes, and whole ones."""
    with pytest.raises(ValueError, match=f"a ring of {capacity} bytes"):
        Ring(memoryview(bytearray(2 * capacity)), memoryview(bytearray(16)).cast("Q"), 0, 1)


def test_records_come_out_as_they_went_in() -> None:
    """Payload, sequence number and where the head begins; in order; None behind the last."""
    ring = make()
    assert ring.get(0) is None
    assert put(ring, b"one", 1)
    assert put(ring, b"", 2**63)
    assert ring.put([b"th", memoryview(b"r"), b"", b"ee"], 5, 3, 4)
    found = []
    while (chunk := ring.get(ring.tail)) is not None:
        found.append((chunk.sequence, chunk.head_offset, bytes(chunk.payload)))
        ring.release(chunk.end)
    assert found == [(1, 0, b"one"), (2**63, 0, b""), (3, 4, b"three")]
    assert ring.head == ring.tail == room(3) + room(0) + room(5)


def test_the_words_are_its_own() -> None:
    """Head and tail are written where the ring was told, and no other word is."""
    ring = make()
    assert put(ring, b"x")
    assert put(ring, b"y")
    take(ring)
    assert ring._words.tolist() == [0, 0, 0, 2 * room(1), 0, room(1), 0, 0]


def test_reading_does_not_release() -> None:
    """The consumer may look ahead; the room is the producer's again when it is released."""
    ring = make()
    empty = PAGE // BLOCK
    assert [put(ring, b"", sequence) for sequence in range(empty + 1)] == [True] * empty + [False]
    first = ring.get(0)
    assert first is not None
    second = ring.get(first.end)
    assert second is not None
    assert (first.sequence, second.sequence) == (0, 1)
    assert not put(ring, b"", empty)
    ring.release(second.end)
    assert [put(ring, b"", empty + index) for index in range(3)] == [True, True, False]
    assert [take(ring)[0] for _ in range(empty)] == list(range(2, empty + 2))


def test_a_full_ring_changes_nothing() -> None:
    """Where there is no room, `put` answers False and neither positions nor data change, nor are the pieces asked."""
    ring = make()
    for sequence in range(4):
        assert put(ring, b"x" * (PAGE // 4 - BLOCK), sequence)
    before = bytes(ring.data), ring._words.tolist()

    def no_pieces() -> Iterator[bytes]:
        raise AssertionError("asked for pieces")
        yield b""

    assert not ring.put(no_pieces(), 1, 9)  # type: ignore[arg-type]
    assert (bytes(ring.data), ring._words.tolist()) == before
    take(ring)
    assert put(ring, b"y" * (PAGE // 4 - BLOCK), 4)
    assert [take(ring) for _ in range(4)] == [
        (n, (b"x" if n < 4 else b"y") * (PAGE // 4 - BLOCK)) for n in (1, 2, 3, 4)
    ]


def test_every_length_at_every_position() -> None:
    """Wherever it begins, a record of any size that fits into an empty ring comes out whole, in one piece.

    Behind the end of the data stands its beginning: nothing is cut in two, and no room is lost to padding.
    """
    ring = make()
    data = bytes(index % 251 for index in range(ring.largest_record_bytes))
    view = memoryview(data)
    assert len(data) == PAGE - BLOCK
    for position in range(2**40, 2**40 + PAGE, BLOCK):
        for length in range(len(data) + 1):
            move(ring, position)
            assert ring.put([view[:length]], length, length)
            chunk = ring.get(position)
            assert chunk is not None
            assert (chunk.sequence, chunk.end) == (length, position + room(length)) == (length, ring.head)
            assert chunk.payload == view[:length]
    with pytest.raises(ValueError, match=f"a record of {len(data) + 1} bytes: expected at most {len(data)}"):
        put(ring, data + b"x")


def test_no_room_is_lost_at_the_end() -> None:
    """A record fits exactly when its blocks are free, wherever the end of the data lies."""
    for position in range(0, PAGE, BLOCK):
        ring = make(position=position)
        assert put(ring, b"a" * 1000, 1)
        free = PAGE - room(1000)
        assert not put(ring, b"b" * (free - BLOCK + 1), 2)
        assert put(ring, b"b" * (free - BLOCK), 2)
        assert not put(ring, b"", 3)
        assert take(ring) == (1, b"a" * 1000)
        assert take(ring) == (2, b"b" * (free - BLOCK))
        assert ring.head == ring.tail == position + PAGE


@pytest.mark.parametrize("position", [0, PAGE - 64, 2**32 - 64, 2**63 - 64, 2**64 - 2 * PAGE])
def test_positions_grow_on(position: int) -> None:
    """Positions are numbers of 64 bits: no run is long enough to reach their end."""
    ring = make(position=position)
    for sequence in range(12):
        assert put(ring, bytes([sequence]) * 100, sequence)
        assert take(ring) == (sequence, bytes([sequence]) * 100)
    assert ring.head == ring.tail == position + 12 * room(100)


def test_an_exception_while_copying_leaves_nothing() -> None:
    """What comes between the copy and the publishing never happened, at any position."""
    ring = make()

    def interrupted() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    for position in range(0, PAGE, BLOCK):
        move(ring, position)
        with pytest.raises(KeyboardInterrupt):
            ring.put(interrupted(), 128, 1, 64)  # type: ignore[arg-type]
        assert ring.head == position
        assert ring.get(ring.tail) is None
        assert put(ring, b"whole" * 10, 2)
        assert take(ring) == (2, b"whole" * 10)


class Witness:
    """The words of a ring, and what the ring's memory holds at each store to the head."""

    def __init__(self) -> None:
        self.words = [0, 0]
        self.ring: Ring
        self.seen: list[bytes] = []

    def __getitem__(self, index: int) -> int:
        return self.words[index]

    def __setitem__(self, index: int, value: int) -> None:
        if index == 0:
            self.seen.append(bytes(self.ring.data[self.words[0] : value]))
        self.words[index] = value


def test_the_head_moves_last() -> None:
    """When a record is published all of it is in place: length, number and checksums, what was staged, the rest."""
    witness = Witness()
    witness.ring = ring = Ring(make().data, witness, 0, 1)  # type: ignore[arg-type]
    assert ring.stage(memoryview(b"s" * 70)) is not None
    assert ring.put([b"ab", b"c"], 131, 7, 128)
    assert len(witness.seen) == 1
    other = make()
    assert other.put([b"s" * 70, bytes(58), b"ab", b"c"], 131, 7, 128)
    assert witness.seen[0] == bytes(other.data[: other.head])


# ---------------------------------------------------------------------- pieces that are there already


def test_staged_pieces_are_read_where_they_were_put() -> None:
    """Each lies at a multiple of 64 bytes in the next record, in order; the rest stands behind them."""
    ring = make()
    for position in range(0, PAGE, BLOCK):
        move(ring, position)
        places = [ring.stage(memoryview(bytes([length]) * length)) for length in (64, 1, 130)]
        assert ring.staged_bytes == 64 + 64 + 192
        assert ring.get(position) is None
        assert ring.put([b"rest"], 324, 5, 320)
        assert ring.staged_bytes == 0
        chunk = ring.get(position)
        assert chunk is not None
        payload = bytes(chunk.payload)
        assert (payload[:64], payload[64:65], payload[128:258]) == (b"\x40" * 64, b"\x01", b"\x82" * 130)
        assert payload[chunk.head_offset :] == b"rest"
        for place, length in zip(places, (64, 1, 130), strict=True):
            assert place is not None
            assert place == bytes([length]) * length
        assert places[2] is not None
        places[2][0] = 9  # one memory, not a copy
        assert chunk.payload[128] == 9


def test_staging_ends_where_the_room_ends() -> None:
    """None where a piece does not fit behind what is unread; that is staged already stays, and fits."""
    ring = make()
    assert put(ring, b"u" * 960, 1)
    free = PAGE - room(960) - BLOCK
    assert ring.stage(memoryview(b"a" * (free - BLOCK))) is not None
    assert ring.stage(memoryview(b"b" * (BLOCK + 1))) is None
    assert ring.stage(memoryview(b"b" * BLOCK)) is not None
    assert ring.stage(memoryview(b"c")) is None
    assert (ring.staged_bytes, ring.head) == (free, room(960))
    assert not ring.put([b"head"], free + 4, 2, free)  # full: only the staged bytes would fit
    assert ring.staged_bytes == free
    assert take(ring) == (1, b"u" * 960)
    assert ring.put([b"head"], free + 4, 2, free)
    assert take(ring) == (2, b"a" * (free - BLOCK) + b"b" * BLOCK + b"head")


def test_staged_pieces_can_be_forgotten() -> None:
    """Where their record is not written, the next one takes their place."""
    ring = make()
    assert ring.stage(memoryview(b"old" * 100)) is not None
    ring.staged_bytes = 0
    assert put(ring, b"new", 1)
    assert take(ring) == (1, b"new")


def test_staging_leaves_what_is_unread_alone(rng: np.random.Generator) -> None:
    """Whatever is staged and put in whatever order, each record is read as it was written."""
    ring = make(2 * PAGE)
    waiting: list[bytes] = []
    for sequence in range(3000):
        expected = b""
        for size in rng.integers(0, 900, int(rng.integers(0, 4))).tolist():
            piece = rng.bytes(size)
            if ring.stage(memoryview(piece)) is not None:
                expected += piece + bytes(-size % BLOCK)
        rest = rng.bytes(int(rng.integers(0, 500)))
        length = ring.staged_bytes + len(rest)
        if length <= ring.largest_record_bytes and ring.put([rest], length, sequence):
            waiting.append(expected + rest)
        ring.staged_bytes = 0
        while waiting and rng.integers(0, 2):
            _, data = take(ring)
            whole = waiting.pop(0)
            # Between staged pieces stands what the ring held before.
            mask = np.frombuffer(whole, np.uint8) != 0
            assert len(data) == len(whole)
            assert (np.frombuffer(data, np.uint8)[mask] == np.frombuffer(whole, np.uint8)[mask]).all()


# ---------------------------------------------------------------------- what is left when all processes are gone


def test_an_empty_ring_starts_again_at_its_beginning() -> None:
    """Records that are read at once use the same two pages again and again; positions only grow."""
    ring = make(16 * PAGE)
    before = bytes(ring.data[3 * PAGE : 16 * PAGE])
    for sequence in range(1000):
        assert put(ring, b"x" * 300, sequence)
        assert take(ring) == (sequence, b"x" * 300)
    assert ring.head == ring.tail > 16 * PAGE
    assert bytes(ring.data[3 * PAGE : 16 * PAGE]) == before


@pytest.mark.parametrize("is_staged", [False, True])
def test_padding_is_not_unread(is_staged: bool) -> None:
    """What waits for the other side are records: the room between the last one and the end of the ring is none."""
    ring = make(64 * PAGE)
    assert put(ring, b"x" * (40 * PAGE), 1)
    take(ring)
    head = ring.head
    assert ring.unread_bytes == 0
    if is_staged:
        assert ring.stage(memoryview(bytes(64))) is not None
        assert ring.unread_bytes == 0
    assert ring.put([b"head"], 64 * is_staged + 4, 2, 64 * is_staged)
    assert ring.head - head > 23 * PAGE
    assert ring.unread_bytes == 128 + 64 * is_staged
    take(ring)
    assert ring.unread_bytes == 0
    assert put(ring, b"head", 3)
    assert ring.unread_bytes == 128


def test_staged_records_start_again_too() -> None:
    """Where they fit; the padding before them is released as a record is."""
    ring = make(64 * PAGE)
    before = bytes(ring.data[24 * PAGE : 64 * PAGE])
    data = memoryview(bytes(range(256)) * 160)
    for sequence in range(100):
        assert ring.stage(data) is not None
        assert ring.put([b"head"], len(data) + 4, sequence, len(data))
        assert take(ring) == (sequence, bytes(data) + b"head")
    assert bytes(ring.data[44 * PAGE : 64 * PAGE]) == before[20 * PAGE :]
    while ring.head % ring.capacity_bytes < 80 << 10:
        assert ring.stage(data) is not None
        assert ring.put([b"head"], len(data) + 4, 100, len(data))
        take(ring)
    assert ring.stage(data[:64]) is not None
    assert ring.get(ring.tail) is None
    assert ring.after_padding(ring.tail) == ring.head != ring.tail


def test_a_record_that_would_not_fit_there_is_put_where_the_head_is() -> None:
    """Of a ring that is empty all of it can be used, wherever its head is."""
    ring = make(16 * PAGE)
    for sequence in range(200):
        data = bytes([sequence]) * (15 * PAGE if sequence % 3 == 0 else 1000)
        assert put(ring, data, sequence)
        assert take(ring) == (sequence, data)


@pytest.mark.parametrize("body", [0, 64, 64 << 10, 128 << 10])
def test_records_have_checksums(body: int) -> None:
    """Of header, head and body; that of a large body is added later, by whoever finds the time."""
    ring = make(80 * PAGE)
    for sequence in range(2):
        assert ring.put([bytes(range(64)) * (body // 64), b"head"] if body else [b"head"], body + 4, sequence, body)
    position = 0
    for is_sealed in (body <= 64 << 10, True):
        header = record.read_header(ring.data, position, ring.capacity_bytes)
        assert header.is_sealed == is_sealed
        record.verify(ring.data, position, header, trusts_unsealed=not is_sealed)
        if not is_sealed:
            with pytest.raises(CorruptMessage, match="had no checksum yet"):
                record.verify(ring.data, position, header, trusts_unsealed=False)
        ring.seal()
    ring.data[record.HEADER_BYTES + body // 2] ^= 1
    with pytest.raises(CorruptMessage, match="is wrong"):
        record.verify(ring.data, 0, record.read_header(ring.data, 0, ring.capacity_bytes), trusts_unsealed=True)


# ---------------------------------------------------------------------- two sides at once


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


@pytest.mark.parametrize("capacity", [PAGE, 16 * PAGE])
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
from instrument.errors import CorruptMessage
from instrument.ringfile import record
from instrument.write.pool_memory import map_twice
from instrument.write.ring import Ring
from tests.write.test_ring import checksum
fd, size, count = map(int, sys.argv[1:4])
words = memoryview(mmap.mmap(fd, mmap.PAGESIZE)).cast("Q")
ring = Ring(map_twice(fd, mmap.PAGESIZE, size), words, 0, 8)
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


def test_two_processes(rng: np.random.Generator) -> None:
    """The same between processes, where no interpreter lock puts loads and stores in order; half of it is staged."""
    size = 16 * PAGE
    count = 20_000
    with tempfile.TemporaryFile() as file:
        file.truncate(PAGE + size)
        fd = file.fileno()
        words = memoryview(mmap.mmap(fd, PAGE)).cast("Q")
        ring = Ring(map_twice(fd, PAGE, size), words, 0, 8)
        command = [sys.executable, "-c", CONSUME, str(fd), str(size), str(count), str(ROOT)]
        with subprocess.Popen(command, pass_fds=[fd], stdout=subprocess.PIPE) as consumer:
            block = rng.bytes(4096)
            sizes = rng.integers(0, 4097, count).tolist()
            sent = [(sequence, block[-size:] if size else b"") for sequence, size in enumerate(sizes, 1)]
            for sequence, data in sent:
                first = len(data) // 2 // BLOCK * BLOCK if sequence % 2 else 0
                while first and ring.stage(memoryview(data)[:first]) is None:
                    assert consumer.poll() is None
                    os.sched_yield()
                while not ring.put([memoryview(data)[first:]], len(data), sequence):
                    assert consumer.poll() is None
                    os.sched_yield()
            out, _ = consumer.communicate(timeout=30)
    assert int(out) == checksum(sent)
    assert ring.head == ring.tail
