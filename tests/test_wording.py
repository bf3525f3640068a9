"""Lists of words in messages."""

from __future__ import annotations

import pytest

from instrument.wording import listed


@pytest.mark.parametrize(
    ("words", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")]
)
def test_a_long_list_ends_in_a_count(words: list[str], text: str) -> None:
    """Of those that are left out."""
    assert listed(words, 2) == text
