"""Outlines: where the values of an event stand, and which other payloads have the same."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pytest

from instrument.codec import event, outline, tensorboard_outline, wire
from instrument.codec import tensorboard as tb
from instrument.codec.outline import Outline
from instrument.errors import CorruptMessage
from instrument.runs.columnar import Layout
from instrument.values import Event, MessageItem, Scalar, ScalarItem
from tests.codec.test_event import ALL_KINDS, STEP, TIME, graph_bytes, payloads, scalar_item


def number(data: memoryview, found: Outline, index: int) -> float:
    place = found.places[index]
    result: float = np.frombuffer(data[place.start : place.end], f"<f{place.end - place.start}")[0]
    return float(result)


def plain(value: Any) -> Any:
    """A value without arrays, which do not compare."""
    if isinstance(value, Scalar):
        return repr(value.value)
    return repr({key: one.tobytes() if isinstance(one, np.ndarray) else one for key, one in vars(value).items()})


def test_places_of_every_kind() -> None:
    """Each value of an event has its place, and is whole there."""
    items = [*ALL_KINDS, scalar_item("exact", 0.1), MessageItem("graph", "net", graph_bytes("net"))]
    numbers = {item.tag: item.value for item in items if isinstance(item, ScalarItem)}
    places = []
    for payload in map(memoryview, payloads(*items)):
        found = outline.mindspore(payload)
        assert (found.step, found.wall_time, found.problems) == (STEP, TIME, [])
        places += [(place.kind, place.tag) for place in found.places]
        for index, place in enumerate(found.places):
            if place.decode is None:
                assert number(payload, found, index) == numbers[place.tag]
            else:
                place.decode(payload[place.start : place.end])
    assert sorted(places) == sorted((item.kind, item.tag) for item in items)


@pytest.mark.parametrize("step", [0, 1, 127, 128, 2**31, 2**62, -1])
def test_alike_payloads_have_the_same_outline(step: int) -> None:
    """Whatever time, step and numbers they hold; a step of another size is another outline."""
    tags = ("a", "long tag")
    (first,) = event.encode(Event(step, 1.0, (), dict(zip(tags, (1.0, 0.1), strict=True))))
    (second,) = event.encode(Event(step ^ 1, 2.5, (), dict(zip(tags, (2.0, 0.3), strict=True))))
    data, other = memoryview(b"".join(first)), memoryview(b"".join(second))
    found = outline.mindspore(data)
    assert found.is_regular
    mask = Layout.of_outline(found).mask(len(data))
    assert bytes(np.frombuffer(data, "u1") & mask) == bytes(np.frombuffer(other, "u1") & mask)
    again = outline.mindspore(other)
    assert (again.step, again.wall_time) == (step ^ 1, 2.5)
    assert (again.places, again.varying, again.step_at) == (found.places, found.varying, found.step_at)
    assert [number(other, again, index) for index in range(2)] == [2.0, 0.3]


def test_every_byte_outside_the_numbers_tells(rng: np.random.Generator) -> None:
    """A payload that differs in any byte that is compared is not taken for alike, and the others cannot be."""
    (pieces,) = event.encode(Event(300, 1.0, (), {"a": 1.0, "b": 0.1}))
    data = b"".join(pieces)
    found = outline.mindspore(memoryview(data))
    mask = Layout.of_outline(found).mask(len(data)).tolist()
    free = [position for position, bits in enumerate(mask) if bits != 0xFF]
    # time, step (its continuation bits are compared), a float, a float and a double
    assert len(free) == 8 + 2 + 4 + 4 + 8
    changed = bytearray(data)
    for position in free:
        changed[position] = (changed[position] & mask[position]) | (int(rng.integers(256)) & ~mask[position] & 0xFF)
    again = outline.mindspore(memoryview(bytes(changed)))
    assert (again.places, again.varying, again.step_at) == (found.places, found.varying, found.step_at)


def test_a_value_that_is_none_costs_only_itself() -> None:
    """The others of its event are taken, and it is told."""
    good = wire.delimited(1, wire.delimited(1, b"x") + wire.key(3, wire.FIXED32) + struct.pack("<f", 2.0))
    nameless = wire.delimited(1, wire.key(3, wire.FIXED32) + bytes(4))
    found = outline.mindspore(memoryview(wire.delimited(5, nameless + good)))
    assert [place.tag for place in found.places] == ["x"]
    assert found.problems == ["a summary value has no tag"]
    assert not found.is_regular


@pytest.mark.parametrize(
    "parse", [outline.mindspore, lambda data: tensorboard_outline.outline(data, tensorboard_outline.Plugins())]
)
def test_no_bytes_do_harm(parse: Any, rng: np.random.Generator) -> None:
    """Random payloads, and good ones with random bytes: an outline within the payload, or `CorruptMessage`."""
    (good,) = payloads(*ALL_KINDS[:3])
    for size, spoilt in itertools.product(range(1, 120), (0, 3)):
        data = bytearray(good[:size] if spoilt else rng.bytes(size))
        for position in rng.integers(size, size=spoilt).tolist():
            data[position] = int(rng.integers(256))
        try:
            found = parse(memoryview(bytes(data)))
        except CorruptMessage:
            continue
        assert all(0 <= place.start <= place.end <= size for place in found.places)


def test_the_plugin_of_a_tag_is_remembered() -> None:
    """Metadata in the first value of a tag say what the later ones are."""

    def payload(with_metadata: bool) -> memoryview:
        tensor = wire.integer(tb.DTYPE, tb.DT_FLOAT) + wire.delimited(tb.SHAPE, b"")
        tensor += wire.delimited(tb.FLOAT_VAL, struct.pack("<f", 0.5))
        plugin = wire.delimited(tb.PLUGIN_DATA, wire.delimited(tb.PLUGIN_NAME, b"scalars"))
        content = wire.delimited(tb.TAG, b"x") + wire.delimited(tb.TENSOR, tensor)
        content += wire.delimited(tb.METADATA, plugin) if with_metadata else b""
        return memoryview(wire.delimited(tb.SUMMARY, wire.delimited(1, content)))

    plugins = tensorboard_outline.Plugins()
    assert [place.kind for place in tensorboard_outline.outline(payload(False), plugins).places] == ["tensor"]
    for with_metadata in (True, False):
        found = tensorboard_outline.outline(payload(with_metadata), plugins)
        assert [(place.kind, place.decode) for place in found.places] == [("scalar", None)]
    assert plugins == {"x": "scalars"}
