"""What is drawn of a landscape: points, holes, scales."""

from __future__ import annotations

import math

import numpy as np
import pytest

from instrument.errors import InstrumentError
from instrument.facts import landscapes
from instrument.facts.surface import (
    Point,
    Scale,
    axis_titles,
    check,
    checkpoints,
    highest,
    holes,
    is_inside,
    is_line,
    lowest,
)  # fmt: skip
from tests.show.surfaces import line, no_path, plane


def test_extremes_pass_holes_by() -> None:
    """Lowest and highest are finite, at the columns of x and the rows of y."""
    assert lowest(plane()) == Point(0.0, 0.0, 1.0)
    assert highest(plane()) == Point(2.0, 0.5, 9.0)
    assert holes(plane()).tolist() == [[False] * 3 + [True]] * 2 + [[False, False, True, False]]
    nothing = plane(z=np.full((3, 4), math.nan))
    assert (lowest(nothing), highest(nothing)) == (None, None)


def test_a_checkpoint_is_inside_the_grid_or_not() -> None:
    """The ends belong to it; a line has no width to be outside of."""
    surface = plane(path=np.array([[2.0, 0.5], [2.1, 0.0], [math.nan, 0.0]]))
    assert [is_inside(surface, one) for one in checkpoints(surface)] == [True, False, False]
    assert is_line(line())
    assert [is_inside(line(), one) for one in checkpoints(line())] == [True, True]


@pytest.mark.parametrize("axis", [[0, 0, 1, 2], [3, 2, 1, 0], [0, 1, math.nan, 3], [0, 1, 2, math.inf]])
def test_axes_that_cannot_be_drawn_are_refused(axis: list[float]) -> None:
    """They are named."""
    check(plane())
    with pytest.raises(InstrumentError, match=r"'landscape_\[1, 4\]' cannot be drawn: its x axis"):
        check(plane(x=np.array(axis, np.float64)))


def test_a_linear_scale() -> None:
    """Of all finite losses of the grid; holes have no share, and checkpoints beyond it take the colour of its end."""
    scale = Scale.of(plane())
    assert (scale.name, scale.low, scale.high, scale.is_clipped) == ("linear", 1.0, 9.0, False)
    assert scale.shares(np.array([1.0, 3.0, 9.0])).tolist() == [0.0, 0.25, 1.0]
    assert np.isnan(scale.shares(np.array([math.nan, math.inf, -math.inf]))).all()
    assert scale.levels(3).tolist() == [0.25, 0.5, 0.75]
    assert scale.losses(scale.levels(3)).tolist() == [3.0, 5.0, 7.0]
    far = Scale.of(plane(true_loss=np.array([17.0, math.inf, 0.5])))
    assert (far.low, far.high, far.is_clipped) == (1.0, 9.0, False)
    assert far.shares(np.array([17.0, 0.5])).tolist() == [1.0, 0.0]
    assert Scale.of(plane(z=np.full((3, 4), math.nan))).high == 7.5  # nothing but the path has losses


def test_a_clipped_scale() -> None:
    """All above is at its end, and it says so; a clip above all changes nothing, one below all leaves the lowest."""
    scale = Scale.of(plane(), clip=5.0)
    assert (scale.high, scale.is_clipped) == (5.0, True)
    assert scale.shares(np.array([3.0, 5.0, 9.0])).tolist() == [0.5, 1.0, 1.0]
    assert not Scale.of(plane(), clip=9.0).is_clipped
    assert Scale.of(plane(), clip=-1.0).high == 1.0


@pytest.mark.parametrize("name", ["auto", "linear", "log"])
@pytest.mark.parametrize("outliers", [[1e6], [1e3], [1e3, 1e9], [1e300]])
def test_far_outliers_do_not_flatten_the_picture(name: str, outliers: list[float]) -> None:
    """A few points far above a bowl take the colour of its end, are counted, and leave its range as it is."""
    x = np.linspace(-1, 1, 11)
    bowl = 1 + x[:, None] ** 2 + x**2
    z = bowl.copy()
    z[5, : len(outliers)] = outliers
    scale = Scale.of(no_path(x=x, y=x, z=z), name)
    assert (scale.low, scale.high, scale.clipped) == (1.0, 3.0, len(outliers))
    assert scale.name == ("log" if name == "log" else "linear")
    assert scale.suggests_log is (name != "log")
    assert Scale.of(no_path(x=x, y=x, z=bowl), name).clipped == 0


def test_an_explicit_clip_is_taken_as_it_is() -> None:
    """Also above outliers: all of them are drawn then."""
    z = np.ones((5, 5)) + np.arange(5) / 4
    z[0, 0] = 1e6
    assert Scale.of(no_path(z=z), "linear").high == 2.0
    assert Scale.of(no_path(z=z), "linear", clip=1e6).high == 1e6


@pytest.mark.parametrize("power", [2, 4, 8])
def test_a_steep_surface_is_not_clipped(power: int) -> None:
    """Losses that rise smoothly, over many orders of magnitude too, are no outliers."""
    x = np.linspace(-1, 1, 41)
    z = 1e-3 + (10 * np.hypot(x[:, None], x)) ** power
    scale = Scale.of(no_path(x=x, y=x, z=z))
    assert (scale.name, scale.high, scale.clipped) == ("log", float(z.max()), 0)
    assert Scale.of(no_path(x=x, y=x, z=z), "linear").suggests_log


def test_axes_say_what_they_are() -> None:
    """Principal axes with the share of the path that they explain, others by their kind, a line by its ends."""
    assert axis_titles(plane()) == (
        "x (principal axis 1, 75 % of the path)",
        "y (principal axis 2, 12.5 % of the path)",
    )
    assert axis_titles(no_path()) == ("x (random direction 1)", "y (random direction 2)")
    given = plane(metadata={**plane().metadata, "axes": "given"})
    assert axis_titles(given) == ("x (given direction 1)", "y (given direction 2)")
    assert axis_titles(line())[0] == "share of the way from step 1 to 4"


def test_a_logarithmic_scale() -> None:
    """By itself where the highest is thirty times the lowest, or where it is asked for."""
    losses = np.array([[0.01, 0.1, 1.0, 100.0]] * 3)
    scale = Scale.of(no_path(z=losses))
    assert scale.name == "log"
    assert scale.shares(losses[0]).tolist() == pytest.approx([0.0, 0.25, 0.5, 1.0])
    assert scale.losses(np.array([0.0, 0.25, 0.5, 1.0])).tolist() == pytest.approx([0.01, 0.1, 1.0, 100.0])
    assert Scale.of(no_path(z=losses), "linear").name == "linear"
    assert Scale.of(no_path(z=losses / 100 + 1)).name == "linear"


def test_a_logarithmic_scale_through_zero() -> None:
    """It is linear around 0 and the same on both sides of it, and its losses are those of its shares."""
    scale = Scale.of(no_path(z=np.array([[-100.0, -1.0, 0.0, 100.0]] * 3)), "log")
    assert scale.linear_below == 1.0
    assert scale.shares(np.array([-100.0, 0.0, 100.0])).tolist() == pytest.approx([0.0, 0.5, 1.0])
    shares = np.linspace(0, 1, 9)
    assert scale.shares(scale.losses(shares)).tolist() == pytest.approx(shares.tolist())
    assert Scale.of(no_path(z=np.array([[0.0, 1e-300, 1.0, 2.0]] * 3)), "log").linear_below == 2e-6


@pytest.mark.parametrize("name", ["auto", "linear", "log"])
@pytest.mark.parametrize("loss", [0.0, 3.0, -3.0, math.nan])
def test_a_flat_or_empty_surface_has_a_scale(name: str, loss: float) -> None:
    """Its shares are one half, or none; it has no levels where it is flat."""
    surface = no_path(z=np.full((3, 4), loss))
    scale = Scale.of(surface, name)
    shares = scale.shares(surface.z)
    if math.isnan(loss):
        assert np.isnan(shares).all()
    else:
        assert np.unique(shares).tolist() == [0.5]
        assert len(scale.levels(12)) == 0


def test_facts() -> None:
    """What there is to know, in words; what is not known is not there."""
    assert landscapes.facts(plane(path=np.array([[2.5, 0.0], [0.5, 0.5], [0.0, 0.0]]))) == [
        ("decomposition", "PCA"),
        ("checkpoints", "3, of steps 1 to 4"),
        ("explained", "75 % + 12.5 % = 87.5 %"),
        ("x", "-1 to 2, 4 points"),
        ("y", "-0.5 to 0.5, 3 points"),
        ("loss", "1 at (0, 0) to 9 at (2, 0.5)"),
        ("convergence point", "1 at (0, 0)"),
        ("holes", "3 of 12 points: 1 NaN, 1 Infinity, 1 -Infinity"),
        ("outside the grid", "1"),
        ("accuracy", "0 to 0.6875"),
        ("seed", "7"),
    ]
    names = [name for name, _ in landscapes.facts(no_path(convergence=np.empty(0), z=np.ones((3, 4))))]
    assert names == ["decomposition", "x", "y", "loss"]


def test_facts_of_ours() -> None:
    """Long lists are shortened, what is empty is left out, and a coarse grid is said to be one."""
    metadata = {
        "decomposition": "PCA", "unit": "epoch", "complete": False, "points": 1600, "points_done": 81, "not_finite": 3,
        "parameters": [f"fc{number}.weight" for number in range(8)], "frozen": [], "normalize": None,
        "mode": "evaluation",
        "eigenvalues": [2.0, 0.123456789], "unfold": True,
    }  # fmt: skip
    facts = landscapes.facts(plane(metadata=metadata, numbers=np.array([4, 2, 1])))
    assert facts[1] == ("checkpoints", "3, of epochs 1 to 4")
    assert ("unfinished", "81 of 1600 points are there; the grid is coarser for now") in facts
    assert facts[-4:] == [
        ("parameters", "fc0.weight, fc1.weight, fc2.weight, fc3.weight, fc4.weight and 3 more"),
        ("mode", "evaluation"),
        ("eigenvalues", "2, 0.1234568"),
        ("unfold", "true"),
    ]
    assert "convergence point" not in dict(landscapes.facts(line()))


def test_path_rows_leave_out_what_nobody_knows() -> None:
    """MindSpore's files have neither the true losses nor what the plane leaves unexplained."""
    nothing = np.full(3, math.nan)
    rows = landscapes.path_rows(plane(true_loss=nothing, unexplained=nothing))
    assert rows == [
        ["step", "x", "y", "loss on the plane"],
        [1, 1.5, 0.25, 7.0],
        [2, 0.5, 0.5, 5.0],
        [4, 0.0, 0.0, 1.0],
    ]
    assert landscapes.path_rows(no_path()) == []
