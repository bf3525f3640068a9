"""Several data pipelines of one window: those of one form are one, others are left out and counted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from instrument.trace.completeness import is_absence
from instrument.trace.events import Capture
from instrument.trace.load import captures

STAGES = (("Batch", 2), ("Generator", 1))


def files(place: int, batches: int, stages: Any = STAGES, sizes: Any = (), use: int | None = None) -> dict[str, bytes]:
    """The files of the pipeline at a place: stages in a row, and so many batches of 2 ms."""
    folder = f"pipeline_{place}/" if place else ""
    tree = [
        {"op_id": one, "op_type": kind, "num_workers": workers, "children": [one + 1] if one + 1 < len(stages) else [],
         "metrics": {"output_queue": {"length": 16, "size": list(sizes)}}}
        for one, (kind, workers) in enumerate(stages)
    ]  # fmt: skip
    lines = [f"0 0 {batch} 2 {1000 * place + batch}\n" for batch in range(1, batches + 1)]
    found = {
        f"{folder}pipeline_profiling_0.json": json.dumps({"op_info": tree, "sampling_interval": 10}).encode(),
        f"{folder}dataset_iterator_profiling_0.txt": "".join(lines).encode(),
    }
    if use is not None:
        metrics = {"sys_utilization": [use], "user_utilization": [0]}
        told = {"cpu_processor_num": 4, "time_stamp": [1], "op_info": [{"op_id": 0, "metrics": metrics}]}
        found[f"{folder}minddata_cpu_utilization_0.json"] = json.dumps(told).encode()
    return found


def one(*parts: dict[str, bytes], **told: Any) -> Capture:
    """The capture of a window with these files."""
    window = {"instrument.window.0.json": json.dumps({"rank": 0, "target": "cpu", **told}).encode()}
    (found,) = captures({name: data for part in (window, *parts) for name, data in part.items()})
    return replace(found, problems=tuple(problem for problem in found.problems if not is_absence(problem)))


def test_pipelines_of_one_form_are_one() -> None:
    """In the order in which they were built, also from the tenth on: batches, samples, and the mean of the use."""
    parts = [files(place, 2, sizes=[place], use=100 if place == 3 else 0) for place in range(12)]
    found = one(*reversed(parts))
    assert found.batches["batch"].tolist() == [1, 2] * 12
    assert found.batches["time_ns"].tolist() == sorted(found.batches["time_ns"].tolist())
    assert [stage.queue_sizes for stage in found.pipeline] == [tuple(range(12))] * 2
    assert found.pipeline[0].cpu_percent == pytest.approx(100 / 12)
    assert found.metadata["processors"] == 4
    assert found.problems == ()


def test_a_pipeline_of_another_form_is_counted() -> None:
    """As that of an evaluation between two epochs."""
    found = one(files(0, 2), files(1, 3, [("Batch", 2)]), files(2, 1))
    assert len(found.batches) == 3
    assert [(one.file, one.what, one.amount) for one in found.problems] == [
        ("pipeline_1/dataset_iterator_profiling_0.txt", "batches of a pipeline of another form", 3)
    ]


def test_pipelines_that_could_not_be_recorded_are_counted() -> None:
    (problem,) = one(files(0, 1), pipelines_not_recorded=2).problems
    assert problem.amount == 2
    for wrong in (0, -1, None, "2"):
        assert one(files(0, 1), pipelines_not_recorded=wrong).problems == ()


def test_a_damaged_first_pipeline() -> None:
    """The first one that has a form says which form counts."""
    broken = {**files(0, 2), "pipeline_profiling_0.json": b"{"}
    found = one(broken, files(1, 3))
    assert len(found.batches) == 3
    assert ("dataset_iterator_profiling_0.txt", "batches of a pipeline of another form", 2) in found.problems
