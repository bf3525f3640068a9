"""Raw files by name, out of folders and out of pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrument.trace import files
from instrument.trace.events import Problem
from instrument.trace.files import RawFiles, from_directory, groups
from instrument.trace.kinds import Kind, kind_of

HWTS = "hwts.log.data.45.dev.profiler_default_tag.1"


def test_slices_join_by_number() -> None:
    """Slice 10 comes behind slice 9; a missing one is told."""
    raw = RawFiles({f"{HWTS}.slice_{number}": b"%d," % number for number in (10, 9, 2, 0, 1)}).without_slices()
    assert list(raw) == [HWTS]
    assert bytes(raw.joined(HWTS)) == b"0,1,2,9,10,"
    assert raw.size(HWTS) == 11
    assert raw.problems == [Problem(HWTS, "slices that are missing", 6)]


def test_sidecars() -> None:
    """They are no slices, and say how long a file should be; empty ones say nothing."""
    raw = RawFiles(
        {
            f"{HWTS}.slice_0": b"12345678",
            f"{HWTS}.slice_0.done": b"",
            f"{HWTS}.slice_0.zip": b"x",
            "start_info.1": b"abc",
            "start_info.1.done": b"filesize:5\n",
            "end_info.1": b"ab",
            "end_info.1.done": b"filesize:2",
        }
    ).without_slices()
    assert sorted(raw) == ["end_info.1", HWTS, "start_info.1"]
    assert raw.problems == [Problem("start_info.1", "bytes more or less than its .done file says", 2)]


def test_a_file_in_the_folder_of_the_job_comes_first() -> None:
    """The same file below data/ is left out and told; another one is kept."""
    raw = RawFiles(
        {f"J/{HWTS}.slice_0": b"ab", f"J/data/{HWTS}.slice_0": b"xyz", "J/data/ts_track.data.1.slice_0": b"q"}
    )
    joined = raw.without_slices()
    assert {name: bytes(joined.joined(name)) for name in joined} == {f"J/{HWTS}": b"ab", "J/data/ts_track.data.1": b"q"}
    assert joined.problems == [Problem(f"J/data/{HWTS}", "bytes of a file that is in the job's folder, too", 3)]


def test_pieces_stay_pieces() -> None:
    """A file that is one piece is not copied; one of several is put together when it is asked for."""
    piece = bytearray(b"abc")
    raw = RawFiles({"a": [piece, b"de"], "b": piece, "c": []})
    assert bytes(raw.joined("a")) == b"abcde"
    assert isinstance(raw.joined("b"), memoryview)
    assert raw.joined("c") == b""
    piece[0] = ord("x")
    assert bytes(raw.joined("b")) == b"xbc"


@pytest.mark.parametrize("mapped_bytes", [1, 1 << 26])
def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped_bytes: int) -> None:
    """Known files are found wherever they are, mapped or read; others are passed over."""
    monkeypatch.setattr(files, "_MAPPED_BYTES", mapped_bytes)
    known = {
        "x_ascend_ms/FRAMEWORK/cpu_framework_0.txt": b"a",
        f"JOBA/data/{HWTS}.slice_0": b"bc",
        "JOBA/pipeline_profiling_0.json": b"",
        "PROF_1/device_0/info.json.0.done": b"filesize:1",
        "instrument.window.3.json": b"{}",
    }
    for name, content in {**known, "logs/ascend.log": b"x", "JOBA/README": b"y"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    raw = from_directory(tmp_path)
    assert {name: bytes(raw.joined(name)) for name in raw} == known
    assert raw.problems == []


def test_folders_that_are_none(tmp_path: Path) -> None:
    """They are the caller's error; an unreadable name inside is passed over."""
    with pytest.raises(FileNotFoundError):
        from_directory(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        from_directory(tmp_path / "file")
    (tmp_path / "cpu_framework_0.txt").symlink_to(tmp_path / "gone")
    assert len(from_directory(tmp_path)) == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a/FRAMEWORK/cpu_op_execute_timestamp_12.txt", Kind("cpu_executions", 12)),
        ("instrument.marks.3.bin", Kind("marks", 3)),
        ("PROF_1/device_5/timeline/msprof_5_2_1.json", Kind("msprof", 5)),
        ("mindstudio_profiler_output/msprof_20240101.json", Kind("msprof", None)),
        ("device_2/summary/op_summary_2_1_1.csv", Kind("op_summary", 2)),
        ("step_trace_raw_4_detail_time.csv", Kind("step_trace_raw", 4)),
        ("step_trace_0_2_1.json", Kind("step_trace", 0)),
        ("step_trace_time.csv", Kind("step_trace_time", None)),
        ("profiler_info_7.json", Kind("profiler_info", 7)),
        (HWTS, Kind("ascend", 1)),
        ("host_start.log", Kind("ascend", None)),
        ("cpu_framework_x.txt", None),
        ("readme.txt", None),
        ("", None),
    ],
)
def test_kinds(name: str, kind: Kind | None) -> None:
    """A file is what its name says, and its folder where the name does not."""
    assert kind_of(name) == kind


def test_groups() -> None:
    """Files of one window and device are together, whatever lies between; several jobs are apart."""
    names = [
        "FRAMEWORK/cpu_framework_8.txt",
        "PROF_A/device_0/info.json.0",
        "ASCEND_PROFILER_OUTPUT/kernel_details.csv",
        "profiler_info_8.json",
    ]
    (one,) = groups([*names, "logs/x.log"])
    assert (one.device, one.numbers) == (8, frozenset({0}))
    devices = groups(["hwts.data.0", "hwts.data.1", "host_start.log", "trace_view.json"])
    assert [(group.device, sorted(group.files)) for group in devices] == [
        (0, ["ascend", "trace_view"]),
        (1, ["ascend"]),
    ]
    assert devices[1].files["ascend"] == ["host_start.log", "hwts.data.1"]
    jobs = groups(["JOBA/hwts.data.0", "JOBB/data/hwts.data.0", "container/0/data/hwts.data.0.JOBC"])
    assert [group.files["ascend"] for group in jobs] == [
        ["JOBA/hwts.data.0"],
        ["JOBB/data/hwts.data.0"],
        ["container/0/data/hwts.data.0.JOBC"],
    ]
    windows = groups(["a_ascend_ms/FRAMEWORK/cpu_framework_0.txt", "b_ascend_ms/FRAMEWORK/cpu_framework_0.txt"])
    assert len(windows) == 2
