"""Graphs: what MindSpore hands out, what a file holds, and the nodes and parameters in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from instrument.codec import graph, wire
from instrument.codec.graph import Node
from instrument.errors import CorruptMessage
from instrument.values import Graph
from tests import protobuf


def graph_message() -> Any:
    message = protobuf.message_class("GraphProto")(name="construct_wrapper")
    conv = message.node.add(
        name="1", op_type="Conv2D", scope="Default/conv1-Conv2d", full_name="Default/conv1/Conv2D-op1"
    )
    conv.input.add(name="x")
    conv.input.add(name="conv1.weight", type=1)
    conv.attribute.add(name="pad").value.str_val = "same"
    relu = message.node.add(name="2", op_type="ReLU", scope="Default/relu-ReLU")
    relu.input.add(name="1")
    message.node.add(name="3")
    for name in ("x", "conv1.weight"):
        message.parameters.add(name=name).type.data_type = 3
    message.outputs.add(name="2")
    message.const_vals.add(key="cst1").value.int_val = 5
    return message


NODES = [
    Node("1", "Conv2D", "Default/conv1-Conv2d", ("x", "conv1.weight")),
    Node("2", "ReLU", "Default/relu-ReLU", ("1",)),
    Node("3", "", "", ()),
]


def model_bytes() -> bytes:
    return bytes(protobuf.message_class("ModelProto")(ir_version=1, graph=graph_message()).SerializeToString())


def test_the_graph_of_a_model() -> None:
    """Out of a model comes its graph, byte for byte."""
    assert graph.from_model(model_bytes()) == Graph(graph_message().SerializeToString())


def test_nodes_parameters_and_name() -> None:
    """Operators come in file order with scope and inputs; constants and outputs are none."""
    whole = graph.from_model(model_bytes())
    assert list(graph.nodes(whole)) == NODES
    assert graph.parameters(whole) == ["x", "conv1.weight"]
    assert graph.name(whole) == "construct_wrapper"


def test_an_empty_graph() -> None:
    """A graph without anything has no name and nothing in it."""
    empty = Graph(b"")
    assert (list(graph.nodes(empty)), graph.parameters(empty), graph.name(empty)) == ([], [], "")


@pytest.mark.parametrize(
    "model",
    [
        b"",
        b"\xff" * 10,
        protobuf.message_class("ModelProto")(ir_version=1).SerializeToString(),
        wire.integer(4, 1),
        wire.delimited(4, b"\xff"),
        wire.delimited(4, wire.integer(1, 1)),
        wire.delimited(4, wire.delimited(1, wire.integer(2, 1))),
        wire.delimited(4, wire.delimited(1, wire.delimited(1, b"\xff"))),
    ],
)
def test_a_model_without_a_whole_graph_is_corrupt(model: bytes) -> None:
    """What MindSpore could not have written is not recorded."""
    with pytest.raises(CorruptMessage):
        graph.from_model(model)


def test_a_model_cut_anywhere_is_corrupt() -> None:
    """A model whose end is missing holds no graph."""
    model = model_bytes()
    for size in range(len(model)):
        with pytest.raises(CorruptMessage):
            graph.from_model(model[:size])


def test_damaged_graphs_raise_nothing_else(rng: np.random.Generator) -> None:
    """Any damage gives nodes, parameters and a name, or a corrupt message."""
    whole = graph_message().SerializeToString()
    for _ in range(2000):
        data = bytearray(whole)
        for position in rng.integers(0, len(data), 2):
            data[position] = int(rng.integers(256))
        damaged = Graph(bytes(data))
        for look in (lambda one: list(graph.nodes(one)), graph.parameters, graph.name):
            try:
                look(damaged)
            except CorruptMessage:
                continue
