"""Loss landscapes: `LossLandscape`, kept as the serialised message, and the same as arrays.

MindSpore's message has room for the grid, the path and three words about them. What else is known about a landscape
stands in two fields of ours, which other readers skip: `details`, JSON text, and `arrays`, named tensors. A tensor
carries its float64 exactly beside the float32 that MindInsight reads (`codec.tensor`).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import tensor, wire
from instrument.codec.message import Message, Value
from instrument.codec.schema import MINDSPORE
from instrument.errors import CorruptMessage
from instrument.values import Landscape, LossSurface, Tensor

_LANDSCAPE = MINDSPORE.type("LossLandscape", raw=("TensorProto",))
#: Kept in the fields that MindSpore has for them.
_COMMON = ("decomposition", "unit", "step_per_epoch")
#: A landscape has fewer arrays, and shorter details.
_MOST_ARRAYS, _MOST_DETAILS_BYTES = 1000, 1 << 20
#: What precedes the name of a metric in the field `arrays`.
_METRIC = "metric/"

_Floats = NDArray[np.float64]


def encode(data: bytes) -> wire.Pieces:
    """Return the content of the field: the serialised message itself."""
    return [data]


def decode(data: memoryview) -> Landscape:
    """Return the landscape as it stands; `to_surface` looks into it."""
    return Landscape(bytes(data))


# ---------------------------------------------------------------- arrays -> message


def from_surface(surface: LossSurface) -> bytes:
    """Return the message that holds all of a surface but its tag. Its metadata must be what JSON can hold."""
    path = convergence = None
    if surface.numbers.size:
        points = _point(surface.path[:, 0], surface.path[:, 1], surface.path_loss)
        path = {"intervals": surface.numbers.tolist(), "points": points}
    if surface.convergence.size:
        convergence = _point(*surface.convergence.reshape(3, 1))
    own = {name: value for name, value in surface.metadata.items() if name not in _COMMON}
    return _LANDSCAPE.encode(
        landscape=_point(surface.x, surface.y, surface.z),
        loss_path=path,
        metadata={
            "decomposition": str(surface.metadata.get("decomposition", "")),
            "unit": str(surface.metadata.get("unit", "step")),
            "step_per_epoch": int(surface.metadata.get("step_per_epoch", 0)),
        },
        convergence_point=convergence,
        details=json.dumps(own, ensure_ascii=False).encode(),
        arrays=[{"name": name, "values": _tensor(values)} for name, values in _own_arrays(surface).items()],
    )


def _own_arrays(surface: LossSurface) -> dict[str, _Floats]:
    arrays = {"explained": surface.explained}
    if surface.numbers.size:
        arrays |= {"true_loss": surface.true_loss, "unexplained": surface.unexplained}
    return arrays | {_METRIC + name: values for name, values in surface.metrics.items()}


def _tensor(values: _Floats) -> wire.Pieces:
    return tensor.encode(Tensor(np.asarray(values, np.float64), "float64"))


def _point(x: _Floats, y: _Floats, z: _Floats) -> dict[str, Value]:
    return {"x": _tensor(x), "y": _tensor(y), "z": _tensor(z)}


# ---------------------------------------------------------------- message -> arrays


def to_surface(landscape: Landscape, tag: str) -> LossSurface:
    """Return the arrays of a landscape, ours or MindSpore's; what the message does not hold is empty, or NaN.

    Raises:
        CorruptMessage: it is no landscape, or its arrays do not fit together.
    """
    message = _LANDSCAPE.decode(landscape.data)
    if "landscape" not in message:
        raise CorruptMessage("a landscape has no grid")
    named = message.messages("arrays")
    if len(named) > _MOST_ARRAYS:
        raise CorruptMessage(f"a landscape has {len(named)} arrays; at most {_MOST_ARRAYS} are read")
    arrays = {array.text("name"): _read_tensor(array, "values") for array in named}
    x, y, z = _read_point(message.message("landscape"))
    z = z.reshape(len(y), len(x)) if z.size == y.size * x.size else z
    numbers, path, path_loss = _read_path(message.message("loss_path"))
    absent = np.full(len(numbers), np.nan)
    metrics = {name.removeprefix(_METRIC): values for name, values in arrays.items() if name.startswith(_METRIC)}
    metadata = {**_read_metadata(message.message("metadata")), **_read_details(message.data("details"))}
    convergence = [values.reshape(-1) for values in _read_point(message.message("convergence_point"))]
    surface = LossSurface(
        tag, x, y, z, numbers, path, path_loss, arrays.get("true_loss", absent), arrays.get("unexplained", absent),
        arrays.get("explained", np.empty(0)), np.concatenate(convergence), metrics, metadata,
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


def _read_tensor(message: Message, name: str) -> _Floats:
    return np.array(tensor.decode(message.data(name)).array, np.float64) if name in message else np.empty(0)


def _read_point(point: Message) -> tuple[_Floats, _Floats, _Floats]:
    return _read_tensor(point, "x"), _read_tensor(point, "y"), _read_tensor(point, "z")


def _read_path(loss_path: Message) -> tuple[NDArray[np.int64], _Floats, _Floats]:
    """Return numbers (k,), coordinates (k, 2) and losses (k,)."""
    numbers = loss_path.integers("intervals")
    x, y, z = _read_point(loss_path.message("points"))
    if not len(x) == len(y) == len(numbers):
        raise CorruptMessage(f"a landscape's path has {len(numbers)} numbers and {len(x)} x {len(y)} coordinates")
    return np.array(numbers, np.int64), np.stack([x, y], axis=1), z


def _read_metadata(metadata: Message) -> dict[str, Any]:
    values = (metadata.text("decomposition"), metadata.text("unit"), metadata.integer("step_per_epoch"))
    return dict(zip(_COMMON, values, strict=True))


def _read_details(data: memoryview) -> dict[str, Any]:
    if len(data) > _MOST_DETAILS_BYTES:
        raise CorruptMessage(f"a landscape's details are {len(data)} bytes; at most {_MOST_DETAILS_BYTES} are read")
    try:
        details = json.loads(bytes(data) or b"{}")
    except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8
        raise CorruptMessage(f"a landscape's details are no JSON: {error}") from error
    if not isinstance(details, dict):
        raise CorruptMessage("a landscape's details are no JSON object")
    return details
