"""What a start writes down of the starts before it, and how it says that it ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from instrument.eventfile import names
from instrument.eventfile.writer import EventFileWriter
from instrument.values import ENDED, FINISHED, ArrayItem, End, Event
from instrument.write import resume
from instrument.write.factory import open_sink
from instrument.write.sink import Target

DIALECTS = pytest.mark.parametrize("dialect", ["mindspore", "tensorboard", "both"])


def record(directory: Path, steps: int = 3, end: End | None = None, **options: object) -> str:
    """A recorder with some steps; it ends without a word unless it is given an end."""
    target = Target(str(directory), is_start=True, **options)  # type: ignore[arg-type]
    sink = open_sink(target, 0)
    for step in range(steps):
        item = ArrayItem("histogram", "h", __import__("numpy").ones(3, "f4"))
        sink.write(Event(step, 1.0 + step, [item], {"x": float(step)}))
    sink.close()
    if end is not None:
        assert resume.append_end(sink.path, end, steps, None) > 0
    return sink.path


@DIALECTS
def test_starts_are_counted(tmp_path: Path, dialect: str) -> None:
    """From 1; a file that has an end is not listed, of one without every file is, with its size."""
    options = {"dialect": dialect}
    one, two = record(tmp_path, end=End(FINISHED), **options), record(tmp_path, **options)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    three = record(tmp_path, **options)
    found = [resume.extent_of(path).start for path in (one, two, three)]
    assert [start.number for start in found if start is not None] == [1, 2, 3]
    assert len({start.id for start in found if start is not None}) == 3
    assert found[0] is not None
    assert found[0].unfinished == {}
    assert found[1] is not None
    assert found[1].unfinished == {}
    kind = names.TENSORBOARD if dialect == "tensorboard" else names.SUMMARY
    of_two = {name for name in sizes if names.recorder_of(name) == names.recorder_of(os.path.basename(two))}
    assert len(of_two) == (2 if dialect == "tensorboard" else 1)
    assert found[2] is not None
    assert found[2].unfinished == {name: sizes[name] for name in of_two}
    assert all(getattr(names.recognise(name), "kind", "") == kind for name in of_two)


def test_files_of_others_are_listed(tmp_path: Path) -> None:
    """Of MindSpore's recorder, and of release 0.1.0: they never have an end."""
    open_sink(Target(str(tmp_path)), 0).close()
    (older,) = tmp_path.iterdir()
    (start,) = [resume.extent_of(record(tmp_path)).start]
    assert start is not None
    assert (start.number, start.unfinished) == (1, {older.name: older.stat().st_size})


def test_what_is_of_no_concern_is_not_listed(tmp_path: Path) -> None:
    """Other ranks, lineage, profiles, and whatever else lies there."""
    path = Path(record(tmp_path))
    data = path.read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    for name in (
        path.name.replace(".0.", ".1."), path.name.replace("_MS", "_lineage"),
        path.name.replace("summary", "profile"), f"events.out.tfevents.{2**33}.host.1.0", "notes.txt",
    ):  # fmt: skip
        (other / name).write_bytes(data)
    begun = resume.number_start(str(other), names.SUMMARY, 0)
    assert (begun.start.number, begun.start.unfinished) == (1, {})
    assert begun.seconds <= time.time() + 1


def test_the_names_ascend_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that go by names take the starts in their order; a second that MindInsight refuses is passed over."""
    seconds = []
    for now in (2e9, 1.9e9, 1.8e9, 2.1e9):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        name = names.recognise(os.path.basename(record(tmp_path)))
        assert name is not None
        seconds.append(name.seconds)
    assert seconds == [2_000_000_000, 2_000_000_001, 2_000_000_002, 2_100_000_000]
    (tmp_path / names.join("events", 10**13, 0, "_MS")).write_bytes(b"")
    assert resume.number_start(str(tmp_path), names.SUMMARY, 0).seconds == 2_100_000_001


def test_the_newest_of_very_many_files_are_listed(tmp_path: Path) -> None:
    """256 of those without an end, so that a start stays small."""
    for second in range(300):
        (tmp_path / names.join("events", 1000 + second, 0, "_MS")).write_bytes(b"x" * second)
    unfinished = resume.number_start(str(tmp_path), names.SUMMARY, 0).start.unfinished
    assert sorted(unfinished.values()) == list(range(44, 300))


@pytest.mark.parametrize("data", [b"", b"\0" * 40, b"garbage" * 500])
def test_a_file_that_holds_nothing_tells_nothing(tmp_path: Path, data: bytes) -> None:
    """Empty, zeros, or no frames at all."""
    path = tmp_path / names.join("events", 1000, 0, "_MS")
    path.write_bytes(data)
    extent = resume.extent_of(str(path))
    assert (extent.start, extent.end, extent.content_bytes) == (None, None, len(data))
    assert resume.number_start(str(tmp_path), names.SUMMARY, 0).start.unfinished == {path.name: len(data)}


def test_a_directory_that_cannot_be_listed_is_a_first_start(tmp_path: Path) -> None:
    """Nobody can read a run there either."""
    assert resume.number_start(str(tmp_path / "none"), names.SUMMARY, 0).start.number == 1


def test_the_end_stands_behind_the_last_event(tmp_path: Path) -> None:
    """Its bytes are told, and what lies between start and end is measured."""
    empty = resume.extent_of(record(tmp_path / "empty", steps=0, end=End(ENDED)))
    assert (empty.content_bytes, empty.end) == (0, End(ENDED))
    path = record(tmp_path)
    before = os.path.getsize(path)
    content = resume.extent_of(path).content_bytes
    size = resume.append_end(path, End(FINISHED), 2, None)
    assert os.path.getsize(path) == before + size
    extent = resume.extent_of(path)
    assert (extent.end, extent.content_bytes) == (End(FINISHED), content)


def test_an_end_that_has_no_place_is_left_out(tmp_path: Path) -> None:
    """The file is at its limit, gone, or still held by a writer: nothing is written, and no file is made."""
    path = record(tmp_path)
    size = os.path.getsize(path)
    assert resume.append_end(path, End(FINISHED), 2, size + 10) == 0
    writer = EventFileWriter(path)
    assert resume.append_end(path, End(FINISHED), 2, None) == 0
    writer.close()
    assert os.path.getsize(path) == size
    os.remove(path)
    assert resume.append_end(path, End(FINISHED), 2, None) == 0
    assert not os.path.exists(path)
