"""Reading files: every payload that is right, and a word for every byte that is not."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from instrument.eventfile import frame
from instrument.eventfile.blocks import Damage, EventFileReader
from instrument.eventfile.crc import masked_crc

PAYLOADS = [b"version", b"", b"a", bytes(range(20)), b"last"]


def framed(payload: bytes) -> bytes:
    return b"".join(frame.pack([payload]))


FRAMES = [framed(payload) for payload in PAYLOADS]
STARTS = [sum(map(len, FRAMES[:index])) for index in range(len(FRAMES))]
CONTENT = b"".join(FRAMES)

WRONG_LENGTH = "the checksum of the length is wrong"
WRONG_PAYLOAD = "the checksum of the payload is wrong"


def read(path: Path, content: bytes) -> tuple[list[bytes], list[Damage]]:
    path.write_bytes(content)
    reader = EventFileReader(str(path))
    return [bytes(payload) for payload in reader], reader.damage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events"


def test_payloads_come_in_file_order(path: Path) -> None:
    """A whole file gives its payloads and no damage, as often as it is read."""
    path.write_bytes(CONTENT)
    reader = EventFileReader(str(path))
    for _ in range(2):
        assert list(reader) == PAYLOADS
        assert reader.damage == []


def test_an_empty_file_holds_nothing(path: Path) -> None:
    """No bytes, no payloads, no damage."""
    assert read(path, b"") == ([], [])


def test_a_missing_file_is_an_error(path: Path) -> None:
    """A file that is not there is told by its name."""
    with pytest.raises(FileNotFoundError, match="events"):
        list(EventFileReader(str(path)))


def test_payloads_outlive_the_reader(path: Path) -> None:
    """A payload stays valid after the reader and the file's name are gone."""
    path.write_bytes(CONTENT)
    payloads = list(EventFileReader(str(path)))
    path.unlink()
    assert payloads == PAYLOADS


def test_no_flipped_bit_gives_a_wrong_payload(path: Path) -> None:
    """Each single bit that is flipped loses the frame that holds it, is reported there, and harms no other frame."""
    for position in range(len(CONTENT)):
        index = max(index for index, start in enumerate(STARTS) if start <= position)
        in_header = position - STARTS[index] < 12
        expected = PAYLOADS[:index] + PAYLOADS[index + 1 :]
        damage = Damage(
            str(path), STARTS[index], len(FRAMES[index]), WRONG_LENGTH if in_header else WRONG_PAYLOAD, torn=False
        )
        for bit in range(8):
            content = bytearray(CONTENT)
            content[position] ^= 1 << bit
            assert read(path, bytes(content)) == (expected, [damage]), (position, bit)


def test_a_torn_tail_is_told_apart(path: Path) -> None:
    """A file that ends inside a frame gives all frames before it and one torn tail."""
    for size in range(len(CONTENT)):
        whole = max(index for index, start in enumerate([*STARTS, len(CONTENT)]) if start <= size)
        payloads, damage = read(path, CONTENT[:size])
        assert payloads == PAYLOADS[:whole]
        start = STARTS[whole]
        torn = [Damage(str(path), start, size - start, "the file ends inside a frame", torn=True)]
        assert damage == (torn if size > start else [])


@pytest.mark.parametrize("length", [1000, 2**31, 2**62, 2**64 - 1])
def test_a_length_past_the_end_hides_no_frame_behind_it(path: Path, length: int) -> None:
    """A huge length with the right checksum is passed over where whole frames follow, and torn where none does."""
    bad = length.to_bytes(8, "little")
    bad += masked_crc([bad]).to_bytes(4, "little")
    payloads, damage = read(path, FRAMES[0] + bad + FRAMES[2] + FRAMES[3])
    assert payloads == [PAYLOADS[0], PAYLOADS[2], PAYLOADS[3]]
    reason = "the frame's length reaches past valid frames"
    assert damage == [Damage(str(path), len(FRAMES[0]), 12, reason, torn=False)]
    payloads, damage = read(path, FRAMES[0] + bad + b"some bytes")
    assert payloads == [PAYLOADS[0]]
    assert damage == [Damage(str(path), len(FRAMES[0]), 22, "the file ends inside a frame", torn=True)]


@pytest.mark.parametrize("size", [1, 11, 12, 15, 16, 17, 100, 4096, 1 << 21])
def test_a_block_of_zeros_is_passed_over(path: Path, size: int) -> None:
    """Zeros between frames and behind the last one are one damage each, however many there are."""
    zeros = bytes(size)
    payloads, damage = read(path, CONTENT + zeros + CONTENT + zeros)
    assert payloads == PAYLOADS * 2
    assert [(one.offset, one.bytes_skipped) for one in damage] == [
        (len(CONTENT), size),
        (2 * len(CONTENT) + size, size),
    ]


def test_a_zeroed_block_inside_frames_loses_those_frames_only(path: Path) -> None:
    """Zeros over the end of one frame and the start of the next lose these two."""
    content = bytearray(CONTENT)
    content[STARTS[2] + 10 : STARTS[3] + 5] = bytes(STARTS[3] + 5 - STARTS[2] - 10)
    payloads, damage = read(path, bytes(content))
    assert payloads == [PAYLOADS[0], PAYLOADS[1], PAYLOADS[4]]
    assert [(one.offset, one.bytes_skipped) for one in damage] == [(STARTS[2], STARTS[4] - STARTS[2])]


def test_frames_inside_a_damaged_payload_are_not_the_files_own(path: Path) -> None:
    """A recorded event file inside a payload is not read as if it stood in this one."""
    content = bytearray(framed(b"x" + CONTENT) + FRAMES[4])
    content[12] ^= 1
    payloads, damage = read(path, bytes(content))
    assert payloads == [PAYLOADS[4]]
    assert damage == [Damage(str(path), 0, len(content) - len(FRAMES[4]), WRONG_PAYLOAD, torn=False)]


def test_random_damage_never_gives_a_wrong_payload(path: Path, rng: np.random.Generator) -> None:
    """Whatever is overwritten, cut out or put in, each payload that is read is one that was written, in order."""
    payloads = [rng.bytes(int(size)) for size in rng.integers(0, 60, 20)]
    content = b"".join(map(framed, payloads))
    for _ in range(200):
        data = bytearray(content)
        for _ in range(int(rng.integers(1, 4))):
            start, size = int(rng.integers(len(data))), int(rng.integers(0, 40))
            data[start : start + size] = rng.bytes(int(rng.integers(0, 40)))
        got, damage = read(path, bytes(data))
        rest = iter(payloads)
        assert all(payload in rest for payload in got)
        covered = sum(map(len, map(framed, got))) + sum(one.bytes_skipped for one in damage)
        assert covered == len(data)


def test_memory_is_that_of_the_largest_payload(path: Path) -> None:
    """While a payload is handed out there are two copies of it, and nothing of the others."""
    path.write_bytes(framed(bytes(8 << 20)) * 4)
    tracemalloc.start()
    count = sum(1 for _ in EventFileReader(str(path)))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4
    assert peak_bytes < 27 << 20


def test_a_file_that_is_cut_while_it_is_read_ends_there(path: Path) -> None:
    """A writer that cuts its file back takes no reader down: what was handed out stays, the rest is torn or gone."""
    path.write_bytes(framed(bytes(3 << 20)) * 3)
    payloads = iter(EventFileReader(str(path)))
    first = next(payloads)
    os.truncate(path, 10)
    assert list(payloads) == []
    assert bytes(first) == bytes(3 << 20)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list open descriptors")
def test_reading_leaves_no_descriptor_open(path: Path) -> None:
    """When the payloads are gone, so is everything that the reader opened."""
    before = os.listdir("/proc/self/fd")
    read(path, CONTENT)
    assert os.listdir("/proc/self/fd") == before
