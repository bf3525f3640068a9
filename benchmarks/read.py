"""Measure what reading costs: ours beside rustboard, TensorBoard's accumulator, tbparse, MindInsight and a plain loop.

    python benchmarks/read.py [--quick] [--readers ours,rustboard] [--cases mixed] > read.json
    python benchmarks/read.py --table read.json [--into benchmarks/README.md]

Every reader of a case is a process of its own, one after the other, in turn for each repetition; one that takes longer
than `--seconds` is not repeated. The files are made first, in `--folder`, and are in the page cache. TensorBoard's
readers run in the Python that INSTRUMENT_BENCH_PYTHON names, MindInsight in that of INSTRUMENT_BENCH_MINDINSIGHT; what
is not installed there is left out and named in the report.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

import reading_files  # noqa: E402
from readers import READERS, TREE_READERS  # noqa: E402

_MARKS = ("<!-- read.py: begin -->", "<!-- read.py: end -->")
#: Case -> how many times less processor time than rustboard with checksums ours is to take.
_TARGETS = {"1m_x_1": 2.0, "200k_x_10": 2.0, "wide": 2.0, "wide_short": 1.0, "mixed": 1.0, "tensors": 10.0}
_MEMORY_TARGET = 2.0
#: The case of a tree of runs, and in how many seconds it is to be listed.
_TREE = "tree"
_TREE_TARGETS = {"ours_cold": 2.0, "ours_again": 0.2}
#: Its peers; the others read one directory.
_TREE_PEERS = ("rustboard", "rustboard_checksum")
_PEER = "rustboard_checksum"


def main() -> int:
    arguments = _parse()
    if arguments.table:
        table = _table(json.loads(Path(arguments.table).read_text()))
        if arguments.into:
            _insert(Path(arguments.into), table)
        else:
            print(table, end="")
        return 0
    report = measure(arguments)
    print(json.dumps(report, indent=1))
    return 1 if any("failure" in run for run in report["runs"] if run["reader"].startswith("ours")) else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small files, once: shows that all of it works")
    parser.add_argument("--readers", default=",".join(READERS), metavar="NAME,...")
    parser.add_argument("--cases", default=",".join((*reading_files.CASES, _TREE)), metavar="NAME,...")
    parser.add_argument("--repetitions", type=int, help="default: 3, or 1 with --quick")
    parser.add_argument("--seconds", type=float, default=20.0, help="a slower reader is not repeated (%(default)s)")
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "bench-read"), help="(%(default)s)")
    parser.add_argument("--table", metavar="FILE", help="measure nothing; show a report as Markdown")
    parser.add_argument("--into", metavar="FILE", help="with --table: put it between the marks in a Markdown file")
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run it all; the report has every single run and the medians."""
    started = datetime.datetime.now(datetime.timezone.utc)
    load = os.getloadavg()[0]
    runs: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    for repetition in range(arguments.repetitions or (1 if arguments.quick else 3)):
        for case in arguments.cases.split(","):
            for reader in _readers(case, arguments.readers.split(",")):
                before = [run for run in runs if (run["case"], run["reader"]) == (case, reader)]
                if reader in missing or any(run["seconds"] > arguments.seconds for run in before):
                    continue
                run = _run(reader, case, arguments)
                if "No module named" in run.get("failure", ""):
                    missing[reader] = run["failure"].splitlines()[-1]
                    continue
                runs.append({"repetition": repetition + 1, **run})
                print(f"{case} {reader}: {run.get('cpu_s', run.get('failure'))}", file=sys.stderr)
    return {
        "benchmark": "read",
        "date": started.isoformat(timespec="seconds"),
        "quick": arguments.quick,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load,
        "missing": missing,
        "medians": _medians(runs),
        "runs": runs,
    }


def _readers(case: str, wanted: list[str]) -> list[str]:
    """Those of the wanted readers that serve for a case."""
    if case != _TREE:
        return wanted
    own = [*TREE_READERS] if "ours" in wanted else []
    return own + [reader for reader in wanted if reader in _TREE_PEERS]


def _python(reader: str) -> str:
    if reader.startswith("ours"):
        return sys.executable
    variable = "INSTRUMENT_BENCH_MINDINSIGHT" if reader == "mindinsight" else "INSTRUMENT_BENCH_PYTHON"
    return os.environ.get(variable) or str(ROOT / ".venv-bench" / "bin" / "python")


def _run(reader: str, case: str, arguments: argparse.Namespace) -> dict[str, Any]:
    dialect, folder = {**READERS, **TREE_READERS}[reader][1], Path(arguments.folder)
    if case == _TREE:
        root = reading_files.tree_of(folder, dialect, arguments.quick)
    else:
        root = reading_files.path_of(folder, case, dialect, arguments.quick).parent
    size_bytes = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    run: dict[str, Any] = {"case": case, "reader": reader, "bytes": size_bytes}
    started = time.perf_counter()
    command = [_python(reader), str(HERE / "readers.py"), reader, str(root)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
        failure = result.stderr.strip()[-500:] if result.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = f"No module named in {command[0]}" if isinstance(error, FileNotFoundError) else str(error)
    run["seconds"] = round(time.perf_counter() - started, 2)
    return run | ({"failure": failure} if failure else json.loads(result.stdout.splitlines()[-1]))


def _medians(runs: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    medians: dict[str, dict[str, dict[str, float]]] = {}
    for run in runs:
        same = [one for one in runs if (one["case"], one["reader"]) == (run["case"], run["reader"]) and "cpu_s" in one]
        if same:
            figures = {key: statistics.median(one[key] for one in same) for key in ("cpu_s", "wall_s", "peak_mb")}
            medians.setdefault(run["case"], {})[run["reader"]] = figures
    return medians


def _table(report: dict[str, Any]) -> str:
    """Markdown: a table a case, the quickest first, and what was aimed at."""
    lines = [f"{report['date']}, {report['cores']} cores; load before {report['load_before']:.1f}.", ""]
    for case, readers in report["medians"].items():
        what = reading_files.TREE if case == _TREE else reading_files.CASES[case]
        lines += [f"### `{case}`: {what.what}", ""]
        lines += ["| reader | processor s | wall s | peak memory MB | times ours |", "|---|---:|---:|---:|---:|"]
        base = readers.get("ours_cold" if case == _TREE else "ours", {}).get("cpu_s")
        for reader, figures in sorted(readers.items(), key=lambda one: one[1]["cpu_s"]):
            times = f"{figures['cpu_s'] / base:.1f}" if base else ""
            cells = f"{figures['cpu_s']:.3f} | {figures['wall_s']:.3f} | {figures['peak_mb']:.0f} | {times}"
            lines.append(f"| {reader} | {cells} |")
        lines += ["", *_judged(case, readers)]
    return "\n".join(lines).rstrip() + "\n"


def _judged(case: str, readers: dict[str, dict[str, float]]) -> list[str]:
    if case == _TREE:
        words = [
            f"{reader}: {readers[reader]['cpu_s']:.2f} s (aim {aim:g}: "
            f"{'met' if readers[reader]['cpu_s'] <= aim else 'missed'})"
            for reader, aim in _TREE_TARGETS.items()
            if reader in readers
        ]
        return [f"{'; '.join(words)}.", ""] if words else []
    if "ours" not in readers or _PEER not in readers:
        return []
    ours, peer = readers["ours"], readers[_PEER]
    quicker, leaner = peer["cpu_s"] / ours["cpu_s"], peer["peak_mb"] / ours["peak_mb"]
    words = ["met" if is_met else "missed" for is_met in (quicker >= _TARGETS[case], leaner >= _MEMORY_TARGET)]
    return [
        f"Against rustboard with checksums: {quicker:.1f} times quicker (aim {_TARGETS[case]:g}: {words[0]}), "
        f"{leaner:.1f} times less memory (aim {_MEMORY_TARGET:g}: {words[1]}).",
        "",
    ]


def _insert(path: Path, table: str) -> None:
    before, begin, rest = path.read_text().partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not end:
        sys.exit(f"{path} has no lines {_MARKS[0]!r} and {_MARKS[1]!r} for the table to go between.")
    path.write_text(f"{before}{begin}\n{table}{end}{after}")


if __name__ == "__main__":
    sys.exit(main())
