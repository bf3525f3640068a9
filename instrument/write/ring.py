"""A byte ring in shared memory with one producer and one consumer.

Head and tail are positions that only grow; each is written by one side with a single aligned 64-bit store, so the other
side sees either the old or the new one. The data is mapped twice in a row (`memory.py`), so a record is contiguous
wherever it begins. The producer fills the room behind the head first and publishes it with the store to the head;
whatever it did before that never happened if it dies. `stage` uses that: parts of the next record are put where they
will be read long before the rest of it is known.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT_BYTES = 64
_RECORD = struct.Struct("=QQQ")  # payload bytes, sequence number, where in the payload its head begins


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
        self.largest_record_bytes = self.capacity_bytes - ALIGNMENT_BYTES
        #: Bytes of the next record's payload that are in place already.
        self.staged_bytes = 0

    @property
    def head(self) -> int:
        return self._words[self._head]

    @property
    def tail(self) -> int:
        return self._words[self._tail]

    @property
    def unread_bytes(self) -> int:
        return self._words[self._head] - self._words[self._tail]

    def stage(self, piece: memoryview) -> memoryview | None:
        """Put a piece of the next record in place and return it there; None where there is no room now."""
        length = len(piece)
        if not self.has_room(length):
            return None
        staged_bytes = self.staged_bytes
        start = self._words[self._head] % self.capacity_bytes + ALIGNMENT_BYTES + staged_bytes
        place = self.data[start : start + length]
        place[:] = piece
        self.staged_bytes = staged_bytes + length + -length % ALIGNMENT_BYTES
        return place

    def may_stage(self, length: int) -> bool:
        """Whether there would be room for it in an empty ring."""
        return ALIGNMENT_BYTES + self.staged_bytes + length + -length % ALIGNMENT_BYTES <= self.capacity_bytes

    def has_room(self, length: int) -> bool:
        """Whether `stage` would have room for it now."""
        words = self._words
        end = words[self._head] + ALIGNMENT_BYTES + self.staged_bytes + length + -length % ALIGNMENT_BYTES
        return end - words[self._tail] <= self.capacity_bytes

    def put(self, pieces: Sequence[bytes | memoryview], length: int, sequence: int, head_offset: int = 0) -> bool:
        """Copy a record of `length` bytes in, what is staged and then `pieces`, and publish it.

        False, and nothing happened, where there is no room.

        Raises:
            ValueError: the record is larger than `largest_record_bytes`.
        """
        if length > self.largest_record_bytes:
            raise ValueError(f"a record of {length} bytes: expected at most {self.largest_record_bytes}")
        words, capacity_bytes = self._words, self.capacity_bytes
        head = words[self._head]
        end = head + ALIGNMENT_BYTES + length + -length % ALIGNMENT_BYTES
        if end - words[self._tail] > capacity_bytes:
            return False
        data, offset = self.data, head % capacity_bytes
        _RECORD.pack_into(data, offset, length, sequence, head_offset)
        offset += ALIGNMENT_BYTES + self.staged_bytes
        for piece in pieces:
            stop = offset + len(piece)
            data[offset:stop] = piece
            offset = stop
        words[self._head] = end
        self.staged_bytes = 0
        return True

    def get(self, position: int) -> Chunk | None:
        """What was published at `position`, or None where the producer has come no further."""
        if position == self._words[self._head]:
            return None
        offset = position % self.capacity_bytes
        length, sequence, head_offset = _RECORD.unpack_from(self.data, offset)
        start = offset + ALIGNMENT_BYTES
        end = position + ALIGNMENT_BYTES + length + -length % ALIGNMENT_BYTES
        return Chunk(sequence, self.data[start : start + length], head_offset, end)

    def release(self, position: int) -> None:
        """Give everything before `position` back to the producer."""
        self._words[self._tail] = position
