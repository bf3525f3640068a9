"""Texts of slices select what NumPy selects; statistics, pictures and histograms of what they select."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from instrument.facts import slices
from instrument.facts.slices import WrongSlice, parse_slice, shown_slice, slice_text


@pytest.mark.parametrize(
    "text",
    ["", "[]", ":", "[:]", "2", "[-1]", "1:3", "[1:, :2]", "::2", "[::-1, ...]", "[..., 0]", "...", "[0, ..., -1]",
     " [ 1 : 3 , 2 ] ", "[1,2,]", "[1:99, -99:2]", "[+1]", "[3:1]", "[0, 1, 2]"],
)  # fmt: skip
def test_a_text_selects_what_numpy_selects(text: str) -> None:
    """The same elements in the same shape, as Python's own parser reads the text."""
    array = np.arange(60).reshape(3, 4, 5)
    inner = text.strip().removeprefix("[").removesuffix("]").strip()
    expected = eval(f"array[{inner or '...'}]")
    selected = parse_slice(text, array.shape)
    assert len(selected) == 3
    np.testing.assert_array_equal(array[selected], expected)
    np.testing.assert_array_equal(array[parse_slice(slice_text(selected), array.shape)], expected)


def test_random_slices(rng: np.random.Generator) -> None:
    """Written and read back they select the same."""
    array = np.arange(3 * 4 * 5 * 6).reshape(3, 4, 5, 6)
    for _ in range(300):
        selected = []
        for length in array.shape:
            start, stop = (None if rng.random() < 0.3 else int(rng.integers(-8, 9)) for _ in range(2))
            step = int(rng.choice([-2, -1, 1, 2, 3]))
            selected.append(int(rng.integers(-length, length)) if rng.random() < 0.4 else slice(start, stop, step))
        text = slice_text(tuple(selected))
        np.testing.assert_array_equal(array[parse_slice(text, array.shape)], array[tuple(selected)])


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("[1:2", 0, "One bracket is missing in '[1:2'; integers, a:b"),
        ("  1]", 2, "One bracket is missing"),
        ("[a]", 1, "'a' is no part of a slice; integers, a:b, a:b:c, : and ... are understood, as in [2:5, :, -1]"),
        ("[0, 1.5]", 4, "'1.5' is no part of a slice"),
        ("[0,,1]", 3, "'' is no part of a slice"),
        ("[1:2:3:4]", 1, "'1:2:3:4' is no part of a slice"),
        ("[__import__('os')]", 1, "\"__import__('os')\" is no part of a slice"),
        ("[0, 4]", 4, "Index 4 is outside of dimension 1, which has length 4."),
        ("[-4]", 1, "Index -4 is outside of dimension 0, which has length 3."),
        ("[::0]", 1, "The step of '::0' is 0; expected another number."),
        ("[0, 0, 0, 0]", 10, "The slice has 4 parts; the tensor has 3 dimensions."),
        ("[..., ...]", 6, "... stands twice in a slice; expected once at most."),
        ("[99999999999999999999]", 1, "'99999999999999999999' is no part of a slice"),
        ("[\uff11]", 1, "'\uff11' is no part of a slice"),  # a digit of another script
    ],
)
def test_a_wrong_text_is_refused_with_its_place(text: str, position: int, message: str) -> None:
    """The position is that of the wrong part."""
    with pytest.raises(WrongSlice) as raised:
        parse_slice(text, (3, 4, 5))
    assert str(raised.value).startswith(message)
    assert raised.value.position == position


def test_a_scalar_has_no_dimensions_to_select() -> None:
    """The empty slice selects it, and any other is refused."""
    assert parse_slice("[...]", ()) == ()
    with pytest.raises(WrongSlice, match="The slice has 1 parts; the tensor has 0 dimensions"):
        parse_slice("[0]", ())


def test_two_dimensions_are_left_to_be_shown() -> None:
    """Leading dimensions are fixed at the first index that the slice selects of them."""
    shape = (3, 4, 5, 6)
    assert shown_slice(parse_slice("", shape), shape) == (0, 0, slice(None), slice(None))
    assert shown_slice(parse_slice("[1:, :, 2, ::-1]", shape), shape) == (1, slice(None), 2, slice(None, None, -1))
    assert shown_slice(parse_slice("[::-1, 2:9]", shape), shape)[:2] == (2, 2)
    with pytest.raises(WrongSlice, match="The slice selects nothing of dimension 0, which has length 3"):
        shown_slice(parse_slice("[7:]", shape), shape)


def test_statistics_of_floats(rng: np.random.Generator) -> None:
    """Of finite values, with counts of the others; NumPy's mean and standard deviation in float64."""
    array = rng.normal(3, 2, (40, 50)).astype(np.float32)
    array[0, :7] = [np.nan, np.nan, np.inf, -np.inf, -np.inf, 0.0, -0.0]
    finite = array[np.isfinite(array)].astype(np.float64)
    found = slices.statistics(array)
    assert found[:3] == (2000, finite.min(), finite.max())
    assert found[3:5] == pytest.approx((finite.mean(), finite.std()), rel=1e-12)
    assert found[5:] == (2, 2, 1, 2)


def test_statistics_of_blocks(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """A large array is computed a block at a time."""
    monkeypatch.setattr(slices, "_BLOCK_VALUES", 7)
    values = rng.normal(size=100)
    assert slices.statistics(values)[3:5] == pytest.approx((values.mean(), values.std()), rel=1e-12)


def test_statistics_of_other_types() -> None:
    """Integers are exact beyond 2^53; the largest floats have a mean; complex numbers are seen by magnitude."""
    big = 2**63 - 1
    assert slices.statistics(np.array([big, -big]))[:6] == (2, -big, big, 0.0, pytest.approx(float(big)), 0)
    assert slices.statistics(np.array([True, False, True]))[:6] == (
        3,
        False,
        True,
        pytest.approx(2 / 3),
        pytest.approx(math.sqrt(2 / 9)),
        1,
    )
    assert slices.statistics(np.full(4, 1.7e308))[3:5] == pytest.approx((1.7e308, 0.0))
    assert slices.statistics(np.array([65504, 65504], np.float16))[3] == 65504.0
    assert slices.statistics(np.array([3 + 4j, complex(np.nan, 0)]))[:3] == (2, 5.0, 5.0)
    for empty in (np.empty(0), np.array([np.nan])):
        assert all(math.isnan(value) for value in slices.statistics(empty)[1:5])


def test_heat_has_the_range_of_each_cell(rng: np.random.Generator) -> None:
    """Least, greatest and mean of the finite values in rows and columns of nearly equal size."""
    array = rng.normal(size=(23, 31))
    array[rng.random(array.shape) < 0.2] = np.nan
    array[0, 0], array[-1, -1] = np.inf, -np.inf
    array[:6, :8] = np.nan
    found = slices.heat(array, 4, 5)
    rows, columns = (np.arange(cells + 1) * length // cells for cells, length in ((4, 23), (5, 31)))
    for r in range(4):
        for c in range(5):
            cell = array[rows[r] : rows[r + 1], columns[c] : columns[c + 1]]
            cell = cell[np.isfinite(cell)]
            expected = (cell.min(), cell.max(), cell.mean()) if cell.size else (np.nan,) * 3
            np.testing.assert_allclose([part[r, c] for part in found], expected, rtol=1e-12)


def test_heat_of_a_small_matrix_is_the_matrix() -> None:
    """No cell is made of nothing."""
    for part in slices.heat(np.arange(6).reshape(2, 3), 100, 100):
        np.testing.assert_array_equal(part, np.arange(6).reshape(2, 3))
    assert slices.heat(np.empty((0, 3)), 2, 2).low.shape == (0, 0)
    with pytest.raises(ValueError, match="array has 1 dimension; expected 2"):
        slices.heat(np.zeros(3), 2, 2)
    with pytest.raises(ValueError, match="rows is 0 and columns 2; expected at least 1"):
        slices.heat(np.zeros((2, 2)), 0, 2)


def test_rebinned_counts_keep_their_sum(rng: np.random.Generator) -> None:
    """Buckets are split by their overlap, as a loop over both computes it."""
    for _ in range(100):
        edges_in = np.sort(rng.normal(size=8))
        left, width, counts = edges_in[:-1], np.diff(edges_in), rng.integers(0, 50, 7)
        edges = np.sort(rng.normal(size=6)) * 1.5
        expected = [
            sum(
                count * max(0.0, min(b, high) - max(a, low)) / (b - a)
                for a, b, count in zip(left, left + width, counts, strict=True)
            )
            for low, high in itertools.pairwise(edges)
        ]
        np.testing.assert_allclose(slices.rebinned(left, width, counts, edges), expected, rtol=1e-9, atol=1e-9)
        whole = np.linspace(left[0] - 1, edges_in[-1] + 1, 20)
        assert slices.rebinned(left, width, counts, whole).sum() == pytest.approx(counts.sum())


def test_buckets_without_width_are_not_split() -> None:
    """They go whole into the bucket that holds them, the last one with its right edge; what is outside is left out."""
    left, width, counts = np.array([0.0, 1.0, 2.0, 3.0]), np.zeros(4), np.array([1, 2, 4, 8])
    np.testing.assert_array_equal(slices.rebinned(left, width, counts, np.array([0.0, 1.0, 2.0])), [1, 6])


def test_a_bucket_below_the_resolution_of_its_edge_has_no_width() -> None:
    """1e20 + 1 is 1e20: its count is kept."""
    found = slices.rebinned(np.array([1e20]), np.array([1.0]), np.array([3]), np.array([0.0, 1e20, 2e20]))
    np.testing.assert_array_equal(found, [0, 3])
