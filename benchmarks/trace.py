"""Measure what reading a device's trace costs: a few MB of hwts, and a huge file of it.

    python benchmarks/trace.py [--sample FILE] [--megabytes 1000] [--repetitions 20] > trace.json

The report goes to standard output as JSON. *sample* is an hwts file, from its bytes to paired executions: a real one of
4 MB where it is at hand, else one made here. *huge* is made here piece by piece and never there as a whole: *pairs*
from its pieces to paired executions, *capture* to a whole `Capture` with named operators. Each of these is a process
of its own, and its memory what it had at most; the time that the making takes is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from instrument.trace import ascend, hwts  # noqa: E402
from instrument.trace.text import Losses  # noqa: E402

HWTS, TASKS = "hwts.log.data.45.dev.profiler_default_tag.0", "Framework.host.vm.task_desc_info.0"
SAMPLE = ROOT.parent / "shared/traces/samples/ascend2020_widedeep/hwts.log.data.45.dev.profiler_default_tag.1.slice_0"
#: What the sample and 1 GB may take.
LIMITS = {"sample_ms": 20.0, "huge_s": 10.0, "huge_mb": 1500.0}

_PIECE_RECORDS = 1 << 16
_STREAMS, _TASKS = 4, 5000


def main() -> int:
    arguments = _parse()
    if arguments.huge:
        print(json.dumps(huge(arguments.huge, arguments.megabytes)))
        return 0
    report: dict[str, Any] = {
        "benchmark": "trace",
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "limits": LIMITS,
        "sample": sample(arguments.sample, arguments.repetitions),
    }
    if arguments.megabytes:
        report["huge"] = {what: _in_a_process(what, arguments.megabytes) for what in ("pairs", "capture")}
    print(json.dumps(report, indent=1))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=Path, default=SAMPLE, metavar="FILE", help="an hwts file (%(default)s)")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the huge file, 0 for none (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=20, help="how often the sample is read (%(default)s)")
    parser.add_argument("--huge", choices=("pairs", "capture"), help=argparse.SUPPRESS)
    return parser.parse_args()


def sample(path: Path, repetitions: int) -> dict[str, Any]:
    """From bytes to paired executions, in ms: the first time, and the median and the best of all."""
    data = path.read_bytes() if path.exists() else b"".join(Pieces(4))
    spent = []
    for _ in range(repetitions):
        started = time.perf_counter()
        found = hwts.decode(data, Losses(HWTS))
        spent.append(1e3 * (time.perf_counter() - started))
    return {
        "is_real": path.exists(),
        "megabytes": len(data) / 1e6,
        "executions": len(found.pairs),
        "first_ms": round(spent[0], 2),
        "median_ms": round(statistics.median(spent), 2),
        "best_ms": round(min(spent), 2),
    }


def _in_a_process(what: str, megabytes: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--huge", what, "--megabytes", str(megabytes)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=600).stdout)
    return result


def huge(what: str, megabytes: int) -> dict[str, Any]:
    """Read a huge file in this process, and say how long that took and how much memory it had at most."""
    pieces = Pieces(megabytes)
    tasks = "".join(f"Default/network/Conv2D-op{task} 1 {task} {task}\n" for task in range(30_000, 30_000 + _TASKS))
    started = time.perf_counter()
    if what == "pairs":
        executions = hwts.decode(pieces, Losses(HWTS)).pairs
    else:
        executions = ascend.capture({HWTS: pieces, TASKS: tasks.encode()}, 0).executions
    return {
        "megabytes": megabytes,
        "executions": len(executions),
        "seconds": round(time.perf_counter() - started - pieces.seconds, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }


class Pieces:
    """An hwts file of so many MB in pieces: four streams, whose tasks overlap; `seconds` is what making it took."""

    def __init__(self, megabytes: int) -> None:
        self._records = megabytes * 1_000_000 // hwts.RECORD.itemsize
        self.seconds = 0.0

    def __iter__(self) -> Iterator[bytes]:
        for first in range(0, self._records, _PIECE_RECORDS):
            started = time.perf_counter()
            piece = _records(np.arange(first, min(first + _PIECE_RECORDS, self._records)))
            self.seconds += time.perf_counter() - started
            yield piece


def _records(numbers: np.ndarray) -> bytes:
    """Each four starts, one a stream, are followed by their ends."""
    found = np.zeros(len(numbers), hwts.RECORD)
    turn, place = np.divmod(numbers, 2 * _STREAMS)
    found["head"] = (place >= _STREAMS) | (numbers & 15) << 4
    found["magic"] = hwts.MAGIC_WORD
    found["stream"] = 500 + place % _STREAMS
    found["task"] = 30_000 + turn % _TASKS
    found["cycles"] = 38_000_000_000 + 7 * numbers
    return found.tobytes()


if __name__ == "__main__":
    sys.exit(main())
