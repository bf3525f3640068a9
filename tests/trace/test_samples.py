"""Real files of hosts and tools, and what they are known to hold. They lie beside the repository, if at all."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.trace import cpu, gpu, pipelines
from instrument.trace.events import Capture
from instrument.trace.files import from_directory
from instrument.trace.load import captures
from instrument.trace.timeline import timeline
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


def by_operator(found: Capture) -> dict[str, np.ndarray[Any, Any]]:
    names = np.array([operator.full_name for operator in found.operators], object)[found.executions["operator"]]
    return {name: found.executions[names == name] for name in set(names.tolist())}


@pytest.mark.parametrize("name", ["cpu_ms210_tiny", "cpu_ms210_lenet"])
def test_operators_of_the_cpu(name: str) -> None:
    """Each operator's and each type's executions, to the nanosecond."""
    known, found = expected(name), loaded(name)
    assert len(found.executions) == known["executions"]
    assert Decimal(int(found.executions["duration_ns"].sum())) == Decimal(known["total_ms"]) * MS
    assert int(found.executions["start_ns"][0]) == known["first_start_ns"]
    assert found.operators[found.executions["operator"][0]].full_name == known["first_op"]
    assert int(found.executions["start_ns"][-1]) == known["last_start_ns"]
    operators = by_operator(found)
    assert len(operators) == known["ops"]
    for full_name, values in known["per_op"].items():
        rows = operators[full_name]
        assert len(rows) == values["count"]
        assert Decimal(int(rows["duration_ns"].sum())) == Decimal(values["total_ms"]) * MS
        assert (rows["start_ns"].min(), rows["start_ns"].max()) == (values["first_start_ns"], values["last_start_ns"])
    types = np.array([operator.type for operator in found.operators], object)[found.executions["operator"]]
    for kind, values in known["per_type"].items():
        rows = found.executions[types == kind]
        assert (len(rows), Decimal(int(rows["duration_ns"].sum()))) == (
            values["count"],
            Decimal(values["total_ms"]) * MS,
        )
    assert found.problems == ()


@pytest.mark.parametrize("name", ["cpu_ms210_tiny", "cpu_ms210_lenet"])
def test_shapes_and_sums_of_the_cpu(name: str) -> None:
    """Each operator has one shape; the sums of the source agree in their six digits."""
    found = loaded(name)
    assert len({operator.full_name for operator in found.operators}) == len(found.operators)
    assert all(operator.shapes.startswith("[") for operator in found.operators)
    operators = by_operator(found)
    sums = parsed(cpu.totals, content(f"{name}/FRAMEWORK/cpu_op_detail_info_0.csv"))[0]
    assert len(sums.rows) == len(operators)
    for row, count, total, *_ in sums.rows.tolist():
        mine = operators[sums.operators[row].full_name]
        assert len(mine) == count
        assert int(mine["duration_ns"].sum()) == pytest.approx(total, rel=1e-5)
    types = parsed(cpu.totals, content(f"{name}/FRAMEWORK/cpu_op_type_info_0.csv"))[0]
    assert types.rows["count"].sum() == len(found.executions)


@pytest.mark.parametrize("name", ["cpu_ms210_tiny", "cpu_ms210_lenet"])
def test_the_timeline_of_the_cpu(name: str) -> None:
    """It tells the same executions; its starts are off by the same few nanoseconds, its durations are exact."""
    raw = loaded(name)
    view, problems = parsed(timeline, content(f"{name}/ASCEND_PROFILER_OUTPUT/trace_view.json"))
    assert view.executions["duration_ns"].tolist() == raw.executions["duration_ns"].tolist()
    assert set((view.executions["start_ns"] - raw.executions["start_ns"]).tolist()) <= set(range(30, 45))
    assert problems == []


@pytest.mark.parametrize("variant", ["sync", "async"])
def test_steps_of_a_gpu(variant: str) -> None:
    """Steps in units of 10 ns, as the legacy reader gives them."""
    known = expected(f"synth_gpu_{variant}")
    found, problems = parsed(gpu.step_trace, content(f"synth_gpu_{variant}/step_trace_profiling_0.txt"))
    assert problems == []
    assert len(found.steps) == len(known["step_rows"])
    for step, row in zip(found.steps, known["step_rows"], strict=True):
        assert int(step["step"]) == row["step_num"]
        points = [int(step[name]) // 10 for name in ("start_ns", "fp_start_ns", "bp_end_ns", "end_ns")]
        assert points == [row["start_point"], row["fp_point"], row["bp_point"], row["end_point"]]
        assert points[3] - points[0] == row["total"] == row["iteration_interval"] + row["fp_and_bp"] + row["tail"]
        reduces = found.reduces[found.reduces["step"] == step["step"]]
        ends = reduces["start_ns"] + reduces["duration_ns"]
        assert (ends // 10 - reduces["start_ns"] // 10).tolist() == row["reduce"]


@pytest.mark.parametrize("variant", ["sync", "async"])
def test_operators_of_a_gpu(variant: str) -> None:
    """Operators and launches of kernels."""
    known, found = expected(f"synth_gpu_{variant}"), loaded(f"synth_gpu_{variant}")
    operators = by_operator(found)
    assert operators.keys() == known["ops"].keys()
    for name, values in known["ops"].items():
        assert len(operators[name]) == values["count"]
        assert int(operators[name]["duration_ns"].sum()) == round(values["total_us"] * US)
        assert int(operators[name]["start_ns"].min()) == values["first_start_ns"]
    kernels = {found.operators[row].full_name for row in found.activities["operator"].tolist()}
    assert (len(kernels), len(found.activities)) == (known["activities"], known["activity_events"])
    assert int(found.activities["duration_ns"].sum()) == round(known["activity_total_us"] * US)
    start = found.metadata["gpu_start_time"]
    assert isinstance(start, dict)
    assert start["host_monotonic_raw_ns"] == known["start_time"]["host_monotonic_raw_ns"]
    assert found.problems == ()


def test_the_pipeline_and_its_batches() -> None:
    """Of a real run with map and batch."""
    known, found = expected("minddata_ms210_map_batch"), loaded("minddata_ms210_map_batch")
    iterator, batches = known["iterator"], found.batches
    assert len(batches) == iterator["batches"]
    for name in ("total", "pipeline", "push"):
        assert int(batches[f"{name}_ns"].sum()) == iterator[f"{name}_ms"] * MS
    assert (batches["total_ns"] == batches["pipeline_ns"] + batches["push_ns"]).all()
    assert set(batches["queue_capacity"].tolist()) == {iterator["queue_capacity"]}
    assert int((batches["queue_size"] == 0).sum()) == iterator["queue_empty"]
    assert int((batches["queue_size"] == batches["queue_capacity"]).sum()) == iterator["queue_full"]
    assert (batches["time_ns"][[0, -1]] // MS).tolist() == [iterator["first_ts_ms"], iterator["last_ts_ms"]]
    assert found.metadata["pipeline_sampling_interval_ms"] == known["pipeline"]["sampling_interval_ms"]
    assert [stage.id for stage in found.pipeline] == known["pipeline"]["order_in_file"]
    for stage, row in zip(found.pipeline, known["pipeline"]["ops"], strict=True):
        assert (stage.type, stage.workers, list(stage.children)) == (
            row["op_type"],
            row["num_workers"],
            row["children"],
        )
        assert stage.parent == (-1 if row["parent"] is None else row["parent"])
        assert (len(stage.queue_sizes), stage.queue_capacity) == (row["queue_samples"], row["queue_length"])
        assert float(np.mean(stage.queue_sizes)) == pytest.approx(row["queue_avg"])
        assert stage.queue_sizes.count(0.0) / len(stage.queue_sizes) == row["empty_fraction"]
        assert stage.cpu_percent == known["cpu"]["avg_sys_plus_user_per_op"][str(stage.id)]
    assert found.problems == ()


def test_use_of_the_processors() -> None:
    """A sampled file says of how many processors it is."""
    known = expected("minddata_ms210_map_batch")["cpu"]
    use = parsed(pipelines.cpu_utilization, content("minddata_ms210_map_batch/minddata_cpu_utilization_0.json"))[0]
    assert use.processors == known["processors"]


def test_small_queues() -> None:
    """Of a device with its queue, and its waits for a batch."""
    known, found = expected("minddata_ascend2021_small"), loaded("minddata_ascend2021_small")
    queue, fetches = known["device_queue"], found.fetches
    for name, key in (("total_ns", "total_cost"), ("push_ns", "push_cost"), ("pipeline_ns", "get_cost")):
        assert (found.batches[name] // MS).tolist() == queue[key]
    assert found.batches["queue_size"].tolist() == queue["queue"]
    assert fetches["queue_size"].tolist() == known["get_next"]["queue"]
    assert (fetches["duration_ns"] / MS).tolist() == known["get_next"]["cost_ms"]
    assert float(fetches["duration_ns"].mean() / MS) == pytest.approx(known["get_next"]["avg_cost_ms"])
    assert int((fetches["queue_size"] == 0).sum()) == known["get_next"]["empty_queue"]


@pytest.mark.parametrize(
    ("name", "raw", "table"),
    [
        ("minddata_ascend2021_small", "pipeline_profiling_1.json", "minddata_pipeline_raw_1.csv"),
        ("minddata_pipeline_fixture_a", "pipeline_profiling_0.json", "legacy_outputs/minddata_pipeline_raw_0.csv"),
    ],
)
def test_stages_with_a_queue_are_those_of_the_shipped_table(name: str, raw: str, table: str) -> None:
    """Breadth first, with the same parents, children and queues."""
    known = expected(name)
    rows = known.get("pipeline_bfs_rows") or known["bfs_rows"][1:]
    found, lost = parsed(pipelines.pipeline, content(f"{name}/{raw}"))
    stages = pipelines.queued(found.stages)
    shipped, problems = parsed(pipelines.pipeline_table, content(f"{name}/{table}"))
    assert lost == problems == []
    assert [(one.id, one.parent, one.children, one.queue_sizes) for one in stages] == [
        (one.id, one.parent, one.children, one.queue_sizes) for one in shipped.stages
    ]
    for stage, row in zip(stages, rows, strict=True):
        assert [str(stage.id), str(stage.workers)] == [row[0], row[2]]
        assert stage.queue_sizes == tuple(json.loads(row[3] or "[]"))
        if row[4]:
            assert float(np.mean(stage.queue_sizes)) == float(row[4])
            assert float(np.mean(stage.queue_sizes)) / stage.queue_capacity == float(row[6])
        assert found.sampling_interval_ms == int(row[7])
        assert (str(stage.parent) if stage.parent >= 0 else "") == row[8]
        assert (str(list(stage.children)) if stage.children else "") == row[9]
