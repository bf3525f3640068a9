"""The timeline of a device for MindInsight's page, which shows one of an Ascend device or of a GPU.

A list of Chrome events without lanes: `tid` is the stream, `pid` the device, or a number of its own for AI CPU and
communication, as MindSpore wrote it. Times are microseconds from the first event on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from instrument.analyse.executions import operator_mask
from instrument.analyse.tables import ProfileTables
from instrument.trace.ascend_executions import UNNAMED_TYPES
from instrument.trace.events import AI_CPU, COMMUNICATION, CPU, MISSING, Capture, Rows

_AI_CPU_PROCESS, _COMMUNICATION_PROCESS = 9000, 10000
#: The lane of steps; 100001 is that of scopes, which MindInsight wants with a level of theirs.
_STEP_LANE = 100_000
_BLOCK_ROWS = 1 << 14
#: MindSpore stops there as well; a browser opens no larger page.
MOST_BYTES = 500_000_000


def display(profile: ProfileTables) -> Iterator[str]:
    """Yield the pieces of `<target>_timeline_display_<device>.json`."""
    capture = profile.capture
    rows = _shown(capture, profile.counted.executions)
    steps = np.sort(capture.steps[(capture.steps["start_ns"] > 0) & (capture.steps["end_ns"] >= 0)], order="start_ns")
    reduces = capture.reduces[(capture.reduces["duration_ns"] >= 0) & (capture.reduces["start_ns"] > 0)]
    starts = [part["start_ns"].min() for part in (rows, steps, reduces) if len(part)]
    base_ns = int(min(starts)) if starts else 0
    size = 0
    separator = "["
    for block in _blocks(capture, rows, steps, reduces, base_ns):
        text = ",\n".join(json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in block)
        size += len(text)
        if size > MOST_BYTES:
            break
        yield f"{separator}{text}"
        separator = ",\n"
    yield "]\n" if separator != "[" else "[]\n"


def summary(profile: ProfileTables) -> dict[str, float | int]:
    """Return what `<target>_timeline_summary_<device>.json` holds: us of operators, streams, operators, executions.

    Of AI CPU only the time of tasks that have a name counts, as MindSpore knows no others.
    """
    capture, rows = profile.capture, profile.counted.executions
    on_core = rows[operator_mask(capture, rows, lambda operator: operator.side not in (CPU, AI_CPU, COMMUNICATION))]
    on_ai_cpu = rows[
        operator_mask(capture, rows, lambda operator: operator.side == AI_CPU and operator.type not in UNNAMED_TYPES)
    ]
    names = {capture.operators[row].full_name for row in np.unique(on_core["operator"]).tolist()}
    return {
        "total_time": int(on_core["duration_ns"].sum() + on_ai_cpu["duration_ns"].sum()) / 1000,
        "num_of_streams": len(np.unique(on_core["stream"])),
        "num_of_ops": len(names),
        "op_exe_times": len(on_core),
        "max_scope_name_num": 0,
    }


def _shown(capture: Capture, rows: Rows) -> Rows:
    return rows[operator_mask(capture, rows, lambda operator: operator.side != CPU)]


def _blocks(capture: Capture, rows: Rows, steps: Rows, reduces: Rows, base_ns: int) -> Iterator[list[dict[str, Any]]]:
    names = {capture.device: f"device {capture.device}"}
    names |= {_AI_CPU_PROCESS: "AI CPU", _COMMUNICATION_PROCESS: "communication"}
    yield [
        {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}} for process, name in names.items()
    ]
    if len(steps):
        yield [
            _event(str(step["step"]), capture.device, _STEP_LANE, step["start_ns"] - base_ns,
                   step["end_ns"] - step["start_ns"])
            for step in steps
        ]  # fmt: skip
    for first in range(0, len(rows), _BLOCK_ROWS):
        yield [_execution(capture, row, base_ns) for row in rows[first : first + _BLOCK_ROWS]]
    if len(reduces):
        yield [
            _event(capture.names[row["name"]], _COMMUNICATION_PROCESS, row["stream"], row["start_ns"] - base_ns,
                   row["duration_ns"])
            for row in reduces
        ]  # fmt: skip


def _execution(capture: Capture, row: np.void, base_ns: int) -> dict[str, Any]:
    operator = capture.operators[row["operator"]]
    process = {AI_CPU: _AI_CPU_PROCESS, COMMUNICATION: _COMMUNICATION_PROCESS}.get(operator.side, capture.device)
    name = operator.full_name or operator.type
    return _event(name, process, row["stream"], row["start_ns"] - base_ns, row["duration_ns"])


def _event(name: str, process: int, lane: int, start_ns: int, duration_ns: int) -> dict[str, Any]:
    times = {"ts": int(start_ns) / 1000, "dur": int(duration_ns) / 1000}
    return {"name": name, "ph": "X", "pid": process, "tid": 0 if lane == MISSING else int(lane), **times}
