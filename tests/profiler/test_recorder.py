"""What can go wrong around a window: nothing of it stops a training, and the next window works."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from instrument import StopAtEpoch, StopAtStep, framework, marks
from instrument.profiler import archive, backends, recorder
from instrument.profiler.profiler import Profiler
from instrument.profiler.recorder import Recorder
from instrument.profiler.schedule import schedule
from tests.collect.fake import Loop
from tests.profiler.fake import FakeBackend, windows


def raw_directories(path: Path) -> list[Path]:
    return sorted(path.glob("profile_raw_*"))


def test_a_device_that_cannot_start(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    """It is logged once, nothing is left behind, and the next start works."""
    device.fail_start = RuntimeError("device is gone")
    profiler = Profiler(tmp_path, start_profile=False)
    for _ in range(2):
        profiler.start()
        assert not profiler.recorder.is_recording
    assert len(said("cannot be opened: RuntimeError: device is gone")) == 1
    assert list(tmp_path.iterdir()) == []
    device.fail_start = None
    profiler.start()
    profiler.stop()
    assert len(windows(tmp_path)) == 1


def test_a_device_that_cannot_stop(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    """Its window is lost but for what lies in the directory that the log names; marks are off again."""
    profiler = Profiler(tmp_path)
    device.fail_stop = RuntimeError("no answer")
    profiler.stop()
    assert len(said("cannot be stopped: RuntimeError: no answer")) == 1
    assert marks._window is None
    assert recorder._recording is None
    device.fail_stop = None
    profiler.start()
    profiler.stop()
    assert [one.number for one in windows(tmp_path)] == [1]


def test_a_device_without_a_profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    monkeypatch.setattr(framework, "device_target", lambda: "Abacus")
    profiler = Profiler(tmp_path)
    profiler.step()
    profiler.start()
    assert said() == ["Profiler: There is no profiler for the device 'Abacus'; there are CPU, Ascend, GPU."]


def test_an_interrupt_while_opening_leaves_nothing(device: FakeBackend, tmp_path: Path) -> None:
    device.fail_start = KeyboardInterrupt()
    profiler = Profiler(tmp_path, start_profile=False)
    with pytest.raises(KeyboardInterrupt):
        profiler.start()
    assert (list(tmp_path.iterdir()), marks._window, recorder._recording) == ([], None, None)
    device.fail_start = None
    profiler.start()
    profiler.stop()
    assert len(windows(tmp_path)) == 1


def test_an_interrupt_while_closing_keeps_the_raw_files(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is impatient finds them there, and the profiler works again."""

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    profiler = Profiler(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "archive_files", interrupted)
        with pytest.raises(KeyboardInterrupt):
            profiler.stop()
    (directory,) = raw_directories(tmp_path)
    assert profiler.recorder.latest == (str(directory), -1)
    assert (directory / "hwts.data.0.slice_0").read_bytes() == b"\0" * 64
    profiler.start()
    profiler.stop()
    assert [one.number for one in windows(tmp_path)] == [1]


def test_operators_that_fail_late(device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of an operator that was still running is raised, when the window is safe."""
    profiler = Profiler(tmp_path)

    def fail() -> None:
        raise ValueError("operator")

    monkeypatch.setattr(framework, "wait_for_operators", fail)
    with pytest.raises(ValueError, match="operator"):
        profiler.stop()
    (found,) = windows(tmp_path)
    assert found.about["reason"] == "ValueError: operator"
    assert found.raw == device.files


@pytest.mark.parametrize("keep_raw", [False, True])
def test_the_raw_directory(device: FakeBackend, tmp_path: Path, keep_raw: bool) -> None:
    """It is removed once the event file holds it, unless somebody wants it."""
    device.files = {"a/b.bin": b"b" * 3_000_000, "c.txt": b""}
    profiler = Profiler(tmp_path, keep_raw=keep_raw)
    profiler.stop()
    (found,) = windows(tmp_path)
    assert found.raw == device.files
    directories = raw_directories(tmp_path)
    assert len(directories) == keep_raw
    for directory in directories:
        assert {name: (directory / name).read_bytes() for name in found.files} == found.files


def test_a_trace_that_differs_keeps_the_raw_files(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    """One byte that is not read back as it was written is enough."""
    written = archive.read_back

    def damaged(path: str, offset: int) -> Any:
        for number, payload in enumerate(written(path, offset)):
            data = bytearray(payload)
            data[-1] ^= number == 3
            yield memoryview(bytes(data))

    monkeypatch.setattr(archive, "read_back", damaged)
    profiler = Profiler(tmp_path)
    profiler.stop()
    (directory,) = raw_directories(tmp_path)
    assert (directory / "hwts.data.0.slice_0").read_bytes() == b"\0" * 64
    (message,) = said("does not hold what was written to it")
    assert str(directory) in message
    assert profiler.recorder.latest == (str(directory), -1)
    monkeypatch.undo()


def test_a_full_disk_keeps_what_the_device_said(
    device: FakeBackend, tmp_path: Path, small_disk_of: Callable[[str], Path], said: Any
) -> None:
    """No room for the event file: the raw files stay, training goes on; with room again the next window is whole."""
    disk = small_disk_of("512k")
    device.files = {"large.bin": b"x" * 300_000}
    profiler = Profiler(disk)
    profiler.stop()
    (directory,) = raw_directories(disk)
    assert (directory / "large.bin").stat().st_size == 300_000
    assert len(said("a window is not in the event file")) == 1
    for path in sorted(directory.iterdir()):
        path.unlink()
    device.files = {"small.bin": b"y" * 100_000}
    profiler.start()
    profiler.stop()
    from instrument.analyse import trace_files

    last = trace_files.windows(disk)[-1]
    assert (last.number, last.problems) == (1, [])
    assert b"".join(last.files["small.bin"]) == b"y" * 100_000
    del profiler  # it has the event file open, and the disk goes


@pytest.mark.parametrize(
    "make",
    [
        lambda path: Profiler(path, start_profile=False), lambda path: StopAtStep(1, 2, path),
        lambda path: StopAtEpoch(1, 2, path),
    ],
)  # fmt: skip
def test_a_directory_that_cannot_be_written_is_refused(device: FakeBackend, tmp_path: Path, make: Any) -> None:
    """At construction, with the path; nothing is left where it was tried."""
    (tmp_path / "file").write_text("")
    for path, error in (
        (tmp_path / "file" / "run", NotADirectoryError), (tmp_path / "file", NotADirectoryError),
        (Path("/proc/nope"), OSError), ("", ValueError), ("a\0b", ValueError), (3, TypeError),
    ):  # fmt: skip
        with pytest.raises(error, match="output_path"):
            make(path)
    make(tmp_path / "deep" / "er")
    assert os.listdir(tmp_path) == ["file"]


def test_a_device_that_fails_at_start_is_reported(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    """`stop` and `analyse` name the reason and raise nothing; when the device works again a window is recorded."""
    device.fail_start = RuntimeError("device lost")
    profiler = Profiler(tmp_path)
    profiler.step()
    profiler.stop()
    reason = "the window (until stop()) cannot be opened: RuntimeError: device lost"
    assert said(reason) == [f"Profiler: {reason}", f"Profiler: stop() was called, but nothing was recorded: {reason}"]
    assert "device lost" in str(profiler.analyse())
    device.fail_start = None
    profiler.start()
    profiler.stop()
    assert len(windows(tmp_path)) == 1


class Odd(Exception):
    """No kind of error that anybody expects."""


_PLACES = (
    "archive_files", "open_sink", "ProfilerWindow.close", "ProfilerWindow.remove", "Recorder._report",
    "ProfilerWindow.dropped",
)  # fmt: skip


@pytest.mark.parametrize("error", [MemoryError(), Odd("odd"), KeyError("x"), OSError(5, "I/O error")], ids=repr)
@pytest.mark.parametrize("place", _PLACES)
def test_no_error_of_the_profiler_ends_a_training(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any, place: str, error: Exception
) -> None:
    """Wherever it happens and whatever it is: it is logged, the training ends well, a later window is recorded."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    name, _, method = place.partition(".")
    with monkeypatch.context() as patch:
        if method:
            failing = property(fail, fail) if method == "dropped" else fail
            patch.setattr(getattr(recorder, name), method, failing, raising=False)
        else:
            patch.setattr(recorder, name, fail)
        Loop(StopAtStep(2, 4, tmp_path)).train(range(1, 7))
    if place != "Recorder._report":  # which has nothing to do where the window came
        assert said() != []
    Loop(StopAtStep(2, 4, tmp_path / "later")).train(range(1, 7))
    assert windows(tmp_path / "later")[0].steps == [2, 3, 4]


@pytest.mark.parametrize("place", ["archive_files", "open_sink"])
def test_the_users_error_comes_through(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Out of a `with` block in which the profiler fails as well."""

    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(recorder, place, fail)

    def train() -> None:
        with Profiler(tmp_path):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        train()


def test_an_operator_that_failed_before_the_window(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is raised where the window would open, as it would be without a profiler."""
    profiler = Profiler(tmp_path, start_profile=False)

    def fail() -> None:
        raise ValueError("operator")

    with monkeypatch.context() as patch:
        patch.setattr(framework, "wait_for_operators", fail)
        with pytest.raises(ValueError, match="operator"):
            profiler.start()
    profiler.start()
    profiler.stop()
    assert len(windows(tmp_path)) == 1


@pytest.mark.parametrize("has_handler", [False, True])
def test_a_profiler_that_was_lost_makes_way(device: FakeBackend, tmp_path: Path, said: Any, has_handler: bool) -> None:
    """Its window is closed and kept when the next one opens, and a warning names it."""

    def cell() -> None:
        profiler = Profiler(tmp_path / "lost", on_trace_ready=(lambda _: None) if has_handler else None)
        profiler.step()
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        cell()
    profiler = Profiler(tmp_path / "next")
    profiler.stop()
    (lost,), (found,) = windows(tmp_path / "lost"), windows(tmp_path / "next")
    assert lost.about["reason"] == "another profiler started"
    assert found.about["complete"] is True
    assert len(said("was not stopped; its window is closed and kept")) == 1


def test_in_a_notebook_the_next_profiler_takes_over(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the traceback of an interrupted cell keeps the first one; in a script that is still held, it stays."""
    first = Profiler(tmp_path / "first")
    with pytest.raises(RuntimeError, match="Another profiler records into"):
        Profiler(tmp_path / "second")
    assert first.recorder.is_recording
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    second = Profiler(tmp_path / "second")
    assert (first.recorder.is_recording, second.recorder.is_recording) == (False, True)
    second.stop()
    assert [len(windows(tmp_path / name)) for name in ("first", "second")] == [1, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_nothing(device: FakeBackend, tmp_path: Path) -> None:
    """It cannot stop its parent's window."""
    profiler = Profiler(tmp_path)
    pid = os.fork()
    if pid == 0:
        profiler.stop()
        os._exit(len(device.calls) != 2)
    assert os.waitpid(pid, 0)[1] == 0
    profiler.stop()
    assert len(windows(tmp_path)) == 1


def test_many_marks_are_said(device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    opened = marks.open_window
    monkeypatch.setattr(marks, "open_window", lambda settle: opened(5, settle))
    profiler = Profiler(tmp_path)
    for _ in range(8):
        profiler.step()
    profiler.stop()
    (found,) = windows(tmp_path)
    assert (found.steps, found.about["dropped_marks"]) == ([0, 1, 2, 3, 4], 3)
    assert len(said("3 marks were too many")) == 1


def test_a_large_window_passes_in_pieces(device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw file is never held whole: the pieces that are written are of at most 1 MiB."""
    device.files = {"large.bin": os.urandom(5_000_001)}
    pieces: list[tuple[int, int]] = []
    encode = archive.trace_codec.encode
    monkeypatch.setattr(
        archive.trace_codec, "encode", lambda piece: pieces.append((piece.offset, len(piece.data))) or encode(piece)
    )
    profiler = Profiler(tmp_path)
    profiler.stop()
    large = pieces[-5:]
    assert [size for _, size in large] == [1 << 20] * 4 + [5_000_001 - (4 << 20)]
    assert windows(tmp_path)[0].raw == device.files


def test_the_public_profiler_steps_in_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    """Where MindSpore's raw profiler of the CPU is not to be had, its public one is used."""
    from instrument.errors import FrameworkError
    from instrument.profiler.backends import PublicBackend
    from instrument.profiler.options import Options

    def missing(*_: Any) -> Any:
        raise FrameworkError("no such name.")

    monkeypatch.setattr(framework, "cpu_profiler", missing)
    backend = backends.create("CPU", Options())
    assert isinstance(backend, PublicBackend)
    assert backend.kind == "cpu"
    assert said("no such name. MindSpore's public profiler is used instead") != []


def test_windows_of_one_second_have_directories_of_their_own(device: FakeBackend, tmp_path: Path) -> None:
    """The later one has the later name."""
    profiler = Profiler(tmp_path, start_profile=False, keep_raw=True)
    for _ in range(3):
        profiler.start()
        profiler.stop()
    assert len(raw_directories(tmp_path)) == 3


def open_files(directory: Path) -> list[str]:
    """Return the files below a directory that this process has open."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [link for link in links if link.startswith(f"{directory}/")]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_dropped_profiler_closes_its_file(device: FakeBackend, tmp_path: Path, said: Any, is_stopped: bool) -> None:
    """Its schedule ends, the window that is open is kept, and a warning says what to do; after `stop` there is none."""
    profiler = Profiler(tmp_path, schedule=schedule(wait=1, active=3, repeat=2))
    for _ in range(7):
        profiler.step()
    if is_stopped:
        profiler.stop()
    assert len(open_files(tmp_path)) == 1
    del profiler
    assert open_files(tmp_path) == []
    assert [one.steps for one in windows(tmp_path)] == [[1, 2, 3], [5, 6]]
    assert (recorder._begun, recorder._recording) == (set(), None)
    warnings = said("was dropped without stop(): its schedule ends, and its file is closed. Keep the Profiler")
    assert len(warnings) == (0 if is_stopped else 1)
    if not is_stopped:
        assert "the profiler was dropped" in windows(tmp_path)[1].about["reason"]


def test_a_dropped_profiler_without_a_schedule_records_on(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    """Until the program ends, as its documentation says; a warning names what is better."""
    Profiler(tmp_path)
    assert len(said("was dropped without stop(): its window stays open until the program ends")) == 1
    assert len(recorder._begun) == 1
    recorder._end_all()
    assert recorder._begun == set()
    (found,) = windows(tmp_path)
    assert found.about["reason"] == "the interpreter ended"
    assert not os.path.isdir("/proc/self/fd") or open_files(tmp_path) == []


def test_the_recorder_of_a_cpu_arms_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its construction, unless nobody wants it."""
    from instrument.profiler.minddata import PIPELINE
    from instrument.profiler.options import Options

    armed: list[int] = []
    monkeypatch.setattr(PIPELINE, "arm", lambda: armed.append(1))
    for data_process, expected in ((False, 0), (None, 1), (True, 2)):
        Recorder(str(tmp_path), Options(data_process=data_process))
        assert len(armed) == expected
