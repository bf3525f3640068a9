"""Real trainings on the CPU: windows hold exactly the operators of the steps asked for, on the clock of the marks."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import marks, read
from instrument.analyse import trace_files
from tests.integration.conftest import Script
from tests.profiler.fake import Read, windows

TIMESTAMPS = "cpu_op_execute_timestamp_0.txt"
ENDS = ("stop", "raise", "interrupt", "exit")


def starts(window: Read) -> dict[str, list[int]]:
    """When each operator began, by its full name."""
    found: dict[str, list[int]] = {}
    for line in window.raw[TIMESTAMPS].decode().splitlines():
        name, _, executions = line.split(";")
        found.setdefault(name, []).extend(int(one.split(",")[0]) for one in executions.split())
    return found


def facts(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "facts.json").read_text())
    return found


def step_marks(window: Read) -> dict[int, tuple[int, int]]:
    steps = window.marks[window.marks["kind"] == marks.STEP]
    return {int(one["number"]): (int(one["start_ns"]), int(one["start_ns"] + one["duration_ns"])) for one in steps}


@pytest.fixture
def three(script: Script, mode: str) -> tuple[list[Read], Path]:
    """The windows of steps 9 to 12, of step 15, and of epoch 3, and the directory of the run."""
    ran = script("profiled", mode, "windows")
    found = [one for path in trace_files.files(str(ran.directory / "run")) for one in windows(Path(path))]
    found.sort(key=lambda one: int(one.about["start_ns"]))
    assert ran.said("Profiler") == ran.said("StopAt") == []
    return found, ran.directory


def test_windows_hold_the_steps_asked_for(three: tuple[list[Read], Path], mode: str) -> None:
    """Each is complete; no raw directory is left."""
    found, directory = three
    assert [one.steps for one in found] == [[9, 10, 11, 12], [15], list(range(21, 31))]
    assert [one.about["complete"] for one in found] == [True, True, True]
    assert {one.about["mode"] for one in found} == {mode}
    assert [path.name for path in (directory / "run").iterdir() if path.name.startswith("profile_raw")] == []


def test_operators_are_those_of_the_steps(three: tuple[list[Read], Path]) -> None:
    """Each operator ran as many times a step in all windows, and each execution lies inside a step of its window."""
    found, directory = three
    counts = []
    for window in found:
        executions = starts(window)
        per_step = Counter({name: len(times) for name, times in executions.items()})
        steps = len(window.steps)
        assert {name: count % steps for name, count in per_step.items()} == dict.fromkeys(per_step, 0)
        counts.append({name: count // steps for name, count in per_step.items()})
        seen = [facts(directory)["steps"][str(step)] for step in window.steps]
        inside = np.zeros(sum(per_step.values()), bool)
        times = np.array(sorted(time for one in executions.values() for time in one))
        for begin, end in step_marks(window).values():
            inside |= (begin <= times) & (times <= end)
        assert inside.all()
        for begin, end in seen:  # the probe's clock is the operators' too
            assert ((begin <= times) & (times <= end)).sum() == sum(counts[-1].values())
    assert counts[0] == counts[1] == counts[2]
    assert sum(counts[0].values()) > 8


def test_step_marks_hold_the_probes_steps(three: tuple[list[Read], Path]) -> None:
    """They join without a gap inside of an epoch, and contain what another callback saw of the step's begin."""
    found, directory = three
    seen = facts(directory)["steps"]
    for window in found:
        marked = step_marks(window)
        for step, (begin, end) in marked.items():
            assert begin <= seen[str(step)][0] <= end
            if step + 1 in marked and step % 10:
                assert marked[step + 1][0] == end
    assert found[2].of_kind(marks.EPOCH) == [("epoch", 3)]


def test_spans_and_our_own_time_are_marked(three: tuple[list[Read], Path]) -> None:
    """The user's span once a step; the collector's hooks at each."""
    window = three[0][0]
    assert [name for name, _ in window.of_kind(marks.USER)] == ["probe"] * 4
    hooks = Counter(name for name, _ in window.of_kind(marks.CALLBACK))
    assert hooks["SummaryCollector.on_train_step_begin"] == 4
    assert hooks["SummaryCollector.on_train_step_end"] == 3  # that of the last step comes behind the window


def test_memory_and_data_are_recorded(three: tuple[list[Read], Path]) -> None:
    """Memory where it was asked for; the pipeline by default, with the batches of the steps of the window."""
    for window, batches in zip(three[0], (range(9, 13), range(15, 16)), strict=False):
        lines = window.raw["dataset_iterator_profiling_0.txt"].decode().split("\n")
        assert sorted({int(line.split()[2]) for line in lines if line}) == list(batches)
        offset_ns = window.about["start_ns"] - window.about["start_monotonic_ns"]
        for _, _, batch, _, time_ms in (map(int, line.split()) for line in lines if line):
            begin, end = step_marks(window)[batch]
            assert begin - 1_500_000 <= time_ms * 1_000_000 + offset_ns <= end  # whole milliseconds, cut off
        assert json.loads(window.raw["pipeline_profiling_0.json"])["op_info"]
        assert window.kinds["pipeline_profiling_0.json"] == "minddata"
    assert "cpu_ms_memory_record_0.txt" in three[0][0].raw
    assert window.kinds[TIMESTAMPS] == "cpu"


def test_the_collector_records_the_same(script: Script, mode: str) -> None:
    """With three profilers beside it, in its own directory, the scalars are those of a training without."""
    beside, alone = script("profiled", mode, "windows").run(), script("profiled", mode, "alone").run()
    found, expected = beside.scalars("loss/auto"), alone.scalars("loss/auto")
    assert found.step.tolist() == expected.step.tolist()
    assert found.value.tolist() == expected.value.tolist()


@pytest.mark.parametrize("how", ENDS)
def test_the_end_inside_a_window(script: Script, mode: str, how: str) -> None:
    """An early stop, an exception, Ctrl+C and exit leave a whole trace of what ran, and the caller sees what it was."""
    status = {"exit": 3, "interrupt": -signal.SIGTERM}.get(how, 0)  # so MindSpore answers Ctrl+C
    ran = script("profiled", mode, how, statuses=(status,))
    (found,) = windows(ran.directory / "run")
    assert (found.steps[:4], found.about["first_step"]) == ([12, 13, 14, 15], 12)
    assert (found.about["requested"], found.about["complete"]) == ([12, 20], False)
    reason = {"stop": "the training ended", "raise": "ValueError", "interrupt": "SIGTERM", "exit": "SystemExit"}
    assert reason[how] in found.about["reason"]
    if how != "interrupt":
        assert facts(ran.directory)["caught"] == {"raise": "ValueError"}.get(how, "")
    assert len(ran.said("is not complete")) == 1
    executions = starts(found)
    assert {len(times) % 4 for times in executions.values()} == {0}
    assert read(ran.directory / "run").scalars("loss/auto").step.size > 0


def test_a_hand_written_loop(script: Script, mode: str) -> None:
    """A schedule's windows hold its steps; another profiler behind it has a file of its own."""
    ran = script("profiled", mode, "loop")
    found = windows(ran.directory / "run")
    assert [(one.number, one.steps) for one in found] == [(0, [3, 4]), (1, [7, 8]), (0, [0])]
    assert [one.about["requested"] for one in found] == [[3, 4], [7, 8], None]
    for window in found[:2]:
        executions = starts(window)
        times = np.array([time for one in executions.values() for time in one])
        begin, end = window.about["start_ns"], window.about["stop_ns"]
        assert ((begin <= times) & (times <= end)).all()
        assert {len(one) % 2 for one in executions.values()} == {0}
    assert starts(found[0]).keys() == starts(found[1]).keys()
