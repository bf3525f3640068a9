"""Turn points into rows: the columns of each kind, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from instrument.errors import CorruptMessage
from instrument.runs.points import Points, Scalars
from instrument.values import Graph, Histogram, Image, Landscape, Tensor, Text

#: Columns of every kind; their types are those of `TYPES`.
COMMON = {"tag": "text", "device": "int", "host": "text", "step": "int", "wall_time": "float", "superseded": "bool"}
_SIZED = {"values": "array"}
_HISTOGRAM = {"count": "int", "min": "float", "max": "float", "sum": "float"}
_HISTOGRAM |= dict.fromkeys(("nan_count", "positive_infinity_count", "negative_infinity_count"), "int")
#: Kind -> its own columns with their types: a list is of one number a bucket, an array has the shape beside it.
COLUMNS = {
    "scalar": {"value": "float"},
    "image": {"height": "int", "width": "int", "channels": "int", "mapping": "text", "data": "bytes"},
    "tensor": {"dtype": "text", "shape": "ints", "values": "array"},
    "histogram": {**_HISTOGRAM, "left": "floats", "width": "floats", "counts": "ints"},
    "text": {"shape": "ints", "values": "array"},
    "landscape": {"data": "bytes"},
    "graph": {"data": "bytes"},
}
_ROWS = 16384
_BATCH_BYTES = 32 << 20
_ROW_BYTES = 100


class Batch(NamedTuple):
    """Some points in columns of equal length, in the order of `columns(kind)`; None is a value that is missing."""

    rows: int
    columns: dict[str, Any]


def columns(kind: str) -> dict[str, str]:
    """Return the columns of a kind and their types; `error` says why a value could not be read."""
    return {**COMMON, **COLUMNS[kind], **({} if kind == "scalar" else {"error": "text"})}


def batches(points: Points) -> Iterator[Batch]:
    """Yield the points in batches of at most 16384 and some 32 MiB; a larger value is a batch by itself.

    Columns of numbers are arrays or lists, those of other values lists.
    """
    if isinstance(points, Scalars):
        for start in range(0, len(points), _ROWS):
            part = slice(start, start + _ROWS)
            yield Batch(len(points.step[part]), {**common(points, part), "value": points.value[part]})
    else:
        yield from _decoded(points)


def common(points: Points, part: slice) -> dict[str, Any]:
    """Return the columns that every kind has, of some points."""
    writers = [points.writers[index] for index in points.writer_index[part].tolist()]
    return {
        "tag": [points.tag] * len(writers),
        "device": [device for device, _ in writers],
        "host": [host for _, host in writers],
        "step": points.step[part],
        "wall_time": points.wall_time[part],
        "superseded": points.superseded[part],
    }


def _decoded(points: Points) -> Iterator[Batch]:
    start, values, size = 0, list[dict[str, Any]](), 0
    for index in range(len(points)):
        row = value(points, index)
        values.append(row)
        size += sum(_bytes(cell) for cell in row.values()) + _ROW_BYTES
        if size >= _BATCH_BYTES or len(values) == _ROWS or index == len(points) - 1:
            yield _batch(points, start, values)
            start, values, size = index + 1, [], 0


def _batch(points: Points, start: int, values: list[dict[str, Any]]) -> Batch:
    own = [name for name in columns(points.kind) if name not in COMMON]
    own_columns = {name: [row.get(name) for row in values] for name in own}
    return Batch(len(values), {**common(points, slice(start, start + len(values))), **own_columns})


def _bytes(cell: Any) -> int:
    return cell.nbytes if isinstance(cell, np.ndarray) else len(cell) if isinstance(cell, (bytes, str)) else 8


def value(points: Points, index: int) -> dict[str, Any]:
    """Return the columns of the kind's own for the point at `index`; only `error` if the value is damaged."""
    try:
        decoded = points.decode(index)
    except CorruptMessage as error:
        return {"error": str(error)}
    return _VALUES[points.kind](decoded)


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"dtype": tensor.dtype, "shape": list(tensor.array.shape), "values": tensor.array}


def _text(text: Text) -> dict[str, Any]:
    return {"shape": list(text.array.shape), "values": text.array}


def _fields(kind: str) -> Callable[[Histogram | Image | Graph | Landscape], dict[str, Any]]:
    return lambda decoded: {name: getattr(decoded, name) for name in COLUMNS[kind]}


_VALUES: dict[str, Callable[[Any], dict[str, Any]]] = {
    **{kind: _fields(kind) for kind in ("image", "histogram", "landscape", "graph")},
    "tensor": _tensor,
    "text": _text,
    "scalar": lambda number: {"value": number},
}
