"""The grid: levels that grow into each other, extents, and tasks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from instrument.landscape import dispatch, plane, request


@pytest.mark.parametrize("size", [3, 5, 11, 40, 41, 256])
def test_levels_go_from_coarse_to_the_whole(size: int) -> None:
    """Each level has the points of the one before, its ends are the grid's, and each point is computed once."""
    made = plane.make_grid((-1, 1, -2, 2), size)
    levels, order = made.levels(), made.order()
    for (rows, columns), (more_rows, more_columns) in pairwise(levels):
        assert set(rows) <= set(more_rows)
        assert set(columns) <= set(more_columns)
    for rows, columns in levels:
        assert (rows[0], rows[-1], columns[0], columns[-1]) == (0, size - 1, 0, size - 1)
    assert len(levels[0][0]) <= 9
    assert sorted(np.concatenate(order).tolist()) == list(range(size * size))
    for level, (rows, columns) in enumerate(levels):
        assert sum(map(len, order[: level + 1])) == len(rows) * len(columns)


def test_a_line_has_one_row() -> None:
    """Its levels are those of its only axis."""
    made = plane.Grid(np.linspace(0, 1, 20), np.zeros(1))
    assert [len(rows) for rows, _ in made.levels()] == [1] * len(made.levels())
    assert np.concatenate(made.order()).size == 20


def test_the_path_has_a_margin() -> None:
    """A fifth of its width on each side, as MindSpore has it; an axis without width gets 1."""
    assert plane.around(np.array([[0.0, 3.0], [10.0, 3.0]])) == (-2.0, 12.0, 2.0, 4.0)


def test_extents_are_checked() -> None:
    """One number goes as far to each side; what is empty, not finite or no number is refused."""
    assert request.check_extent(2) == (-2.0, 2.0, -2.0, 2.0)
    assert request.check_extent(((0, 1), (2, 3))) == (0.0, 1.0, 2.0, 3.0)
    assert request.check_extent("auto") == "auto"
    for wrong in ("wide", None, (1, 2, 3), True):
        with pytest.raises(TypeError, match="extent is"):
            request.check_extent(wrong)
    for wrong in (0, -1.0, (0, 1, 2, float("nan")), (1, 0, 2, 3)):
        with pytest.raises(ValueError, match="extent is"):
            request.check_extent(wrong)


def test_tasks_take_some_seconds() -> None:
    """As many points as fill the time, but no more than each worker's share; every point is in one task."""
    points = list(range(100))
    assert [len(task) for task in dispatch.tasks(points, 0.1, 2)] == [20] * 5
    assert [len(task) for task in dispatch.tasks(points, 1e-4, 2)] == [50, 50]
    assert [len(task) for task in dispatch.tasks(points, 60.0, 2)] == [1] * 100
    assert [point for task in dispatch.tasks(points, 0.3, 4) for point in task] == points
    assert dispatch.tasks([], 1.0, 2) == []
