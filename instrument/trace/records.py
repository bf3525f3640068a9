"""What the binary raw kinds share: records of a fixed size, found again after bytes were lost, and text messages.

Each record has, at a fixed place, a word that is the same in all of them. When a slice of a file is missing, or bytes
inside of a file, the borders of all later records move, and a reader that goes on counting by the size of a record
reads garbage to the end of the file. `Framer` searches for the next place at which the word recurs at the distance of a
record. A record that alone lacks the word is a damaged one, and files exist of which no record has it: both are read
as they are.

A parser of one raw kind returns what is whole in a damaged file, and counts what is not in its result in `Losses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from instrument.trace.events import Rows
from instrument.trace.text import Buffer, Losses, decode

LEFT_OVER_BYTES = "bytes at the end that are no whole record"
BROKEN_BYTES = "bytes beside a place where others are missing, which are no whole record"
#: This many records in a row must have the word where a new begin is taken, or as many as there are, at least two.
_AGREEING = 4
#: After this many searches in vain the file is taken to have no word.
_MOST_SEARCHES = 4096
_BLOCK_BYTES = 1 << 23


class Word(NamedTuple):
    """A little-endian u16 that all records have, and its offset in the record."""

    value: int
    offset: int


class Framer:
    """Cut buffers that are fed in order into records. Their borders may cut a record; no buffer is kept."""

    def __init__(self, layout: np.dtype[np.void], word: Word, losses: Losses) -> None:
        self._layout, self._losses = layout, losses
        self._size = layout.itemsize
        self._pattern, self._offset = word.value.to_bytes(2, "little"), word.offset
        self._rest = b""
        self._searches = 0
        #: At how many places bytes were missing, up to the records that were yielded last.
        self.breaks = 0

    def feed(self, data: Buffer) -> Iterator[Rows]:
        """Yield whole records; `breaks` grows between two arrays that do not follow each other."""
        for start in range(0, len(data), _BLOCK_BYTES):
            block = data[start : start + _BLOCK_BYTES]
            yield from self._cut(self._rest + bytes(block) if self._rest else block, is_last=False)

    def finish(self) -> Iterator[Rows]:
        """Yield the records that were held back, and count the bytes that are left over."""
        yield from self._cut(self._rest, is_last=True)
        self._losses.add(LEFT_OVER_BYTES, len(self._rest))
        self._rest = b""

    def _cut(self, data: Buffer, is_last: bool) -> Iterator[Rows]:
        """Yield the records of `data` and keep the rest; where too little follows to be sure, that is rest as well."""
        begin = 0
        while True:
            records = np.frombuffer(data, self._layout, (len(data) - begin) // self._size, begin)
            place, next_begin = self._first_break(data, begin, len(records), is_last)
            if len(records[:place]):
                yield records[:place]
            begin += place * self._size
            if next_begin is None:
                self._rest = bytes(data[begin:])
                return
            self._losses.add(BROKEN_BYTES, next_begin - begin)
            self.breaks += 1
            begin = next_begin

    def _first_break(self, data: Buffer, begin: int, count: int, is_last: bool) -> tuple[int, int | None]:
        """Return how many records are good, and where the next ones begin; None if that is not known yet, or the end.

        The record before the first one without the word is no good one: the break may be inside of it.
        """
        for place in self._suspects(data, begin, count):
            if place + _AGREEING >= count and not is_last:
                return max(place - 1, 0), None
            if self._searches >= _MOST_SEARCHES:
                break
            self._searches += 1
            at = begin + place * self._size
            first = max(at - self._size + 1, begin)
            for candidate in self._begins(data, first, at + self._size):
                if (candidate - begin) % self._size:
                    return max(place - 1, 0), candidate
        return count, None

    def _suspects(self, data: Buffer, begin: int, count: int) -> list[int]:
        """Return the records without the word whose next one lacks it as well, or is not there."""
        if not count:
            return []
        first, second = (
            np.frombuffer(data, np.uint8, begin + (count - 1) * self._size + self._offset + byte + 1)[
                begin + self._offset + byte :: self._size
            ]
            for byte in (0, 1)
        )
        is_bad = (first != self._pattern[0]) | (second != self._pattern[1])
        places: list[int] = np.flatnonzero(is_bad & np.append(is_bad[1:], True)).tolist()
        return places

    def _begins(self, data: Buffer, first: int, stop: int) -> Iterator[int]:
        """Yield the places from `first` to `stop` at which the word recurs at the distance of a record."""
        window = bytes(data[first + self._offset : stop + self._offset + 1])
        offset = window.find(self._pattern)
        while offset >= 0:
            place = first + offset
            words = [
                bytes(data[at : at + 2]) for at in range(place + self._offset, len(data) - 1, self._size)[:_AGREEING]
            ]
            if len(words) > 1 and all(word == self._pattern for word in words):
                yield place
            offset = window.find(self._pattern, offset + 1)


def framed(data: Buffer, layout: np.dtype[np.void], word: Word, losses: Losses) -> Rows:
    """Return the whole records of `data`; those with the wrong word among them."""
    framer = Framer(layout, word, losses)
    parts = [*framer.feed(data), *framer.finish()]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, layout), *parts])


#: The bytes of a raw file, or its pieces in order; a record may lie across their borders.
Chunks = Buffer | Iterable[Buffer]

#: The first two bytes of each record of the binary forms that the host writes.
MAGIC = b"\x5a\x5a"
MAGIC_WORD = 0x5A5A

NO_MAGIC = "records without the magic number"
TOO_LARGE = "records with a counter that is no time"
UNKNOWN_LINES = "lines of unknown form"
UNKNOWN_MESSAGES = "messages of unknown form"
UNKNOWN_RECORDS = "records of unknown type"

#: No text of ours is longer: such a one is garbage, and not worth a regular expression's time.
_LONGEST_TEXT_BYTES = 1 << 16
_INT64_DIGITS, _INT64_LIMIT = 19, 1 << 63


def records(data: Buffer, layout: np.dtype[np.void], losses: Losses) -> Rows:
    """The whole records of `data`, without a copy."""
    count, left_over = divmod(len(data), layout.itemsize)
    losses.add(LEFT_OVER_BYTES, left_over)
    return np.frombuffer(data, layout, count) if count else np.empty(0, layout)


def with_magic(data: Buffer, layout: np.dtype[np.void], losses: Losses) -> Rows:
    """Return the records of `data` whose first field, "magic", is as it should be; no copy if they all are."""
    rows = framed(data, layout, Word(MAGIC_WORD, 0), losses)
    good = rows["magic"] == MAGIC_WORD
    losses.add(NO_MAGIC, len(rows) - int(np.count_nonzero(good)))
    return rows if good.all() else np.asarray(rows[good])


def joined(data: Chunks) -> Buffer:
    """Return all of a raw file in one piece."""
    return data if isinstance(data, bytes | memoryview) else b"".join(data)


def pieces(data: Chunks) -> Iterator[Buffer]:
    """Iterate over the pieces of a raw file."""
    return iter((data,)) if isinstance(data, bytes | memoryview) else iter(data)


def is_binary(data: Buffer) -> bool:
    """Return True for records, in a file that may hold text or records."""
    return bytes(data[:2]) == MAGIC


def messages(data: Buffer, losses: Losses) -> Iterator[str]:
    """Yield the text messages, each of which ends with NUL, without the blanks around them."""
    return _texts(data, b"\0", losses, UNKNOWN_MESSAGES)


def lines(data: Buffer, losses: Losses) -> Iterator[str]:
    """Yield the lines that hold anything, each of which ends with a line feed, without the blanks around them."""
    return _texts(data, b"\n", losses, UNKNOWN_LINES)


def _texts(data: Buffer, end: bytes, losses: Losses, unknown: str) -> Iterator[str]:
    *texts, rest = bytes(data).split(end)
    losses.add(LEFT_OVER_BYTES, len(rest))
    for text in texts:
        if len(text) > _LONGEST_TEXT_BYTES:
            losses.add(unknown)
        elif stripped := decode(text).strip():
            yield stripped


def integer(text: str) -> int | None:
    """Return a whole number without a sign that an int64 holds, or None for anything else."""
    if len(text) > _INT64_DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    value = int(text)
    return value if value < _INT64_LIMIT else None
