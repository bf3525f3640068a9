"""Words of messages: lists of names and numbers, their order, and what a misspelt name may have meant."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Sequence

_DIGITS = re.compile(r"([0-9]+)")
_QUOTED_CHARACTERS = 60
_QUOTED_NAMES, _RANGES = 5, 8
#: Comparing takes the square of the length: names of thousands of characters would take minutes.
_COMPARED_CHARACTERS = 200
_CUTOFF = 0.6
#: How near a name is that a word abbreviates: by the initials of its parts, or as the beginning of one of them.
_INITIALS, _BEGINNING = 0.9, 0.75


def listed(words: Sequence[str], most: int) -> str:
    """Return up to `most` words with commas between, and how many more there are: `a, b and 3 more`."""
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"


def counted(count: int, noun: str) -> str:
    """Return a number of things in words: `1 point`, `2 points`."""
    return f"{count} {noun}{'s' * (count != 1)}"


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


def closest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return up to `count` names that come nearest to `word`, the nearest first; none where nothing is near."""
    word = word[:_COMPARED_CHARACTERS].lower()
    scored = [(_likeness(word, name.lower()), name) for name in known if len(name) <= _COMPARED_CHARACTERS]
    near = sorted((-score, place, name) for place, (score, name) in enumerate(scored) if score >= _CUTOFF)
    return [name for _, _, name in near[:count]]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'name'?" for the end of a message, or nothing where no name is near."""
    near = closest(word, known)
    return f"; did you mean {near[0]!r}?" if near else ""


def nearest(name: str, names: list[str]) -> str:
    """Return in words which names come near to one that is not there, or which there are if none is near."""
    near = closest(name, names, _QUOTED_NAMES)
    if not near:
        return f"it has {quoted_list(names) or 'none at all'}"
    return f"the nearest {'are' if len(near) > 1 else 'is'} {quoted_list(near)}"


def _likeness(word: str, name: str) -> float:
    """Return a number from 0 (nothing in common) to 1 (the same)."""
    parts = [part for part in re.split(r"[\W_]+", name) if part]
    score = 0.0
    if len(word) > 1:
        if word == "".join(part[0] for part in parts) or word == "".join(part[0] for part in parts[-len(word) :]):
            score = _INITIALS
        elif any(part.startswith(word) for part in parts):
            score = _BEGINNING
    matcher = difflib.SequenceMatcher(None, name, word)
    if matcher.real_quick_ratio() >= _CUTOFF and matcher.quick_ratio() >= _CUTOFF:
        score = max(score, matcher.ratio())
    return score


@functools.lru_cache(1 << 16)  # the runs of a tree mostly have the same tags
def natural(name: str) -> tuple[list[str | int], str]:
    """Return a key for sorting names: digits count as the number that they are, equal ones by their characters."""
    parts = _DIGITS.split(name)
    for index in range(1, len(parts), 2):
        parts[index] = int(parts[index], 16)  # digits keep their order so, and may be of any length
    return parts, name
