"""Measure what a loss landscape costs: ours beside MindSpore's own, and the bare forward pass.

    python benchmarks/landscape.py [--quick] [--networks lenet,dense] [--repetitions 3] > landscape.json

One interleaved run: every repetition goes through all networks, and through MindSpore and ours for each; each
measurement is a process of its own (`planes.py`). *plain* is ours with convolutions as they are, *unfolded* ours with
them as matrix products; the bare forward pass is measured before and after *plain*, in its process. A point is one
evaluation of 512 samples. The report goes to standard output as JSON, progress to standard error.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NETWORKS = ("lenet", "dense")
WRITERS = ("mindspore", "plain", "unfolded")
PCA = "pca"
#: Network, figure, and what it may be at most or at least; the figures are made in `_ratios`.
TARGETS = (
    ("lenet", "plain_over_forward", "at most", 1.1),
    ("lenet", "mindspore_over_unfolded", "at least", 20.0),
    ("dense", "mindspore_over_plain", "at least", 20.0),
    (PCA, "seconds", "at most", 1.0),
    (PCA, "peak_mb", "at most", 300.0),
)


def main() -> int:
    arguments = _parse()
    started = datetime.datetime.now(datetime.timezone.utc)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        runs = list(_runs(arguments, folder))
    versions = next((run["figures"].pop("versions") for run in reversed(runs) if "figures" in run), {})
    for run in runs:
        run.get("figures", {}).pop("versions", None)
    medians = _medians(runs)
    ratios = _ratios(medians)
    report = {
        "benchmark": "landscape",
        "date": started.isoformat(timespec="seconds"),
        "quick": arguments.quick,
        "repetitions": arguments.repetitions,
        "seconds": round((datetime.datetime.now(datetime.timezone.utc) - started).total_seconds(), 1),
        "machine": {
            "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "load_before": load
        },
        "versions": versions,
        "medians": medians,
        "ratios": ratios,
        "targets": _targets(medians, ratios),
        "runs": runs,
    }  # fmt: skip
    print(json.dumps(report, indent=1))
    return 1 if any("failure" in run for run in runs) else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few points, once: shows that all of it works")
    parser.add_argument("--networks", type=_networks, default=NETWORKS, metavar="NAME,...", help="of lenet, dense")
    parser.add_argument("--no-pca", action="store_true", help="leave out the axes of large checkpoints")
    parser.add_argument("--repetitions", type=int, help="default: 3, or 1 with --quick")
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds for one measurement (%(default)s)")
    arguments = parser.parse_args()
    arguments.repetitions = arguments.repetitions or (1 if arguments.quick else 3)
    return arguments


def _networks(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if set(chosen) - set(NETWORKS):
        raise argparse.ArgumentTypeError(f"{text!r}; expected some of {', '.join(NETWORKS)}")
    return chosen


def _runs(arguments: argparse.Namespace, folder: str) -> Iterator[dict[str, Any]]:
    for network in arguments.networks:
        yield _run(arguments, "collect", network, os.path.join(folder, network))
    for repetition in range(arguments.repetitions):
        turn = repetition % len(WRITERS)  # nobody always runs behind the same neighbour
        for network in arguments.networks:
            for what in WRITERS[turn:] + WRITERS[:turn]:
                with tempfile.TemporaryDirectory(dir=folder) as scratch:
                    _link(os.path.join(folder, network), scratch)
                    yield _run(arguments, what, network, scratch) | {"repetition": repetition + 1}
        if not arguments.no_pca:
            yield _run(arguments, PCA, "part" if arguments.quick else "whole", folder) | {"repetition": repetition + 1}


def _link(collected: str, scratch: str) -> None:
    """Everybody gets a directory with the same checkpoints; MindSpore's metadata names them by absolute paths."""
    os.symlink(os.path.join(collected, "ckpt_dir"), os.path.join(scratch, "ckpt_dir"))


def _run(arguments: argparse.Namespace, what: str, network: str, folder: str) -> dict[str, Any]:
    """One measurement, or why there is none."""
    os.makedirs(folder, exist_ok=True)
    started = time.perf_counter()
    run: dict[str, Any] = {"network": PCA if what == PCA else network, "what": what}
    with tempfile.TemporaryDirectory() as aside:
        result = os.path.join(aside, "result.json")
        command = [sys.executable, str(HERE / "planes.py"), what, network, folder, result]
        command += ["--quick"] * arguments.quick
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
        try:
            done = subprocess.run(
                command, env=environment, cwd=aside, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=arguments.time_limit, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            run["failure"] = f"ended after {arguments.time_limit:g} s"
        else:
            if done.returncode or not os.path.exists(result):
                run["failure"] = f"exit status {done.returncode}: {(done.stderr or done.stdout)[-2000:].strip()}"
            else:
                run["figures"] = json.loads(Path(result).read_text())
    run["seconds"] = round(time.perf_counter() - started, 2)
    print(f"{run['network']} {what}: {run['seconds']:.1f} s {run.get('failure', '')}", file=sys.stderr)
    return run


def _medians(runs: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Network -> what -> figure -> median over the repetitions."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for run in runs:
        cell = found.setdefault(run["network"], {}).setdefault(run["what"], {})
        for figure, value in run.get("figures", {}).items():
            if not isinstance(value, str):
                cell.setdefault(figure, []).append(value)
    return {
        network: {
            what: {figure: statistics.median(values) for figure, values in cell.items()} for what, cell in cells.items()
        }
        for network, cells in found.items()
    }


def _ratios(medians: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """How many times as long a point takes; what `_cpu` stands behind is of the process's CPU time, which others on the
    machine disturb less. `plain` is compared with the forward pass over all samples at once, as it does it itself."""
    found: dict[str, dict[str, float]] = {}
    for network in NETWORKS:
        cells = medians.get(network, {})
        ratios = _ratios_of(cells, "") | _ratios_of(cells, "_cpu")
        found |= {network: ratios} if ratios else {}
    return found


def _ratios_of(cells: dict[str, dict[str, float]], clock: str) -> dict[str, float]:
    figure = f"point{clock}_ms"
    points = {what: cells[what][figure] for what in WRITERS if cells.get(what)}
    pairs = [("mindspore", "plain"), ("mindspore", "unfolded")]
    ratios = {
        f"{one}_over_{other}{clock}": points[one] / points[other]
        for one, other in pairs
        if {one, other} <= points.keys()
    }
    for forward in ("forward", "forward_batches") if "plain" in points else ():
        ratios[f"plain_over_{forward}{clock}"] = points["plain"] / cells["plain"][f"{forward}{clock}_ms"]
    return ratios


def _targets(medians: dict[str, Any], ratios: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    judged = []
    for network, figure, bound, limit in TARGETS:
        value = ratios.get(network, {}).get(figure, medians.get(network, {}).get(network, {}).get(figure))
        if value is not None:
            is_met = value <= limit if bound == "at most" else value >= limit
            judged.append(
                {"network": network, "figure": figure, "bound": bound, "limit": limit, "value": value, "is_met": is_met}
            )
    return judged


if __name__ == "__main__":
    sys.exit(main())
