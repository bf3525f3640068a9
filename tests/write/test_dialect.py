"""Recorders of TensorBoard's dialect, alone and beside MindSpore's: both files have everything, once."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from instrument import Run, read
from instrument.codec import lineage
from instrument.eventfile import names
from instrument.ringfile import commit
from instrument.values import ArrayItem, Event, MessageItem
from instrument.write.pool import PoolSink
from instrument.write.sink import Sink
from tests.write.build import custom, full_disk, scalar, tensor, wait_until
from tests.write.pools import messages, process, stopped

OpenSink = Callable[..., Sink]
DIALECTS = pytest.mark.parametrize("dialect", ["tensorboard", "both"])
PROCESSES = pytest.mark.parametrize("count", [0, 1, 2])


def tensorboard_files(directory: Path) -> list[Path]:
    found = [path for path in directory.iterdir() if "tfevents" in path.name]
    return sorted(found, key=lambda path: int(path.name.rpartition(".")[2]))


def copy(directory: Path) -> Run:
    """What TensorBoard's files hold, read alone."""
    return Run(str(directory), [str(path) for path in tensorboard_files(directory)])


def mixed(step: int) -> Event:
    """Something of each kind."""
    ramp = np.arange(12, dtype=np.float32) + step
    items = [
        ArrayItem("tensor", "t", ramp.astype(np.float64).reshape(3, 4) / 3, "float64"),
        ArrayItem("histogram", "h", ramp),
        ArrayItem("image", "p", (ramp / 30).reshape(1, 1, 3, 4)),
        MessageItem("custom_lineage_data", "info", lineage.custom_message({"lr": 0.5})),
    ]
    return Event(step, 1000.0 + step, items, {"loss": step / 3})


def steps(run: Run, kind: str, tag: str) -> list[int]:
    return run.points(kind, tag, superseded=True).step.tolist()


@DIALECTS
@PROCESSES
def test_every_kind_is_there(sink_at: OpenSink, tmp_path: Path, dialect: str, count: int) -> None:
    """Values, steps and times of all kinds, to the last bit."""
    sink = sink_at(count, dialect=dialect)
    for step in range(1, 6):
        assert sink.write(mixed(step))
    sink.close()
    run = copy(tmp_path)
    assert run.damage == []
    assert run.tags() == {
        "scalar": ["loss"], "image": ["p"], "tensor": ["t"], "histogram": ["h"], "text": ["lineage/custom"],
    }  # fmt: skip
    assert list(run.scalars("loss")) == [(step, 1000.0 + step, step / 3) for step in range(1, 6)]
    for step in range(1, 6):
        ramp = np.arange(12, dtype=np.float32) + step
        np.testing.assert_array_equal(run.tensors("t")[step], ramp.astype(np.float64).reshape(3, 4) / 3)
        assert (run.histograms("h")[step].sum, run.histograms("h")[step].count) == (float(ramp.sum()), 12)
        np.testing.assert_array_equal(run.images("p").pixels(step)[:, :, 0], np.rint(ramp.reshape(3, 4) / 30 * 255))
    assert run.lineage == {"hparams": {"lr": 0.5}}
    assert sink.stats.events == 5


def test_scalars_have_a_file_of_their_own(sink_at: OpenSink, tmp_path: Path) -> None:
    """The first file of TensorBoard's has nothing but scalars, the other none; names are those that its tools know."""
    sink = sink_at(1, dialect="tensorboard")
    sink.write(mixed(1))
    sink.close()
    first, second = tensorboard_files(tmp_path)
    assert first == Path(sink.path)
    seconds = names.recognise(first.name).seconds  # type: ignore[union-attr]
    assert [path.name for path in (first, second)] == [
        f"events.out.tfevents.{seconds}.{names.host()}.{os.getpid()}.{number}" for number in (0, 1)
    ]
    assert list(read(first).tags()) == ["scalar"]
    assert list(read(second).tags()) == ["image", "tensor", "histogram", "text"]
    assert sorted(tmp_path.iterdir()) == [first, second]


def test_both_say_the_same(sink_at: OpenSink, tmp_path: Path) -> None:
    """What MindSpore's files hold is in TensorBoard's, and read together each value counts once."""
    sink = sink_at(1, dialect="both")
    for step in range(4):
        sink.write(mixed(step))
    sink.close()
    whole, other = read(tmp_path), copy(tmp_path)
    assert list(whole.scalars("loss")) == list(other.scalars("loss"))
    assert len(whole.scalars("loss", superseded=True)) == 4
    for kind, tag in (("image", "p"), ("tensor", "t"), ("histogram", "h")):
        pairs = zip(whole.points(kind, tag), other.points(kind, tag), strict=True)  # type: ignore[call-overload]
        for one, two in pairs:
            assert plain(one) == plain(two)


def plain(point: tuple[int, float, Any]) -> tuple[int, float, Any]:
    fields = {name: one.tolist() if isinstance(one, np.ndarray) else one for name, one in vars(point[2]).items()}
    return point[0], point[1], fields


@DIALECTS
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "float16"])
def test_a_record_larger_than_the_ring(sink_at: OpenSink, tmp_path: Path, dialect: str, dtype: str) -> None:
    """It passes through in pieces, into all files, with whatever else is in it."""
    array = (np.arange(100_000) % 7).astype(dtype)
    sink = sink_at(1, ring_bytes=64 << 10, dialect=dialect)
    items = [ArrayItem("tensor", "a", array, dtype), ArrayItem("tensor", "b", array[:50_000], dtype), *mixed(3).items]
    assert sink.write(Event(3, 5.0, items, {"x": 0.1}))
    assert sink.write(scalar(4, tag="x"))
    sink.close()
    run = copy(tmp_path)
    assert run.damage == []
    np.testing.assert_array_equal(run.tensors("a")[3], array)
    np.testing.assert_array_equal(run.tensors("b")[3], array[:50_000])
    assert run.histograms("h")[3].count == 12
    assert run.scalars("x").value.tolist() == [0.1, 4.0]
    if dialect == "both":
        np.testing.assert_array_equal(read(tmp_path).tensors("a")[3], array)


@DIALECTS
def test_killed_workers_lose_and_repeat_nothing(sink_at: OpenSink, tmp_path: Path, dialect: str) -> None:
    """Workers that are killed in the middle of writing: each step is in each file, once and in order."""
    sink = sink_at(1, ring_bytes=256 << 10, dialect=dialect)
    assert isinstance(sink, PoolSink)
    for step in range(300):
        if step % 60 == 30:
            worker = process(sink)
            worker.send_signal(signal.SIGKILL)
        assert sink.write(tensor(step, 500)._replace(scalars={"loss": float(step)}))
    sink.close()
    run = copy(tmp_path)
    assert run.damage == []
    assert steps(run, "scalar", "loss") == steps(run, "tensor", "weight") == list(range(300))
    assert sink.stats.events == 300
    if dialect == "both":
        assert steps(read(tmp_path), "scalar", "loss") == list(range(300))


def test_what_one_file_does_not_take_is_in_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event whose last file cannot be written is taken back from the others, and tried again as a whole."""
    from instrument.codec.dialects import LAYOUTS

    paths = tuple(str(tmp_path / name) for name in ("a", "b", "c", "d"))
    layout, notices = LAYOUTS["both"], list[commit.Diagnostic]()
    committer = commit.Committer(None, notices.append, layout)
    job = commit.encode(1, mixed(1), paths, notices.append, layout)
    real = os.pwritev

    def pwritev(fd: int, pieces: Any, offset: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}") == paths[3]:
            raise OSError(errno.ENOSPC, "no")
        return real(fd, pieces, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", pwritev)
        with pytest.raises(OSError, match="no"):
            committer.apply(commit.State(), [job])
    assert [os.path.getsize(path) for path in paths] == [0, 0, 0, 0]
    state = committer.apply(commit.State(), [job])
    committer.close()
    assert [os.path.getsize(path) for path in paths] == state.lengths
    assert all(state.lengths)


def test_a_gap_is_said_in_the_first_file(sink_at: OpenSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a full disk did not take is listed by a reader of TensorBoard's files alone, too."""
    sink = sink_at(0, dialect="tensorboard")
    sink.write(mixed(1))
    with full_disk(monkeypatch):
        assert not sink.write(mixed(2))
    sink.write(mixed(3))
    sink.close()
    run = read(tmp_path)
    assert [(gap.events, gap.first_step, gap.last_step) for gap in run.gaps] == [(1, 2, 2)]
    assert steps(run, "scalar", "loss") == steps(run, "tensor", "t") == [1, 3]


@DIALECTS
@pytest.mark.parametrize("count", [0, 1])
def test_the_limit_of_size(sink_at: OpenSink, tmp_path: Path, dialect: str, count: int) -> None:
    """No file grows beyond it, and what `write` answered True for is in all of them."""
    sink = sink_at(count, dialect=dialect, max_file_bytes=20_000)
    taken = [step for step in range(60) if sink.write(tensor(step, 200)._replace(scalars={"loss": float(step)}))]
    sink.close()
    assert 10 < len(taken) < 30
    assert all(path.stat().st_size <= 20_000 for path in tmp_path.iterdir())
    run = copy(tmp_path)
    assert run.damage == []
    assert set(taken) <= set(steps(run, "tensor", "weight"))
    assert sink.stats.dropped == 60 - len(taken)


def test_one_tag_of_two_kinds(sink_at: OpenSink, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TensorBoard shows one kind a tag: there the second kind has a name of its own, which is said once."""
    sink = sink_at(1, dialect="both")
    sink.write(scalar(1, tag="x"))
    for step in (2, 3):
        sink.write(tensor(step, 4, tag="x")._replace(scalars={"y": 1.0, "x": 2.0}))
    sink.write(tensor(4, 4, tag="y"))
    sink.close()
    assert copy(tmp_path).tags() == {"scalar": ["x", "y"], "tensor": ["x/tensor", "y/tensor"]}
    assert read(tmp_path).tags() == {"scalar": ["x", "y"], "tensor": ["x", "y"]}
    assert steps(copy(tmp_path), "tensor", "x/tensor") == [2, 3]
    assert len([text for text in messages(caplog) if "one kind a tag" in text]) == 2


def test_files_are_made_when_they_are_needed(sink_at: OpenSink, tmp_path: Path) -> None:
    """A recorder of scalars has no file for other kinds, and a worker of it does without NumPy."""
    sink = sink_at(1, dialect="tensorboard")
    assert isinstance(sink, PoolSink)
    for step in range(3):
        sink.write(scalar(step))
    sink.flush()
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == [Path(sink.path).name]
    maps = psutil.Process(process(sink).pid).memory_maps()
    assert not any("numpy" in one.path for one in maps)


def test_a_copy_that_is_deleted_goes_on(sink_at: OpenSink, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is taken away is begun anew, with a version; the others are not concerned."""
    sink = sink_at(1, dialect="both")
    sink.write(scalar(1))
    sink.flush()
    (first,) = tensorboard_files(tmp_path)
    first.unlink()
    sink.write(scalar(2))
    sink.close()
    assert read(first).scalars("loss").step.tolist() == [2]
    assert read(tmp_path).scalars("loss").step.tolist() == [1, 2]
    assert len([text for text in messages(caplog) if first.name in text]) == 1


def test_a_trainer_that_ends_leaves_whole_files(sink_at: OpenSink, tmp_path: Path) -> None:
    """What was published while a worker stood still is in both files when it has ended."""
    sink = sink_at(1, dialect="both")
    assert isinstance(sink, PoolSink)
    sink.write(custom(1))
    sink.flush()
    with stopped(sink):
        for step in range(2, 50):
            sink.write(mixed(step))
        assert sink.stats.pending == 48
    wait_until(lambda: sink.stats.pending == 0)
    sink.close()
    assert steps(copy(tmp_path), "histogram", "h") == steps(read(tmp_path), "histogram", "h") == list(range(2, 50))
