"""Records of the ring: what is packed is unpacked bit for bit, and no bytes do harm."""

from __future__ import annotations

import enum
import math
import mmap
import struct
from typing import Any, cast

import numpy as np
import pytest

from instrument.errors import CorruptMessage
from instrument.events import ArrayItem, EncodedItem, Event, Item, MessageItem, StagedArray, StagedItem, ValueItem
from instrument.ringfile import record
from instrument.ringfile import unpack as unpacking
from instrument.ringfile.unpack import unpack
from instrument.values import Text

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (0,), (7,), (2, 3), (0, 5), (2, 0, 3), (1, 2, 3, 4, 5))


def written(event: Event, sequence: int = 7, sealed: bool = True) -> memoryview:
    """The whole record of an event, header included, in page-aligned memory as a ring is."""
    pieces, length, head_offset = record.pack(event)
    data = b"".join(pieces)
    assert len(data) == length
    memory = memoryview(mmap.mmap(-1, record.HEADER_BYTES + length))
    memory[record.HEADER_BYTES :] = data
    head = pieces[-1]
    assert isinstance(head, bytes)
    body_crc = record.crc32c(data[:head_offset]) if sealed else None
    record.write_header(memory, 0, sequence, length, head_offset, head, body_crc)
    return memory


def unpacked(memory: memoryview, trusts_unsealed: bool = False) -> Event:
    header = record.read_header(memory, 0, len(memory))
    record.verify(memory, 0, header, trusts_unsealed)
    return unpack(memory[record.HEADER_BYTES :], header.head_offset)


def travel(event: Event) -> Event:
    return unpacked(written(event))


def travel_item(item: Item) -> Item:
    (result,) = travel(Event.of(1, 2.0, (item,))).items
    return result


def bits(number: Any) -> bytes:
    assert type(number) is float
    return struct.pack("<d", number)


MIXED = Event(
    -5,
    1_700_000_000.25,
    [
        ArrayItem("tensor", "weight", np.arange(6, dtype=np.float32).reshape(2, 3), "float32"),
        MessageItem("graph", "graph", b"message"),
        ArrayItem("histogram", "h", np.arange(3, dtype=np.int16), "int16"),
        ArrayItem("image", "i", np.zeros((1, 3, 2, 2), np.uint8), "uint8"),
    ],
    {"loss": 0.5, "准确率": -1.0},
    {("tensor", "loss"): "loss/tensor"},
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> None:
    """Dtype, shape and every bit arrive, for any dtype and any shape, empty and 0-d included."""
    raw = rng.integers(0, 2 if dtype == "bool" else 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    array = raw.view(dtype).reshape(shape)
    result = travel_item(ArrayItem("tensor", "t", array, dtype))
    assert isinstance(result, ArrayItem)
    assert (result.kind, result.tag, result.dtype) == ("tensor", "t", dtype)
    assert (result.array.dtype, result.array.shape) == (array.dtype, shape)
    assert result.array.tobytes() == array.tobytes()


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
    item = travel_item(ArrayItem("histogram", "h", array))
    assert isinstance(item, ArrayItem)
    result = item.array
    assert result.dtype == array.dtype
    assert np.array_equal(result, array)


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, 1e300, 5e-324, math.inf, -math.inf, math.nan])
def test_a_scalar(number: float) -> None:
    """Any float arrives bit for bit, beside other items and alone."""
    for items in ((), (MessageItem("graph", "g", b"g"),)):
        event = travel(Event(1, 2.0, items, {"loss": number}))
        assert list(event.scalars) == ["loss"]
        assert bits(event.scalars["loss"]) == bits(number)
        assert list(event.items) == list(items)


@pytest.mark.parametrize("number", [np.float64(0.1), np.float32(0.1), np.int64(3), 3, True])
def test_a_number_of_another_type(number: Any) -> None:
    """Numbers of NumPy and of other types arrive as the float that they are."""
    event = travel(Event(1, 2.0, (), {"loss": number}))
    assert bits(event.scalars["loss"]) == bits(float(number))


class Name(str, enum.Enum):
    LOSS = "loss"


@pytest.mark.parametrize("tag", ["", "loss", "a b/c:d", "准确率 😀", "a\nb\0c", "x" * 70_000, "a\udcffb"])
def test_a_tag(tag: str) -> None:
    """A tag arrives as it is, in an item of any sort."""
    items = [ArrayItem("tensor", tag, np.ones(2), "float64"), MessageItem("graph", tag, b"bytes")]
    event = travel(Event(1, 2.0, items, {tag: 1.0}, {("scalar", tag): tag}))
    assert [item.tag for item in event.items] == [tag] * 2
    assert event.scalars == {tag: 1.0}
    assert event.aliases == {("scalar", tag): tag}


@pytest.mark.parametrize("tag", [np.str_("loss"), Name.LOSS])
def test_a_tag_of_a_derived_type(tag: str) -> None:
    """NumPy's strings and enumerations arrive as the text that they are."""
    event = travel(Event(1, 2.0, (ArrayItem("tensor", tag, np.ones(1), "float64"),), {tag: 1.0}))
    tags = (*event.scalars, event.items[0].tag)
    assert [(type(name), name) for name in tags] == [(str, "loss")] * 2


@pytest.mark.parametrize("step", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_step_and_time(step: int) -> None:
    """Both arrive exactly, in an event without items too."""
    event = travel(Event(step, 1_700_000_000.123456))
    assert (event.step, bits(event.wall_time), list(event.items)) == (step, bits(1_700_000_000.123456), [])


def test_tags_that_change_from_step_to_step() -> None:
    """Encodings of tags are cached for a bounded number of sets of tags, and the right one is always taken."""
    for step in range(3 * record.MOST_CACHED):
        scalars = {f"{step % 300}": 1.0 * step, "loss": 2.0}
        assert travel(Event(step, 0.0, (), scalars)).scalars == scalars
    assert len(record._packers) <= record.MOST_CACHED
    assert len(unpacking._tags) <= record.MOST_CACHED


def test_items_keep_their_order(rng: np.random.Generator) -> None:
    """Items of all sorts in one event keep order and contents, and so do its scalars."""
    items: list[Item] = []
    scalars: dict[str, float] = {}
    for index in rng.integers(0, 3, 60).tolist():
        tag = f"tag{len(items) + len(scalars)}"
        if index == 0:
            scalars[tag] = float(rng.normal())
        elif index == 1:
            items.append(MessageItem("graph", tag, rng.bytes(int(rng.integers(0, 200)))))
        else:
            items.append(ArrayItem("image", tag, rng.integers(0, 256, int(rng.integers(0, 100)), np.uint8), "uint8"))
    event = travel(Event(5, 6.0, items, scalars))
    assert [item[:2] for item in event.items] == [item[:2] for item in items]
    for item, result in zip(items, event.items, strict=True):
        assert np.array_equal(item[2], result[2])
    assert list(event.scalars.items()) == list(scalars.items())


def test_arrays_are_aligned_views() -> None:
    """An array lies at a multiple of 64 bytes and is used where it is, not copied."""
    items: list[Item] = [MessageItem("graph", "g", b"x" * length) for length in (1, 63, 64, 65)]
    items += [ArrayItem("tensor", "t", np.full(length, length, np.float64), "float64") for length in (1, 7, 8, 9)]
    memory = written(Event(1, 2.0, items, {"loss": 1.0}))
    whole = np.frombuffer(memory, np.uint8)
    for item in unpacked(memory).items[4:]:
        assert isinstance(item, ArrayItem)
        assert (item.array.ctypes.data - whole.ctypes.data) % record.ALIGNMENT_BYTES == 0
        assert np.shares_memory(item.array, whole)
        assert (item.array == item.array.size).all()


def test_a_contiguous_array_is_not_copied() -> None:
    """The pieces of an event share the memory of its arrays; each counts single bytes."""
    array = np.arange(1000, dtype=np.float64).reshape(10, 100)
    pieces, _, head_offset = record.pack(Event.of(1, 2.0, (ArrayItem("tensor", "t", array, "float64"),)))
    assert (len(pieces), len(pieces[0]), head_offset) == (2, 8000, 8000)
    assert np.shares_memory(np.frombuffer(pieces[0], np.uint8), array)


def test_staged_arrays(rng: np.random.Generator) -> None:
    """Arrays that lie in the body already are described where they are, and only the rest is given out."""
    arrays = [rng.normal(size=size) for size in (100, 3, 50)]
    staged, payloads = bytearray(), []
    for array in (arrays[2], np.zeros(7), arrays[0]):  # the second one was replaced before the event was recorded
        payloads.append(StagedArray(array, memoryview(array).cast("B"), len(staged)))
        staged += array.tobytes() + bytes(-array.nbytes % record.ALIGNMENT_BYTES)
    items: list[Item] = [ArrayItem("tensor", f"t{index}", array, "float64") for index, array in enumerate(arrays)]
    items.insert(1, MessageItem("graph", "g", b"graph"))
    sent: list[Item] = list(items)
    sent[0] = StagedItem("tensor", "t0", payloads[2], "float64")
    sent[3] = StagedItem("tensor", "t2", payloads[0], "float64")
    event = Event(1, 2.0, sent, {"loss": 3.0})
    pieces, length, head_offset = record.pack(event, [id(payload) for payload in payloads], len(staged))
    data = bytes(staged) + b"".join(pieces)
    assert len(data) == length
    result = unpack(memoryview(data), head_offset)
    assert result.scalars == {"loss": 3.0}
    assert [item[:2] for item in result.items] == [item[:2] for item in items]
    for item, original in zip(result.items, items, strict=True):
        assert np.array_equal(item[2], original[2])
    assert np.array_equal(StagedItem("tensor", "t2", payloads[0]).copy().array, arrays[2])


def test_a_tensor_as_encoded_content() -> None:
    """On request a float32 tensor comes as the pieces of its content around the bytes where they are."""
    array = np.arange(4, dtype=np.float32)
    memory = written(Event.of(1, 2.0, (ArrayItem("tensor", "t", array, "float32"),)))
    header = record.read_header(memory, 0, len(memory))
    (item,) = unpack(memory[record.HEADER_BYTES :], header.head_offset, encodes=True).items
    assert isinstance(item, EncodedItem)
    assert bytes(item.pieces[-1]) == array.tobytes()
    assert np.shares_memory(np.frombuffer(item.pieces[-1], np.uint8), np.frombuffer(memory, np.uint8))


@pytest.mark.parametrize("dtype", ["complex128", "U3", "S5", "M8[ns]", "m8[s]", "V7", "O"])
def test_an_array_of_no_numbers(dtype: str) -> None:
    """Arrays of other types are refused when they are packed: a record never holds references."""
    with pytest.raises((ValueError, TypeError), match=r"no record holds|references|object array"):
        record.pack(Event(1, 2.0, (ArrayItem("tensor", "t", np.zeros(6, dtype), dtype),)))


@pytest.mark.parametrize(
    "item",
    [
        ArrayItem("tensor", "t", cast("Any", None)),
        MessageItem("nonsense", "t", b""),
        ValueItem("text", "t", Text(np.array("a", object))),
        EncodedItem("tensor", "t", [b"abc"]),
    ],
    ids=["no array", "unknown kind", "value", "encoded"],
)
def test_an_item_that_no_record_holds(item: Item) -> None:
    """An item that is neither bytes nor an array, or has an unknown kind, raises when it is packed."""
    with pytest.raises((TypeError, ValueError, AttributeError, LookupError, AssertionError)):
        record.pack(Event(1, 2.0, (item,)))


# ---------------------------------------------------------------------- bytes


def test_the_bytes_of_a_record_of_scalars() -> None:
    """Every byte stands where docs/format.md says."""
    data = bytes(written(Event(258, 1.5, (), {"a": 2.0, "bc": -0.5}), sequence=9))
    head = bytes.fromhex(
        "0201000000000000" "000000000000f83f" "02000000" "0b000000" "00000000" "00000000"
        "0000000000000040" "000000000000e0bf" "01000000" "61" "02000000" "6263"
    )  # fmt: skip
    front = struct.pack("<QQQI", len(head), 9, 0, 1)
    assert data == front + struct.pack("<III", record.crc32c(front + head), 0, 1) + bytes(24) + head
    assert data[28:32].hex() == "d969313a"


def test_the_bytes_of_a_record_with_items() -> None:
    """Body, aliases and items stand where docs/format.md says."""
    items = [ArrayItem("tensor", "w", np.array([[1, 2]], np.int16), "int16"), MessageItem("gap", "", b"g")]
    data = bytes(written(Event(1, 0.0, items, {}, {("scalar", "x"): "yz"})))
    body = bytes.fromhex("01000200") + bytes(60) + b"g" + bytes(63)
    aliases = bytes.fromhex("00000000010000000200000078797a")
    tensor = bytes.fromhex("0201030302000000010000000000000000000000040000000000000077")
    tensor += struct.pack("<2Q", 1, 2)
    gap = bytes.fromhex("0d000000000000000000000040000000000000000100000000000000")
    head = struct.pack("<QdIIII", 1, 0.0, 0, 0, 1, 2) + aliases + tensor + gap
    assert data[record.HEADER_BYTES :] == body + head


# ---------------------------------------------------------------------- damage and hostile bytes


def outcome(memory: memoryview) -> Event | str:
    try:
        return unpacked(memory)
    except CorruptMessage as error:
        return str(error)


@pytest.mark.parametrize("event", [MIXED, Event(3, 4.0, (), {"a": 1.0, "b": 2.0})], ids=["mixed", "scalars"])
def test_any_changed_byte_is_noticed(event: Event) -> None:
    """Each byte of a record counts in a checksum, but for the rest of its header."""
    good = bytes(written(event))
    for position in (*range(40), *range(record.HEADER_BYTES, len(good))):
        for change in (1, 0x80, 0xFF):
            data = bytearray(good)
            data[position] ^= change
            assert isinstance(outcome(memoryview(data)), str), (position, change)


def test_a_record_that_is_cut() -> None:
    """Cut anywhere, a record is reported and never read past its end."""
    good = bytes(written(MIXED))
    for end in range(len(good)):
        assert isinstance(outcome(memoryview(good[:end])), str), end


def test_a_record_that_is_not_sealed() -> None:
    """Without a checksum of its body it is valid only on the machine that has run on since; sealing adds it."""
    memory = written(MIXED, sealed=False)
    assert unpacked(memory, trusts_unsealed=True).scalars == MIXED.scalars
    with pytest.raises(CorruptMessage, match="no checksum yet"):
        unpacked(memory)
    padded = memoryview(mmap.mmap(-1, 4096))
    padded[64 : 64 + len(memory)] = memory
    header = record.read_header(memory, 0, len(memory))
    record.seal(padded.cast("Q"), 64, padded[128 : 128 + header.head_offset])
    assert bytes(padded[64 : 64 + len(memory)]) == bytes(written(MIXED))


def test_a_pad() -> None:
    """A pad says where the next record begins, and its header is checked."""
    memory = memoryview(bytearray(256))
    record.write_pad(memory, 0, 192)
    header = record.read_header(memory, 0, 256)
    assert (header.kind, header.end) == (record.PAD, 256)
    record.verify(memory, 0, header, trusts_unsealed=False)
    memory[0] ^= 64
    with pytest.raises(CorruptMessage):
        record.verify(memory, 0, record.read_header(memory, 0, 256), trusts_unsealed=False)


def harmless(payload: bytes, head_offset: int) -> None:
    """Unpack hostile bytes that no checksum guards: an event or one kind of exception, and no array outside."""
    for encodes in (False, True):
        try:
            event = unpack(memoryview(payload), head_offset, encodes)
        except CorruptMessage:
            continue
        total = sum(item.array.nbytes for item in event.items if isinstance(item, ArrayItem))
        assert total <= head_offset


@pytest.mark.parametrize("event", [MIXED, Event(3, 4.0, (), {"a": 1.0, "b": 2.0})], ids=["mixed", "scalars"])
def test_hostile_numbers(event: Event) -> None:
    """Any number of any width at any place of a head does no harm, nor does a head at any other place."""
    pieces, length, head_offset = record.pack(event)
    good = b"".join(pieces)
    hostile = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1, length)
    for position in range(head_offset, length):
        for width in (1, 2, 4, 8):
            for number in hostile:
                data = bytearray(good)
                data[position : position + width] = (number & (1 << 8 * width) - 1).to_bytes(width, "little")
                harmless(bytes(data[:length]), head_offset)
    for offset in range(length + 2):
        harmless(good, offset)
    for end in range(length):
        harmless(good[:end], min(head_offset, end))


def test_random_bytes(rng: np.random.Generator) -> None:
    """Random payloads, and random changes of a good one, do no harm."""
    pieces, length, head_offset = record.pack(MIXED)
    good = np.frombuffer(b"".join(pieces), np.uint8)
    for _ in range(3000):
        harmless(rng.bytes(int(rng.integers(0, 200))), int(rng.integers(0, 100)))
        data = good.copy()
        places = rng.integers(head_offset, length, int(rng.integers(1, 6)))
        data[places] = rng.integers(0, 256, places.size, np.uint8)
        harmless(data.tobytes(), head_offset)


def test_items_never_share_bytes() -> None:
    """Many items that claim the same bytes of the body are refused: what they make in files would have no bound."""
    items = [MessageItem("graph", "g", bytes(64))] * 2
    pieces, _, head_offset = record.pack(Event(1, 2.0, items))
    data = bytearray(b"".join(pieces))
    second = len(data) - 29
    assert data[second + 12 : second + 20] == (64).to_bytes(8, "little")
    data[second + 12 : second + 20] = bytes(8)
    data[second + 20 : second + 28] = (128).to_bytes(8, "little")
    with pytest.raises(CorruptMessage, match="claims 128 bytes"):
        unpack(memoryview(data), head_offset)


def test_numbers_without_end() -> None:
    """Counts beyond what a recorder writes are refused before anything is made for them."""
    head = struct.pack("<QdIIII", 1, 0.0, 2**20 + 1, 0, 0, 0) + bytes(8 * (2**20 + 1))
    with pytest.raises(CorruptMessage, match="scalars"):
        unpack(memoryview(head), 0)
    with pytest.raises(ValueError, match="at most"):
        record.pack(Event(1, 2.0, [MessageItem("gap", "", b"")] * (2**17 + 1)))
