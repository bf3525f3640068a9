"""Encode a landscape for other programs: CSV, NPZ, VTP for ParaView, and pictures by matplotlib."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import textwrap
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from instrument.errors import InstrumentError
from instrument.facts.landscapes import legend
from instrument.facts.surface import LEVELS, Drawing, Floats, Scale, axis_titles, checkpoints, holes, is_line
from instrument.values import LossSurface

_VTK_TYPES = {"float64": "Float64", "int64": "Int64"}
#: The `number` of a VTP point that is none of the path.
_NO_NUMBER = -1
_PATH_COLOUR = "#d5371f"
_LABEL: dict[str, Any] = {"xytext": (5, 5), "textcoords": "offset points", "fontsize": 8}
_MOST_FACES_OF_A_SIDE = 128
#: Room for a digit of a checkpoint's number, as shares of the sides of the plot.
_NUMBER_WIDTH, _NUMBER_HEIGHT = 0.018, 0.035
#: Characters of a line of the title and of the caption, for each inch of the figure's width.
_TITLE_CHARACTERS, _CAPTION_CHARACTERS = 9, 13


def to_csv(surface: LossSurface) -> bytes:
    """Return a line for each point: `part` is grid, path or convergence; what is not finite stands as nan, inf or -inf.

    The points of the grid come row by row, with a column for each metric. `true_loss` is that of the checkpoint itself.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("part", "number", "x", "y", "loss", "true_loss", "unexplained", *_metrics(surface)))
    x, y = np.meshgrid(surface.x, surface.y)
    columns = [values.ravel().tolist() for values in (x, y, surface.z, *surface.metrics.values())]
    writer.writerows(("grid", "", *row[:3], "", "", *row[3:]) for row in zip(*columns, strict=True))
    none = [""] * len(surface.metrics)
    writer.writerows(("path", *checkpoint, *none) for checkpoint in checkpoints(surface))
    if surface.convergence.size:
        writer.writerow(("convergence", "", *surface.convergence.tolist(), "", "", *none))
    return text.getvalue().encode()


def to_npz(surface: LossSurface) -> bytes:
    """Return arrays under names: `grid_x`, `grid_y`, `grid_z` (rows follow y), and `metric_NAME` of the same shape.

    With a path also `numbers`, `path_x`, `path_y` and `path_z` (the loss on the plane); where they are known
    `true_loss`, `unexplained`, `explained_ratio` and `convergence_point` (x, y, loss). `metadata` is JSON text.
    """
    arrays: dict[str, NDArray[np.generic]] = {"grid_x": surface.x, "grid_y": surface.y, "grid_z": surface.z}
    arrays |= _metrics(surface)
    if surface.numbers.size:
        arrays |= {"numbers": surface.numbers, "path_x": surface.path[:, 0], "path_y": surface.path[:, 1]}
        arrays |= {"path_z": surface.path_loss}
    optional = {"true_loss": surface.true_loss, "unexplained": surface.unexplained}
    optional |= {"explained_ratio": surface.explained, "convergence_point": surface.convergence}
    arrays |= {name: values for name, values in optional.items() if not np.isnan(values).all()}
    metadata = {"tag": surface.tag, **surface.metadata}
    arrays["metadata"] = np.array(json.dumps(metadata, ensure_ascii=False, default=str))
    file = io.BytesIO()
    named: dict[str, Any] = dict(arrays)  # NumPy 1.26 would take allow_pickle for the name of an array
    np.savez_compressed(file, **named)
    return file.getvalue()


def _metrics(surface: LossSurface) -> dict[str, Floats]:
    return {f"metric_{name}": values for name, values in surface.metrics.items()}


def to_vtp(surface: LossSurface) -> bytes:
    """Return VTK PolyData: the surface as quadrilaterals, the path as vertices and as lines between them.

    Points are those of the grid and of the path whose loss is finite, at (x, y, loss). Their `loss` is repeated as a
    value; `number` is the step or epoch of a checkpoint, and -1 on the grid; `true_loss` is NaN there.
    `metric_NAME` are values of the grid only.
    """
    grid, faces, edges = _grid(surface)
    path, numbers, true_loss, segments = _path(surface)
    points = np.concatenate([grid, path])
    offset = len(grid)
    data: dict[str, NDArray[np.generic]] = {
        "loss": points[:, 2],
        "number": np.concatenate([np.full(offset, _NO_NUMBER), numbers]),
        "true_loss": np.concatenate([np.full(offset, np.nan), true_loss]),
    }
    none = np.full(len(path), np.nan)
    metrics = {name: np.concatenate([values[~holes(surface)], none]) for name, values in _metrics(surface).items()}
    cells = {
        "Verts": np.arange(offset, len(points))[:, None],
        "Lines": np.concatenate([edges, segments + offset]),
        "Strips": np.empty((0, 1), np.int64),
        "Polys": faces,
    }
    return "\n".join(_vtp(surface.tag, points, data | metrics, cells)).encode()


def _grid(surface: LossSurface) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Return points that are no holes (n, 3), faces without a hole at a corner (n, 4) and edges of a line (n, 2)."""
    is_point = ~holes(surface)
    x, y = np.meshgrid(surface.x, surface.y)
    points = np.stack([x[is_point], y[is_point], surface.z[is_point]], axis=1)
    index = np.full(surface.z.shape, -1)
    index[is_point] = np.arange(len(points))
    corners = np.stack([index[:-1, :-1], index[:-1, 1:], index[1:, 1:], index[1:, :-1]], axis=-1).reshape(-1, 4)
    edges = np.stack([index[0, :-1], index[0, 1:]], axis=-1)[: len(surface.x) * is_line(surface)]
    return points, corners[(corners >= 0).all(axis=1)], edges[(edges >= 0).all(axis=1)]


def _path(surface: LossSurface) -> tuple[Floats, NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Return points of the path (n, 3), their numbers and losses, and its pieces (n, 2), which pass no hole."""
    points = np.column_stack([surface.path, surface.path_loss])
    is_point = np.asarray(np.isfinite(points).all(axis=1))
    index = np.cumsum(is_point) - 1
    is_piece = is_point[:-1] & is_point[1:]
    pieces = np.stack([index[:-1][is_piece], index[1:][is_piece]], axis=1)
    return points[is_point], surface.numbers[is_point], surface.true_loss[is_point], pieces


def _vtp(
    tag: str, points: Floats, data: dict[str, NDArray[np.generic]], cells: dict[str, NDArray[np.int64]]
) -> Iterator[str]:
    counts = " ".join(f'NumberOf{name}="{len(ends)}"' for name, ends in cells.items())
    yield '<?xml version="1.0"?>'
    yield '<VTKFile type="PolyData" version="1.0" byte_order="LittleEndian" header_type="UInt64">'
    name = f'<Array type="String" Name="tag" NumberOfTuples="1" format="ascii">{_codes(tag)}</Array>'
    yield f"<PolyData><FieldData>{name}</FieldData>"
    yield f'<Piece NumberOfPoints="{len(points)}" {counts}>'
    yield '<PointData Scalars="loss">'
    yield from (_array(name, values) for name, values in data.items())
    yield "</PointData>"
    yield f"<Points>{_array('Points', points)}</Points>"
    for name, ends in cells.items():
        offsets = ends.shape[1] * np.arange(1, len(ends) + 1)
        yield f"<{name}>{_array('connectivity', ends.ravel())}{_array('offsets', offsets)}</{name}>"
    yield "</Piece></PolyData></VTKFile>\n"


def _codes(text: str) -> str:
    """Return a string in VTK's ASCII form: the numbers of its bytes, and a 0."""
    return " ".join(map(str, [*text.encode(), 0]))


def _array(name: str, values: NDArray[np.generic]) -> str:
    """Return an array in the binary form, which has a NaN: size in bytes and data, in base64."""
    data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()
    content = base64.b64encode(np.array([len(data)], "<u8").tobytes() + data).decode()
    components = "" if values.ndim == 1 else f' NumberOfComponents="{values.shape[1]}"'
    kind = _VTK_TYPES[values.dtype.name]
    return f'<DataArray type="{kind}" Name={quoteattr(name)}{components} format="binary">{content}</DataArray>'


# ---------------------------------------------------------------- pictures


def picture(drawing: Drawing, form: str) -> bytes:
    """Return the content of the file; `form` is "png", "svg" or "pdf".

    Raises:
        InstrumentError: matplotlib is not installed.
    """
    content = io.BytesIO()
    figure(drawing).savefig(content, format=form, dpi=150)
    return content.getvalue()


def figure(drawing: Drawing) -> Any:
    """Return a `matplotlib.figure.Figure`; raises as `picture` does."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InstrumentError(
            "A picture needs matplotlib, which is not installed: pip install matplotlib; an .html page needs nothing"
        ) from None
    # A figure of its own: no window is opened, and no setting of the process is changed.
    width = 7.0 if is_line(drawing.surface) else 13.0
    made: Any = Figure(figsize=(width, 5.8), layout="constrained")
    made.suptitle(_literal(textwrap.fill(drawing.title, int(width * _TITLE_CHARACTERS))))
    made.supxlabel(_literal(textwrap.fill(legend(drawing), int(width * _CAPTION_CHARACTERS))), fontsize=8)
    if is_line(drawing.surface):
        _line(made.add_subplot(), drawing)
    else:
        _contour(made, made.add_subplot(1, 2, 1), drawing)
        _surface(made.add_subplot(1, 2, 2, projection="3d"), drawing)
    return made


def _literal(text: str) -> str:
    """Escape dollar signs, which would begin a formula."""
    return text.replace("$", r"\$")


def _contour(made: Any, axes: Any, drawing: Drawing) -> None:
    surface, scale = drawing.surface, drawing.scale
    shares = np.ma.masked_invalid(scale.shares(surface.z))
    axes.patch.set(hatch="////", facecolor="white", edgecolor="#b0b6bd")  # is seen through holes
    drawn = axes.pcolormesh(surface.x, surface.y, shares, shading="nearest", cmap="viridis", vmin=0, vmax=1)
    levels = scale.levels(LEVELS)
    if len(levels) and min(shares.shape) > 1 and shares.count():
        axes.contour(surface.x, surface.y, shares, levels, colors="black", linewidths=0.5, alpha=0.5)
    path = surface.path
    axes.plot(*path.T, color="white", linewidth=3.5)
    axes.plot(*path.T, color=_PATH_COLOUR, linewidth=1.8, marker="o", markersize=5, markeredgecolor="white")
    for number, place in _apart(surface.numbers.tolist(), path, (surface.x, surface.y)):
        axes.annotate(str(number), place, clip_on=True, path_effects=_halo(), **_LABEL)
    if surface.convergence.size:
        axes.plot(*surface.convergence[:2], "+", color="white", markersize=12, markeredgewidth=2)
    ends = drawn.get_datalim(axes.transData)
    if ends.width and ends.height:  # the path does not widen the picture
        axes.set(xlim=ends.intervalx, ylim=ends.intervaly)
    x, y = axis_titles(surface)
    axes.set(xlabel=x, ylabel=y)
    axes.locator_params(nbins=6)
    bar = made.colorbar(drawn, ax=axes, ticks=[share for share, _ in scale.ticks()])
    bar.ax.set_yticklabels(_tick_labels(scale))
    bar.set_label(_literal(f"{drawing.quantity}, logarithmic" if scale.name == "log" else drawing.quantity))


def _apart(numbers: list[int], path: Floats, axes: tuple[Floats, Floats]) -> list[tuple[int, tuple[float, float]]]:
    """Return the checkpoints to be numbered: the last and the first, and those between that have room beside these."""
    widths = [float(np.ptp(axis)) or 1.0 for axis in axes]
    order = [*range(len(numbers))[-1:], *range(len(numbers) - 1)]
    kept: list[int] = []
    for index in order:
        place = path[index] / widths
        room = (_NUMBER_WIDTH * len(str(numbers[index])), _NUMBER_HEIGHT)
        if all((np.abs(place - path[other] / widths) > room).any() for other in kept):
            kept.append(index)
    return [(numbers[index], (float(path[index, 0]), float(path[index, 1]))) for index in kept]


def _halo() -> list[Any]:
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2, foreground="white")]


def _surface(axes: Any, drawing: Drawing) -> None:
    surface, scale = drawing.surface, drawing.scale
    shares = scale.shares(surface.z)
    step = max(1, math.ceil(max(shares.shape) / _MOST_FACES_OF_A_SIDE))
    x, y = np.meshgrid(surface.x, surface.y)
    if min(shares.shape) > 1:
        options = {"cmap": "viridis", "vmin": 0, "vmax": 1, "linewidth": 0, "antialiased": False, "alpha": 0.9}
        axes.plot_surface(x, y, shares, rstride=step, cstride=step, **options)
    heights = [scale.shares(losses) for losses in (surface.path_loss, surface.true_loss)]
    places = surface.path.T
    axes.plot(*places, heights[0], color=_PATH_COLOUR, linewidth=2, zorder=10)
    for x_, y_, low, high in zip(*places, *heights, strict=True):
        axes.plot([x_, x_], [y_, y_], [low, high], color=_PATH_COLOUR, linewidth=0.8, zorder=10)
    axes.plot(
        *places,
        np.where(np.isfinite(heights[1]), heights[1], heights[0]),
        "o",
        color=_PATH_COLOUR,
        markersize=4,
        zorder=11,
    )
    axes.set(xlabel="x", ylabel="y", zlim=(0, 1))
    axes.locator_params(axis="x", nbins=5)
    axes.locator_params(axis="y", nbins=5)
    axes.tick_params(labelsize=8)
    axes.zaxis.set_rotate_label(False)
    axes.set_zlabel(_literal(textwrap.shorten(drawing.quantity, 24, placeholder="…")), rotation=90)
    axes.set_zticks([share for share, _ in scale.ticks()], _tick_labels(scale))
    axes.tick_params(axis="z", pad=8)
    axes.zaxis.labelpad = 22
    axes.set_box_aspect(None, zoom=0.85)  # a label outside the cube would be cut off otherwise


def _line(axes: Any, drawing: Drawing) -> None:
    surface, scale = drawing.surface, drawing.scale
    axes.plot(surface.x, np.where(holes(surface)[0], np.nan, surface.z[0]), color=_PATH_COLOUR, marker=".")
    axes.plot(surface.path[:, 0], surface.path_loss, "o", color="black")
    for checkpoint in checkpoints(surface):
        if math.isfinite(checkpoint.x) and math.isfinite(checkpoint.path_loss):
            axes.annotate(str(checkpoint.number), (checkpoint.x, checkpoint.path_loss), **_LABEL)
    if scale.name == "log":
        axes.set_yscale("symlog", linthresh=scale.linear_below) if scale.linear_below else axes.set_yscale("log")
    if scale.is_clipped:
        axes.set_ylim(top=scale.high)
    axes.set(xlabel=axis_titles(surface)[0], ylabel=drawing.quantity)


def _tick_labels(scale: Scale) -> list[str]:
    labels = [f"{loss:.3g}" for _, loss in scale.ticks()]
    return [*labels[:-1], f"≥ {labels[-1]}"] if scale.is_clipped else labels
