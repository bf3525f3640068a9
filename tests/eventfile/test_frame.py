"""Frames: one table of payloads and bytes, written once and read three ways; then damage."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from instrument.errors import CorruptFrame
from instrument.eventfile import frame
from instrument.eventfile.crc import masked_crc

#: Checksums computed by the definition (`bitwise_crc32c` of test_crc.py); our files begin with a frame like the last.
FRAMES = [
    (b"", "0000000000000000 29039807 d8ea82a2"),
    (b"a", "0100000000000000 0175de41 61 786ee428"),
    (b"\x00\xff\x80", "0300000000000000 b099490e 00ff80 bb6d851b"),
    (
        b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x1a\x11MindSpore.Event:1",
        "1c00000000000000 c8c1951d 09000000000000f03f1a114d696e6453706f72652e4576656e743a31 608be477",
    ),
]


def framed(payload: bytes) -> bytes:
    return b"".join(frame.pack([payload]))


def header(length: int) -> bytes:
    """A header with the right checksum."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc([packed]))


@pytest.mark.parametrize(("payload", "text"), FRAMES)
def test_pack_gives_these_bytes(payload: bytes, text: str) -> None:
    """A frame is length, checksum, payload, checksum, little endian."""
    assert framed(payload) == bytes.fromhex(text)
    assert frame.head(len(payload)) == bytes.fromhex(text)[:12]


@pytest.mark.parametrize(("payload", "text"), FRAMES)
def test_unpack_reads_a_whole_frame(payload: bytes, text: str) -> None:
    """The payload comes back with the offset behind the frame."""
    data = bytes.fromhex(text)
    assert frame.unpack(data) == (payload, len(data))


@pytest.mark.parametrize(("payload", "text"), FRAMES)
def test_unpack_wants_more_until_the_last_byte(payload: bytes, text: str) -> None:
    """Each proper prefix of a frame answers None, with or without bytes before it."""
    data = bytes.fromhex(text)
    assert [frame.unpack(data[:size]) for size in range(len(data))] == [None] * len(data)
    assert [frame.unpack(b"xyz" + data[:size], 3) for size in range(len(data))] == [None] * len(data)


@pytest.mark.parametrize(("payload", "text"), FRAMES)
def test_unpack_leaves_what_follows(payload: bytes, text: str) -> None:
    """Bytes behind the frame take no part, be they a frame or not."""
    data = bytes.fromhex(text)
    assert frame.unpack(data + b"\xff") == (payload, len(data))
    assert frame.unpack(data + data, len(data)) == (payload, 2 * len(data))


def test_pack_takes_any_pieces() -> None:
    """A payload in pieces gives the same bytes as the whole, and the pieces are not copied."""
    piece = memoryview(b"b" * 5)
    pieces = frame.pack([b"aa", b"", piece])
    assert b"".join(pieces) == framed(b"aabbbbb")
    assert pieces[3] is piece


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        (0, "the checksum of the length is wrong"),
        (7, "the checksum of the length is wrong"),
        (8, "the checksum of the length is wrong"),
        (11, "the checksum of the length is wrong"),
        (12, "the checksum of the payload is wrong"),
        (14, "the checksum of the payload is wrong"),
        (15, "the checksum of the payload is wrong"),
        (18, "the checksum of the payload is wrong"),
    ],
)
def test_a_wrong_byte_is_told_with_its_frame(position: int, reason: str) -> None:
    """Damage names the checksum that is wrong and the offset at which the frame begins."""
    damaged = bytearray(framed(b"first") + framed(b"abc"))
    damaged[21 + position] ^= 0x10
    data = bytes(damaged)
    assert frame.unpack(data) == (b"first", 21)
    with pytest.raises(CorruptFrame, match=f"at byte 21: {reason}") as caught:
        frame.unpack(data, 21)
    assert (caught.value.offset, caught.value.reason, caught.value.path) == (21, reason, "")


@pytest.mark.parametrize("length", [2**31, 2**33, 2**62, 2**63, 2**64 - 1])
def test_a_huge_length_with_its_checksum_allocates_nothing(length: int) -> None:
    """A length that is not there yet is an unfinished frame, whatever it claims."""
    data = header(length) + bytes(1000)
    tracemalloc.start()
    assert frame.unpack(data) is None
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize("length", [2**62, 2**64 - 1])
def test_a_huge_length_without_its_checksum_is_damage(length: int) -> None:
    """A length is not believed before its checksum holds."""
    with pytest.raises(CorruptFrame, match="length"):
        frame.unpack(struct.pack("<QI", length, 0) + bytes(100))
