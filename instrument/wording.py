"""Lists of words in messages."""

from __future__ import annotations

from collections.abc import Sequence


def listed(words: Sequence[str], most: int) -> str:
    """Return up to `most` words with commas between, and how many more there are: `a, b and 3 more`."""
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"
