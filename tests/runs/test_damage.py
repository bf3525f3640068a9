"""Damaged files: what is whole is read, and what is not is told with file and offset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from instrument import read
from instrument.codec import event
from instrument.errors import CorruptMessage
from instrument.eventfile.blocks import Damage
from instrument.values import Event
from tests.runs.build import SECONDS, encoded, framed, item, steps, write

FRAMES = encoded(steps("scalar", "loss", range(100), 0.5, start=1000.0))
FIFTY = sum(map(len, FRAMES[:51]))  # where the frame of step 50 begins, behind the version's


def damaged(directory: Path, change: Callable[[bytearray], object]) -> Path:
    """A file of steps 0 to 99 after a change of its bytes."""
    data = bytearray(b"".join(FRAMES))
    change(data)
    path = directory / f"events.out.events.summary.{SECONDS}.0.host_MS"
    path.write_bytes(data)
    return path


def flip(offset: int, bits: int = 1) -> Callable[[bytearray], object]:
    def change(data: bytearray) -> None:
        data[offset] ^= bits

    return change


@pytest.mark.parametrize("offset", [0, 7, 8, 11, 12, 20, len(FRAMES[51]) - 1])
def test_a_flipped_byte_costs_one_frame(tmp_path: Path, offset: int) -> None:
    """Wherever the byte is in the frame of step 50, the other 99 points are read and the frame is named."""
    path = damaged(tmp_path, flip(FIFTY + offset, 0x40))

    run = read(tmp_path)

    assert run.scalars("loss").step.tolist() == [step for step in range(100) if step != 50]
    (damage,) = run.damage
    assert (damage.path, damage.offset, damage.bytes_skipped) == (str(path), FIFTY, len(FRAMES[51]))
    assert not damage.torn


@pytest.mark.parametrize("kept", [1, 11, 12, 20, len(FRAMES[100]) - 1])
def test_a_torn_tail_costs_the_last_frame(tmp_path: Path, kept: int) -> None:
    """A file cut inside its last frame has all the others, and the damage is marked as torn."""
    start = sum(map(len, FRAMES[:100]))
    path = damaged(tmp_path, lambda data: data.__delitem__(slice(start + kept, None)))

    run = read(tmp_path)

    assert run.scalars("loss").step.tolist() == list(range(99))
    assert run.damage == [Damage(str(path), start, kept, run.damage[0].reason, torn=True)]


def test_a_payload_that_is_no_event_is_passed_over(tmp_path: Path) -> None:
    """A frame with a right checksum and garbage inside is reported; reading goes on behind it."""
    garbage = framed([b"\xff\xff\xff garbage"])
    path = damaged(tmp_path, lambda data: data.__setitem__(slice(FIFTY, FIFTY), garbage))

    run = read(tmp_path)

    assert len(run.scalars("loss")) == 100
    (damage,) = run.damage
    assert (damage.path, damage.offset, damage.bytes_skipped) == (str(path), FIFTY, len(garbage))
    assert not damage.torn


def test_a_lineage_event_that_is_none_is_passed_over(tmp_path: Path) -> None:
    """The same holds in a lineage file."""
    path = tmp_path / f"events.out.events.summary.{SECONDS}.0.host_lineage"
    path.write_bytes(framed([b"\x0a\x7f"]))

    (damage,) = read(tmp_path).damage

    assert (damage.path, damage.offset, damage.bytes_skipped) == (str(path), 0, path.stat().st_size)
    assert read(tmp_path).lineage == {}


def test_damage_is_listed_in_file_order(tmp_path: Path) -> None:
    """Broken frames and payloads that are no events come by offset, files one after the other."""
    garbage = framed([b"\xff"])
    first = damaged(tmp_path, lambda data: (data.__setitem__(slice(0, 0), garbage), flip(len(garbage) + FIFTY)(data)))
    second = write(tmp_path, steps("scalar", "loss", [100], 1.0, start=2000.0), seconds=SECONDS + 1)
    second.write_bytes(second.read_bytes()[:-1])

    damage = read(tmp_path).damage

    assert [(one.path, one.offset) for one in damage[:2]] == [(str(first), 0), (str(first), len(garbage) + FIFTY)]
    assert damage[2].path == str(second)
    assert [one.torn for one in damage] == [False, False, True]


@pytest.mark.parametrize("suffix", ["_MS", "_lineage"])
def test_an_empty_file_is_an_empty_run(tmp_path: Path, suffix: str) -> None:
    """Zero bytes are neither damage nor an error."""
    (tmp_path / f"events.out.events.summary.{SECONDS}.0.host{suffix}").touch()

    run = read(tmp_path)

    assert run.tags() == {}
    assert run.lineage == {}
    assert run.damage == []
    assert run.graph is None


def test_zeros_behind_the_last_frame_are_damage(tmp_path: Path) -> None:
    """A block of zeros, as a network file system may leave it, costs nothing before it."""
    damaged(tmp_path, lambda data: data.extend(bytes(512)))

    run = read(tmp_path)

    assert len(run.scalars("loss")) == 100
    assert sum(one.bytes_skipped for one in run.damage) == 512


def test_a_file_that_cannot_be_opened_is_damage_among_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder it is reported and the rest is read; asked for by itself it is an error."""
    locked = write(tmp_path, steps("scalar", "x", [0], 1.0, start=1.0))
    write(tmp_path, steps("scalar", "x", [1], 1.0, start=2.0), seconds=SECONDS + 1)
    real_open = open

    def refuse(path: str, *arguments: object, **named: object) -> object:
        if str(path) == str(locked):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, *arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", refuse)
    run = read(tmp_path)

    assert run.scalars("x").step.tolist() == [1]
    assert run.damage == [Damage(str(locked), 0, 0, "the file cannot be read: Permission denied", torn=False)]
    with pytest.raises(PermissionError):
        read(locked)


def test_random_payloads_are_read_or_reported(tmp_path: Path, rng: np.random.Generator) -> None:
    """Whatever stands in a frame with a right checksum: each value is decoded or raises `CorruptMessage`."""
    items = tuple(item(kind, kind, 3.0) for kind in ("scalar", "tensor", "histogram", "image"))
    (payload,) = event.encode(Event.of(1, 2.0, items))
    good = np.frombuffer(b"".join(payload), np.uint8)
    frames = []
    for _ in range(300):
        bad = good.copy()
        bad[rng.integers(bad.size, size=3)] = rng.integers(256, size=3)
        frames.append(framed([bad.tobytes()]))
    path = tmp_path / f"events.out.events.summary.{SECONDS}.0.host_MS"
    path.write_bytes(b"".join(frames))

    run = read(tmp_path)

    decoded = 0
    for kind, tags in run.tags().items():
        for tag in tags:
            points = run.points(kind, tag, superseded=True)
            assert repr(points)
            for index in range(len(points)):
                try:
                    points.decode(index)
                except CorruptMessage:
                    continue
                decoded += 1
    assert decoded > 0
    assert all(one.path == str(path) and not one.torn for one in run.damage)
