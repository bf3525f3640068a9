"""Pieces of a trace: exact bytes, field 100 of an event, and messages that contradict themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from instrument.codec import event, outline, trace, wire
from instrument.errors import CorruptMessage
from instrument.values import Event, MessageItem, Trace
from tests import protobuf

PIECE = Trace(2, "cpu", 1, "data/a", 4, 7, b"\x01\x02\x03")


def decoded(data: bytes) -> Trace:
    return trace.decode(memoryview(data))


def test_a_piece_has_these_bytes() -> None:
    """Fields 1 to 7 in order."""
    expected = b"\x08\x02\x12\x03cpu\x18\x01\x22\x06data/a\x28\x04\x30\x07\x3a\x03\x01\x02\x03"
    assert trace.encode(PIECE) == expected
    assert decoded(expected) == PIECE


def test_random_pieces_come_back(rng: np.random.Generator) -> None:
    """Numbers up to 63 bits, names of any text, any bytes."""
    for _ in range(200):
        data = rng.bytes(int(rng.integers(0, 300)))
        offset = int(rng.integers(0, 1 << 40))
        total = offset + len(data) + int(rng.integers(0, 1 << 40))
        name = "".join(map(chr, rng.integers(33, 0xD000, 8)))
        piece = Trace(int(rng.integers(0, 1 << 20)), "minddata", int(rng.integers(-1, 9)), name, offset, total, data)
        assert decoded(trace.encode(piece)) == piece


def test_data_are_views_of_the_message() -> None:
    assert isinstance(decoded(trace.encode(PIECE)).data, memoryview)


def test_an_empty_file_is_a_piece_without_data() -> None:
    piece = replace(PIECE, offset=0, total_bytes=0, data=b"")
    assert decoded(trace.encode(piece)) == piece
    assert decoded(b"") == Trace(0, "", 0, "", 0, 0, b"")


def test_names_of_any_bytes_come_back() -> None:
    """A file system's names need not be text."""
    piece = replace(PIECE, name="bad \udcff name")
    assert decoded(trace.encode(piece)) == piece


def test_a_piece_is_limited() -> None:
    with pytest.raises(ValueError, match="a piece of data/a has 1048577 bytes; expected at most 1048576"):
        trace.encode(replace(PIECE, data=bytes(trace.CHUNK_BYTES + 1)))


@pytest.mark.parametrize("wrong", [{"offset": -1}, {"window": -1}, {"total_bytes": 6}, {"offset": 5}])
def test_contradictions_are_refused(wrong: dict[str, int]) -> None:
    """A piece lies inside its file."""
    with pytest.raises(CorruptMessage, match="a piece of 'data/a' claims 3 bytes"):
        decoded(trace.encode(replace(PIECE, **wrong)))  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x01x", b"\x3a\x05abc", b"\x28\xff"])
def test_broken_messages_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decoded(data)


def test_an_event_of_its_own_for_each_piece() -> None:
    """Beside whatever else an event has, in field 100, which the schema of MindSpore does not know and skips."""
    items = [
        MessageItem("trace", "data/a", trace.encode(PIECE)),
        MessageItem("trace", "b", trace.encode(replace(PIECE, name="b"))),
    ]
    found = [b"".join(pieces) for pieces in event.encode(Event(0, 1.5, items))]
    assert len(found) == 2
    records = [record for payload in found for record in outline.records(memoryview(payload))]
    assert [(one.step, one.wall_time, one.kind, one.tag) for one in records] == [
        (0, 1.5, "trace", ""),
        (0, 1.5, "trace", ""),
    ]
    assert records[0].value == PIECE
    assert [piece for payload in found for piece in trace.pieces(memoryview(payload))] == [one.value for one in records]
    message = protobuf.message_class("Event")()
    message.ParseFromString(found[0])
    assert (message.wall_time, message.step, message.WhichOneof("what")) == (1.5, 0, None)
    assert {number for number, *_ in wire.fields(memoryview(found[0]))} == {1, 2, 100}
