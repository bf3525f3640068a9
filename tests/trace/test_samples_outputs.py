"""Real outputs of tools, and what they are known to hold. They lie beside the repository, if at all."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.trace import ascend_outputs, clocks
from instrument.trace.events import Capture
from instrument.trace.files import from_directory
from instrument.trace.load import captures
from instrument.trace.text import Losses, csv_heading
from instrument.trace.timeline import Timeline, timeline
from tests.trace.encoders import parsed

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
SAMPLES = TRACES / "samples"
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the samples are not there: {SAMPLES}")
MS, US = 10**6, 10**3


def expected(name: str) -> Any:
    return json.loads((TRACES / "expected" / f"{name}.json").read_bytes())


def content(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def loaded(name: str) -> Capture:
    (found,) = captures(from_directory(SAMPLES / name))
    return found


def test_a_legacy_step_trace_of_a_cluster() -> None:
    """Cycles, and 97 reduces in each step."""
    known = expected("ascend2021_cluster_step_trace_a")
    data = content("ascend2021_cluster_step_trace_a/step_trace_raw_0_detail_time.csv")
    found, problems = parsed(ascend_outputs.step_trace_raw, data)
    steps = found.steps
    assert (len(steps), len(csv_heading(data))) == (known["rows"], known["columns"])
    assert int((steps["end_ns"] - steps["start_ns"]).sum()) // 10 == known["sum_total_cycles"]
    assert int((steps["bp_end_ns"] - steps["fp_start_ns"]).sum()) // 10 == known["sum_fp_and_bp"]
    first = [int(steps[0][name]) // 10 for name in ("start_ns", "end_ns", "fp_start_ns", "bp_end_ns")]
    assert first == [int(known["first_row"][name]) for name in ("start_point", "end_point", "fp_point", "bp_point")]
    assert len(found.reduces) == known["n_reduce_fields"] * known["rows"]
    reduces = found.reduces[np.argsort(found.reduces["name"], kind="stable")]
    labels = [
        f"stream_{stream}_{found.names[name]}"
        for stream, name in reduces[reduces["step"] == 1][["stream", "name"]].tolist()
    ]
    assert set(known["reduce_fields"]) <= set(labels)
    assert problems == []


ALEXNET = "ascend2023_prof_alexnet_device0"


def alexnet(kind: str) -> Timeline:
    found, problems = parsed(timeline, content(f"{ALEXNET}/device_0/timeline/{kind}.json"), kind)
    assert problems == []
    return found


def test_iterations_of_2023() -> None:
    """Steps and reduces, to the nanosecond; a step here begins where the one before it ended."""
    known, found = expected(ALEXNET), alexnet("step_trace_0_2_1")
    assert (len(found.steps), set(found.steps["model"].tolist())) == (10, {known["model_id"]})
    previous = None
    for step, row in zip(found.steps.tolist(), known["iterations"], strict=True):
        number, start, fp, bp, end, _ = step
        assert (number, fp, bp, end) == (
            row["id"],
            round(row["fp_start"] * US),
            round(row["bp_end"] * US),
            round(row["end"] * US),
        )
        assert start == (previous or end - round(row["iteration_time_ns"]))
        previous = end
    assert [bp - fp for _, _, fp, bp, _, _ in found.steps.tolist()] == [
        round(value * US) for value in known["fp_bp_us"]
    ]
    assert [end - bp for _, _, _, bp, end, _ in found.steps.tolist()] == [
        round(value * US) for value in known["iteration_refresh_us"]
    ]
    assert found.reduces["duration_ns"].tolist() == [round(value * US) for value in known["reduce_us"]]


@pytest.mark.parametrize("iteration", ["1", "2"])
def test_tasks_of_2023(iteration: str) -> None:
    """Operators and the runtime's own tasks are told apart, and none is lost."""
    known, found = expected(ALEXNET)["task_time"][iteration], alexnet(f"task_time_0_2_{iteration}")
    tasks = np.concatenate([found.executions, found.activities])
    assert len(tasks) == known["events"]
    assert int(tasks["duration_ns"].sum()) == round(known["dur_us_sum"] * US)
    assert sorted(set(tasks["stream"].tolist())) == known["streams"]
    assert int(tasks["start_ns"].min()) == round(known["ts_min"] * US)
    sides = [found.operators[row].side for row in found.executions["operator"].tolist()]
    assert (sides.count("AI Core"), sides.count("AI CPU")) == (
        known["by_task_type"]["AI_CORE"],
        known["by_task_type"]["AI_CPU"],
    )
    below = [found.operators[row].side for row in found.activities["operator"].tolist()]
    assert {kind: below.count(kind) for kind in set(below)} == {
        kind: count for kind, count in known["by_task_type"].items() if kind not in ("AI_CORE", "AI_CPU")
    }


def test_communication_of_2023() -> None:
    """One operator, and the tasks of its planes."""
    known, found = expected(ALEXNET), alexnet("hccl_0_2_1")
    assert len(found.executions) + len(found.activities) == known["hccl_events"]
    names = [found.operators[row].full_name for row in found.activities["operator"].tolist()]
    counts = {name: names.count(name) for name in set(names)}
    assert counts == {name: count for name, count in known["hccl_names"].items() if name != "<op>"}
    assert len(found.executions) == known["hccl_names"]["<op>"]


def test_overlap_of_2023() -> None:
    """What the file itself says of computing and communicating."""
    known, found = expected(ALEXNET), alexnet("msprof_0_2_1")
    assert found.phases["X"] == known["msprof_x_events"]
    events = found.overlap
    names = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    assert {name: int(events["duration_ns"][events["kind"] == kind].sum()) for kind, name in enumerate(names)} == {
        name: round(value * US) for name, value in known["msprof_overlap"].items()
    }


def test_clock_logs_of_2023() -> None:
    """Frequencies, and how long was collected."""
    known = expected(ALEXNET)
    folder = f"{ALEXNET}/device_0"
    info = clocks.device_info(content(f"{folder}/info.json.0"), Losses("f"))
    assert (info.hwts_khz, info.aic_khz) == (known["hwts_frequency_mhz"] * 1000, known["aic_frequency_mhz"] * 1000)
    assert (info.ai_core_num, info.rank_id) == (known["ai_core_num"], known["rank_id"])
    start, end = (clocks.moment(content(f"{folder}/{name}_info.0"), Losses("f")) for name in ("start", "end"))
    assert (start.monotonic_ns, end.monotonic_ns) == (
        known["clock_monotonic_raw_begin_ns"],
        known["clock_monotonic_raw_end_ns"],
    )
    assert start.epoch_us is not None
    assert end.epoch_us is not None
    assert (end.epoch_us - start.epoch_us) / 10**6 == known["collection_seconds"]


def test_all_of_2023() -> None:
    """Both iterations, on the wall clock, with every execution in its step."""
    found = loaded(ALEXNET)
    assert (found.target, found.clock, len(found.steps), len(found.executions)) == ("ascend", "epoch", 10, 280)
    assert set(found.executions["step"].tolist()) == {1, 2}
    assert found.problems == ()


def test_kernel_details() -> None:
    """Rows, durations by side, steps, and the cells that say N/A."""
    known = expected("torch_npu2023_kernel_details")
    data = content("torch_npu2023_kernel_details/kernel_details.csv")
    found, problems = parsed(ascend_outputs.kernel_details, data)
    assert (csv_heading(data), len(found.executions)) == (known["columns"], known["rows"])
    sums: dict[str, list[Any]] = {}
    for core, values in known["by_accelerator_core"].items():
        side = sums.setdefault(ascend_outputs.side_of(core), [0, Decimal(0)])
        side[0] += values["rows"]
        side[1] += Decimal(values["duration_us"])
    sides = np.array([operator.side for operator in found.operators], object)[found.executions["operator"]]
    for name, (count, duration) in sums.items():
        rows = found.executions[sides == name]
        assert (len(rows), Decimal(int(rows["duration_ns"].sum()))) == (count, duration * US)
    assert set(found.executions["step"].tolist()) == {int(step) for step in known["step_ids"]}
    assert problems[0].amount == known["na_task_id_rows"]


def test_a_trace_view_of_2023() -> None:
    """All of its events are told, those that are drawn in the terms of a capture."""
    known = expected("torch_npu2023_kernel_details")["trace_view"]
    found, problems = parsed(timeline, content("torch_npu2023_kernel_details/trace_view.json"))
    assert found.phases == known["by_ph"]
    assert sum(found.phases.values()) == known["events"]
    host = known["by_cat"]["cpu_op"] + known["by_cat"]["enqueue"] + known["by_cat"]["dequeue"]
    assert len(found.spans) - host == 382
    assert len(found.executions) + len(found.spans) + 547 == known["by_ph"]["X"]
    assert [found.names[row] for row in found.spans["name"][found.spans["kind"] == 1].tolist()] == ["ProfilerStep#1"]
    assert problems == []
