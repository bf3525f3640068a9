"""The order in which people expect names: `layer_2` before `layer_10`."""

from __future__ import annotations

import functools
import re
from typing import Any

_DIGITS = re.compile(r"([0-9]+)")


@functools.lru_cache(1 << 16)  # the runs of a tree mostly have the same tags
def natural(name: str) -> tuple[list[Any], str]:
    """Return a key for sorting names: digits count as the number that they are, equal ones by their characters."""
    parts: list[Any] = _DIGITS.split(name)
    # Read in base 16 they keep their order, and may be of any length.
    for index in range(1, len(parts), 2):
        parts[index] = int(parts[index], 16)
    return parts, name
