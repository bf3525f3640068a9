"""Gaps: where the recorder itself says that events are missing."""

from __future__ import annotations

from pathlib import Path

from instrument import read
from instrument.codec import lifecycle, wire
from instrument.values import Event, Gap, Item, MessageItem
from tests.runs.build import SECONDS, framed, item, steps, write

FULL = Gap(3, 5, 7, "No space left on device")
BAD = Gap(1, 9, 9, "it cannot be encoded")


def gap_item(gap: Gap) -> Item:
    return MessageItem("gap", "", lifecycle.encode_gap(gap))


def test_gaps_are_listed_in_file_order(tmp_path: Path) -> None:
    """Alone or before the values of an event, in one file after the other, the oldest first."""
    later = [Event(20, 200.0, [gap_item(BAD)])]
    write(tmp_path, later, seconds=SECONDS + 1)
    events = [
        *steps("scalar", "x", range(5), 1.0, start=10.0),
        Event(8, 18.0, [gap_item(FULL), item("tensor", "w", 2.0)], {"x": 8.0}),
        Event(9, 19.0, [gap_item(BAD)]),
        Event(10, 20.0, (), {"x": 10.0}),
    ]
    write(tmp_path, events)

    run = read(tmp_path)

    assert run.gaps == [FULL, BAD, BAD]
    assert run.damage == []


def test_a_gap_is_no_series(tmp_path: Path) -> None:
    """Tags, steps and values are those of a file without it."""
    write(tmp_path, [Event(8, 18.0, [gap_item(FULL), item("tensor", "w", 2.0)], {"x": 8.0})])

    run = read(tmp_path)

    assert run.tags() == {"scalar": ["x"], "tensor": ["w"]}
    assert list(run.scalars("x")) == [(8, 18.0, 8.0)]
    assert run.tensors("w")[8].tolist() == [2.0] * 4


def test_a_run_of_gaps_alone(tmp_path: Path) -> None:
    """It has no tag, and says what is missing."""
    write(tmp_path / "r", [Event(5, 1.0, [gap_item(FULL)])])

    run = read(tmp_path / "r")

    assert (run.tags(), run.gaps) == ({}, [FULL])
    assert repr(run) == f"Run 'r': 1 event file in '{tmp_path / 'r'}'\n  gaps          1  see .gaps"


def test_a_run_without_gaps(tmp_path: Path) -> None:
    """The list is empty, and printing does not mention it."""
    write(tmp_path, steps("scalar", "x", range(3), 1.0, start=1.0))

    assert read(tmp_path).gaps == []
    assert ".gaps" not in repr(read(tmp_path))


def test_a_gap_that_is_none_is_damage(tmp_path: Path) -> None:
    """It is told with file and offset, and values beside it in other frames are read."""
    path = write(tmp_path, [Event(1, 1.0, (), {"x": 1.0})])
    size = path.stat().st_size
    bad = framed([wire.double(1, 2.0), wire.integer(2, 5), wire.delimited(101, b"\xff\xff")])
    good = framed([wire.double(1, 2.0), wire.integer(2, 5), wire.delimited(101, lifecycle.encode_gap(BAD))])
    path.write_bytes(path.read_bytes() + bad + good)

    run = read(tmp_path)

    assert run.scalars("x").step.tolist() == [1]
    assert run.gaps == [BAD]
    (damage,) = run.damage
    assert (damage.path, damage.offset, damage.bytes_skipped, damage.torn) == (str(path), size, len(bad), False)
