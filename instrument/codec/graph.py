"""Computational graphs: `GraphProto` of MindSpore's compiler, and the same as TensorBoard's `GraphDef`.

On TensorBoard's page a node is called after its full name, whose parts between slashes are the boxes there; inputs and
parameters are below `Parameter`, constants below `Constant`. Attributes are kept, the shape and type of what a node
gives among them; tensors in them are not.

A graph may have 100,000 nodes: they are decoded one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from instrument.codec import tensorboard as tb
from instrument.codec import wire
from instrument.codec.message import Element, Message, Value
from instrument.codec.schema import MINDSPORE, TENSORBOARD
from instrument.codec.tensor import DTYPE_NUMBERS
from instrument.errors import CorruptMessage
from instrument.values import Graph

_MODEL = MINDSPORE.type("ModelProto", raw=("GraphProto",))
#: A graph of which only names, scopes and inputs of the nodes are read.
_SKELETON = MINDSPORE.type("GraphProto", skip=("AttributeProto", "TypeProto"))
#: A graph without its nodes.
_LEAVES = MINDSPORE.type("GraphProto", skip=("NodeProto", "OutputProto", "TensorProto", "GraphProto"))
_GRAPH = MINDSPORE.type("GraphProto", skip=("TensorProto", "GraphProto"))
_NODE = MINDSPORE.type("NodeProto", skip=("AttributeProto", "TypeProto"))
_GRAPH_DEF = TENSORBOARD.type("GraphDef")
_ATTR_VALUE = TENSORBOARD.type("AttrValue")
#: Names are copied as they are.
_RAW_GRAPH_DEF = TENSORBOARD.type("GraphDef", skip=("AttrValue",), raw=("string",))

#: Nodes of a graph with their inputs, and by how much ours may be larger than what they stand in.
_MOST_NODES, _MOST_ADDED_BYTES = 500_000, 16 << 20
#: Fields of a `ValueProto` with a single value, and those with a list of them: the field of an `AttrValue`.
_SINGLES = {"bool_val": "b", "int_val": "i", "uint_val": "i", "float_val": "f", "double_val": "f", "str_val": "s"}
_LISTS = {f"{name}s": field for name, field in _SINGLES.items()}
#: MindSpore's number of a type -> TensorBoard's.
_TYPES = {number: tb.DTYPE_NUMBERS[name] for name, number in DTYPE_NUMBERS.items() if name in tb.DTYPE_NUMBERS}
_PRODUCER = 22
#: Fields of `GraphProto` and `InputProto`.
_NAME, _INPUT_NAME = 2, 1
_LIST_KEY = wire.key(1, wire.LENGTH_DELIMITED)


@dataclass(frozen=True)
class Node:
    """An operator of a graph: its `scope` names the cells around it, `inputs` the nodes and parameters it reads."""

    name: str
    op_type: str
    scope: str
    inputs: tuple[str, ...]


def from_model(model: bytes) -> Graph:
    """Return the graph inside a serialised `ModelProto`.

    Raises:
        CorruptMessage: the bytes are no such message, or hold no graph.
    """
    fields = _MODEL.decode(model)
    if "graph" not in fields:
        raise CorruptMessage("the model holds no graph")
    graph = Graph(bytes(fields.data("graph")))
    for _ in nodes(graph):
        pass
    return graph


def decode(data: memoryview) -> Graph:
    """Return the graph as it stands; `nodes` looks into it."""
    return Graph(bytes(data))


def nodes(graph: Graph) -> Iterator[Node]:
    """Iterate over the operators of a graph in file order.

    Raises:
        CorruptMessage: the graph's bytes are damaged.
    """
    for node in _SKELETON.each(graph.data, "node"):
        inputs = tuple(source["name"] for source in node.messages("input") if "name" in source)
        yield Node(node.text("name"), node.text("op_type"), node.text("scope"), inputs)


def parameters(graph: Graph) -> list[str]:
    """Return the names of a graph's parameters, inputs of the network included."""
    return [leaf["name"] for leaf in _LEAVES.each(graph.data, "parameters") if "name" in leaf]


def name(graph: Graph) -> str:
    """Return the name of a graph, empty if it has none."""
    data = memoryview(graph.data)
    for span in wire.spans(data, 0, len(data)):  # until the first
        if span[0] == _NAME:
            return wire.text_at(data, *wire.expect(span, wire.LENGTH_DELIMITED))
    return ""


# ---------------------------------------------------------------- GraphDef -> GraphProto


def from_graph_def(data: memoryview) -> Graph:
    """Return TensorBoard's `GraphDef` as MindSpore's message: its nodes with name, type, scope and inputs.

    Raises:
        CorruptMessage: the bytes are no such message, or have too many nodes.
    """
    out = bytearray()
    for count, node in enumerate(_RAW_GRAPH_DEF.each(data, "node")):
        if count == _MOST_NODES:
            raise CorruptMessage(f"a message holds more than {_MOST_NODES} fields")
        name = bytes(node.data("name"))
        content = _NODE.encode(
            input=[wire.delimited(_INPUT_NAME, source) for source in node.buffers("input")],
            name=name,
            op_type=node.data("op"),
            scope=name.rpartition(b"/")[0],
        )
        out += _SKELETON.encode(node=[content])
        if len(out) > len(data) + _MOST_ADDED_BYTES:
            raise CorruptMessage(f"a graph of {len(data)} bytes has too many nodes for its size")
    return Graph(bytes(out))


# ---------------------------------------------------------------- GraphProto -> GraphDef


def to_graph_def(graph: bytes) -> bytes:
    """Return a serialised `GraphProto` as TensorBoard's `GraphDef`.

    Raises:
        CorruptMessage: the bytes are no such message.
    """
    leaves = _LEAVES.decode(graph)
    names = _Names()
    for leaf in leaves.messages("parameters"):
        names.add(leaf.text("name"), f"Parameter/{leaf.text('name')}")
    for leaf in leaves.messages("const_vals"):
        names.add(leaf.text("key"), f"Constant/{leaf.text('key')}")
    for node in _SKELETON.each(graph, "node"):
        names.add(node.text("name"), node.text("full_name") or _below_scope(node))
    out = [
        *(_leaf(names[leaf.text("name")], "Parameter", _type_attributes(leaf.message("type")))
          for leaf in leaves.messages("parameters")),
        *(_leaf(names[leaf.text("key")], "Constant", [(b"value", _attr_value(leaf.message("value")))])
          for leaf in leaves.messages("const_vals")),
        *(_node(names, node) for node in _GRAPH.each(graph, "node")),
    ]  # fmt: skip
    return _GRAPH_DEF.encode(node=out, versions={"producer": _PRODUCER})


class _Names:
    """Names in TensorBoard of what others read: nodes, parameters, constants. Each is there once."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._taken: set[str] = set()

    def add(self, name: str, wanted: str) -> None:
        """Take up a name and what it should be called."""
        wanted = wanted.lstrip("/^") or name or "node"
        unique, number = wanted, 0
        while unique in self._taken:
            number += 1
            unique = f"{wanted}_{number}"
        self._taken.add(unique)
        self._of[name] = unique

    def __getitem__(self, name: str) -> str:
        """Return what a name stands for; a name that is not defined, as that of another graph, stands for itself."""
        return self._of.get(name, name)


def _below_scope(node: Message) -> str:
    """Return a name for a node that has no full one; those of TensorFlow's graphs are below their scope as they are."""
    scope, name = node.text("scope"), node.text("name")
    if name.rpartition("/")[0] == scope:
        return name
    return "/".join(part for part in (scope, node.text("op_type"), name) if part)


#: Names and encoded `AttrValue`s; an empty one is left out.
_Attributes = list[tuple[str | bytes, Element]]
_NODE_DEF = TENSORBOARD.type("NodeDef")


def _leaf(name: str, op: str, attributes: _Attributes) -> bytes:
    return _NODE_DEF.encode(name=_utf8(name), op=op, attr=[pair for pair in attributes if pair[1]])


def _node(names: _Names, node: Message) -> bytes:
    attributes: _Attributes = [
        (_utf8(attribute.text("name")), _attr_value(attribute.message("value")))
        for attribute in node.messages("attribute")
    ]
    attributes += _type_attributes(node.message("output_type"))
    return _NODE_DEF.encode(
        name=_utf8(names[node.text("name")]),
        op=_utf8(node.text("op_type")),
        input=[_utf8(names[source.text("name")]) for source in node.messages("input")],
        attr=[pair for pair in attributes if pair[1]],
    )


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _attr_value(value: Message) -> bytes:
    """Return the `AttrValue` of a `ValueProto`; empty for one of another kind."""
    elements: list[bytes] = []
    is_list = False
    for name, content in value.items():
        if name in _LISTS:
            is_list = True
            elements += [_element(_LISTS[name], element) for element in content]
        elif name == "values":
            is_list = True
            elements += [_attr_value(element) for element in content]
        elif name in _SINGLES:
            elements.append(_element(_SINGLES[name], content))
    if is_list:  # its elements have the fields that a single value has; lists in lists have none
        return _ATTR_VALUE.encode(list=b"".join(part for part in elements if not part.startswith(_LIST_KEY)))
    return elements[-1] if elements else b""


def _element(field: str, value: int | float | str) -> bytes:
    encoded = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return _ATTR_VALUE.encode(**{field: encoded})


def _type_attributes(type_proto: Message) -> _Attributes:
    """Return `_output_shapes`, which stand beside the arrows on the page, and `dtype`."""
    tensors = list(_tensors(type_proto))
    if not tensors:
        return []
    shapes = _ATTR_VALUE.encode(list={"shape": [shape for _, shape in tensors]})
    dtype = _TYPES.get(tensors[0][0])
    return [(b"_output_shapes", shapes), (b"dtype", _ATTR_VALUE.encode(type=dtype) if dtype else b"")]


def _tensors(type_proto: Message) -> Iterator[tuple[int, dict[str, Value]]]:
    """Iterate over element type and `TensorShapeProto` of each tensor in a `TypeProto`."""
    if "tensor_type" in type_proto:
        tensor = type_proto.message("tensor_type")
        dims = tensor.message("shape").messages("dim")
        yield tensor.integer("elem_type"), {"dim": [{"size": dim.integer("size")} for dim in dims]}
    for element in type_proto.message("sequence_type").messages("elem_types"):
        yield from _tensors(element)
