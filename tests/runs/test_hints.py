"""What is listed in messages."""

from __future__ import annotations

import pytest

from instrument.runs.hints import ranges


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0, 1"),
        (range(64), "0 to 63"),
        ([9, 2, 3, 4, 0, 3], "0, 2 to 4, 9"),
        (range(0, 2000, 2), "0, 2, 4, 6, 8, 10, 12, 14 and others up to 1998"),
    ],
)
def test_numbers_take_one_short_line(numbers: list[int], shown: str) -> None:
    """Runs of numbers are their ends, and of very many the first are named."""
    assert ranges(numbers) == shown
