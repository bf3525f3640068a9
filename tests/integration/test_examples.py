"""Each example runs as its user would run it, and leaves what it says."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import Run, profile, read
from tests.integration.conftest import run_script

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TIMEOUT_SECONDS = 180

pytestmark = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed")


def printed(directory: Path, script: Path, *arguments: str) -> str:
    """What a script that succeeds prints."""
    ran = run_script(directory, script, *arguments, timeout_seconds=TIMEOUT_SECONDS)
    assert ran.status == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return ran.stdout


@pytest.mark.parametrize(("mode", "epochs"), [("graph", 2), ("pynative", 1)], ids=["graph", "pynative"])
def test_lenet5_learns_and_shows_what_was_recorded(tmp_path: Path, mode: str, epochs: int) -> None:
    """Real digits, epochs of 46 steps: every tenth step, an evaluation an epoch, ten profiled steps; all printed."""
    text = printed(tmp_path, EXAMPLES / "lenet5.py", "run", "--epochs", str(epochs), "--mode", mode)

    run = read(tmp_path / "run")
    loss, last = run.scalars("loss/auto"), 46 * epochs
    assert loss.step.tolist() == [1, *range(10, last, 10), last]
    assert loss.value[-1] < loss.value[0]
    accuracy = run.scalars("eval/accuracy/auto")
    assert accuracy.step.tolist() == [46, 92][:epochs]
    assert accuracy.value[-1] > 0.15 * epochs
    assert run.tensors("features")[40].shape == (32, 400)
    assert run.histograms("conv1.weight/auto")[40].count == 150
    assert run.histograms("logits")[40].counts.sum() == 320
    assert [len(run.images("input_data/auto")), run.damage] == [len(loss), []]
    assert (run.graph is not None) == (mode == "graph")
    assert run.lineage["custom"] == {"dataset": "digits", "enlarged": 4}
    assert np.isclose(run.lineage["eval"]["metric"]["accuracy"], accuracy.value[-1])
    found = run.profile()
    assert found.steps["step"].tolist() == list(range(31, 41))
    assert len(set(found.steps["operators"].tolist())) == 1
    assert found.metadata["complete"] is True
    for shown in ("loss/auto", "eval/accuracy/auto", "features", "train.algorithm.network", "lost=0"):
        assert shown in text
    for shown in (
        "The parts of 10 steps",
        "iteration_interval",
        "Conv2DBackpropInput",
        "SummaryCollector.on_train_step_end",
    ):
        assert shown in text


def test_landscape_is_computed_and_drawn(tmp_path: Path) -> None:
    """One epoch, ten checkpoints, a grid of 5 x 5: in the run, in words, as a page, and as a picture if it can be."""
    text = printed(tmp_path, EXAMPLES / "landscape.py", "run", "--epochs", "1", "--size", "5")

    (surface,) = read(tmp_path / "run").landscapes
    assert surface.numbers.tolist() == [46 * part // 10 for part in range(1, 11)]
    assert surface.z.shape == (5, 5)
    assert np.isfinite(surface.z).all()
    assert surface.path[-1].tolist() == [0.0, 0.0]
    assert surface.path_loss[-1] == surface.true_loss[-1] == surface.convergence[2]
    assert surface.true_loss[-1] < surface.true_loss[0]
    assert 0.5 < surface.explained[:2].sum() <= 1
    assert "1 landscape of run in run" in text
    assert "steps 4 to 46" in text
    names = ["landscape.html", *["landscape.png"] * (importlib.util.find_spec("matplotlib") is not None)]
    for name in names:
        assert (tmp_path / "run" / name).stat().st_size > 10_000


def test_own_loop_has_one_point_for_each_update(tmp_path: Path) -> None:
    """92 batches of 32 are 23 updates of four; two evaluations, every tenth step with histograms."""
    text = printed(tmp_path, EXAMPLES / "own_loop.py", "run", "--epochs", "2")

    run = read(tmp_path / "run")
    for tag in ("loss", "gradient_norm"):
        assert run.scalars(tag, superseded=True).step.tolist() == list(range(1, 24))
    assert run.scalars("loss").value[-3:].mean() < 0.8 * run.scalars("loss").value[:3].mean()
    assert run.scalars("accuracy").step.tolist() == [11, 23]
    assert run.scalars("accuracy").value[-1] > 0.5
    assert run.histograms("logits").step.tolist() == run.histograms("fc1.weight").step.tolist() == [10, 20]
    assert run.histograms("fc1.weight")[20].count == 64 * 128
    assert (run.damage, run.gaps) == ([], [])
    assert "scalar 'loss': 23 points, steps 1 to 23" in text


def test_early_stopping_ends_after_the_best_epoch(tmp_path: Path) -> None:
    """It is evaluated after each epoch of six steps, and stops three epochs after one that was better enough."""
    text = printed(tmp_path, EXAMPLES / "early_stopping.py", "run", "--epochs", "60")

    run = read(tmp_path / "run")
    evaluations = run.scalars("eval/eval_loss/auto")
    epochs = len(evaluations)
    assert 5 < epochs < 60
    assert evaluations.step.tolist() == list(range(6, 6 * epochs + 1, 6))
    assert run.scalars("loss/auto").step.tolist() == list(range(1, 6 * epochs + 1))
    # MindSpore stops when `patience` epochs in a row were not better than the best one by `min_delta`.
    assert evaluations.value[-3:].min() > evaluations.value[:-3].min() - 0.001
    assert run.lineage["eval"]["metric"]["accuracy"] == pytest.approx(run.scalars("eval/accuracy/auto").value[-1])
    assert run.lineage["train"]["hyper_parameters"]["epoch"] == 60
    assert run.lineage["custom"] == {"digits": 192}
    assert f"{epochs} of 60 epochs; the best was epoch {int(evaluations.value.argmin()) + 1}:" in text


def test_windows_are_profiled_by_callback_and_by_schedule(tmp_path: Path) -> None:
    """Steps 21 to 30 of one training; of another those behind 5 + 2 + 1 and 2 + 1 further ones, counted from 0."""
    text = printed(tmp_path, EXAMPLES / "profile_a_window.py", "run")

    found = profile(tmp_path / "run" / "callback")
    assert found.steps["step"].tolist() == list(range(21, 31))
    assert found.metadata["mode"] == "graph"
    windows = [profile(tmp_path / "run" / "schedule", window) for window in (0, 1)]
    assert [one.steps["step"].tolist() for one in windows] == [list(range(8, 13)), list(range(16, 21))]
    assert {"forward and backward", "update"} <= set(windows[0].spans["name"].tolist())
    assert len(windows[0].batches) > 0
    assert (tmp_path / "run" / "timeline.json.gz").stat().st_size > 1000
    for shown in ("The parts of 10 steps", "steps 8 to 12: ", "steps 16 to 20: "):
        assert shown in text


@pytest.mark.slow
def test_slow_data_is_found_mended_and_compared(tmp_path: Path) -> None:
    """The stage is named; afterwards the training hardly waits, and a step takes a fraction of the time."""
    text = printed(tmp_path, EXAMPLES / "slow_data.py", "run")

    before, after = (profile(tmp_path / "run" / name) for name in ("slow", "mended"))
    assert before.steps["step"].tolist() == after.steps["step"].tolist() == list(range(61, 81))
    (told,) = [line for line in before.advice if line.startswith("The training waits for data")]
    assert "MapOp" in told
    assert not any("waits for data" in line for line in after.advice)
    assert after.steps["total_ns"].mean() < 0.5 * before.steps["total_ns"].mean()
    assert told in text
    assert "The parts of the mean step" in text


@pytest.mark.slow
def test_several_ranks_are_one_run(tmp_path: Path) -> None:
    """Two processes under msrun train one network: a series for each, one graph and lineage, the slow one found."""
    text = printed(tmp_path, EXAMPLES / "several_ranks.py", "run")

    run = read(tmp_path / "run")
    assert run.ranks == [0, 1]
    losses = run.scalars("loss/auto").by_rank()
    assert [one.step.tolist() for one in losses.values()] == [[1, *range(5, 66, 5)]] * 2
    assert losses[0].value.tolist() != losses[1].value.tolist()  # each has its own half of the digits
    assert all(one.value[-1] < one.value[0] for one in losses.values())
    weights = run.histograms("fc1.weight/auto").by_rank()
    assert weights[0][65].counts.tolist() == weights[1][65].counts.tolist()
    assert [run.of_rank(rank).graph is not None for rank in (0, 1)] == [True, False]
    assert [sorted(run.of_rank(rank).lineage) for rank in (0, 1)] == [["dataset", "ran", "train"], []]
    assert run.lineage["train"]["hyper_parameters"]["device_num"] == 2
    found = run.profile()
    assert found.devices["device"].tolist() == [0, 1]
    assert found.spread["step"].tolist() == list(range(51, 61))
    assert found.devices.notes[0].startswith("Rank 1 is the slowest")
    (told,) = [line for line in found.advice if line.startswith("Rank 1 is the slowest")]
    assert "look at its data" in told
    assert set(found.operator_types["type"].tolist()) >= {"AllReduce", "MatMul"}
    assert "Rank 1 is the slowest" in text


@pytest.mark.slow
def test_runs_are_read_and_drawn_with_pandas(tmp_path: Path) -> None:
    """Three runs are columns of one table; hyper-parameters and results are another."""
    for name in ("pandas", "matplotlib"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    text = printed(tmp_path, EXAMPLES / "with_pandas.py", "runs")

    assert "rate_0.01  rate_0.1  rate_0.5" in text
    assert (tmp_path / "runs" / "losses.png").read_bytes().startswith(b"\x89PNG")
    runs: list[Run] = read(tmp_path / "runs")  # type: ignore[assignment]
    rates = [run.lineage["train"]["hyper_parameters"]["learning_rate"] for run in runs]
    assert rates == pytest.approx([0.01, 0.1, 0.5])


def outputs_of(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    """What the cells of a notebook gave, run where a copy of it stands."""
    for needed in ("nbclient", "ipykernel"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    for file in (f"{name}.ipynb", "small.py"):
        shutil.copy(EXAMPLES / file, tmp_path)
    printed(tmp_path, ROOT / "tests" / "integration" / "notebook.py", f"{name}.ipynb", "executed.ipynb")
    cells = json.loads((tmp_path / "executed.ipynb").read_text())["cells"]
    return [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]


@pytest.mark.parametrize("name", ["first_run", "profile_a_window", "landscape"])
def test_notebooks_hold_no_outputs(name: str) -> None:
    """Neither outputs nor numbers of executions are kept."""
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text())["cells"]
    assert {cell["cell_type"] for cell in cells} == {"code", "markdown"}
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)


@pytest.mark.parametrize(
    ("name", "run", "shown"),
    [
        ("first_run", "first_run", ["loss/auto</td>", "<svg", "train.hyper_parameters.optimizer", "Stats(events="]),
        pytest.param(
            "profile_a_window",
            "profiled_notebook_run",
            ["The parts of 10 steps", "MatMul", "ms a step"],
            marks=pytest.mark.slow,
        ),
        pytest.param("landscape", "landscape_run", ["(15, 15) points", "image/png"], marks=pytest.mark.slow),
    ],
)
def test_notebooks_run(tmp_path: Path, name: str, run: str, shown: list[str]) -> None:
    """From the first cell to the last, and show what they speak of."""
    outputs = outputs_of(tmp_path, name)
    text = json.dumps(outputs)
    for part in shown:
        assert json.dumps(part)[1:-1] in text
    assert [one for one in outputs if one["output_type"] == "error"] == []
    assert read(tmp_path / run).damage == []
