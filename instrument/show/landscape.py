"""Make one HTML file of a landscape, which opens without a network: contour, rotating surface, path and facts.

The contour is SVG: colours, levels, holes, path. The surface is drawn by a script of the page. Every text is escaped,
and a policy in the page keeps it from loading anything.
"""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from instrument.analyse.layout import number
from instrument.facts.landscapes import legend
from instrument.facts.surface import LEVELS, Drawing, Floats, Scale, axis_titles, checkpoints, is_line, unit
from instrument.show import pages
from instrument.show.charts import ticks
from instrument.values import LossSurface

#: Dark to light at even steps, told apart by colour-blind eyes too: viridis, by S. van der Walt and N. Smith (CC0).
_ANCHORS = (
    0x440154, 0x482878, 0x3E4989, 0x31688E, 0x26828E, 0x1F9E89, 0x35B779, 0x6ECE58, 0xB5DE2B, 0xFDE725,
)  # fmt: skip
_SIDE, _LEFT, _TOP = 420, 82, 30
_WIDTH, _HEIGHT = _LEFT + _SIDE + 104, _TOP + _SIDE + 62
_BAR = _LEFT + _SIDE + 18
#: Pixels of a side where the values of an axis are not evenly apart.
_UNEVEN_PIXELS = 512
_BAR_STEPS = 60
_TITLE_CHARACTERS = 24
#: Space that the number of a checkpoint takes: a digit's width, and a line's height.
_DIGIT, _ROW = 7.0, 13.0
_DEFINITIONS = (
    '<defs><pattern id="hatching" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="hole" d="M0,0V8"/></pattern>'
    f'<clipPath id="inside"><rect x="{_LEFT - 6}" y="{_TOP - 6}" width="{_SIDE + 12}" height="{_SIDE + 12}"/>'
    "</clipPath></defs>"
)
#: Colours of the rotating surface, and digits of its shares.
_COLOURS, _SHARE_DIGITS = 64, 4


def html(drawing: Drawing, path: str, facts: Iterable[tuple[str, str]], rows: Sequence[Sequence[str | float]]) -> str:
    """Return the page of a run at `path`: `facts` are names and texts, `rows` a row of names and one a checkpoint."""
    is_flat = is_line(drawing.surface)
    cells = [[cell if isinstance(cell, str) else number(cell) for cell in row] for row in rows]
    path_rows = [[pages.cell(escape(cell), "n") for cell in row] for row in cells[1:]]
    return pages.page(
        "landscape.html",
        title=escape(drawing.title),
        subtitle=escape(path),
        contour=contour_svg(drawing),
        legend=escape(legend(drawing)),
        rotating="" if is_flat else pages.filled("landscape_surface.html", data=_data(drawing)),
        facts="\n".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts),
        checkpoints=pages.table(map(escape, cells[0]), path_rows) if rows else "",
    )


def _data(drawing: Drawing) -> str:
    """Return the JSON that the script draws: lengths as shares of a side or of the range of losses."""
    surface, scale = drawing.surface, drawing.scale
    x, y = (_along(axis, axis) for axis in (surface.x, surface.y))
    path = [_along(surface.x, surface.path[:, 0]), _along(surface.y, surface.path[:, 1])]
    path += [scale.shares(surface.path_loss), scale.shares(surface.true_loss)]
    places = [_rounded(row) for row in np.stack(path, axis=1)]
    numbered = zip(places, surface.numbers.tolist(), strict=True)
    data = {
        "x": _rounded(x),
        "y": _rounded(y),
        "z": [_rounded(row) for row in scale.shares(surface.z)],
        "path": [[*place, number] for place, number in numbered if None not in place[:2]],
        "colours": hexes(_COLOURS),
        "labels": [*_labels(surface.x, 0), *_labels(surface.y, 1)],
        "heights": _heights(drawing.quantity, scale),
    }
    # In a script element only "<" could end it early.
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _along(axis: Floats, values: Floats) -> Floats:
    low, high = axis[0], axis[-1]
    return np.asarray((values - low) / (high - low)) if high > low else np.full(len(values), 0.5)


def _rounded(values: Floats) -> list[float | None]:
    return [round(value, _SHARE_DIGITS) if math.isfinite(value) else None for value in values.tolist()]


def _labels(axis: Floats, index: int) -> list[list[str | float]]:
    """Return the ends and the title of an axis: text, which axis, the share of its length, and how far outside."""
    texts = ((0.0, f"{axis[0]:.3g}", 0.08), (1.0, f"{axis[-1]:.3g}", 0.08), (0.5, "xy"[index], 0.12))
    return [[text, index, share, outside] for share, text, outside in texts]


def _heights(quantity: str, scale: Scale) -> list[list[str | float]]:
    """Return the ends and the name of the upright axis: text and height."""
    sign = "\u2265 " if scale.is_clipped else ""
    return [[f"{scale.low:.3g}", 0.0], [quantity, 0.5], [f"{sign}{scale.high:.3g}", 1.0]]


# ---------------------------------------------------------------- contour


def colours(shares: Floats) -> NDArray[np.uint8]:
    """Return red, green and blue for shares of any shape, in a new last axis; black for NaN."""
    anchors = np.array([[anchor >> shift & 255 for shift in (16, 8, 0)] for anchor in _ANCHORS])
    position = np.nan_to_num(shares) * (len(anchors) - 1)
    channels = [np.interp(position, np.arange(len(anchors)), anchors[:, channel]) for channel in range(3)]
    mixed = np.stack(channels, axis=-1).round().astype(np.uint8)
    mixed[np.isnan(shares)] = 0
    return mixed


def hexes(count: int) -> list[str]:
    """Return `count` colours from the lowest to the highest loss."""
    return ["#" + bytes(colour).hex() for colour in colours(np.linspace(0, 1, count))]


def contour_svg(drawing: Drawing) -> str:
    """Return an `<svg>` element."""
    parts = _line(drawing) if is_line(drawing.surface) else _plane(drawing)
    name = escape(f"{drawing.quantity}: {drawing.title}")
    return "\n".join(
        [
            f'<svg class="plane" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{name}">',
            _DEFINITIONS,
            *parts,
            "</svg>",
        ]
    )


class _Frame:
    """Maps values to places in the picture."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self._x, self._y = x, y

    def left(self, x: float) -> float:
        return _LEFT + _SIDE * _share(x, self._x)

    def top(self, y: float) -> float:
        return _TOP + _SIDE * (1 - _share(y, self._y))

    def place(self, x: float, y: float) -> str:
        return f"{self.left(x):.2f},{self.top(y):.2f}"

    def titles(self, x: str, y: str) -> Iterator[str]:
        """Write the titles of the axes, each along its axis."""
        middle, left = _TOP + _SIDE / 2, 16
        yield f'<text class="title" x="{_LEFT + _SIDE / 2}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(x)}</text>'
        if y:
            turned = f'transform="rotate(-90 {left} {middle})"'
            yield f'<text class="title" x="{left}" y="{middle}" text-anchor="middle" {turned}>{escape(y)}</text>'

    def x_axis(self) -> Iterator[str]:
        yield f'<rect class="frame" x="{_LEFT}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}"/>'
        bottom = _TOP + _SIDE
        for value in ticks(*self._x):
            left = self.left(value)
            yield f'<path class="frame" d="M{left:.2f},{bottom}v5"/>'
            yield f'<text x="{left:.2f}" y="{bottom + 19}" text-anchor="middle">{value:.6g}</text>'

    def y_axis(self) -> Iterator[str]:
        for value in ticks(*self._y):
            top = self.top(value)
            yield f'<path class="frame" d="M{_LEFT},{top:.2f}h-5"/>'
            yield f'<text x="{_LEFT - 9}" y="{top + 4:.2f}" text-anchor="end">{value:.6g}</text>'


def _share(value: float, ends: tuple[float, float]) -> float:
    low, high = ends
    return (value - low) / (high - low) if high > low else 0.5


def _plane(drawing: Drawing) -> Iterator[str]:
    surface, scale = drawing.surface, drawing.scale
    frame = _Frame(*(_ends(axis) for axis in (surface.x, surface.y)))
    shares = scale.shares(surface.z)
    yield f'<rect x="{_LEFT}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" fill="url(#hatching)"/>'
    yield (
        f'<image x="{_LEFT}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="{_picture(surface, shares)}"/>'
    )
    for level in scale.levels(LEVELS).tolist():
        pieces = contour_lines(surface.x, surface.y, shares, level).tolist()
        if pieces:
            drawn = "".join(f"M{frame.place(*piece[:2])}L{frame.place(*piece[2:])}" for piece in pieces)
            loss = float(scale.losses(np.array(level)))
            title = escape(f"{drawing.quantity} {loss:.4g}")
            yield f'<path class="level" d="{drawn}"><title>{title}</title></path>'
    yield from frame.x_axis()
    yield from frame.y_axis()
    yield from frame.titles(*axis_titles(surface))
    yield from _bar(drawing)
    yield from _path(surface, frame, surface.path[:, 1].tolist())
    if surface.convergence.size:
        x, y, loss = surface.convergence.tolist()
        title = f"<title>convergence point: loss {loss:.6g}</title>"
        yield f'<path class="convergence" d="M{frame.place(x, y)}m-6,0h12m-6,-6v12">{title}</path>'


def _line(drawing: Drawing) -> Iterator[str]:
    """Draw the losses along one axis, with a gap at each hole."""
    surface, scale = drawing.surface, drawing.scale
    low, high = scale.shares(np.array([scale.low, scale.high]))
    frame = _Frame((float(surface.x[0]), float(surface.x[-1])), (float(low), float(high)))
    heights = scale.shares(surface.z[0])
    pieces, is_down = [], False
    for x, height in zip(surface.x.tolist(), heights.tolist(), strict=True):
        if math.isfinite(height):
            pieces.append(("L" if is_down else "M") + frame.place(x, height) + ("" if is_down else "h0"))
        is_down = math.isfinite(height)
    yield f'<path class="path" d="{"".join(pieces)}"/>'
    yield from frame.x_axis()
    yield from frame.titles(axis_titles(surface)[0], "")
    yield from _bar(drawing)
    yield from _path(surface, frame, scale.shares(surface.path_loss).tolist())


def _ends(axis: Floats) -> tuple[float, float]:
    """Return the ends of the picture: half a cell beyond the outermost points, which are middles of their pixels."""
    if len(axis) == 1:
        return float(axis[0]) - 0.5, float(axis[0]) + 0.5
    return float(axis[0] - (axis[1] - axis[0]) / 2), float(axis[-1] + (axis[-1] - axis[-2]) / 2)


def _picture(surface: LossSurface, shares: Floats) -> str:
    """Return the address of a picture: a pixel a point, or its nearest point if they are uneven; holes transparent."""
    nearest = shares[np.ix_(_nearest(surface.y)[::-1], _nearest(surface.x))]
    pixels = np.dstack([colours(nearest), np.where(np.isnan(nearest), 0, 255).astype(np.uint8)])
    return "data:image/png;base64," + base64.b64encode(_png(pixels)).decode()


def _nearest(axis: Floats) -> NDArray[np.intp]:
    """Return the index of the point of each pixel along an axis."""
    apart = np.diff(axis)
    if len(axis) < 3 or np.ptp(apart) < 1e-3 * apart.max():
        return np.arange(len(axis))
    low, high = _ends(axis)
    middles = low + (np.arange(_UNEVEN_PIXELS) + 0.5) / _UNEVEN_PIXELS * (high - low)
    return np.searchsorted((axis[:-1] + axis[1:]) / 2, middles)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode pixels of (height, width, 4) as PNG: red, green, blue, opacity."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    framed = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def _bar(drawing: Drawing) -> Iterator[str]:
    """Draw the colours from the lowest to the highest loss, with their title and some losses beside them."""
    scale = drawing.scale
    quantity = (
        drawing.quantity
        if len(drawing.quantity) <= _TITLE_CHARACTERS
        else drawing.quantity[: _TITLE_CHARACTERS - 1] + "\u2026"
    )
    words = f"{quantity}, log" if scale.name == "log" else quantity
    yield f'<text class="title" x="{_WIDTH - 4}" y="{_TOP - 12}" text-anchor="end">{escape(words)}</text>'
    for index, colour in enumerate(reversed(hexes(_BAR_STEPS))):
        top = _TOP + _SIDE * index / _BAR_STEPS
        yield f'<rect x="{_BAR}" y="{top:.2f}" width="14" height="{_SIDE / _BAR_STEPS + 0.5:.2f}" fill="{colour}"/>'
    for share, loss in scale.ticks():
        sign = "\u2265 " if scale.is_clipped and share == 1 else ""
        top = _TOP + _SIDE * (1 - share)
        yield f'<text x="{_BAR + 20}" y="{top + 4:.2f}">{sign}{loss:.4g}</text>'


def _path(surface: LossSurface, frame: _Frame, heights: list[float]) -> Iterator[str]:
    """Draw the checkpoints in their order, where they are projected to; `heights` are their places in the frame."""
    path = [
        (checkpoint, frame.place(checkpoint.x, height))
        for checkpoint, height in zip(checkpoints(surface), heights, strict=True)
        if math.isfinite(checkpoint.x) and math.isfinite(height)
    ]
    yield '<g clip-path="url(#inside)">'
    if len(path) > 1:
        places = " ".join(place for _, place in path)
        yield from (f'<polyline class="{name}" points="{places}"/>' for name in ("under", "path"))
    for checkpoint, place in path:
        left, top = place.split(",")
        words = escape(f"{unit(surface)} {checkpoint.number}: loss {checkpoint.path_loss:.6g} on the plane")
        yield f'<circle class="point" cx="{left}" cy="{top}" r="4.5"><title>{words}</title></circle>'
    numbered = ((str(checkpoint.number), place.split(",")) for checkpoint, place in path)
    yield from _numbers([(text, float(left), float(top)) for text, (left, top) in numbered])
    yield "</g>"


def _numbers(places: Sequence[tuple[str, float, float]]) -> Iterator[str]:
    """Write numbers beside their points, the last and the first before those between; one without room is left out."""
    taken: list[tuple[float, float, float]] = []
    for text, left, top in [*places[-1:], *places[:-1]]:
        width = _DIGIT * len(text)
        start = left + 7 if left + 7 + width <= _LEFT + _SIDE else left - 7 - width
        row = top - 6 if top - 6 - _ROW >= _TOP else top + 6 + _ROW
        if all(abs(row - other) >= _ROW or start > end or start + width < begin for begin, end, other in taken):
            taken.append((start, start + width, row))
            yield f'<text class="number" x="{start:.2f}" y="{row:.2f}">{text}</text>'


# ---------------------------------------------------------------- lines of equal loss, by marching squares

_Edges = tuple[tuple[int, int], ...]

# Corners of a cell, and with them its edges, go round: edge 0 leads from corner 0 to corner 1, edge 3 from 3 to 0.
_CORNER_ROW = np.array([0, 0, 1, 1])
_CORNER_COLUMN = np.array([0, 1, 1, 0])
#: Corners on the other side than corner 3, as bits from corner 0 on -> the two edges between which a line goes.
_LINES: dict[int, _Edges] = {1: ((3, 0),), 2: ((0, 1),), 3: ((3, 1),), 4: ((1, 2),), 6: ((0, 2),), 7: ((2, 3),)}
#: Corners 0 and 2: a line cuts off each, unless the middle of the cell is on their side; then corners 1 and 3.
_SADDLE = 5
_APART: _Edges = ((3, 0), (1, 2))
_TOGETHER: _Edges = ((0, 1), (2, 3))


def contour_lines(x: Floats, y: Floats, z: Floats, level: float) -> Floats:
    """Return the pieces of the line at `level`, (pieces, 4): x and y of one end, then of the other.

    `x` is (columns,), `y` (rows,), `z` (rows, columns) with NaN for holes. A cell with a hole at a corner has no line.
    """
    offsets = zip(_CORNER_ROW.tolist(), _CORNER_COLUMN.tolist(), strict=True)
    corners = np.stack([z[row : len(y) - 1 + row, column : len(x) - 1 + column] for row, column in offsets])
    sides = (corners >= level) ^ (corners[3] >= level)
    case = (sides * (1 << np.arange(4))[:, None, None]).sum(axis=0)
    case[~np.isfinite(corners).all(axis=0)] = 0
    is_joined = (corners.mean(axis=0) >= level) ^ (corners[3] >= level)
    chosen = [(case == number, edges) for number, edges in _LINES.items()]
    chosen += [((case == _SADDLE) & ~is_joined, _APART), ((case == _SADDLE) & is_joined, _TOGETHER)]
    pieces = [np.empty((0, 4))]
    for mask, edges in chosen:
        cells = np.argwhere(mask)
        pieces += [np.hstack([_crossing(x, y, z, level, cells, edge) for edge in pair]) for pair in edges]
    return np.concatenate(pieces)


def _crossing(x: Floats, y: Floats, z: Floats, level: float, cells: NDArray[np.intp], edge: int) -> Floats:
    """Return the points at which the level crosses an edge of some cells, (cells, 2)."""
    ends = [edge, (edge + 1) % 4]
    rows, columns = cells[:, :1] + _CORNER_ROW[ends], cells[:, 1:] + _CORNER_COLUMN[ends]
    first, second = z[rows, columns].T
    along = (level - first) / (second - first)
    places = (x[columns], y[rows])
    return np.stack([place[:, 0] + along * (place[:, 1] - place[:, 0]) for place in places], axis=1)
