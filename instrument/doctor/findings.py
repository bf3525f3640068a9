"""Findings of a check of this machine, and the file in which a trial hands them to the process that started it.

A check is a function that returns what it found in words, or raises. `attempt` alone turns errors into findings.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

WORKS, FAILS, NOTE = "works", "fails", "note"

#: Directory, below that of the trial -> kind -> tag -> number of points and sum of all their numbers.
Expected = dict[str, dict[str, dict[str, tuple[int, float]]]]


@dataclass(frozen=True)
class Finding:
    """`status` is "works", "fails", or "note" for what is absent but not needed; `advice` says what to do about it."""

    name: str
    status: str
    detail: str
    advice: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, str | float]:
        return asdict(self)


class Result(TypedDict):
    """What a trial leaves: its findings, what is to be read back, and how many processes record by default."""

    findings: list[dict[str, Any]]
    expected: Expected
    processes: int


class Failed(Exception):
    """A check that fails, with the reason in words."""


def attempt(name: str, check: Callable[[], str], advice: str = "") -> Finding:
    """Run a check; return the text that it returns, or the error that it raises and the `advice` for that."""
    started = time.perf_counter()
    try:
        status, detail, advice = WORKS, check(), ""
    except Failed as failed:
        status, detail = FAILS, str(failed)
    except Exception as error:  # noqa: BLE001  what a machine may raise is what is looked for
        lines = str(error).strip().splitlines()
        status, detail = FAILS, f"{type(error).__name__}: {lines[0] if lines else ''}"
    return Finding(name, status, detail, advice, time.perf_counter() - started)


def write_result(path: str, findings: Sequence[Finding], expected: Expected, processes: int = 0) -> None:
    """Write the result of a trial as JSON."""
    result: Result = {
        "findings": [finding.to_dict() for finding in findings], "expected": expected, "processes": processes,
    }  # fmt: skip
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file)
