"""Pieces of a device trace: a message of ours in field 100 of an event; an absent field of it is 0 or empty.

Data are at most `CHUNK_BYTES`, so that no limit of a reader is met and a file that is cut loses its end only.
"""

from __future__ import annotations

from collections.abc import Iterator

from instrument.codec import wire
from instrument.codec.event import TRACE
from instrument.codec.schema import MINDSPORE
from instrument.errors import CorruptMessage
from instrument.values import Trace

CHUNK_BYTES = 1 << 20

_TRACE = MINDSPORE.type("Trace")


def encode(piece: Trace) -> bytes:
    """Return the message, as the payload of an `Item` of the kind "trace".

    Raises:
        ValueError: more data than a piece may have.
    """
    if len(piece.data) > CHUNK_BYTES:
        raise ValueError(f"a piece of {piece.name} has {len(piece.data)} bytes; expected at most {CHUNK_BYTES}")
    return _TRACE.encode(
        window=piece.window,
        kind=piece.kind,
        device=piece.device,
        name=piece.name.encode("utf-8", "surrogateescape"),
        offset=piece.offset,
        total_bytes=piece.total_bytes,
        data=piece.data,
    )


def pieces(payload: memoryview) -> Iterator[Trace]:
    """Iterate over the pieces that an event holds.

    Raises:
        CorruptMessage: the payload is no event, or a piece is damaged.
    """
    for field in wire.fields(payload):
        if field[0] == TRACE:
            yield decode(wire.as_bytes(field))


def decode(data: memoryview) -> Trace:
    """Return the piece; its data are a view of `data`.

    Raises:
        CorruptMessage: the message is none, or its numbers contradict each other.
    """
    message = _TRACE.decode(data)
    piece = Trace(
        message.integer("window"),
        message.text("kind"),
        message.integer("device"),
        message.text("name"),
        message.integer("offset"),
        message.integer("total_bytes"),
        message.data("data"),
    )
    if piece.window < 0 or piece.offset < 0 or piece.offset + len(piece.data) > piece.total_bytes:
        raise CorruptMessage(
            f"a piece of {piece.name!r} claims {len(piece.data)} bytes at {piece.offset} of {piece.total_bytes} "
            f"in window {piece.window}"
        )
    return piece
