"""A ring buffer in shared memory with one producer and one consumer.

The problem: the training thread has to hand over each event in microseconds, of any size up to the ring's, to a process
that may be killed at any moment; and what was handed over must survive all processes.

The strategy: head and tail are positions that only grow. Each is written by one side with a single aligned 64-bit
store, so the other side sees either the old or the new one. The data is mapped twice in a row (`pool_memory.py`), so a
record is contiguous wherever it begins. The producer fills the room behind the head first, header and checksum included
(`ringfile/record.py`), and publishes it with the store to the head; whatever it did before that never happened if it
dies. `stage` uses that: parts of the next record are put where they will be read long before the rest of it is known.

The memory is a file, and the system writes each page to the disk that was changed since the last time. So a ring that
is empty, whose head has come a page far, starts again at its beginning, behind a padding record. A slow training
changes the same two pages again and again; one that fills the ring uses all of it.

Rejected: offsets that wrap instead of positions (empty and full look alike, and a position cannot tell how often the
ring went round), and cutting a record in two at the end (each copy would have two halves).
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import NamedTuple

from instrument.eventfile.crc import crc32c
from instrument.ringfile import record
from instrument.ringfile.record import ALIGNMENT_BYTES, HEADER_BYTES, PAD, SEALED_BELOW_BYTES

#: An empty ring whose head has come so far starts again at its beginning.
RESTART_BYTES = mmap.PAGESIZE
#: What a record may have beside its first large part.
_SPARE_BYTES = 64 << 10


class Chunk(NamedTuple):
    """One record; `end` is the position behind it."""

    sequence: int
    payload: memoryview
    head_offset: int
    end: int


class Ring:
    """`data` is the ring's memory twice in a row; `words[head]` and `words[tail]` are 64-bit words, 0 at first."""

    def __init__(self, data: memoryview, words: memoryview, head: int, tail: int) -> None:
        self.capacity_bytes = len(data) // 2
        if self.capacity_bytes < 4 * ALIGNMENT_BYTES or self.capacity_bytes % ALIGNMENT_BYTES:
            raise ValueError(f"a ring of {self.capacity_bytes} bytes: expected a multiple of {ALIGNMENT_BYTES}")
        self.data = data
        self._words, self._head, self._tail = words, head, tail
        self.largest_record_bytes = self.capacity_bytes - HEADER_BYTES
        #: Bytes of the next record's payload that are in place already.
        self.staged_bytes = 0
        #: The length of the last padding that this side has put, and the position behind it.
        self._padding_bytes = self._padding_end = 0

    @property
    def head(self) -> int:
        return self._words[self._head]

    @property
    def tail(self) -> int:
        return self._words[self._tail]

    @property
    def unread_bytes(self) -> int:
        """Bytes of the records that this side has put and the other one has not released; padding is no work."""
        tail = self._words[self._tail]
        unread_bytes = self._words[self._head] - tail
        return unread_bytes - self._padding_bytes if tail < self._padding_end else unread_bytes

    def _pad(self, head: int) -> int:
        """Fill the ring from `head` to its end, and return the position behind that."""
        length = self.capacity_bytes - head % self.capacity_bytes
        record.write_pad(self.data, head % self.capacity_bytes, length - HEADER_BYTES)
        self._padding_bytes, self._padding_end = length, head + length
        return head + length

    def stage(self, piece: memoryview) -> memoryview | None:
        """Copy a piece of the next record to its place and return it there; None if there is no room now."""
        words, capacity_bytes, staged_bytes, length = self._words, self.capacity_bytes, self.staged_bytes, len(piece)
        head = words[self._head]
        tail = words[self._tail]
        begin = head % capacity_bytes
        if head == tail and begin > RESTART_BYTES and not staged_bytes and length + _SPARE_BYTES <= begin:
            words[self._head] = head = self._pad(head)
            begin = 0
        taken_bytes = HEADER_BYTES + staged_bytes + length + -length % ALIGNMENT_BYTES
        if head + taken_bytes - tail > capacity_bytes:
            return None
        start = begin + HEADER_BYTES + staged_bytes
        place = self.data[start : start + length]
        place[:] = piece
        self.staged_bytes = taken_bytes - HEADER_BYTES
        return place

    def may_stage(self, length: int) -> bool:
        """Return True if there would be room for it in an empty ring."""
        return HEADER_BYTES + self.staged_bytes + length + -length % ALIGNMENT_BYTES <= self.capacity_bytes

    def put(self, pieces: Sequence[bytes | memoryview], length: int, sequence: int, head_offset: int = 0) -> bool:
        """Copy a record of `length` bytes in, what is staged and then `pieces`, and publish it.

        The last piece is the record's head, which begins at `head_offset`. False, and nothing happened, where there is
        no room.

        Raises:
            ValueError: the record is larger than `largest_record_bytes`.
        """
        if length > self.largest_record_bytes:
            raise ValueError(f"a record of {length} bytes: expected at most {self.largest_record_bytes}")
        words, capacity_bytes = self._words, self.capacity_bytes
        head = words[self._head]
        tail = words[self._tail]
        taken_bytes = HEADER_BYTES + length + -length % ALIGNMENT_BYTES
        begin = head % capacity_bytes
        if head == tail and begin > RESTART_BYTES and not self.staged_bytes and taken_bytes <= begin:
            head, begin = self._pad(head), 0
        end = head + taken_bytes
        if end - tail > capacity_bytes:
            return False
        data, start = self.data, begin + HEADER_BYTES
        body_crc: int | None = 0
        if head_offset or self.staged_bytes:
            offset = start + self.staged_bytes
            for piece in pieces:
                stop = offset + len(piece)
                data[offset:stop] = piece
                offset = stop
            body_crc = crc32c(data[start : start + head_offset]) if head_offset <= SEALED_BELOW_BYTES else None
        else:  # as mostly: a record without a body; pieces before its head are those of empty arrays
            data[start : start + length] = pieces[-1]
        record.write_header(data, begin, sequence, length, head_offset, pieces[-1], body_crc)
        words[self._head] = end
        self.staged_bytes = 0
        return True

    def unpublish(self, head: int) -> None:
        """Set the head back to an earlier position; only when nobody reads any more."""
        self._words[self._head] = head
        self._padding_end = min(self._padding_end, head)

    def get(self, position: int) -> Chunk | None:
        """Return what was published at `position`, or None where the producer has come no further."""
        while position != self._words[self._head]:
            offset = position % self.capacity_bytes
            length, sequence, head_offset, kind = record.FRONT.unpack_from(self.data, offset)
            start = offset + HEADER_BYTES
            position += HEADER_BYTES + length + -length % ALIGNMENT_BYTES
            if kind != PAD:
                return Chunk(sequence, self.data[start : start + length], head_offset, position)
        return None

    def after_padding(self, position: int) -> int:
        """Return `position`, or the end of the padding there."""
        while position != self._words[self._head]:
            length, _, _, kind = record.FRONT.unpack_from(self.data, position % self.capacity_bytes)
            if kind != PAD:
                break
            position += HEADER_BYTES + length
        return position

    def seal(self) -> None:
        """Add the missing checksums of what is unread: it may be long before it is read.

        Without them a record is good as long as the machine runs.
        """
        words = self.data.cast("Q")
        position = self._words[self._tail]
        while position != self._words[self._head]:
            offset = position % self.capacity_bytes
            header = record.read_header(self.data, offset, self.capacity_bytes)
            if not header.is_sealed:
                start = offset + HEADER_BYTES
                record.seal(words, offset, self.data[start : start + header.head_offset])
            position += header.end

    def release(self, position: int) -> None:
        """Give everything before `position` back to the producer."""
        self._words[self._tail] = position
