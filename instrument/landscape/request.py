"""Request a plane: check what the user gave, and make the plane of the checkpoints.

A request says which parameters move, along which directions, and how far.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from instrument.checks import check_int
from instrument.landscape import directions
from instrument.landscape.directions import Floats, Layout, Weights
from instrument.landscape.plane import Extent, Grid, Plane, around, make_grid
from instrument.landscape.weights import LEAST_POINTS, BadCheckpoint, Checkpoint, is_float, listed, without_repeated

AXES = (*directions.PRINCIPAL, "random", "hessian")
AUTO = "auto"
#: Axes that leave out tensors which training never changed. Those of MindSpore move them, as MindSpore does: it takes
#: from each difference its mean over all weights, and normalising blows that constant up to the tensor's full norm.
#: Directions that the user gives are never altered.
_LEAVES_OUT_FROZEN = ("anchored", "centred")
#: What each kind of axes is normalised by where nobody says otherwise.
_USUAL = {"mindspore": "layer", "random": "filter"}
_DECOMPOSITION = {"random": "Random", "hessian": "Hessian", "given": "Given"}


@dataclass(frozen=True)
class Request:
    """The options of a plane, checked.

    `axes` is one of `AXES` or "given"; `given` (2, P) are the directions then. `normalize` is None for axes that keep
    their own length. `pattern` chooses parameters by name; None for the usual ones.
    """

    axes: str
    normalize: str | None
    size: int
    extent: Extent | str
    seed: int
    pattern: Callable[[str], bool] | None = None
    given: tuple[object, object] | None = None

    @property
    def has_path(self) -> bool:
        return self.axes not in ("random", "hessian")


@dataclass(frozen=True, eq=False)
class PlaneInfo:
    """What a surface says about its plane before any loss is known; `runner` lists the names in `metadata`.

    `shift` is the x that users see at the origin; `repeated` are the checkpoints that were left out.
    """

    numbers: Sequence[int]
    unexplained: Floats
    explained: Floats
    metadata: Mapping[str, object] = field(default_factory=dict)
    shift: float = 0.0
    repeated: Sequence[int] = ()


def checked(axes: object, normalize: object, size: object, extent: object, seed: object, parameters: object) -> Request:
    """Return the request of a user's options.

    Raises:
        TypeError, ValueError: something is wrong with it; the message says what would be right.
    """
    given = None
    if not isinstance(axes, str):
        axes, given = "given", _pair(axes)
    elif axes not in AXES:
        raise ValueError(f"axes is {axes!r}; expected one of {list(AXES)}, or two directions as arrays.")
    if normalize not in (AUTO, None, *directions.NORMALIZATIONS):
        raise ValueError(f"normalize is {normalize!r}; expected 'filter', 'layer', None or 'auto'.")
    if axes == "mindspore" and normalize not in (AUTO, "layer"):
        raise ValueError(f"normalize is {normalize!r}; the axes 'mindspore' are normalised by 'layer', by definition.")
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or not 3 <= size <= 256:
        raise ValueError(f"size is {size!r}; expected an int from 3 to 256.")
    usual = _USUAL.get(axes) if normalize == AUTO else normalize
    return Request(axes, usual, int(size), check_extent(extent), check_int("seed", seed, 0), _chosen(parameters), given)


def check_extent(given: object) -> Extent | str:
    """Return `"auto"`, or four numbers of one number (as far to each side) or four: x from, to, y from, to.

    Raises:
        TypeError, ValueError: it is something else, not finite, or empty.
    """
    if isinstance(given, str) and given == "auto":
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        given = (-given, given, -given, given)
    try:
        numbers = [float(number) for number in np.asarray(given, np.float64).reshape(-1)]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 4:
        raise TypeError(f"extent is {given!r}; expected 'auto', a number, or four: x from, to, y from, to.")
    if not np.all(np.isfinite(numbers)) or not (numbers[0] < numbers[1] and numbers[2] < numbers[3]):
        raise ValueError(f"extent is {given!r}; expected finite numbers, each axis ascending.")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def check_ends(given: object) -> tuple[float, float]:
    """Return the two ends of a line: x from, to. Raise `TypeError` or `ValueError` as `check_extent` does."""
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise TypeError(f"extent is {given!r}; expected two numbers: x from, to.")
    extent = check_extent((*given, -1.0, 1.0))
    assert not isinstance(extent, str)
    return extent[:2]


def _pair(axes: object) -> tuple[object, object]:
    if isinstance(axes, Mapping) or not isinstance(axes, (Sequence, np.ndarray)) or len(axes) != 2:
        raise TypeError(
            f"axes is a {type(axes).__name__}; expected one of {list(AXES)}, or two directions, each a flat array or a "
            "dictionary of arrays by parameter name."
        )
    first, second = axes
    return first, second


def _chosen(parameters: object) -> Callable[[str], bool] | None:
    if parameters is None:
        return None
    if isinstance(parameters, str):
        try:
            pattern = re.compile(parameters)
        except re.error as error:
            raise ValueError(f"parameters is {parameters!r}, which is no regular expression: {error}.") from error
        return lambda name: pattern.search(name) is not None
    if isinstance(parameters, Sequence) and all(isinstance(name, str) for name in parameters):
        names = frozenset(parameters)
        return lambda name: name in names
    raise TypeError(f"parameters is {parameters!r}; expected a regular expression, a list of names or None.")


def is_mindspores(name: str) -> bool:
    """Return True if MindSpore's own landscape moves a parameter of this name."""
    return ("weight" in name or "bias" in name) and "moment" not in name


def layout_of(wanted: Request, last: Checkpoint, trainable: Sequence[str], all_names: Sequence[str]) -> Layout:
    """Return the parameters that move, in the network's order.

    Raises:
        BadCheckpoint: there are none.
    """
    chosen = wanted.pattern
    names = all_names if chosen is not None or wanted.axes == "mindspore" else trainable
    if chosen is None:
        chosen = is_mindspores if wanted.axes == "mindspore" else lambda _: True
    moved = [name for name in names if chosen(name) and is_float(last.tensors[name])]
    if not moved:
        raise BadCheckpoint(
            f"No parameter of the network takes part: of {listed(list(all_names))}, none is chosen. "
            + ("MindSpore takes names with 'weight' or 'bias'; axes='anchored' takes all that are trained."
               if wanted.axes == "mindspore" else "Set parameters= to a regular expression that matches some.")
        )  # fmt: skip
    return Layout(tuple(moved), tuple(tuple(last.tensors[name].shape) for name in moved))


def _flat(checkpoint: Checkpoint, layout: Layout) -> Weights:
    return [cast(NDArray[np.floating], checkpoint.tensors[name].reshape(-1)) for name in layout.names]


def plane_of(
    wanted: Request,
    path: Sequence[Checkpoint],
    layout: Layout,
    eigenvectors: Callable[[], tuple[Floats, Floats]] | None = None,
) -> tuple[Plane, PlaneInfo, list[Checkpoint]]:
    """Make the plane of a request; return it, what a surface says about it, and the checkpoints of its path.

    Args:
        path: ascending; the last one is the origin.
        eigenvectors: for the axes "hessian": eigenvalues (2,) and vectors (2, P) at the origin.

    Raises:
        NoPlane: the checkpoints, or the directions, span no plane.
        BadCheckpoint: given directions do not fit.
    """
    metadata: dict[str, object] = {}
    kept = list(path)
    repeated: list[int] = []
    if wanted.has_path:
        kept, repeated = without_repeated(path, layout.names)
        metadata["repeated"] = repeated
    weights = [_flat(checkpoint, layout) for checkpoint in kept]
    vectors, explained, of_axes = _vectors(wanted, weights, layout, eigenvectors)
    metadata |= of_axes
    frozen = directions.unmoved(weights) if wanted.has_path and len(kept) > 1 else [False] * len(layout.names)
    if wanted.normalize is not None:
        vectors = np.array([directions.normalized(vector, weights[-1], layout, wanted.normalize) for vector in vectors])
    if any(frozen) and wanted.axes in _LEAVES_OUT_FROZEN:
        vectors = np.array([directions.without(vector, layout, frozen) for vector in vectors])
    metadata["frozen"] = [name for name, out in zip(layout.names, frozen, strict=True) if out]
    metadata["unmoved"] = [
        name
        for name, place, out in zip(layout.names, layout.slices, frozen, strict=True)
        if not (out or vectors[:, place].any())
    ]
    singles = vectors.astype(np.float32)
    metadata["direction_cosine"] = directions.cosine(singles)
    coordinates, share = directions.project(weights, singles) if wanted.has_path else (np.empty((0, 2)), np.empty(0))
    if len(coordinates):
        coordinates[-1] = 0.0
    extent = wanted.extent
    if isinstance(extent, str):
        extent = around(coordinates) if len(coordinates) > 1 else (-1.0, 1.0, -1.0, 1.0)
    plane = Plane(layout, dict(kept[-1].tensors), singles, make_grid(extent, wanted.size), coordinates)
    numbers = [checkpoint.number for checkpoint in kept] if wanted.has_path else []
    metadata |= {
        "axes": wanted.axes, "normalize": wanted.normalize, "seed": wanted.seed, "number": kept[-1].number,
        "decomposition": _DECOMPOSITION.get(wanted.axes, "PCA"),
    }  # fmt: skip
    info = PlaneInfo(numbers, share, explained, metadata, repeated=repeated)
    return plane, info, kept if wanted.has_path else kept[-1:]


def _vectors(
    wanted: Request,
    weights: Sequence[Weights],
    layout: Layout,
    eigenvectors: Callable[[], tuple[Floats, Floats]] | None,
) -> tuple[Floats, Floats, dict[str, object]]:
    """Return directions (2, P) before they are normalised, explained shares, and metadata of the axes."""
    if wanted.axes == "random":
        return directions.random_axes(layout, wanted.seed), np.empty(0), {}
    if wanted.axes == "hessian":
        assert eigenvectors is not None
        values, vectors = eigenvectors()
        if len(vectors) < 2:
            raise directions.NoPlane("The loss curves along one direction at most; there is no plane of eigenvectors.")
        return vectors[:2], np.empty(0), {"eigenvalues": values.tolist()}
    if wanted.given is not None:
        return np.array([_given(direction, layout) for direction in wanted.given]), np.empty(0), {}
    if len(weights) < LEAST_POINTS:
        raise directions.NoPlane(
            f"There are {len(weights)} different checkpoints, which span no plane; expected at least {LEAST_POINTS}. "
            "Draw the line between two with compute_line(), or take axes='random'."
        )
    axes = directions.principal_axes(weights, wanted.axes)
    return axes.vectors, axes.explained, {"singular_values": axes.singular_values.tolist()}


def _given(direction: object, layout: Layout) -> Floats:
    """Return one direction (P,) that the user gave."""
    if isinstance(direction, Mapping):
        unknown = sorted(set(direction) - set(layout.names))
        if unknown:
            raise BadCheckpoint(f"axes has {listed(unknown)}, which do not take part; expected some of "
                                f"{listed(layout.names)}.")  # fmt: skip
        result = np.zeros(layout.size)
        for name, shape, place in zip(layout.names, layout.shapes, layout.slices, strict=True):
            if name in direction:
                values = np.asarray(direction[name], np.float64)
                if values.shape != shape:
                    raise BadCheckpoint(f"axes has {name} of shape {values.shape}; expected {shape}.")
                result[place] = values.reshape(-1)
    else:
        result = np.asarray(direction, np.float64).reshape(-1).copy()
    if result.shape != (layout.size,) or not np.isfinite(result).all():
        raise BadCheckpoint(f"axes has a direction of {result.size} numbers; expected {layout.size} finite ones.")
    return result


def line_of(
    first: Checkpoint, last: Checkpoint, layout: Layout, size: int, ends: tuple[float, float]
) -> tuple[Plane, PlaneInfo]:
    """Make the line (1 - x) first + x last, x over `ends`.

    Raises:
        NoPlane: both hold the same weights.
    """
    weights = [_flat(first, layout), _flat(last, layout)]
    start, end = (np.concatenate([values.astype(np.float64) for values in flat]) for flat in weights)
    if np.array_equal(start, end):
        raise directions.NoPlane(f"The checkpoints {first.number} and {last.number} hold the same weights.")
    singles = np.array([end - start, np.zeros_like(start)], np.float32)
    axis = Grid(np.linspace(*ends, size) - 1.0, np.zeros(1))  # a plane's origin is its last point
    plane = Plane(layout, dict(last.tensors), singles, axis, np.array([[-1.0, 0.0], [0.0, 0.0]]))
    still = directions.unmoved(weights)
    metadata = {
        "axes": "line", "normalize": None, "decomposition": "Line", "number": last.number, "repeated": [],
        "unmoved": [], "frozen": [name for name, out in zip(layout.names, still, strict=True) if out],
    }  # fmt: skip
    return plane, PlaneInfo([first.number, last.number], np.zeros(2), np.ones(1), metadata, shift=1.0)
