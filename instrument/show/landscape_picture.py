"""Draw a landscape as a picture file: contour, surface and path, by matplotlib, which is imported only here."""

from __future__ import annotations

import io
import math
import textwrap
from typing import Any

import numpy as np

from instrument.errors import InstrumentError
from instrument.facts.landscapes import legend
from instrument.facts.surface import LEVELS, Drawing, Floats, Scale, axis_titles, checkpoints, holes, is_line

_PATH_COLOUR = "#d5371f"
_LABEL: dict[str, Any] = {"xytext": (5, 5), "textcoords": "offset points", "fontsize": 8}
_MOST_FACES_OF_A_SIDE = 128
#: Room for a digit of a checkpoint's number, as shares of the sides of the plot.
_NUMBER_WIDTH, _NUMBER_HEIGHT = 0.018, 0.035
#: Characters of a line of the title and of the caption, for each inch of the figure's width.
_TITLE_CHARACTERS, _CAPTION_CHARACTERS = 9, 13


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
    bar.set_label(_literal(f"{drawing.what}, logarithmic" if scale.name == "log" else drawing.what))


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
    axes.set_zlabel(_literal(textwrap.shorten(drawing.what, 24, placeholder="…")), rotation=90)
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
    axes.set(xlabel=axis_titles(surface)[0], ylabel=drawing.what)


def _tick_labels(scale: Scale) -> list[str]:
    labels = [f"{loss:.3g}" for _, loss in scale.ticks()]
    return [*labels[:-1], f"≥ {labels[-1]}"] if scale.is_clipped else labels
