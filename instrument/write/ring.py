"""A byte ring in shared memory with one producer and one consumer.

Head and tail are positions that only grow; each is written by one side with a single aligned 64-bit store, so the other
side sees either the old or the new one. A record is contiguous: where it does not fit before the end of the
memory, the rest is padded over. The producer fills a reservation first and publishes it with the store to the head;
whatever it did before that never happened if it dies. A record larger than half of the memory may not fit that way
even into an empty ring: it runs on at the start of the memory, and the consumer joins its two parts.

A record larger than the ring travels in chunks: the first has START, all but the last have MORE. The consumer
releases chunks as it takes them, so a consumer that starts anew drops chunks until the next START.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

CONTROL_BYTES = 256
START, MORE, _PAD = 1, 2, 4

_ALIGNMENT_BYTES = 64
_HEAD, _TAIL = 0, 16  # 64-bit words, on cache lines of their own
_RECORD = struct.Struct("=QQQQ")  # payload bytes, sequence number, flags, bytes of the whole record


class Chunk(NamedTuple):
    """One record or one chunk of a large one, which has `whole_bytes` in all; `end` is the position behind it."""

    sequence: int
    flags: int
    payload: memoryview
    whole_bytes: int
    end: int


class Ring:
    """`memory` holds `CONTROL_BYTES` of control and then the data, a multiple of 64 bytes."""

    def __init__(self, memory: memoryview) -> None:
        self._control = memory[:CONTROL_BYTES].cast("Q")
        self._data = memory[CONTROL_BYTES:]
        self.capacity_bytes = len(self._data)
        if self.capacity_bytes < 4 * _ALIGNMENT_BYTES or self.capacity_bytes % _ALIGNMENT_BYTES:
            raise ValueError(f"a ring of {self.capacity_bytes} bytes: expected a multiple of {_ALIGNMENT_BYTES}")
        #: Records up to this size are contiguous, and fit an empty ring whatever the positions are.
        self.largest_contiguous_bytes = self.capacity_bytes // 2 - 2 * _ALIGNMENT_BYTES
        self.largest_record_bytes = self.capacity_bytes - _ALIGNMENT_BYTES

    @property
    def head(self) -> int:
        return self._control[_HEAD]

    @property
    def tail(self) -> int:
        return self._control[_TAIL]

    def put(
        self,
        pieces: Iterable[bytes | memoryview],
        length: int,
        sequence: int,
        flags: int = START,
        whole_bytes: int | None = None,
    ) -> bool:
        """Copy a record of `length` bytes in and publish it; False, and nothing happened, where there is no room.

        A chunk says how many bytes its record has in all.

        Raises:
            ValueError: the record is larger than `largest_record_bytes`.
        """
        if length > self.largest_record_bytes:
            raise ValueError(f"a record of {length} bytes: expected at most {self.largest_record_bytes}")
        head = self._control[_HEAD]
        need = _ALIGNMENT_BYTES + length + -length % _ALIGNMENT_BYTES
        offset = head % self.capacity_bytes
        before_end = self.capacity_bytes - offset
        is_contiguous = length <= self.largest_contiguous_bytes
        padding = before_end if need > before_end and is_contiguous else 0
        if head + padding + need - self._control[_TAIL] > self.capacity_bytes:
            return False
        data = self._data
        if padding:
            _RECORD.pack_into(data, offset, padding, sequence, _PAD, 0)
            offset = 0
        _RECORD.pack_into(data, offset, length, sequence, flags, length if whole_bytes is None else whole_bytes)
        offset += _ALIGNMENT_BYTES
        for piece in pieces:
            end = offset + len(piece)
            if end <= self.capacity_bytes:
                data[offset:end] = piece
                offset = end
            else:
                offset = self._put_around_the_end(piece, offset)
        self._control[_HEAD] = head + padding + need
        return True

    def _put_around_the_end(self, piece: bytes | memoryview, offset: int) -> int:
        offset %= self.capacity_bytes
        first = min(self.capacity_bytes - offset, len(piece))
        self._data[offset : offset + first] = piece[:first]
        self._data[: len(piece) - first] = piece[first:]
        return (offset + len(piece)) % self.capacity_bytes

    def get(self, position: int) -> Chunk | None:
        """What was published at `position`, or None where the producer has come no further."""
        while position != self._control[_HEAD]:
            offset = position % self.capacity_bytes
            length, sequence, flags, whole_bytes = _RECORD.unpack_from(self._data, offset)
            if flags == _PAD:
                position += length
                continue
            start = offset + _ALIGNMENT_BYTES
            end = position + _ALIGNMENT_BYTES + length + -length % _ALIGNMENT_BYTES
            payload = self._data[start : start + length]
            if len(payload) < length:
                payload = memoryview(b"".join((payload, self._data[: length - len(payload)])))
            return Chunk(sequence, flags, payload, whole_bytes, end)
        return None

    def release(self, position: int) -> None:
        """Give everything before `position` back to the producer."""
        self._control[_TAIL] = position

    def touch(self, start: int, stop: int) -> None:
        """Make the kernel provide the pages of data[start:stop]: their first touch is slow, and better done here."""
        self._data[start : min(stop, self.capacity_bytes) : 4096].tobytes()


def chunks(pieces: list[bytes | memoryview], chunk_bytes: int) -> list[tuple[memoryview, int]]:
    """Views of at most `chunk_bytes` over all pieces, with the flags that mark first and last."""
    views = [
        memoryview(piece)[start : start + chunk_bytes]
        for piece in pieces
        for start in range(0, len(piece), chunk_bytes)
    ]
    last = len(views) - 1
    return [(view, (START if index == 0 else 0) | (MORE if index < last else 0)) for index, view in enumerate(views)]
