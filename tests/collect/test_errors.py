"""What a recorder says, and raises where that was asked for, of files that are taken away or cannot be made."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from instrument import SummaryRecord, read
from instrument.errors import RecordingError
from tests.collect.build import BOTH


def write(record: SummaryRecord, step: int) -> None:
    record.record(step)
    record.flush()


@BOTH
def test_a_tensor_that_cannot_be_exported(tmp_path: Path, caplog: pytest.LogCaptureFixture, processes: int) -> None:
    """It is in the event file all the same; the error says no more than that."""
    options = {"tensor_format": "npy"}
    record = SummaryRecord(tmp_path, num_process=processes, raise_exception=True, export_options=options)
    seconds = os.path.basename(record.log_dir).split(".")[4]
    (tmp_path / f"export_{seconds}").rmdir()
    (tmp_path / f"export_{seconds}").write_text("in the way")
    record.add_value("tensor", "t", np.arange(3.0))
    with pytest.raises(RecordingError, match=r"A tensor of step 7 cannot be exported, in .*/tensor/t_7\.npy: "):
        write(record, 7)
    record.close()
    assert read(tmp_path).tensors("t").step.tolist() == [7]
    (said,) = [one.getMessage() for one in caplog.records if one.name == "instrument"]
    assert "/tensor/t_7.npy (step 7) cannot be exported, nor may others: " in said
    assert said.endswith(". The event file goes on without regard to it.")


@BOTH
def test_a_file_that_is_taken_away_is_raised(tmp_path: Path, processes: int) -> None:
    """By the call that finds it gone, or the next one; recording goes on."""
    record = SummaryRecord(tmp_path, num_process=processes, raise_exception=True)
    record.add_value("scalar", "x", 1.0)
    record.record(1)
    record.flush()
    os.unlink(record.log_dir)
    record.add_value("scalar", "x", 2.0)
    with pytest.raises(RecordingError, match=r"What was recorded before step 2 is lost, in .*: it was deleted or cut"):
        write(record, 2)
    record.close()
    assert read(tmp_path).scalars("x").step.tolist() == [2]


def test_a_sync_that_fails_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells a file that may not survive, not a step that is lost."""

    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, "no")

    record = SummaryRecord(tmp_path, num_process=0, raise_exception=True)
    record.add_value("scalar", "x", 1.0)
    record.record(1)
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RecordingError, match=r"What was recorded may not survive a power failure, in .*: Input/output"):
        record.flush(sync=True)
    record.close()
