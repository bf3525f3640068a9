"""What the binary raw kinds share: arrays of fixed-size little-endian records, and text messages that end with NUL.

A parser of one raw kind gives what is whole in a damaged file; what is not in its result is counted in `Losses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from instrument.trace.events import Rows
from instrument.trace.framing import LEFT_OVER_BYTES as LEFT_OVER_BYTES
from instrument.trace.framing import Word, framed
from instrument.trace.text import Buffer, Losses, decode

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
    """The records of `data` whose field "magic", their first, is what it should be, without a copy if they all are."""
    found = framed(data, layout, Word(MAGIC_WORD, 0), losses)
    good = found["magic"] == MAGIC_WORD
    losses.add(NO_MAGIC, len(found) - int(np.count_nonzero(good)))
    return found if good.all() else np.asarray(found[good])


def joined(data: Chunks) -> Buffer:
    """All of a raw file in one piece."""
    return data if isinstance(data, bytes | memoryview) else b"".join(data)


def pieces(data: Chunks) -> Iterator[Buffer]:
    """A raw file piece by piece."""
    return iter((data,)) if isinstance(data, bytes | memoryview) else iter(data)


def is_binary(data: Buffer) -> bool:
    """Return True for records, in a file that may hold text or records."""
    return bytes(data[:2]) == MAGIC


def messages(data: Buffer, losses: Losses) -> Iterator[str]:
    """The text messages, each of which ends with NUL, without the blanks around them."""
    return _texts(data, b"\0", losses, UNKNOWN_MESSAGES)


def lines(data: Buffer, losses: Losses) -> Iterator[str]:
    """The lines that hold anything, each of which ends with a line feed, without the blanks around them."""
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
    """A whole number without a sign that an int64 holds; None for anything else."""
    if len(text) > _INT64_DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    value = int(text)
    return value if value < _INT64_LIMIT else None
