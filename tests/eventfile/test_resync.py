"""The search for the next frame behind damage."""

from __future__ import annotations

import os
import struct
import tempfile
import time
import tracemalloc

import numpy as np
import pytest

from instrument.eventfile import frame
from instrument.eventfile.access import OpenFile
from instrument.eventfile.crc import masked_crc
from instrument.eventfile.resync import Resync


def framed(payload: bytes) -> bytes:
    return b"".join(frame.pack([payload]))


def header(length: int) -> bytes:
    """A header with the right checksum."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc([packed]))


def search(data: bytes, offset: int, what: str = "find") -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "events")
        with open(path, "wb") as file:
            file.write(data)
        with OpenFile(path) as opened:
            result: int = getattr(Resync(opened, len(data)), what)(offset)
    return result


def find(data: bytes, offset: int) -> int:
    return search(data, offset)


def resume(data: bytes, offset: int) -> int:
    return search(data, offset, "resume")


@pytest.mark.parametrize("length", [2**31, 2**33, 2**62, 2**63, 2**64 - 1])
def test_a_huge_length_with_its_checksum_allocates_nothing(length: int) -> None:
    """A length that reaches past the end is no frame, and takes no memory."""
    data = header(length) + bytes(1000)
    tracemalloc.start()
    assert find(data, 0) == len(data)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize("payload_bytes", [0, 1, 1000, 70_000])
def test_overlapping_headers_cost_linear_time(payload_bytes: int) -> None:
    """Thousands of right headers whose payloads reach over each other are told from the one frame among them."""
    count = 3000
    behind = bytes(count * 12 + 300_000)
    fakes = b"".join(header(count * 12 - 12 * index + 200_000 + index) for index in range(count))
    data = fakes + framed(bytes(payload_bytes)) + behind
    started = time.process_time()
    assert find(data, 0) == len(fakes)
    assert time.process_time() - started < 3


@pytest.mark.parametrize("payload_bytes", [65_537, 70_001, 200_000, 3 << 20])
def test_long_payloads_are_checked_from_the_checksums_of_beginnings(
    payload_bytes: int, rng: np.random.Generator
) -> None:
    """A frame with a long payload is found, and not found when one bit of it is wrong."""
    payload = rng.bytes(payload_bytes)
    data = bytearray(b"junk" + framed(payload) + rng.bytes(10_000))
    assert find(bytes(data), 1) == 4
    position = int(rng.integers(16, 16 + payload_bytes))
    data[position] ^= 1 << int(rng.integers(8))
    assert find(bytes(data), 1) == len(data)


@pytest.mark.parametrize("damage", [b"\x01", b"\x00" * 5, b"\xff" * 17, framed(b"abc")[:-1], framed(b"abc")[1:]])
def test_find_gives_the_next_frame(damage: bytes) -> None:
    """The search starts at its offset and stops at the first valid frame, an empty one too."""
    for payload in (b"", b"x", b"payload"):
        data = framed(b"before") + damage + framed(payload) + framed(b"later")
        assert find(data, 0) == 0
        assert find(data, 1) == len(framed(b"before") + damage)


def test_find_passes_over_a_frame_with_a_wrong_payload() -> None:
    """A header alone, even with its checksum, is no frame."""
    damaged = bytearray(framed(b"abc"))
    damaged[13] ^= 1
    assert find(bytes(damaged) + framed(b"d"), 0) == len(damaged)


def test_find_says_the_end_where_there_is_no_frame() -> None:
    """Without a frame the answer is the length of the data, also for data shorter than any frame."""
    assert [find(bytes(size), 0) for size in (0, 1, 15, 16, 17, 1000)] == [0, 1, 15, 16, 17, 1000]
    assert find(framed(b"abc"), 1) == len(framed(b"abc"))
    assert find(b"abc", 10) == 3


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
    started = time.process_time()
    assert find(data, 0) == len(data) - 20
    assert time.process_time() - started < 2


@pytest.mark.parametrize("position", [0, 3, (1 << 20) - 8, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) - 5])
def test_find_sees_frames_across_the_parts_it_searches(position: int) -> None:
    """A frame is found wherever it lies, also where the search goes on in the next part."""
    data = b"\xee" * position + framed(b"here") + b"\xee" * 50
    assert find(data, 0) == position
    assert find(b"\xee" * position + framed(b""), 0) == position  # the last place where one can stand


def test_resume_passes_over_frames_inside_a_damaged_payload() -> None:
    """A payload that holds frames itself does not become frames of the file by damage beside them."""
    recorded_file = framed(b"not ours") * 3
    damaged = bytearray(framed(b"head" + recorded_file))
    damaged[13] ^= 1
    for behind in (b"", framed(b"next"), framed(b"next")[:5], framed(b"next")[:15]):
        assert resume(bytes(damaged) + behind, 0) == len(damaged)


def test_resume_does_not_trust_a_length_that_leads_nowhere() -> None:
    """Where bytes were lost inside a payload, the next frame lies before the end that the length claims."""
    whole = framed(bytes(range(100)))
    data = whole[:50] + framed(b"next") * 10
    assert resume(data, 0) == 50


@pytest.mark.parametrize("cut", range(1, 12))
def test_resume_finds_a_frame_that_a_wrong_length_ends_in(cut: int) -> None:
    """Where bytes were lost, the length may lead a few bytes before the end, as if a header began there."""
    last = framed(b"last frame")
    whole = framed(bytes(range(100)))
    shortened = whole[: 50 - len(last) + cut] + whole[50:] + last
    assert len(shortened) == len(whole) + cut
    assert resume(shortened, 0) == len(shortened) - len(last)


def test_resume_after_a_wrong_length_finds_the_next_frame() -> None:
    """Without a length there is only the search."""
    data = b"\x02" + framed(b"abc")[1:] + framed(b"next")
    assert resume(data, 0) == 19
    assert resume(b"short", 0) == 5
