"""Make one HTML file of a landscape, which opens without a network: contour, rotating surface, path and facts.

Every text is escaped, and a policy in the page keeps it from loading anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from instrument.facts.landscapes import legend
from instrument.facts.surface import Drawing, Floats, Scale, is_line
from instrument.show import landscape_svg
from instrument.show.tables import number

_COLOURS = 64
_SHARE_DIGITS = 4


def html(drawing: Drawing, path: str, facts: Iterable[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> str:
    """Return the page of a run at `path`: `facts` are names and texts, `rows` a row of names and one a checkpoint."""
    rotating = "" if is_line(drawing.surface) else _template("landscape_surface.html").substitute(data=_data(drawing))
    return _template("landscape.html").substitute(
        title=escape(drawing.title),
        subtitle=escape(path),
        contour=landscape_svg.contour_svg(drawing),
        legend=escape(legend(drawing)),
        rotating=rotating,
        facts="\n".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts),
        checkpoints=_table(rows) if rows else "",
    )


def _template(name: str) -> Template:
    return Template(resources.files("instrument.show").joinpath(name).read_text(encoding="utf-8"))


def _table(rows: Sequence[Sequence[Any]]) -> str:
    cells = [[cell if isinstance(cell, str) else number(cell) for cell in row] for row in rows]
    head = "".join(f"<th>{escape(cell)}</th>" for cell in cells[0])
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells[1:])
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _data(drawing: Drawing) -> str:
    """Return the JSON that the script draws: lengths as shares of a side or of the range of losses."""
    surface, scale = drawing.surface, drawing.scale
    x, y = (_shares(axis, axis) for axis in (surface.x, surface.y))
    path = [_shares(surface.x, surface.path[:, 0]), _shares(surface.y, surface.path[:, 1])]
    path += [scale.shares(surface.path_loss), scale.shares(surface.true_loss)]
    places = [_rounded(row) for row in np.stack(path, axis=1)]
    numbered = zip(places, surface.numbers.tolist(), strict=True)
    data = {
        "x": _rounded(x),
        "y": _rounded(y),
        "z": [_rounded(row) for row in scale.shares(surface.z)],
        "path": [[*place, number] for place, number in numbered if None not in place[:2]],
        "colours": landscape_svg.hexes(_COLOURS),
        "labels": [*_labels(surface.x, 0), *_labels(surface.y, 1)],
        "heights": _heights(drawing.what, scale),
    }
    # In a script element only "<" could end it early.
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _shares(axis: Floats, values: Floats) -> Floats:
    low, high = axis[0], axis[-1]
    return np.asarray((values - low) / (high - low)) if high > low else np.full(len(values), 0.5)


def _rounded(values: Floats) -> list[float | None]:
    return [round(value, _SHARE_DIGITS) if math.isfinite(value) else None for value in values.tolist()]


def _labels(axis: Floats, index: int) -> list[list[Any]]:
    """Return the ends and the title of an axis: text, which axis, the share of its length, and how far outside."""
    texts = ((0.0, f"{axis[0]:.3g}", 0.08), (1.0, f"{axis[-1]:.3g}", 0.08), (0.5, "xy"[index], 0.12))
    return [[text, index, share, outside] for share, text, outside in texts]


def _heights(what: str, scale: Scale) -> list[list[Any]]:
    """Return the ends and the name of the upright axis: text and height."""
    sign = "\u2265 " if scale.is_clipped else ""
    return [[f"{scale.low:.3g}", 0.0], [what, 0.5], [f"{sign}{scale.high:.3g}", 1.0]]
