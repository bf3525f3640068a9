"""What a trial leaves for `instrument doctor`: its findings, and what is to be read back from its runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from instrument.findings import Finding

#: Directory, below that of the trial -> kind -> tag -> number of points and sum of all their numbers.
Expected = dict[str, dict[str, dict[str, tuple[int, float]]]]


def leave(path: str, findings: Sequence[Finding], expected: Expected, **facts: Any) -> None:
    """Write the file at `path`, as JSON."""
    told = {"findings": [finding.to_dict() for finding in findings], "expected": expected, **facts}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(told, file)
