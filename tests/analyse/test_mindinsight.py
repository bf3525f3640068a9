"""What an analysis saves is what MindInsight 2.3.1's own profiler pages show."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.analyse import mindinsight
from instrument.analyse.profile import Profile, profile
from instrument.trace.events import BATCH, PipelineStage
from tests.analyse.build import T0, capture, executions, operator, profile_of, reduces, steps
from tests.analyse.files import cpu_window, event_file

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("INSTRUMENT_ORACLE_PYTHON") or ROOT / ".venv-oracle" / "bin" / "python")
SAMPLES = ROOT.parent / "shared" / "traces" / "samples"

with_mindinsight = pytest.mark.skipif(not PYTHON.exists(), reason=f"MindInsight's Python is not there: {PYTHON}")
with_samples = pytest.mark.skipif(not SAMPLES.exists(), reason=f"the samples are not there: {SAMPLES}")


def pages(directory: Path, device: int = 0) -> dict[str, Any]:
    """What MindInsight shows of the profile in `directory`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PROTOCOL"))}
    result = subprocess.run(
        [str(PYTHON), str(Path(__file__).parent / "mindinsight_pages.py"), str(directory), str(device)],
        env={**environment, "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    found: dict[str, Any] = json.loads(result.stdout[result.stdout.index('{"listed"') :])
    return found


def made(**parts: Any) -> Profile:
    return profile_of(capture(**parts))


@with_mindinsight
def test_a_window_on_the_cpu(tmp_path: Path) -> None:
    """It is listed; operators by type and name, the mean step, and its graph."""
    path = event_file(tmp_path, [cpu_window(7)])
    profile(path).save(tmp_path)
    found = pages(tmp_path)
    assert (found["listed"], found["devices"], found["kind"], found["mode"]) == (["./"], ["0"], "cpu", "graph")
    assert found["parallel"] == {"parallel_mode": "stand_alone", "stage_num": 1, "rank_size": 1}
    kinds = found["operators"]["cpu_op_type"]
    assert sorted(kinds["object"]) == [
        ["ApplyMomentum", 3, 1, 60.0, 20.0, 33.333],
        ["MatMul", 6, 2, 120.0, 20.0, 66.667],
    ]
    names = found["operators"]["cpu_op_info"]["object"]
    assert sorted((row[2], row[4], row[5], row[6]) for row in names) == [
        ("ApplyMomentum-op0", 3, 60.0, 20.0), ("MatMul-op0", 3, 60.0, 20.0), ("MatMul-op1", 3, 60.0, 20.0),
    ]  # fmt: skip
    assert found["summary"] == {
        "total_time": 0.08, "iteration_interval": 0.01, "iteration_interval_percent": "12.5%", "fp_and_bp": 0.04,
        "fp_and_bp_percent": "50.0%", "tail": 0.03, "tail_percent": "37.5%", "total_steps": 3,
    }  # fmt: skip
    assert found["step"]["training_trace_graph"][1] == [
        {"name": "iteration_interval", "start": 0, "duration": 0.01},
        {"name": "fp_and_bp", "start": 0.01, "duration": 0.04},
        {"name": "tail", "start": 0.05, "duration": 0.03},
    ]


@with_mindinsight
def test_communication_and_data(tmp_path: Path) -> None:
    """Communication stands in the graph of a step; the stages of the pipeline, and the queue with its empty batches."""
    stages = (
        PipelineStage(0, "Batch", 2, -1, (1,), 16, (4.0, 12.0)), PipelineStage(1, "Generator", 1, 0, (), -1, ()),
    )  # fmt: skip
    batches = [(T0, 1, 3_000_000, 1_000_000, 4_000_000, 0, 16), (T0, 2, 5_000_000, 1_000_000, 6_000_000, 16, 16)]
    given = made(
        operators=[operator("Default/network/Conv2D-op1", shapes="[1, 3]")],
        rows=executions((1_200_000, 700_000, 0, 5, 1)),
        steps=steps((1, 1_000_000, 1_100_000, 2_000_000, 3_000_000)),
        reduces=reduces((1, 5, 1_300_000, 200_000)),
        names=("AllReduce-op3",),
        pipeline=stages,
        batches=np.array(batches, BATCH),
        target="ascend",
        clock="device",
        metadata={"pipeline_sampling_interval_ms": 10.0},
    )
    given.save(tmp_path)
    found = pages(tmp_path)
    assert (found["kind"], found["summary"]["total_time"]) == ("ascend", 2.0)
    assert found["first"]["training_trace_graph"][2] == [
        {"name": "", "start": 0.1, "duration": 0.2},
        {"name": "stream_5_parallel_0", "start": 0.3, "duration": 0.2},
        {"name": "", "start": 0.5, "duration": 1.5},
    ]
    assert found["operators"]["aicore_type"]["object"] == [["Conv2D", 700.0, 1, 100.0, 700.0]]
    assert found["pipeline"]["object"] == [
        [0, "Batch", 8.0, 16, 0.5, 10, None, None],
    ]
    assert found["queue"]["summary"] == {"queue_summary": {"empty_queue": 1, "full_queue": 1}}
    assert found["times"]["summary"]["time_summary"] == {"avg_cost": 5.0, "get_cost": 4.0, "push_cost": 1.0}


@with_mindinsight
@with_samples
@pytest.mark.parametrize(
    ("name", "device", "kind"),
    [("ascend2020_widedeep", 1, "ascend"), ("synth_gpu_sync", 0, "gpu"), ("cpu_ms210_lenet", 0, "cpu")],
)
def test_real_traces(name: str, device: int, kind: str, tmp_path: Path) -> None:
    """Each of their pages opens, with as many operators as ours have."""
    ours = profile(SAMPLES / name)
    ours.save(tmp_path)
    found = pages(tmp_path, device)
    assert (found["kind"], found["devices"]) == (kind, [str(device)])
    kinds, names = found["operators"].values()
    on_core = ours.operators.take(ours.operators["side"] != "AI CPU")
    assert names["size"] == len(on_core)
    assert kinds["size"] == len(set(on_core["type"]))
    assert ("summary" in found) == (len(ours.capture.steps) > 0)
    if "summary" in found:
        assert found["summary"]["total_steps"] == len(ours.steps)
        column = "mean_without_first_ns" if name == "ascend2020_widedeep" else "mean_ns"
        assert found["summary"]["total_time"] == pytest.approx(ours.step_parts[column][0] / 1e6, abs=1e-4)


@with_samples
def test_the_rows_of_an_old_job_are_those_of_its_own_viewer() -> None:
    """The shipped steps and their mean, which leaves the first step out."""
    ours = [row.split(",")[:9] for row in mindinsight.step_trace(profile(SAMPLES / "ascend2020_widedeep")).splitlines()]
    path = SAMPLES / "ascend2020_widedeep_legacy_outputs" / "step_trace_raw_1_detail_time.csv"
    assert ours == [row.split(",")[:9] for row in path.read_text().splitlines()]


@with_samples
def test_the_stages_of_a_pipeline_are_those_that_mindspore_derives() -> None:
    """Only stages with a queue and the root, breadth first, under their nearest parents that have one."""
    lines = mindinsight._pipeline(profile(SAMPLES / "ascend2020_resnet_fixture").capture).splitlines()
    path = SAMPLES / "ascend2020_resnet_fixture" / "legacy_outputs" / "minddata_pipeline_raw_0.csv"
    assert [line.replace(",,0,10,", ",,,10,") for line in path.read_text().splitlines()] == lines


def zip_and_repeat() -> tuple[PipelineStage, ...]:
    """A batch of pairs, one side of which is repeated without a queue; the file has its stages from the sources on."""
    return (
        PipelineStage(4, "TFReader", 4, 3, (), 16, (15.0, 15.0)),
        PipelineStage(3, "Repeat", 1, 1, (4,), -1, ()),
        PipelineStage(2, "Generator", 1, 1, (), 16, (0.0, 1.0)),
        PipelineStage(1, "Zip", 1, 0, (2, 3), 16, (0.0, 1.0)),
        PipelineStage(0, "Batch", 2, -1, (1,), 16, (0.0, 2.0)),
    )


@with_mindinsight
def test_mindinsight_marks_the_stage_that_is_slow(tmp_path: Path) -> None:
    """By its own thresholds: a source that is empty, and the stage whose input is full and whose output is empty."""
    given = made(pipeline=zip_and_repeat(), target="ascend", clock="device")
    given.save(tmp_path)
    assert pages(tmp_path)["marked"] == [1, 2]


@with_mindinsight
@with_samples
def test_pages_of_ai_cpu_and_timeline(tmp_path: Path) -> None:
    """What ran on AI CPU by type and name, and every execution of the timeline."""
    ours = profile(SAMPLES / "rebuilt_aicpu_binary")
    ours.save(tmp_path)
    found = pages(tmp_path, ours.device)
    kinds, names = found["ai_cpu"]["aicpu_type"]["object"], found["ai_cpu"]["aicpu_detail"]["object"]
    assert sum(row[2] for row in kinds) == sum(row[4] for row in names) == len(ours.capture.executions) == 24
    total_us = ours.capture.ai_cpu["total_ns"].sum() / 1000
    assert sum(row[1] for row in kinds) == pytest.approx(total_us, abs=1)
    events = [event for event in found["timeline"] if event["ph"] == "X"]
    assert len(events) == 24
    assert min(event["ts"] for event in events) == 0.0


@with_mindinsight
@with_samples
def test_the_timeline_of_an_old_job_is_summed_up_as_its_own_viewer_does(tmp_path: Path) -> None:
    """The shipped summary; the timeline has the steps, too."""
    profile(SAMPLES / "ascend2020_widedeep").save(tmp_path)
    found = pages(tmp_path, 1)
    shipped = json.loads((SAMPLES / "ascend2020_widedeep_legacy_outputs" / "timeline_summary_1.json").read_text())
    assert {key: found["timeline_summary"][key] for key in shipped} == pytest.approx(shipped, abs=1e-3)
    events = [event for event in found["timeline"] if event["ph"] == "X"]
    assert len([event for event in events if event["tid"] == 100_000]) == 322
    assert len([event for event in events if event["pid"] == 1 and event["tid"] != 100_000]) == 2817


def test_the_parts_of_a_step_add_up_in_its_units() -> None:
    """Points are rounded to 10 ns, not parts; steps with unknown parts are left out, and the mean is of the rest."""
    rows = steps((1, 105, 119, 131, 158), (2, 158, -1, 190, 230), (3, 230, 241, 299, 300))
    given = made(steps=rows, target="ascend", clock="device")
    found = [line.split(",") for line in mindinsight.step_trace(given).splitlines()]
    assert found[1] == ["1", "10", "15", "5", "11", "13", "1", "2", "2"]
    assert found[2] == ["2", "23", "30", "7", "24", "29", "1", "5", "1"]
    assert found[3] == ["-", "16", "22", "6", "18", "21", "1", "4", "2"]  # each column's mean by itself, as MindSpore
    for row in found[1:3]:
        assert int(row[3]) == sum(map(int, row[6:9]))


def test_without_steps_there_is_no_step_trace(tmp_path: Path) -> None:
    """Nor pages on data that nobody recorded."""
    given = made(operators=[operator("a", "CPU")], rows=executions((T0, 5, 0)))
    names = {name for name, _ in mindinsight.files(given, 1)}
    assert names == {"profiler_info_0.json", "cpu_op_detail_info_0.csv", "cpu_op_type_info_0.csv"}
