"""What docs/format.md says of TensorBoard's dialect is enough to read what is recorded, to the last digit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from instrument import SummaryRecord, read
from instrument.codec.dialects import LAYOUTS
from instrument.eventfile import frame
from instrument.ringfile import commit
from instrument.values import Event, Gap, MessageItem
from tests import protobuf
from tests.oracle import tensorboard_files
from tests.oracle.tensorboard_files import File

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
GRAPH_NODE = b"\x0a\x03\x0a\x01x\x12\x03add\x1a\x03Add\x22\x07Default"


def opened(directory: Path) -> tuple[File, File]:
    """The file of scalars and the other one."""
    (scalars,), (others,) = (list(directory.glob(f"events.out.tfevents.*.{number}")) for number in (0, 1))
    return tensorboard_files.open_file(scalars), tensorboard_files.open_file(others)


def test_values_are_read_from_the_pages_words(tmp_path: Path, rng: np.random.Generator) -> None:
    """Scalars exactly, tensors of each type, histograms with all facts, pictures; a tag that two kinds have."""
    tensors = {dtype: (100 * rng.random((2, 3))).astype(dtype) for dtype in DTYPES}
    with SummaryRecord(tmp_path, num_process=0, dialect="tensorboard") as record:
        for step in (0, 1, 2**40):
            record.add_value("scalar", "exact", 0.1 + step)
            record.add_value("scalar", "single", 0.5)
            for tag, array in tensors.items():
                record.add_value("tensor", tag, array)
            record.add_value("tensor", "exact", np.float32(2.5))
            record.add_value("histogram", "h", np.array([1.0, 2.0, 2.5, np.nan, np.inf]))
            record.add_value("image", "p", rng.random((1, 3, 4, 5), np.float32))
            record.record(step)

    scalars, others = opened(tmp_path)
    run = read(tmp_path)
    assert [(one.version, one.writer) for one in (scalars, others)] == [("brain.Event:2", "instrument")] * 2
    assert scalars.points == {
        ("scalar", "exact"): [(step, 0.1 + step) for step in (0, 1, 2**40)],
        ("scalar", "single"): [(step, 0.5) for step in (0, 1, 2**40)],
    }
    for tag, array in tensors.items():
        found = others.points["tensor", tag][1][1]
        assert (found.dims, found.dtype, found.values) == ([2, 3], tag, array.reshape(-1).tolist())
    assert others.points["tensor", "exact/tensor"][0][1].values == [2.5]
    assert others.points["image", "p"][0][1].data == run.images("p")[0].data
    _compare_histogram(others.points["histogram", "h"][0][1], run.histograms("h")[0])


def _compare_histogram(found: Any, ours: Any) -> None:
    rows, facts = found
    assert [left for left, _, _ in rows] == ours.left.tolist()
    np.testing.assert_allclose([right - left for left, right, _ in rows], ours.width, rtol=1e-12)
    assert [count for _, _, count in rows] == ours.counts.tolist()
    assert (facts.buckets, facts.count, facts.nan, facts.infinities) == ([], 5, 1, (1, 0))
    assert facts.max_min_sum == (2.5, 1.0, 5.5)


def test_lineage_is_read_from_the_pages_words(tmp_path: Path) -> None:
    """Hyper-parameters, metrics and texts; a name that MindSpore's lineage has, too; and how the run ended."""
    train = protobuf.message_class("TrainLineage")()
    train.hyper_parameters.optimizer, train.algorithm.loss = "Adam", 0.25
    evaluation = protobuf.message_class("EvaluationLineage")(metric='{"accuracy": 0.5}')
    with SummaryRecord(tmp_path, num_process=0, dialect="tensorboard") as record:
        record.add_value("train_lineage", "train", train)
        record.add_value("eval_lineage", "eval", evaluation)
        record.add_value("custom_lineage_data", "custom", {"rate": 0.1, "optimizer": "mine", "count": 3})
        record.record(7)

    scalars, others = opened(tmp_path)
    assert others.hyperparameters == {"optimizer": "Adam", "custom.optimizer": "mine", "rate": 0.1, "count": 3.0}
    assert others.status == 1
    assert scalars.points == {
        ("scalar", "lineage/train/loss"): [(7, 0.25)], ("scalar", "lineage/eval/accuracy"): [(7, 0.5)],
    }  # fmt: skip
    assert tensorboard_files.section(others, "custom") == {"rate": 0.1, "optimizer": "mine", "count": 3}
    assert tensorboard_files.section(others, "eval")["metric"] == {"accuracy": 0.5}


def test_graphs_and_gaps_are_read_from_the_pages_words(tmp_path: Path) -> None:
    """Nodes under their new names with what they read; where events are missing."""
    node = b"\x0a" + bytes([len(GRAPH_NODE)]) + GRAPH_NODE
    graph = MessageItem("graph", "", node + b"\x1a\x03\x0a\x01x")
    event = Event(9, 2.0, [commit.gap_item(Gap(3, 5, 9, "no room")), graph], {"loss": 1.0})
    layout = LAYOUTS["tensorboard"]
    for number, payloads in enumerate(layout.encode(event)):
        whole = [layout.version(number, 1.0), *payloads]
        path = tmp_path / f"events.out.tfevents.1700000000.host.1.{number}"
        path.write_bytes(b"".join(piece for payload in whole for piece in frame.pack(payload)))

    scalars, others = opened(tmp_path)
    assert scalars.gaps == [(3, 5, 9, "no room")]
    assert scalars.points == {("scalar", "loss"): [(9, 1.0)]}
    assert others.nodes == [("Parameter/x", "Parameter", []), ("Default/Add/add", "Add", ["Parameter/x"])]


def test_files_of_both_dialects_are_told_apart_as_the_page_says(tmp_path: Path) -> None:
    """The file that names its writer is a copy beside ours; without it, it is read."""
    with SummaryRecord(tmp_path, num_process=0, dialect="both") as record:
        record.add_value("scalar", "loss", 0.1)
        record.record(1)

    (copy,) = tmp_path.glob("*tfevents*")
    (ours,) = tmp_path.glob("*_MS")
    assert tensorboard_files.open_file(copy).points == {("scalar", "loss"): [(1, 0.1)]}
    assert len(read(tmp_path).scalars("loss")) == 1
    assert read(copy).scalars("loss").value.tolist() == [0.1]
    ours.unlink()
    assert read(tmp_path).scalars("loss").value.tolist() == [0.1]
