"""Measure what a ring file costs: the training thread's time beside another version, and what reaches the disk.

    python benchmarks/ring.py traffic [--minutes 10] [--folder DIR]       # bytes to the disk
    python benchmarks/ring.py cost --other DIR [--pairs 6] [--folder DIR] # beside the package in DIR

`traffic` counts what trainer and worker had written back, the pages of the mapped ring file included: a page counts
each time that it is written to after it was clean. The folder must be on a disk: memory is never written back.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Load(NamedTuple):
    """What a training records: `scalars` a step, or a float32 tensor of `elements`, and the pause between two steps."""

    scalars: int
    elements: int
    pause_s: float
    steps: int


LOADS = {
    "scalars": Load(5, 0, 0.0, 20_000),
    "scalars paced": Load(5, 0, 0.001, 1_500),
    "scalars each 0.1 s": Load(5, 0, 0.1, 100),
    "tensors of 4 MB": Load(0, 1_000_000, 0.1, 35),
    "tensors of 64 MB": Load(0, 16_000_000, 0.0, 4),
}
TRAFFIC = {
    "5 scalars, a step each 1 ms": Load(5, 0, 0.001, 0),
    "5 scalars, a step each 10 ms": Load(5, 0, 0.01, 0),
    "5 scalars, a step each 0.1 s": Load(5, 0, 0.1, 0),
    "a tensor of 40 kB each 0.1 s": Load(0, 10_000, 0.1, 0),
    "a tensor of 4 MB each 1 s": Load(0, 1_000_000, 1.0, 0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["traffic", "cost", "one"])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--other", help="the folder that holds another version of the package")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--load")
    arguments = parser.parse_args()
    if arguments.what == "one":
        print(_median_us(LOADS[arguments.load], arguments.folder))
    elif arguments.what == "cost":
        _cost(arguments.other, arguments.pairs, arguments.folder)
    else:
        _traffic(60 * arguments.minutes, arguments.folder)
    return 0


def _recorder(directory: str, load: Load) -> tuple[Any, Callable[[int], None]]:
    """Open a `SummaryRecord`, whose interface all versions share, and return it with a function that records a step."""
    import numpy as np

    from instrument import SummaryRecord

    recorder = SummaryRecord(directory)
    array = np.ones(load.elements, np.float32)
    tags = [f"metric/{index}" for index in range(load.scalars)]

    def record(step: int) -> None:
        for tag in tags:
            recorder.add_value("scalar", tag, step / 8)
        if load.elements:
            recorder.add_value("tensor", "weight", array)
        recorder.record(step)

    return recorder, record


def _median_us(load: Load, folder: str) -> float:
    directory = tempfile.mkdtemp(dir=folder)
    try:
        recorder, record = _recorder(directory, load)
        times = []
        for step in range(load.steps):
            began = time.perf_counter_ns()
            record(step)
            times.append(time.perf_counter_ns() - began)
            time.sleep(load.pause_s) if load.pause_s else None
        recorder.close()
    finally:
        shutil.rmtree(directory)
    return statistics.median(times[len(times) // 4 :]) / 1000


def _cost(other: str, pairs: int, folder: str) -> None:
    print("| load | the other, us | this, us | median of the pairs' ratios |\n|-|-|-|-|")
    for name in LOADS:
        both: list[tuple[float, float]] = []
        for _ in range(pairs):
            first, second = (
                float(
                    subprocess.run(
                        [sys.executable, __file__, "one", "--load", name, "--folder", folder],
                        env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True,
                    ).stdout
                )
                for path in (other, str(ROOT))
            )  # fmt: skip
            both.append((first, second))
        ratio = statistics.median(second / first for first, second in both)
        medians = (statistics.median(pair[side] for pair in both) for side in (0, 1))
        print(f"| {name} | " + " | ".join(f"{median:,.1f}" for median in medians) + f" | {ratio:.2f} |", flush=True)


def _traffic(seconds: float, folder: str) -> None:
    children = {}
    for name, load in TRAFFIC.items():
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writing, _measure_traffic(load, seconds, folder).encode())
            os._exit(0)
        os.close(writing)
        children[name] = reading
    print("| recorded for " + f"{seconds:.0f} s | event file, bytes | written to the disk, bytes | ratio |\n|-|-|-|-|")
    for name, reading in children.items():
        with open(reading) as file:
            recorded, written = map(int, file.read().split())
        os.wait()
        print(f"| {name} | {recorded:,} | {written:,} | {written / recorded:.2f} |", flush=True)


def _measure_traffic(load: Load, seconds: float, folder: str) -> str:
    """Record for so long; return the bytes of the event files, and those that both processes had written back."""
    directory = tempfile.mkdtemp(dir=folder)
    try:
        recorder, record = _recorder(directory, load)
        worker = recorder._sink._producer.supervisor.process(0).pid
        began, step = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            record(step)
            step += 1
            time.sleep(load.pause_s)
        recorder.flush()
        written = sum(_written_bytes(pid) for pid in (os.getpid(), worker))
        recorded = recorder.stats.bytes
        recorder.close()
    finally:
        shutil.rmtree(directory)
    return f"{recorded} {written}"


def _written_bytes(pid: int) -> int:
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"])


if __name__ == "__main__":
    sys.exit(main())
