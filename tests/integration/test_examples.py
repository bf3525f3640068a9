"""Each example runs as its user would run it, and leaves what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from instrument import read

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 180


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_lenet5_learns_and_shows_what_was_recorded(tmp_path: Path, mode: str) -> None:
    """Real digits, two epochs of 46 steps: ten collected steps, two evaluations, and the table of them printed."""
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "lenet5.py"), "run", "--epochs", "2", "--mode", mode],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    run = read(tmp_path / "run")
    loss = run.scalars("loss/auto")
    assert loss.step.tolist() == [1, *range(10, 91, 10)]
    assert loss.value[-1] < loss.value[0]
    accuracy = run.scalars("eval/accuracy/auto")
    assert accuracy.step.tolist() == [46, 92]
    assert accuracy.value[-1] > 0.3
    assert run.tensors("features")[90].shape == (32, 400)
    assert run.histograms("conv1.weight/auto")[90].count == 150
    assert run.histograms("logits")[90].counts.sum() == 320
    assert [len(run.images("input_data/auto")), run.damage] == [10, []]
    assert (run.graph is not None) == (mode == "graph")
    assert run.lineage["custom"] == {"dataset": "digits", "enlarged": 4}
    assert np.isclose(run.lineage["eval"]["metric"]["accuracy"], accuracy.value[-1])
    for shown in ("loss/auto", "eval/accuracy/auto", "features", "train.algorithm.network", "lost=0"):
        assert shown in ran.stdout
