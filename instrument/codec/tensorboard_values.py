"""Values of TensorBoard's dialect but for scalars, graphs and lineage, both ways.

Pictures are written in the old style, which all readers know. Histograms are in the new one: of the old one
TensorBoard's readers in Python and in Rust make different buckets. Each value of the new style names its plugin, so
that none depends on another. What neither style has stands in fields of ours, which other readers skip.

Files of other writers hold either style. Each decoder raises `CorruptMessage` for bytes that are no such value.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import histogram as histogram_codec
from instrument.codec import image as image_codec
from instrument.codec import tensorboard as tb
from instrument.codec import text as text_codec
from instrument.codec import wire
from instrument.codec.event import finish
from instrument.codec.message import Value
from instrument.codec.schema import TENSORBOARD
from instrument.errors import CorruptMessage
from instrument.events import BFLOAT16, SESSION_END, ArrayItem, Item, MessageItem, SummaryValue, ValueItem
from instrument.values import Histogram, Image, Tensor, Text

_SUMMARY = TENSORBOARD.type("Summary")
_VALUE = TENSORBOARD.type("Summary.Value", skip=("SummaryMetadata",), raw=("TensorProto",))
_METADATA = TENSORBOARD.type("SummaryMetadata")
_HISTOGRAM = TENSORBOARD.type("HistogramProto")
_STRINGS = TENSORBOARD.type("TensorProto")
#: A `TensorProto` without elements, for values that are metadata only.
_NULL_TENSOR: Value = {"dtype": tb.DT_FLOAT, "tensor_shape": {"dim": [{}]}}

_MAX_DIMS = 32
_MOST_REPEATED = 1 << 20
#: Elements that stand one by one, or as varints, are put together in a new array, up to this size.
_MOST_JOINED_BYTES = 16 << 20
_PART_BYTES = 1 << 18
_LONGEST_VARINT = 10
_MOST_BUCKETS = wire.MOST_FIELDS
_DTYPE_NAMES = {number: name for name, number in tb.DTYPE_NUMBERS.items()}
#: As they are written: bfloat16 as float32, which TensorBoard can read.
_ENCODED_NUMBERS = {**tb.DTYPE_NUMBERS, "string": tb.DT_STRING, BFLOAT16: tb.DT_FLOAT}
_PNG = b"\x89PNG\r\n\x1a\n"
#: Fields of a tensor that hold its elements one by one: what a packed one is made of, None for varints.
_ELEMENTS: dict[int, str | None] = {
    tb.FLOAT_VAL: "<f4", tb.DOUBLE_VAL: "<f8", tb.SCOMPLEX_VAL: "<c8", tb.DCOMPLEX_VAL: "<c16",
    tb.INT_VAL: None, tb.INT64_VAL: None, tb.BOOL_VAL: None, tb.HALF_VAL: None, tb.UINT32_VAL: None,
    tb.UINT64_VAL: None,
}  # fmt: skip
#: Which of them a type has, if not `INT_VAL`.
_FIELD_OF = {
    "float32": tb.FLOAT_VAL, "float64": tb.DOUBLE_VAL, "int64": tb.INT64_VAL, "bool": tb.BOOL_VAL,
    "complex64": tb.SCOMPLEX_VAL, "complex128": tb.DCOMPLEX_VAL,
    "float16": tb.HALF_VAL, BFLOAT16: tb.HALF_VAL, "uint32": tb.UINT32_VAL, "uint64": tb.UINT64_VAL,
}  # fmt: skip


# ---------------------------------------------------------------- encode


def encode(tag: str, item: Item) -> wire.Pieces:
    """Return the `value` field of a summary for an item of any kind but a scalar, a graph or lineage."""
    if isinstance(item, MessageItem) and item.kind == SESSION_END:
        return encode_hparams(tb.HPARAMS_END, item.data)
    if isinstance(item, MessageItem):
        return _summary(tag, _text_fields(text_codec.decode(memoryview(item.data))))
    if isinstance(item, ArrayItem):
        item = finish(item)
    assert isinstance(item, ValueItem)
    return _summary(tag, _fields(item.value))


def encode_hparams(tag: str, content: bytes) -> wire.Pieces:
    """Return a value of the plugin for hyper-parameters, which is all in its metadata."""
    plugin: Value = {"plugin_name": tb.HPARAMS, "content": content}
    metadata: Value = {"plugin_data": plugin, "data_class": tb.DATA_CLASS_TENSOR}
    return _summary(tag, {"tensor": _NULL_TENSOR, "metadata": metadata})


def encode_text(tag: str, text: str) -> wire.Pieces:
    """Return a value that is one text."""
    array = np.empty((), object)
    array[()] = text
    return _summary(tag, _text_fields(Text(array)))


def _summary(tag: str, fields: dict[str, Value]) -> wire.Pieces:
    return _SUMMARY.pieces({"value": [{"tag": tag.encode("utf-8", "backslashreplace"), **fields}]})


@functools.cache
def _metadata(plugin: str) -> bytes:
    return _METADATA.encode(plugin_data={"plugin_name": plugin}, data_class=tb.DATA_CLASS_TENSOR)


def _fields(value: SummaryValue) -> dict[str, Value]:
    """Return the fields that hold a value."""
    if isinstance(value, Tensor):
        return {"tensor": _array(value.array, value.dtype), "metadata": _metadata(tb.TENSORS)}
    if isinstance(value, Image):
        return {"image": image_codec.encode(value)}
    if isinstance(value, Histogram):
        return _histogram_fields(value)
    assert isinstance(value, Text), value
    return _text_fields(value)


def _array(array: NDArray[Any], dtype: str) -> wire.Pieces:
    flat = np.ascontiguousarray(array).reshape(-1)
    flat = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    return _tensor_content(dtype, array.shape, flat.view(np.uint8).data if flat.size else b"")


def _tensor_content(dtype: str, shape: tuple[int, ...], data: wire.Buffer) -> wire.Pieces:
    """Return a `TensorProto` around the little-endian bytes of the values; those of bfloat16 are float32 here."""
    dims = b"".join(wire.delimited(tb.DIM, wire.integer(tb.DIM_SIZE, extent)) for extent in shape)
    pieces: wire.Pieces = [wire.integer(tb.DTYPE, _ENCODED_NUMBERS[dtype]) + wire.delimited(tb.SHAPE, dims)]
    return pieces + wire.delimited_pieces(tb.TENSOR_CONTENT, [data]) if len(data) else pieces


def _histogram_fields(value: Histogram) -> dict[str, Value]:
    right = value.left + value.width
    # A bucket ends where the next one begins, but for what adding its width has rounded.
    is_next = np.isclose(right[:-1], value.left[1:], rtol=1e-9, atol=0.0)
    right[:-1][is_next] = value.left[1:][is_next]
    rows = np.stack([value.left, right, value.counts.astype(np.float64)], axis=1)
    facts = histogram_codec.encode_facts(value)
    return {"tensor": _array(rows, "float64"), "metadata": _metadata(tb.HISTOGRAMS), "exact": facts}


def _text_fields(value: Text) -> dict[str, Value]:
    strings = _STRINGS.encode(string_val=text_codec.elements_of(value))
    content = [*_tensor_content("string", value.array.shape, b""), strings]
    return {"tensor": content, "metadata": _metadata(tb.TEXT)}


# ---------------------------------------------------------------- decode


def image(data: memoryview) -> Image:
    """Decode a `Summary.Image`, which is MindSpore's too; ours says how numbers became grey levels."""
    return image_codec.decode(data)


def histogram(data: memoryview) -> Histogram:
    """Decode a `HistogramProto`: its outer buckets reach to infinity, and here to the smallest and largest value."""
    message = _HISTOGRAM.decode(data)
    limits, counts = message.numbers("bucket_limit"), message.numbers("bucket")
    if len(limits) != len(counts) or len(limits) > _MOST_BUCKETS:
        raise CorruptMessage(
            f"a histogram has {len(limits)} bucket limits and {len(counts)} counts; at most {_MOST_BUCKETS} are read"
        )
    low, high = message.number("min"), message.number("max")
    with np.errstate(all="ignore"):
        edges = np.clip([-math.inf, *limits], low, high)
    return _histogram(edges[:-1], edges[1:], np.array(counts, np.float64), message.number("sum"), (low, high))


def histogram_of_tensor(data: memoryview) -> Histogram:
    """Decode a tensor of rows of left edge, right edge and count."""
    array = tensor(data).array
    if array.ndim != 2 or array.shape[1] != 3 or len(array) > _MOST_BUCKETS:
        raise CorruptMessage(
            f"a histogram is a tensor of shape {array.shape}; expected is (buckets, 3), at most {_MOST_BUCKETS} of them"
        )
    left, right, counts = array.astype(np.float64).T
    extent = (float(left[0]), float(right[-1])) if counts.any() else (math.nan, math.nan)
    return _histogram(left, right, counts, math.nan, extent)


def histogram_of_value(data: memoryview) -> Histogram:
    """Decode a `Summary.Value` of ours: the buckets of its tensor, and what else is recorded of the values."""
    message = _VALUE.decode(data)
    buckets = histogram_of_tensor(message.data("tensor"))
    facts = histogram_codec.decode(message.data("exact"))
    return replace(facts, left=buckets.left, width=buckets.width, counts=buckets.counts)


@np.errstate(all="ignore")
def _histogram(
    left: NDArray[Any], right: NDArray[Any], counts: NDArray[Any], total: float, extent: tuple[float, float]
) -> Histogram:
    if not (np.isfinite(counts).all() and (counts >= 0).all() and counts.sum() < 2.0**62):
        raise CorruptMessage("a bucket's count is no number of values")
    whole = np.rint(counts).astype(np.int64)
    width = np.maximum(right - left, 0.0)
    return Histogram(left.astype(np.float64), width, whole, int(whole.sum()), *extent, total)


def image_of_tensor(data: memoryview) -> Image:
    """Decode a tensor of strings: width, height, and a picture an element of a batch, of which the first is given."""
    strings, _ = _strings(data)
    try:
        width, height, picture = int(strings[0]), int(strings[1]), strings[2]
    except (IndexError, ValueError) as error:
        raise CorruptMessage(
            f"an image is a tensor of {len(strings)} strings; expected are width, height, file"
        ) from error
    return Image(picture, height, width, _channels(picture))


def _channels(picture: bytes) -> int:
    """Return the channels that the header of a PNG file names; 3 for any other."""
    if picture[:8] == _PNG and len(picture) > 25:
        return {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(picture[25], 3)
    return 3


def text(data: memoryview) -> Text:
    """Decode a tensor of strings; bytes that are not UTF-8 become surrogates."""
    strings, shape = _strings(data)
    array = np.empty(len(strings), object)
    array[:] = [string.decode("utf-8", "surrogateescape") for string in strings]
    return Text(array.reshape(_checked(shape, len(strings))))


def _strings(data: memoryview) -> tuple[list[bytes], list[int]]:
    message = _STRINGS.decode(data)
    dims = message.message("tensor_shape").messages("dim")
    return [bytes(string) for string in message.buffers("string_val")], [dim.integer("size") for dim in dims]


def number(data: memoryview) -> float:
    """Decode a tensor of one element."""
    array = tensor(data).array
    if array.size != 1:
        raise CorruptMessage(f"a scalar is a tensor of shape {array.shape}")
    return float(array.reshape(-1)[0])


def tensor(data: memoryview) -> Tensor:
    """Decode a `TensorProto` of any numeric type; the array may be a read-only view of `data`.

    One element may stand for all of a larger shape, within reason: a few bytes must not become gigabytes.
    """
    dtype_number, shape, content = 0, [0][:0], memoryview(b"")
    elements = _Elements()
    for field in wire.few_fields(data):
        if field[0] == tb.DTYPE:
            dtype_number = wire.as_int(field)
        elif field[0] == tb.SHAPE:
            shape = _shape(field)
        elif field[0] == tb.TENSOR_CONTENT:
            content = wire.as_bytes(field)
        elif field[0] in _ELEMENTS:
            elements.take(field)
    name = _DTYPE_NAMES.get(dtype_number)
    if name is None:
        raise CorruptMessage(
            f"a tensor has the data type {dtype_number}, which is none of {', '.join(tb.DTYPE_NUMBERS)}"
        )
    flat = _typed(name, content, elements)
    if flat.size == 1 and len(shape) <= _MAX_DIMS and 1 < math.prod(shape) <= _MOST_REPEATED:
        return Tensor(np.full(_checked(shape, math.prod(shape)), flat[0]), name)
    return Tensor(flat.reshape(_checked(shape, flat.size)), name)


def _typed(name: str, content: memoryview, elements: _Elements) -> NDArray[Any]:
    """Return the elements in the type that stands for the one named."""
    stored = "uint16" if name == BFLOAT16 else name
    if len(content):
        flat = _numbers(content, np.dtype(stored).newbyteorder("<"))
    else:
        numbers = elements.array(name)
        flat = _halves(numbers, stored) if name in ("float16", BFLOAT16) else _cast(numbers, stored)
    if name == BFLOAT16:
        return (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.astype(stored, copy=False)


def _halves(numbers: NDArray[Any], stored: str) -> NDArray[Any]:
    """Return numbers of 16 bits, which stand as integers; torch puts those of the same numbers as float32 there."""
    if not numbers.size or numbers.max() <= 0xFFFF:
        return _cast(numbers, "uint16").view(stored)
    singles = _cast(numbers, "uint32").view(np.float32)
    return singles.astype(np.float16) if stored == "float16" else (singles.view(np.uint32) >> 16).astype(np.uint16)


def _cast(numbers: NDArray[Any], stored: str) -> NDArray[Any]:
    """Return elements in their own type, all of which must hold them."""
    result = numbers.astype(stored)
    if result.dtype.kind in "iu" and result.dtype != np.uint64 and (result != numbers).any():
        raise CorruptMessage(f"a tensor of {stored} holds a number that is none")
    return result


class _Elements:
    """The elements of a tensor out of fields of their own, which must be of one kind."""

    def __init__(self) -> None:
        self._number = 0
        #: One packed field is used as it stands, several are joined.
        self._only: memoryview | None = None
        self._joined = bytearray()

    def take(self, field: wire.Field) -> None:
        """Take a field of elements, packed or of one element."""
        number, wire_type, content = field
        if self._number not in (0, number):
            raise CorruptMessage(f"a tensor has elements in the fields {self._number} and {number}")
        if _ELEMENTS[number] is None:
            self._join(_int64s(field))
        elif isinstance(content, int):
            raise CorruptMessage(f"field {number} has wire type {wire_type} where numbers are expected")
        elif self._number == 0:
            self._only = content
        else:
            self._join(content)
        self._number = number

    def _join(self, content: memoryview) -> None:
        only, self._only = self._only or b"", None
        if len(self._joined) + len(only) + len(content) > _MOST_JOINED_BYTES:
            raise CorruptMessage(f"more than {_MOST_JOINED_BYTES} bytes of a tensor do not stand in one piece")
        self._joined += only
        self._joined += content

    def array(self, name: str) -> NDArray[Any]:
        """Return all of them, as int64 or in the type of the field, which must be that of the type named."""
        if self._number == 0:
            return np.empty(0, np.float32)
        if self._number != _FIELD_OF.get(name, tb.INT_VAL):
            raise CorruptMessage(f"a tensor of {name} has its elements in field {self._number}")
        return _numbers(self._only if self._only is not None else self._joined, _ELEMENTS[self._number] or "<i8")


def _int64s(field: wire.Field) -> memoryview:
    """Return the varints of a field as int64 each."""
    number, wire_type, content = field
    if isinstance(content, int):
        return memoryview(content.to_bytes(8, "little"))
    if wire_type != wire.LENGTH_DELIMITED:
        raise CorruptMessage(f"field {number} has wire type {wire_type} where numbers are expected")
    array = np.frombuffer(content, np.uint8)
    count = int(np.count_nonzero(array < 0x80))
    if 8 * count > _MOST_JOINED_BYTES:
        raise CorruptMessage(f"{count} elements stand as varints; at most {_MOST_JOINED_BYTES // 8} are read")
    numbers, done, start = np.zeros(count, "<u8"), 0, 0
    while start < array.size:
        part = array[start : start + _PART_BYTES]
        ends = np.flatnonzero(part < 0x80)
        starts = np.append(0, ends[:-1] + 1)
        lengths = ends - starts[: ends.size] + 1
        if not ends.size or lengths.max() > _LONGEST_VARINT:
            raise CorruptMessage(f"a number behind byte {start} of {array.size} does not end")
        values = numbers[done : done + ends.size]
        for place in range(int(lengths.max())):
            has = lengths > place
            values[has] |= (part[starts[has] + place] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
        done, start = done + ends.size, start + int(ends[-1]) + 1
    return numbers.view(np.uint8).data


def _numbers(data: memoryview | bytes | bytearray, dtype: Any) -> NDArray[Any]:
    if len(data) % np.dtype(dtype).itemsize:
        raise CorruptMessage(f"{len(data)} bytes are no whole number of {np.dtype(dtype).name} values")
    return np.frombuffer(data, dtype)


def _shape(field: wire.Field) -> list[int]:
    shape: list[int] = []
    for dim in wire.fields(wire.as_bytes(field)):
        if dim[0] == tb.DIM:
            if len(shape) == _MAX_DIMS:
                raise CorruptMessage(f"a tensor has more than {_MAX_DIMS} dims")
            shape.append(0)
            for inner in wire.fields(wire.as_bytes(dim)):
                if inner[0] == tb.DIM_SIZE:
                    shape[-1] = wire.as_int(inner)
    return shape


def _checked(shape: list[int], elements: int) -> list[int]:
    if len(shape) > _MAX_DIMS or any(extent < 0 for extent in shape) or math.prod(shape) != elements:
        raise CorruptMessage(f"a tensor of dims {tuple(shape[:8])} holds {elements} elements")
    return shape
