"""What tests of the recorder share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from instrument import read

#: The fixture `said`.
Said = Callable[..., list[str]]
BOTH = pytest.mark.parametrize("processes", [0, 1], ids=["in this process", "in a worker"])


def points(directory: Path, tag: str) -> list[tuple[int, float]]:
    """Step and value of each scalar."""
    found = read(directory).scalars(tag)
    return list(zip(found.step.tolist(), found.value.tolist(), strict=True))
