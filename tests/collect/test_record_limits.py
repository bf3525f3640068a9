"""SummaryRecord at its limits and at its end: full files, values too large, close, forks, memory, write errors."""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import psutil
import pytest

from instrument import SummaryRecord, read
from instrument.errors import RecordingError
from instrument.write import pool
from tests.collect.build import BOTH, Said, points
from tests.write.build import workers

# ---------------------------------------------------------------- limits


@BOTH
def test_a_full_file_is_told_and_never_exceeded(tmp_path: Path, said: Said, processes: int) -> None:
    """record() answers True for what is in the file and False from the first event that does not fit; one warning."""
    limit = 20_000
    with SummaryRecord(tmp_path, num_process=processes, max_file_size=limit) as record:
        answers = []
        for step in range(40):
            record.add_value("tensor", "w", np.full(200, step, np.float32))
            answers.append(record.record(step))
    kept = read(tmp_path).tensors("w").step.tolist()
    assert answers == [step in kept for step in range(40)]
    assert kept == list(range(len(kept)))
    assert limit - 1000 < os.path.getsize(record.log_dir) <= limit
    assert len(said("is full")) == 1
    assert f"step {len(kept)}" in said("is full")[0]
    assert f"max_file_size is {limit}" in said("is full")[0]


@BOTH
def test_a_value_beyond_every_reader_is_refused_alone(tmp_path: Path, said: Said, processes: int) -> None:
    """Over 500 MB: one warning names tag, step and size, record() answers False, the step's other values are there."""
    huge = np.zeros(130_000_000, np.float32)  # never touched, so it takes no memory
    before = psutil.Process().memory_info().rss
    with SummaryRecord(tmp_path, num_process=processes) as record:
        for step in (4, 5):
            record.add_value("tensor", "huge", huge)
            record.add_value("scalar", "loss", 1.5)
            assert record.record(step) is False
        record.add_value("scalar", "loss", 2.5)
        assert record.record(6) is True
    assert psutil.Process().memory_info().rss - before < 100e6
    assert points(tmp_path, "loss") == [(4, 1.5), (5, 1.5), (6, 2.5)]
    assert read(tmp_path).tags() == {"scalar": ["loss"]}
    (message,) = said("huge")
    assert "The tensor 'huge' of step 4 takes 5200" in message
    assert "500000000" in message
    assert os.path.getsize(record.log_dir) < 1000


def test_a_smaller_value_may_replace_one_that_is_too_large(tmp_path: Path) -> None:
    """The last value of a name counts, for the limit too, in both orders."""
    huge = np.zeros(130_000_000, np.float32)
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("tensor", "w", huge)
        record.add_value("tensor", "w", np.ones(2))
        assert record.record(1) is True
        record.add_value("tensor", "w", np.ones(2))
        record.add_value("tensor", "w", huge)
        assert record.record(2) is False
        record.add_value("tensor", "w", huge)
        assert record.record(3, plugin_filter="scalar".__eq__) is True
    assert read(tmp_path).tensors("w").step.tolist() == [1]


def test_with_raise_exception_a_value_too_large_raises_behind_the_others(tmp_path: Path) -> None:
    """The step's other values are written, then RecordingError names tag, step and size."""
    with SummaryRecord(tmp_path, num_process=0, raise_exception=True) as record:
        record.add_value("tensor", "huge", np.zeros(130_000_000, np.float32))
        record.add_value("scalar", "loss", 1.5)
        with pytest.raises(RecordingError, match="The tensor 'huge' of step 4 takes 5200"):
            record.record(4)
        record.add_value("scalar", "loss", 2.5)
        assert record.record(5)
    assert points(tmp_path, "loss") == [(4, 1.5), (5, 2.5)]


# ---------------------------------------------------------------- the end


@BOTH
def test_after_close_nothing_is_recorded_and_never_true(tmp_path: Path, said: Said, processes: int) -> None:
    """record() answers False with one warning, flush and a second close do nothing, the file stays as it was."""
    record = SummaryRecord(tmp_path, num_process=processes)
    record.add_value("scalar", "loss", 1.0)
    record.record(1)
    record.close()
    size = os.path.getsize(record.log_dir)
    for step in (2, 3):
        record.add_value("scalar", "loss", 2.0)
        assert record.record(step) is False
    record.flush()
    record.close()
    assert os.path.getsize(record.log_dir) == size
    assert points(tmp_path, "loss") == [(1, 1.0)]
    assert said("is closed") == [f"{record.log_dir} is closed: nothing more is recorded there."]
    assert record.stats.events == 1


@BOTH
@pytest.mark.parametrize("value", [("scalar", "loss", 2.0), ("tensor", "w", np.ones(9000)), ("tensor", "new", 1.0)])
def test_a_value_added_after_close_is_told(
    tmp_path: Path, said: Said, processes: int, value: tuple[str, str, object]
) -> None:
    """It can never be recorded: one warning, of whichever kind and name it is; nothing of it is kept."""
    record = SummaryRecord(tmp_path, num_process=processes)
    for known in (("scalar", "loss", 1.0), ("tensor", "w", np.ones(2))):
        record.add_value(*known)
    assert record.record(1)
    record.close()
    record.add_value(*value)
    record.add_value(*value)
    assert said() == [f"{record.log_dir} is closed: nothing more is recorded there."]
    assert read(tmp_path).scalars("loss").step.tolist() == [1]
    with pytest.raises(ValueError, match="The plugin is 'picture'"):
        record.add_value("picture", "loss", 1.0)


def test_with_raise_exception_use_after_close_raises(tmp_path: Path, said: Said) -> None:
    """Of a value and of a step, each time; nothing is logged beside it."""
    record = SummaryRecord(tmp_path, num_process=0, raise_exception=True)
    record.add_value("scalar", "loss", 1.0)
    assert record.record(1)
    record.close()
    for use in (lambda: record.add_value("scalar", "loss", 2.0), lambda: record.record(2)) * 2:
        with pytest.raises(RecordingError, match="is closed: nothing more is recorded there"):
            use()
    record.close()
    assert said() == []


@BOTH
def test_a_forked_child_records_nothing(tmp_path: Path, processes: int) -> None:
    """In a fork record() answers False and close() returns; the parent's file has each step once."""
    record = SummaryRecord(tmp_path, num_process=processes)
    record.add_value("scalar", "loss", 0.0)
    record.record(0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            record.add_value("scalar", "loss", 1.0)
            status = 0 if record.record(1) is False else 2
            record.flush()
            record.close()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    record.add_value("scalar", "loss", 2.0)
    assert record.record(2)
    record.close()
    assert points(tmp_path, "loss") == [(0, 0.0), (2, 2.0)]
    assert read(tmp_path).damage == []


@BOTH
def test_a_dropped_recorder_is_closed(tmp_path: Path, processes: int) -> None:
    """Without close, and without anybody holding it, what was recorded is in the file and no process is left."""
    record = SummaryRecord(tmp_path, num_process=processes)
    record.add_value("scalar", "loss", 1.0)
    record.record(1)
    del record
    gc.collect()
    assert points(tmp_path, "loss") == [(1, 1.0)]
    assert workers(tmp_path) == []


def test_nothing_keeps_a_network_or_an_array_alive(tmp_path: Path) -> None:
    """A recorder holds its network until it is closed, and a recorded array not at all."""
    network = ms.nn.Dense(2, 2)
    array = np.zeros((100, 100))
    alive = [weakref.ref(network), weakref.ref(array)]
    with SummaryRecord(tmp_path, num_process=0, network=network) as record:
        record.add_value("tensor", "w", array)
        record.record(1)
        del array
        gc.collect()
        assert alive[1]() is None
    del network
    gc.collect()
    assert alive[0]() is None


@BOTH
def test_memory_stays_flat(tmp_path: Path, processes: int) -> None:
    """Thousands of scalars and hundreds of pictures leave the process as large as it was after the first tenth."""
    picture = np.zeros((1, 3, 64, 64), np.uint8)
    process = psutil.Process()
    with SummaryRecord(tmp_path, num_process=processes, queue_bytes=1 << 22) as record:
        for step in range(5000):
            record.add_value("scalar", "loss", step)
            if step % 10 == 0:
                record.add_value("image", "i", picture)
            assert record.record(step)
            if step == 500:
                gc.collect()
                before = process.memory_info().rss
        gc.collect()
        grown = process.memory_info().rss - before
    assert grown < 16e6
    assert record.stats.events == 5000


# ---------------------------------------------------------------- errors


def put_a_file_in_its_place(directory: Path) -> None:
    """Take the directory away and make sure that nobody can make it again."""
    shutil.rmtree(directory)
    directory.write_text("")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush and close do not wait for a disk that takes nothing."""
    monkeypatch.setattr(pool, "_FULL_DISK_PATIENCE_SECONDS", 0.0)


@BOTH
@pytest.mark.usefixtures("impatient")
def test_with_raise_exception_a_write_error_is_raised(tmp_path: Path, processes: int) -> None:
    """When the directory became a file before the first write, the error names step, file and reason.

    Workers keep the event and try again: it is only lost when the recorder is closed, which raises once more.
    """
    directory = tmp_path / "run"
    record = SummaryRecord(directory, num_process=processes, raise_exception=True)
    put_a_file_in_its_place(directory)
    record.add_value("scalar", "loss", 1.0)

    def write() -> None:
        record.record(7)
        record.flush()  # workers tell it by now

    what = "and what follows cannot be written at the moment" if processes else "is lost"
    with pytest.raises(RecordingError, match=rf"Step 7 {what}, in .*run/events\S*: \w"):
        write()
    assert record.stats.lost == (0 if processes else 1)
    if processes:
        with pytest.raises(RecordingError, match=r"Step 7 is lost, in .*run/events\S*: \w"):
            record.close()
    record.close()
    assert record.stats.lost == 1


@BOTH
@pytest.mark.usefixtures("impatient")
def test_without_raise_exception_a_write_error_stops_nothing(tmp_path: Path, said: Said, processes: int) -> None:
    """One message names the file and the step from which on, and every lost event is counted, in the end."""
    directory = tmp_path / "run"
    with SummaryRecord(directory, num_process=processes) as record:
        put_a_file_in_its_place(directory)
        for step in range(3):
            record.add_value("scalar", "loss", 1.0)
            record.record(step)
            record.flush()
    said_at_once = {
        0: f"Events are missing from {record.log_dir}, the first at step 0: ",
        1: f"Nothing can be written to {record.log_dir} at step 0: ",
    }
    assert len(said(said_at_once[processes])) == 1
    (message,) = said("Events are missing")
    assert said_at_once[0] in message
    assert (record.stats.lost, record.stats.events) == (3, 0)


@BOTH
def test_a_directory_that_was_taken_away_is_made_again(tmp_path: Path, said: Said, processes: int) -> None:
    """When somebody cleans up while a run is recorded, later steps are in the file, and one message says so."""
    directory = tmp_path / "run"
    with SummaryRecord(directory, num_process=processes) as record:
        record.add_value("scalar", "loss", 0.0)
        assert record.record(0)
        record.flush()
        shutil.rmtree(directory)
        for step in range(1, 20):
            record.add_value("scalar", "loss", float(step))
            record.record(step)
            record.flush()
    found = points(directory, "loss")
    assert found[-1] == (19, 19.0)
    assert len(found) >= 18
    assert len(said(str(directory))) == 1


def test_a_write_error_in_this_process_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without workers record() itself knows: False for what the disk refused, True again when it takes data."""
    record = SummaryRecord(tmp_path, num_process=0)
    full = True

    def pwritev(fd: int, pieces: list[Any], offset: int) -> int:
        if full:
            raise OSError(28, "No space left on device")
        return written(fd, pieces, offset)

    written = os.pwritev
    monkeypatch.setattr(os, "pwritev", pwritev)
    answers = []
    for step in range(4):
        full = step in (1, 2)
        record.add_value("scalar", "loss", float(step))
        answers.append(record.record(step))
    record.close()
    assert answers == [True, False, False, True]
    assert points(tmp_path, "loss") == [(0, 0.0), (3, 3.0)]
    assert record.stats.lost == 2
