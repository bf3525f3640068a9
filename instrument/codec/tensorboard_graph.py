"""Graphs of MindSpore's compiler as TensorBoard's `GraphDef`.

A node is called after its full name, whose parts between slashes are the boxes on TensorBoard's page; inputs and
parameters are below `Parameter`, constants below `Constant`. Attributes are kept, the shape and type of what a node
gives among them; tensors in them are not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from instrument.codec import tensorboard as tb
from instrument.codec import wire
from instrument.codec.scalar import to_float32
from instrument.codec.tensor_fields import DTYPE_NUMBERS

# GraphProto, NodeProto, and those that stand in them
_NODE, _PARAMETERS, _CONSTANTS = 1, 3, 5
_INPUT, _NAME, _OP, _SCOPE, _ATTRIBUTE, _OUTPUT_TYPE, _FULL_NAME = 1, 2, 3, 4, 5, 6, 8
_FIRST, _SECOND = 1, 2  # name or key, and type or value
_DATA_TYPE, _TENSOR_TYPE, _SEQUENCE_TYPE = 1, 2, 3
# ValueProto
_BOOL, _INT, _UINT, _FLOAT, _DOUBLE, _TEXT, _VALUES = 2, 3, 4, 5, 6, 7, 18
#: Lists of numbers and texts, and the field of a single one.
_LISTS = {10: _BOOL, 11: _INT, 12: _UINT, 13: _FLOAT, 14: _DOUBLE, 15: _TEXT}
#: MindSpore's number of a type -> TensorBoard's.
_TYPES = {number: tb.DTYPE_NUMBERS[name] for name, number in DTYPE_NUMBERS.items() if name in tb.DTYPE_NUMBERS}
_GRAPH_VERSIONS, _PRODUCER = 4, 1


def encode(graph: bytes) -> bytes:
    """A serialised `GraphDef` of a serialised `GraphProto`; raises `CorruptMessage` for what is none."""
    found: dict[int, list[dict[int, list[wire.Field]]]] = {_NODE: [], _PARAMETERS: [], _CONSTANTS: []}
    for field in wire.fields(memoryview(graph)):
        if field[0] in found:
            found[field[0]].append(_by_number(wire.as_bytes(field)))
    names = _Names()
    for one in found[_PARAMETERS]:
        names.add(_text(one, _FIRST), f"Parameter/{_text(one, _FIRST)}")
    for one in found[_CONSTANTS]:
        names.add(_text(one, _FIRST), f"Constant/{_text(one, _FIRST)}")
    for one in found[_NODE]:
        names.add(_text(one, _NAME), _text(one, _FULL_NAME) or _below_scope(one))
    nodes = [
        *(_leaf(names, one, "Parameter", _type_attributes(one.get(_SECOND))) for one in found[_PARAMETERS]),
        *(_leaf(names, one, "Constant", _value_attribute(one.get(_SECOND))) for one in found[_CONSTANTS]),
        *(_node(names, one) for one in found[_NODE]),
    ]
    versions = wire.delimited(_GRAPH_VERSIONS, wire.integer(_PRODUCER, 22))
    return b"".join([*(wire.delimited(tb.NODE, one) for one in nodes), versions])


class _Names:
    """Names in TensorBoard of what others read: nodes, parameters, constants. Each is there once."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._taken: set[str] = set()

    def add(self, name: str, wanted: str) -> None:
        wanted = wanted.lstrip("/^") or name or "node"
        unique, number = wanted, 0
        while unique in self._taken:
            number += 1
            unique = f"{wanted}_{number}"
        self._taken.add(unique)
        self._of[name] = unique

    def __getitem__(self, name: str) -> str:
        """What a name stands for; what nobody defines, as the name of another graph, is there by itself."""
        return self._of.get(name, name)


def _below_scope(one: dict[int, list[wire.Field]]) -> str:
    """A name for a node that has no full one; those of TensorFlow's graphs are below their scope as they are."""
    scope, name = _text(one, _SCOPE), _text(one, _NAME)
    if name.rpartition("/")[0] == scope:
        return name
    return "/".join(part for part in (scope, _text(one, _OP), name) if part)


def _by_number(data: memoryview) -> dict[int, list[wire.Field]]:
    found: dict[int, list[wire.Field]] = {}
    for field in wire.fields(data):
        found.setdefault(field[0], []).append(field)
    return found


def _text(fields: dict[int, list[wire.Field]], number: int) -> str:
    return wire.as_text(fields[number][-1]) if number in fields else ""


def _string(number: int, text: str) -> bytes:
    return wire.delimited(number, text.encode("utf-8", "backslashreplace"))


def _leaf(names: _Names, one: dict[int, list[wire.Field]], op: str, attributes: bytes) -> bytes:
    return _string(tb.NODE_NAME, names[_text(one, _FIRST)]) + _string(tb.NODE_OP, op) + attributes


def _node(names: _Names, one: dict[int, list[wire.Field]]) -> bytes:
    head = _string(tb.NODE_NAME, names[_text(one, _NAME)]) + _string(tb.NODE_OP, _text(one, _OP))
    inputs = [_text(_by_number(wire.as_bytes(field)), _FIRST) for field in one.get(_INPUT, ())]
    read = b"".join(_string(tb.NODE_INPUT, names[name]) for name in inputs)
    return head + read + b"".join(_attributes(one)) + _type_attributes(one.get(_OUTPUT_TYPE))


def _attributes(one: dict[int, list[wire.Field]]) -> Iterator[bytes]:
    for field in one.get(_ATTRIBUTE, ()):
        attribute = _by_number(wire.as_bytes(field))
        value = attribute.get(_SECOND)
        yield _attribute(_text(attribute, _FIRST), _value(wire.as_bytes(value[-1]))) if value else b""


def _attribute(name: str, value: bytes) -> bytes:
    if not value:
        return b""
    return wire.delimited(tb.NODE_ATTRIBUTE, _string(tb.ENTRY_KEY, name) + wire.delimited(tb.ENTRY_VALUE, value))


def _value_attribute(value: list[wire.Field] | None) -> bytes:
    return _attribute("value", _value(wire.as_bytes(value[-1]))) if value else b""


def _value(data: memoryview) -> bytes:
    """An `AttrValue` of a `ValueProto`; empty for one of another kind."""
    elements: list[bytes] = []
    is_list = False
    for field in wire.fields(data):
        number, wire_type, _ = field
        if number in _LISTS:
            is_list = True
            if wire_type == wire.LENGTH_DELIMITED and number != 15:
                continue  # packed, which MindSpore does not write
            elements.append(_single(_LISTS[number], field))
        elif number == _VALUES:
            is_list = True
            elements.append(_value(wire.as_bytes(field)))
        elif number in (_BOOL, _INT, _UINT, _FLOAT, _DOUBLE, _TEXT):
            elements.append(_single(number, field))
    if is_list:
        flat = [one for one in elements if one and one[0] >> 3 != tb.ATTR_LIST]
        return wire.delimited(tb.ATTR_LIST, b"".join(flat))
    return elements[-1] if elements else b""


def _single(number: int, field: wire.Field) -> bytes:
    """The field of an `AttrValue`, which its `ListValue` has under the same numbers."""
    if number == _TEXT:
        return wire.delimited(tb.ATTR_STRING, wire.as_bytes(field))
    if number == _BOOL:
        return wire.integer(tb.ATTR_BOOL, wire.as_int(field))
    if number in (_INT, _UINT):
        return wire.integer(tb.ATTR_INT, wire.as_int(field))
    exact = wire.as_float(field) if number == _FLOAT else wire.as_double(field)
    return wire.key(tb.ATTR_FLOAT, wire.FIXED32) + struct.pack("<f", to_float32(exact))


def _type_attributes(value: list[wire.Field] | None) -> bytes:
    """`_output_shapes`, which stand beside the arrows on the page, and `dtype`."""
    if not value:
        return b""
    shapes = list(_tensors(wire.as_bytes(value[-1])))
    if not shapes:
        return b""
    listed = b"".join(wire.delimited(tb.ATTR_SHAPE, shape) for _, shape in shapes)
    attributes = _attribute("_output_shapes", wire.delimited(tb.ATTR_LIST, listed))
    dtype = _TYPES.get(shapes[0][0])
    return attributes + (_attribute("dtype", wire.integer(tb.ATTR_TYPE, dtype)) if dtype else b"")


def _tensors(data: memoryview) -> Iterator[tuple[int, bytes]]:
    """Element type and `TensorShapeProto` of each tensor in a `TypeProto`."""
    for field in wire.fields(data):
        if field[0] == _TENSOR_TYPE:
            inner = _by_number(wire.as_bytes(field))
            dtype = wire.as_int(inner[_FIRST][-1]) if _FIRST in inner else 0
            yield dtype, _shape(wire.as_bytes(inner[_SECOND][-1])) if _SECOND in inner else b""
        elif field[0] == _SEQUENCE_TYPE:
            for element in wire.fields(wire.as_bytes(field)):
                if element[0] == 1:
                    yield from _tensors(wire.as_bytes(element))


def _shape(data: memoryview) -> bytes:
    sizes: list[int] = []
    for field in wire.fields(data):
        if field[0] == 1:
            inner = _by_number(wire.as_bytes(field))
            sizes.append(wire.as_int(inner[1][-1]) if 1 in inner else 0)
    return b"".join(wire.delimited(tb.DIM, wire.integer(tb.DIM_SIZE, size)) for size in sizes)
