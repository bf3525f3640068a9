"""Computational graphs: MindSpore hands out a serialised `ModelProto`; events hold its `GraphProto`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from instrument.codec import wire
from instrument.errors import CorruptMessage
from instrument.values import Graph

NUMBER = 4

_MODEL_GRAPH = 4
_NODE, _NAME, _PARAMETERS = 1, 2, 3


@dataclass(frozen=True)
class Node:
    """An operator of a graph: its `scope` names the cells around it, `inputs` the nodes and parameters it reads."""

    name: str
    op_type: str
    scope: str
    inputs: tuple[str, ...]


def from_model(model: bytes) -> Graph:
    """The graph inside a serialised `ModelProto`.

    Raises:
        CorruptMessage: the bytes are no such message, or hold no graph.
    """
    for field in wire.fields(memoryview(model)):
        if field[0] == _MODEL_GRAPH and field[1] == wire.LENGTH_DELIMITED:
            graph = Graph(bytes(wire.as_bytes(field)))
            for _ in nodes(graph):
                pass
            return graph
    raise CorruptMessage("the model holds no graph")


def decode(data: memoryview) -> Graph:
    return Graph(bytes(data))


def nodes(graph: Graph) -> Iterator[Node]:
    """The operators of a graph in file order.

    Raises:
        CorruptMessage: the graph's bytes are damaged.
    """
    for field in wire.fields(memoryview(graph.data)):
        if field[0] == _NODE:
            yield _node(wire.as_bytes(field))


def parameters(graph: Graph) -> list[str]:
    """The names of a graph's parameters, inputs of the network included."""
    names = []
    for field in wire.fields(memoryview(graph.data)):
        if field[0] == _PARAMETERS:
            names += [wire.as_text(inner) for inner in wire.fields(wire.as_bytes(field)) if inner[0] == 1]
    return names


def name(graph: Graph) -> str:
    for field in wire.fields(memoryview(graph.data)):
        if field[0] == _NAME:
            return wire.as_text(field)
    return ""


def _node(data: memoryview) -> Node:
    texts = {2: "", 3: "", 4: ""}
    inputs = []
    for field in wire.fields(data):
        if field[0] == 1:
            inputs += [wire.as_text(inner) for inner in wire.fields(wire.as_bytes(field)) if inner[0] == 1]
        elif field[0] in texts:
            texts[field[0]] = wire.as_text(field)
    return Node(texts[2], texts[3], texts[4], tuple(inputs))
