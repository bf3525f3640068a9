"""The schema: MindSpore's own descriptors, field by field, on every implementation of protobuf."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable

import pytest

from instrument.codec import schema
from tests import protobuf

MESSAGES = [line.split()[1] for line in schema.MINDSPORE_TABLE.splitlines() if line.startswith("message")]

#: Prints each message's fields as [name, number, label, type, type's name, oneof, packed]; %s names the file.
DESCRIBE = """
def describe(descriptor):
    from google.protobuf import descriptor_pb2
    proto = descriptor_pb2.DescriptorProto()
    descriptor.CopyToProto(proto)
    entries = {one.name: [[f.name, f.number, f.type, f.type_name] for f in one.field]
               for one in proto.nested_type if one.options.map_entry}
    fields = {}
    for field in proto.field:
        oneof = proto.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        type_, type_name = field.type, field.type_name
        if type_ == 14:  # an enumeration is an int32 on the wire
            type_, type_name = 5, ""
        fields[field.name] = [field.number, field.label, type_, type_name, oneof, field.options.packed]
    return {"fields": fields, "entries": entries}
"""

OURS = (
    DESCRIBE
    + """
import json
from instrument.codec import schema
from tests import protobuf
from tests import protobuf
names = [line.split()[1] for line in schema.MINDSPORE_TABLE.splitlines() if line.startswith("message")]
print(json.dumps({name: describe(protobuf.message_class(name).DESCRIPTOR) for name in names}))
"""
)

THEIRS = (
    DESCRIBE
    + """
import json, sys
import mindspore
from mindspore.train import anf_ir_pb2, lineage_pb2, summary_pb2
result = {}
def visit(descriptor):
    result[descriptor.full_name.removeprefix("mindspore.irpb.")] = describe(descriptor)
    for nested in descriptor.nested_types:
        visit(nested)
for module in (anf_ir_pb2, summary_pb2, lineage_pb2):
    for descriptor in module.DESCRIPTOR.message_types_by_name.values():
        visit(descriptor)
print("MESSAGES " + json.dumps(result))
"""
)


def described(output: str) -> dict[str, dict[str, dict[str, list[object]]]]:
    result: dict[str, dict[str, dict[str, list[object]]]] = json.loads(output.split("MESSAGES ")[-1])
    return result


@pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="MindSpore is not installed")
def test_each_field_is_mindspores(run_python: Callable[..., str]) -> None:
    """Every message and field of ours has the name, number, label, type, oneof and packing of MindSpore's own."""
    theirs = described(run_python(THEIRS))
    # The pure-Python implementation cannot hand out descriptors that were made from a table.
    ours = described(run_python(OURS, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="upb"))
    assert ours.keys() <= theirs.keys()
    for name, message in ours.items():
        assert message["fields"].items() <= theirs[name]["fields"].items(), name
        assert message["entries"] == theirs[name]["entries"], name


@pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="MindSpore is not installed")
def test_it_lives_beside_mindspores_own(run_python: Callable[..., str]) -> None:
    """In a process that holds MindSpore's classes ours are made too, and read what those write."""
    code = """
import mindspore
from mindspore.train import summary_pb2
from tests import protobuf
theirs = summary_pb2.Event(wall_time=1.5, step=3)
theirs.summary.value.add(tag="loss", scalar_value=0.5)
ours = protobuf.message_class("Event").FromString(theirs.SerializeToString())
assert type(ours) is not type(theirs)
print(ours.step, ours.summary.value[0].tag, ours.SerializeToString() == theirs.SerializeToString())
"""
    assert run_python(code).splitlines()[-1] == "3 loss True"


@pytest.mark.parametrize("implementation", ["python", "upb"])
def test_each_implementation_of_protobuf(run_python: Callable[..., str], implementation: str) -> None:
    """The classes are made by the fast and by the pure-Python protobuf, and write the same bytes."""
    code = """
from google.protobuf.internal import api_implementation
from instrument.codec.lineage import custom_message
from tests import protobuf
event = protobuf.message_class("Event")(wall_time=1.5, step=0)
value = event.summary.value.add(tag="t")
value.tensor.dims.extend([2, 1])
value.tensor.float_data.extend([0.5, 1.5])
print(api_implementation.Type())
print(event.SerializeToString(deterministic=True).hex())
print(custom_message({"b": 1, "a": "x", "c": 0.5, "d": -1}).hex())
"""
    kind, event, custom = run_python(
        code, "-W", "error", PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation
    ).splitlines()
    assert (kind == "python") == (implementation == "python")
    assert event == "09000000000000f83f10002a150a130a0174420e080208011a080000003f0000c03f"
    assert custom == (
        "0a071a050a01621001"
        + "0a0822060a0161120178"
        + "0a0e2a0c0a016311000000000000e03f"
        + "0a101a0e0a016410ffffffffffffffffff01"
    )


def test_a_class_is_made_once() -> None:
    """The same name is the same class."""
    assert protobuf.message_class("Event") is protobuf.message_class("Event")


@pytest.mark.parametrize("name", MESSAGES)
def test_each_message_can_be_made(name: str) -> None:
    """Each message of the table is known by its name, and an empty one is no bytes."""
    message_class = protobuf.message_class(name)
    assert message_class.DESCRIPTOR.full_name == f"mindspore.irpb.{name}"
    assert message_class().SerializePartialToString() == b""


def test_an_unknown_message_is_an_error() -> None:
    """A name that the table lacks is not made up."""
    with pytest.raises(KeyError, match="Nothing"):
        protobuf.message_class("Nothing")
