"""Loss landscapes: `LossLandscape`, kept as the serialised message, and the same as arrays.

MindSpore's message has room for the grid, the path and three words about them. What else is known about a landscape
stands in two fields of ours, which other readers skip: `DETAILS`, JSON text, and `ARRAYS`, named tensors. A tensor
carries its float64 exactly beside the float32 that MindInsight reads (`codec.tensor`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import tensor, wire
from instrument.errors import CorruptMessage
from instrument.values import Landscape, LossSurface, Tensor

NUMBER = 10
GRID, LOSS_PATH, METADATA, CONVERGENCE, DETAILS, ARRAYS = 1, 2, 3, 4, 100, 101
_X, _Y, _Z = 1, 2, 3
_INTERVALS, _POINTS = 1, 2
_DECOMPOSITION, _UNIT, _STEP_PER_EPOCH = 1, 2, 3
_NAME, _VALUES = 1, 2
#: Kept in the fields that MindSpore has for them.
_COMMON = ("decomposition", "unit", "step_per_epoch")
#: A landscape has fewer fields, and shorter details.
_MOST_ARRAYS, _MOST_DETAILS_BYTES = 1000, 1 << 20
#: What precedes the name of a metric in `ARRAYS`.
_METRIC = "metric/"

_Floats = NDArray[np.float64]


def encode(data: bytes) -> wire.Pieces:
    """The content of the field: the serialised message itself."""
    return [data]


def decode(data: memoryview) -> Landscape:
    return Landscape(bytes(data))


# ---------------------------------------------------------------- arrays -> message


def from_surface(surface: LossSurface) -> bytes:
    """The message that holds all of a surface but its tag. Its metadata must be what JSON can hold."""
    pieces = wire.delimited_pieces(GRID, _point(surface.x, surface.y, surface.z))
    if surface.numbers.size:
        path = _point(surface.path[:, 0], surface.path[:, 1], surface.path_loss)
        numbers = b"".join(wire.integer(_INTERVALS, int(number)) for number in surface.numbers)
        pieces += wire.delimited_pieces(LOSS_PATH, [numbers, *wire.delimited_pieces(_POINTS, path)])
    pieces.append(wire.delimited(METADATA, _metadata(surface.metadata)))
    if surface.convergence.size:
        pieces += wire.delimited_pieces(CONVERGENCE, _point(*surface.convergence.reshape(3, 1)))
    own = {name: value for name, value in surface.metadata.items() if name not in _COMMON}
    pieces.append(wire.delimited(DETAILS, json.dumps(own, ensure_ascii=False).encode()))
    for name, values in _own_arrays(surface).items():
        pieces += wire.delimited_pieces(
            ARRAYS, [wire.delimited(_NAME, name.encode()), *wire.delimited_pieces(_VALUES, _tensor(values))]
        )
    return b"".join(pieces)


def _own_arrays(surface: LossSurface) -> dict[str, _Floats]:
    arrays = {"explained": surface.explained}
    if surface.numbers.size:
        arrays |= {"true_loss": surface.true_loss, "unexplained": surface.unexplained}
    return arrays | {_METRIC + name: values for name, values in surface.metrics.items()}


def _tensor(values: _Floats) -> wire.Pieces:
    return tensor.encode(Tensor(np.asarray(values, np.float64), "float64"))


def _point(x: _Floats, y: _Floats, z: _Floats) -> wire.Pieces:
    pieces: wire.Pieces = []
    for number, values in ((_X, x), (_Y, y), (_Z, z)):
        pieces += wire.delimited_pieces(number, _tensor(values))
    return pieces


def _metadata(metadata: Mapping[str, Any]) -> bytes:
    text = wire.delimited(_DECOMPOSITION, str(metadata.get("decomposition", "")).encode())
    text += wire.delimited(_UNIT, str(metadata.get("unit", "step")).encode())
    return text + wire.integer(_STEP_PER_EPOCH, int(metadata.get("step_per_epoch", 0)))


# ---------------------------------------------------------------- message -> arrays


def to_surface(landscape: Landscape, tag: str) -> LossSurface:
    """The arrays of a landscape, ours or MindSpore's; what the message does not hold is empty, or NaN.

    Raises:
        CorruptMessage: it is no landscape, or its arrays do not fit together.
    """
    parts: dict[int, memoryview] = {}
    arrays: dict[str, _Floats] = {}
    for field in wire.few_fields(memoryview(landscape.data), _MOST_ARRAYS):
        if field[0] == ARRAYS:
            name, values = _named(wire.as_bytes(field))
            arrays[name] = values
        elif field[0] in (GRID, LOSS_PATH, METADATA, CONVERGENCE, DETAILS):
            parts[field[0]] = wire.as_bytes(field)
    if GRID not in parts:
        raise CorruptMessage("a landscape has no grid")
    x, y, z = _read_point(parts[GRID])
    z = z.reshape(len(y), len(x)) if z.size == y.size * x.size else z
    numbers, path, path_loss = _read_path(parts.get(LOSS_PATH, memoryview(b"")))
    unknown = np.full(len(numbers), np.nan)
    metrics = {name.removeprefix(_METRIC): values for name, values in arrays.items() if name.startswith(_METRIC)}
    metadata = {**_read_metadata(parts.get(METADATA)), **_read_details(parts.get(DETAILS))}
    convergence = parts.get(CONVERGENCE)
    surface = LossSurface(
        tag, x, y, z, numbers, path, path_loss, arrays.get("true_loss", unknown), arrays.get("unexplained", unknown),
        arrays.get("explained", np.empty(0)),
        np.empty(0) if convergence is None else np.concatenate([one.reshape(-1) for one in _read_point(convergence)]),
        metrics, metadata,
    )  # fmt: skip
    _check(surface)
    return surface


def _check(surface: LossSurface) -> None:
    grid, count = (len(surface.y), len(surface.x)), len(surface.numbers)
    wrong = [name for name, values in {"z": surface.z, **surface.metrics}.items() if values.shape != grid]
    columns = {"loss_path": surface.path_loss, "true_loss": surface.true_loss, "unexplained": surface.unexplained}
    wrong += [name for name, values in columns.items() if values.shape != (count,)]
    wrong += ["convergence_point"] * (surface.convergence.size not in (0, 3))
    if wrong or 0 in grid:
        raise CorruptMessage(
            f"a landscape of {grid[1]} x {grid[0]} points and {count} checkpoints has {', '.join(wrong) or 'no points'}"
            " of another size"
        )


def _named(data: memoryview) -> tuple[str, _Floats]:
    name, values = "", np.empty(0)
    for field in wire.fields(data):
        if field[0] == _NAME:
            name = wire.as_text(field)
        elif field[0] == _VALUES:
            values = _read_tensor(wire.as_bytes(field))
    return name, values


def _read_tensor(data: memoryview) -> _Floats:
    return np.array(tensor.decode(data).array, np.float64)


def _read_point(data: memoryview) -> tuple[_Floats, _Floats, _Floats]:
    found = {field[0]: _read_tensor(wire.as_bytes(field)) for field in wire.fields(data)}
    empty = np.empty(0)
    return found.get(_X, empty), found.get(_Y, empty), found.get(_Z, empty)


def _read_path(data: memoryview) -> tuple[NDArray[np.int64], _Floats, _Floats]:
    """Numbers (k,), coordinates (k, 2) and losses (k,)."""
    numbers: list[int] = []
    x = y = z = np.empty(0)
    for field in wire.few_fields(data):
        if field[0] == _INTERVALS:
            numbers += wire.integers(field, wire.MOST_FIELDS)
        elif field[0] == _POINTS:
            x, y, z = _read_point(wire.as_bytes(field))
    if not len(x) == len(y) == len(numbers):
        raise CorruptMessage(f"a landscape's path has {len(numbers)} numbers and {len(x)} x {len(y)} coordinates")
    return np.array(numbers, np.int64), np.stack([x, y], axis=1), z


def _read_metadata(data: memoryview | None) -> dict[str, Any]:
    found: dict[str, Any] = dict(zip(_COMMON, ("", "", 0), strict=True))
    for field in wire.fields(data if data is not None else memoryview(b"")):
        if field[0] in (_DECOMPOSITION, _UNIT):
            found[_COMMON[field[0] - 1]] = wire.as_text(field)
        elif field[0] == _STEP_PER_EPOCH:
            found["step_per_epoch"] = wire.as_int(field)
    return found


def _read_details(data: memoryview | None) -> dict[str, Any]:
    if data is not None and len(data) > _MOST_DETAILS_BYTES:
        raise CorruptMessage(f"a landscape's details are {len(data)} bytes; at most {_MOST_DETAILS_BYTES} are read")
    try:
        found = json.loads(bytes(data) if data is not None else b"{}")
    except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8
        raise CorruptMessage(f"a landscape's details are no JSON: {error}") from error
    if not isinstance(found, dict):
        raise CorruptMessage("a landscape's details are no JSON object")
    return found
