"""Every decoder on changed messages: a value or `CorruptMessage`, and no memory for what is not there."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.codec import (
    event,
    graph,
    histogram,
    image,
    landscape,
    lifecycle,
    lineage,
    outline,
    tensor,
    tensorboard_outline,
    tensorboard_values,
    trace,
    wire,
)
from instrument.errors import CorruptMessage
from instrument.eventfile.blocks import EventFileReader
from instrument.values import (
    ArrayItem,
    Event,
    Gap,
    Landscape,
    Lineage,
    LossSurface,
    MessageItem,
    ScalarItem,
    Tensor,
    Trace,
)
from tests import protobuf

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tensorboard"
_CHANGES = 1500
_MOST_BYTES = 16 << 20


def joined(pieces: wire.Pieces | bytes) -> bytes:
    return pieces if isinstance(pieces, bytes) else b"".join(pieces)


def surface() -> LossSurface:
    path = np.arange(6.0).reshape(3, 2)
    return LossSurface(
        "t", np.arange(3.0), np.arange(2.0), np.arange(6.0).reshape(2, 3) / 7, np.arange(3), path, np.arange(3.0),
        np.arange(3.0), np.arange(3.0), np.array([0.5, 0.25]), np.arange(3.0), {"m": np.ones((2, 3))}, {"unit": "step"},
    )  # fmt: skip


def lineages() -> list[bytes]:
    train = protobuf.message_class("TrainLineage")()
    train.hyper_parameters.optimizer, train.model.path = "Adam", '{"ckpt": "x"}'
    dataset = protobuf.message_class("DatasetGraph")()
    dataset.children.add().parameter.mapStrList["a"].strValue.append("b")
    dataset.operations.add().weights.append(0.5)
    evaluation = protobuf.message_class("EvaluationLineage")(metric='{"accuracy": 0.5}')
    custom = lineage.custom_message({"a": 1, "b": "x", "c": 0.5})
    found = zip(lineage.MESSAGES, [train, evaluation, dataset], strict=False)
    events = [lineage.encode_event(kind, message.SerializeToString(), 1.0) for kind, message in found]
    return [joined(one) for one in [*events, lineage.encode_event("custom_lineage_data", custom, 1.0)]]


def of_lineage(data: memoryview) -> Any:
    found = lineage.decode_event(data)[1]
    return found and lineage.to_dict(found)


def of_graph(data: memoryview) -> Any:
    found = graph.decode(data)
    return list(graph.nodes(found)), graph.parameters(found), graph.name(found)


def of_tensorboard_graph(data: memoryview) -> Any:
    return list(graph.nodes(graph.from_graph_def(data)))


def of_landscape(data: memoryview) -> Any:
    return landscape.to_surface(Landscape(bytes(data)), "t")


def of_image(data: memoryview) -> Any:
    return image.pixels(image.decode(data))


def events() -> list[bytes]:
    array = np.arange(12, dtype=np.float32)
    items = (
        ScalarItem("s", 0.1), ArrayItem("tensor", "t", array.astype(np.int64), "int64"),
        ArrayItem("histogram", "h", array),
        ArrayItem("image", "i", array.reshape(1, 3, 2, 2)), MessageItem("graph", "g", graph_message()),
        MessageItem("landscape", "l", landscape.from_surface(surface())),
        MessageItem("gap", "", lifecycle.encode_gap(Gap(1, 2, 3, "full"))),
        MessageItem("trace", "n", trace.encode(Trace(0, "cpu", 0, "n", 0, 3, b"abc"))),
    )  # fmt: skip
    return [joined(payload) for payload in event.encode(Event.of(300, 5.0, items))]


def graph_message() -> bytes:
    message = protobuf.message_class("GraphProto")(name="g")
    node = message.node.add(name="1", op_type="Add", scope="Default")
    node.input.add(name="x")
    message.parameters.add(name="w")
    return bytes(message.SerializeToString())


def tensorboard_events() -> list[bytes]:
    return [bytes(payload) for path in GOLDEN.rglob("*tfevents*") for payload in EventFileReader(str(path))]


def tensorboard_values_of(kind: str) -> list[bytes]:
    found = []
    for payload in tensorboard_events():
        places = tensorboard_outline.outline(memoryview(payload), tensorboard_outline.Plugins(_PLUGINS)).places
        found += [payload[place.start : place.end] for place in places if place.kind == kind]
    return found


_PLUGINS = {"accuracy": "scalars"}


def of_outline(data: memoryview) -> Any:
    found = outline.mindspore(data)
    return [place.decode(data[place.start : place.end]) for place in found.places if place.decode]


def of_tensorboard_outline(data: memoryview) -> Any:
    found = tensorboard_outline.outline(data, tensorboard_outline.Plugins(_PLUGINS))
    return [place.decode(data[place.start : place.end]) for place in found.places if place.decode]


def arrays() -> list[bytes]:
    made = [Tensor(np.arange(6).reshape(2, 3).astype(name), name) for name in ("float32", "float64", "int64", "bool")]
    return [joined(tensor.encode(one)) for one in made]


def numbers() -> list[bytes]:
    single = [wire.integer(1, number) + wire.delimited(2, b"") for number in (1, 2, 9)]
    fields = [wire.delimited(5, np.float32(1).tobytes()), wire.double(6, 0.1), wire.integer(10, -3)]
    return [head + field for head, field in zip(single, fields, strict=True)]


def buckets() -> list[bytes]:
    rows = np.array([[0, 1, 3], [1, 2, 4]], "<f8")
    shape = b"".join(wire.delimited(2, wire.integer(1, extent)) for extent in rows.shape)
    return [wire.integer(1, 2) + wire.delimited(2, shape) + wire.delimited(4, rows.tobytes())]


def _pictures() -> list[bytes]:
    return [joined(image.encode(image.from_array(np.arange(48, dtype=np.uint8).reshape(1, 3, 4, 4))))]


DECODERS: dict[str, tuple[Callable[[memoryview], Any], Callable[[], list[bytes]]]] = {
    "event": (lambda data: list(outline.records(data)), events),
    "outline": (of_outline, events),
    "tensor": (tensor.decode, arrays),
    "histogram": (histogram.decode, lambda: [joined(histogram.encode(histogram.from_array(np.arange(40.0))))]),
    "image": (of_image, _pictures),
    "graph": (of_graph, lambda: [graph_message()]),
    "landscape": (of_landscape, lambda: [landscape.from_surface(surface())]),
    "gap": (lifecycle.decode_gap, lambda: [lifecycle.encode_gap(Gap(1, 2, 3, "full"))]),
    "trace": (trace.decode, lambda: [trace.encode(Trace(1, "cpu", 2, "name", 3, 9, b"abc"))]),
    "lineage": (of_lineage, lineages),
    "tensorboard outline": (of_tensorboard_outline, tensorboard_events),
    "tensorboard tensor": (tensorboard_values.tensor, lambda: tensorboard_values_of("tensor")),
    "tensorboard number": (tensorboard_values.number, numbers),
    "tensorboard histogram": (tensorboard_values.histogram, lambda: tensorboard_values_of("histogram")),
    "tensorboard buckets": (tensorboard_values.histogram_of_tensor, buckets),
    "tensorboard image": (lambda data: image.pixels(tensorboard_values.image(data)), _pictures),
    "tensorboard picture": (tensorboard_values.image_of_tensor, lambda: tensorboard_values_of("image")),
    "tensorboard text": (tensorboard_values.text, lambda: tensorboard_values_of("text")),
    "tensorboard graph": (of_tensorboard_graph, lambda: [wire.delimited(1, graph_message())]),
    "tensorboard hparams": (lineage.decode_session_start, lambda: tensorboard_values_of("hparams")),
}


def changed(data: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    """A message with some of its bits flipped, cut, repeated, filled with large numbers, or spliced with another."""
    result = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(result) + 1))
        size = int(rng.integers(1, 12))
        way = int(rng.integers(6))
        if way == 0 and result:
            result[at % len(result)] ^= 1 << int(rng.integers(8))
        elif way == 1:
            del result[at : at + size]
        elif way == 2:
            result[at:at] = result[at : at + size]
        elif way == 3:
            result[at:at] = b"\xff" * size + b"\x7f"
        elif way == 4:
            result[at : at + size] = rng.bytes(size)
        else:
            result[at:] = others[int(rng.integers(len(others)))][at:]
    return bytes(result)


@pytest.mark.parametrize("name", DECODERS)
def test_changed_messages_are_decoded_or_refused(name: str, rng: np.random.Generator) -> None:
    """No other error, no warning, and no memory beyond a few megabytes."""
    decode, examples = DECODERS[name]
    good = examples()
    assert good
    refused = 0
    for one in good:
        try:
            decode(memoryview(one))
        except CorruptMessage:
            refused += 1  # of another kind than this decoder's
    assert refused < len(good)
    tracemalloc.start()
    try:
        for number in range(_CHANGES):
            data = changed(good[number % len(good)], good, rng)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    decode(memoryview(data))
                except CorruptMessage:
                    refused += 1
        assert refused
        assert tracemalloc.get_traced_memory()[1] < _MOST_BYTES
    finally:
        tracemalloc.stop()


def test_lineage_kinds_are_decoded() -> None:
    """The examples hold each kind, whole."""
    found = [lineage.decode_event(memoryview(one))[1] for one in lineages()]
    assert [one.what for one in found if isinstance(one, Lineage)] == list(lineage.MESSAGES)
    assert all(of_lineage(memoryview(one)) for one in lineages())
