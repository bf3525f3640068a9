"""TensorBoard's dialect, byte for byte what its own message classes write, and the values that come back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.codec import event as mindspore
from instrument.codec import graph, lineage, tensorboard_event, tensorboard_values, wire
from instrument.codec import outline as outline_codec
from instrument.codec import tensorboard as tb
from instrument.codec.tensorboard_outline import Plugins, outline
from instrument.values import ArrayItem, Event, Histogram, Image, Item, Lineage, MessageItem, Tensor, Text, ValueItem
from tests import protobuf

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tensorboard" / "dialect.json").read_text(encoding="utf-8"))


def whole(payloads: list[wire.Pieces]) -> bytes:
    (payload,) = payloads
    return b"".join(payload)


def texts(*elements: str) -> Text:
    array = np.empty(len(elements), object)
    array[:] = elements
    return Text(array)


def back(payload: bytes, plugins: dict[str, str] | None = None) -> list[tuple[str, str, Any]]:
    """Kind, tag and value of all that a payload holds."""
    data = memoryview(payload)
    found = outline(data, Plugins(plugins or {}))
    assert found.problems == []
    return [
        (place.kind, place.tag, place.decode(data[place.start : place.end]) if place.decode else _number(data, place))
        for place in found.places
    ]


def _number(data: memoryview, place: Any) -> float:
    return float(np.frombuffer(data[place.start : place.end], f"<f{place.end - place.start}")[0])


def test_a_version() -> None:
    """The first event names the version and us."""
    assert b"".join(tensorboard_event.encode_version(1.5)).hex() == GOLDEN["version"]


def test_scalars() -> None:
    """Numbers that a float32 holds are what TensorBoard writes; an event has all of a step."""
    event = Event(3, 1.5, (), {"loss": 0.25, "zero": 0.0})
    assert whole(tensorboard_event.encode_scalars(event)).hex() == GOLDEN["scalars"]


@pytest.mark.parametrize(
    ("name", "item"),
    [
        ("tensor", ArrayItem("tensor", "t", np.arange(6.0).reshape(2, 3), "float64")),
        ("image", ValueItem("image", "p", Image(b"PNG", 2, 3, 1))),
        ("text", ValueItem("text", "words", texts("a", "é"))),
        ("end", MessageItem("session_end", "", lineage.encode_session_end(True, 1.5))),
    ],
)
def test_other_kinds(name: str, item: Item) -> None:
    """Tensors, pictures, texts and the end of a session."""
    assert whole(tensorboard_event.encode_others(Event(3, 1.5, [item]))).hex() == GOLDEN[name]


def test_hyperparameters() -> None:
    """The start of a session with its hyper-parameters."""
    value = tensorboard_values.encode_hparams(tb.HPARAMS_START, lineage.encode_session_start({"lr": 0.5}, 1.5))
    payload = wire.double(1, 1.5) + wire.integer(2, 3) + b"".join(wire.delimited_pieces(tb.SUMMARY, value))
    assert payload.hex() == GOLDEN["start"]


def test_a_double_comes_back_exactly() -> None:
    """What a float32 cannot hold stands beside it."""
    payload = whole(
        tensorboard_event.encode_scalars(Event(0, 1.5, (), {"a": 0.1, "b": math.inf, "c": 0.5, "d": 1e300}))
    )
    assert back(payload) == [
        ("scalar", "a", 0.1),
        ("scalar", "b", math.inf),
        ("scalar", "c", 0.5),
        ("scalar", "d", 1e300),
    ]


def test_a_histogram_comes_back_exactly(rng: np.random.Generator) -> None:
    """Buckets, counts, and all that TensorBoard's histograms lack: of a random array with NaN and infinities."""
    array = rng.normal(size=1000).astype(np.float32)
    array[:6] = [math.nan, math.nan, math.inf, -math.inf, -math.inf, -math.inf]
    item = mindspore.finish(ArrayItem("histogram", "h", array))
    expected = item.value
    ((kind, tag, found),) = back(whole(tensorboard_event.encode_others(Event(1, 1.0, [item]))))
    assert (kind, tag) == ("histogram", "h")
    for name in ("left", "width", "counts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for name in ("count", "min", "max", "sum", "nan_count", "positive_infinity_count", "negative_infinity_count"):
        assert getattr(found, name) == getattr(expected, name), name


def test_a_histogram_of_nothing() -> None:
    """No finite value: no buckets, and the count of what there was."""
    payload = whole(tensorboard_event.encode_others(Event(1, 1.0, [ArrayItem("histogram", "h", np.full(3, math.nan))])))
    ((_, _, found),) = back(payload)
    assert isinstance(found, Histogram)
    assert (found.counts.size, found.count, found.nan_count) == (0, 3, 3)
    assert math.isnan(found.min)


@pytest.mark.parametrize("dtype", [*tb.DTYPE_NUMBERS])
def test_tensors_of_any_type(dtype: str) -> None:
    """Each type comes back with its values; bfloat16, which TensorBoard cannot read, as float32."""
    stored = "float32" if dtype == "bfloat16" else dtype
    array = np.array([[1, 0, 2], [3, 4, 5]]).astype(stored)
    for shaped in (array, array[0, 0].reshape(()), array[:0]):
        payload = whole(tensorboard_event.encode_others(Event(1, 1.0, [ArrayItem("tensor", "t", shaped, dtype)])))
        ((kind, _, found),) = back(payload)
        assert isinstance(found, Tensor)
        assert (kind, found.dtype, found.array.shape) == ("tensor", stored, shaped.shape)
        np.testing.assert_array_equal(found.array, shaped)


def test_a_picture_keeps_its_rule() -> None:
    """The words that say how numbers became grey levels are there, for those who look."""
    item = ArrayItem("image", "p", np.linspace(0, 5, 48).reshape(1, 3, 4, 4))
    expected = mindspore.finish(item).value
    ((_, _, found),) = back(whole(tensorboard_event.encode_others(Event(1, 1.0, [item]))))
    assert found == expected
    assert found.mapping == "linear, 0 to 0 and 5 to 255"


def test_aliases_are_the_names() -> None:
    """A kind that was given another name has it, in either file."""
    aliases = {("scalar", "x"): "x/scalar", ("tensor", "y"): "y/tensor"}
    event = Event(1, 1.0, [ArrayItem("tensor", "y", np.ones(2), "float64")], {"x": 1.0, "y": 2.0})
    assert [(kind, tag) for kind, tag, _ in back(whole(tensorboard_event.encode_scalars(event, aliases)))] == [
        ("scalar", "x/scalar"),
        ("scalar", "y"),
    ]
    assert [tag for _, tag, _ in back(whole(tensorboard_event.encode_others(event, aliases)))] == ["y/tensor"]


def train_lineage() -> Lineage:
    message = protobuf.message_class("TrainLineage")()
    message.hyper_parameters.optimizer = "Adam"
    message.hyper_parameters.learning_rate = 0.1
    message.hyper_parameters.epoch = 3
    message.train_dataset.train_dataset_size = 64
    message.algorithm.network = "LeNet"
    message.algorithm.loss = 0.5
    return Lineage("train_lineage", message.SerializeToString())


def test_lineage_is_hyperparameters_metrics_and_texts() -> None:
    """Of train, evaluation and custom lineage in one event; a name that is taken says whose it is."""
    evaluation = protobuf.message_class("EvaluationLineage")(
        metric='{"accuracy": 0.75, "matrix": [[1, 2]], "top": {"5": 1}}'
    )
    custom = lineage.custom_message({"note": "toy", "epoch": 9, "rate": math.inf})
    items = [
        MessageItem("train_lineage", "", train_lineage().data),
        MessageItem("eval_lineage", "", evaluation.SerializeToString()),
        MessageItem("custom_lineage_data", "", custom),
    ]
    event = Event(7, 2.0, items)
    scalars = {tag: value for _, tag, value in back(whole(tensorboard_event.encode_scalars(event)))}
    assert scalars == {"lineage/train/loss": 0.5, "lineage/eval/accuracy": 0.75, "lineage/eval/top.5": 1.0}
    others = back(whole(tensorboard_event.encode_others(event)))
    assert [value for kind, _, value in others if kind == "hparams"] == [
        {
            "optimizer": "Adam",
            "learning_rate": 0.1,
            "epoch": 3.0,
            "train_dataset_size": 64.0,
            "network": "LeNet",
            "note": "toy",
            "custom.epoch": 9.0,
            "rate": "inf",
        }
    ]
    shown = {tag: value.text for kind, tag, value in others if kind == "text"}
    assert sorted(shown) == ["lineage/custom", "lineage/eval", "lineage/train"]
    assert (
        json.loads(shown["lineage/eval"].removeprefix("```json\n").removesuffix("\n```"))["metric"]["accuracy"] == 0.75
    )


def test_a_graph_has_its_nodes_and_their_inputs() -> None:
    """Full names become the nodes' names, each once; parameters and constants are nodes; shapes stand at the arrows."""
    proto = protobuf.message_class("GraphProto")(name="net")
    for number in ("1", "2"):
        node = proto.node.add(name=number, op_type="Add", scope="Default/net", full_name="Default/net/Add-op0")
        node.output_type.tensor_type.elem_type = 11
        node.output_type.tensor_type.shape.dim.add(size=4)
    proto.node[0].input.add(name="w")
    proto.node[0].input.add(name="c1")
    proto.node[1].input.add(name="1")
    attribute = proto.node[1].attribute.add(name="axis")
    attribute.value.int_val = 2
    proto.parameters.add(name="w")
    constant = proto.const_vals.add(key="c1")
    constant.value.str_val = "U"
    nodes = {}
    for field in wire.fields(memoryview(graph.to_graph_def(proto.SerializeToString()))):
        if field[0] == 1:
            parts = list(wire.fields(wire.as_bytes(field)))
            inputs = [wire.as_text(part) for part in parts if part[0] == 3]
            attributes = [bytes(wire.as_bytes(part)) for part in parts if part[0] == 5]
            nodes[next(wire.as_text(part) for part in parts if part[0] == 1)] = (inputs, attributes)
    assert {name: inputs for name, (inputs, _) in nodes.items()} == {
        "Parameter/w": [],
        "Constant/c1": [],
        "Default/net/Add-op0": ["Parameter/w", "Constant/c1"],
        "Default/net/Add-op0_1": ["Default/net/Add-op0"],
    }
    assert nodes["Default/net/Add-op0_1"][1] == [
        wire.delimited(1, b"axis") + wire.delimited(2, wire.integer(3, 2)),
        wire.delimited(1, b"_output_shapes")
        + wire.delimited(2, wire.delimited(1, wire.delimited(7, b"\x12\x02\x08\x04"))),
        wire.delimited(1, b"dtype") + wire.delimited(2, wire.integer(6, tb.DT_FLOAT)),
    ]


def test_texts_in_our_own_files() -> None:
    """An imported text comes back from a file of MindSpore's dialect."""
    (payload,) = mindspore.encode(Event(1, 1.0, [ValueItem("text", "note", texts("a\nb", "é"))]))
    (record,) = outline_codec.records(memoryview(b"".join(payload)))
    assert (record.kind, record.tag, record.value.array.tolist()) == ("text", "note", ["a\nb", "é"])  # type: ignore[union-attr]
