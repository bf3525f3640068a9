"""Curves in a cell."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from instrument.show import charts

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([5.0], "▄"),
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([2, 2, 2], "▄▄▄"),
        ([0, NAN, 1], "▁!█"),
        ([-INF, 0, INF], "!▄!"),
        ([NAN, NAN], "!!"),
        ([-1.7e308, 0, 1.7e308], "▁▅█"),
        ([0, 5e-324], "▁█"),
    ],
)
def test_each_value_is_a_block(values: list[float], drawn: str) -> None:
    """From the least to the greatest in eight steps; what is no finite number is marked."""
    assert charts.reduced(np.array(values, np.float64)).text() == drawn


def test_first_last_and_extremes_are_kept() -> None:
    """Of 50,000 points the only spike, the only dip, and both ends are drawn in 24 columns, each time the same."""
    values = np.full(50_000, 4.0)
    values[[0, 20_001, 31_337, -1]] = [3.0, 0.0, 8.0, 5.0]

    drawn = charts.reduced(values).text()

    assert drawn == "▄▅▅▅▅▅▅▅▅▁▅▅▅▅▅█▅▅▅▅▅▅▅▆"
    assert charts.reduced(values).text() == drawn


def test_a_terminal_without_unicode_gets_ascii() -> None:
    """The same curve in characters that every terminal has."""
    values = np.array([0, 1, 2, 3, 4, 5, 6, 7, NAN])
    assert charts.reduced(values).text(charts.marks("ascii")) == "_.-=+*%#!"
    assert [charts.marks(encoding) for encoding in ("utf-8", None, "nonsense")] == [
        charts.BLOCKS, charts.PLAIN, charts.PLAIN,
    ]  # fmt: skip


def test_svg_of_few_points() -> None:
    """Lines between neighbours, a circle for a single one, red where a value is no finite number."""
    drawn = charts.sparkline(np.array([0, 10, 20, 30]), np.array([0.0, 1.0, NAN, 0.5]), 104, 26)

    assert drawn == (
        '<svg width="104" height="26" viewBox="0 0 104 26" fill="none" stroke="currentColor" role="img">'
        '<polyline points="2.0,23.0 35.3,3.0"/>'
        '<circle cx="102.0" cy="13.0" r="1.5" fill="currentColor"/>'
        '<path d="M68.7 1V25" stroke="#c00"/></svg>'
    )
    assert charts.sparkline(np.array([], np.int64), np.array([])) == ""


def test_svg_of_many_points_is_small_and_keeps_extremes() -> None:
    """A spike and a NaN among 200,000 points are in a drawing of a few kilobytes."""
    values = np.zeros(200_000)
    values[31_337], values[77_777] = 1.0, NAN
    drawn = charts.sparkline(np.arange(200_000), values)

    ElementTree.fromstring(drawn)
    heights = [float(y) for y in re.findall(r"\d,([\d.]+)", drawn)]
    assert (min(heights), max(heights), drawn.count("#c00")) == (3.0, 25.0, 1)
    assert len(drawn) < 10_000


def test_curves_on_one_scale() -> None:
    """Beside each other the same height means the same value; gaps stay, and a curve without a number adds nothing."""
    high, low = charts.reduced(np.array([4.0, 3.0, 2.0])), charts.reduced(np.array([0.0, math.nan, 1.0]))
    nothing = charts.reduced(np.array([math.nan]))
    scale = charts.common_scale([high, low, nothing])
    assert scale == (0.0, 4.0)
    assert [one.text(scale=scale) for one in (high, low, nothing)] == ["█▇▅", "▁!▃", "!"]
    assert [one.text() for one in (high, low, nothing)] == ["█▅▁", "▁!█", "!"]
    assert charts.common_scale([nothing]) is None
