"""Draw the charts of a report as SVG, which needs no script: curves of several runs, and histograms by step.

A curve is thinned before it is drawn, and keeps the least and the greatest of its values. Colours are classes of the
page, so that they follow its theme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape as escape_html
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.show import sparkline
from instrument.show.landscape_svg import ticks
from instrument.show.tables import escape, number
from instrument.values import Histogram

Floats = NDArray[np.float64]

#: Colours of the page distinguish that many runs, dashes the further ones.
COLOURS, DASHES = 8, 4
_WIDTH, _HEIGHT = 380, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 10, 24
_INNER_WIDTH, _INNER_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
#: From this ratio of the greatest to the least value on, the lower ones could not be told apart on a linear axis.
_LOG_FROM_RATIO = 1000.0
_TICKS = 4
_RIDGES, _RIDGE_HEIGHT, _RIDGE_APART = 10, 42, 17


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
        chosen = sparkline.drawn(value, _INNER_WIDTH // 2)
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
        (at,) = y.at(np.array([value])).tolist()
        yield f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 3.5:.1f}" text-anchor="end">{_label(value)}</text>'
    for value in (tick for tick in x.ticks() if tick == int(tick)):
        (at,) = x.at(np.array([value])).tolist()
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
    for part in sparkline.unbroken(is_finite):
        places = list(zip(across[part].tolist(), up[part].tolist(), strict=True))
        drawn = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        yield f'<path class="line" d="M{drawn}{"h0" if len(places) == 1 else ""}"/>'
    if line.best is not None and math.isfinite(line.best[1]):
        (a,), (b,) = x.at(np.array([float(line.best[0])])).tolist(), y.at(np.array([line.best[1]])).tolist()
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
        (at,) = x.at(np.array([value])).tolist()
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
    drawn = "".join(
        f"M{a:.1f} {base}V{top:.1f}H{b:.1f}V{base}z"
        for a, b, top in zip(starts.tolist(), ends.tolist(), tops.tolist(), strict=True)
    )
    yield f'<path class="ridge" d="{drawn}"/>'


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    label = escape_html(escape(title))
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
