"""What becomes of the files of the data pipeline."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from instrument.trace import pipelines
from instrument.trace.events import PipelineStage, Problem
from tests.trace.encoders import damaged, parsed, table

MS = 10**6


def stage(number: int, kind: str, children: list[int] | None = None, sizes: list[Any] | None = None) -> dict[str, Any]:
    metrics = None if sizes is None else {"output_queue": {"length": 16, "size": sizes}}
    return {"op_id": number, "op_type": kind, "num_workers": 2, "children": children, "metrics": metrics}


TREE = [
    stage(3, "Generator", None, [16, 8]),
    stage(0, "Batch", [1], [0, 1]),
    stage(4, "EpochCtrl", [0]),
    stage(1, "Rename", [2, 3]),
    stage(2, "Map", [], [1.5, 2]),
]


def pipeline(stages: list[dict[str, Any]]) -> bytes:
    return json.dumps({"op_info": stages, "sampling_interval": 20}).encode()


def test_the_tree() -> None:
    """Stages keep the order of the file, and know their parents; inline ones have no queue."""
    found, problems = parsed(pipelines.pipeline, pipeline(TREE))
    assert found.sampling_interval_ms == 20
    assert problems == []
    assert found.stages == [
        PipelineStage(3, "Generator", 2, 1, (), 16, (16.0, 8.0)),
        PipelineStage(0, "Batch", 2, 4, (1,), 16, (0.0, 1.0)),
        PipelineStage(4, "EpochCtrl", 2, -1, (0,), -1, ()),
        PipelineStage(1, "Rename", 2, 0, (2, 3), -1, ()),
        PipelineStage(2, "Map", 2, 1, (), 16, (1.5, 2.0)),
    ]


def test_stages_with_a_queue() -> None:
    """Breadth first from the root, with the inline ones bridged."""
    found = pipelines.queued(parsed(pipelines.pipeline, pipeline(TREE))[0].stages)
    assert [(one.id, one.parent, one.children) for one in found] == [(0, -1, (2, 3)), (2, 0, ()), (3, 0, ())]
    assert pipelines.queued([]) == []


def test_a_ring_ends() -> None:
    """A damaged tree that leads back to itself is walked once."""
    stages = parsed(
        pipelines.pipeline, pipeline([stage(0, "a", [1], [1]), stage(1, "b", [0, 2], [1]), stage(2, "c", [2, 1])])
    )[0].stages
    assert [one.id for one in pipelines.queued(stages)] == [0, 1]


def test_a_cut_pipeline_gives_its_whole_stages() -> None:
    """Wherever it is cut, each stage that is told is whole."""
    data = pipeline(TREE)
    whole = {one["op_id"] for one in TREE}
    for length in range(len(data) - len(b'], "sampling_interval": 20}')):
        found, problems = parsed(pipelines.pipeline, data[:length])
        assert {one.id for one in found.stages} <= whole
        assert problems or not length
    assert len(parsed(pipelines.pipeline, data[: data.index(b'{"op_id": 1')])[0].stages) == 3


def test_odd_stages_are_counted() -> None:
    """Ids that are none, children that are none, and samples that are no numbers."""
    odd = [stage(-1, "a"), {"op_id": "x"}, 5, stage(7, "b", ["x"]), stage(8, "c", [], [1, "N/A", None])]  # type: ignore[list-item]
    found, problems = parsed(pipelines.pipeline, json.dumps({"op_info": odd}).encode())
    assert [(one.id, one.queue_sizes) for one in found.stages] == [(8, (1.0,))]
    assert found.sampling_interval_ms == -1
    assert {problem.what: problem.amount for problem in problems} == {
        "stages that cannot be read, or are there twice": 4,
        "samples that are no numbers": 2,
    }


def test_the_derived_table() -> None:
    """Lists in quoted cells are lists; an empty cell is none."""
    heading = [
        "op_id",
        "op_type",
        "num_workers",
        "output_queue_size",
        "output_queue_average_size",
        "output_queue_length",
        "output_queue_usage_rate",
        "sample_interval",
        "parent_id",
        "children_id",
    ]
    data = table(
        heading, [[0, "Batch", 4, "", "", "", 0, 10, "", "[1]"], [1, "Map", 8, "[10, 30]", 20.0, 64, 0.3, 10, 0, ""]]
    )
    found, problems = parsed(pipelines.pipeline_table, data)
    assert found.stages == [
        PipelineStage(0, "Batch", 4, -1, (1,), -1, ()),
        PipelineStage(1, "Map", 8, 0, (), 64, (10.0, 30.0)),
    ]
    assert (found.sampling_interval_ms, problems) == (10, [])


def test_numbers_of_the_derived_table_that_no_machine_has() -> None:
    """They are none, and stay out of what is counted in 64 bits."""
    huge = "9" * 20
    data = table(
        ["op_id", "op_type", "num_workers", "output_queue_length", "sample_interval", "children_id"],
        [[0, "Batch", huge, huge, huge, f"[1, {huge}]"]],
    )
    found = parsed(pipelines.pipeline_table, data)[0]
    assert found.stages == [PipelineStage(0, "Batch", -1, -1, (1,), -1, ())]
    assert found.sampling_interval_ms == -1


def test_batches() -> None:
    """A batch has its times and what the queue held, in whichever order its lines stand."""
    data = b"0 1 1 2 100\n0 2 1 14 100\n0 0 1 12 100\n1 16 1 3 101\n1 16 2 0 120\n0 2 2 8 119\n"
    found, problems = parsed(pipelines.batches, data)
    assert found.tolist() == [
        (101 * MS, 1, 12 * MS, 2 * MS, 14 * MS, 3, 16),
        (119 * MS, 2, -1, -1, 8 * MS, 0, 16),
    ]
    assert [(one.what, one.amount) for one in problems] == [("batches without all of the lines that others have", 1)]


def test_batches_of_a_second_iterator() -> None:
    """A number that comes again is another batch; older files have no time."""
    found = parsed(pipelines.batches, b"0 2 1 5\n0 2 2 6\n0 2 1 7\n")[0]
    assert found[["batch", "total_ns", "time_ns"]].tolist() == [
        (1, 5 * MS, -1),
        (2, 6 * MS, -1),
        (1, 7 * MS, -1),
    ]


def test_odd_lines_of_batches_are_counted() -> None:
    """Of another form, of an unknown kind, with a number that is no time, and cut off."""
    found, problems = parsed(
        pipelines.batches, b"0 2 1 5 9\nx\n5 5 5 5 5\n0 9 1 1 1\n0 2 1 99999999999999999 1\n1 16 1 3 1"
    )
    assert len(found) == 1
    assert {problem.what: problem.amount for problem in problems} == {
        "bytes of a line that is cut off": 10,
        "lines of another form": 2,
        "lines of an unknown kind": 2,
    }


def test_use_of_the_processors() -> None:
    """Lists of several lengths are means; the operator -1 is none."""
    samples = {"sys_utilization": [0, 20], "user_utilization": [2, 4]}
    data = json.dumps(
        {
            "cpu_processor_num": 2,
            "sampling_interval": 20,
            "time_stamp": [5, 7],
            "process_info": {"sys_utilization": [1], "user_utilization": [2]},
            "device_info": {**samples, "runnable_process": [1, 2, 3, 4]},
            "op_info": [
                {"op_id": -1, "metrics": samples},
                {"op_id": 3, "metrics": samples},
                {"op_id": 4, "metrics": None},
            ],
        }
    ).encode()
    use, problems = parsed(pipelines.cpu_utilization, data)
    assert use.processors == 2
    assert (use.process_percent, use.stages) == (3.0, {3: 13.0})
    assert use.machine["runnable_process"] == 2.5
    assert problems == [Problem("f", "operators without samples of their use", 1)]


def test_fetches() -> None:
    """A GPU's are in ns."""
    found, problems = parsed(
        pipelines.fetches, b"GetNext 100 107 3\nGetNext x 1 2\n", "minddata_getnext_profiling_0.txt"
    )
    assert found.tolist() == [(-1, -1, 100, 7, 3)]
    assert [problem.amount for problem in problems] == [1]


def test_hostile_files(rng: np.random.Generator) -> None:
    """Nothing that a file may hold is an error."""
    use = json.dumps(
        {"cpu_processor_num": 2, "time_stamp": [5], "op_info": [{"op_id": 3, "metrics": {"sys_utilization": [1]}}]}
    )
    for data in (pipeline(TREE), b"0 1 1 2 100\n1 16 1 3 101\n" * 3, use.encode()):
        for broken in damaged(data, rng, 150):
            pipelines.queued(parsed(pipelines.pipeline, broken)[0].stages)
            parsed(pipelines.pipeline_table, broken)[0]
            parsed(pipelines.batches, broken)[0]
            parsed(pipelines.cpu_utilization, broken)[0]
            parsed(pipelines.fetches, broken)[0]
