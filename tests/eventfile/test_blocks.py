"""Blocks of frames: every frame once, whatever its length and wherever a window ends; resuming; files that are cut."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from instrument.eventfile import blocks, frame
from instrument.eventfile.access import OpenFile
from instrument.eventfile.blocks import WRONG_PAYLOAD, BlockReader


def framed(payload: bytes) -> bytes:
    return b"".join(frame.pack([payload]))


def read(path: Path, start: int = 0, stop: int | None = None) -> tuple[list[bytes], BlockReader]:
    reader = BlockReader(str(path), start, stop)
    return [bytes(payload) for block in reader for _, payload in block.payloads()], reader


@pytest.mark.parametrize("window_bytes", [64, 1000, 1 << 20])
def test_every_frame_comes_once_and_in_order(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    """Runs of equal lengths and single ones, empty, short and long payloads, in windows of any size."""
    monkeypatch.setattr(blocks, "WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(blocks, "_FIRST_WINDOW_BYTES", window_bytes)
    expected = []
    for _ in range(40):
        length = int(rng.choice([0, 1, 38, 39, 100, 4096, 4097, 9000]))
        expected += [rng.bytes(length) for _ in range(int(rng.choice([1, 2, 100])))]
    path = tmp_path / "events"
    path.write_bytes(b"".join(map(framed, expected)))
    found, reader = read(path)
    assert found == expected
    assert reader.damage == []
    assert reader.end == path.stat().st_size


def test_damage_in_runs_of_equal_frames_costs_those_frames(tmp_path: Path, rng: np.random.Generator) -> None:
    """Frames that are checked together are told apart."""
    expected = [rng.bytes(38) for _ in range(1000)]
    data = bytearray(b"".join(map(framed, expected)))
    bad = sorted(rng.choice(1000, 20, replace=False).tolist())
    for index in bad:
        data[index * 54 + int(rng.integers(54))] ^= 1 << int(rng.integers(8))
    path = tmp_path / "events"
    path.write_bytes(data)
    found, reader = read(path)
    assert found == [payload for index, payload in enumerate(expected) if index not in bad]
    # Neighbours with wrong headers are one place.
    assert sum(one.bytes_skipped for one in reader.damage) == 54 * len(bad)
    assert {one.offset for one in reader.damage} <= {54 * index for index in bad}


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_reading_goes_on_at_the_end(tmp_path: Path, cut: int) -> None:
    """What was whole is not read again, what was not is."""
    payload = bytes(range(38))
    whole = framed(payload) * 4
    path = tmp_path / "events"
    path.write_bytes(whole[:cut])
    found, reader = read(path)
    assert (len(found), reader.end) == (cut // 54, cut // 54 * 54)
    path.write_bytes(whole)
    assert len(read(path, reader.end)[0]) == 4 - cut // 54


def test_a_part_of_a_file_is_read_alone(tmp_path: Path) -> None:
    """Nothing behind `stop` is looked at."""
    path = tmp_path / "events"
    path.write_bytes(framed(b"a") + framed(b"b") + framed(b"c"))
    assert read(path, 17, 34)[0] == [b"b"]


def test_a_bad_last_frame_may_still_become_one(tmp_path: Path) -> None:
    """Its end is where reading goes on only if something whole stands behind it."""
    path = tmp_path / "events"
    bad = bytearray(framed(b"abc"))
    bad[13] ^= 1
    path.write_bytes(framed(b"x") + bad)
    assert read(path)[1].end == 17
    path.write_bytes(framed(b"x") + bad + framed(b"y"))
    assert read(path)[1].end == path.stat().st_size


def test_a_file_that_is_cut_meanwhile_ends_there(tmp_path: Path) -> None:
    """No error, and no byte that is not there."""
    path = tmp_path / "events"
    path.write_bytes(framed(bytes(1000)) * 3000)
    reader = BlockReader(str(path))
    whole = 0
    for block in reader:
        whole += sum(group.starts.size for group in block.groups)
        os.truncate(path, 100)
    assert 0 < whole < 3000
    assert reader.end <= whole * 1016


def test_long_frames_over_each_other_are_not_read_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of headers that hold, each of a wrong payload up to the end, between frames that are whole."""
    whole, count = b"".join(frame.pack([b"x" * 20])), 3000
    size_bytes = count * (len(whole) + frame.HEADER.size) + (2 << 20)
    data = bytearray()
    for _ in range(count):
        data += whole
        data += frame.head(size_bytes - len(data) - 1000)
    path = tmp_path / "file"
    path.write_bytes(data + bytes(size_bytes - len(data)))
    read_bytes = 0
    fill = OpenFile.fill

    def counted(file: OpenFile, buffer: memoryview, offset: int) -> int:
        nonlocal read_bytes
        read_bytes += len(buffer)
        return fill(file, buffer, offset)

    monkeypatch.setattr(OpenFile, "fill", counted)
    reader = BlockReader(str(path))
    assert sum(group.starts.size for block in reader for group in block.groups) == count
    assert len(reader.damage) == count
    assert {one.reason for one in reader.damage} == {WRONG_PAYLOAD}
    assert read_bytes < count * (100 << 10) < count * size_bytes / 20
