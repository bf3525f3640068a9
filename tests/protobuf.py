"""Protobuf's own message classes, made of the table of MindSpore's messages: what encodes and decodes beside our codec.

They live in a pool of their own: MindSpore registers the same names in protobuf's default pool, where a second
definition is a conflict. Protobuf is imported inside functions, since MindSpore 2.7 to 2.9 die when it comes first.
"""

from __future__ import annotations

import functools
from typing import Any

from instrument.codec.message import FieldRow, parse_table
from instrument.codec.schema import MINDSPORE_TABLE

PACKAGE = "mindspore.irpb"


def message_class(name: str) -> Any:
    """Return protobuf's class of a message of MindSpore's, e.g. `"LineageEvent"` or `"Summary.Value"`."""
    return _classes()[name]


@functools.cache
def _classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="instrument/mindspore.proto", package=PACKAGE, syntax="proto2")
    messages: dict[str, Any] = {}
    for name, rows in parse_table(MINDSPORE_TABLE).items():
        outer, _, inner = name.rpartition(".")
        siblings = messages[outer].nested_type if outer else file.message_type
        messages[name] = siblings.add(name=inner)
        for row in rows:
            if row.label == "map":
                _add_map(messages[name], name, row)
            else:
                _add_field(messages[name], row)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    if hasattr(message_factory, "GetMessageClass"):
        make = message_factory.GetMessageClass
    else:  # protobuf 3.20
        make = message_factory.MessageFactory(pool).GetPrototype
    return {name: make(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in messages}


def _add_field(message: Any, row: FieldRow) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    label, _, oneof = row.label.partition(":")
    field = message.field.add(name=row.name, number=row.number)
    field.label = Field.Label.Value("LABEL_" + {"oneof": "OPTIONAL", "packed": "REPEATED"}.get(label, label.upper()))
    scalar_type = "TYPE_" + row.type.upper()
    if scalar_type in Field.Type.keys() and row.type.islower():
        field.type = Field.Type.Value(scalar_type)
    else:
        field.type = Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{row.type}"
    if label == "packed":
        field.options.packed = True
    if oneof:
        if not message.oneof_decl:
            message.oneof_decl.add(name=oneof)
        field.oneof_index = 0


def _add_map(message: Any, outer: str, row: FieldRow) -> None:
    entry_name = "".join(word[0].upper() + word[1:] for word in row.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    _add_field(entry, FieldRow("optional", "string", "key", 1))
    _add_field(entry, FieldRow("optional", row.type, "value", 2))
    _add_field(message, FieldRow("repeated", f"{outer}.{entry_name}", row.name, row.number))
