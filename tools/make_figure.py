"""Draw docs/figures/first_run.svg, the picture of the README, out of real runs.

    python examples/lenet5.py demo_run && python examples/landscape.py demo_landscape
    python tools/make_figure.py demo_run demo_landscape docs/figures/first_run.svg

Everything in it is read from these runs: the loss and the accuracy, the histograms of a layer, the operators that took
most of the profiled steps, and the loss around the path.
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from instrument import Run, read

_BLUE, _ORANGE, _RED, _GREY = "#2f6fab", "#e08a1e", "#d5371f", "#5b6570"
_OPERATORS = 6


def main() -> None:
    run, landscape, out = sys.argv[1:]
    # Letters as such keep the file small; one salt, so that the same runs give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "instrument", "font.size": 9})
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    axes = figure.subplots(2, 2)
    opened = read(run)
    _curves(axes[0, 0], opened)
    _histograms(axes[0, 1], opened)
    _operators(axes[1, 0], opened)
    _landscape(figure, axes[1, 1], read(landscape))
    figure.savefig(out, format="svg", metadata={"Date": None}, facecolor="white")


def _curves(axes: Any, run: Run) -> None:
    loss, accuracy = run.scalars("loss/auto"), run.scalars("eval/accuracy/auto")
    axes.plot(loss.step, loss.value, color=_BLUE, marker=".", label="loss/auto")
    axes.set(title="scalars", xlabel="step", ylabel="loss", ylim=(0, None))
    other = axes.twinx()
    other.plot(accuracy.step, accuracy.value, color=_ORANGE, marker="o", label="eval/accuracy/auto")
    other.set(ylabel="accuracy", ylim=(0, 1))
    lines = [*axes.get_lines(), *other.get_lines()]
    axes.legend(lines, [line.get_label() for line in lines], loc="center right", frameon=False)


def _histograms(axes: Any, run: Run) -> None:
    """Density over the value, one line a step, the later ones darker."""
    points = list(run.histograms("conv2.weight/auto"))[::4]
    for index, (step, _, value) in enumerate(points):
        shade = 0.25 + 0.75 * index / max(len(points) - 1, 1)
        density = value.counts / (value.width * value.count)
        axes.stairs(density, np.append(value.left, value.left[-1] + value.width[-1]), color=_BLUE, alpha=shade,
                    label=f"step {step}")  # fmt: skip
    axes.set(title="histograms of conv2.weight", xlabel="value", ylabel="density")
    axes.legend(frameon=False)


def _operators(axes: Any, run: Run) -> None:
    profile = run.profile()
    types, steps = profile.operator_types, profile.steps
    names, shares = types["type"][:_OPERATORS], types["share_percent"][:_OPERATORS]
    axes.barh(names[::-1], shares[::-1], color=_RED)
    for place, share in enumerate(shares[::-1]):
        axes.annotate(f"{share:.1f} %", (share, place), xytext=(3, -3), textcoords="offset points", color=_GREY)
    first, last = steps["step"][0], steps["step"][-1]
    mean_ms = float(np.mean(steps["total_ns"])) / 1e6
    title = f"profile of steps {first} to {last}: {mean_ms:.0f} ms a step"
    axes.set(title=title, xlabel="share of the operators' time, %", xlim=(0, 1.15 * float(shares.max())))


def _landscape(figure: Any, axes: Any, run: Run) -> None:
    (surface,) = run.landscapes
    axes.patch.set(hatch="////", facecolor="white", edgecolor="#b0b6bd")  # is seen where the loss is infinite
    finite = np.ma.masked_invalid(np.log10(surface.z))
    drawn = axes.contourf(surface.x, surface.y, finite, 14, cmap="viridis")
    axes.plot(*surface.path.T, color="white", linewidth=3)
    axes.plot(*surface.path.T, color=_RED, linewidth=1.5, marker="o", markersize=4)
    share = 100 * float(surface.explained[:2].sum())
    axes.set(title=f"loss around the path (the plane explains {share:.0f} %)", xlabel="x", ylabel="y")
    figure.colorbar(drawn, ax=axes, label="log10 of the loss")


if __name__ == "__main__":
    main()
