"""Checking and mending files."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrument import read
from instrument.codec.lineage import custom_message
from instrument.errors import InstrumentError
from instrument.runs import verify
from instrument.values import Event
from tests.analyse.files import cpu_window, event_file
from tests.runs.build import SECONDS, encoded, framed, item, steps, write, write_lineage

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tensorboard"


def test_a_whole_file_is_whole(tmp_path: Path) -> None:
    """Frames and values of every kind are counted."""
    kinds = ("scalar", "tensor", "histogram", "image")
    path = write(tmp_path, [Event.of(1, 2.0, tuple(item(kind, kind, 1.0) for kind in kinds))] * 3)
    report = verify.check(str(path))
    assert (report.size_bytes, report.frames, report.values) == (path.stat().st_size, 4, 12)
    assert report.is_whole


def test_other_files_are_checked_too(tmp_path: Path) -> None:
    """Lineage, profiles and both styles of TensorBoard."""
    write_lineage(tmp_path, [("custom_lineage_data", custom_message({"a": 1}))])
    event_file(tmp_path, [cpu_window()])
    files, _ = verify.files_at(str(tmp_path))
    reports = [verify.check(path) for path in files + verify.files_at(str(GOLDEN))[0]]
    assert len(reports) == 2 + len(list(GOLDEN.rglob("events.*")))
    assert all(report.is_whole and report.values for report in reports)


def test_a_wrong_value_in_a_right_frame_is_told(tmp_path: Path) -> None:
    """What only decoding finds: a tensor whose dims do not fit, a lineage message that is none."""
    frame = encoded(steps("tensor", "t", [1], 1.0, start=0.0))[1]
    wrong = framed([frame[12:-4].replace(b"\x08\x04\x10\x0b", b"\x08\x05\x10\x0b")])
    path = write(tmp_path, steps("scalar", "x", [0], 1.0, start=0.0))
    path.write_bytes(path.read_bytes() + wrong)
    lineage = write_lineage(tmp_path, [("train_lineage", b"\x0a\x7f")])
    (damage,) = verify.check(str(path)).damage
    assert "dims" in damage.reason
    (damage,) = verify.check(str(lineage)).damage
    assert "TrainLineage" in damage.reason


def test_repair_copies_what_is_whole_in_order(tmp_path: Path) -> None:
    """A wrong byte, garbage, a payload that is no event and a torn end are left out; every other frame is copied."""
    frames = encoded(steps("scalar", "x", range(100), 1.0, start=0.0))
    damaged = bytearray(b"".join([*frames[:60], framed([b"\xff\xff"]), b"garbage", *frames[60:]])[:-3])
    damaged[sum(map(len, frames[:20])) + 20] ^= 1
    path = tmp_path / f"events.out.events.summary.{SECONDS}.0.host_MS"
    path.write_bytes(damaged)
    out = tmp_path / "new"
    report = verify.repair(str(path), str(out))
    expected = [frame for index, frame in enumerate(frames) if index not in (20, 100)]
    assert out.read_bytes() == b"".join(expected)
    assert (report.frames, report.values, len(report.damage)) == (100, 99, 4)
    assert path.read_bytes() == damaged


def test_repair_of_a_whole_file_is_a_copy(tmp_path: Path) -> None:
    """Each kind of file comes out as it went in."""
    for index, path in enumerate(verify.files_at(str(GOLDEN))[0]):
        out = tmp_path / str(index)
        assert verify.repair(path, str(out)).is_whole
        assert out.read_bytes() == Path(path).read_bytes()


def test_repair_never_overwrites(tmp_path: Path) -> None:
    """A file that exists stays as it is, the source itself above all."""
    path = write(tmp_path, steps("scalar", "x", [0], 1.0, start=0.0))
    before = path.read_bytes()
    with pytest.raises(InstrumentError, match="exists"):
        verify.repair(str(path), str(path))
    assert path.read_bytes() == before
    assert len(read(tmp_path).scalars("x")) == 1
