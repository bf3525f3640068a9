"""Scripts that record and end, in whatever way: they end by themselves, and every point is there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from instrument import read

ROOT = Path(__file__).resolve().parents[2]

RECORD = """
import builtins, os, sys
from instrument import SummaryCollector, SummaryRecord
print("BODY", flush=True)
record = SummaryRecord(sys.argv[1], num_process=2)
for step in range(5):
    record.add_value("scalar", "loss", float(step))
    assert record.record(step)
"""

#: What a script does at its end, and its exit status.
ENDS = {
    "nothing": ("", 0),
    "close twice": ("record.close(); record.close()", 0),
    "exception": ("raise RuntimeError('boom')", 1),
    "exit": ("sys.exit(3)", 3),
    "kept globally": ("builtins.kept = record; builtins.add = record.add_value", 0),
    "kept in a cycle": ("cycle = [record]; cycle.append(cycle); del record", 0),
    "a collector unused": ("collector = SummaryCollector(sys.argv[1])", 0),
}

Finished = subprocess.CompletedProcess[str]


def run(directory: Path, way: str, end: str) -> Finished:
    """Run the script as a file, from `-c`, or from the standard input; it must end within a minute."""
    code = RECORD + end
    directory.mkdir()
    script = directory.parent / f"{directory.name}.py"
    script.write_text(code)
    arguments = {"file": [str(script)], "-c": ["-c", code], "stdin": ["-"]}[way]
    return subprocess.run(
        [sys.executable, *arguments, str(directory)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=code if way == "stdin" else "",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Path, Future[Finished]]]]:
    """All scripts, two at a time."""
    root = tmp_path_factory.mktemp("exit")
    with ThreadPoolExecutor(2) as pool:
        found = {}
        for number, (name, (end, _)) in enumerate(ENDS.items()):
            directory = root / f"end{number}"
            found[name] = (directory, pool.submit(run, directory, "file", end))
        for way in ("-c", "stdin"):
            directory = root / way.strip("-")
            found[way] = (directory, pool.submit(run, directory, way, ""))
        yield found


@pytest.mark.parametrize("name", [*ENDS, "-c", "stdin"])
def test_a_script_ends_and_everything_is_kept(finished: dict[str, tuple[Path, Future[Finished]]], name: str) -> None:
    """Its body ran once, its status is its own, all points are readable, and no process is left."""
    directory, future = finished[name]
    result = future.result()
    assert result.stdout == "BODY\n"
    assert result.returncode == ENDS.get(name, ("", 0))[1]
    assert "Exception ignored" not in result.stderr
    assert ("Traceback" in result.stderr) == (name == "exception")
    points = read(directory).scalars("loss")
    assert list(zip(points.step.tolist(), points.value.tolist(), strict=True)) == [(n, float(n)) for n in range(5)]
    assert read(directory).damage == []
    left = [
        one.info["cmdline"] for one in psutil.process_iter(["cmdline"]) if str(directory) in str(one.info["cmdline"])
    ]
    assert left == []
