"""Disks that fill up and directories that vanish: training goes on, files stay whole, recording resumes."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from instrument.ringfile import recover
from instrument.values import Gap
from instrument.write import pool
from tests.faults.scripts import start
from tests.write.build import (
    both,
    custom,
    files,
    frame_count,
    gaps,
    numbers,
    only_file,
    scalar,
    steps,
    tensor,
    wait_for_workers_to_end,
    wait_until,
    workers,
)  # fmt: skip
from tests.write.conftest import OpenSink, sink_at
from tests.write.pools import process

__all__ = ["sink_at"]
WORKERS = pytest.mark.parametrize("count", [0, 1, 3])


@pytest.fixture
def small_disk(small_disk_of: Callable[[str], Path]) -> Path:
    """A file system of 1 MB; what is opened there has to be closed before."""
    return small_disk_of("1m")


def said_at(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither `flush` nor `close` waits for a disk that takes nothing."""
    monkeypatch.setattr(pool, "_FULL_DISK_PATIENCE_SECONDS", 0.0)


def test_a_disk_that_is_full_for_a_while_in_this_process(
    small_disk: Path, sink_at: OpenSink, caplog: pytest.LogCaptureFixture
) -> None:
    """Each event is whole in the file or refused and counted, and the file says how many are missing where."""
    sink = sink_at(0, directory=small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    taken: list[int] = []
    for step in range(30):
        if step == 20:
            ballast.unlink()
        taken += [step] if sink.write(tensor(step, 10_000)) else []
        assert steps(sink.path) == taken
        assert os.path.getsize(sink.path) == sink.stats.bytes
    sink.close()
    before = len(taken) - 10
    assert 0 < before < 20
    assert taken == [*range(before), *range(20, 30)]
    assert gaps(sink.path) == [Gap(20 - before, before, 19, os.strerror(errno.ENOSPC))]
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (len(taken), 20 - before, 20 - before)
    (said,) = said_at(caplog, "ERROR")
    assert sink.path in said
    assert os.strerror(errno.ENOSPC) in said
    assert f"step {before}:" in said


@pytest.mark.parametrize("count", [1, 3])
def test_a_disk_that_is_full_for_a_while(
    small_disk_of: Callable[[str], Path], sink_at: OpenSink, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """What was taken waits in memory and is written when there is room; what was refused is counted, also there."""
    small_disk = small_disk_of("2m")
    sink = sink_at(count, ring_bytes=count * 200_000, directory=small_disk)
    ballast = small_disk / "ballast"
    disk = os.statvfs(small_disk)  # on which the rings lie as well
    ballast.write_bytes(bytes(disk.f_bavail * disk.f_bsize - 230_000))
    taken = [step for step in range(100) if sink.write(tensor(step, 10_000))]
    sink.flush()
    refused = 100 - len(taken)
    at_first = steps(sink.path)
    assert at_first == list(range(len(at_first)))
    assert 0 < len(at_first) < 12
    assert (sink.stats.pending, sink.stats.dropped, sink.stats.lost) == (len(taken) - len(at_first), refused, 0)
    assert refused > 50
    ballast.unlink()
    wait_until(lambda: sink.stats.pending == 0)
    assert steps(sink.path) == taken
    assert sink.write(scalar(100))
    sink.close()
    assert steps(sink.path) == [*taken, 100]
    found = gaps(sink.path)
    assert sum(gap.events for gap in found) == refused
    assert (found[0].first_step, found[-1].last_step) == (next(step for step in range(100) if step not in taken), 99)
    assert count > 1 or len(found) == 1
    assert (sink.stats.events, sink.stats.dropped, sink.stats.lost) == (len(taken) + 1, refused, 0)
    stalled, waiting = said_at(caplog, "ERROR")
    assert f"at step {len(at_first)}: {os.strerror(errno.ENOSPC)}" in stalled
    assert sink.path in stalled
    assert "wait in memory" in waiting
    for gap, said in zip(found, said_at(caplog, "WARNING"), strict=True):
        assert f"{gap.events} events are missing" in said


@pytest.mark.parametrize("count", [1, 3])
def test_a_disk_that_is_full_at_the_end(
    small_disk: Path, sink_at: OpenSink, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """What does not fit when the sink is closed is lost and counted; what is smaller, behind it, is not."""
    sink = sink_at(count, directory=small_disk)
    (small_disk / "ballast").write_bytes(bytes(900_000))
    assert all(sink.write(tensor(step, 100_000) if step % 2 == 0 else scalar(step)) for step in range(20))
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(1, 20, 2)]
    assert (sink.stats.events, sink.stats.lost, sink.stats.pending) == (10, 10, 0)
    assert [gap.first_step for gap in gaps(sink.path)] == list(range(0, 20, 2))
    assert os.strerror(errno.ENOSPC) in " ".join(said_at(caplog, "ERROR"))


RECORD_20_AND_DIE = """
recorder = Recorder()
assert all(recorder.write(tensor(step, 10_000)) for step in range(20))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_trainer_that_is_killed_while_the_disk_is_full(small_disk: Path, tmp_path: Path) -> None:
    """Its workers go on trying, and write everything when there is room."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    directory = tmp_path / "run"
    directory.symlink_to(small_disk)
    trainer = start(RECORD_20_AND_DIE, directory, 1)
    assert trainer.wait(20) == -signal.SIGKILL  # its worker holds the pipes open
    assert len(workers(directory)) == 1
    ballast.unlink()
    wait_for_workers_to_end(directory)
    assert steps(only_file(small_disk)) == list(range(20))


def test_a_smaller_event_still_fits_in_this_process(small_disk: Path, sink_at: OpenSink) -> None:
    """A full disk costs the event that does not fit, not the smaller ones after it."""
    sink = sink_at(0, directory=small_disk)
    (small_disk / "ballast").write_bytes(bytes(900_000))
    answers = [sink.write(tensor(step, 100_000) if step % 2 == 0 else scalar(step)) for step in range(20)]
    sink.close()
    assert answers == [False, True] * 10
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
    assert sink.write(both(0))
    sink.flush()
    shutil.rmtree(directory)
    for step in range(1, 50):
        sink.write(both(step))
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
    """Where its place is taken events wait, or are lost without a pool; it is said why, and nothing is raised."""
    directory = tmp_path / "run"
    sink = sink_at(count, directory=directory)
    assert sink.write(scalar(0))
    sink.flush()
    shutil.rmtree(directory)
    directory.write_text("in the way")
    answers = [sink.write(scalar(step)) for step in range(1, 50)]
    sink.flush(sync=True)
    directory.unlink()
    assert sink.write(scalar(50))
    sink.close()
    assert answers == [count > 0] * 49
    assert steps(only_file(directory)) == ([50] if count == 0 else list(range(1, 51)))
    assert sum(gap.events for gap in gaps(sink.path)) == sink.stats.lost == (49 if count == 0 else 0)
    said = said_at(caplog, "ERROR")
    assert f"step 1: {os.strerror(errno.EEXIST)}" in said[0]
    assert any(f"before step {50 if count == 0 else 1} is lost: it was deleted" in message for message in said)


@WORKERS
def test_a_directory_that_becomes_read_only(
    sink_at: OpenSink, tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int, immutable: Callable[[Path], None]
) -> None:
    """The file that is open is written on; what would need a new one is refused, and said."""
    directory = tmp_path / "run"
    sink = sink_at(count, directory=directory)
    assert sink.write(scalar(0))
    sink.flush()
    immutable(directory)
    assert all(sink.write(scalar(step)) for step in range(1, 20))
    assert not sink.write(custom(20))
    assert sink.write(scalar(21))
    sink.close()
    assert steps(sink.path) == [*range(20), 21]
    (gap,) = gaps(sink.path)
    assert (gap.events, gap.first_step) == (1, 20)
    assert (sink.stats.events, sink.stats.lost) == (21, 1)
    (said,) = said_at(caplog, "ERROR")
    assert "step 20" in said
    assert str(directory) in said


@WORKERS
def test_no_descriptor_is_left(sink_at: OpenSink, caplog: pytest.LogCaptureFixture, count: int) -> None:
    """With the quota of open files used up, the file that is open is written on, and workers go on working."""
    sink = sink_at(count)
    assert sink.write(scalar(0))
    sink.flush()
    with no_more_descriptors():
        assert all(sink.write(scalar(step)) for step in range(1, 100))
        assert not sink.write(custom(100))
        sink.flush()
        assert sink.stats.events == 100
    assert sink.write(custom(101))
    sink.close()
    assert steps(sink.path) == list(range(100))
    assert [gap.first_step for gap in gaps(sink.path)] == [100]
    assert os.strerror(errno.EMFILE) in said_at(caplog, "ERROR")[0]


@pytest.mark.parametrize("count", [1, 3])
def test_a_worker_dies_when_no_descriptor_is_left(sink_at: OpenSink, count: int) -> None:
    """Its successor is started as soon as there are descriptors again; what was taken meanwhile is there."""
    sink = sink_at(count)
    assert sink.write(scalar(0))
    sink.flush()
    with no_more_descriptors():
        process(sink).kill()
        assert all(sink.write(scalar(step)) for step in range(1, 100))
    sink.close()
    assert steps(sink.path) == list(range(100))
    assert sink.stats.lost == 0


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """This process cannot open anything."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            os.dup(0)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def immutable() -> Iterator[Callable[[Path], None]]:
    """Make a directory one in which nothing can be created, root or not."""
    made: list[Path] = []

    def make(directory: Path) -> None:
        if os.geteuid() != 0:
            directory.chmod(0o500)
        elif subprocess.run(["chattr", "+i", str(directory)], capture_output=True, check=False).returncode != 0:
            pytest.skip("root may write anywhere, and this file system has no immutable directories")
        made.append(directory)

    yield make
    for directory in made:
        if os.geteuid() != 0:
            directory.chmod(0o700)
        else:
            subprocess.run(["chattr", "-i", str(directory)], check=True)


def test_what_a_full_disk_does_not_take_is_kept(
    small_disk_of: Callable[[str], Path], sink_at: OpenSink, caplog: pytest.LogCaptureFixture
) -> None:
    """The ring file stays behind a recorder that is closed meanwhile; what it holds is appended when there is room."""
    disk = small_disk_of("40m")
    sink = sink_at(1, directory=disk)
    assert sink.write(scalar(0))
    sink.flush()
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert all(sink.write(tensor(step, 10_000)) for step in range(1, 20))
    sink.close()
    assert (sink.stats.events, sink.stats.pending, sink.stats.lost) == (1, 19, 0)
    assert any("19 events could not be written until the end" in message for message in said_at(caplog, "ERROR"))
    ballast.unlink()
    (result,) = recover.recover_all(str(disk))
    assert (result.events, result.problem) == (19, "")
    assert numbers(only_file(disk)) == [(step, float(step)) for step in range(20)]
