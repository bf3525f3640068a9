"""CSV and JSON: one file a kind, with the columns of `rows`.

Numbers have all their digits. In CSV a value that is missing is empty, in JSON null; NaN and the infinities are the
words that JSON's readers in Python take. Arrays are lists in C order beside their shape, bytes are base64.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.facts.encoding import csv_cell, plain
from instrument.show.formats import rows
from instrument.show.formats.job import Job, Written

#: Elements of an array that are text at a time.
_PIECE = 8192


def export(job: Job) -> Iterator[Written]:
    """Write `KIND.csv` or `KIND.json` for each kind."""
    for kind, tags in job.tags.items():
        form = _csv(kind) if job.to == "csv" else _json(kind)
        series = (job.points(kind, tag) for tag in tags)
        name = f"{kind}.{job.to}"
        with job.folder.text(name) as file:
            count = _write(file, form, (batch for points in series for batch in rows.batches(points)))
        yield Written(job.folder.join(name), kind, "", count)


class _Form(NamedTuple):
    """How a file begins and ends, what stands between two rows, a row with %s for each cell, and texts for cells."""

    head: str
    between: str
    tail: str
    row: str
    cell: Callable[[Any], str]
    array: Callable[[NDArray[Any]], Iterator[str]]


def _csv(kind: str) -> _Form:
    names = list(rows.columns(kind))
    return _Form(",".join(names) + "\n", "\n", "\n", ",".join(["%s"] * len(names)), _csv_cell, _csv_array)


def _json(kind: str) -> _Form:
    row = ", ".join(f"{json.dumps(name)}: %s" for name in rows.columns(kind))
    return _Form("[\n", ",\n", "\n]\n", f"{{{row}}}", _json_cell, _json_array)


def _write(file: IO[str], form: _Form, batches: Iterable[rows.Batch]) -> int:
    count = 0
    for batch in batches:
        file.write(form.between if count else form.head)
        count += batch.rows
        _write_batch(file, form, batch)
    file.write(form.tail)
    return count


def _write_batch(file: IO[str], form: _Form, batch: rows.Batch) -> None:
    arrays = [name for name, column in batch.columns.items() if any(isinstance(cell, np.ndarray) for cell in column)]
    if not arrays:
        texts = [_texts(column, form.cell) for column in batch.columns.values()]
        file.write(form.between.join([form.row % row for row in zip(*texts, strict=True)]))
        return
    between = form.row.split("%s")
    columns = [_plain(column) for column in batch.columns.values()]
    for index, row in enumerate(zip(*columns, strict=True)):
        file.write(form.between if index else "")
        for before, value in zip(between, row, strict=False):
            file.write(before)
            file.writelines(form.array(value) if isinstance(value, np.ndarray) else [form.cell(value)])
        file.write(between[-1])


def _plain(column: Any) -> list[Any]:
    """Return a column as Python's own values: NumPy 2 writes its numbers as `np.float64(0.5)`."""
    return column.tolist() if isinstance(column, np.ndarray) else [_python(value) for value in column]


def _texts(column: Any, cell: Callable[[Any], str]) -> list[str]:
    """Return the texts of a column of numbers or texts; equal texts, which most columns hold, are made once."""
    if isinstance(column, np.ndarray):
        is_plain = column.dtype.kind in "iu" or (column.dtype.kind == "f" and bool(np.isfinite(column).all()))
        return list(map(repr if is_plain else cell, column.tolist()))
    values = _plain(column)
    return [cell(values[0])] * len(values) if len(set(values)) == 1 else list(map(cell, values))


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(plain(value))
    text = str(csv_cell(_base64(value) if isinstance(value, bytes) else _python(value)))
    return '"' + text.replace('"', '""') + '"' if any(char in text for char in ',"\r\n') else text


def _csv_array(array: NDArray[Any]) -> Iterator[str]:
    yield '"['
    yield from (piece.replace('"', '""') for piece in _pieces(array))
    yield ']"'


def _json_cell(value: Any) -> str:
    return json.dumps(_base64(value) if isinstance(value, bytes) else plain(_python(value)), allow_nan=False)


def _json_array(array: NDArray[Any]) -> Iterator[str]:
    yield "["
    yield from _pieces(array)
    yield "]"


def _python(value: Any) -> Any:
    """Return a number of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _pieces(array: NDArray[Any]) -> Iterator[str]:
    """Yield the elements of an array in C order, as they stand between the brackets of a JSON list."""
    for start in range(0, array.size, _PIECE):
        part = array.flat[start : start + _PIECE]
        is_plain = part.dtype.kind in "biu" or (part.dtype.kind == "f" and bool(np.isfinite(part).all()))
        values = part.tolist() if is_plain else [_element(element) for element in part.tolist()]
        yield (", " if start else "") + json.dumps(values, allow_nan=False)[1:-1]


def _element(value: Any) -> Any:
    """Return a number or a text; a complex number is a text, as Python writes it."""
    return plain(value) if isinstance(value, (float, int, str)) else str(value)
