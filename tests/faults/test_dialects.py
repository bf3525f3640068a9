"""TensorBoard's dialect, alone and beside MindSpore's, when something fails: each file has what was answered True."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import read
from instrument.values import ArrayItem, Event
from instrument.write.sink import Sink
from tests.faults.test_disk import no_more_descriptors, said_at
from tests.oracle import large_files
from tests.oracle.frames import all_fields
from tests.oracle.mindspore_files import gap
from tests.write.build import both, custom, scalar, tensor, wait_until
from tests.write.conftest import OpenSink, sink_at

__all__ = ["sink_at"]
DIALECTS = pytest.mark.parametrize("dialect", ["tensorboard", "both"])
WORKERS = pytest.mark.parametrize("count", [0, 1, 3])


def event(step: int, elements: int = 10) -> Event:
    """A scalar and a tensor: one for each of TensorBoard's files."""
    return tensor(step, elements)._replace(scalars={"loss": float(step)})


def held(directory: Path) -> dict[str, list[int]]:
    """The steps of the events in each file, by the end of its name; each is whole."""
    paths = [path for path in sorted(directory.iterdir()) if ".out." in path.name]
    return {
        path.name.rpartition(".")[2] if "tfevents" in path.name else "_MS": [
            frame.step for frame in large_files.frames(path) if not (frame.is_version or frame.missing)
        ]
        for path in paths
        if not path.name.endswith("_lineage")
    }


def mixed(step: int) -> Event:
    """Something for each file of each dialect."""
    return both(step)._replace(items=[*both(step).items, *tensor(step, 3).items])


def shown(directory: Path) -> list[int]:
    """The steps of the scalar that readers find in a directory."""
    run = read(directory)
    return run.scalars("loss").step.tolist() if "loss" in run.tags().get("scalar", []) else []


def files_of(dialect: str, steps: list[int]) -> dict[str, list[int]]:
    """What `held` is to find."""
    return dict.fromkeys(["0", "1", *(["_MS"] if dialect == "both" else [])], steps)


def missing(sink: Sink) -> list[tuple[int, int]]:
    """The first step and the number of the events that the first file says are missing; no other file says so."""
    for path in Path(sink.path).parent.iterdir():
        if ".out." in path.name and str(path) != sink.path:
            assert not any(frame.missing for frame in large_files.frames(path))
    said = [frame.payload for frame in large_files.frames(Path(sink.path)) if frame.missing]
    gaps = [gap(bytes(all_fields(bytes(payload))[101])) for payload in said]
    return [(first_step, number) for number, first_step, _, _ in gaps]


@DIALECTS
@WORKERS
def test_a_disk_that_is_full_for_a_while(
    small_disk_of: Callable[[str], Path], sink_at: OpenSink, caplog: pytest.LogCaptureFixture, dialect: str, count: int
) -> None:
    """Log, `stats` and the first file agree on how many events are missing, and no other event is in only one file."""
    disk = small_disk_of("1m")
    sink = sink_at(count, ring_bytes=max(count, 1) * 100_000, directory=disk, dialect=dialect)
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    taken = [step for step in range(100) if sink.write(event(step, 10_000))]
    assert 0 < sink.stats.events < 50
    ballast.unlink()
    wait_until(lambda: sink.stats.pending == 0)
    assert sink.write(event(100))
    sink.close()
    refused = 100 - len(taken)
    assert refused > 30
    assert held(disk) == files_of(dialect, [*taken, 100])
    stats = sink.stats
    assert (stats.events, stats.dropped + stats.lost, stats.pending) == (len(taken) + 1, refused, 0)
    found = missing(sink)
    assert sum(number for _, number in found) == refused
    error, *_ = said_at(caplog, "ERROR")
    assert os.strerror(errno.ENOSPC) in error
    assert sink.path in error
    said = [text for text in said_at(caplog, "WARNING") if "events are missing" in text]
    assert [int(text.split()[0]) for text in said] == [number for _, number in found]


@DIALECTS
@WORKERS
def test_a_directory_that_vanishes(
    sink_at: OpenSink, tmp_path: Path, caplog: pytest.LogCaptureFixture, dialect: str, count: int
) -> None:
    """All files are begun anew with a version each, and one error a file says since when."""
    directory = tmp_path / "run"
    sink = sink_at(count, directory=directory, dialect=dialect)
    assert sink.write(event(0))
    sink.flush()
    shutil.rmtree(directory)
    assert all(sink.write(event(step)) for step in range(1, 50))
    sink.close()
    assert held(directory) == files_of(dialect, list(range(1, 50)))
    for path in directory.iterdir():
        assert [frame.is_version for frame in large_files.frames(path)] == [True] + [False] * 49
    said = said_at(caplog, "ERROR")
    assert len(said) == len(files_of(dialect, []))
    assert all("before step 1 is lost: it was deleted" in text for text in said)


@pytest.mark.parametrize("how", ["deleted", "renamed"])
@pytest.mark.parametrize("dialect", ["mindspore", "tensorboard", "both"])
@WORKERS
def test_a_directory_that_vanishes_before_a_file_is_needed(
    sink_at: OpenSink, tmp_path: Path, dialect: str, count: int, how: str
) -> None:
    """A file that is needed for the first time is made with its directory: no event is refused for it."""
    directory = tmp_path / "run"
    sink = sink_at(count, directory=directory, dialect=dialect)
    assert sink.write(scalar(0))
    sink.flush()
    shutil.rmtree(directory) if how == "deleted" else directory.rename(tmp_path / "elsewhere")
    assert all(sink.write(mixed(step)) for step in range(1, 5))
    sink.close()
    assert (sink.stats.lost, sink.stats.dropped, sink.stats.events) == (0, 0, 5)
    assert sorted({step for path in tmp_path.iterdir() for step in shown(path)} - {0}) == [1, 2, 3, 4]
    assert read(directory).lineage["custom" if dialect != "tensorboard" else "hparams"]


@DIALECTS
@WORKERS
def test_no_descriptor_is_left(sink_at: OpenSink, tmp_path: Path, dialect: str, count: int) -> None:
    """Files that are open are written on; an event that needs a new one is refused as a whole, and said."""
    sink = sink_at(count, dialect=dialect)
    scalars = [Event(step, 1.0, (), {"loss": 1.0}) for step in range(52)]
    assert sink.write(scalars[0])
    sink.flush()
    with no_more_descriptors():
        assert all(sink.write(one) for one in scalars[1:50])
        assert not sink.write(event(50))
        sink.flush()
        assert sink.stats.events == 50
    assert sink.write(event(51))
    sink.close()
    steps = [*range(50), 51]
    assert held(tmp_path) == {**files_of(dialect, steps), "1": [51]}
    assert missing(sink) == [(50, 1)]
    assert (sink.stats.events, sink.stats.lost) == (51, 1)


@DIALECTS
@WORKERS
def test_an_event_that_cannot_be_encoded(
    sink_at: OpenSink, tmp_path: Path, caplog: pytest.LogCaptureFixture, dialect: str, count: int
) -> None:
    """It is in no file, not even the part of it that could be, and the first file says so; its neighbours are there."""
    sink = sink_at(count, dialect=dialect)
    objects = ArrayItem("tensor", "t", np.array(["text"]), "str")
    for step in range(30):
        sink.write(event(step)._replace(items=[objects]) if step in (10, 20) else event(step))
    sink.close()
    assert held(tmp_path) == files_of(dialect, [step for step in range(30) if step not in (10, 20)])
    assert missing(sink) == [(10, 1), (20, 1)]
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (28, 2, 2)
    assert "the first at step 10" in said_at(caplog, "ERROR")[0]


@DIALECTS
@WORKERS
def test_a_flush_to_the_disk(
    sink_at: OpenSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str, count: int
) -> None:
    """With `sync`, every file and the directory are synced, after everything was written."""
    synced: dict[str, int] = {}

    def fsync(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        synced[path] = os.path.getsize(path)

    monkeypatch.setattr(os, "fsync", fsync)
    sink: Any = sink_at(count, dialect=dialect)
    for step in range(20):
        sink.write(custom(step)._replace(scalars={"loss": 1.0}))
    sink.flush(sync=True)
    assert set(synced) == {str(tmp_path), *map(str, tmp_path.glob("[!.]*"))}
    assert len(synced) == (5 if dialect == "both" else 3)
    assert {path: os.path.getsize(path) for path in synced} == synced
