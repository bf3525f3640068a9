"""Turn points into rows: the columns of each kind, and batches of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.errors import CorruptMessage
from instrument.runs.points import Points, Scalars
from instrument.values import Tensor, Text

#: The values of a column: numbers as an array or a list, others as a list.
Column = NDArray[np.generic] | Sequence[object]

#: Columns of every kind; their types are those of `TYPES`.
COMMON = {"tag": "text", "device": "int", "host": "text", "step": "int", "wall_time": "float", "superseded": "bool"}
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
    columns: dict[str, Column]


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


def common(points: Points, part: slice) -> dict[str, Column]:
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
    own = [name for name in columns(points.kind) if name not in COMMON]
    start, values, size = 0, list[dict[str, object]](), 0
    for index in range(len(points)):
        row = _value(points, index)
        values.append(row)
        size += sum(map(_bytes, row.values())) + _ROW_BYTES
        if size >= _BATCH_BYTES or len(values) == _ROWS or index == len(points) - 1:
            own_columns = {name: [row.get(name) for row in values] for name in own}
            yield Batch(len(values), {**common(points, slice(start, index + 1)), **own_columns})
            start, values, size = index + 1, [], 0


def _bytes(cell: object) -> int:
    return cell.nbytes if isinstance(cell, np.ndarray) else len(cell) if isinstance(cell, (bytes, str)) else 8


def _value(points: Points, index: int) -> dict[str, object]:
    """Return the columns of the kind's own for the point at `index`; only `error` if the value is damaged."""
    try:
        decoded = points.decode(index)
    except CorruptMessage as error:
        return {"error": str(error)}
    if isinstance(decoded, (Tensor, Text)):
        dtype = {"dtype": decoded.dtype} if isinstance(decoded, Tensor) else {}
        return {**dtype, "shape": list(decoded.array.shape), "values": decoded.array}
    return {name: getattr(decoded, name) for name in COLUMNS[points.kind]}
