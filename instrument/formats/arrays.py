"""NumPy arrays, and pictures as PNG files.

NumPy: `scalar/TAG.npy` has a row a point, with named fields. So has `KIND/TAG/points.npy` of the kinds whose values
are arrays, which stand beside it in `STEP.npy`.

A tensor is the array that was recorded (bfloat16 as float32, which holds it exactly), an image its pixels as uint8
(height, width, channels), a histogram its buckets with the fields left, width and counts. The field `file` of a row is
the name of its array, and empty if the value is damaged.

PNG: `TAG/STEP.png`. A picture that is a PNG already is kept byte for byte, another one is decoded.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import image
from instrument.errors import CorruptMessage
from instrument.formats import rows
from instrument.formats.job import Job, Written, safe_name
from instrument.runs.points import Points, Scalars
from instrument.values import Histogram, Image

PNG = b"\x89PNG\r\n\x1a\n"
#: Limit of a decoded picture: an export decodes all of them, one after the other.
_PICTURE_BYTES = 1 << 30
_BUCKETS = ("left", "width", "counts")
_DTYPES = {"int": "<i8", "float": "<f8", "bool": "?"}


def export(job: Job) -> Iterator[Written]:
    """Write the kinds that are arrays or numbers as NumPy files."""
    for kind, tags in job.tags.items():
        if kind != "scalar" and kind not in _ARRAYS:
            job.leave_out(kind, "they are no arrays; csv, json and parquet hold them")
            continue
        for tag in tags:
            points = job.points(kind, tag)
            if isinstance(points, Scalars):
                columns = {**rows.common(points, slice(None)), "value": points.value}
                table, path = _table(columns), [kind, f"{safe_name(tag)}.npy"]
            else:
                table, path = _values(job, points), [kind, safe_name(tag), "points.npy"]
            with job.folder.binary(*path) as file:
                np.save(file, table, allow_pickle=False)
            yield Written(job.folder.join(*path), kind, tag, len(table))


def _file_names(points: Points, ending: str) -> Iterator[str]:
    """Yield a file name for each point: its step, and from the second of a step on a number behind it."""
    previous, number = None, 1
    for step in points.step.tolist():
        number = number + 1 if step == previous else 1
        previous = step
        yield f"{step}{'' if number == 1 else f'~{number}'}{ending}"


def _values(job: Job, points: Points) -> NDArray[np.generic]:
    """Write the array of each point; return the table of the points."""
    kind, folder = points.kind, safe_name(points.tag)
    own = {name: _DTYPES[form] for name, form in rows.COLUMNS[kind].items() if form in _DTYPES}
    cells: dict[str, list[Any]] = {name: [] for name in own}
    files = []
    for index, name in enumerate(_file_names(points, ".npy")):
        try:
            value = points.decode(index)
            array = _ARRAYS[kind](value)
        except CorruptMessage as error:
            job.left_out.append(str(error))
            value, name = None, ""
        else:
            with job.folder.binary(kind, folder, name) as file:
                np.save(file, array, allow_pickle=False)
        files.append(name)
        for column, dtype in own.items():
            cells[column].append(getattr(value, column, np.nan if dtype == "<f8" else -1))
    arrays = {name: np.array(values, own[name]) for name, values in cells.items()}
    return _table({**rows.common(points, slice(None)), **arrays, "file": files})


def _table(columns: dict[str, rows.Column]) -> NDArray[np.generic]:
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    table = np.empty(len(arrays["step"]), [(name, array.dtype) for name, array in arrays.items()])
    for name, array in arrays.items():
        table[name] = array
    return table


def _buckets(histogram: Histogram) -> NDArray[np.generic]:
    table = np.empty(len(histogram.left), [(name, getattr(histogram, name).dtype) for name in _BUCKETS])
    for name in _BUCKETS:
        table[name] = getattr(histogram, name)
    return table


_ARRAYS: dict[str, Callable[[Any], NDArray[np.generic]]] = {
    "tensor": lambda tensor: np.ascontiguousarray(tensor.array).reshape(tensor.array.shape),
    "image": lambda picture: image.pixels(picture, _PICTURE_BYTES),
    "histogram": _buckets,
}


# ---------------------------------------------------------------- pictures


def export_pictures(job: Job) -> Iterator[Written]:
    """Write each image as a PNG file."""
    for kind, tags in job.tags.items():
        if kind != "image":
            job.leave_out(kind, "they are no pictures")
            continue
        for tag in tags:
            job.on_tag(tag)
            points = job.run.images(tag, job.superseded)
            count = 0
            for index, name in enumerate(_file_names(points, ".png")):
                try:
                    data = png(points.decode(index))
                except CorruptMessage as error:
                    job.left_out.append(str(error))
                    continue
                with job.folder.binary(safe_name(tag), name) as file:
                    file.write(data)
                count += 1
            yield Written(job.folder.join(safe_name(tag)), kind, tag, count)


def png(picture: Image) -> bytes:
    """Return a picture as a PNG file.

    Raises:
        CorruptMessage: it cannot be decoded.
    """
    if picture.data.startswith(PNG):
        return picture.data
    from PIL import Image as pillow

    pixels = image.pixels(picture, _PICTURE_BYTES)
    file = io.BytesIO()
    pillow.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, format="PNG")
    return file.getvalue()
