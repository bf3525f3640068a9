"""Lists of words and numbers in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_QUOTED_CHARACTERS = 60
_QUOTED_NAMES, _RANGES = 5, 8


def listed(words: Sequence[str], most: int) -> str:
    """Return up to `most` words with commas between, and how many more there are: `a, b and 3 more`."""
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"


def quoted(text: str) -> str:
    """Return a tag or path for a message: control characters escaped, a long one shortened in the middle."""
    shown = repr(text)
    return shown if len(shown) <= _QUOTED_CHARACTERS else f"{shown[:28]}...{shown[-28:]}"


def quoted_list(names: Sequence[str]) -> str:
    """Return the first few names, quoted, and how many more there are."""
    return listed([quoted(name) for name in names], _QUOTED_NAMES)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order on one short line: `0 to 63`, `0, 2 to 5, 9`."""
    ends: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    words = [
        f"{first} to {last}" if last > first + 1 else ", ".join(map(str, sorted({first, last}))) for first, last in ends
    ]
    if len(words) > _RANGES:
        return f"{', '.join(words[:_RANGES])} and others up to {ends[-1][1]}"
    return ", ".join(words)
