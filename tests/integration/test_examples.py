"""Each example runs as its user would run it, and leaves what it says."""

from __future__ import annotations

import importlib.util
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
    """Real digits, two epochs of 46 steps: ten collected steps, two evaluations, ten profiled steps; all printed."""
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
    found = run.profile()
    assert found.steps["step"].tolist() == list(range(31, 41))
    assert len(set(found.steps["operators"].tolist())) == 1
    assert found.metadata["complete"] is True
    for shown in ("loss/auto", "eval/accuracy/auto", "features", "train.algorithm.network", "lost=0"):
        assert shown in ran.stdout
    for shown in (
        "The parts of 10 steps",
        "iteration_interval",
        "Conv2DBackpropInput",
        "SummaryCollector.on_train_step_end",
    ):
        assert shown in ran.stdout


def test_landscape_is_computed_and_drawn(tmp_path: Path) -> None:
    """Two epochs, ten checkpoints, a grid of 9 x 9: in the run, in words, as a page, and as a picture if it can be."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "landscape.py"), "run", "--epochs", "2", "--size", "9"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    (surface,) = read(tmp_path / "run").landscapes
    assert surface.numbers.tolist() == [92 * part // 10 for part in range(1, 11)]
    assert surface.z.shape == (9, 9)
    assert np.isfinite(surface.z).all()
    assert surface.path[-1].tolist() == [0.0, 0.0]
    assert surface.path_loss[-1] == surface.true_loss[-1] == surface.convergence[2]
    assert surface.true_loss[-1] < surface.true_loss[0]
    assert 0.5 < surface.explained[:2].sum() <= 1
    assert "1 landscape of run in run" in ran.stdout
    assert "steps 9 to 92" in ran.stdout
    names = ["landscape.html", *["landscape.png"] * (importlib.util.find_spec("matplotlib") is not None)]
    for name in names:
        assert (tmp_path / "run" / name).stat().st_size > 10_000
