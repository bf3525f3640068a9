"""What is known about a landscape: as a dictionary for JSON, and as names and texts for a terminal and a page."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from instrument.show.surface import Floats, Point, checkpoints, highest, holes, is_inside, is_line, lowest
from instrument.show.tables import number
from instrument.values import LossSurface

#: What the facts say in words of their own.
_TOLD = (
    "decomposition", "unit", "step_per_epoch", "points", "points_done", "not_finite", "complete", "number", "resumed",
    "singular_values",
)  # fmt: skip
#: So many of a list are shown.
_LISTED = 5
#: The shares behind the two axes go on; as many of them are shown.
_SHARES_SHOWN = 2


def report(surface: LossSurface) -> dict[str, Any]:
    """All but the grid itself."""
    low, high = lowest(surface), highest(surface)
    return {
        "tag": surface.tag,
        "numbers": surface.numbers.tolist(),
        "columns": len(surface.x),
        "rows": len(surface.y),
        "x": [float(surface.x[0]), float(surface.x[-1])],
        "y": [float(surface.y[0]), float(surface.y[-1])],
        "lowest": None if low is None else low._asdict(),
        "highest": None if high is None else high._asdict(),
        "convergence": Point(*surface.convergence.tolist())._asdict() if surface.convergence.size else None,
        "holes": _hole_counts(surface.z),
        "explained": surface.explained.tolist(),
        "checkpoints": [one._asdict() for one in checkpoints(surface)],
        "metrics": {name: _extent(values) for name, values in surface.metrics.items()},
        "metadata": dict(surface.metadata),
    }


def title(surface: LossSurface) -> str:
    """What it is of, in a few words."""
    if not surface.numbers.size:
        return surface.tag
    return f"{surface.tag}: {_interval(surface)}"


def facts(surface: LossSurface) -> list[tuple[str, str]]:
    """Names and texts; what is not known has none."""
    found = {
        "decomposition": str(surface.metadata.get("decomposition", "")),
        "checkpoints": f"{surface.numbers.size}, of {_interval(surface)}" if surface.numbers.size else "",
        "explained": _explained(surface.explained),
        "x": _axis(surface.x),
        "y": _axis(surface.y),
        "loss": _losses(surface),
        "convergence point": "" if is_line(surface) else _convergence(surface),
        "unfinished": _unfinished(surface),
        "holes": _holes(surface),
        "outside the grid": _outside(surface),
    }
    found |= {name: _range(values) for name, values in surface.metrics.items()}
    rest = {name: value for name, value in surface.metadata.items() if name not in _TOLD}
    found |= {name.replace("_", " "): _words(value) for name, value in rest.items()}
    return [(name, text) for name, text in found.items() if text]


def path_rows(surface: LossSurface) -> list[list[Any]]:
    """A row of names, then one for each checkpoint; columns that nobody knows anything of are left out."""
    names = (str(surface.metadata.get("unit") or "number"), "x", "y", "loss on the plane", "true loss", "unexplained")
    rows: list[list[Any]] = [list(one) for one in checkpoints(surface)]
    known = [index for index in range(len(names)) if not all(_is_nan(row[index]) for row in rows)]
    return [[row[index] for index in known] for row in [list(names), *rows]] if rows else []


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _interval(surface: LossSurface) -> str:
    first, last = int(surface.numbers.min()), int(surface.numbers.max())  # a line begins at its end
    return f"{surface.metadata.get('unit') or 'number'}s {first} to {last}"


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
    return f"{_place(low)} to {_place(high)}" if low is not None and high is not None else "none is finite"


def _place(point: Point) -> str:
    return f"{number(point.loss)} at ({number(point.x)}, {number(point.y)})"


def _convergence(surface: LossSurface) -> str:
    return _place(Point(*surface.convergence.tolist())) if surface.convergence.size else ""


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
    return ", ".join(str(one.number) for one in checkpoints(surface) if not is_inside(surface, one))


def _extent(values: Floats) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return {"lowest": low, "highest": high, "holes": _hole_counts(values)}


def _range(values: Floats) -> str:
    extent = _extent(values)
    return f"{number(extent['lowest'])} to {number(extent['highest'])}"


def _words(value: Any) -> str:
    """Nothing for what is empty."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        more = f" and {len(value) - _LISTED} more" if len(value) > _LISTED else ""
        return ", ".join(map(_words, value[:_LISTED])) + more
    if value is None or value == {}:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
