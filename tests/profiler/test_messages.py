"""What the profiler says of windows, raw files and pipelines that are lost."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import pytest

from instrument import framework
from instrument.codec.trace import CHUNK_BYTES
from instrument.errors import RecordingError
from instrument.profiler import backends
from instrument.profiler.archive import archive_files
from instrument.profiler.options import Options
from instrument.write.factory import open_sink
from instrument.write.sink import Target


class Meddled:
    """A sink beside which something happens at a write or a flush."""

    def __init__(self, directory: Path, at_write: Any = None, at_flush: Any = None) -> None:
        self._sink = open_sink(Target(str(directory), kind="profile"), 0)
        self._at_write, self._at_flush = at_write, at_flush
        self.path, self.close, self.take_error = self._sink.path, self._sink.close, self._sink.take_error

    @property
    def stats(self) -> Any:
        return self._sink.stats

    def write(self, event: Any) -> bool:
        if self._at_write is not None:
            self._at_write()
        return self._sink.write(event)

    def flush(self) -> None:
        self._sink.flush()
        if self._at_flush is not None:
            self._at_flush(self.path)


def handed_over(raw: Path, sink: Any) -> str:
    with pytest.raises(RecordingError) as error:
        archive_files(str(raw), 0, 0, "cpu", sink)
    sink.close()
    return str(error.value)


def test_a_raw_file_that_shrinks(tmp_path: Path) -> None:
    """While it is read, by whoever else has it open."""
    (tmp_path / "raw").mkdir()
    file = tmp_path / "raw" / "a"
    file.write_bytes(bytes(2 * CHUNK_BYTES))
    sink = Meddled(tmp_path, at_write=lambda: os.truncate(file, CHUNK_BYTES))
    assert handed_over(tmp_path / "raw", sink) == f"{file} became shorter while it was read."


def flip(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(-20, os.SEEK_END)
        file.write(b"other")


def test_an_event_file_that_was_changed(tmp_path: Path) -> None:
    """What is read back is compared, and its checksums are."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a").write_bytes(bytes(100))
    sink = Meddled(tmp_path, at_flush=flip)
    assert handed_over(tmp_path / "raw", sink).startswith(f"{sink.path} does not hold what was written to it: ")


def test_a_mindspore_without_a_profiler_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Is told with its version; the public one is used."""
    nothing = SimpleNamespace(Profiler=SimpleNamespace(get_instance=lambda target: None))
    monkeypatch.setattr(framework, "_home", lambda name: nothing)
    backends.create("CPU", Options())
    words = f"MindSpore {ms.__version__} was built without its profiler of the CPU."
    assert words + " MindSpore's public profiler is used instead." in caplog.text


def test_no_pipeline_where_one_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, whatever the number of windows."""
    caplog.set_level(logging.WARNING, "instrument")
    silent = SimpleNamespace(
        init=lambda _: None, step_profiling_enable=lambda _: None, enable_op_time=lambda: None, stop=lambda: None
    )
    monkeypatch.setattr(framework, "cpu_profiler", lambda: silent)
    monkeypatch.setattr(backends, "PIPELINE", SimpleNamespace(start=lambda *_: None, stop=lambda: False, missed=0))
    backend = backends.CpuBackend(Options(data_process=True))
    for _ in range(2):
        backend.start(str(tmp_path))
        backend.stop()
    (said,) = [one.getMessage() for one in caplog.records]
    assert said.startswith("Profiler: data_process=True, but no data pipeline was recorded: make the Profiler before")
