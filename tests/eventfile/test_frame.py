"""Frames: one table of payloads and bytes, written once and read three ways; then damage."""

from __future__ import annotations

import struct
import time
import tracemalloc

import numpy as np
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
    assert frame.find(data, 0) == len(data)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize("length", [2**62, 2**64 - 1])
def test_a_huge_length_without_its_checksum_is_damage(length: int) -> None:
    """A length is not believed before its checksum holds."""
    with pytest.raises(CorruptFrame, match="length"):
        frame.unpack(struct.pack("<QI", length, 0) + bytes(100))


@pytest.mark.parametrize("damage", [b"\x01", b"\x00" * 5, b"\xff" * 17, framed(b"abc")[:-1], framed(b"abc")[1:]])
def test_find_gives_the_next_frame(damage: bytes) -> None:
    """The search starts at its offset and stops at the first valid frame, an empty one too."""
    for payload in (b"", b"x", b"payload"):
        data = framed(b"before") + damage + framed(payload) + framed(b"later")
        assert frame.find(data, 0) == 0
        assert frame.find(data, 1) == len(framed(b"before") + damage)


def test_find_passes_over_a_frame_with_a_wrong_payload() -> None:
    """A header alone, even with its checksum, is no frame."""
    damaged = bytearray(framed(b"abc"))
    damaged[13] ^= 1
    assert frame.find(bytes(damaged) + framed(b"d"), 0) == len(damaged)


def test_find_says_the_end_where_there_is_no_frame() -> None:
    """Without a frame the answer is the length of the data, also for data shorter than any frame."""
    assert [frame.find(bytes(size), 0) for size in (0, 1, 15, 16, 17, 1000)] == [0, 1, 15, 16, 17, 1000]
    assert frame.find(framed(b"abc"), 1) == len(framed(b"abc"))
    assert frame.find(b"abc", 10) == 3


@pytest.mark.parametrize(
    "filling",
    [
        np.zeros(1 << 20, np.float32),
        np.random.default_rng(1).standard_normal(1 << 20).astype(np.float32),
        np.random.default_rng(2).integers(0, 1000, 1 << 19),  # every second offset looks like a length
        np.random.default_rng(3).integers(0, 2, 1 << 22).astype(np.uint8),
    ],
    ids=["zeros", "floats", "small int64", "mask"],
)
def test_find_is_quick_in_large_damage(filling: np.ndarray) -> None:
    """Four megabytes of array data are searched in a fraction of a second, up to the frame behind them."""
    data = b"\x07" + filling.tobytes() + framed(b"next")
    start = time.perf_counter()
    assert frame.find(data, 0) == len(data) - 20
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("position", [0, 3, (1 << 20) - 8, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) - 5])
def test_find_sees_frames_across_the_parts_it_searches(position: int) -> None:
    """A frame is found wherever it lies, also where the search goes on in the next part."""
    data = b"\xee" * position + framed(b"here") + b"\xee" * 50
    assert frame.find(data, 0) == position
    assert frame.find(b"\xee" * position + framed(b""), 0) == position  # the last place where one can stand


def test_resume_passes_over_frames_inside_a_damaged_payload() -> None:
    """A payload that holds frames itself does not become frames of the file by damage beside them."""
    recorded_file = framed(b"not ours") * 3
    damaged = bytearray(framed(b"head" + recorded_file))
    damaged[13] ^= 1
    for behind in (b"", framed(b"next"), framed(b"next")[:5], framed(b"next")[:15]):
        assert frame.resume(bytes(damaged) + behind, 0) == len(damaged)


def test_resume_does_not_trust_a_length_that_leads_nowhere() -> None:
    """Where bytes were lost inside a payload, the next frame lies before the end that the length claims."""
    whole = framed(bytes(range(100)))
    data = whole[:50] + framed(b"next") * 10
    assert frame.resume(data, 0) == 50


def test_resume_after_a_wrong_length_finds_the_next_frame() -> None:
    """Without a length there is only the search."""
    data = b"\x02" + framed(b"abc")[1:] + framed(b"next")
    assert frame.resume(data, 0) == 19
    assert frame.resume(b"short", 0) == 5
