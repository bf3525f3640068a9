"""TensorBoard's own reader, asked from here where `INSTRUMENT_TENSORBOARD_PYTHON` names its Python."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import threading
from pathlib import Path

#: Its checksums are made in plain Python; what is larger would take it too long.
_MOST_BYTES = 1 << 20
_lock = threading.Lock()

Heads = list[tuple[int, list[str]]]


def ask(path: Path) -> Heads | None:
    """Step and tags of each event of a file; None where nobody can be asked, or the file is too large."""
    if not os.environ.get("INSTRUMENT_TENSORBOARD_PYTHON") or path.stat().st_size > _MOST_BYTES:
        return None
    with _lock:
        process = _process()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    return [(step, tags) for step, tags in json.loads(answer)]


@functools.cache
def _process() -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PROTOCOL"))}
    script = Path(__file__).parent / "tensorboard_frames.py"
    command = [os.environ["INSTRUMENT_TENSORBOARD_PYTHON"], str(script)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def dismiss() -> None:
    """End it, if it was ever asked."""
    if _process.cache_info().currsize:
        _process().communicate(timeout=20)
        _process.cache_clear()
