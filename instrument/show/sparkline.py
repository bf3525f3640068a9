"""Draw curves that fit a cell of a table: blocks for a terminal, SVG for a page.

Where there are more points than room, the first, the last, the least and the greatest are drawn all the same, and the
same points always give the same curve. What is no finite number is marked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: From the least to the greatest, and what is no finite number: with Unicode, and for terminals without.
BLOCKS, PLAIN = "▁▂▃▄▅▆▇█!", "_.-=+*%#!"
_LEVELS = 8
WIDTH = 24
_MIDDLE = 3

#: Values of float64.
Values = NDArray[np.float64]


def marks(encoding: str | None) -> str:
    """Return the marks that a terminal with this encoding can show."""
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN
    return BLOCKS


@dataclass(frozen=True)
class Reduced:
    """The points of a series that a curve shows: a value a character, marks for NaN and infinities, the range."""

    values: Values
    has_gap: NDArray[np.bool_]
    #: The least and the greatest finite value; None if there is none.
    range: tuple[float, float] | None

    def text(self, drawn_with: str = BLOCKS, scale: tuple[float, float] | None = None) -> str:
        """Return the curve as a row of characters, drawn between the ends of `scale`, or of its own range."""
        ends = np.array(scale or self.range or (), np.float64)
        levels = np.where(self.has_gap, _LEVELS, _levels(self.values, ends))
        return "".join(drawn_with[level] for level in levels.tolist())


def reduced(values: Values, width: int = WIDTH) -> Reduced:
    """Return what a curve of at most `width` characters keeps of a series."""
    columns = min(len(values), width)
    if not columns:
        return Reduced(values, np.zeros(0, np.bool_), None)
    edges = np.linspace(0, len(values), columns + 1).astype(np.intp)
    is_finite = np.isfinite(values)
    chosen = edges[1:] - 1
    chosen[0] = 0
    for extreme in _extremes(values, is_finite):
        chosen[np.searchsorted(edges, extreme, "right") - 1] = extreme
    finite = values[is_finite]
    ends = (float(finite.min()), float(finite.max())) if len(finite) else None
    return Reduced(values[chosen], np.add.reduceat(~is_finite, edges[:-1]) > 0, ends)


def common_scale(curves: Iterable[Reduced]) -> tuple[float, float] | None:
    """Return the range of several curves together; None if none has a finite value."""
    ranges = [curve.range for curve in curves if curve.range is not None]
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


def text(values: Values, drawn_with: str = BLOCKS, width: int = WIDTH) -> str:
    """Return the values as a row of at most `width` characters."""
    return reduced(values, width).text(drawn_with)


def _extremes(values: Values, is_finite: NDArray[np.bool_]) -> list[int]:
    """Return the places of the least and the greatest; the one farther from the median comes last."""
    places = np.flatnonzero(is_finite)
    if not len(places):
        return []
    finite = values[places]
    ends = [int(finite.argmin()), int(finite.argmax())]
    middle = float(np.median(finite))
    return [int(places[end]) for end in sorted(ends, key=lambda end: abs(float(finite[end]) - middle))]


def _levels(values: Values, finite: Values) -> NDArray[Any]:
    if not len(finite) or finite.min() == finite.max():
        return np.full(len(values), _MIDDLE)
    return np.minimum(np.nan_to_num(_share(values, finite)) * _LEVELS, _LEVELS - 1).astype(np.intp)


@np.errstate(all="ignore")  # what is no finite number is marked whatever comes out
def _share(values: Values, finite: Values) -> Values:
    """Map values to 0 for the least of `finite` and 1 for the greatest, 0.5 if they are equal."""
    low, high = finite.min(), finite.max()
    if not np.isfinite(high - low):
        values, low, high = values / 2, low / 2, high / 2
    share: Values = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
    return share.clip(0, 1)


def svg(steps: NDArray[Any], values: Values, width: int = 160, height: int = 28) -> str:
    """Return the values over their steps as an SVG element; red lines mark values that are no finite numbers."""
    if not len(values):
        return ""
    chosen = drawn(values, width)
    values, is_finite = values[chosen], np.isfinite(values)[chosen]
    along = _share(steps[chosen].astype(np.float64), steps.astype(np.float64))
    x = 2 + along * (width - 4)
    y = height - 3 - _share(values, values[is_finite]) * (height - 6) if is_finite.any() else np.zeros(len(values))
    shapes = [_line(x[part], y[part]) for part in unbroken(is_finite)]
    shapes += [f'<path d="M{at:.1f} 1V{height - 1}" stroke="#c00"/>' for at in np.unique(x[~is_finite].round(1))]
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" fill="none" stroke="currentColor" '
        f'role="img">{"".join(shapes)}</svg>'
    )


def drawn(values: Values, width: int) -> NDArray[np.intp]:
    """Return the places of each column's first, last, least and greatest point, and of one that is not finite."""
    if len(values) <= 4 * width:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), width + 1).astype(np.intp).tolist()
    chosen: set[int] = set()
    for start, end in itertools.pairwise(edges):
        is_finite = np.isfinite(values[start:end])
        chosen |= {start, end - 1, *(start + place for place in _extremes(values[start:end], is_finite))}
        chosen |= {start + int(place) for place in np.flatnonzero(~is_finite)[:1]}
    return np.array(sorted(chosen))


def unbroken(is_finite: NDArray[np.bool_]) -> list[NDArray[np.intp]]:
    """Return the places of each unbroken row of True."""
    places = np.flatnonzero(is_finite)
    return [part for part in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if len(part)]


def _line(x: Values, y: Values) -> str:
    points = [f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    if len(points) == 1:
        return f'<circle cx="{x[0]:.1f}" cy="{y[0]:.1f}" r="1.5" fill="currentColor"/>'
    return f'<polyline points="{" ".join(points)}"/>'
