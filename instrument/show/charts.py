"""Draw curves: as blocks in a cell of a terminal, and as SVG, which needs no script: small ones in a cell of a page,
charts of several runs, and histograms by step.

Where there are more points than room, the first, the last, the least and the greatest are drawn all the same, and the
same points always give the same curve. What is no finite number is marked. Colours of charts are classes of the page,
so that they follow its theme.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.analyse.layout import escape, number
from instrument.facts.surface import Floats
from instrument.values import Histogram

#: From the least to the greatest, and what is no finite number: with Unicode, and for terminals without.
BLOCKS, PLAIN = "▁▂▃▄▅▆▇█!", "_.-=+*%#!"
_LEVELS = 8
WIDTH = 24
_MIDDLE = 3
#: Colours of the page distinguish that many runs, dashes the further ones.
COLOURS, DASHES = 8, 4
_WIDTH, _HEIGHT = 380, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 10, 24
_INNER_WIDTH, _INNER_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
#: From this ratio of the greatest to the least value on, the lower ones could not be told apart on a linear axis.
_LOG_FROM_RATIO = 1000.0
_TICKS = 4
_RIDGES, _RIDGE_HEIGHT, _RIDGE_APART = 10, 42, 17


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

    values: Floats
    has_gap: NDArray[np.bool_]
    #: The least and the greatest finite value; None if there is none.
    range: tuple[float, float] | None

    def text(self, drawn_with: str = BLOCKS, scale: tuple[float, float] | None = None) -> str:
        """Return the curve as a row of characters, drawn between the ends of `scale`, or of its own range."""
        ends = np.array(scale or self.range or (), np.float64)
        levels = np.where(self.has_gap, _LEVELS, _levels(self.values, ends))
        return "".join(drawn_with[level] for level in levels.tolist())


def reduced(values: Floats, width: int = WIDTH) -> Reduced:
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


def _extremes(values: Floats, is_finite: NDArray[np.bool_]) -> list[int]:
    """Return the places of the least and the greatest; the one farther from the median comes last."""
    places = np.flatnonzero(is_finite)
    if not len(places):
        return []
    finite = values[places]
    ends = [int(finite.argmin()), int(finite.argmax())]
    middle = float(np.median(finite))
    return [int(places[end]) for end in sorted(ends, key=lambda end: abs(float(finite[end]) - middle))]


def _levels(values: Floats, finite: Floats) -> NDArray[np.intp]:
    if not len(finite) or finite.min() == finite.max():
        return np.full(len(values), _MIDDLE)
    return np.minimum(np.nan_to_num(_share(values, finite)) * _LEVELS, _LEVELS - 1).astype(np.intp)


@np.errstate(all="ignore")  # what is no finite number is marked whatever comes out
def _share(values: Floats, finite: Floats) -> Floats:
    """Map values to 0 for the least of `finite` and 1 for the greatest, 0.5 if they are equal."""
    low, high = finite.min(), finite.max()
    if not np.isfinite(high - low):
        values, low, high = values / 2, low / 2, high / 2
    share: Floats = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
    return share.clip(0, 1)


def sparkline(steps: NDArray[np.int64], values: Floats, width: int = 160, height: int = 28) -> str:
    """Return the values over their steps as an SVG element; red lines mark values that are no finite numbers."""
    if not len(values):
        return ""
    chosen = drawn(values, width)
    values, is_finite = values[chosen], np.isfinite(values)[chosen]
    along = _share(steps[chosen].astype(np.float64), steps.astype(np.float64))
    x = 2 + along * (width - 4)
    y = height - 3 - _share(values, values[is_finite]) * (height - 6) if is_finite.any() else np.zeros(len(values))
    shapes = [_polyline(x[part], y[part]) for part in unbroken(is_finite)]
    shapes += [f'<path d="M{at:.1f} 1V{height - 1}" stroke="#c00"/>' for at in np.unique(x[~is_finite].round(1))]
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" fill="none" stroke="currentColor" '
        f'role="img">{"".join(shapes)}</svg>'
    )


def drawn(values: Floats, width: int) -> NDArray[np.intp]:
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


def _polyline(x: Floats, y: Floats) -> str:
    points = [f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    if len(points) == 1:
        return f'<circle cx="{x[0]:.1f}" cy="{y[0]:.1f}" r="1.5" fill="currentColor"/>'
    return f'<polyline points="{" ".join(points)}"/>'


# ---------------------------------------------------------------- charts of several runs


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers between `low` and `high`."""
    if not (high - low) / count > 0 or not math.isfinite(high - low):
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    step = next((factor * power for factor in (1, 2, 5) if (high - low) / (factor * power) <= count), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


class Line(NamedTuple):
    """The points of one run and writer, thinned; `colour` is the number of the run, `best` a step and its value."""

    name: str
    colour: int
    dash: int
    step: NDArray[np.int64]
    value: Floats
    best: tuple[int, float] | None

    @classmethod
    def of(
        cls, name: str, colour: int, dash: int, points: tuple[NDArray[np.int64], Floats], best: tuple[int, float] | None
    ) -> Line:
        """Make a line of steps and values that may be many."""
        step, value = points
        chosen = drawn(value, _INNER_WIDTH // 2)
        return cls(name, colour, dash, step[chosen], value[chosen], best)


class _Axis(NamedTuple):
    """Maps values to lengths along one side of a chart, `start` for `low` and `end` for `high`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, values: Floats) -> Floats:
        low, high, shown = self.low, self.high, values
        if self.is_log:
            low, high, shown = math.log10(low), math.log10(high), np.log10(values)
        with np.errstate(all="ignore"):  # halves, as the whole range may be larger than a number can be
            share = np.nan_to_num((shown / 2 - low / 2) / (high / 2 - low / 2))
        return np.asarray(self.start + share.clip(0, 1) * (self.end - self.start))

    def place(self, value: float) -> float:
        return float(self.at(np.array([value], np.float64))[0])

    def ticks(self) -> list[float]:
        if not self.is_log:
            return ticks(self.low, self.high, _TICKS)
        powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
        step = max(1, math.ceil(len(powers) / _TICKS))
        return [10.0**power for power in powers[::step]] or [self.low, self.high]


def chart(lines: Sequence[Line], title: str) -> str:
    """Return an `<svg>` element with all lines in one scale; red marks at the top are values that are not finite."""
    steps = np.concatenate([line.step for line in lines]).astype(np.float64)
    values = np.concatenate([line.value for line in lines])
    x = _axis(steps, _LEFT, _LEFT + _INNER_WIDTH)
    y = _axis(values[np.isfinite(values)], _TOP + _INNER_HEIGHT, _TOP, may_be_log=True)
    parts = [*_frame(x, y), *(part for line in lines for part in _line(line, x, y))]
    return _svg(_WIDTH, _HEIGHT, title, parts)


def is_log(lines: Sequence[Line]) -> bool:
    """Return True if a chart of these lines has a logarithmic axis."""
    values = np.concatenate([line.value for line in lines])
    return _is_log(values[np.isfinite(values)])


def _is_log(finite: Floats) -> bool:
    return bool(finite.size) and bool(finite.min() > 0) and bool(finite.max() / finite.min() >= _LOG_FROM_RATIO)


@np.errstate(over="ignore")
def _axis(values: Floats, start: float, end: float, may_be_log: bool = False) -> _Axis:
    if not values.size:
        return _Axis(0.0, 1.0, start, end)
    low, high = float(values.min()), float(values.max())
    if may_be_log and _is_log(values):
        return _Axis(low, high, start, end, is_log=True)
    if low == high:
        apart = abs(low) * 0.1 or 1.0
        return _Axis(low - apart, high + apart, start, end)
    room = (high - low) * 0.04 if may_be_log else 0.0
    return _Axis(low - room, high + room, start, end) if math.isfinite(room) else _Axis(low, high, start, end)


def _frame(x: _Axis, y: _Axis) -> Iterator[str]:
    bottom, right = _TOP + _INNER_HEIGHT, _LEFT + _INNER_WIDTH
    for value in y.ticks():
        at = y.place(value)
        yield f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 3.5:.1f}" text-anchor="end">{_label(value)}</text>'
    for value in (tick for tick in x.ticks() if tick == int(tick)):
        at = x.place(value)
        anchor = "end" if at > right - 14 else "middle"
        yield f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="{anchor}">{_label(value)}</text>'
    yield f'<path class="frame" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'


def _label(value: float) -> str:
    return escape_html(f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3g}")


def _line(line: Line, x: _Axis, y: _Axis) -> Iterator[str]:
    """Yield the unbroken pieces of a line, its best value, and marks of values that are not finite."""
    name = escape_html(escape(line.name))
    is_finite = np.isfinite(line.value)
    across = x.at(line.step.astype(np.float64))
    up = y.at(np.where(is_finite, line.value, y.low))
    style = f"c{line.colour % COLOURS} d{(line.colour // COLOURS + line.dash) % DASHES}"
    yield f'<g class="{style}"><title>{name}</title>'
    for part in unbroken(is_finite):
        places = list(zip(across[part].tolist(), up[part].tolist(), strict=True))
        pieces = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        yield f'<path class="line" d="M{pieces}{"h0" if len(places) == 1 else ""}"/>'
    if line.best is not None and math.isfinite(line.best[1]):
        a, b = x.place(line.best[0]), y.place(line.best[1])
        words = f"{name}: best {number(line.best[1])} at step {line.best[0]}"
        yield f'<circle class="best" cx="{a:.1f}" cy="{b:.1f}" r="3"><title>{words}</title></circle>'
    yield "</g>"
    broken = np.unique(across[~is_finite].round(1)).tolist()
    if broken:
        marks = "".join(f"M{at} {_TOP - 6}v6" for at in broken)
        yield f'<path class="broken" d="{marks}"><title>{name}: not finite</title></path>'


# ---------------------------------------------------------------- histograms


def ridges(histograms: Sequence[tuple[int, Histogram]], title: str, colour: int) -> str:
    """Return an `<svg>` element with a histogram a step, one below the other, on one axis of values."""
    shown = [(step, *_density(histogram)) for step, histogram in histograms]
    edges = [edge for _, left, width, _ in shown for edge in (*left[:1], *(left + width)[-1:])]
    height = _TOP + _RIDGE_HEIGHT + _RIDGE_APART * max(len(shown) - 1, 0) + _BOTTOM
    if not edges:
        return _svg(_WIDTH, _TOP + _BOTTOM, title, [f'<text x="{_LEFT}" y="20">no finite values</text>'])
    x = _axis(np.array(edges), _LEFT, _LEFT + _INNER_WIDTH)
    most = max((float(density.max()) for _, _, _, density in shown if density.size), default=1.0)
    parts = [f'<g class="c{colour % COLOURS}">']
    for place, (step, left, width, density) in enumerate(shown):
        base = _TOP + _RIDGE_HEIGHT + place * _RIDGE_APART
        parts += _ridge(x, left, width, density / most, base)
        parts.append(f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">{step}</text>')
    parts.append("</g>")
    for value in x.ticks():
        at = x.place(value)
        parts.append(f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle">{_label(value)}</text>')
    return _svg(_WIDTH, height, title, parts)


def chosen(count: int) -> list[int]:
    """Return the places of the drawn ones of `count` histograms: the first, the last, and some between."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, _RIDGES)).tolist()}) if count else []


def _density(histogram: Histogram) -> tuple[Floats, Floats, Floats]:
    """Return left edges, widths and densities of the buckets that hold something and are finite."""
    left, width, counts = histogram.left, histogram.width, histogram.counts
    kept = np.isfinite(left) & np.isfinite(width) & np.isfinite(left + width) & (counts > 0) & (width >= 0)
    left, width, counts = left[kept], width[kept], counts[kept]
    total = float(counts.sum()) or 1.0
    least = float(width.max()) / 100 if width.size and width.max() > 0 else 1.0
    return left, width, counts / total / np.maximum(width, least)


def _ridge(x: _Axis, left: Floats, width: Floats, share: Floats, base: float) -> Iterator[str]:
    yield f'<path class="grid" d="M{_LEFT} {base}h{_INNER_WIDTH}"/>'
    if not left.size:
        return
    starts, ends = x.at(left), np.maximum(x.at(left + width), x.at(left) + 1)
    tops = base - share * _RIDGE_HEIGHT
    pieces = "".join(
        f"M{a:.1f} {base}V{top:.1f}H{b:.1f}V{base}z"
        for a, b, top in zip(starts.tolist(), ends.tolist(), tops.tolist(), strict=True)
    )
    yield f'<path class="ridge" d="{pieces}"/>'


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    label = escape_html(escape(title))
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
