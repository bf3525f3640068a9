"""The benchmarks run, and their reports have what the tables need."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "benchmarks" / "write.py"


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def report() -> Any:
    pytest.importorskip("mindspore")
    result = bench("--quick", "--writers", "ours,limit", "--workloads", "scalars,startup")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_quick_run_reports_every_cell(report: Any) -> None:
    """Each workload is measured once with each writer, without failure and without leaving a process behind."""
    runs = report["runs"]
    cells = [(run["workload"], run["writer"]) for run in runs]
    assert cells == [("scalars", "limit"), ("scalars", "ours"), ("startup", "limit"), ("startup", "ours")]
    assert [run.get("failure") for run in runs] == [None] * 4
    assert {run["figures"]["left_behind"] for run in runs} == {0}
    assert report["quick"] is True
    assert report["missing"] == {}
    assert report["machine"]["cores"] >= 1
    assert set(report["versions"]["ours"]) >= {"mindspore", "numpy"}


def test_figures_are_plausible(report: Any) -> None:
    """Nothing recorded is missing, and medians and ratios follow from the runs."""
    scalars, startup = report["medians"]["scalars"], report["medians"]["startup"]
    assert scalars["ours"]["frames"] == 2002  # the version, one event a step, and the end
    assert 0 < scalars["ours"]["step_us_p50"] <= scalars["ours"]["step_us_p99"] <= scalars["ours"]["step_us_max"]
    assert scalars["ours"]["cpu_s"] >= scalars["ours"]["trainer_cpu_s"] > 0
    assert startup["ours"]["visible_ms"] > 0
    ratio = scalars["ours"]["wall_s"] / scalars["limit"]["wall_s"]
    assert report["ratios"]["scalars"]["wall_s"] == {"limit": pytest.approx(ratio)}
    judged = {(target["workload"], target["figure"]): target for target in report["targets"] if not target["writer"]}
    assert judged["startup", "close_ms"]["is_met"] is (startup["ours"]["close_ms"] <= 50)


def test_table_shows_the_report(report: Any, tmp_path: Path) -> None:
    """The table goes between the marks of a Markdown file, and again, and the rest of the file stays."""
    (tmp_path / "report.json").write_text(json.dumps(report))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- write.py: begin -->\nold\n<!-- write.py: end -->\nafter\n")
    for _ in range(2):
        result = bench("--table", str(tmp_path / "report.json"), "--into", str(page))
        assert result.returncode == 0, result.stderr
    text = page.read_text()
    assert text.startswith("before\n<!-- write.py: begin -->\n")
    assert text.endswith("<!-- write.py: end -->\nafter\n")
    assert "old" not in text
    assert text.count("| | limit | ours |") == 2
    assert "### Targets" in text


def test_peer_without_environment_is_named_as_missing() -> None:
    """A writer whose environment does not exist is not measured, and the report says so."""
    result = bench("--quick", "--writers", "torch", "--workloads", "startup", INSTRUMENT_BENCH_PYTHON="/nowhere/python")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["runs"] == []
    assert "/nowhere/python" in report["missing"]["torch"]


def test_measurement_that_takes_too_long_is_ended() -> None:
    """A measurement beyond its time limit is killed and reported as a failure."""
    result = bench("--quick", "--writers", "limit", "--workloads", "idle", "--time-limit", "0.2")
    (run,) = json.loads(result.stdout)["runs"]
    assert run["failure"] == "ended after 0.2 s"
    assert "figures" not in run


def other(script: str, *arguments: str) -> Any:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout)


def test_profiles_are_measured() -> None:
    """In one mode, ours and MindSpore's record something each time, and are compared in pairs."""
    pytest.importorskip("mindspore")
    report = other("profiled.py", "--quick", "--modes", "graph")
    figures = report["graph"]
    assert figures["blocks"] == 2
    assert {name: one["pairs"] for name, one in figures.items() if name.endswith("_percent") and "pairs" in one} == {
        "inside_of_theirs_percent": 2, "inside_of_theirs_cpu_percent": 2, "inside_percent": 2,
        "theirs_inside_percent": 2, "outside_percent": 2, "outside_cpu_percent": 2, "same_percent": 1,
    }  # fmt: skip
    assert figures["outside_percent"]["verdict"] == "not shown"  # two pairs show nothing
    assert 0 < report["spans"]["span_off_us"] < report["spans"]["span_on_us"]
    assert 0 < report["hooks"]["outside_us"] < report["hooks"]["inside_us"]
    assert 0 < figures["hooks_percent"]["outside"] < figures["hooks_percent"]["inside"]


def test_intervals_hold_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """In some 95 of 100 measurements, also where some values are wild."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    interval = importlib.import_module("intervals").interval
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        noise = rng.normal(0, 0.1, 60)
        noise[rng.integers(60, size=5)] *= 20
        estimate, low, high = interval(0.02 + noise)
        assert low <= estimate <= high
        held += low <= 0.02 <= high
    assert 0.92 <= held / 400 <= 0.98
    assert interval(np.array([1.0, 2.0, 6.0])) == (2.75, 1.0, 6.0)


def test_cost_of_a_step_is_found_among_steps_that_drift(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Steps of two lengths whose shares drift cost 2 ms more where the collector is told of them."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    training = importlib.import_module("training")
    is_told = training.draw(400)
    assert is_told.reshape(400, 20).sum(axis=1).tolist() == [10] * 400
    assert len({tuple(pair) for pair in is_told.reshape(400, 20).tolist()}) == 2
    share = 0.5 + 0.3 * np.sin(np.arange(8000) / 500)
    steps_ms = np.where(rng.random(8000) < share, 64.0, 33.0) + rng.normal(0, 1, 8000)
    found = training.compare(steps_ms + 2.0 * is_told, is_told)
    none = training.compare(steps_ms, is_told)
    two_percent = 100 * 2.0 / steps_ms[~is_told].mean()
    assert found["blocks_percent"] - none["blocks_percent"] == pytest.approx(two_percent)
    assert none["blocks_percent_low"] < none["blocks_percent"] < none["blocks_percent_high"]
    assert abs(none["blocks_percent"]) < 5  # six standard deviations


def test_reading_traces_is_measured() -> None:
    """A sample, and a large file in pieces."""
    report = other("trace.py", "--megabytes", "2", "--repetitions", "2")
    assert report["sample"]["executions"] > 0
    assert report["huge"]["pairs"]["executions"] == report["huge"]["capture"]["executions"] > 0


def test_landscapes_are_measured_beside_mindspores() -> None:
    """A quick run of the small network and of the axes: each cell has figures, and ratios follow from them."""
    pytest.importorskip("mindspore")
    command = [sys.executable, str(ROOT / "benchmarks" / "landscape.py"), "--quick", "--networks", "dense"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert [run.get("failure") for run in report["runs"]] == [None] * 5
    cells = report["medians"]["dense"]
    assert {what: cells[what]["points"] for what in ("mindspore", "plain", "unfolded")} == {
        "mindspore": 17, "plain": 271, "unfolded": 271
    }  # fmt: skip
    ratio = cells["mindspore"]["point_ms"] / cells["plain"]["point_ms"]
    assert report["ratios"]["dense"]["mindspore_over_plain"] == pytest.approx(ratio)
    judged = {(target["network"], target["figure"]): target["is_met"] for target in report["targets"]}
    assert judged["pca", "peak_mb"] is (report["medians"]["pca"]["pca"]["peak_mb"] <= 300)


def test_reading_is_measured(tmp_path: Path) -> None:
    """`read.py --quick` measures ours on every case, names readers that are not installed, and its table shows both."""
    script = str(SCRIPT.with_name("read.py"))
    arguments = ["--quick", "--readers", "ours,ours_tensorboard,tbparse", "--folder", str(tmp_path / "files")]
    environment = {**os.environ, "INSTRUMENT_BENCH_PYTHON": str(tmp_path / "none")}
    command = [sys.executable, script, *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert list(report["missing"]) == ["tbparse"]
    values = {(run["case"], run["reader"]): run["values"] for run in report["runs"]}
    assert values == {
        (case, reader): count
        for case, count in (
            ("1m_x_1", 20_000),
            ("200k_x_10", 40_000),
            ("wide", 20_000),
            ("wide_short", 2_000),
            ("mixed", 25_100),
            ("tensors", 16),
        )
        for reader in ("ours", "ours_tensorboard")
    } | {("tree", "ours_cold"): 20, ("tree", "ours_again"): 20}
    (tmp_path / "report").write_text(result.stdout)
    command = [sys.executable, script, "--table", str(tmp_path / "report")]
    table = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert table.count("| ours |") == 6
    assert "ours_again: 0." in table


def test_metrics_of_the_system_are_measured() -> None:
    """A recorder with them and one without; the difference is judged."""
    pytest.importorskip("mindspore")
    report = other("system.py", "--seconds", "1", "--interval", "0.2", "--processes", "3")
    assert (report["with"]["samples"] > 0, report["without"]["samples"]) == (True, 0)
    assert report["with"]["metrics"] >= 10
    assert report["sample_us"] > 0
    difference = report["with"]["percent"] - report["without"]["percent"]
    assert report["percent_of_a_core"] == pytest.approx(difference)
    assert report["is_met"] is (difference < 0.5)
