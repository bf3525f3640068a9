"""The order in which people expect names: `layer_2` before `layer_10`."""

from __future__ import annotations

import functools
import re

_DIGITS = re.compile(r"([0-9]+)")


@functools.lru_cache(1 << 16)  # the runs of a tree mostly have the same tags
def natural(name: str) -> tuple[list[str], str]:
    """Return a key for sorting names: digits count as the number that they are, equal ones by their characters."""
    parts = _DIGITS.split(name)
    parts[1::2] = [f"{len(number):08}{number}" for number in (digits.lstrip("0") for digits in parts[1::2])]
    return parts, name
