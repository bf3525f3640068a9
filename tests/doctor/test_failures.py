"""What `instrument doctor` says of each part that does not work, on machines where it does not."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from instrument.doctor import examine, recording
from instrument.doctor.findings import FAILS, Failed, attempt
from instrument.eventfile import crc
from tests.analyse.files import cpu_window, event_file
from tests.doctor.test_doctor import no_training
from tests.show.runs import training

__all__ = ["no_training"]

needs_mindspore = pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="MindSpore is not installed")


def failing(check: Callable[[], str]) -> str:
    found = attempt("it", check)
    assert found.status == FAILS
    return found.detail


def test_wrong_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that was built for another processor."""
    monkeypatch.setattr(crc, "masked_crc", lambda pieces: 0)
    found = {one.name: one for one in examine._around(".")}
    assert (found["checksums"].status, found["checksums"].detail) == (FAILS, "crc32c computes a wrong checksum")
    assert found["checksums"].advice == "pip install --force-reinstall crc32c"


def test_memory_that_is_not_mapped_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that gives two memories where one was asked for twice."""
    monkeypatch.setattr(recording, "map_twice", lambda fd, begin, size: bytearray(2 * size))
    assert failing(recording._shared_memory) == "memory that is mapped twice does not overlap"


@pytest.mark.slow
@pytest.mark.usefixtures("no_training")
def test_a_full_disk(small_disk_of: Callable[[str], Path]) -> None:
    """What was not taken is told with its reason, what was not written with the numbers."""
    report = examine.examine(str(small_disk_of("256k")))
    found = {one.name: one for one in report.findings}
    assert found["without workers"].detail == "step 101 was not taken: No space left on device"
    assert found["worker processes"].detail.startswith("of 1001 events not all are written: Stats(events=1000, ")
    assert not report.is_well


def test_a_sink_that_gives_no_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That is said, too."""
    monkeypatch.setattr(recording.FileSink, "write", lambda self, event: False)
    assert failing(lambda: recording._in_process(str(tmp_path), {})) == "step 1 was not taken: no reason is known"


def test_a_fork_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The child's status is told, when the recorder has gone on and was closed."""
    write, parent = recording.PoolSink.write, os.getpid()
    monkeypatch.setattr(recording.PoolSink, "write", lambda self, event: os.getpid() != parent or write(self, event))
    assert failing(lambda: recording._fork(str(tmp_path), {})) == "the child ended with 7"


def test_other_values_than_were_written(tmp_path: Path) -> None:
    """Both are told, with kind and tag."""
    training(tmp_path / "run", [4.0, 2.0, 1.0])
    assert failing(lambda: examine._read_back(str(tmp_path), {"run": {"scalar": {"loss/auto": (3, 8.0)}}})) == (
        "run: scalar 'loss/auto' has 3 points of sum 7; written were 3 of sum 8"
    )


def test_a_profile_without_steps(tmp_path: Path) -> None:
    """As of a window without any operator and any mark of a step."""
    files = cpu_window(1)
    event_file(tmp_path, [{name: data for name, data in files.items() if name.startswith("instrument.window")}])
    assert failing(lambda: examine._read_profile(str(tmp_path))) == "the profile has no steps"


@needs_mindspore
def test_a_mindspore_that_lacks_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are named."""
    from instrument import framework
    from instrument.doctor import training as trial

    monkeypatch.setattr(framework, "probe", lambda: ["mindspore.a.b", "mindspore.c"])
    found = trial._names()
    assert (found.status, found.detail) == (FAILS, "MindSpore lacks mindspore.a.b, mindspore.c")


@pytest.mark.slow
@needs_mindspore
def test_a_training_that_is_not_recorded(small_disk_of: Callable[[str], Path]) -> None:
    """What was counted is told."""
    from instrument.doctor import training as trial

    disk: Any = small_disk_of("64k")
    (disk / "ballast").write_bytes(bytes(60_000))
    with pytest.raises(Failed, match=r"^not everything is written: Stats\(events="):
        trial._train(str(disk / "pynative"), "pynative", {})
