"""Parquet, by pyarrow: one file a kind, with the columns of `rows`, in row groups of one batch.

An array is its bytes in C order, little endian, in `values`, and NumPy's name for their dtype stands beside it:
`numpy.frombuffer(row.values, row.values_dtype).reshape(row.shape)`. Texts are lists of texts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from instrument.errors import InstrumentError
from instrument.formats import rows
from instrument.formats.job import Job, Written


def export(job: Job) -> Iterator[Written]:
    """Write `KIND.parquet` for each kind.

    Raises:
        InstrumentError: pyarrow cannot be imported.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:  # an installed release from 26 on refuses NumPy 1
        raise InstrumentError(
            f"export to parquet needs pyarrow, which cannot be imported ({error}): pip install 'pyarrow<26'"
        ) from None
    for kind, tags in job.tags.items():
        types = _types(kind, pyarrow)
        schema = pyarrow.schema(types)
        count = 0
        with job.folder.binary(f"{kind}.parquet") as file, parquet.ParquetWriter(file, schema) as writer:
            for tag in tags:
                for batch in rows.batches(job.points(kind, tag)):
                    count += batch.rows
                    columns = _columns(kind, batch.columns)
                    arrays = [pyarrow.array(columns[name], types[name]) for name in types]
                    writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
        yield Written(job.folder.join(f"{kind}.parquet"), kind, "", count)


def _types(kind: str, pyarrow: Any) -> dict[str, Any]:
    """Name -> type of Arrow."""
    arrow = {
        "text": pyarrow.string(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "bytes": pyarrow.large_binary(),
        "ints": pyarrow.list_(pyarrow.int64()),
        "floats": pyarrow.list_(pyarrow.float64()),
        "array": pyarrow.list_(pyarrow.string()) if kind == "text" else pyarrow.large_binary(),
    }
    types = {name: arrow[form] for name, form in rows.columns(kind).items()}
    if kind == "tensor":
        types["values_dtype"] = pyarrow.string()
    return types


def _columns(kind: str, columns: dict[str, Any]) -> dict[str, Any]:
    if kind == "text":
        texts = [None if array is None else list(map(str, array.reshape(-1).tolist())) for array in columns["values"]]
        return {**columns, "values": texts}
    if kind != "tensor":
        return columns
    arrays = [None if array is None else _little_endian(array) for array in columns["values"]]
    dtypes = [None if array is None else array.dtype.str for array in arrays]
    return {
        **columns,
        "values": [None if array is None else array.tobytes() for array in arrays],
        "values_dtype": dtypes,
    }


def _little_endian(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    is_big = array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big")
    return array.astype(array.dtype.newbyteorder("<")) if is_big else array
