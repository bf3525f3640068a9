"""What every sink promises, with and without worker processes: order, exactly once, flush, limits, numbers."""

from __future__ import annotations

import errno
import gc
import os
import stat
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from instrument.codec import event as event_codec
from instrument.eventfile.blocks import EventFileReader
from instrument.values import ArrayItem, Event, Gap, ScalarItem
from instrument.write.factory import open_sink
from instrument.write.sink import Stats, Target
from tests.write.build import (
    ROOT,
    all_records,
    both,
    custom,
    files,
    frame_count,
    full_disk,
    gaps,
    numbers,
    only_file,
    records,
    scalar,
    steps,
    tensor,
    wait_for_workers_to_end,
    wait_until,
)  # fmt: skip
from tests.write.conftest import OpenSink

needs_pwritev = pytest.mark.skipif(not hasattr(os, "pwritev"), reason="this system has no pwritev to stand in for")
WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])


def disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


@WORKERS
def test_events_in_order_and_once(sink_at: OpenSink, tmp_path: Path, workers: int) -> None:
    """2,000 events are in the file in the order in which they were written, each once, with its value."""
    sink = sink_at(workers)
    assert all(sink.write(scalar(step)) for step in range(2000))
    sink.close()
    assert numbers(sink.path) == [(step, float(step)) for step in range(2000)]
    assert sink.stats == Stats(2000, disk_bytes(tmp_path), 0, 0.0, 0, 0, 0)


@WORKERS
def test_heavy_and_light_events_keep_their_order(sink_at: OpenSink, rng: np.random.Generator, workers: int) -> None:
    """Light events do not overtake heavy ones that came before, however the workers share them out."""
    sink = sink_at(workers, ring_bytes=3 << 20)
    heavy = np.zeros(100_000)
    weights = rng.integers(0, 8, 150).tolist()
    for step, weight in enumerate(weights):
        item = ArrayItem("histogram", "h", heavy + step) if weight == 0 else ScalarItem("s", float(step))
        assert sink.write(Event.of(step, 1.0, (item,)))
    sink.close()
    found = records(sink.path)
    assert [record.step for record in found] == list(range(150))
    assert [record.kind for record in found] == ["histogram" if weight == 0 else "scalar" for weight in weights]
    assert sink.stats.lost == 0


@WORKERS
def test_flush_is_readable(sink_at: OpenSink, workers: int) -> None:
    """When `flush` returns, an independent reader finds everything before it."""
    sink = sink_at(workers)
    for step in range(60):
        sink.write(scalar(step) if step % 20 else tensor(step, 50_000))
        if step % 7 == 0:
            sink.flush()
            assert steps(sink.path) == list(range(step + 1))
            assert sink.stats.pending == 0


@WORKERS
def test_flush_to_the_disk(sink_at: OpenSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """With `sync`, both files and their directory are synced, after everything was written."""
    sink = sink_at(workers)
    synced: dict[str, int] = {}

    def fsync(fd: int) -> None:
        synced[os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))] = os.fstat(fd).st_size

    monkeypatch.setattr(os, "fsync", fsync)
    sink.write(both(1))
    sink.flush(sync=True)
    names = [path.name for path in (*files(tmp_path), *files(tmp_path, lineage=True))]
    assert sorted(synced) == sorted([*names, tmp_path.name])
    assert [synced[name] for name in names] == [(tmp_path / name).stat().st_size for name in names]
    assert steps(sink.path) == [1]


@WORKERS
def test_a_flush_that_cannot_reach_the_disk(
    sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    """It raises nothing into training; it says so, once."""
    sink = sink_at(workers)
    sink.write(scalar(1))

    def fsync(fd: int) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(os, "fsync", fsync)
    sink.flush(sync=True)
    sink.flush(sync=True)
    assert steps(sink.path) == [1]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]  # the file and its directory
    error = sink.take_error()
    assert error is not None
    assert (error.kind, error.path) == ("sync", sink.path)


@WORKERS
def test_values_are_readable_without_flush(sink_at: OpenSink, workers: int) -> None:
    """An event reaches its file by itself, at once."""
    sink = sink_at(workers)
    for step in (1, 2, 3):
        sink.write(scalar(step))
        wait_until(lambda: frame_count(sink.path) == step + 1)  # noqa: B023


@WORKERS
def test_close_twice(sink_at: OpenSink, workers: int) -> None:
    """A second close, a flush and a write after it do nothing; the numbers stay."""
    sink = sink_at(workers)
    sink.write(scalar(1))
    sink.close()
    stats = sink.stats
    sink.close()
    sink.flush(sync=True)
    assert not sink.write(scalar(2))
    assert sink.stats == stats
    assert steps(sink.path) == [1]


@WORKERS
def test_close_with_nothing_to_write(sink_at: OpenSink, tmp_path: Path, workers: int) -> None:
    """The file exists from the start, and holds its version and nothing else."""
    before = time.time()
    sink = sink_at(workers)
    sink.flush()
    sink.close()
    (path,) = tmp_path.iterdir()
    assert str(path) == sink.path
    (payload,) = EventFileReader(sink.path)
    (wall_time,) = np.frombuffer(payload[1:9], "<f8")
    assert before <= wall_time <= time.time()
    assert bytes(payload) == b"".join(event_codec.encode_version(wall_time))
    assert sink.stats == Stats(0, path.stat().st_size, 0, 0.0, 0, 0, 0)


@WORKERS
def test_lineage_goes_into_a_file_of_its_own(sink_at: OpenSink, tmp_path: Path, workers: int) -> None:
    """It is made when it is needed, beside the summary file, with the same number in its name."""
    sink = sink_at(workers)
    sink.write(scalar(1))
    sink.flush()
    assert files(tmp_path, lineage=True) == []
    sink.write(both(2))
    sink.write(custom(3))
    sink.close()
    (path,) = files(tmp_path, lineage=True)
    assert path.name == os.path.basename(sink.path).removesuffix("_MS") + "_lineage"
    assert frame_count(path) == 2
    assert steps(sink.path) == [1, 2]
    assert sink.stats.events == 3
    assert sink.stats.bytes == disk_bytes(tmp_path)


@WORKERS
def test_exported_tensors(sink_at: OpenSink, tmp_path: Path, workers: int) -> None:
    """With `export_tensors` each tensor is a file too, whoever encodes it."""
    sink = sink_at(workers, export_tensors=True)
    for step in range(10):
        sink.write(tensor(step, 100))
    sink.close()
    (folder,) = tmp_path.glob("export_*")
    found = {path.name: float(np.load(path)[7]) for path in (folder / "tensor").iterdir()}
    assert found == {f"weight_{step}.npy": float(step) for step in range(10)}
    assert steps(sink.path) == list(range(10))


@WORKERS
def test_an_event_that_cannot_be_encoded(sink_at: OpenSink, caplog: pytest.LogCaptureFixture, workers: int) -> None:
    """It is lost, with an error that says why and which step; no other event is, and nothing is raised.

    Where it would have stood the file says that it is missing.
    """
    sink = sink_at(workers)
    bad = {
        10: Event(10, 1.0, [ArrayItem("no kind", "t", np.ones(3))], {"loss": 10.0}),
        20: Event(20, 1.0, [ArrayItem("tensor", "t", np.array([object()]), "object")], {"loss": 20.0}),
        30: Event(30, 1.0, [ArrayItem("tensor", "t", np.array(["text"]), "str")]),
        40: Event(40, 1.0, (), {"loss": 40.0, "t": None}),  # type: ignore[dict-item]
        50: Event(50, 1.0, (), {"loss": 50.0, "\udcff": 1.0}),
    }
    for step in range(60):
        sink.write(bad.get(step) or scalar(step))
    sink.close()
    assert steps(sink.path) == [step for step in range(60) if step not in bad]
    found = gaps(sink.path)
    assert [gap[:3] for gap in map(astuple, found)] == [(1, step, step) for step in bad]
    assert all("cannot be encoded" in gap.reason for gap in found)
    stats = sink.stats
    assert (stats.events, stats.lost, stats.errors, stats.pending) == (55, 5, 5, 0)
    said = sorted(record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert len(said) == 5
    for step, message in zip(sorted(bad), said, strict=True):
        assert f"the first at step {step}" in message
        assert "cannot be encoded" in message


@WORKERS
def test_the_first_error_can_be_taken(sink_at: OpenSink, workers: int) -> None:
    """`take_error` gives the first since the last call, once."""
    sink = sink_at(workers)
    assert sink.take_error() is None
    for step in (1, 2):
        sink.write(Event.of(step, 1.0, (ArrayItem("no kind", "t", np.ones(3)),)))
    sink.flush()
    error = sink.take_error()
    assert error is not None
    assert (error.kind, error.step, error.path) == ("lost", 1, sink.path)
    assert sink.take_error() is None


# ---------------------------------------------------------------------- a disk that takes nothing, without workers


@needs_pwritev
def test_a_gap_says_what_the_disk_did_not_take(
    sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first event that can be written again says how many are missing before it, and the log too."""
    sink = sink_at(0)
    assert sink.write(scalar(0))
    for first in (1, 5):
        with full_disk(monkeypatch):
            assert [sink.write(scalar(step)) for step in (first, first + 1, first + 2)] == [False] * 3
        assert sink.write(scalar(first + 3))
    sink.close()
    assert steps(sink.path) == [0, 4, 8]
    reason = os.strerror(errno.ENOSPC)
    assert gaps(sink.path) == [Gap(3, 1, 3, reason), Gap(3, 5, 7, reason)]
    assert [record.step for record in all_records(sink.path)] == [0, 4, 4, 8, 8]
    assert sink.stats == Stats(3, os.path.getsize(sink.path), 0, 0.0, 0, 6, 6)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 2
    for message, first in zip(said, (1, 5), strict=True):
        assert f"3 events are missing from {sink.path}, between steps {first} and {first + 2} ({reason})" in message


@needs_pwritev
def test_a_gap_at_the_end(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no event comes any more, `close` says it; it is no event itself."""
    sink = sink_at(0)
    sink.write(scalar(0))
    with full_disk(monkeypatch):
        sink.write(scalar(7))
        sink.write(scalar(5))
    sink.close()
    assert steps(sink.path) == [0]
    assert gaps(sink.path) == [Gap(2, 7, 5, os.strerror(errno.ENOSPC))]
    assert sink.stats == Stats(1, os.path.getsize(sink.path), 0, 0.0, 0, 2, 2)


@needs_pwritev
def test_a_disk_that_stays_full(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` raises nothing, and the file ends where it did."""
    sink = sink_at(0)
    sink.write(scalar(0))
    size = os.path.getsize(sink.path)
    with full_disk(monkeypatch):
        sink.write(scalar(1))
        sink.close()
    assert (steps(sink.path), gaps(sink.path), os.path.getsize(sink.path)) == ([0], [], size)
    assert sink.stats == Stats(1, size, 0, 0.0, 0, 1, 1)


def test_a_lineage_file_that_cannot_be_made(sink_at: OpenSink, tmp_path: Path) -> None:
    """Its event is lost and counted as such; the next one that needs none says so in the file."""
    sink = sink_at(0, directory=tmp_path / "run")
    os.rename(tmp_path / "run", tmp_path / "moved")
    (tmp_path / "run").write_text("")
    assert not sink.write(both(1))
    (tmp_path / "run").unlink()
    os.rename(tmp_path / "moved", tmp_path / "run")
    assert sink.write(scalar(2))
    assert gaps(sink.path) == [Gap(1, 1, 1, os.strerror(errno.ENOTDIR))]
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (1, 1, 1)


# ---------------------------------------------------------------------- max_file_bytes


def with_both(step: int, elements: int) -> Event:
    return Event.of(step, 1.0, (*tensor(step, elements).items, *custom(step).items))


@WORKERS
@pytest.mark.parametrize("limit", [10_000, 10_001, 300])
def test_true_means_in_the_file(
    sink_at: OpenSink, rng: np.random.Generator, tmp_path: Path, workers: int, limit: int
) -> None:
    """With `max_file_bytes`, `write` answers True exactly for what is in the file, which is whole and within it."""
    sink = sink_at(workers, max_file_bytes=limit)
    taken = [step for step in range(150) if sink.write(tensor(step, int(rng.integers(1, 120))))]
    assert sink.write(custom(1000))  # the lineage file has a limit of its own
    sink.close()
    assert steps(sink.path) == taken
    assert 0 < len(taken) < 150 or limit == 300
    missing = [step for step in range(150) if step not in taken]
    assert sum(gap.events for gap in gaps(sink.path)) == len(missing)
    assert os.path.getsize(sink.path) <= limit
    (lineage,) = files(tmp_path, lineage=True)
    assert frame_count(lineage) == 1
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (len(taken) + 1, 0, 0)


@WORKERS
def test_an_event_of_two_files_of_which_one_is_full(sink_at: OpenSink, tmp_path: Path, workers: int) -> None:
    """It is answered False, for a part of it is not recorded; its other part is."""
    sink = sink_at(workers, max_file_bytes=2000)
    answers = [sink.write(with_both(step, 400)) for step in range(3)]
    sink.close()
    assert answers == [True, False, False]
    assert steps(sink.path) == [0]
    assert [gap[:3] for gap in map(astuple, gaps(sink.path))] == [(2, 1, 2)]
    (lineage,) = files(tmp_path, lineage=True)
    assert frame_count(lineage) == 3
    assert sink.stats.events == 1


@WORKERS
def test_a_large_event_among_small_ones(sink_at: OpenSink, caplog: pytest.LogCaptureFixture, workers: int) -> None:
    """One that is too large for the file costs itself alone; file, log, counts and answers say so."""
    sink = sink_at(workers, max_file_bytes=50_000)
    answers = [sink.write(tensor(step, 20_000) if step in (1, 5, 6) else scalar(step)) for step in range(10)]
    sink.close()
    assert [step for step, answer in enumerate(answers) if not answer] == [1, 5, 6]
    assert steps(sink.path) == [0, 2, 3, 4, 7, 8, 9]
    assert [astuple(gap) for gap in gaps(sink.path)] == [
        (1, 1, 1, "max_file_size is 50000"),
        (2, 5, 6, "max_file_size is 50000"),
    ]
    assert (sink.stats.events, sink.stats.dropped, sink.stats.lost, sink.stats.errors) == (7, 3, 0, 0)
    (said,) = caplog.records
    assert said.getMessage().startswith("Step 1 is too large")


@WORKERS
def test_a_file_that_is_full_says_so(sink_at: OpenSink, workers: int) -> None:
    """When it is closed its last place says how many steps are missing behind it, within the limit."""
    sink = sink_at(workers, max_file_bytes=5000)
    taken = [step for step in range(300) if sink.write(scalar(step))]
    sink.close()
    assert steps(sink.path) == taken == list(range(len(taken)))
    assert [gap[:3] for gap in map(astuple, gaps(sink.path))] == [(300 - len(taken), len(taken), 299)]
    assert 4700 < os.path.getsize(sink.path) <= 5000


@WORKERS
def test_the_limit_is_said_once(sink_at: OpenSink, caplog: pytest.LogCaptureFixture, workers: int) -> None:
    """One warning names the file, the step and the limit; it is no error."""
    sink = sink_at(workers, max_file_bytes=500)
    for step in range(100):
        sink.write(scalar(step))
    sink.close()
    (said,) = caplog.records
    taken = len(steps(sink.path))
    assert said.levelname == "WARNING"
    assert sink.path in said.getMessage()
    assert f"step {taken} " in said.getMessage()
    assert "max_file_size is 500" in said.getMessage()
    assert sink.take_error() is None


# ---------------------------------------------------------------------- threads, several sinks, the end without close


@WORKERS
def test_threads(sink_at: OpenSink, workers: int) -> None:
    """Several threads may write and flush at once: each event is there once, each thread's in its order."""
    sink = sink_at(workers, ring_bytes=1 << 20)
    failed: list[BaseException] = []

    def produce(name: str) -> None:
        try:
            for step in range(200):
                assert sink.write(scalar(step, tag=name))
                if step % 50 == 49:
                    sink.flush()
        except BaseException as error:  # noqa: BLE001  the main thread says it
            failed.append(error)

    threads = [threading.Thread(target=produce, args=(f"t{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failed == []
    sink.close()
    found = records(sink.path)
    for index in range(4):
        assert [record.step for record in found if record.tag == f"t{index}"] == list(range(200))
    assert len(found) == 800


@WORKERS
def test_sinks_side_by_side(sink_at: OpenSink, tmp_path: Path, workers: int) -> None:
    """Two sinks on one directory have a file each, and neither mixes into the other's."""
    first, second = sink_at(workers), sink_at(workers)
    for step in range(100):
        assert first.write(scalar(step))
        assert second.write(scalar(1000 + step))
    first.close()
    second.close()
    assert steps(first.path) == list(range(100))
    assert steps(second.path) == list(range(1000, 1100))
    assert sorted([first.path, second.path]) == sorted(str(path) for path in tmp_path.iterdir())


@WORKERS
def test_sinks_one_after_the_other(sink_at: OpenSink, tmp_path: Path, workers: int) -> None:
    """Reopening within a second overwrites nothing; names sort in the order of opening."""
    for step in range(4 if workers else 20):
        sink = sink_at(workers)
        sink.write(scalar(step))
        sink.close()
    assert [steps(path) for path in files(tmp_path)] == [[step] for step in range(4 if workers else 20)]


@WORKERS
def test_a_sink_that_is_forgotten(tmp_path: Path, workers: int) -> None:
    """Dropped without close: everything is written, and its workers, their descriptors and the thread are gone."""
    before = set(os.listdir("/proc/self/fd"))
    sink = open_sink(Target(str(tmp_path)), workers)
    for step in range(200):
        sink.write(scalar(step))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del sink
        gc.collect()
    wait_for_workers_to_end(tmp_path)
    assert steps(only_file(tmp_path)) == list(range(200))
    assert [path.name for path in tmp_path.iterdir()] == [only_file(tmp_path).name]
    wait_until(lambda: not workers or set(os.listdir("/proc/self/fd")) <= before)
    wait_until(lambda: "instrument-monitor" not in {thread.name for thread in threading.enumerate()})


@WORKERS
def test_a_closed_sink_leaves_nothing_open(tmp_path: Path, workers: int) -> None:
    """No descriptor, no thread, no child is left behind by open and close."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        sink = open_sink(Target(str(tmp_path)), workers)
        sink.write(scalar(1))
        sink.close()
        assert len(os.listdir("/proc/self/fd")) == before
        assert "instrument-monitor" not in {thread.name for thread in threading.enumerate()}


@WORKERS
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_modes_respect_the_umask(tmp_path: Path, workers: int, umask: int) -> None:
    """Files have 0666 and directories 0777, each less the umask, which is the same afterwards."""
    old = os.umask(umask)
    try:
        sink = open_sink(Target(str(tmp_path / "a" / "run"), export_tensors=True), workers)
        sink.write(Event.of(1, 1.0, (*tensor(1, 3).items, *custom(1).items)))
        sink.close()
        assert os.umask(umask) == umask
    finally:
        os.umask(old)
    paths = list(tmp_path.rglob("*"))
    assert len(paths) == 7  # a, a/run, the summary, the lineage, export_*, tensor, the array
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~umask


@WORKERS
def test_a_relative_directory(sink_at: OpenSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """It is that of the opening, wherever this process goes later and whenever a worker starts."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    sink = sink_at(workers, directory="run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    sink.write(both(1))
    sink.flush(sync=True)
    assert sink.path == str(only_file(tmp_path / "run"))
    assert steps(sink.path) == [1]
    assert len(files(tmp_path / "run", lineage=True)) == 1
    assert sink.take_error() is None


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """The error is raised at the start, and nothing is left."""
    (tmp_path / "file").write_text("")
    for workers in (0, 1):
        with pytest.raises((NotADirectoryError, FileExistsError)):
            open_sink(Target(str(tmp_path / "file" / "run")), workers)


# ---------------------------------------------------------------------- system calls

WRITE_1000 = """
import sys
sys.path.insert(0, sys.argv[3])
from instrument.values import Event, ScalarItem
from instrument.write.factory import open_sink
from instrument.write.sink import Target
sink = open_sink(Target(sys.argv[1]), int(sys.argv[2]))
for step in range(1000):
    assert sink.write(Event.of(step, 1.0, [ScalarItem(f"tag{index}", float(step)) for index in range(10)]))
sink.close()
"""


@WORKERS
def test_system_calls(tmp_path: Path, workers: int) -> None:
    """1,000 events of ten scalars: each writer opens the file once and writes at most once an event."""
    trace = tmp_path / "trace"
    # Following them, a tracer's system calls come in whole lines; -ff gives each process a file of its own.
    command = ["strace", "-ff", "-y", "-e", "trace=openat,write,pwritev,pwrite64,ftruncate", "-o", str(trace)]
    script = [sys.executable, "-c", WRITE_1000, str(tmp_path / "run"), str(workers), str(ROOT)]
    try:
        result = subprocess.run([*command, *script], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("there is no strace to count system calls with")
    if "ptrace" in result.stderr:
        pytest.skip(f"strace may not trace here: {result.stderr.strip()[:200]}")
    assert result.returncode == 0, result.stderr[-2000:]
    path = only_file(tmp_path / "run")
    lines = [line for part in tmp_path.glob("trace.*") for line in part.read_text().splitlines() if path.name in line]
    opened = [line for line in lines if line.startswith("openat") and "O_RDONLY" not in line]
    written = [line for line in lines if line.startswith(("write", "pwrite"))]
    # The name is made and the version written once; then whoever writes opens the file.
    assert len(opened) <= 2 + max(workers, 1)
    assert len(written) <= 1 + 1000
    assert len([line for line in lines if line not in opened and line not in written]) == 0
    assert len(records(path)) == 10_000
