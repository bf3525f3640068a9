"""What a sample of the system holds: each number against the system's own, and what happens where one cannot be had."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from instrument import SummaryCollector, SummaryRecord, framework
from instrument.collect import system
from instrument.collect.system import System
from tests.collect.build import Said

HOST = {
    "cpu_percent", "memory_percent", "memory_used_bytes", "disk_percent", "disk_free_bytes",
    "disk_read_bytes_per_second", "disk_written_bytes_per_second", "network_received_bytes_per_second",
    "network_sent_bytes_per_second",
}  # fmt: skip
PROCESS = {
    "process_count", "process_cpu_percent", "process_memory_bytes", "process_disk_read_bytes_per_second",
    "process_disk_written_bytes_per_second",
}  # fmt: skip


def busy(seconds: float) -> float:
    """Keep this thread busy for so long, by its own clock; the wall time that it took."""
    started, end = time.monotonic(), time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return time.monotonic() - started


def test_a_sample_has_host_and_process_and_on_the_cpu_no_device(tmp_path: Path, said: Said) -> None:
    """Every number that this machine has, under its tag, and nothing is complained of."""
    observer = System(str(tmp_path))
    busy(0.05)
    sample = observer.sample()
    missing = {} if psutil.disk_io_counters() else {"disk_read_bytes_per_second", "disk_written_bytes_per_second"}
    assert sample.keys() == {f"system/{name}" for name in (HOST | PROCESS) - set(missing)}
    assert len(said("cannot be had")) == bool(missing)


@pytest.mark.alone
def test_the_numbers_are_those_of_the_system(tmp_path: Path) -> None:
    """Memory, room and load lie where the system's own accounts say, of this process and a child together."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        observer = System(str(tmp_path))
        used = psutil.Process().cpu_times()
        wall_s = busy(0.3)
        sample = observer.sample()
        after = psutil.Process().cpu_times()
        resident = psutil.Process().memory_info().rss + psutil.Process(child.pid).memory_info().rss
        child.communicate(b"\n")
    memory, room = psutil.virtual_memory(), os.statvfs(tmp_path)
    own_percent = 100 * (after.user + after.system - used.user - used.system) / wall_s
    assert sample["system/process_count"] == 2
    assert sample["system/process_memory_bytes"] == pytest.approx(resident, rel=0.1)
    assert sample["system/process_cpu_percent"] == pytest.approx(own_percent, rel=0.3, abs=15)
    assert sample["system/memory_used_bytes"] == pytest.approx(memory.total - memory.available, rel=0.2)
    assert sample["system/disk_free_bytes"] == pytest.approx(room.f_bavail * room.f_frsize, rel=0.05)
    assert 0 <= sample["system/cpu_percent"] <= 100


def test_load_is_counted_from_the_sample_before_in_any_thread(tmp_path: Path) -> None:
    """The first sample of another thread has what passed since the constructor: this process at least was busy."""
    observer = System(str(tmp_path))
    busy(0.4)
    found: list[dict[str, float]] = []
    thread = threading.Thread(target=lambda: found.append(observer.sample()))
    thread.start()
    thread.join()
    assert 100 / (psutil.cpu_count() or 1) * 0.3 < found[0]["system/cpu_percent"] <= 100


def test_descendants_are_those_that_psutil_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children and theirs, also those that a thread started; where Linux keeps no lists psutil is asked."""
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()']); print(1, flush=True)"
    command = [sys.executable, "-c", f"{child}; p.wait()"]
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(
        target=lambda: started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    )
    thread.start()
    thread.join()
    with started[0] as process:
        assert process.stdout is not None
        process.stdout.readline()
        wanted = sorted(one.pid for one in psutil.Process().children(recursive=True))
        assert len(wanted) == 2
        assert sorted(system.descendants(os.getpid())) == wanted
        observer = System(str(tmp_path))
        assert observer.sample()["system/process_count"] == 3
        monkeypatch.setattr(observer, "_has_lists", False)
        assert observer.sample()["system/process_count"] == 3
        process.communicate(b"\n")
    assert system.descendants(os.getpid()) == []


@pytest.mark.alone
def test_traffic_of_files_is_counted_a_second(tmp_path: Path) -> None:
    """A megabyte that reaches the disk is a megabyte less what the clock makes of it."""
    observer = System(str(tmp_path))
    started = time.monotonic()
    with open(tmp_path / "file", "wb") as file:
        file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    before = psutil.Process().io_counters().write_bytes
    sample = observer.sample()
    written = sample["system/process_disk_written_bytes_per_second"] * (time.monotonic() - started)
    if not before:
        pytest.skip("this file system counts no writes")
    assert written == pytest.approx(1 << 20, rel=0.5)


def test_rates_add_up_over_what_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that is new counts from 0, one that is gone no more, one that began anew from its own 0."""
    clock = iter([10.0, 12.0, 14.0, 15.0])
    monkeypatch.setattr(system, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    rates = system._Rates()
    assert rates.named(("a", "b"), {"x": (100, 1000)}) == {}
    assert rates.named(("a", "b"), {"x": (110, 1002), "y": (4, 6)}) == {"a": 7.0, "b": 4.0}
    assert rates.named(("a", "b"), {"y": (5, 6)}) == {"a": 0.5, "b": 0.0}
    assert rates.named(("a", "b"), {"y": (2, 7)}) == {"a": 2.0, "b": 1.0}


def test_what_fails_is_named_once_and_the_others_go_on(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that shows no memory and forbids its processes' counters: one word each, the rest as ever."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise psutil.AccessDenied(1)

    monkeypatch.setattr(psutil, "virtual_memory", refuse)
    monkeypatch.setattr(psutil.Process, "io_counters", refuse)
    observer = System(str(tmp_path))
    lost = {"process_disk_read_bytes_per_second", "process_disk_written_bytes_per_second", "memory_percent"}
    for _ in range(3):
        sample = observer.sample()
        assert not {f"system/{name}" for name in lost | {"memory_used_bytes"}} & sample.keys()
        assert {"system/process_memory_bytes", "system/disk_free_bytes", "system/process_count"} <= sample.keys()
    assert len(said("memory of the host cannot be had (AccessDenied")) == 1
    assert len(said("files' traffic of the process cannot be had")) == 1


def test_a_child_that_ends_meanwhile_is_left_out(tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed, and gone before it is asked: the sample has the others, and no word of it."""
    gone = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ended = psutil.Process(gone.pid)
    gone.communicate(b"\n")
    monkeypatch.setattr(System, "_below", lambda _: [ended])
    sample = System(str(tmp_path)).sample()
    assert sample["system/process_memory_bytes"] == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    assert said("cannot be had") == []


def test_the_memory_of_a_device_is_what_mindspore_told_last(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked by the thread that trains only; one that fails is named once."""
    observer = System(str(tmp_path))
    monkeypatch.setattr(framework, "device_target", lambda: "Ascend")
    monkeypatch.setattr(framework, "device_memory", lambda: framework.DeviceMemory(3 << 20, 1 << 30))
    assert "system/device_memory_allocated_bytes" not in observer.sample()
    observer.look_at_device()
    sample = observer.sample()
    assert sample["system/device_memory_allocated_bytes"] == 3 << 20
    assert sample["system/device_memory_reserved_bytes"] == 1 << 30

    def fail() -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(framework, "device_memory", fail)
    observer.look_at_device()
    observer.look_at_device()
    assert "system/device_memory_allocated_bytes" not in observer.sample()
    assert len(said("memory of the device cannot be had (RuntimeError: the device is gone)")) == 1


def test_an_error_of_the_training_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that failed behind Python's back: whoever waits first is told, and that is the training thread."""
    import mindspore as ms
    from mindspore import ops

    observer = System(str(tmp_path))
    monkeypatch.setattr(framework, "device_target", lambda: "Ascend")
    ops.cholesky(ms.Tensor(np.full((3, 3), -1, np.float32)))
    observer.sample()  # as the thread does
    with pytest.raises(RuntimeError, match="positive definite"):
        observer.look_at_device()


def test_mindspore_is_asked_for_the_memory_of_accelerators_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU there is none; elsewhere its two public functions answer in bytes."""
    import mindspore.runtime

    assert framework.device_memory() is None
    monkeypatch.setattr(framework, "device_target", lambda: "Ascend")
    monkeypatch.setattr(mindspore.runtime, "memory_allocated", lambda: 5)
    monkeypatch.setattr(mindspore.runtime, "memory_reserved", lambda: 7)
    assert framework.device_memory() == (5, 7)


@pytest.mark.parametrize("make", [SummaryRecord, SummaryCollector])
@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ("yes", TypeError, "system_metrics is 'yes' of type str; expected True, False or seconds between samples"),
        (None, TypeError, "expected True, False or seconds"),
        (0, ValueError, "system_metrics is 0; expected seconds between samples, at least 0.1"),
        (float("nan"), ValueError, "at least 0.1"),
        (float("inf"), ValueError, "at least 0.1"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, make: Any, value: Any, error: type[Exception], text: str) -> None:
    """At construction, with what would be right; nothing is opened."""
    with pytest.raises(error, match=text):
        make(tmp_path / "run", system_metrics=value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("make", [SummaryRecord, SummaryCollector])
def test_without_psutil_the_extra_is_named(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At construction, and only where it was asked for."""
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "psutil":
            raise ImportError("No module named 'psutil'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="system_metrics needs psutil: pip install psutil"):
        make(tmp_path / "run", system_metrics=True)
    made = make(tmp_path / "run")
    if isinstance(made, SummaryRecord):
        made.close()
