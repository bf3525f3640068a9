"""CSV and JSON: the rules for cells and values that all outputs share, and the export of one file a kind.

JSON has no NaN and no lone surrogates, a spreadsheet runs some texts as formulas, and a row may hold dictionaries. The
rules for these stand here once, so that the same value is the same text wherever it is written.

An exported file has the columns of `rows`. Numbers have all their digits. In CSV a value that is missing is empty, in
JSON null; NaN and the infinities are the words that JSON's readers in Python take. Arrays are lists in C order beside
their shape, bytes are base64.
"""

from __future__ import annotations

import base64
import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.analyse.layout import formula_safe
from instrument.formats import rows
from instrument.formats.job import Job, Written

#: Elements of an array that are text at a time.
_PIECE = 8192


def plain(value: object) -> object:
    """Return the value for standard JSON, which has no word for NaN and the infinities: they become texts.

    A surrogate stands for a byte of a name that is not UTF-8. JSON has no character for it: it becomes `\\udcXX`.
    """
    if isinstance(value, dict):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def csv_cell(value: object) -> object:
    """Return what the csv module takes: floats with all digits, NaN and the infinities in words, nothing for None.

    A text that a spreadsheet would run as a formula begins with an apostrophe; lists and dictionaries are JSON.
    """
    if isinstance(value, str):
        return formula_safe(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return value if math.isfinite(value) else plain(value)
    return json.dumps(plain(value), allow_nan=False) if isinstance(value, (list, tuple, dict)) else value


def flatten_row(row: Mapping[str, object]) -> dict[str, object]:
    """Return the row with the entries of its dictionaries, at any depth, under names with dots between."""
    return dict(_leaves(row))


def _leaves(row: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def write_csv(file: IO[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows of cells as CSV, with the line ends of Unix."""
    csv.writer(file, lineterminator="\n").writerows([csv_cell(value) for value in row] for row in rows)


# ---------------------------------------------------------------- files of a run


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
    cell: Callable[[object], str]
    array: Callable[[NDArray[np.generic]], Iterator[str]]


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


def _plain(column: rows.Column) -> list[object]:
    """Return a column as Python's own values: NumPy 2 writes its numbers as `np.float64(0.5)`."""
    return column.tolist() if isinstance(column, np.ndarray) else [_python(value) for value in column]


def _texts(column: rows.Column, cell: Callable[[object], str]) -> list[str]:
    """Return the texts of a column of numbers or texts; equal texts, which most columns hold, are made once."""
    if isinstance(column, np.ndarray):
        is_plain = column.dtype.kind in "iu" or (column.dtype.kind == "f" and bool(np.isfinite(column).all()))
        return list(map(repr if is_plain else cell, column.tolist()))
    values = _plain(column)
    return [cell(values[0])] * len(values) if len(set(values)) == 1 else list(map(cell, values))


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(plain(value))
    text = str(csv_cell(_base64(value) if isinstance(value, bytes) else _python(value)))
    return '"' + text.replace('"', '""') + '"' if any(char in text for char in ',"\r\n') else text


def _csv_array(array: NDArray[np.generic]) -> Iterator[str]:
    yield '"['
    yield from (piece.replace('"', '""') for piece in _pieces(array))
    yield ']"'


def _json_cell(value: object) -> str:
    return json.dumps(_base64(value) if isinstance(value, bytes) else plain(_python(value)), allow_nan=False)


def _json_array(array: NDArray[np.generic]) -> Iterator[str]:
    yield "["
    yield from _pieces(array)
    yield "]"


def _python(value: object) -> object:
    """Return a number of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _pieces(array: NDArray[np.generic]) -> Iterator[str]:
    """Yield the elements of an array in C order, as they stand between the brackets of a JSON list."""
    for start in range(0, array.size, _PIECE):
        part = array.flat[start : start + _PIECE]
        is_plain = part.dtype.kind in "biu" or (part.dtype.kind == "f" and bool(np.isfinite(part).all()))
        values = part.tolist() if is_plain else [_element(element) for element in part.tolist()]
        yield (", " if start else "") + json.dumps(values, allow_nan=False)[1:-1]


def _element(value: object) -> object:
    """Return a number or a text; a complex number is a text, as Python writes it."""
    return plain(value) if isinstance(value, (float, int, str)) else str(value)
