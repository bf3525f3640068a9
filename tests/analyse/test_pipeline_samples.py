"""Real pipelines, and what is known of them. They lie beside the repository, if at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from instrument.analyse import pipeline
from instrument.analyse.pipeline import INPUT_BOUND, NOT_INPUT_BOUND
from instrument.trace.events import Capture
from instrument.trace.files import from_directory
from instrument.trace.load import captures
from tests.analyse import build
from tests.analyse.build import column

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"the samples are not there: {TRACES}")
MS = 10**6


def loaded(name: str) -> Capture:
    return captures(from_directory(TRACES / "samples" / name))[0]


def test_a_real_pipeline_on_the_host() -> None:
    """A loop that only reads: the slow map is found, and queues and processors are what is known."""
    known = json.loads((TRACES / "expected" / "minddata_ms210_map_batch.json").read_bytes())
    one = loaded("minddata_ms210_map_batch")
    records = build.stages(one).records()
    for record, expected in zip(records, known["pipeline"]["ops"], strict=True):
        assert (record["id"], record["type"], record["workers"]) == (
            expected["op_id"], expected["op_type"], expected["num_workers"],
        )  # fmt: skip
        assert record["queue_mean"] == expected["queue_avg"]
        assert record["queue_use_percent"] == 100 * expected["queue_usage"]
        assert record["empty_percent"] == 100 * expected["empty_fraction"]
        assert record["cpu_percent"] == known["cpu"]["avg_sys_plus_user_per_op"][str(expected["op_id"])]
    (queue,) = pipeline.queues(one).records()
    known = known["iterator"]
    assert (queue["samples"], queue["empty"], queue["full"]) == (
        known["batches"], known["queue_empty"], known["queue_full"],
    )  # fmt: skip
    assert queue["mean_wait_ns"] == known["avg_total_ms"] * MS
    found = build.data_verdict(one)
    assert found.kind == INPUT_BOUND
    assert found.stage is not None
    assert found.stage.type == "MapOp"


def test_the_device_has_the_last_word() -> None:
    """The host's queue was empty, but the device never waited."""
    one = loaded("minddata_ascend2021_small")
    device_row, host_row = pipeline.queues(one).records()
    assert (device_row["samples"], device_row["empty"]) == (3, 0)
    assert device_row["mean_wait_ns"] == pytest.approx(0.0006666666666666666 * MS)
    assert (host_row["samples"], host_row["empty"], host_row["full"]) == (1, 1, 0)
    assert build.data_verdict(one).kind == NOT_INPUT_BOUND
    assert build.stages(one)["type"].tolist() == ["EpochCtrlOp", "BatchOp", "MapOp", "MapOp", "ImageFolderOp"]


def test_a_branching_pipeline() -> None:
    """Two readers feed a shuffle; without a word of the consumer there is no verdict."""
    one = loaded("minddata_pipeline_fixture_a")
    assert column(build.stages(one)["queue_use_percent"]) == [None, 31.25, 31.25, 31.25]
    assert column(build.stages(one)["parent"]) == [None, 0, 1, 1]
    assert build.data_verdict(one).kind == "n/a"


def test_a_real_queue_of_a_device() -> None:
    """966 elements, 93 of which found the queue empty, and steps that wait for a thousandth of their time."""
    one = loaded("ascend2020_widedeep")
    (queue,) = pipeline.queues(one).records()
    assert (queue["samples"], queue["empty"]) == (966, 93)
    found = build.data_verdict(one)
    assert found.kind == NOT_INPUT_BOUND
    assert found.reason == "steps begin their first operator after 0.203 ms on average, which is launching."
