"""Captures made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from instrument.analyse import pipeline
from instrument.analyse.profile import Profile
from instrument.analyse.table import Table
from instrument.trace.events import (
    AI_CORE,
    CPU,
    EXECUTION,
    MEMORY,
    MISSING,
    REDUCE,
    STEP,
    Capture,
    Operator,
)

#: A moment on the wall clock.
T0 = 1_778_000_000_000_000_000

FORWARD = Operator("Default/network-Net/fc-Dense/MatMul-op0", "MatMul-op0", "MatMul", CPU, "[2, 3];[3, 4]")
BACKWARD = Operator(
    "Gradients/Default/network-Net/fc-Dense/Grad/MatMul-op1", "MatMul-op1", "MatMul", CPU, "[4, 2];[2, 3]"
)
UPDATE = Operator("Default/optimizer-Momentum/ApplyMomentum-op0", "ApplyMomentum-op0", "ApplyMomentum", CPU)


def operator(name: str, side: str = AI_CORE, kind: str = "", shapes: str = "") -> Operator:
    short = name.rpartition("/")[2]
    return Operator(name, short, kind or short.split("-op")[0], side, shapes)


def executions(*rows: tuple[int, ...]) -> Any:
    """(start, duration, operator, stream = 0, step = none) each."""
    filled = [(*row, *(0, MISSING)[len(row) - 3 :]) for row in rows]
    return np.array(
        [(start, duration, op, stream, MISSING, step) for start, duration, op, stream, step in filled], EXECUTION
    )


def steps(*rows: tuple[int, int, int, int, int]) -> Any:
    """(step, start, forward, backward, end) each."""
    return np.array([(*row, MISSING) for row in rows], STEP)


def marked(*rows: tuple[int, int, int]) -> Any:
    """(step, start, end) each, as marks of the host have them."""
    return steps(*((step, start, MISSING, MISSING, end) for step, start, end in rows))


def reduces(*rows: tuple[int, int, int, int]) -> Any:
    """(step, stream, start, duration) each."""
    return np.array([(step, stream, 0, start, duration) for step, stream, start, duration in rows], REDUCE)


def memory(*rows: tuple[int, int]) -> Any:
    """(time, allocated) each; 10 times as much is reserved, nothing is said of active."""
    return np.array([(time, size, 10 * size, MISSING) for time, size in rows], MEMORY)


def capture(operators: Sequence[Operator] = (), rows: Any = None, **parts: Any) -> Capture:
    """On the CPU and its wall clock, unless told otherwise."""
    found: dict[str, Any] = {"device": 0, "target": "cpu", "clock": "epoch", **parts}
    return Capture(operators=operators, executions=executions() if rows is None else rows, **found)


def training(count: int = 3, interval: int = 10, forward: int = 20, backward: int = 30, tail: int = 5) -> Capture:
    """`count` steps from 1 on the CPU: each waits, runs one operator forward, one backward and one update."""
    whole = interval + forward + backward + tail
    rows, marks = [], []
    for place in range(count):
        start = T0 + place * whole
        marks.append((place + 1, start, start + whole))
        begin = start + interval
        rows.append((begin, forward, 0, 7, place + 1))
        rows.append((begin + forward, backward, 1, 7, place + 1))
        rows.append((begin + forward + backward, tail, 2, 7, place + 1))
    return capture((FORWARD, BACKWARD, UPDATE), executions(*rows), steps=marked(*marks))


def column(values: Iterable[Any]) -> list[Any]:
    """Python values, None for what is masked."""
    return np.ma.asarray(values).tolist()  # type: ignore[no-any-return]


def data_verdict(one: Capture) -> pipeline.Verdict:
    """Whether the training waits for data."""
    return profile_of(one).waiting


def stages(one: Capture) -> Table:
    """The stages of the data pipeline."""
    return profile_of(one).pipeline


def profile_of(*captures: Capture, path: str = "here") -> Profile:
    """A profile of one window, the only one at the path."""
    return Profile(path, captures, None, Table("windows", {"window": [0], "is_shown": [True], "place": ["events"]}))
