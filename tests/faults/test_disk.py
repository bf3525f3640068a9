"""Disks that fill up and directories that vanish: training goes on, files stay whole, recording resumes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from instrument.values import Event
from tests.write.build import custom, files, frame_count, numbers, only_file, scalar, steps, tensor
from tests.write.conftest import OpenSink, sink_at

__all__ = ["sink_at"]
WORKERS = pytest.mark.parametrize("count", [0, 1, 3])


@pytest.fixture
def small_disk(small_disk_of: Callable[[str], Path]) -> Path:
    """A file system of 1 MB; what is opened there has to be closed before."""
    return small_disk_of("1m")


@WORKERS
def test_a_disk_that_is_full_for_a_while(
    small_disk: Path, sink_at: OpenSink, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Each event is whole in the file or counted as lost; there is no half frame at any time; it goes on by itself."""
    sink = sink_at(count, directory=small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    found: list[int] = []
    for step in range(30):
        if step == 20:
            ballast.unlink()
        sink.write(tensor(step, 10_000))
        sink.flush()
        found += [] if sink.stats.lost == step + 1 - len(found) else [step]
        assert steps(sink.path) == found
        assert os.path.getsize(sink.path) == sink.stats.bytes
    sink.close()
    before = len(found) - 10
    assert 0 < before < 20
    assert found == [*range(before), *range(20, 30)]
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (len(found), 20 - before, 20 - before)
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert sink.path in said
    assert os.strerror(errno.ENOSPC) in said
    assert f"step {before}:" in said


@WORKERS
def test_a_smaller_event_still_fits(small_disk: Path, sink_at: OpenSink, count: int) -> None:
    """A full disk costs the event that does not fit, not the smaller ones after it."""
    sink = sink_at(count, directory=small_disk)
    (small_disk / "ballast").write_bytes(bytes(900_000))
    for step in range(0, 20, 2):
        sink.write(tensor(step, 100_000))
        sink.flush()
        sink.write(scalar(step + 1))
        sink.flush()
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(1, 20, 2)]
    assert (sink.stats.events, sink.stats.lost) == (10, 10)


def test_a_disk_that_is_full_from_the_start(small_disk: Path, sink_at: OpenSink) -> None:
    """No sink can be opened, which is an error there and then, and no empty file is left that looks like a run."""
    (small_disk / "ballast").write_bytes(bytes(1 << 20))
    for count in (0, 1):
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            sink_at(count, directory=small_disk)
    assert os.listdir(small_disk) == ["ballast"]


@WORKERS
def test_a_directory_that_vanishes(
    sink_at: OpenSink, tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Training goes on; one error a file says since when; what follows is in fresh files that are whole."""
    directory = tmp_path / "run"
    sink = sink_at(count, directory=directory)
    assert sink.write(Event(0, 1.0, (*scalar(0).items, *custom(0).items)))
    sink.flush()
    shutil.rmtree(directory)
    for step in range(1, 50):
        sink.write(Event(step, 1.0, (*scalar(step).items, *custom(step).items)))
    sink.close()
    assert numbers(only_file(directory)) == [(step, float(step)) for step in range(1, 50)]
    assert str(only_file(directory)) == sink.path
    assert [frame_count(path) for path in files(directory, lineage=True)] == [49]
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 2
    assert all("before step 1 is lost: it was deleted" in message for message in said)
    error = sink.take_error()
    assert error is not None
    assert error.step == 1


@WORKERS
def test_a_directory_that_cannot_be_made_again(
    sink_at: OpenSink, tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Where its place is taken, events are lost and counted, one message says why, and nothing is raised."""
    directory = tmp_path / "run"
    sink = sink_at(count, directory=directory)
    sink.write(scalar(0))
    sink.flush()
    shutil.rmtree(directory)
    directory.write_text("in the way")
    for step in range(1, 50):
        sink.write(scalar(step))
    sink.flush(sync=True)
    directory.unlink()
    sink.write(scalar(50))
    sink.close()
    assert steps(only_file(directory)) == [50]
    assert (sink.stats.events, sink.stats.lost) == (2, 49)
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 3  # the second is about the flush
    assert f"step 1: {os.strerror(errno.EEXIST)}" in said[0]
    assert "before step 50 is lost: it was deleted" in said[2]
