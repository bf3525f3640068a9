"""From checkpoints to the plane that is asked for: which parameters move, along which directions, how far."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from instrument.landscape import directions, grid
from instrument.landscape.directions import Floats, Layout, Weights
from instrument.landscape.plane import Plane
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
class Wish:
    """What a user asked for, checked.

    `axes` is one of `AXES` or "given"; `given` (2, P) are the directions then. `normalize` is None for axes that keep
    their own length. `pattern` chooses parameters by name; None for the usual ones.
    """

    axes: str
    normalize: str | None
    size: int
    extent: grid.Extent | str
    seed: int
    pattern: Callable[[str], bool] | None = None
    given: Any = None

    @property
    def has_path(self) -> bool:
        return self.axes not in ("random", "hessian")


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a plane before any loss is: see `instrument.landscape.surface` for the names.

    `shift` is the x that users see at the origin.
    """

    numbers: Sequence[int]
    unexplained: Floats
    explained: Floats
    metadata: dict[str, Any] = field(default_factory=dict)
    shift: float = 0.0


def wish(axes: Any, normalize: Any, size: Any, extent: Any, seed: Any, parameters: Any) -> Wish:
    """Check what a user asks for.

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
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed is {seed!r}; expected an int of at least 0.")
    usual = _USUAL.get(axes) if normalize == AUTO else normalize
    return Wish(axes, usual, int(size), grid.check_extent(extent), int(seed), _chosen(parameters), given)


def _pair(axes: Any) -> Any:
    if isinstance(axes, Mapping) or not isinstance(axes, (Sequence, np.ndarray)) or len(axes) != 2:
        raise TypeError(
            f"axes is a {type(axes).__name__}; expected one of {list(AXES)}, or two directions, each a flat array or a "
            "dictionary of arrays by parameter name."
        )
    return tuple(axes)


def _chosen(parameters: Any) -> Callable[[str], bool] | None:
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
    """Whether MindSpore's own landscape moves a parameter of this name."""
    return ("weight" in name or "bias" in name) and "moment" not in name


def layout_of(wish: Wish, last: Checkpoint, trainable: Sequence[str], all_names: Sequence[str]) -> Layout:
    """The parameters that move, in the network's order.

    Raises:
        BadCheckpoint: there are none.
    """
    chosen = wish.pattern
    names = all_names if chosen is not None or wish.axes == "mindspore" else trainable
    if chosen is None:
        chosen = is_mindspores if wish.axes == "mindspore" else lambda _: True
    found = [name for name in names if chosen(name) and is_float(last.tensors[name])]
    if not found:
        raise BadCheckpoint(
            f"No parameter of the network takes part: of {listed(list(all_names))}, none is chosen. "
            + ("MindSpore takes names with 'weight' or 'bias'; axes='anchored' takes all that are trained."
               if wish.axes == "mindspore" else "Set parameters= to a regular expression that matches some.")
        )  # fmt: skip
    return Layout(tuple(found), tuple(tuple(last.tensors[name].shape) for name in found))


def flat(one: Checkpoint, layout: Layout) -> Weights:
    return [one.tensors[name].reshape(-1) for name in layout.names]


def plane_of(
    wish: Wish,
    path: Sequence[Checkpoint],
    layout: Layout,
    eigenvectors: Callable[[], tuple[Floats, Floats]] | None = None,
) -> tuple[Plane, Known, list[Checkpoint]]:
    """The plane, what is known of it, and the checkpoints of its path.

    Args:
        path: ascending; the last one is the origin.
        eigenvectors: for the axes "hessian": eigenvalues (2,) and vectors (2, P) at the origin.

    Raises:
        NoPlane: the checkpoints, or the directions, span no plane.
        BadCheckpoint: given directions do not fit.
    """
    metadata: dict[str, Any] = {}
    kept = list(path)
    if wish.has_path:
        kept, repeated = without_repeated(path, layout.names)
        metadata["repeated"] = repeated
    weights = [flat(one, layout) for one in kept]
    vectors, explained, more = _vectors(wish, weights, layout, eigenvectors)
    metadata |= more
    frozen = directions.unmoved(weights) if wish.has_path and len(kept) > 1 else [False] * len(layout.names)
    if wish.normalize is not None:
        vectors = np.array([directions.normalized(one, weights[-1], layout, wish.normalize) for one in vectors])
    if any(frozen) and wish.axes in _LEAVES_OUT_FROZEN:
        vectors = np.array([directions.without(one, layout, frozen) for one in vectors])
    metadata["frozen"] = [name for name, out in zip(layout.names, frozen, strict=True) if out]
    metadata["unmoved"] = _unmoved(vectors, layout, metadata["frozen"])
    singles = vectors.astype(np.float32)
    metadata["direction_cosine"] = directions.cosine(singles)
    coordinates, share = directions.project(weights, singles) if wish.has_path else (np.empty((0, 2)), np.empty(0))
    if len(coordinates):
        coordinates[-1] = 0.0
    extent = wish.extent if not isinstance(wish.extent, str) else _usual_extent(coordinates)
    plane = Plane(layout, dict(kept[-1].tensors), singles, grid.make(extent, wish.size), coordinates)
    numbers = [one.number for one in kept] if wish.has_path else []
    metadata |= {
        "axes": wish.axes, "normalize": wish.normalize, "seed": wish.seed, "number": kept[-1].number,
        "decomposition": _DECOMPOSITION.get(wish.axes, "PCA"),
    }  # fmt: skip
    return plane, Known(numbers, share, explained, metadata), kept if wish.has_path else kept[-1:]


def _unmoved(vectors: Floats, layout: Layout, frozen: Sequence[str]) -> list[str]:
    """Tensors along which neither direction goes, for another reason than that training left them as they were."""
    return [
        name
        for name, place in zip(layout.names, layout.slices, strict=True)
        if name not in frozen and not vectors[:, place].any()
    ]


def _usual_extent(coordinates: Floats) -> grid.Extent:
    return grid.around(coordinates) if len(coordinates) > 1 else (-1.0, 1.0, -1.0, 1.0)


def _vectors(
    wish: Wish, weights: Sequence[Weights], layout: Layout, eigenvectors: Callable[[], tuple[Floats, Floats]] | None
) -> tuple[Floats, Floats, dict[str, Any]]:
    """Directions (2, P) before they are normalised, explained shares, and what else is known."""
    if wish.axes == "random":
        return directions.random_axes(layout, wish.seed), np.empty(0), {}
    if wish.axes == "hessian":
        assert eigenvectors is not None
        values, vectors = eigenvectors()
        if len(vectors) < 2:
            raise directions.NoPlane("The loss curves along one direction at most; there is no plane of eigenvectors.")
        return vectors[:2], np.empty(0), {"eigenvalues": values.tolist()}
    if wish.axes == "given":
        return np.array([_given(one, layout) for one in wish.given]), np.empty(0), {}
    if len(weights) < LEAST_POINTS:
        raise directions.NoPlane(
            f"There are {len(weights)} different checkpoints, which span no plane; expected at least {LEAST_POINTS}. "
            "Draw the line between two with compute_line(), or take axes='random'."
        )
    axes = directions.principal_axes(weights, wish.axes)
    return axes.vectors, axes.explained, {"singular_values": axes.singular_values.tolist()}


def _given(direction: Any, layout: Layout) -> Floats:
    """One direction (P,) as the user gave it."""
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


def line_of(first: Checkpoint, last: Checkpoint, layout: Layout, size: int, extent: Any) -> tuple[Plane, Known]:
    """The line (1 - x) first + x last, x over `extent`.

    Raises:
        NoPlane: both hold the same weights.
    """
    ends = [flat(first, layout), flat(last, layout)]
    start, end = (np.concatenate([values.astype(np.float64) for values in one]) for one in ends)
    if np.array_equal(start, end):
        raise directions.NoPlane(f"The checkpoints {first.number} and {last.number} hold the same weights.")
    singles = np.array([end - start, np.zeros_like(start)], np.float32)
    axis = grid.Grid(np.linspace(extent[0], extent[1], size) - 1.0, np.zeros(1))  # a plane's origin is its last point
    plane = Plane(layout, dict(last.tensors), singles, axis, np.array([[-1.0, 0.0], [0.0, 0.0]]))
    still = directions.unmoved(ends)
    metadata = {
        "axes": "line", "normalize": None, "decomposition": "Line", "number": last.number, "repeated": [],
        "unmoved": [], "frozen": [name for name, out in zip(layout.names, still, strict=True) if out],
    }  # fmt: skip
    return plane, Known([first.number, last.number], np.zeros(2), np.ones(1), metadata, shift=1.0)
