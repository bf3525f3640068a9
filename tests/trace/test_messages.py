"""Notes on raw files that no other test compares, each made to happen through a profile's problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from instrument import profile
from tests.analyse.build import T0
from tests.analyse.files import NAMES, OPERATOR_NS, STEP_NS, cpu_window, directory_of, event_file
from tests.trace.encoders import timestamps
from tests.trace.test_ascend import job_2020


def problems(path: Path) -> dict[str, int]:
    found: Any = profile(path).problems
    return dict(zip(found["what"].tolist(), found["amount"].tolist(), strict=True))


def test_executions_of_another_time(tmp_path: Path) -> None:
    """Those outside of the window, and those that last longer than anything does, are left out of sums."""
    files = cpu_window(1)
    begin = T0 + 10_000
    rows = [(begin, OPERATOR_NS / 1e6, 0), (begin + STEP_NS, 2e9, 0), (T0 - 10**9, 0.01, 0), (T0 + 10**12, 0.01, 0)]
    files["FRAMEWORK/cpu_op_execute_timestamp_0.txt"] = timestamps({NAMES[0]: rows})
    found = problems(directory_of(tmp_path / "job", files))
    assert found["executions that last more than eleven days, left out of sums"] == 1
    assert found["executions outside of the window, left out of sums"] == 2


def test_an_event_file_without_a_window_beside_one_with(tmp_path: Path) -> None:
    """It is named; the other one is the profile."""
    event_file(tmp_path, [cpu_window(1)])
    empty = event_file(tmp_path, [], rank=1)
    found = profile(tmp_path).problems
    assert found["what"].tolist() == ["event file without any window"]
    assert str(empty) in found["file"][0]


def test_a_slice_that_is_there_twice(tmp_path: Path) -> None:
    """The number counts, however it is written."""
    files = cpu_window(1)
    name = "FRAMEWORK/cpu_framework_0.txt"
    content = files.pop(name)
    job = directory_of(tmp_path / "job", {**files, f"{name}.slice_0": content, f"{name}.slice_00": content})
    assert problems(job)["bytes of a slice that is there twice"] == len(content)


def test_a_raw_file_that_cannot_be_read(tmp_path: Path) -> None:
    """What the system says stands beside; everything else is read."""
    job = directory_of(tmp_path / "job", cpu_window(1))
    (job / "hwts.data.0.slice_0").symlink_to("/proc/self/mem")
    assert problems(job)["cannot be read: Input/output error"] == 1


def test_batches_that_two_files_tell(tmp_path: Path) -> None:
    """The device's own file is the one that is taken."""
    files = {**job_2020(), "dataset_iterator_profiling_1.txt": b"0 2 1 5 3000\n1 16 1 2 3000\n"}
    assert problems(directory_of(tmp_path / "job", files))["batches that the device's own files tell, too"] == 1
