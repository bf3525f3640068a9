"""Raw files of windows, and trace event files with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from instrument.codec import event, trace
from instrument.values import Event, MessageItem, Trace
from tests.analyse.build import T0
from tests.runs.build import SECONDS, framed
from tests.trace import encoders

NAMES = (
    "Default/network-Net/fc-Dense/MatMul-op0",
    "Gradients/Default/network-Net/fc-Dense/Grad/MatMul-op1",
    "Default/optimizer-Momentum/ApplyMomentum-op0",
)
#: What one step of `cpu_window` takes: it waits 10 us, and each operator runs 20 us.
INTERVAL_NS, OPERATOR_NS, STEP_NS = 10_000, 20_000, 80_000


def cpu_window(
    first: int = 1, count: int = 3, rank: int = 0, start_ns: int = T0, names: Sequence[str] = NAMES, **told: Any
) -> dict[str, bytes]:
    """Name -> bytes of a window with `count` steps from `first`; a tail of 10 us follows the operators."""
    stop = start_ns + count * STEP_NS
    window = {
        "rank": rank, "target": "cpu", "mode": "graph", "host": "there", "pid": 42, "start_ns": start_ns,
        "stop_ns": stop, "first_step": first, "last_step": first + count - 1, "complete": True, "reason": "",
        "versions": {"instrument": "1", "mindspore": "2.10.0"}, "metadata": {}, **told,
    }  # fmt: skip
    begins = [start_ns + place * STEP_NS for place in range(count)]
    executions = {
        name: [(begin + INTERVAL_NS + place * OPERATOR_NS, OPERATOR_NS / 1e6, 0) for begin in begins]
        for place, name in enumerate(names)
    }
    marks = b"".join(encoders.mark(begin, STEP_NS, 0, 1, first + place) for place, begin in enumerate(begins))
    shapes = [(name.rpartition("/")[2], ("[2, 3]", "[3, 4]")) for _ in range(count) for name in names]
    return {
        f"instrument.window.{rank}.json": json.dumps(window).encode(),
        f"instrument.names.{rank}.json": b'["step"]',
        f"instrument.marks.{rank}.bin": marks,
        f"FRAMEWORK/cpu_op_execute_timestamp_{rank}.txt": encoders.timestamps(executions),
        f"FRAMEWORK/cpu_framework_{rank}.txt": encoders.framework(shapes),
    }


def event_file(directory: Path, windows: Sequence[Mapping[str, bytes]], rank: int = 0, seconds: int = SECONDS) -> Path:
    """A trace event file with these windows."""
    directory.mkdir(exist_ok=True)
    path = directory / f"events.out.events.profile.{seconds}.{rank}.host_MS"
    frames = [framed(event.encode_version(1.0))]
    for number, files in enumerate(windows):
        for name, data in files.items():
            encoded = trace.encode(Trace(number, "cpu", rank, name, 0, len(data), data))
            frames += map(framed, event.encode(Event(0, 1.0, [MessageItem("trace", name, encoded)])))
    path.write_bytes(b"".join(frames))
    return path


def directory_of(path: Path, files: Mapping[str, bytes]) -> Path:
    """A directory with these files."""
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path
