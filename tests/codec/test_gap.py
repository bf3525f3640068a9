"""Gaps: how many events are missing at a place of a file, in a field that other readers skip."""

from __future__ import annotations

import numpy as np
import pytest

from instrument.codec import event, lifecycle, outline, wire
from instrument.errors import CorruptMessage
from instrument.values import Event, Gap, MessageItem, Record, Scalar
from tests import protobuf

STEP, TIME = 7, 1_700_000_000.5
GAP = Gap(3, 5, 300, "No space left on device")
BYTES = bytes.fromhex("0803 1005 18ac02 2217") + b"No space left on device"


def payloads(*gaps: Gap, **scalars: float) -> list[bytes]:
    items = [MessageItem("gap", "", lifecycle.encode_gap(one)) for one in gaps]
    return [b"".join(pieces) for pieces in event.encode(Event(STEP, TIME, items, scalars))]


def test_its_bytes() -> None:
    """Fields 1 to 4: the events, the first and the last step, the reason; in field 101 of an event."""
    assert lifecycle.encode_gap(GAP) == BYTES
    (payload,) = payloads(GAP)
    head = wire.double(1, TIME) + wire.integer(2, STEP)
    assert payload == head + bytes.fromhex("aa06") + bytes([len(BYTES)]) + BYTES


@pytest.mark.parametrize(
    "value",
    [
        GAP,
        Gap(1, -1, -1, ""),
        Gap(2**63 - 1, 2**63 - 1, -(2**63), "x" * 1000),
        Gap(1, 0, 0, "准确率 \0 \n 😀"),
    ],
)
def test_a_gap_comes_back(value: Gap) -> None:
    """Steps of 64 bits and of either sign, in any order, and any text."""
    assert lifecycle.decode_gap(memoryview(lifecycle.encode_gap(value))) == value
    (payload,) = payloads(value)
    assert list(outline.records(memoryview(payload))) == [Record(STEP, TIME, "gap", "", value)]


def test_a_reason_that_is_no_text_is_escaped() -> None:
    """Half a surrogate pair, as in a path of the system, does not keep a gap from being said."""
    assert lifecycle.decode_gap(memoryview(lifecycle.encode_gap(Gap(1, 2, 3, "a\udcffb")))).reason == "a\\udcffb"


def test_it_stands_before_the_values_of_its_event() -> None:
    """An event of its own, in the same order: what is missing was before."""
    first, second, third = payloads(GAP, Gap(1, 2, 2, "other"), loss=0.5)
    found = [record for one in (first, second, third) for record in outline.records(memoryview(one))]
    assert [record.value for record in found] == [GAP, Gap(1, 2, 2, "other"), Scalar(0.5)]
    assert [record.step for record in found] == [STEP] * 3


def test_mindspores_classes_skip_it() -> None:
    """To the message classes it is an event of a step and a time that holds nothing, and they keep its bytes."""
    (payload,) = payloads(GAP)
    message = protobuf.message_class("Event").FromString(payload)
    assert (message.step, message.wall_time, message.WhichOneof("what")) == (STEP, TIME, None)
    assert message.SerializeToString(deterministic=True) == payload
    message.DiscardUnknownFields()
    assert message == protobuf.message_class("Event")(wall_time=TIME, step=STEP)


def test_fields_that_we_do_not_know_are_passed_over() -> None:
    """Later versions may say more."""
    assert lifecycle.decode_gap(memoryview(BYTES + wire.integer(9, 1) + wire.delimited(10, b"x"))) == GAP


@pytest.mark.parametrize(
    "data",
    [
        b"",
        wire.integer(1, 0),
        wire.integer(1, -1),
        wire.integer(2, 5) + wire.integer(3, 5),
        wire.delimited(1, b"3"),
        wire.double(1, 3.0),
        wire.integer(1, 3) + wire.double(2, 1.0),
        wire.integer(1, 3) + wire.integer(4, 1),
        BYTES[:-1],
        b"\xff" * 20,
        b"\x08",
        b"\x00\x00",
    ],
)
def test_hostile_bytes_are_corrupt(data: bytes) -> None:
    """A gap of no event or of fewer, fields of another type and lengths past the end are none."""
    with pytest.raises(CorruptMessage):
        lifecycle.decode_gap(memoryview(data))


def test_a_gap_that_is_no_message_field_is_corrupt() -> None:
    """A number in field 101 is no gap."""
    with pytest.raises(CorruptMessage):
        list(outline.records(memoryview(wire.integer(101, 1))))


def test_damaged_gaps_raise_nothing_else(rng: np.random.Generator) -> None:
    """Any damage gives a gap of at least one event, or a corrupt message."""
    found = 0
    for _ in range(3000):
        data = bytearray(BYTES[: int(rng.integers(1, len(BYTES) + 1))])
        for position in rng.integers(0, len(data), 2):
            data[position] = int(rng.integers(256))
        try:
            assert lifecycle.decode_gap(memoryview(data)).events >= 1
        except CorruptMessage:
            continue
        found += 1
    assert found > 0
