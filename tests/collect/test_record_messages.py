"""Graphs, lineage and landscapes by hand: MindSpore's message classes, their bytes, and bytes that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore.train import anf_ir_pb2, lineage_pb2, summary_pb2

from instrument import Run, SummaryRecord, read
from instrument.codec import graph as graph_codec
from tests.collect.build import BOTH

AS = pytest.mark.parametrize("give", [lambda m: m, lambda m: m.SerializeToString()], ids=["message", "bytes"])


def record(directory: Path, processes: int, *values: tuple[str, str, Any]) -> Run:
    with SummaryRecord(directory, num_process=processes) as recorder:
        for value in values:
            recorder.add_value(*value)
        assert recorder.record(3)
    run = read(directory)
    assert run.damage == []
    return run


def model() -> Any:
    """A `ModelProto` of two operators and an input."""
    message = anf_ir_pb2.ModelProto()
    message.graph.name = "net"
    message.graph.parameters.add().name = "x"
    for name, op_type, scope, inputs in (("1", "MatMul", "Default/dense", ["x"]), ("2", "ReLU", "Default", ["1"])):
        node = message.graph.node.add()
        node.name, node.op_type, node.scope = name, op_type, scope
        for one in inputs:
            node.input.add().name = one
    return message


@BOTH
@pytest.mark.parametrize(
    "given", [model(), model().SerializeToString(), bytearray(model().SerializeToString()), model().graph], ids=type
)
def test_a_graph_comes_back(tmp_path: Path, processes: int, given: Any) -> None:
    """A ModelProto, its bytes, or the GraphProto in it is recorded as the graph, with nodes, scopes and inputs."""
    run = record(tmp_path, processes, ("graph", "any", given))
    assert run.tags() == {"graph": ["net"]}
    graph = run.graph
    assert graph is not None
    assert graph.data == model().graph.SerializeToString()
    found = [(node.name, node.op_type, node.scope, node.inputs) for node in graph_codec.nodes(graph)]
    assert found == [("1", "MatMul", "Default/dense", ("x",)), ("2", "ReLU", "Default", ("1",))]
    assert graph_codec.parameters(graph) == ["x"]
    assert run.graphs("net").step.tolist() == [3]


def put(mapping: Any, key: str, value: Any) -> None:
    """Set an entry of a map field; MindSpore 2.7's own classes have lists of entries with a new protobuf."""
    if hasattr(mapping, "add"):
        entry = mapping.add()
        entry.key, entry.value = key, value
    else:
        mapping[key] = value


@BOTH
@AS
def test_lineage_messages_come_back(tmp_path: Path, processes: int, give: Any) -> None:
    """Each of the four lineage messages goes to the lineage file and comes back field by field."""
    train, evaluation = lineage_pb2.TrainLineage(), lineage_pb2.EvaluationLineage()
    train.hyper_parameters.optimizer = "Momentum"
    train.hyper_parameters.learning_rate = 0.125
    train.hyper_parameters.epoch = 7
    train.algorithm.network = "LeNet5"
    train.model.path = '{"ckpt": "/a/b.ckpt"}'
    evaluation.metric = '{"accuracy": 0.75}'
    evaluation.valid_dataset.valid_dataset_size = 100
    dataset, custom = lineage_pb2.DatasetGraph(), lineage_pb2.UserDefinedInfo()
    put(dataset.parameter.mapStr, "op_type", "Batch")
    put(dataset.children.add().parameter.mapStr, "op_type", "MnistDataset")
    put(custom.user_info.add().map_str, "owner", "me")
    put(custom.user_info.add().map_int32, "layers", 5)
    run = record(
        tmp_path, processes, ("train_lineage", "a", give(train)), ("eval_lineage", "b", give(evaluation)),
        ("dataset_graph", "c", give(dataset)), ("custom_lineage_data", "d", give(custom)), ("scalar", "s", 1.0),
    )  # fmt: skip
    assert run.lineage == {
        "train": {
            "hyper_parameters": {"optimizer": "Momentum", "learning_rate": 0.125, "epoch": 7},
            "algorithm": {"network": "LeNet5"},
            "model": {"path": {"ckpt": "/a/b.ckpt"}},
        },
        "eval": {"metric": {"accuracy": 0.75}, "valid_dataset": {"valid_dataset_size": 100}},
        "dataset": {"op_type": "Batch", "children": [{"op_type": "MnistDataset"}]},
        "custom": {"owner": "me", "layers": 5},
    }
    assert run.tags() == {"scalar": ["s"]}
    assert sorted(path.name.endswith("_lineage") for path in tmp_path.iterdir()) == [False, True]


@BOTH
def test_custom_lineage_may_be_a_dictionary(tmp_path: Path, processes: int) -> None:
    """Text, floats and ints of any size; those beyond int32 are kept as a double or as text."""
    given = {"s": "text", "f": 0.1, "i": 5, "least": -(2**31), "more": 2**31, "huge": 2**70 + 1, "nan": float("inf")}
    found = record(tmp_path, processes, ("custom_lineage_data", "mine", given)).lineage["custom"]
    assert found == {**given, "more": float(2**31), "huge": str(2**70 + 1)}
    assert type(found["i"]) is int


@BOTH
@AS
def test_a_landscape_comes_back(tmp_path: Path, processes: int, give: Any) -> None:
    """MindSpore's own LossLandscape is kept byte for byte."""
    message = summary_pb2.LossLandscape()
    for axis in (message.landscape.x, message.landscape.y, message.landscape.z):
        axis.dims.extend([2, 2])
        axis.data_type = 11
        axis.float_data.extend([1.0, 2.0, 3.0, 4.0])
    message.loss_path.intervals.extend([1, 2, 3])
    message.metadata.decomposition = "PCA"
    message.metadata.unit = "step"
    message.metadata.step_per_epoch = 12
    run = record(tmp_path, processes, ("landscape", "landscape_[1, 2, 3]", give(message)))
    found = run.points("landscape", "landscape_[1, 2, 3]")[3]
    assert summary_pb2.LossLandscape.FromString(found.data) == message


LINEAGE = ["train_lineage", "eval_lineage", "dataset_graph", "custom_lineage_data"]


@BOTH
@pytest.mark.parametrize("plugin", ["graph", "landscape", *LINEAGE])
@pytest.mark.parametrize("data", [b"\xff" * 4, b"\x0a\x05ab", b"hello world", bytes(range(256)), b"\x0a" * 1000])
def test_hostile_bytes_are_refused(tmp_path: Path, processes: int, plugin: str, data: bytes) -> None:
    """Bytes that are no such message raise ValueError and name the value; the recorder goes on."""
    with SummaryRecord(tmp_path, num_process=processes) as recorder:
        with pytest.raises(ValueError, match="The value of 'wrong' is no "):
            recorder.add_value(plugin, "wrong", data)
        recorder.add_value("scalar", "right", 1.0)
        assert recorder.record(1)
    assert (read(tmp_path).tags(), read(tmp_path).lineage) == ({"scalar": ["right"]}, {})


@pytest.mark.parametrize("plugin", ["graph", "landscape", *LINEAGE])
@pytest.mark.parametrize("value", ["text", 1.0, None, [1], np.zeros(3)])
def test_what_is_no_message_is_refused(tmp_path: Path, plugin: str, value: Any) -> None:
    """Other types raise TypeError and say what is expected."""
    with SummaryRecord(tmp_path, num_process=0) as recorder, pytest.raises(TypeError, match=r"'wrong'.*; expected "):
        recorder.add_value(plugin, "wrong", value)


@pytest.mark.parametrize(
    ("plugin", "data"),
    [
        ("landscape", b"\x0a\x05\x0a\x03\xff\xff\xff"),  # a tensor that is none
        ("train_lineage", b"\x0a\x04\x0a\x02\xff\xfe"),  # an optimiser whose name is not UTF-8
        ("custom_lineage_data", b"\x0a\x09\x22\x07\x0a\x01\xff\x12\x02ab"),  # so is a key of the user's
    ],
)
def test_a_message_with_damage_inside_is_refused(tmp_path: Path, plugin: str, data: bytes) -> None:
    """Readers would refuse the whole event, and the values beside it with it."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        with pytest.raises(ValueError, match=r"The value of 'x' is no \w+ message"):
            record.add_value(plugin, "x", data)
        record.add_value("scalar", "loss", 1.0)
        assert record.record(1)
    run = read(tmp_path)
    assert run.scalars("loss").value.tolist() == [1.0]
    assert run.damage == []


@pytest.mark.parametrize("plugin", LINEAGE)
def test_another_message_is_refused(tmp_path: Path, plugin: str) -> None:
    """A message of another class raises TypeError and names both."""
    other = lineage_pb2.Operation()
    with (
        SummaryRecord(tmp_path, num_process=0) as recorder,
        pytest.raises(TypeError, match=r"'wrong' is a Operation; expected a \w+ message or its bytes"),
    ):
        recorder.add_value(plugin, "wrong", other)


@pytest.mark.parametrize("given", [{"a": "\udcff"}, {"\udcff": 1}, {"a": [1]}, {"a": None}, {1: "a"}])
def test_custom_lineage_that_cannot_be_written_is_refused(tmp_path: Path, given: dict[Any, Any]) -> None:
    """Text that is no Unicode and values of other types raise when they are added."""
    with SummaryRecord(tmp_path, num_process=0) as recorder, pytest.raises((TypeError, ValueError)):
        recorder.add_value("custom_lineage_data", "mine", given)


def test_a_network_that_is_not_compiled_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With `network=` in PyNative mode there is no graph: one warning, and the values are recorded."""
    with SummaryRecord(tmp_path, num_process=0, network=ms.nn.Dense(2, 2)) as recorder:
        for step in range(3):
            recorder.add_value("scalar", "loss", 1.0)
            assert recorder.record(step)
    messages = [record.getMessage() for record in caplog.records if record.name == "instrument"]
    assert messages == ["The network's graph is not recorded yet: it is not compiled, as in PyNative mode."]
    assert read(tmp_path).tags() == {"scalar": ["loss"]}
