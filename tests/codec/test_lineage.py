"""Lineage: events of their own file, plain dictionaries out of each kind, and custom values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from instrument.codec import lineage, wire
from instrument.errors import CorruptMessage
from instrument.values import LINEAGE_KINDS, Lineage
from tests import protobuf


def message_of(kind: str) -> Any:
    return protobuf.message_class(lineage.MESSAGES[kind][1])()


def train_message() -> Any:
    message = message_of("train_lineage")
    message.hyper_parameters.optimizer = "Momentum"
    message.hyper_parameters.learning_rate = 0.125
    message.hyper_parameters.loss_function = "SoftmaxCrossEntropyWithLogits"
    message.hyper_parameters.epoch = 10
    message.hyper_parameters.parallel_mode = "stand_alone"
    message.hyper_parameters.device_num = 1
    message.hyper_parameters.batch_size = 32
    message.train_dataset.train_dataset_path = "/data/träin"
    message.train_dataset.train_dataset_size = 60000
    message.algorithm.network = "LeNet5"
    message.algorithm.loss = 0.0
    message.model.path = '{"ckpt": "a.ckpt"}'
    message.model.size = 2**40
    return message


def dataset_message() -> Any:
    message = message_of("dataset_graph")
    message.parameter.mapStr["op_type"] = "BatchDataset"
    message.parameter.mapInt["batch_size"] = 32
    message.parameter.mapBool["drop_remainder"] = True
    message.parameter.mapDouble["ratio"] = 0.5
    message.parameter.mapStrList["columns"].strValue.extend(["image", "label"])
    operation = message.operations.add()
    operation.operationParam.mapStr["tensor_op_name"] = "Resize"
    operation.size.extend([32, 28])
    operation.weights.extend([0.5])
    message.sampler.operationParam.mapStr["sampler_name"] = "RandomSampler"
    message.children.add().parameter.mapStr["op_type"] = "MnistDataset"
    return message


TRAIN_DICT = {
    "hyper_parameters": {
        "optimizer": "Momentum",
        "learning_rate": 0.125,
        "loss_function": "SoftmaxCrossEntropyWithLogits",
        "epoch": 10,
        "parallel_mode": "stand_alone",
        "device_num": 1,
        "batch_size": 32,
    },
    "train_dataset": {"train_dataset_path": "/data/träin", "train_dataset_size": 60000},
    "algorithm": {"network": "LeNet5", "loss": 0.0},
    "model": {"path": {"ckpt": "a.ckpt"}, "size": 2**40},
}
DATASET_DICT = {
    "batch_size": 32,
    "columns": ["image", "label"],
    "drop_remainder": True,
    "op_type": "BatchDataset",
    "ratio": 0.5,
    "operations": [{"tensor_op_name": "Resize", "size": [32, 28], "weights": [0.5]}],
    "sampler": {"sampler_name": "RandomSampler"},
    "children": [{"op_type": "MnistDataset"}],
}


def test_train_lineage_as_a_dictionary() -> None:
    """Each field that was set is there, 0 too; the model's path is the object that its JSON says."""
    assert lineage.to_dict(Lineage("train_lineage", train_message().SerializeToString())) == TRAIN_DICT


def test_dataset_graph_as_a_dictionary() -> None:
    """Parameters, operations, sampler and children of a pipeline come as nested dictionaries."""
    assert lineage.to_dict(Lineage("dataset_graph", dataset_message().SerializeToString())) == DATASET_DICT


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ('{"accuracy": 0.97, "loss": 0.1}', {"accuracy": 0.97, "loss": 0.1}),
        ("no JSON {", "no JSON {"),
        ("[" * 100_000, "[" * 100_000),
        ("", ""),
    ],
    ids=["object", "text", "too deep", "empty"],
)
def test_eval_lineage_as_a_dictionary(metric: str, expected: object) -> None:
    """A metric is what its JSON says, or its text where it is none."""
    message = message_of("eval_lineage")
    message.metric = metric
    message.valid_dataset.valid_dataset_size = 100
    data = message.SerializeToString()
    assert lineage.to_dict(Lineage("eval_lineage", data)) == {
        "metric": expected,
        "valid_dataset": {"valid_dataset_size": 100},
    }


@pytest.mark.parametrize("kind", LINEAGE_KINDS)
def test_only_what_was_recorded_is_in_the_dictionary(kind: str) -> None:
    """An empty message is an empty dictionary."""
    assert lineage.to_dict(Lineage(kind, b"")) == {}


@pytest.mark.parametrize(
    ("value", "field", "stored"),
    [
        ("text", "map_str", "text"),
        ("", "map_str", ""),
        ("größe", "map_str", "größe"),
        (0, "map_int32", 0),
        (2**31 - 1, "map_int32", 2**31 - 1),
        (-(2**31), "map_int32", -(2**31)),
        (True, "map_int32", 1),
        (2**31, "map_double", 2.0**31),
        (-(2**31) - 1, "map_double", -(2.0**31) - 1),
        (2**53, "map_double", 2.0**53),
        (2**53 + 1, "map_str", "9007199254740993"),
        (2**70, "map_double", 2.0**70),
        (2**70 + 1, "map_str", str(2**70 + 1)),
        (10**400, "map_str", str(10**400)),
        (0.1, "map_double", 0.1),
        (-0.0, "map_double", -0.0),
        (math.inf, "map_double", math.inf),
    ],
)
def test_custom_values(value: str | int | float, field: str, stored: object) -> None:
    """Each value goes where it keeps its exact worth, one key an item, and comes back out of the dictionary."""
    data = lineage.custom_message({"key": value})
    message = protobuf.message_class("UserDefinedInfo").FromString(data)
    (info,) = message.user_info
    assert [(name.name, dict(getattr(info, name.name))) for name, _ in info.ListFields()] == [(field, {"key": stored})]
    result = lineage.to_dict(Lineage("custom_lineage_data", data))["key"]
    assert (result, type(result)) == (stored, type(stored))


def test_custom_values_of_every_kind_together() -> None:
    """Keys keep their order and their types; NaN is a number like any other."""
    values: dict[str, str | int | float] = {"model": "LeNet", "epoch": 3, "rate": 0.1, "": "no key", "seed": 2**40}
    result = lineage.to_dict(Lineage("custom_lineage_data", lineage.custom_message(values)))
    assert result == values
    nan = lineage.to_dict(Lineage("custom_lineage_data", lineage.custom_message({"loss": math.nan})))
    assert math.isnan(nan["loss"])


def test_custom_values_as_others_write_them() -> None:
    """Values that stand in the outer message and nested dictionaries are read, too."""
    message = message_of("custom_lineage_data")
    message.map_str["outer"] = "here"
    message.user_info.add().map_dict["nested"].map_double["x"] = 0.5
    result = lineage.to_dict(Lineage("custom_lineage_data", message.SerializeToString()))
    assert result == {"outer": "here", "nested": {"x": 0.5}}


@pytest.mark.parametrize("kind", LINEAGE_KINDS)
def test_an_event_of_each_kind(kind: str) -> None:
    """The payload is the message class's, and gives the time and the content again."""
    data = {
        "train_lineage": train_message().SerializeToString(),
        "eval_lineage": protobuf.message_class("EvaluationLineage")(metric="{}").SerializeToString(),
        "dataset_graph": dataset_message().SerializeToString(deterministic=True),
        "custom_lineage_data": lineage.custom_message({"a": 1}),
    }[kind]
    payload = b"".join(lineage.encode_event(kind, data, 12.5))
    message = protobuf.message_class("LineageEvent").FromString(payload)
    assert message.WhichOneof("what") == {
        "eval_lineage": "evaluation_lineage",
        "custom_lineage_data": "user_defined_info",
    }.get(kind, kind)
    assert message.SerializeToString(deterministic=True) == payload
    assert lineage.decode_event(memoryview(payload)) == (12.5, Lineage(kind, data))


def test_a_version_event_holds_no_lineage() -> None:
    """An event of a kind that we do not know gives its time alone."""
    payload = protobuf.message_class("LineageEvent")(wall_time=3.5, version="MindSpore.Event:1").SerializeToString()
    assert lineage.decode_event(memoryview(payload)) == (3.5, None)


HOSTILE = {
    "garbage": b"\xff" * 20,
    "truncated": train_message().SerializeToString()[:-1],
    "deep": b"",
    "no UTF-8": wire.delimited(2, b"\xff"),
    "no UTF-8 in a map": wire.delimited(1, wire.delimited(4, wire.delimited(1, b"\xff") + wire.delimited(2, b"a"))),
}
for _ in range(1000):
    HOSTILE["deep"] = wire.delimited(1, HOSTILE["deep"])
HOSTILE_CASES = [
    *((kind, "garbage") for kind in LINEAGE_KINDS),
    ("train_lineage", "truncated"),
    ("dataset_graph", "deep"),
    ("custom_lineage_data", "deep"),
    ("eval_lineage", "no UTF-8"),
    ("custom_lineage_data", "no UTF-8 in a map"),
]


@pytest.mark.parametrize(("kind", "name"), HOSTILE_CASES)
def test_hostile_bytes_are_corrupt(kind: str, name: str) -> None:
    """Bytes that are no such message, nest without end or hold no text where one belongs are told."""
    with pytest.raises(CorruptMessage, match=kind):
        lineage.to_dict(Lineage(kind, HOSTILE[name]))


def test_hostile_bytes_are_corrupt_to_the_fast_protobuf(run_python: Callable[..., str]) -> None:
    """The fast implementation, which workers and readers have, lets more through; it is told as well."""
    code = f"""
from google.protobuf.internal import api_implementation
from instrument.codec import lineage
from instrument.errors import CorruptMessage
from instrument.values import Lineage
assert api_implementation.Type() != "python"
for kind, data in {[(kind, HOSTILE[name]) for kind, name in HOSTILE_CASES]!r}:
    try:
        print(kind, lineage.to_dict(Lineage(kind, data)))
    except CorruptMessage:
        pass
"""
    assert run_python(code, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="upb") == ""


@pytest.mark.parametrize("payload", [b"\x09", wire.integer(1, 1), wire.integer(6, 1), wire.double(10, 1.0)])
def test_hostile_events_are_corrupt(payload: bytes) -> None:
    """Fields of another type are no lineage event."""
    with pytest.raises(CorruptMessage):
        lineage.decode_event(memoryview(payload))


def test_damaged_lineage_raises_nothing_else(rng: np.random.Generator) -> None:
    """Any damage gives a dictionary or a corrupt message."""
    wholes = {
        "train_lineage": train_message().SerializeToString(),
        "dataset_graph": dataset_message().SerializeToString(),
        "custom_lineage_data": lineage.custom_message({"a": 1, "b": "x", "c": 0.5}),
    }
    for kind, whole in wholes.items():
        for _ in range(700):
            data = bytearray(whole[: int(rng.integers(1, len(whole) + 1))])
            for position in rng.integers(0, len(data), 2):
                data[position] = int(rng.integers(256))
            try:
                assert isinstance(lineage.to_dict(Lineage(kind, bytes(data))), dict)
            except CorruptMessage:
                continue
