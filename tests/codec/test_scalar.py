"""Scalars: the nearest float32 for MindInsight, and the exact double wherever that differs."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

from instrument.codec import event, outline, scalar, wire
from instrument.values import Event, Scalar, ScalarItem
from tests import protobuf

BORDER = 3.4028235677973366e38  # halfway between the largest float32 and the next power of two
EDGES = [
    0.0, -0.0, 1.0, 0.1, 1 / 3, 16777216.0, 16777217.0, 16777218.0, 16777219.0, 1e300, -1e300, 1.7976931348623157e308,
    3.4028234663852886e38, math.nextafter(BORDER, 0), BORDER, math.nextafter(BORDER, math.inf), -BORDER,
    math.nextafter(-BORDER, 0), 1.1754943508222875e-38, 1.1754942106924411e-38, 1.401298464324817e-45,
    7.006492321624085e-46, math.nextafter(7.006492321624085e-46, 1), 2.1e-45, 5e-324, -5e-324,
    1 + 2**-24, 1 + 3 * 2**-24, 1 + 2**-24 + 2**-50, 1 - 2**-25, math.inf, -math.inf,
]  # fmt: skip


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def round_trip(value: float) -> float:
    """The value as our reader has it out of a whole event."""
    (payload,) = event.encode(Event.of(3, 1.5, (ScalarItem("loss", value),)))
    (record,) = outline.records(memoryview(b"".join(payload)))
    assert (record.step, record.wall_time, record.kind, record.tag) == (3, 1.5, "scalar", "loss")
    assert isinstance(record.value, Scalar)
    return record.value.value


@pytest.mark.parametrize("value", EDGES)
def test_float32_is_numpys(value: float) -> None:
    """The float is the nearest one, ties to even, an infinity beyond the largest: as NumPy rounds."""
    with np.errstate(over="ignore"):
        assert bits(scalar.to_float32(value)) == bits(float(np.float32(value)))


def test_float32_of_random_doubles_is_numpys(rng: np.random.Generator) -> None:
    """Any bit pattern of a double, and any number close to a tie, rounds as NumPy rounds."""
    patterns = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    singles = rng.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        ties = (singles.astype(np.float64) + np.nextafter(singles, np.float32(0)).astype(np.float64)) / 2
        values = np.concatenate([patterns, ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf)])
        values = values[~np.isnan(values)]
        expected = values.astype(np.float32).astype(np.float64)
    got = np.array([scalar.to_float32(value) for value in values.tolist()])
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("value", EDGES)
def test_a_scalar_comes_back_exactly(value: float) -> None:
    """Every double that is recorded is read back bit for bit."""
    assert bits(round_trip(value)) == bits(value)


def test_random_doubles_come_back_exactly(rng: np.random.Generator) -> None:
    """So does any bit pattern that is a number."""
    values = rng.integers(0, 2**64, 500, dtype=np.uint64).view(np.float64)
    for value in values[~np.isnan(values)].tolist():
        assert bits(round_trip(value)) == bits(value)


def test_nan_comes_back_as_nan() -> None:
    """A loss that diverged stays visible."""
    assert math.isnan(scalar.to_float32(math.nan))
    assert math.isnan(round_trip(math.nan))
    assert len(scalar.encode_field("", math.nan)) == 2 + 2 + 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1d 0000c03f"),
        (-0.0, "1d 00000080"),
        (math.inf, "1d 0000807f"),
        (0.1, "1d cdcccc3d a106 9a9999999999b93f"),
        (16777217.0, "1d 0000804b a106 0000001000007041"),
        (1e300, "1d 0000807f a106 9c7500883ce4377e"),
        (5e-324, "1d 00000000 a106 0100000000000000"),
    ],
)
def test_the_exact_double_stands_beside_only_where_it_differs(value: float, text: str) -> None:
    """Field 3 holds the float; field 100 the double where the float is another number. The tag stands before them."""
    content = b"\x0a\x04loss" + bytes.fromhex(text)
    assert scalar.encode_field("loss", value) == bytes([0x0A, len(content)]) + content


@pytest.mark.parametrize("tag", ["", "x", "准确率", "x" * 113, "x" * 114, "x" * 127, "x" * 128, "x" * 5000])
@pytest.mark.parametrize("value", [1.5, 0.1])
def test_a_tag_of_any_length(tag: str, value: float) -> None:
    """It is what the message classes write, wherever a length takes another byte; the same the second time."""
    message = protobuf.message_class("Summary")()
    message.value.add(tag=tag, scalar_value=value)
    for _ in range(2):
        data = scalar.encode_field(tag, value)
        found = protobuf.message_class("Summary").FromString(data)
        assert found.SerializeToString(deterministic=True) == data
        found.DiscardUnknownFields()
        assert found == message


def test_more_tags_than_are_remembered() -> None:
    """Each number stands under its own tag."""
    for _ in range(2):
        for index in range(5000):
            assert scalar.encode_field(f"tag{index}", 1.0)[4:-5] == f"tag{index}".encode()


@pytest.mark.parametrize("tag", ["\udcff", "a\ud800b"])
def test_a_tag_that_is_no_text(tag: str) -> None:
    """Half a surrogate pair has no bytes in a file."""
    with pytest.raises(UnicodeEncodeError):
        scalar.encode_field(tag, 1.0)


@pytest.mark.parametrize("value", [None, "1", b"1"])
def test_what_is_no_number(value: Any) -> None:
    """Nothing is written in its place."""
    with pytest.raises(struct.error):
        scalar.encode_field("loss", value)


@pytest.mark.parametrize("value", [0, 3, -7, True, 2**24 + 1, 2**53, -(2**62)])
def test_integers_are_scalars_too(value: int) -> None:
    """An int that a double holds comes back as that number."""
    assert round_trip(value) == value


def test_a_file_without_the_exact_double_gives_the_float() -> None:
    """MindSpore writes the float alone."""
    field = wire.delimited(1, wire.delimited(1, b"loss") + wire.key(3, wire.FIXED32) + struct.pack("<f", 0.1))
    (record,) = outline.records(memoryview(wire.delimited(5, field)))
    assert record.value == Scalar(0.10000000149011612)
