"""One measurement, in a process of its own: `python measure.py WRITER WORKLOAD FOLDER RESULT [--quick]`.

The values are made and the library is imported first. Then the workload runs in FOLDER, and its figures go to the file
RESULT as JSON. `write.py` starts this, watches the memory where that is what is measured, and ends it in time.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import kernels
import numpy as np
import processes
import training
import workloads
import writers
from workloads import Workload
from writers import Writer

_SETTLE_S = 0.5
_VISIBLE_WITHIN_S = 3.0
_MB = 1e6


class Window:
    """What is used from here to `figures()`: wall and CPU time of this process and its helpers."""

    def __init__(self) -> None:
        self._busy_s = processes.machine_busy_s()
        self._helpers_s = processes.helpers_cpu_s()
        self._own_s = time.process_time()
        self._started = time.perf_counter()

    def figures(self) -> dict[str, float]:
        wall_s = time.perf_counter() - self._started
        own_s = time.process_time() - self._own_s
        helpers_s = processes.helpers_cpu_s() - self._helpers_s
        cpu_s = own_s + helpers_s
        # Cores that others kept busy meanwhile. The machine's account has ticks of 10 ms: a little below 0 is none.
        other_load = (processes.machine_busy_s() - self._busy_s - cpu_s) / wall_s
        return {"cpu_s": cpu_s, "trainer_cpu_s": own_s, "window_s": wall_s, "other_load": other_load}


def record(writer: Writer, workload: Workload, folder: str) -> dict[str, Any]:
    """Steps in a loop, until everything is on the disk."""
    values, arrays = workloads.values(workload, writer.hold)
    call = getattr(writer, workload.kind)
    window = Window()
    writer.open(folder)
    if workload.warm_up:
        for step in range(-workload.warm_up, 0):
            call(step + 1, values[step % len(values)])
            writer.after_step()
        writer.settle(folder)
        window = Window()
    started = time.perf_counter()
    steps_s, calls_cpu_s = _loop(writer, call, values, workload)
    writer.close()
    _sync(folder)
    wall_s = time.perf_counter() - started
    figures: dict[str, Any] = window.figures()
    count = workload.steps
    figures |= {
        "step_us_p50": 1e6 * float(np.percentile(steps_s, 50)),
        "step_us_p99": 1e6 * float(np.percentile(steps_s, 99)),
        "step_us_max": 1e6 * float(steps_s.max()),
        "step_us_mean": 1e6 * float(steps_s.mean()),
        "wall_s": wall_s,
        "wall_ms_per_step": 1e3 * wall_s / count,
        "cpu_ms_per_step": 1e3 * figures["cpu_s"] / count,
        "helper_cpu_ms": 1e3 * (figures["cpu_s"] - calls_cpu_s) / count,
        "frames": _frames(folder),
        "disk_mb": sum(path.stat().st_size for path in _files(folder)) / _MB,
    }
    if arrays:
        figures["mb_per_s"] = sum(arrays[step % len(arrays)].nbytes for step in range(count)) / _MB / wall_s
    if workload.kind == "histogram" and isinstance(writer, writers.Ours):
        figures["misplaced_values"] = _misplaced_values(folder, arrays)
    return figures


def _loop(
    writer: Writer, call: Any, values: list[Any], workload: Workload
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], float]:
    """The duration of each step's calls, in seconds, and the CPU time of this thread in all of them."""
    durations = [0] * workload.steps
    calls_cpu_ns = 0
    clock, cpu_clock, after_step = time.perf_counter_ns, time.thread_time_ns, writer.after_step
    for step in range(workload.steps):
        value = values[step % len(values)]
        cpu_started = cpu_clock()
        started = clock()
        call(step + 1, value)
        durations[step] = clock() - started
        calls_cpu_ns += cpu_clock() - cpu_started
        after_step()
        if workload.pause_s:
            time.sleep(workload.pause_s)
    return np.array(durations) / 1e9, calls_cpu_ns / 1e9


def idle(writer: Writer, workload: Workload, folder: str) -> dict[str, Any]:
    """CPU time while nothing is recorded, `workload.steps` seconds long."""
    values, _ = workloads.values(workload, writer.hold)
    writer.open(folder)
    writer.scalar(1, values[0])
    writer.settle(folder)
    time.sleep(_SETTLE_S)
    count = 1 + len(processes.descendants(os.getpid()))
    window = Window()
    time.sleep(workload.steps)
    figures = window.figures()
    writer.close()
    return {**figures, "processes": count}


def startup(writer: Writer, workload: Workload, folder: str) -> dict[str, Any]:
    """From the constructor to the first record, from there to its bytes in the file, and the end of it."""
    values, _ = workloads.values(workload, writer.hold)
    window = Window()
    started = time.perf_counter()
    writer.open(folder)
    opened = time.perf_counter()
    writer.scalar(1, values[0])
    recorded = time.perf_counter()
    visible_ms = _until_visible_ms(writer, folder)
    writer.settle(folder)
    closing = time.perf_counter()
    writer.close()
    closed = time.perf_counter()
    return {
        **window.figures(),
        "open_ms": 1e3 * (opened - started),
        "first_record_ms": 1e3 * (recorded - started),
        "visible_ms": visible_ms,
        "close_ms": 1e3 * (closed - closing),
    }


def _until_visible_ms(writer: Writer, folder: str) -> float | None:
    """How long until a file holds the last tag, for this and any other process; None where none does in time."""
    started = time.perf_counter()
    if isinstance(writer, writers.Limit):
        return 0.0
    wanted = workloads.SCALAR_TAGS[-1].encode()
    while time.perf_counter() < started + _VISIBLE_WITHIN_S:
        if any(wanted in path.read_bytes() for path in _files(folder)):
            return 1e3 * (time.perf_counter() - started)
        time.sleep(0.001)
    return None


def memory(writer: Writer, workload: Workload, folder: str) -> dict[str, Any]:
    """A backlog, while whoever started this process watches its memory; tells when it began."""
    values, _ = workloads.values(workload, writer.hold)
    call = getattr(writer, workload.kind)
    time.sleep(_SETTLE_S)
    window = Window()
    opened_ns = time.monotonic_ns()
    writer.open(folder)
    _loop(writer, call, values, workload)
    time.sleep(_SETTLE_S)
    writer.close()
    return {**window.figures(), "opened_ns": opened_ns}


def train(writer: Writer, workload: Workload, folder: str) -> dict[str, Any]:
    """A training with a collector and without."""
    window = Window()
    figures = training.measure(writer, folder, workload.steps, workload.every)
    return {**window.figures(), **figures}


def parts(_writer: Writer, workload: Workload, folder: str) -> dict[str, Any]:
    """The parts of the work for themselves."""
    window = Window()
    figures = kernels.measure(folder, workload.steps)
    return {**window.figures(), **figures}


PROCEDURES = {
    "record": record,
    "idle": idle,
    "startup": startup,
    "memory": memory,
    "training": train,
    "kernels": parts,
}


def _files(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def _sync(folder: str) -> None:
    """Return when all files are on the disk itself."""
    for path in _files(folder):
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def _frames(folder: str) -> int:
    """How many whole frames the event files hold: u64 length, u32 CRC, payload, u32 CRC."""
    count = 0
    for path in _files(folder):
        if "events" not in path.name:
            continue
        size, position = path.stat().st_size, 0
        with open(path, "rb") as file:
            while len(head := file.read(12)) == 12:
                position += 16 + struct.unpack("<Q", head[:8])[0]
                count += position <= size
                file.seek(position)
    return count


def _misplaced_values(folder: str, arrays: list[workloads.Array]) -> int:
    """How many values the recorded histograms count in another bucket than `numpy.histogram` does."""
    from instrument.runs.run import read_run

    misplaced = 0
    for step, _, found in read_run(folder).histograms("value"):
        array = arrays[(step - 1) % len(arrays)]
        edges = np.append(found.left, found.max)
        misplaced += int(np.abs(np.histogram(array, bins=edges)[0] - found.counts).sum())
    return misplaced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("writer", choices=writers.CLASSES)
    parser.add_argument("workload", choices=workloads.WORKLOADS)
    parser.add_argument("folder")
    parser.add_argument("result")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    workload = workloads.WORKLOADS[arguments.workload]
    if arguments.quick:
        workload = workload.quick()
    writer = writers.CLASSES[arguments.writer]()
    figures = PROCEDURES[workload.procedure](writer, workload, arguments.folder)
    figures["versions"] = {name: metadata.version(name) for name in writer.packages()}
    Path(arguments.result).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
