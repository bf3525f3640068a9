"""What a check of this machine found; made by both halves, and carried between processes as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

WORKS, FAILS, NOTE = "works", "fails", "note"


@dataclass(frozen=True)
class Finding:
    """`status` is "works", "fails", or "note" for what is absent but not needed; `advice` says what to do about it."""

    name: str
    status: str
    detail: str
    advice: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Failed(Exception):
    """A check that fails, with the reason in words."""


def attempt(name: str, check: Callable[[], str], advice: str = "") -> Finding:
    """Run a check: what it says when it works, and else what it raises, with the `advice` for that."""
    started = time.perf_counter()
    try:
        status, detail, advice = WORKS, check(), ""
    except Failed as failed:
        status, detail = FAILS, str(failed)
    except Exception as error:  # noqa: BLE001  what a machine may raise is what is looked for
        status, detail = FAILS, words(error)
    return Finding(name, status, detail, advice, time.perf_counter() - started)


def words(error: Exception) -> str:
    """The class of an error and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
