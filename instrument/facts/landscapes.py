"""Describe a loss landscape: as a row, and as names and texts for people."""

from __future__ import annotations

import json
import math

import numpy as np

from instrument.analyse.layout import number
from instrument.facts.rows import Extent, LandscapeFacts
from instrument.facts.surface import (
    Drawing,
    Floats,
    Point,
    checkpoints,
    convergence,
    highest,
    holes,
    is_inside,
    is_line,
    lowest,
    unit,
)
from instrument.values import LossSurface
from instrument.wording import listed

#: Keys of the metadata that facts of their own have.
_OWN_FACTS = (
    "decomposition", "unit", "step_per_epoch", "points", "points_done", "not_finite", "complete", "number", "resumed",
    "singular_values",
)  # fmt: skip
_SCALE_WORDS = {"linear": "linear", "log": "logarithmic"}
#: Elements of a list that are shown.
_LISTED = 5
#: One share for each axis; further ones are not shown.
_SHARES_SHOWN = 2


def to_row(surface: LossSurface) -> LandscapeFacts:
    """Return all but the grid itself."""
    return {
        "tag": surface.tag,
        "numbers": surface.numbers.tolist(),
        "columns": len(surface.x),
        "rows": len(surface.y),
        "x": [float(surface.x[0]), float(surface.x[-1])],
        "y": [float(surface.y[0]), float(surface.y[-1])],
        "lowest": _fields(lowest(surface)),
        "highest": _fields(highest(surface)),
        "convergence": _fields(convergence(surface)),
        "holes": _hole_counts(surface.z),
        "explained": surface.explained.tolist(),
        "checkpoints": [checkpoint._asdict() for checkpoint in checkpoints(surface)],
        "metrics": {name: _extent(values) for name, values in surface.metrics.items()},
        "metadata": dict(surface.metadata),
    }


def _fields(point: Point | None) -> dict[str, float] | None:
    return None if point is None else point._asdict()


def title(surface: LossSurface) -> str:
    """Return the tag and the interval of checkpoints."""
    return f"{surface.tag}: {_interval(surface)}" if surface.numbers.size else surface.tag


def facts(surface: LossSurface) -> list[tuple[str, str]]:
    """Return names and texts, without those that are not known."""
    texts = {
        "decomposition": str(surface.metadata.get("decomposition", "")),
        "checkpoints": f"{surface.numbers.size}, of {_interval(surface)}" if surface.numbers.size else "",
        "explained": _explained(surface.explained),
        "x": _axis(surface.x),
        "y": _axis(surface.y),
        "loss": _losses(surface),
        "convergence point": "" if is_line(surface) else _place(convergence(surface)),
        "unfinished": _unfinished(surface),
        "holes": _holes(surface),
        "outside the grid": _outside(surface),
    }
    texts |= {name: _range(values) for name, values in surface.metrics.items()}
    rest = {name: value for name, value in surface.metadata.items() if name not in _OWN_FACTS}
    texts |= {name.replace("_", " "): _value_text(value) for name, value in rest.items()}
    return [(name, text) for name, text in texts.items() if text]


def path_rows(surface: LossSurface) -> list[list[str | float]]:
    """Return a row of names and a row for each checkpoint, without the columns that have no value."""
    names = (unit(surface), "x", "y", "loss on the plane", "true loss", "unexplained")
    path = checkpoints(surface)
    kept = [index for index in range(len(names)) if not all(_is_nan(checkpoint[index]) for checkpoint in path)]
    rows: list[tuple[str | float, ...]] = [names, *path]
    return [[row[index] for index in kept] for row in rows] if path else []


def legend(drawing: Drawing) -> str:
    """Return the caption of a picture: the meaning of its colours and marks."""
    surface, scale = drawing.surface, drawing.scale
    is_plane = not is_line(surface)
    words = [f"{'Colours' if is_plane else 'Heights'} are {drawing.quantity} on a {_SCALE_WORDS[scale.name]} scale"]
    if scale.is_clipped:
        words[0] += f", on which the {scale.clipped} of {surface.z.size} points above {scale.high:.6g} look the same"
    if scale.suggests_log:
        words.append("a logarithmic scale (--scale log) tells more of them apart")
    if holes(surface).any():
        count = int(holes(surface).sum())
        words.append(f"{count} of {surface.z.size} points have no finite value and are left empty")
    if surface.numbers.size and is_plane:
        words.append("the line joins the checkpoints, projected on the plane, in the order of training")
    if surface.convergence.size and is_plane:
        words.append("the cross is the point of convergence")
    return "; ".join(words) + "."


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _interval(surface: LossSurface) -> str:
    first, last = int(surface.numbers.min()), int(surface.numbers.max())  # a line begins at its end
    return f"{unit(surface)}s {first} to {last}"


def _explained(shares: Floats) -> str:
    shown = [f"{100 * share:.4g} %" for share in shares[:_SHARES_SHOWN].tolist()]
    total = f" = {100 * float(shares[:_SHARES_SHOWN].sum()):.4g} %" if len(shown) > 1 else ""
    return " + ".join(shown) + total


def _axis(axis: Floats) -> str:
    if len(axis) == 1:
        return ""
    return f"{number(float(axis[0]))} to {number(float(axis[-1]))}, {len(axis)} points"


def _losses(surface: LossSurface) -> str:
    low, high = lowest(surface), highest(surface)
    return "none is finite" if low is None else f"{_place(low)} to {_place(high)}"


def _place(point: Point | None) -> str:
    return "" if point is None else f"{number(point.loss)} at ({number(point.x)}, {number(point.y)})"


def _unfinished(surface: LossSurface) -> str:
    if surface.metadata.get("complete", True):
        return ""
    done, whole = surface.metadata.get("points_done", surface.z.size), surface.metadata.get("points", "?")
    return f"{done} of {whole} points are there; the grid is coarser for now"


def _hole_counts(z: Floats) -> dict[str, int]:
    counts = {"NaN": np.isnan(z), "Infinity": z == math.inf, "-Infinity": z == -math.inf}
    return {name: int(mask.sum()) for name, mask in counts.items() if mask.any()}


def _holes(surface: LossSurface) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in _hole_counts(surface.z).items())
    return f"{int(holes(surface).sum())} of {surface.z.size} points: {counts}" if counts else ""


def _outside(surface: LossSurface) -> str:
    return ", ".join(
        str(checkpoint.number) for checkpoint in checkpoints(surface) if not is_inside(surface, checkpoint)
    )


def _extent(values: Floats) -> Extent:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return {"lowest": low, "highest": high, "holes": _hole_counts(values)}


def _range(values: Floats) -> str:
    extent = _extent(values)
    return f"{number(extent['lowest'])} to {number(extent['highest'])}"


def _value_text(value: object) -> str:
    """Return the value as a text, an empty one for None and {}."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return listed(list(map(_value_text, value)), _LISTED)
    if value is None or value == {}:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
