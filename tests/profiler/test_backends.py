"""Devices: the raw files of each are taken over byte for byte; real ones where samples are at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import mindspore
import pytest

from instrument.errors import FrameworkError
from instrument.profiler import backends
from instrument.profiler.archive import file_kind
from instrument.profiler.backends import AscendBackend, CpuBackend, GpuBackend
from instrument.profiler.options import AicoreMetrics, Options, ProfilerLevel
from instrument.profiler.profiler import Profiler
from tests.conftest import ROOT
from tests.profiler.fake import FakeBackend, windows

SAMPLES = ROOT.parent / "shared" / "traces" / "samples"


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.iterdir()) if SAMPLES.is_dir() else [])
def test_real_raw_files_are_taken_over(device: FakeBackend, tmp_path: Path, name: str) -> None:
    """Whatever a device leaves, in whatever folders, comes back byte for byte."""
    folder = SAMPLES / name
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    device.files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    assert device.files
    profiler = Profiler(tmp_path)
    profiler.stop()
    (found,) = windows(tmp_path)
    assert found.raw == device.files


def test_names_of_all_kinds_are_taken_over(device: FakeBackend, tmp_path: Path) -> None:
    """Deep folders, spaces, other scripts, and bytes that are no text."""
    device.files = {
        "PROF_1/device_0/data/hwts.data.0.slice_0": b"\0\xff" * 32,
        "a b/ü 算子.json": b"{}",
        "bad \udcff name": b"1",
        ".hidden": b"",
    }
    profiler = Profiler(tmp_path)
    profiler.stop()
    assert windows(tmp_path)[0].raw == device.files


def test_links_are_not_followed(device: FakeBackend, tmp_path: Path) -> None:
    """What lies outside of the directory is no part of the trace."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    profiler = Profiler(tmp_path / "run")
    (device.directory / "link").symlink_to(secret)
    profiler.stop()
    assert set(windows(tmp_path / "run")[0].raw) == set(device.files)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pipeline_profiling_0.json", True),
        ("FRAMEWORK/dataset_iterator_profiling_0.txt", True),
        ("device_queue_profiling_1.txt", True),
        ("minddata_cpu_utilization_0.json", True),
        ("cpu_op_detail_info_0.csv", False),
        ("data/hwts.data.0.slice_0", False),
    ],
)
def test_pipeline_files_are_known_by_name(name: str, expected: bool) -> None:
    assert (file_kind(name, "gpu") == "minddata") is expected


def test_each_device_has_its_backend() -> None:
    found = {target: backends.maker(target) for target in ("CPU", "Ascend", "GPU")}
    assert found == {"CPU": CpuBackend, "Ascend": AscendBackend, "GPU": GpuBackend}
    with pytest.raises(FrameworkError, match="no profiler for the device 'TPU'"):
        backends.maker("TPU")


class FakeProfile:
    """MindSpore's public profiler, as far as it is called."""

    made: ClassVar[list[FakeProfile]] = []

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.calls: list[str] = []
        self.made.append(self)

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")
        folder = Path(self.given["on_trace_ready"]) / "host_1_ascend_ms"
        folder.mkdir()
        (folder / "kernel_details.csv").write_text("Name\n")


@pytest.mark.parametrize(("kind", "target"), [("ascend", "Ascend"), ("gpu", "GPU")])
def test_the_public_profiler_is_told_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, target: str, said: Any
) -> None:
    """Each window is a profile of MindSpore's own with the options in its words and a directory of its own."""
    from instrument import framework

    public = mindspore.profiler
    monkeypatch.setattr(FakeProfile, "made", [])
    monkeypatch.setattr(public, "profile", FakeProfile)
    monkeypatch.setattr(public, "tensorboard_trace_handler", lambda directory: directory)
    monkeypatch.setattr(framework, "device_target", lambda: target)
    profiler = Profiler(tmp_path, profiler_level=ProfilerLevel.Level2, aic_metrics=AicoreMetrics.Memory, l2_cache=True)
    profiler.stop()
    profiler.start()
    profiler.stop()
    assert [one.calls for one in FakeProfile.made] == [["start", "stop"]] * 2
    assert len({one.given["on_trace_ready"] for one in FakeProfile.made}) == 2
    given = FakeProfile.made[0].given
    assert given["activities"] == [public.ProfilerActivity.CPU, public.ProfilerActivity.NPU]
    assert (given["start_profile"], given["data_process"]) == (False, False)
    experimental = vars(given["experimental_config"])
    assert public.ProfilerLevel.Level2 in experimental.values()
    assert public.AicoreMetrics.Memory in experimental.values()
    found = windows(tmp_path)
    assert [one.raw for one in found] == [{"host_1_ascend_ms/kernel_details.csv": b"Name\n"}] * 2
    assert {one.kinds["host_1_ascend_ms/kernel_details.csv"] for one in found} == {kind}
    assert (said("no effect on GPU") != []) == (kind == "gpu")


def test_a_public_profiler_that_leaves_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    """MindSpore swallows its errors."""
    monkeypatch.setattr(mindspore.profiler, "profile", FakeProfile)
    monkeypatch.setattr(FakeProfile, "stop", lambda self: None)
    backend = AscendBackend(Options())
    backend.start(str(tmp_path))
    backend.stop()
    assert len(said("MindSpore's profiler left no file in")) == 1
