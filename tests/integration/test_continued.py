"""Real trainings that go on, stop, fail and are killed: their steps, last losses, hyper-parameters, and states."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration import test_oracle, test_tensorboard
from tests.integration.conftest import Ran, Script

COLLECTED = [1, 5, 8, 9, 10, 15, 16, 17, 20, 24]


@pytest.fixture
def ran(script: Script, mode: str) -> Ran:
    return script("continued", mode, statuses=(-signal.SIGKILL,))


def test_a_loop_of_trainings_is_one_run(ran: Ran) -> None:
    """Each collected step has the loss that the network gave in it, the first and the last of each training too."""
    run, losses = ran.run(), ran.expected["losses"]
    loss = run.scalars("loss/auto", superseded=True)
    assert loss.step.tolist() == COLLECTED
    np.testing.assert_array_equal(loss.value, losses[np.array(COLLECTED) - 1])
    assert run.scalars("mean").step.tolist() == COLLECTED
    assert len(ran.said("The first step of this training is recorded as step 9, as the training before it")) == 1
    assert (run.state, {start.state for start in run.starts}, run.damage) == ("finished", {"finished"}, [])


def test_evaluations_have_the_step_of_their_training(ran: Ran) -> None:
    """By a callback before the collector in step 3 of each training, and behind each training."""
    assert ran.run().scalars("eval/accuracy/auto", superseded=True).step.tolist() == [3, 8, 11, 16, 19, 24]


def test_the_lineage_names_the_first_and_the_last_rate(ran: Ran) -> None:
    """And the loss of the last step, which is the last one of the series."""
    train = ran.run().lineage["train"]
    rates = ran.run().scalars("learning_rate/auto").value
    assert train["hyper_parameters"]["learning_rate"] == 0.25
    assert train["algorithm"]["last_learning_rate"] == rates[-1] < 0.1
    assert train["algorithm"]["loss"] == np.float32(ran.expected["losses"][-1])


def test_fit_goes_on_behind_its_initial_epoch(ran: Ran) -> None:
    """In a second collector, whose trainings MindSpore counts from 1."""
    run = ran.run("epochs")
    assert run.scalars("loss/auto", superseded=True).step.tolist() == [1, 5, 8, 9, 10, 15, 16]
    assert run.scalars("eval/accuracy/auto", superseded=True).step.tolist() == [8, 16]
    assert len(ran.said("initial_epoch is 1")) == 1


@pytest.mark.parametrize("place", ["before", "behind"])
def test_a_training_that_is_stopped_or_fails_has_its_last_step(ran: Ran, place: str) -> None:
    """Whether who ends it stands before or behind the collector; the lineage agrees."""
    for how, last, state in (("stop", 7, "finished"), ("fail", 6 if place == "before" else 7, "failed")):
        run = ran.run(f"{how}_{place}")
        loss = run.scalars("loss/auto")
        assert loss.step.tolist() == [1, 5, last]
        assert run.lineage["train"]["algorithm"]["loss"] == np.float32(loss.value[-1])
        assert run.state == state
    assert run.starts[0].reason == "RuntimeError: diverged"


def test_a_training_that_is_killed_has_its_hyper_parameters(ran: Ran) -> None:
    """And is known to have been killed."""
    run = ran.run("kill")
    assert run.lineage["train"]["hyper_parameters"]["optimizer"] == "Momentum"
    assert run.lineage["custom"] == {"note": "toy"}
    assert run.scalars("loss/auto").step.tolist() == [1, 5]
    assert run.state == "killed"


@pytest.mark.parametrize("name", ["run", "kill", "fail_before"])
def test_mindinsight_takes_them(script: Script, tmp_path: Path, name: str) -> None:
    """All scalars in order, nothing ignored or logged, and the lineage as far as it is known."""
    for needed in test_oracle.pytestmark:
        if needed.args[0]:
            pytest.skip(needed.kwargs["reason"])
    ran = script("continued", "graph", statuses=(-signal.SIGKILL,))
    seen = test_oracle.ask(ran.directory / name, tmp_path / "seen.json")
    assert seen["integrity"]["log"] == []
    assert not seen["integrity"]["stalled"]
    run = ran.run(name)
    for tag in run.tags()["scalar"]:
        shown = [row for row in seen["loader"]["scalars"] if row["tag"] == f"{tag}/scalar"]
        assert [row["step"] for row in shown] == run.scalars(tag).step.tolist()
    found, train = seen["lineage"]["object"], run.lineage["train"]
    assert found["hyper_parameters"]["learning_rate"] == pytest.approx(train["hyper_parameters"]["learning_rate"])
    assert found["algorithm"].get("loss") == pytest.approx(train["algorithm"].get("loss"))
    # It takes the lineage of the last file; what ran is in the first one of a collector.
    what_ran = {} if name == "run" else {"ran": run.lineage["ran"]}
    assert found["user_defined"] == {"note": "toy"} | what_ran
    assert found["hyper_parameters"]["optimizer"] == "Momentum"


def test_tensorboard_takes_them(script: Script, tmp_path: Path) -> None:
    """All scalars in order, by both of its readers, of several starts in one directory."""
    for needed in test_tensorboard.pytestmark:
        if needed.args[0]:
            pytest.skip(needed.kwargs["reason"])
    ran = script("continued", "graph", statuses=(-signal.SIGKILL,))
    out = tmp_path / "seen.json"
    command = (test_tensorboard.READER, ran.directory / "run", "--limits", "raised", "--first", "0", "--out", out)
    test_tensorboard.ask(*command)
    seen: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    for view in ("python", "rust"):
        for tag in ("loss/auto", "eval/accuracy/auto"):
            rows = [row for row in seen[view]["scalars"] if row["tag"] == tag]
            points = ran.run().scalars(tag)
            assert [row["step"] for row in rows] == points.step.tolist()
            assert [row["value"] for row in rows] == points.value.astype(np.float32).tolist()
