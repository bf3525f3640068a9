"""Measure what `system_metrics` take of the processor: an idle recorder with them and without, for the same time.

    python benchmarks/system.py [--seconds 60] [--interval 5] [--processes 0] > system.json

Each recorder lives in a process of its own, which sleeps; the CPU time of that process and of its worker is counted
from behind the first record to the end of the window. `--processes` are started beside, and sleep: whoever looks for a
process's children may look through all of them. *sample_us* is what one sample takes of its thread.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import processes

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

#: Of a core.
LIMIT_PERCENT = 0.5
_SAMPLES = 50
_SETTLE_S = 1.0


def idle(interval_s: float, seconds: float) -> dict[str, Any]:
    """What a sleeping process with a recorder takes; an interval of 0 is a recorder without samples."""
    from instrument import SummaryRecord, read

    with tempfile.TemporaryDirectory() as folder:
        with SummaryRecord(folder, num_process=1, system_metrics=interval_s or False) as record:
            record.add_value("scalar", "loss", 1.0)
            record.record(1)
            record.flush()
            time.sleep(_SETTLE_S)
            busy_s, helpers_s, own_s = processes.machine_busy_s(), processes.helpers_cpu_s(), time.process_time()
            time.sleep(seconds)
            cpu_s = time.process_time() - own_s + processes.helpers_cpu_s() - helpers_s
            other_load = (processes.machine_busy_s() - busy_s - cpu_s) / seconds
        tags = read(folder).tags()["scalar"]
        samples = len(read(folder).scalars("system/cpu_percent")) if interval_s else 0
    return {"cpu_s": cpu_s, "percent": 100 * cpu_s / seconds, "samples": samples, "metrics": len(tags) - 1,
            "other_load": other_load}  # fmt: skip


def one_sample() -> dict[str, float]:
    """The median of what a sample takes, in microseconds of its thread."""
    import psutil

    from instrument.collect.system import System

    system = System(str(ROOT))
    taken = []
    for _ in range(_SAMPLES):
        started = time.thread_time_ns()
        system.sample()
        taken.append((time.thread_time_ns() - started) / 1e3)
        time.sleep(0.02)
    return {"sample_us": statistics.median(taken), "processes": len(psutil.pids())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--part", choices=("idle", "sample"))
    arguments = parser.parse_args()
    if arguments.part == "idle":
        print(json.dumps(idle(arguments.interval, arguments.seconds)))
    elif arguments.part == "sample":
        print(json.dumps(one_sample()))
    else:
        print(json.dumps(report(arguments), indent=2))


def report(arguments: argparse.Namespace) -> dict[str, Any]:
    others = [subprocess.Popen(["sleep", "86400"]) for _ in range(arguments.processes)]
    try:
        with_samples = _part("idle", arguments.seconds, arguments.interval)
        without = _part("idle", arguments.seconds, 0)
        sample = _part("sample", arguments.seconds, arguments.interval)
    finally:
        for process in others:
            process.kill()
            process.wait()
    percent = with_samples["percent"] - without["percent"]
    return {
        "machine": {"python": platform.python_version(), "kernel": platform.release()},
        "seconds": arguments.seconds, "interval_s": arguments.interval, **sample, "with": with_samples,
        "without": without, "percent_of_a_core": percent, "is_met": percent < LIMIT_PERCENT,
    }  # fmt: skip


def _part(name: str, seconds: float, interval_s: float) -> Any:
    command = [sys.executable, __file__, "--part", name, "--seconds", str(seconds), "--interval", str(interval_s)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
