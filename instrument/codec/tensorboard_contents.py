"""Values of TensorBoard's dialect, but for scalars.

Pictures are in the old style, which all readers know. Histograms are in the new one: of the old one TensorBoard's
readers in Python and in Rust make different buckets. Each value of the new style names its plugin, so that none depends
on another one. What neither style has stands in fields of ours, which other readers skip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import histogram, image, wire
from instrument.codec import tensorboard as tb
from instrument.codec.tensorboard_fields import tensor_content
from instrument.values import SESSION_END, Histogram, Image, Item, Tensor, Text

#: A `TensorProto` without elements, for values that are metadata only.
_NULL_TENSOR = wire.integer(tb.DTYPE, tb.DT_FLOAT) + wire.delimited(tb.SHAPE, wire.delimited(tb.DIM, b""))


def value(tag: str, item: Item) -> wire.Pieces:
    """The `value` field of a summary for a finished item, or for a tensor whose content is in pieces."""
    payload: Any = item.payload
    if item.kind == SESSION_END:
        return hparams(tb.HPARAMS_END, payload)
    name = wire.delimited(tb.TAG, tag.encode("utf-8", "backslashreplace"))
    return wire.delimited_pieces(tb.VALUE, [name, *_FIELDS[item.kind](payload)])


def hparams(tag: str, content: bytes) -> wire.Pieces:
    """A value of the plugin for hyper-parameters, which is all in its metadata."""
    named = wire.delimited(tb.TAG, tag.encode()) + wire.delimited(tb.TENSOR, _NULL_TENSOR)
    return [wire.delimited(tb.VALUE, named + _metadata(tb.HPARAMS, content))]


def one_text(tag: str, text: str) -> wire.Pieces:
    """A value that is one text."""
    array = np.empty((), object)
    array[()] = text
    return value(tag, Item("text", tag, Text(array)))


def _metadata(plugin: str, content: bytes = b"") -> bytes:
    named = wire.delimited(tb.PLUGIN_NAME, plugin.encode())
    data = named + (wire.delimited(tb.PLUGIN_CONTENT, content) if content else b"")
    data_class = wire.integer(tb.DATA_CLASS, tb.DATA_CLASS_TENSOR)
    return wire.delimited(tb.METADATA, wire.delimited(tb.PLUGIN_DATA, data) + data_class)


def _tensor(value: Tensor | wire.Pieces) -> wire.Pieces:
    content = value if isinstance(value, list) else _array(value.array, value.dtype)
    return [*wire.delimited_pieces(tb.TENSOR, content), _metadata(tb.TENSORS)]


def _array(array: NDArray[Any], dtype: str) -> wire.Pieces:
    flat = np.ascontiguousarray(array).reshape(-1)
    flat = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    return tensor_content(dtype, array.shape, flat.view(np.uint8).data if flat.size else b"")


def _image(value: Image) -> wire.Pieces:
    return wire.delimited_pieces(tb.IMAGE, image.encode(value))


def _histogram(value: Histogram) -> wire.Pieces:
    right = value.left + value.width
    # A bucket ends where the next one begins, but for what adding its width has rounded.
    is_next = np.isclose(right[:-1], value.left[1:], rtol=1e-9, atol=0.0)
    right[:-1][is_next] = value.left[1:][is_next]
    rows = np.stack([value.left, right, value.counts.astype(np.float64)], axis=1)
    content = wire.delimited_pieces(tb.TENSOR, _array(rows, "float64"))
    return [*content, _metadata(tb.HISTOGRAMS), wire.delimited(tb.EXACT, histogram.encode_facts(value))]


def _text(value: Text) -> wire.Pieces:
    elements = [str(one).encode("utf-8", "surrogateescape") for one in value.array.reshape(-1).tolist()]
    strings = b"".join(wire.delimited(tb.STRING_VAL, one) for one in elements)
    content = [*tensor_content("string", value.array.shape, b""), strings]
    return [*wire.delimited_pieces(tb.TENSOR, content), _metadata(tb.TEXT)]


_FIELDS: dict[str, Callable[[Any], wire.Pieces]] = {
    "tensor": _tensor, "image": _image, "histogram": _histogram, "text": _text,
}  # fmt: skip
