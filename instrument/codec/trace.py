"""Pieces of a device trace: a message of ours in field 100 of an event.

Fields: 1 window, 2 kind, 3 device, 4 name, 5 offset, 6 total_bytes, 7 data; an absent one is 0 or empty. Data are at
most `CHUNK_BYTES`, so that no limit of a reader is met and a file that is cut loses its end only.
"""

from __future__ import annotations

from instrument.codec import wire
from instrument.errors import CorruptMessage
from instrument.values import Trace

CHUNK_BYTES = 1 << 20

_WINDOW, _KIND, _DEVICE, _NAME, _OFFSET, _TOTAL_BYTES, _DATA = range(1, 8)


def encode(piece: Trace) -> bytes:
    """The message, as the payload of an `Item` of the kind "trace".

    Raises:
        ValueError: more data than a piece may have.
    """
    if len(piece.data) > CHUNK_BYTES:
        raise ValueError(f"a piece of {piece.name} has {len(piece.data)} bytes; expected at most {CHUNK_BYTES}")
    head = (
        wire.integer(_WINDOW, piece.window),
        wire.delimited(_KIND, piece.kind.encode()),
        wire.integer(_DEVICE, piece.device),
        wire.delimited(_NAME, piece.name.encode("utf-8", "surrogateescape")),
        wire.integer(_OFFSET, piece.offset),
        wire.integer(_TOTAL_BYTES, piece.total_bytes),
    )
    return b"".join((*head, *wire.delimited_pieces(_DATA, [piece.data])))


def decode(data: memoryview) -> Trace:
    """The piece; its data are a view of `data`.

    Raises:
        CorruptMessage: the message is none, or its numbers contradict each other.
    """
    numbers = {_WINDOW: 0, _DEVICE: 0, _OFFSET: 0, _TOTAL_BYTES: 0}
    texts = {_KIND: "", _NAME: ""}
    content = memoryview(b"")
    for field in wire.fields(data):
        if field[0] in numbers:
            numbers[field[0]] = wire.as_int(field)
        elif field[0] in texts:
            texts[field[0]] = wire.as_text(field)
        elif field[0] == _DATA:
            content = wire.as_bytes(field)
    window, device, offset, total_bytes = numbers.values()
    if window < 0 or offset < 0 or offset + len(content) > total_bytes:
        raise CorruptMessage(
            f"a piece of {texts[_NAME]!r} claims {len(content)} bytes at {offset} of {total_bytes} in window {window}"
        )
    return Trace(window, texts[_KIND], device, texts[_NAME], offset, total_bytes, content)
