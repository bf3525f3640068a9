"""The wire format's primitives: written, read back, and fed with bytes that are none."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from instrument.codec import wire
from instrument.errors import CorruptMessage, InstrumentError

VARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**31 - 1, "ffffffff07"),
    (2**32, "8080808010"),
    (2**63 - 1, "ffffffffffffffff7f"),
    (-1, "ffffffffffffffffff01"),
    (-2, "feffffffffffffffff01"),
    (-(2**31), "80808080f8ffffffff01"),
    (-(2**63), "80808080808080808001"),
]


@pytest.mark.parametrize(("value", "text"), VARINTS)
def test_varints(value: int, text: str) -> None:
    """An int64 is these bytes, and these bytes are the int64, whatever stands before and behind them."""
    encoded = bytes.fromhex(text)
    assert wire.varint(value) == encoded
    unsigned, end = wire.read_varint(memoryview(b"\x80" + encoded + b"\x7f"), 1)
    assert (wire.signed(unsigned), end) == (value, 1 + len(encoded))


def test_the_largest_unsigned_number() -> None:
    """2**64 - 1 is read as such; as an int64 it is -1."""
    assert wire.read_varint(memoryview(wire.varint(2**64 - 1)), 0) == (2**64 - 1, 10)
    assert wire.signed(2**64 - 1) == -1


def test_a_varint_may_be_longer_than_it_must() -> None:
    """Needless zero groups are allowed, up to ten bytes."""
    assert wire.read_varint(memoryview(bytes.fromhex("81808080808080808000")), 0) == (1, 10)


@pytest.mark.parametrize("text", ["", "80", "ffffffffffffffffff", "ffffffffffffffffffff", "80" * 10 + "01", "80" * 100])
def test_a_varint_that_does_not_end_is_corrupt(text: str) -> None:
    """Neither the end of the data nor ten bytes without an end are a number."""
    with pytest.raises(CorruptMessage, match="does not end"):
        wire.read_varint(memoryview(bytes.fromhex(text)), 0)


def test_fields_in_order_with_their_content() -> None:
    """Each encoder's field is read as its number, its wire type and its content."""
    message = (
        wire.integer(1, -5)
        + wire.double(2, 0.1)
        + wire.delimited(3, b"abc")
        + wire.key(4, wire.FIXED32)
        + struct.pack("<f", 1.5)
        + wire.integer(536_870_911, 7)
        + wire.delimited(3, b"")
    )
    fields = list(wire.fields(memoryview(message)))
    assert [(number, wire_type) for number, wire_type, _ in fields] == [
        (1, 0),
        (2, 1),
        (3, 2),
        (4, 5),
        (536_870_911, 0),
        (3, 2),
    ]
    assert wire.as_int(fields[0]) == -5
    assert wire.number_in(memoryview(bytes(fields[1][2]))) == 0.1
    assert wire.as_bytes(fields[2]) == b"abc"
    assert wire.number_in(memoryview(bytes(fields[3][2]))) == 1.5
    assert wire.as_int(fields[4]) == 7
    assert wire.as_text(fields[5]) == ""


def test_pieces_are_the_same_bytes_uncopied() -> None:
    """A field in pieces is the field of their concatenation; the pieces themselves are handed on."""
    piece = memoryview(b"x" * 200)
    pieces = wire.delimited_pieces(15, [b"abc", piece])
    assert b"".join(pieces) == wire.delimited(15, b"abc" + b"x" * 200)
    assert pieces[2] is piece
    assert wire.size(pieces) == 1 + 2 + 203


@pytest.mark.parametrize("value", [0.0, -0.0, 1e308, 5e-324, math.inf, -math.inf])
def test_doubles_are_exact(value: float) -> None:
    """A double comes back bit for bit."""
    ((_, _, content),) = wire.fields(memoryview(wire.double(9, value)))
    assert isinstance(content, memoryview)
    assert struct.pack("<d", wire.number_in(content)) == struct.pack("<d", value)


def test_text_keeps_bytes_that_are_no_text() -> None:
    """Bytes that are not UTF-8 come back as surrogates, from which they can be had again."""
    (field,) = wire.fields(memoryview(wire.delimited(1, b"caf\xc3\xa9 \xff")))
    text = wire.as_text(field)
    assert text == "café \udcff"
    assert text.encode("utf-8", "surrogateescape") == b"caf\xc3\xa9 \xff"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("00", "number 0"),
        ("0700", "number 0"),
        ("0b", "wire type 3"),
        ("0c", "wire type 4"),
        ("0e00", "wire type 6"),
        ("0f00", "wire type 7"),
        ("08", "does not end"),
        ("80", "does not end"),
        ("0880", "does not end"),
        ("ffffffffffffffffffff01", "does not end"),
        ("0a", "does not end"),
        ("0a01", "claims 1 bytes where 0 are left"),
        ("0a05 61626364", "claims 5 bytes where 4 are left"),
        ("0affffffffffffffff7f 61", "claims 9223372036854775807 bytes"),
        ("0affffffffffffffffff01 61", "claims 18446744073709551615 bytes"),
        ("09 00000000000000", "claims 8 bytes where 7 are left"),
        ("0d 000000", "claims 4 bytes where 3 are left"),
    ],
)
def test_hostile_bytes_are_corrupt(text: str, reason: str) -> None:
    """Groups, field 0, unknown wire types and lengths past the end are told as what they are."""
    with pytest.raises(CorruptMessage, match=reason):
        list(wire.fields(memoryview(bytes.fromhex(text))))


def test_a_message_cut_anywhere_is_corrupt_or_a_prefix() -> None:
    """Cut between fields, a message is its first fields; cut inside one, it is corrupt."""
    parts = [wire.integer(1, 300), wire.double(2, 1.0), wire.delimited(3, b"abc"), wire.delimited(200, bytes(130))]
    message = b"".join(parts)
    ends = [sum(map(len, parts[:count])) for count in range(len(parts) + 1)]
    for size in range(len(message) + 1):
        view = memoryview(message)[:size]
        if size in ends:
            assert len(list(wire.fields(view))) == ends.index(size)
        else:
            with pytest.raises(CorruptMessage):
                list(wire.fields(view))


def test_random_bytes_raise_nothing_else(rng: np.random.Generator) -> None:
    """Whatever the bytes are, they are fields or a corrupt message."""
    for _ in range(3000):
        data = memoryview(rng.bytes(int(rng.integers(0, 24))))
        try:
            fields = list(wire.fields(data))
        except CorruptMessage:
            continue
        assert all(number > 0 and wire_type in (0, 1, 2, 5) for number, wire_type, _ in fields)


@pytest.mark.parametrize(
    ("reader", "right"),
    [
        (wire.as_int, wire.VARINT),
        (wire.as_bytes, wire.LENGTH_DELIMITED),
        (wire.as_text, wire.LENGTH_DELIMITED),
    ],
)
def test_a_field_of_another_wire_type_is_corrupt(reader: object, right: int) -> None:
    """A content is never read as what it is not."""
    contents = {0: 1, 1: memoryview(bytes(8)), 2: memoryview(b"abcd"), 5: memoryview(bytes(4))}
    assert callable(reader)
    for wire_type, content in contents.items():
        if wire_type == right:
            reader((6, wire_type, content))
        else:
            with pytest.raises(CorruptMessage, match=f"field 6 has wire type {wire_type}"):
                reader((6, wire_type, content))


def test_a_corrupt_message_is_ours_and_a_value_error() -> None:
    """Who catches our errors, or any wrong value, catches this one."""
    assert issubclass(CorruptMessage, InstrumentError)
    assert issubclass(CorruptMessage, ValueError)
