"""An event's way across the process border: whatever is packed is unpacked again, bit for bit."""

from __future__ import annotations

import enum
import math
import mmap
import struct
from typing import Any

import numpy as np
import pytest

from instrument.values import Event, Item
from instrument.write import message

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (0,), (7,), (2, 3), (0, 5), (2, 0, 3), (1, 2, 3, 4, 5))


def travel(event: Event, lineage_path: str = "") -> tuple[Event, str]:
    """Pack into page-aligned memory, as a ring is, and unpack there."""
    data = b"".join(message.pack(event, lineage_path))
    memory = mmap.mmap(-1, max(len(data), 1))
    memory[: len(data)] = data
    return message.unpack(memoryview(memory)[: len(data)])


def travel_item(item: Item) -> Item:
    event, _ = travel(Event(1, 2.0, (item,)))
    (result,) = event.items
    return result


def bits(number: Any) -> bytes:
    assert type(number) is float
    return struct.pack("<d", number)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> None:
    """Dtype, shape and every bit arrive, for any dtype and any shape, empty and 0-d included."""
    raw = rng.integers(0, 2 if dtype == "bool" else 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    array = raw.view(dtype).reshape(shape)
    result = travel_item(Item("tensor", "t", array, dtype))
    assert (result.kind, result.tag, result.dtype) == ("tensor", "t", dtype)
    assert isinstance(result.payload, np.ndarray)
    assert (result.payload.dtype, result.payload.shape) == (array.dtype, shape)
    assert result.payload.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(24.0).reshape(2, 3, 4)[:, ::2, ::-1],
        np.arange(5, dtype=">i4"),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        np.broadcast_to(np.float32(3), (4, 5)),
    ],
    ids=["transposed", "strided", "big endian", "Fortran", "broadcast"],
)
def test_an_array_in_another_layout(array: np.ndarray[Any, Any]) -> None:
    """Values and dtype arrive, whatever the array's layout in memory."""
    result = travel_item(Item("histogram", "h", array)).payload
    assert isinstance(result, np.ndarray)
    assert result.dtype == array.dtype
    assert np.array_equal(result, array)


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, 1e300, 5e-324, math.inf, -math.inf, math.nan])
def test_a_scalar(number: float) -> None:
    """A number arrives bit for bit."""
    result = travel_item(Item("scalar", "loss", number))
    assert result[:2] == ("scalar", "loss")
    assert bits(result.payload) == bits(number)


@pytest.mark.parametrize("number", [np.float64(0.1), np.float32(0.1), np.int64(3), 3, True])
def test_a_number_of_another_type(number: Any) -> None:
    """NumPy's numbers, which marshal takes for buffers of bytes, arrive as the float that they are."""
    assert bits(travel_item(Item("scalar", "loss", number)).payload) == bits(float(number))


class Name(str, enum.Enum):
    LOSS = "loss"


@pytest.mark.parametrize("tag", ["", "loss", "a b/c:d", "准确率 😀", "a\nb\0c", "x" * 70_000, "a\udcffb"])
def test_a_tag(tag: str) -> None:
    """A tag arrives as it is, in an item of any sort."""
    payloads: list[Any] = [1.0, np.ones(2), b"bytes"]
    items = [Item(kind, tag, payload) for kind, payload in zip(("scalar", "tensor", "graph"), payloads, strict=True)]
    event, _ = travel(Event(1, 2.0, items))
    assert [item.tag for item in event.items] == [tag] * 3


@pytest.mark.parametrize("tag", [np.str_("loss"), Name.LOSS])
def test_a_tag_of_a_derived_type(tag: str) -> None:
    """NumPy's strings and enumerations arrive as the text that they are."""
    for item in (Item("scalar", tag, 1.0), Item("tensor", tag, np.ones(1), "float64")):
        result = travel_item(item).tag
        assert (type(result), result) == (str, "loss")


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 300])
def test_bytes(data: bytes) -> None:
    """A finished message arrives as bytes."""
    assert travel_item(Item("train_lineage", "train", data)) == Item("train_lineage", "train", data)


def test_the_event_itself() -> None:
    """Step, time and lineage path arrive exactly; an event without items too."""
    for step in (0, 1, -1, 2**63 - 1, -(2**63)):
        event, path = travel(Event(step, 1_700_000_000.123456, ()), "/run/文件_lineage")
        assert (event.step, bits(event.wall_time), list(event.items)) == (step, bits(1_700_000_000.123456), [])
        assert path == "/run/文件_lineage"


def test_items_keep_their_order(rng: np.random.Generator) -> None:
    """Items of all sorts in one event keep order and contents."""
    items: list[Item] = []
    for index in rng.integers(0, 3, 60).tolist():
        tag = f"tag{len(items)}"
        if index == 0:
            items.append(Item("scalar", tag, float(rng.normal())))
        elif index == 1:
            items.append(Item("graph", tag, rng.bytes(int(rng.integers(0, 200)))))
        else:
            items.append(Item("image", tag, rng.integers(0, 256, int(rng.integers(0, 100)), np.uint8), "uint8"))
    event, _ = travel(Event(5, 6.0, items))
    assert [item[:2] for item in event.items] == [item[:2] for item in items]
    for item, result in zip(items, event.items, strict=True):
        assert np.array_equal(item.payload, result.payload)


def test_arrays_are_aligned_views() -> None:
    """An array lies at a multiple of 64 bytes and is used where it is, not copied; bytes before it do not matter."""
    items = [Item("graph", "g", b"x" * length) for length in (1, 63, 64, 65)]
    items += [Item("tensor", "t", np.full(length, length, np.float64), "float64") for length in (1, 7, 8, 9)]
    data = b"".join(message.pack(Event(1, 2.0, items), ""))
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    whole = np.frombuffer(memory, np.uint8)
    event, _ = message.unpack(memoryview(memory))
    for item in event.items[4:]:
        assert isinstance(item.payload, np.ndarray)
        assert (item.payload.ctypes.data - whole.ctypes.data) % message.ALIGNMENT_BYTES == 0
        assert np.shares_memory(item.payload, whole)
        assert (item.payload == item.payload.size).all()


def test_pieces_are_single_bytes() -> None:
    """The length of each piece is its number of bytes, and a contiguous array is not copied to be packed."""
    array = np.arange(1000, dtype=np.float64).reshape(10, 100)
    pieces = message.pack(Event(1, 2.0, (Item("tensor", "t", array, "float64"),)), "")
    assert len(pieces[-1]) == 8000
    assert np.shares_memory(np.frombuffer(pieces[-1], np.uint8), array)


@pytest.mark.parametrize(("kind", "payload"), [("tensor", np.array([object()])), ("scalar", None), ("scalar", "text")])
def test_what_cannot_be_packed(kind: str, payload: Any) -> None:
    """A payload that is neither number, bytes nor an array of numbers raises here, not in the worker."""
    with pytest.raises((TypeError, ValueError)):
        message.pack(Event(1, 2.0, (Item(kind, "t", payload),)), "")
