"""Tables that hold several devices, and steps that only executions name."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrument.analyse.profile import Profile, profile
from instrument.errors import InstrumentError
from tests.analyse.build import T0, column
from tests.trace.encoders import decimal, table

SUMMARY = ["Device_id", "Task ID", "Stream ID", "Op Name", "OP Type", "Task Type", "Task Start Time(us)",
           "Task Duration(us)"]  # fmt: skip
DETAILS = ["Step ID", "Task ID", "Stream ID", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)"]


def us(ns: int) -> str:
    return decimal(ns, 1000)


def opened(folder: Path, **files: bytes) -> Profile:
    for name, data in files.items():
        (folder / f"{name}.csv").write_bytes(data)
    return profile(folder)


def details(*rows: tuple[int, str, str, int, int]) -> bytes:
    """(step, name, core, start, duration in us) each."""
    return table(DETAILS, [[step, 1, 2, name, name, core, us(T0 + start * 1000), duration]
                           for step, name, core, start, duration in rows])  # fmt: skip


@pytest.fixture
def two(tmp_path: Path) -> Profile:
    """Two devices in one table of each kind: the second takes three times as long."""
    rows = [
        [device, place, 2, f"MatMul_{place}", "MatMul", "AI_CORE", us(T0 + 1_000_000 * place), time]
        for place in range(3)
        for device, time in ((0, 100), (1, 300))
    ]
    heads = ["Device_id", "Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free"]
    times = [[0, 1, 100, 0, 0, 0, 900], [1, 1, 300, 0, 0, 0, 700]]
    memory = [["APP", us(T0), 0, device + 1, 0, f"NPU:{device}"] for device in (0, 1)]
    sizes = [f"Total {what}(MB)" for what in ("Allocated", "Reserved", "Active")]
    kinds = ["Component", "Timestamp(us)", *sizes, "Device Type"]
    return opened(
        tmp_path,
        op_summary_1=table(SUMMARY, rows),
        step_trace_time=table(heads, times),
        memory_record=table(kinds, memory),
    )


def test_devices_of_one_table_are_apart(two: Profile) -> None:
    """Executions, overlap and memory are those of the device."""
    for one, device in zip(two.each(), (0, 1), strict=True):
        time = (100_000, 300_000)[device]
        assert (one.device, column(one.operators["total_ns"])) == (device, [time] * 3)
        assert column(one.overlap["computing_ns"]) == [time]
        assert column(one.memory["reserved_bytes"]) == [(device + 1) * 1000 * 1024]
    assert column(two.devices["operators_ns"]) == [300_000, 900_000]


def test_a_row_without_a_device_is_told(tmp_path: Path) -> None:
    """It belongs to none of several devices."""
    rows = [[device, 1, 2, "Mul", "Mul", "AI_CORE", us(T0), 10] for device in (0, 1, "?")]
    found = opened(tmp_path, op_summary_1=table(SUMMARY, rows))
    assert [len(one.capture.executions) for one in found.each()] == [1, 1]
    assert ("rows that do not say which device they are of", 1) in zip(
        found.problems["what"].tolist(), found.problems["amount"].tolist(), strict=True
    )


def test_the_number_of_the_only_device_is_taken(tmp_path: Path) -> None:
    """Where no name says it."""
    rows = [[5, 1, 2, "Mul", "Mul", "AI_CORE", us(T0), 10]]
    assert opened(tmp_path, op_summary_1=table(SUMMARY, rows)).device == 5


def test_steps_that_only_kernels_name(tmp_path: Path) -> None:
    """Each lasts until the next one begins, the last one and one before a gap until its last kernel ends."""
    rows = [(1, "A", "AI_CORE", 0, 50), (1, "B", "AI_CORE", 100, 50), (2, "A", "AI_CORE", 1000, 50),
            (7, "A", "AI_CORE", 5000, 50), (7, "B", "AI_CORE", 5100, 50)]  # fmt: skip
    found = opened(tmp_path, kernel_details=details(*rows))
    assert column(found.steps["step"]) == [1, 2, 7]
    assert column(found.steps["total_ns"]) == [1_000_000, 50_000, 150_000]
    assert column(found.steps["operators"]) == [2, 1, 2]
    assert column(found.of_steps(2, 7).operators["count"]) == [2, 1]
    assert found.steps.notes[0].startswith("No file has steps; these are the ones that the rows of kernels name.")
    with pytest.raises(InstrumentError, match="it has 1 to 7"):
        found.of_steps(8, 9)


def test_kernels_count_in_the_step_that_they_name(tmp_path: Path) -> None:
    """Also where one starts after the first of the next step, as on another stream."""
    rows = [(1, "A", "AI_CORE", 0, 50), (2, "A", "AI_CORE", 100, 50), (1, "B", "AI_CORE", 110, 50)]
    found = opened(tmp_path, kernel_details=details(*rows))
    assert column(found.steps["operators"]) == [2, 1]


def test_waiting_is_neither_computing_nor_communication(tmp_path: Path) -> None:
    """Rows of the runtime are activities: part of the timeline, of no sum."""
    rows = [(1, "MatMul", "AI_CORE", 0, 10), (1, "hcom_allReduce__1", "COMMUNICATION", 5, 20),
            (1, "w", "EVENT_WAIT", 0, 40), (1, "n", "NOTIFY_WAIT", 0, 40), (1, "c", "MEMCPY_ASYNC", 0, 40)]  # fmt: skip
    found = opened(tmp_path, kernel_details=details(*rows))
    (row,) = found.overlap.records()
    assert (row["computing_ns"], row["communication_ns"], row["overlapped_ns"]) == (10_000, 20_000, 5_000)
    assert (row["communication_not_overlapped_ns"], row["free_ns"]) == (15_000, 15_000)
    assert sorted(found.operators["full_name"].tolist()) == ["MatMul", "hcom_allReduce__1"]
    assert len(found.capture.activities) == 3
