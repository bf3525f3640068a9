"""Listing large trees: quick at first, and much quicker again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from instrument.show.cli import main
from instrument.values import Event
from tests.runs.build import item, write

RUNS, TAGS = 1000, 100


def listing(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[float, str]:
    """Processor seconds, and what was printed."""
    started = time.process_time()
    assert main(["ls", str(root)]) == 0
    return time.process_time() - started, capsys.readouterr().out


@pytest.mark.alone
def test_a_thousand_runs_are_listed_in_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1,000 runs of 100 tags: under 2 s of processor time, under 0.2 s again, and a run that changed is shown so."""
    events = [
        Event.of(step, 10.0 + step, [item("scalar", f"metric/{tag:03d}", tag * 0.1 + step) for tag in range(TAGS)])
        for step in range(10)
    ]
    content = write(tmp_path / "one", events).read_bytes()
    root = tmp_path / "tree"
    for number in range(RUNS):
        write(root / f"run_{number:04d}", []).write_bytes(content)

    cold_s, first = listing(root, capsys)
    again_s, second = listing(root, capsys)

    assert first.count("100 scalar  0..9") == RUNS
    assert second == first
    assert cold_s < 2
    assert again_s < 0.2
    (path,) = (root / "run_0500").iterdir()
    path.write_bytes(content[: len(content) // 2])
    lines = listing(root, capsys)[1].splitlines()
    assert [line for line in lines if "unfinished" in line] == [lines[501]]
