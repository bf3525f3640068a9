"""Encode a landscape for other programs: CSV, NPZ, and VTP, which ParaView opens."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from instrument.facts.surface import Floats, checkpoints, holes, is_line
from instrument.values import LossSurface

_VTK_TYPES = {"float64": "Float64", "int64": "Int64"}
#: The `number` of a VTP point that is none of the path.
_NO_NUMBER = -1


def to_csv(surface: LossSurface) -> bytes:
    """Return a line for each point: `part` is grid, path or convergence; what is not finite stands as nan, inf or -inf.

    The points of the grid come row by row, with a column for each metric. `true_loss` is that of the checkpoint itself.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("part", "number", "x", "y", "loss", "true_loss", "unexplained", *_metrics(surface)))
    x, y = np.meshgrid(surface.x, surface.y)
    columns = [values.ravel().tolist() for values in (x, y, surface.z, *surface.metrics.values())]
    writer.writerows(("grid", "", *row[:3], "", "", *row[3:]) for row in zip(*columns, strict=True))
    none = [""] * len(surface.metrics)
    writer.writerows(("path", *checkpoint, *none) for checkpoint in checkpoints(surface))
    if surface.convergence.size:
        writer.writerow(("convergence", "", *surface.convergence.tolist(), "", "", *none))
    return text.getvalue().encode()


def to_npz(surface: LossSurface) -> bytes:
    """Return arrays under names: `grid_x`, `grid_y`, `grid_z` (rows follow y), and `metric_NAME` of the same shape.

    With a path also `numbers`, `path_x`, `path_y` and `path_z` (the loss on the plane); where they are known
    `true_loss`, `unexplained`, `explained_ratio` and `convergence_point` (x, y, loss). `metadata` is JSON text.
    """
    arrays: dict[str, NDArray[np.generic]] = {"grid_x": surface.x, "grid_y": surface.y, "grid_z": surface.z}
    arrays |= _metrics(surface)
    if surface.numbers.size:
        arrays |= {"numbers": surface.numbers, "path_x": surface.path[:, 0], "path_y": surface.path[:, 1]}
        arrays |= {"path_z": surface.path_loss}
    optional = {"true_loss": surface.true_loss, "unexplained": surface.unexplained}
    optional |= {"explained_ratio": surface.explained, "convergence_point": surface.convergence}
    arrays |= {name: values for name, values in optional.items() if not np.isnan(values).all()}
    metadata = {"tag": surface.tag, **surface.metadata}
    arrays["metadata"] = np.array(json.dumps(metadata, ensure_ascii=False, default=str))
    file = io.BytesIO()
    named: dict[str, Any] = dict(arrays)  # NumPy 1.26 would take allow_pickle for the name of an array
    np.savez_compressed(file, **named)
    return file.getvalue()


def _metrics(surface: LossSurface) -> dict[str, Floats]:
    return {f"metric_{name}": values for name, values in surface.metrics.items()}


def to_vtp(surface: LossSurface) -> bytes:
    """Return VTK PolyData: the surface as quadrilaterals, the path as vertices and as lines between them.

    Points are those of the grid and of the path whose loss is finite, at (x, y, loss). Their `loss` is repeated as a
    value; `number` is the step or epoch of a checkpoint, and -1 on the grid; `true_loss` is NaN there.
    `metric_NAME` are values of the grid only.
    """
    grid, faces, edges = _grid(surface)
    path, numbers, true_loss, segments = _path(surface)
    points = np.concatenate([grid, path])
    offset = len(grid)
    data: dict[str, NDArray[np.generic]] = {
        "loss": points[:, 2],
        "number": np.concatenate([np.full(offset, _NO_NUMBER), numbers]),
        "true_loss": np.concatenate([np.full(offset, np.nan), true_loss]),
    }
    none = np.full(len(path), np.nan)
    metrics = {name: np.concatenate([values[~holes(surface)], none]) for name, values in _metrics(surface).items()}
    cells = {
        "Verts": np.arange(offset, len(points))[:, None],
        "Lines": np.concatenate([edges, segments + offset]),
        "Strips": np.empty((0, 1), np.int64),
        "Polys": faces,
    }
    return "\n".join(_vtp(surface.tag, points, data | metrics, cells)).encode()


def _grid(surface: LossSurface) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Return points that are no holes (n, 3), faces without a hole at a corner (n, 4) and edges of a line (n, 2)."""
    is_point = ~holes(surface)
    x, y = np.meshgrid(surface.x, surface.y)
    points = np.stack([x[is_point], y[is_point], surface.z[is_point]], axis=1)
    index = np.full(surface.z.shape, -1)
    index[is_point] = np.arange(len(points))
    corners = np.stack([index[:-1, :-1], index[:-1, 1:], index[1:, 1:], index[1:, :-1]], axis=-1).reshape(-1, 4)
    edges = np.stack([index[0, :-1], index[0, 1:]], axis=-1)[: len(surface.x) * is_line(surface)]
    return points, corners[(corners >= 0).all(axis=1)], edges[(edges >= 0).all(axis=1)]


def _path(surface: LossSurface) -> tuple[Floats, NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Return points of the path (n, 3), their numbers and losses, and its pieces (n, 2), which pass no hole."""
    points = np.column_stack([surface.path, surface.path_loss])
    is_point = np.asarray(np.isfinite(points).all(axis=1))
    index = np.cumsum(is_point) - 1
    is_piece = is_point[:-1] & is_point[1:]
    pieces = np.stack([index[:-1][is_piece], index[1:][is_piece]], axis=1)
    return points[is_point], surface.numbers[is_point], surface.true_loss[is_point], pieces


def _vtp(
    tag: str, points: Floats, data: dict[str, NDArray[np.generic]], cells: dict[str, NDArray[np.int64]]
) -> Iterator[str]:
    counts = " ".join(f'NumberOf{name}="{len(ends)}"' for name, ends in cells.items())
    yield '<?xml version="1.0"?>'
    yield '<VTKFile type="PolyData" version="1.0" byte_order="LittleEndian" header_type="UInt64">'
    name = f'<Array type="String" Name="tag" NumberOfTuples="1" format="ascii">{_codes(tag)}</Array>'
    yield f"<PolyData><FieldData>{name}</FieldData>"
    yield f'<Piece NumberOfPoints="{len(points)}" {counts}>'
    yield '<PointData Scalars="loss">'
    yield from (_array(name, values) for name, values in data.items())
    yield "</PointData>"
    yield f"<Points>{_array('Points', points)}</Points>"
    for name, ends in cells.items():
        offsets = ends.shape[1] * np.arange(1, len(ends) + 1)
        yield f"<{name}>{_array('connectivity', ends.ravel())}{_array('offsets', offsets)}</{name}>"
    yield "</Piece></PolyData></VTKFile>\n"


def _codes(text: str) -> str:
    """Return a string in VTK's ASCII form: the numbers of its bytes, and a 0."""
    return " ".join(map(str, [*text.encode(), 0]))


def _array(name: str, values: NDArray[np.generic]) -> str:
    """Return an array in the binary form, which has a NaN: size in bytes and data, in base64."""
    data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()
    content = base64.b64encode(np.array([len(data)], "<u8").tobytes() + data).decode()
    components = "" if values.ndim == 1 else f' NumberOfComponents="{values.shape[1]}"'
    kind = _VTK_TYPES[values.dtype.name]
    return f'<DataArray type="{kind}" Name={quoteattr(name)}{components} format="binary">{content}</DataArray>'
