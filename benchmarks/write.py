"""Measure what recording costs: ours beside MindSpore, torch, tensorboardX, TensorBoard, and the physical limit.

    python benchmarks/write.py [--quick] [--writers ours,limit] [--workloads scalars,startup] > write.json
    python benchmarks/write.py --table write.json [--into benchmarks/README.md]

One interleaved run: every repetition goes through all workloads, and through all writers of each, so that whatever
else happens on the machine happens to all of them. Each measurement is a process of its own (`measure.py`); one that
hangs is ended and reported as such. The report goes to standard output as JSON, progress to standard error. Ours,
MindSpore and the limit run in the Python that runs this, the others in `.venv-bench`, or in the Python that
INSTRUMENT_BENCH_PYTHON names.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import processes
from workloads import WORKLOADS, WRITERS, Workload

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

_PEERS = ("torch", "tensorboardX", "tensorboard")
_SAMPLE_MS = 10
_EXIT_PATIENCE_S = 2.0
_MARKS = ("<!-- write.py: begin -->", "<!-- write.py: end -->")


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often."""

    writers: list[str]
    workloads: list[Workload]
    repetitions: int
    quick: bool
    minutes: float
    time_limit_s: float
    folder: str


def main() -> int:
    arguments = _parse()
    if arguments.table:
        table = figures.markdown(json.loads(Path(arguments.table).read_text()))
        if arguments.into:
            _insert(Path(arguments.into), table)
        else:
            print(table, end="")
        return 0
    report = measure(_plan(arguments))
    print(json.dumps(report, indent=1))
    return 1 if any("failure" in run for run in report["runs"] if run["writer"] == "ours") else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps, once: shows that all of it works")
    parser.add_argument("--writers", type=_some_of(WRITERS), default=list(WRITERS), metavar="NAME,...")
    parser.add_argument("--workloads", type=_some_of(WORKLOADS), default=list(WORKLOADS), metavar="NAME,...")
    parser.add_argument("--repetitions", type=int, help="default: 3, or 1 with --quick")
    parser.add_argument(
        "--minutes", type=float, default=12.0, help="nothing is repeated after so many minutes (%(default)s)"
    )
    parser.add_argument("--time-limit", type=float, default=150.0, help="seconds for one measurement (%(default)s)")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where event files are written (%(default)s)")
    parser.add_argument("--table", metavar="FILE", help="measure nothing; show a report as Markdown")
    parser.add_argument("--into", metavar="FILE", help="with --table: put it between the marks in a Markdown file")
    return parser.parse_args()


def _some_of(known: Any) -> Any:
    def names(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = sorted(set(chosen) - set(known))
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {unknown}; expected some of {list(known)}")
        return [name for name in known if name in chosen]

    return names


def _plan(arguments: argparse.Namespace) -> Plan:
    chosen = [WORKLOADS[name] for name in arguments.workloads]
    if arguments.quick:
        chosen = [workload for workload in chosen if workload.quick_steps]
    repetitions = arguments.repetitions or (1 if arguments.quick else 3)
    return Plan(
        arguments.writers, chosen, repetitions, arguments.quick, arguments.minutes, arguments.time_limit,
        os.path.abspath(arguments.folder),
    )  # fmt: skip


def measure(plan: Plan) -> dict[str, Any]:
    """Run it all; the report says what was found, where, and with which versions."""
    processes.adopt_orphans()
    pythons, missing = _pythons(plan.writers)
    started = datetime.datetime.now(datetime.timezone.utc)
    load = os.getloadavg()[0]
    runs = list(_runs(plan, pythons))
    versions = {run["writer"]: run["figures"]["versions"] for run in runs if "failure" not in run}
    for run in runs:
        run.get("figures", {}).pop("versions", None)
    return {
        "benchmark": "write",
        "date": started.isoformat(timespec="seconds"),
        "quick": plan.quick,
        "repetitions": plan.repetitions,
        "seconds": round((datetime.datetime.now(datetime.timezone.utc) - started).total_seconds(), 1),
        "machine": _machine(plan.folder, load),
        "versions": versions,
        "missing": missing,
        **figures.summarise(runs),
        "runs": runs,
    }


def _pythons(writers: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The Python of each writer, and why some have none."""
    peers = os.environ.get("INSTRUMENT_BENCH_PYTHON") or str(ROOT / ".venv-bench" / "bin" / "python")
    pythons = {writer: peers if writer in _PEERS else sys.executable for writer in writers}
    missing = {
        writer: f"there is no {python}; `make bench` makes it"
        for writer, python in pythons.items()
        if not os.access(python, os.X_OK)
    }
    for writer, reason in missing.items():
        print(f"{writer}: not measured, {reason}", file=sys.stderr)
    return {writer: python for writer, python in pythons.items() if writer not in missing}, missing


def _runs(plan: Plan, pythons: dict[str, str]) -> Iterator[dict[str, Any]]:
    spent: dict[tuple[str, str], list[float]] = {}
    deadline = time.monotonic() + 60 * plan.minutes
    for repetition in range(plan.repetitions):
        for workload in plan.workloads:
            present = [writer for writer in pythons if writer in workload.writers]
            turn = repetition % len(present) if present else 0  # nobody always runs behind the same neighbour
            for writer in present[turn:] + present[:turn]:
                seconds = spent.setdefault((workload.name, writer), [])
                if seconds and (sum(seconds) + seconds[-1] > workload.cell_seconds or time.monotonic() > deadline):
                    continue
                run = _run(plan, pythons[writer], writer, workload)
                seconds.append(run["seconds"])
                print(
                    f"{repetition + 1}/{plan.repetitions} {workload.name} {writer}: {run['seconds']:.1f} s "
                    f"{run.get('failure', '')}",
                    file=sys.stderr,
                )
                yield {"repetition": repetition + 1, **run}


def _run(plan: Plan, python: str, writer: str, workload: Workload) -> dict[str, Any]:
    """One measurement, or why there is none."""
    started = time.perf_counter()
    run: dict[str, Any] = {"workload": workload.name, "writer": writer}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=plan.folder) as scratch:
        events, result, log = (os.path.join(scratch, name) for name in ("events", "result.json", "log"))
        os.mkdir(events)
        command = [python, str(HERE / "measure.py"), writer, workload.name, events, result]
        # What MindSpore warns of in its log is not what is measured.
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled, and so shall ours be
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command + ["--quick"] * plan.quick,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True,
            )  # fmt: skip
        samples = _watch(process, plan.time_limit_s, workload.procedure == "memory")
        status = process.poll()
        left_behind = processes.end_descendants(_EXIT_PATIENCE_S if status is not None else 0)
        run["seconds"] = round(time.perf_counter() - started, 2)
        if status is None:
            run["failure"] = f"ended after {plan.time_limit_s:g} s"
        elif status != 0 or not os.path.exists(result):
            run["failure"] = f"exit status {status}: {Path(log).read_text(errors='replace')[-2000:].strip()}"
        else:
            run["figures"] = json.loads(Path(result).read_text()) | {"left_behind": left_behind}
            if samples:
                run["figures"] |= _memory_figures(samples, process.pid, run["figures"].pop("opened_ns"))
    return run


Samples = list[tuple[int, dict[int, processes.Memory]]]


def _watch(process: subprocess.Popen[bytes], time_limit_s: float, samples_memory: bool) -> Samples:
    """Wait for the process to end, but not longer; meanwhile, its memory and that of its helpers, and when."""
    deadline = time.monotonic() + time_limit_s
    samples: Samples = []
    end = os.pidfd_open(process.pid)
    poll = select.poll()
    poll.register(end, select.POLLIN)
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            if poll.poll(_SAMPLE_MS if samples_memory else 1e3 * left_s):
                process.wait()
                break
            if samples_memory:
                pids = [process.pid, *processes.descendants(process.pid)]
                samples.append((time.monotonic_ns(), {pid: processes.memory(pid) for pid in pids}))
    finally:
        os.close(end)
    return samples


def _memory_figures(samples: Samples, trainer: int, opened_ns: int) -> dict[str, float]:
    """Peaks since the recorder was opened."""
    totals = [(moment, sum(memory.pss_mb for memory in found.values())) for moment, found in samples]
    before = [total for moment, total in totals if moment < opened_ns]
    after = [total for moment, total in totals if moment >= opened_ns]
    helpers = [
        memory for moment, found in samples if moment >= opened_ns for pid, memory in found.items() if pid != trainer
    ]
    peaks = {"tree_pss_mb": max(after) - before[-1]}
    if helpers:
        peaks["worker_pss_mb"] = max(memory.pss_mb for memory in helpers)
        peaks["worker_private_mb"] = max(memory.private_mb for memory in helpers)
    return peaks


def _machine(folder: str, load: float) -> dict[str, Any]:
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    models = [value.strip() for key, _, value in lines if key.strip() == "model name"]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": models[0] if models else platform.machine(),
        "memory_gb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        "kernel": platform.release(),
        "file_system": _file_system(folder),
        "python": platform.python_version(),
        "load_before": load,
    }


def _file_system(folder: str) -> str:
    """The type of the file system that a folder is on."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    real = os.path.realpath(folder)
    holding = [(point, kind) for point, kind in mounts if os.path.commonpath([point, real]) == point]
    return max(holding, key=lambda mount: len(mount[0]))[1]


def _insert(path: Path, table: str) -> None:
    before, begin, rest = path.read_text().partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not end:
        sys.exit(f"{path} has no lines {_MARKS[0]!r} and {_MARKS[1]!r} for the table to go between.")
    path.write_text(f"{before}{begin}\n{table}{end}{after}")


if __name__ == "__main__":
    sys.exit(main())
