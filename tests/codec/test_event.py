"""Whole events: our bytes are those of MindSpore's message classes, and our reader gets back what was recorded."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from instrument.codec import event, graph, histogram, image, outline, scalar, tensor, wire
from instrument.errors import CorruptMessage
from instrument.values import (
    AnyItem,
    ArrayItem,
    Event,
    Histogram,
    Image,
    Landscape,
    MessageItem,
    Record,
    Scalar,
    ScalarItem,
    Tensor,
)
from tests import protobuf

STEP, TIME = 7, 1_700_000_000.123456


def payloads(*items: AnyItem, step: int = STEP) -> list[bytes]:
    return [b"".join(pieces) for pieces in event.encode(Event.of(step, TIME, items))]


def records(payload: bytes) -> list[Record]:
    return list(outline.records(memoryview(payload)))


def scalar_item(tag: str, value: float) -> ScalarItem:
    return ScalarItem(tag, value)


def array_item(kind: str, tag: str, array: NDArray[Any]) -> ArrayItem:
    return ArrayItem(kind, tag, array, array.dtype.name)


def landscape_bytes() -> bytes:
    message = protobuf.message_class("LossLandscape")()
    message.landscape.x.float_data.extend([1.0, 2.0])
    message.metadata.step_per_epoch = 3
    return bytes(message.SerializeToString())


def graph_bytes(name: str) -> bytes:
    message = protobuf.message_class("GraphProto")(name=name)
    message.node.add(name="1", op_type="Add")
    return bytes(message.SerializeToString())


WEIGHTS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
EXACT = np.array([2**31 - 1, 5], np.int32)
PICTURE = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
ALL_KINDS = [
    scalar_item("loss", 0.5),
    scalar_item("tag with ünïcode/[:Scalar]", -math.inf),
    array_item("tensor", "weights", WEIGHTS),
    array_item("tensor", "labels", EXACT),
    array_item("histogram", "weights", WEIGHTS),
    array_item("histogram", "nothing", np.array([np.nan], np.float32)),
    array_item("image", "input", PICTURE),
    MessageItem("landscape", "landscape", landscape_bytes()),
]


def message_of_all_kinds() -> Any:
    """The same event made with the message classes, field by field."""
    message = protobuf.message_class("Event")(wall_time=TIME, step=STEP)
    add = message.summary.value.add
    add(tag="loss", scalar_value=0.5)
    add(tag="tag with ünïcode/[:Scalar]", scalar_value=-math.inf)
    add(tag="weights").tensor.MergeFromString(b"".join(tensor.encode(Tensor(WEIGHTS, "float32"))))
    labels = add(tag="labels").tensor
    labels.dims.append(2)
    labels.data_type = 4
    labels.float_data.extend([2147483648.0, 5.0])
    labels.raw_data = b"\xff\xff\xff\x7f\x05\0\0\0"
    buckets = add(tag="weights").histogram
    whole = histogram.from_array(WEIGHTS)
    for left, width, count in zip(whole.left, whole.width, whole.counts, strict=True):
        buckets.buckets.add(left=left, width=width, count=int(count))
    for field, value in [("nan_count", 0), ("pos_inf_count", 0), ("neg_inf_count", 0), ("count", 24)]:
        setattr(buckets, field, value)
    buckets.max, buckets.min, buckets.sum = 1.0, -1.0, whole.sum
    nothing = add(tag="nothing").histogram
    nothing.nan_count, nothing.pos_inf_count, nothing.neg_inf_count, nothing.count = 1, 0, 0, 1
    picture = add(tag="input").image
    picture.height, picture.width, picture.colorspace = 4, 10, 3
    picture.encoded_image = image.from_array(PICTURE).data
    add(tag="landscape").loss_landscape.MergeFromString(landscape_bytes())
    return message


def without_extensions(message: Any) -> bytes:
    message.DiscardUnknownFields()
    return bytes(message.SerializeToString(deterministic=True))


def test_all_kinds_in_one_event_are_mindspores_bytes() -> None:
    """One event holds every kind; less our extensions it is, byte for byte, what the message classes write."""
    (payload,) = payloads(*ALL_KINDS)
    parse = protobuf.message_class("Event").FromString
    assert without_extensions(parse(payload)) == message_of_all_kinds().SerializeToString(deterministic=True)


def test_our_bytes_are_canonical() -> None:
    """Parsed and serialised again by the message classes, an event is the same bytes, extensions included."""
    parse = protobuf.message_class("Event").FromString
    for payload in payloads(*ALL_KINDS, scalar_item("exact", 0.1), MessageItem("graph", "", graph_bytes("g"))):
        assert parse(payload).SerializeToString(deterministic=True) == payload


def test_without_extensions_not_a_byte_is_ours() -> None:
    """An event without a number that float32 lacks and without a picture is MindSpore's as it is."""
    items = [item for item in ALL_KINDS if item.kind != "image"]
    (payload,) = payloads(*items)
    message = message_of_all_kinds()
    del message.summary.value[6]
    assert payload == message.SerializeToString(deterministic=True)


@pytest.mark.parametrize("step", [0, 1, 127, 128, 2**31, 2**63 - 1, -1, -(2**63)])
def test_every_step_is_written(step: int) -> None:
    """The step stands in the bytes, 0 too, and comes back."""
    (payload,) = payloads(scalar_item("loss", 1.0), step=step)
    message = protobuf.message_class("Event").FromString(payload)
    assert message.HasField("step")
    assert message.step == step
    assert payload == message.SerializeToString(deterministic=True)
    assert records(payload) == [Record(step, TIME, "scalar", "loss", Scalar(1.0))]


def test_the_version_event() -> None:
    """The first payload of a file is MindSpore's version, and no record."""
    payload = b"".join(event.encode_version(TIME))
    message = protobuf.message_class("Event")(wall_time=TIME, version="MindSpore.Event:1")
    assert payload == message.SerializeToString()
    assert records(payload) == []


def test_decoding_gives_what_was_encoded() -> None:
    """Each kind comes back under its tag, in order, with the value that was recorded."""
    (payload,) = payloads(*ALL_KINDS)
    decoded = records(payload)
    assert [(one.step, one.wall_time) for one in decoded] == [(STEP, TIME)] * len(ALL_KINDS)
    assert [(one.kind, one.tag) for one in decoded] == [(item.kind, item.tag) for item in ALL_KINDS]
    values = [one.value for one in decoded]
    assert values[:2] == [Scalar(0.5), Scalar(-math.inf)]
    for value, array in ((values[2], WEIGHTS), (values[3], EXACT)):
        assert isinstance(value, Tensor)
        assert value.array.dtype == array.dtype
        np.testing.assert_array_equal(value.array, array)
    assert isinstance(values[4], Histogram)
    np.testing.assert_array_equal(values[4].counts, histogram.from_array(WEIGHTS).counts)
    assert isinstance(values[5], Histogram)
    assert (values[5].nan_count, values[5].count) == (1, 1)
    assert isinstance(values[6], Image)
    np.testing.assert_array_equal(image.pixels(values[6])[:, :5], PICTURE[0].transpose(1, 2, 0))
    assert values[7] == Landscape(landscape_bytes())


def test_scalars_stand_first() -> None:
    """In the order in which they were added, before all other values of the event, which keep theirs."""
    items = [array_item("tensor", "t", EXACT), scalar_item("b", 1.0), array_item("histogram", "h", EXACT)]
    (payload,) = payloads(*items, scalar_item("a", 2.0))
    assert [one.tag for one in records(payload)] == ["b", "a", "t", "h"]


def test_an_event_without_anything_is_no_payload() -> None:
    """Nothing is written for it."""
    assert payloads() == []


def test_scalars_alone_are_the_same_as_beside_others() -> None:
    """The short way of events without arrays writes the bytes that the long one does."""
    scalars = {"loss": 0.5, "exact": 0.1, "": math.nan, "准确率": 2.0}
    (alone,) = event.encode(Event(STEP, TIME, (), scalars))
    lineage_item = MessageItem("train_lineage", "", b"")
    (beside,) = event.encode(Event(STEP, TIME, [lineage_item], scalars))
    assert b"".join(alone) == b"".join(beside)


def test_random_scalars_come_back(rng: np.random.Generator) -> None:
    """Whatever the numbers, tags and step, decoding is the inverse of encoding, and the bytes are canonical."""
    for _ in range(100):
        values = rng.integers(0, 2**64, int(rng.integers(1, 6)), dtype=np.uint64).view(np.float64)
        items = [
            # An event has one number a tag; the shortest random ones may repeat.
            scalar_item(f"{index}" + "".join(map(chr, rng.integers(1, 0xD7FF, int(rng.integers(0, 60))))), value)
            for index, value in enumerate(np.nan_to_num(values).tolist())
        ]
        step = int(rng.integers(-(2**63), 2**63))
        (payload,) = payloads(*items, step=step)
        expected = [Record(step, TIME, "scalar", item.tag, Scalar(item.value)) for item in items]
        assert records(payload) == expected
        message = protobuf.message_class("Event").FromString(payload)
        assert message.SerializeToString(deterministic=True) == payload


def test_a_graph_has_an_event_of_its_own() -> None:
    """A graph and values of one step are two payloads; the graph's tag is its own name."""
    first, second = payloads(scalar_item("loss", 1.0), MessageItem("graph", "ignored", graph_bytes("kernel_graph_1")))
    message = protobuf.message_class("Event").FromString(first)
    assert message.WhichOneof("what") == "graph_def"
    (record,) = records(first)
    assert (record.kind, record.tag, record.step) == ("graph", "kernel_graph_1", STEP)
    assert record.value == graph.decode(memoryview(graph_bytes("kernel_graph_1")))
    assert [one.kind for one in records(second)] == ["scalar"]


def test_lineage_is_left_to_the_lineage_file() -> None:
    """Items of lineage kinds are no part of the summary file's events."""
    assert payloads(MessageItem("train_lineage", "", b"")) == []
    (payload,) = payloads(MessageItem("custom_lineage_data", "", b""), scalar_item("loss", 1.0))
    assert [one.tag for one in records(payload)] == ["loss"]


def test_an_unknown_kind_is_not_dropped_silently() -> None:
    """A kind that no field holds is an error of the caller."""
    with pytest.raises(KeyError, match="sound"):
        payloads(MessageItem("sound", "a", b""))


@pytest.mark.parametrize("limit", [64 + 1, 64 + 150, 64 + 400, 10**6])
def test_values_beyond_the_limit_go_into_further_events(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """No payload is larger than the limit unless one value is; none is lost, repeated or out of order."""
    monkeypatch.setattr(event, "MAX_PAYLOAD_BYTES", limit)
    items = [array_item("tensor", f"t{index}", np.arange(index * 5, dtype=np.float32)) for index in range(12)]
    parts = payloads(*items, scalar_item("loss", 0.5))
    first, *decoded = [one for part in parts for one in records(part)]
    assert (first.tag, first.value) == ("loss", Scalar(0.5))
    assert [one.tag for one in decoded] == [item.tag for item in items]
    assert {one.step for one in decoded} == {STEP}
    for one, item in zip(decoded, items, strict=True):
        assert isinstance(one.value, Tensor)
        np.testing.assert_array_equal(one.value.array, item.array)
    assert all(len(part) <= limit or len(records(part)) == 1 for part in parts)
    # As few events as that allows: what two neighbours hold together would have been too much.
    assert all(len(one) + len(other) > limit - 64 for one, other in itertools.pairwise(parts))


def test_a_cut_payload_gives_no_wrong_value() -> None:
    """Cut anywhere, an event is corrupt or holds nothing: the summary's length stands before its values."""
    (payload,) = payloads(*ALL_KINDS[:3])
    for size in range(len(payload)):
        try:
            assert records(payload[:size]) == []
        except CorruptMessage:
            continue


def test_a_damaged_value_hides_none_before_it() -> None:
    """Values before a damaged one are handed out before the damage is told."""
    good = scalar.encode_field("good", 1.0)
    bad = wire.delimited(1, wire.delimited(1, b"bad") + wire.delimited(8, b"\x09"))
    payload = wire.double(1, TIME) + wire.integer(2, STEP) + wire.delimited(5, good + bad + good)
    decoding = outline.records(memoryview(payload))
    assert next(decoding) == Record(STEP, TIME, "scalar", "good", Scalar(1.0))
    with pytest.raises(CorruptMessage):
        next(decoding)


def test_what_we_do_not_know_is_passed_over() -> None:
    """Fields and kinds of later versions do not stop the values beside them."""
    known = scalar.encode_field("known", 1.0)
    unknown = wire.delimited(1, wire.delimited(1, b"unknown") + wire.delimited(77, b"?"))
    payload = wire.delimited(102, b"later") + wire.delimited(5, unknown + wire.integer(9, 1) + known)
    assert [one.tag for one in records(payload)] == ["known"]


def test_the_order_of_fields_does_not_matter() -> None:
    """Step and time that stand behind the summary count for it as well."""
    value = scalar.encode_field("loss", 1.0)
    payload = wire.delimited(5, value) + wire.integer(2, STEP) + wire.double(1, TIME)
    assert records(payload) == [Record(STEP, TIME, "scalar", "loss", Scalar(1.0))]


@pytest.mark.parametrize(
    "payload",
    [
        wire.integer(1, 1),
        wire.double(2, 1.0),
        wire.integer(5, 1),
        wire.delimited(5, wire.integer(1, 1)),
        wire.delimited(5, wire.delimited(1, b"")),
        wire.delimited(5, wire.delimited(1, wire.integer(1, 5))),
        wire.delimited(5, wire.delimited(1, wire.delimited(1, b"tag") + wire.double(3, 1.0))),
        wire.delimited(5, wire.delimited(1, wire.delimited(1, b"tag") + wire.integer(8, 1))),
        wire.delimited(4, b"\x09"),
        b"\xff\xff",
        b"\x2a\x05abc",
    ],
)
def test_hostile_payloads_are_corrupt(payload: bytes) -> None:
    """Fields of another type, values without a tag and lengths past the end are no event."""
    with pytest.raises(CorruptMessage):
        records(payload)


def test_damaged_events_raise_nothing_else(rng: np.random.Generator) -> None:
    """Any damage gives records or a corrupt message."""
    whole = b"".join(payloads(*ALL_KINDS[:4], MessageItem("graph", "", graph_bytes("g"))))
    for _ in range(2000):
        data = bytearray(whole[: int(rng.integers(1, len(whole) + 1))])
        for position in rng.integers(0, len(data), 3):
            data[position] = int(rng.integers(256))
        try:
            records(bytes(data))
        except CorruptMessage:
            continue
