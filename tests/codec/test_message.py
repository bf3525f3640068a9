"""The table codec: what it writes protobuf's own classes read, and the other way round; damage is refused."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from instrument.codec import schema, wire
from instrument.codec.message import Message, Value, parse_table
from instrument.codec.schema import MINDSPORE, TENSORBOARD
from instrument.errors import CorruptMessage
from tests import protobuf

MESSAGES = sorted(parse_table(schema.MINDSPORE_TABLE))
_INTEGERS = {"int32": 2**31, "int64": 2**63}


def number(kind: str, rng: np.random.Generator) -> Any:
    if kind in _INTEGERS:
        limit = _INTEGERS[kind]
        return int(rng.choice([0, 1, -1, 127, 128, limit - 1, -limit]))
    if kind == "uint64":
        return [0, 1, 300, 2**64 - 1][rng.integers(4)]
    if kind == "bool":
        return bool(rng.integers(2))
    return [0.0, -0.0, 0.5, math.inf, 2.0**100][rng.integers(5)]


def simple(kind: str, rng: np.random.Generator) -> Any:
    if kind == "string":
        return ["", "a", "größe", "准确率 😀", "x" * 200][rng.integers(5)]
    return rng.bytes(int(rng.integers(0, 200))) if kind == "bytes" else number(kind, rng)


def filled(name: str, rng: np.random.Generator, depth: int = 0) -> dict[str, Value]:
    """Random fields of a message by the table, in the order of their numbers, as protobuf writes them."""
    values: dict[str, Value] = {}
    oneof = False
    for row in sorted(parse_table(schema.MINDSPORE_TABLE)[name], key=lambda row: row.number):
        is_message = row.type in MINDSPORE.table
        if row.label != "required" and (rng.random() < 0.4 or (is_message and depth > 3)):
            continue
        if row.label.startswith("oneof"):
            if oneof:
                continue
            oneof = True
        make = filled if is_message else simple
        arguments: tuple[Any, ...] = (row.type, rng, depth + 1) if is_message else (row.type, rng)
        if row.label == "map":
            values[row.name] = {simple("string", rng): make(*arguments)}
        elif row.label in ("repeated", "packed"):
            values[row.name] = [make(*arguments) for _ in range(int(rng.integers(1, 4)))]
        else:
            values[row.name] = make(*arguments)
    return values


def plain(value: Any) -> Any:
    """A decoded message as what it was made of."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", MESSAGES)
def test_protobuf_writes_and_reads_the_same(name: str, rng: np.random.Generator) -> None:
    """Random messages of each kind: what the table makes of them, protobuf makes of its bytes, and so it comes back."""
    message_type, message_class = MINDSPORE.type(name), protobuf.message_class(name)
    for _ in range(8):
        values = filled(name, rng)
        data = message_type.encode(**values)
        message = message_class.FromString(data)
        assert message.SerializeToString(deterministic=True) == data
        assert plain(message_type.decode(data)) == values
        assert plain(message_type.decode(memoryview(data))) == values


@pytest.mark.parametrize("name", ["DatasetGraph", "EvaluationLineage", "TrainLineage", "UserDefinedInfo"])
def test_messages_one_after_the_other_are_merged(name: str, rng: np.random.Generator) -> None:
    """Encoded messages that are appended to each other are what protobuf merges them into, at every depth."""
    message_type, message_class = MINDSPORE.type(name), protobuf.message_class(name)
    for _ in range(8):
        data = b"".join(message_type.encode(**filled(name, rng)) for _ in range(3))
        merged = message_class.FromString(data).SerializeToString()
        assert plain(message_type.decode(data)) == plain(message_type.decode(merged))


def test_pieces_are_not_copied() -> None:
    """A large buffer is in the pieces as it was given, encoded messages and lists of pieces too."""
    data = memoryview(bytes(1000))
    pieces = MINDSPORE.type("Summary.Image").pieces({"height": 1, "encoded_image": data})
    assert any(piece is data for piece in pieces)
    value = MINDSPORE.type("Summary.Value")
    content = b"".join(pieces)
    assert b"".join(value.pieces({"tag": "t", "image": pieces})) == value.encode(tag="t", image=content)


def test_absent_fields_are_the_default() -> None:
    """Each accessor has protobuf's default, and None leaves a field out."""
    image = MINDSPORE.type("Summary.Image")
    assert image.encode(height=None, width=0) == b"\x10\x00"
    empty = image.decode(b"")
    assert (empty.integer("height"), empty.text("mapping"), bytes(empty.data("encoded_image"))) == (0, "", b"")
    assert (empty.number("x"), empty.number("x", 1.5), empty.message("x"), empty.entries("x")) == (0.0, 1.5, {}, {})
    assert (empty.texts("x"), empty.integers("x"), empty.numbers("x")) == ([], [], [])
    assert (empty.messages("x"), empty.buffers("x")) == ([], [])


def test_packed_and_single_numbers_are_the_same() -> None:
    """A repeated field of numbers is read in either form, as protobuf asks of every reader."""
    operation = MINDSPORE.type("Operation")
    packed = wire.delimited(2, b"\x01\xac\x02") + wire.delimited(3, np.array([0.5], "<f4").tobytes())
    assert operation.decode(packed) == {"size": [1, 300], "weights": [0.5]}
    assert operation.decode(operation.encode(size=[1, 300], weights=[0.5])) == {"size": [1, 300], "weights": [0.5]}


def test_types_are_skipped_or_raw() -> None:
    """A skipped type is not looked into, whatever stands there; a raw one comes as its bytes."""
    node = wire.delimited(2, b"n") + wire.delimited(5, b"\xff") + wire.delimited(1, b"\x0a\x01x")
    skipping = MINDSPORE.type("NodeProto", skip=("AttributeProto",))
    assert skipping.decode(node) == {"name": "n", "input": [{"name": "x"}]}
    raw = MINDSPORE.type("NodeProto", skip=("AttributeProto",), raw=("InputProto",))
    assert plain(raw.decode(node)) == {"name": "n", "input": [b"\x0a\x01x"]}
    with pytest.raises(CorruptMessage):
        MINDSPORE.type("NodeProto").decode(node)


def test_one_message_at_a_time() -> None:
    """`each` finds the messages of a field among the others."""
    graph = MINDSPORE.type("GraphProto")
    data = graph.encode(node=[{"name": "a"}], name="g", parameters=[{"name": "w"}]) + graph.encode(node=[{"name": "b"}])
    assert [node.text("name") for node in graph.each(data, "node")] == ["a", "b"]


def test_a_map_entry_without_a_key_or_value() -> None:
    """It has the defaults, as protobuf has them."""
    info = MINDSPORE.type("UserDefinedInfo")
    assert info.decode(wire.delimited(3, b"")) == {"map_int32": {"": 0}}
    assert info.decode(wire.delimited(2, wire.delimited(1, b"k"))) == {"map_dict": {"k": {}}}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00", "number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x08", "ends within a field"),
        (b"\x12\x05ab", "reaches 3 bytes too far"),
        (b"\x10" + b"\xff" * 11, "does not end"),
        (b"\x12\x01a", "field 2 of a Gap message has wire type 2"),
        (b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "too far"),
    ],
)
def test_damage_is_refused(data: bytes, reason: str) -> None:
    """Lengths past the end, groups, field 0, and fields of another wire type than the table says."""
    with pytest.raises(CorruptMessage, match=reason):
        MINDSPORE.type("Gap").decode(data)


def test_fields_of_a_message_end_with_it() -> None:
    """A number or length inside a message does not reach into what stands behind it."""
    summary = TENSORBOARD.type("Summary")
    for inner in (b"\x0a", b"\x0a\x02", b"\x0a\x80"):
        with pytest.raises(CorruptMessage):
            summary.decode(wire.delimited(1, inner) + wire.delimited(1, b"\x0a\x01t"))


def test_a_message_cut_anywhere_is_refused_or_a_prefix(rng: np.random.Generator) -> None:
    """Nothing but fewer fields, or `CorruptMessage`."""
    message_type = MINDSPORE.type("TrainLineage")
    data = message_type.encode(**filled("TrainLineage", rng))
    for size in range(len(data)):
        try:
            message = message_type.decode(data[:size])
        except CorruptMessage:
            continue
        assert isinstance(message, Message)


def test_a_text_that_is_none() -> None:
    """Bytes that are not UTF-8 come as surrogates, or are refused where that is asked for."""
    data = wire.delimited(2, b"\xff")
    assert MINDSPORE.type("EvaluationLineage").decode(data) == {"metric": "\udcff"}
    with pytest.raises(CorruptMessage, match="not UTF-8"):
        MINDSPORE.type("EvaluationLineage", errors="strict").decode(data)


def test_depth_is_limited() -> None:
    """Messages in messages in messages are refused before Python's stack ends, however they are nested."""
    for name, number in (("DatasetGraph", 1), ("UserDefinedInfo", 1)):
        data = b""
        for _ in range(5000):
            data = wire.delimited(number, data)
        with pytest.raises(CorruptMessage, match="stand in each other"):
            MINDSPORE.type(name).decode(data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("UserDefinedInfo", b"\x0a\x00" * 2_000_000),
        ("UserDefinedInfo", b"\x1a\x00" * 2_000_000),
        ("Text", b"\x0a\x00" * 2_000_000),
        ("Operation", b"\x10\x01" * 2_000_000),
        ("Operation", wire.delimited(2, b"\x01" * 4_000_000)),
        ("TrainLineage", b"\x0a\x00" * 2_000_000),
    ],
    ids=["messages", "entries", "texts", "numbers", "packed", "one again and again"],
)
def test_memory_is_limited(name: str, data: bytes) -> None:
    """Few bytes a field, of which millions stand in a file, are refused before they are objects."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMessage, match="in memory"):
            MINDSPORE.type(name).decode(data)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
