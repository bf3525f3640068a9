"""The weights for a landscape: files, metadata and values, numbers never reached, and what an earlier run left."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from instrument import SummaryCollector
from instrument.collect import checkpoints
from tests.collect.fake import Loop

Said = Callable[..., list[str]]


class Small(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3, 2)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.dense(x)


def train(directory: Path, landscape: dict[str, Any], *epochs: Any, **changes: Any) -> dict[int, np.ndarray[Any, Any]]:
    """Train a network whose weights are the number of the step; the weights at the end of each step."""
    network = Small()
    loss = nn.WithLossCell(network, nn.MSELoss())
    optimizer = nn.Momentum(network.trainable_params(), 0.5, 0.9)
    cell = nn.TrainOneStepCell(loss, optimizer)
    weights = {}

    def change(step: int, _: Any) -> None:
        network.dense.weight.set_data(ms.Tensor(np.full((2, 3), step, np.float32)))
        weights[step] = network.dense.weight.asnumpy().copy()

    collector = SummaryCollector(
        directory, num_process=0, collect_specified_data={"collect_landscape": landscape}, keep_default_action=False
    )
    loop = Loop(collector, at_step=change, train_network=cell, network=network, optimizer=optimizer, **changes)
    loop.train(*epochs)
    return weights


def metadata(directory: Path) -> Any:
    return json.loads((directory / "ckpt_dir" / "train_metadata.json").read_text())


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory / "ckpt_dir"))


def test_weights_are_kept_at_the_steps_of_the_intervals(tmp_path: Path) -> None:
    """One checkpoint for each step of each interval, with the network's own parameters as they were at that step."""
    weights = train(tmp_path, {"intervals": [[1, 2, 3], [3, 5, 8]]}, range(1, 6), range(6, 11))
    expected = [f"Small_{step}_step.ckpt" for step in (1, 2, 3, 5, 8)]
    assert names(tmp_path) == [*expected, "train_metadata.json"]
    for step in (1, 2, 3, 5, 8):
        saved = ms.load_checkpoint(str(tmp_path / "ckpt_dir" / f"Small_{step}_step.ckpt"))
        assert sorted(saved) == ["dense.bias", "dense.weight"]
        np.testing.assert_array_equal(saved["dense.weight"].asnumpy(), weights[step])


def test_metadata_has_mindspores_keys(tmp_path: Path) -> None:
    """The keys and their form are those that MindSpore's generator reads: groups, files by number, and the options."""
    landscape = {
        "intervals": [[1, 2, 3], [2, 4, 6]], "landscape_size": 20, "num_samples": 512,
        "create_landscape": {"train": True, "result": False},
    }  # fmt: skip
    train(tmp_path, landscape, range(1, 7), batch_num=6)
    found = metadata(tmp_path)
    assert found == {
        "epoch_group": {"0": [1, 2, 3], "1": [2, 4, 6]},
        "model_params_file_map": {str(n): f"Small_{n}_step.ckpt" for n in (1, 2, 3, 4, 6)},
        "step_per_epoch": 6,
        "unit": "step",
        "num_samples": 512,
        "landscape_size": 20,
        "create_landscape": {"train": True, "result": False},
    }
    assert list(found) == [
        "epoch_group", "model_params_file_map", "step_per_epoch", "unit", "num_samples", "landscape_size",
        "create_landscape",
    ]  # fmt: skip


def test_epochs_may_be_the_unit(tmp_path: Path) -> None:
    """With the unit epoch the weights are those at the end of the epochs, under the epochs' numbers."""
    weights = train(tmp_path, {"intervals": [[1, 2, 4]], "unit": "epoch"}, *[[2 * n - 1, 2 * n] for n in range(1, 5)])
    assert names(tmp_path) == [*(f"Small_{n}_epoch.ckpt" for n in (1, 2, 4)), "train_metadata.json"]
    for epoch in (1, 2, 4):
        saved = ms.load_checkpoint(str(tmp_path / "ckpt_dir" / f"Small_{epoch}_epoch.ckpt"))
        np.testing.assert_array_equal(saved["dense.weight"].asnumpy(), weights[2 * epoch])
    assert (metadata(tmp_path)["unit"], metadata(tmp_path)["epoch_group"]) == ("epoch", {"0": [1, 2, 4]})


def test_steps_never_reached_are_said(tmp_path: Path, said: Said) -> None:
    """A training that is too short, or whose hooks pass over a step, says which weights it did not keep."""
    train(tmp_path, {"intervals": [[1, 2, 3], [5, 9, 20]]}, range(1, 6))
    (message,) = said("weights")
    assert "No weights were kept for the landscape at step [9, 20]" in message
    assert sorted(metadata(tmp_path)["model_params_file_map"]) == ["1", "2", "3", "5"]


def test_an_earlier_trainings_files_are_taken_away(tmp_path: Path) -> None:
    """What another training left in ckpt_dir would make a landscape of two runs; other files stay."""
    train(tmp_path, {"intervals": [[1, 2, 3]]}, range(1, 4))
    (tmp_path / "ckpt_dir" / "Small_2.part.ckpt").write_text("half")
    (tmp_path / "ckpt_dir" / "mine.ckpt").write_text("mine")
    train(tmp_path, {"intervals": [[4, 5, 6]]}, range(1, 7))
    assert names(tmp_path) == [*(f"Small_{n}_step.ckpt" for n in (4, 5, 6)), "mine.ckpt", "train_metadata.json"]
    assert sorted(metadata(tmp_path)["model_params_file_map"]) == ["4", "5", "6"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_modes_follow_the_umask(tmp_path: Path, umask: int) -> None:
    """Whoever may read the run may read its weights and metadata; MindSpore's owner-only mode does not stay."""
    before = os.umask(umask)
    try:
        train(tmp_path / "run", {"intervals": [[1, 2, 3]]}, range(1, 4))
    finally:
        os.umask(before)
    for path in (tmp_path / "run").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~umask, path


def test_weights_that_cannot_be_kept_stop_nothing(tmp_path: Path, said: Said) -> None:
    """A file where ckpt_dir should be is said once; the training ends as ever."""
    (tmp_path / "ckpt_dir").write_text("in the way")
    weights = train(tmp_path, {"intervals": [[1, 2, 3]]}, range(1, 6))
    assert list(weights) == [1, 2, 3, 4, 5]
    assert len(said("landscape")) == 1


def test_without_being_asked_no_weights_are_kept(tmp_path: Path) -> None:
    """Unlike in MindSpore, a landscape's checkpoints are made only for intervals that somebody gave."""
    Loop(SummaryCollector(tmp_path, num_process=0)).train(range(1, 4))
    assert not (tmp_path / "ckpt_dir").exists()


def test_files_are_named_relative_to_the_metadata(tmp_path: Path) -> None:
    """A run that was moved can be drawn: the metadata holds no place."""
    train(tmp_path / "run", {"intervals": [[1, 2, 3]]}, range(1, 4))
    assert str(tmp_path) not in (tmp_path / "run" / "ckpt_dir" / "train_metadata.json").read_text()


def test_both_kinds_stand_in_the_metadata(tmp_path: Path) -> None:
    """A kind of landscape that was not named keeps its default, and MindSpore's generator takes the metadata."""
    train(tmp_path, {"intervals": [[1, 2, 3]], "create_landscape": {"result": False}}, range(1, 4))
    assert metadata(tmp_path)["create_landscape"] == {"train": True, "result": False}


def test_disk_use_is_said_before_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Before the first step it is said how many checkpoints there will be, of what size, and what is free."""
    network = Small()
    cell = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), nn.SGD(network.trainable_params()))
    landscape = {"collect_landscape": {"intervals": [[2, 3, 4], [4, 6, 7]]}}
    loop = Loop(SummaryCollector(tmp_path, num_process=0, collect_specified_data=landscape), train_network=cell)
    with caplog.at_level("INFO", logger="instrument"), loop.entered():
        loop.call("on_train_begin")
        (message,) = [one.getMessage() for one in caplog.records if "For the landscape" in one.getMessage()]
        loop.step(1)
        loop.call("on_train_end")
    assert message.startswith(f"For the landscape, 5 checkpoints of 32 B are kept in {tmp_path / 'ckpt_dir'}: 160 B; ")
    assert message.endswith(" are free there.")
    assert caplog.text.count("For the landscape") == 1


@pytest.mark.parametrize(("free", "words"), [(1600, "160 B; 1.6 kB are free there."), (100, "which is not enough.")])
def test_much_disk_use_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said, free: int, words: str
) -> None:
    """A tenth of what is free, or more than that, is told to those too who see warnings only."""
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda _: SimpleNamespace(free=free - 1))
    kept = checkpoints.Checkpoints(
        str(tmp_path), checkpoints.LandscapeOptions.from_dict({"intervals": [[1, 2, 3, 4, 5]]})
    )
    kept.begin(Small())
    (message,) = said("For the landscape")
    assert message.endswith(words)


def test_weights_of_an_earlier_training_are_not_removed_silently(tmp_path: Path, said: Said) -> None:
    """It is said how many there were, and what to do."""
    train(tmp_path, {"intervals": [[1, 2, 3]]}, range(1, 4))
    assert said("removed") == []
    train(tmp_path, {"intervals": [[4, 5, 6]]}, range(1, 7))
    (message,) = said("removed")
    assert message.startswith("3 checkpoints that an earlier training kept")
    assert "a directory of its own" in message


def test_training_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`save` returns while the checkpoint before is still being written, and the end waits for all of them."""
    network, gate, write = Small(), threading.Event(), ms.save_checkpoint
    kept = checkpoints.Checkpoints(str(tmp_path), checkpoints.LandscapeOptions.from_dict({"intervals": [[1, 2, 3]]}))

    def slowly(*args: Any) -> None:
        assert gate.wait(60)
        write(*args)

    monkeypatch.setattr(ms, "save_checkpoint", slowly)
    kept.begin(network)
    for step in (1, 2, 3):
        network.dense.weight.set_data(ms.Tensor(np.full((2, 3), step, np.float32)))
        kept.save(step, network)
    assert os.listdir(tmp_path) == []
    network.dense.weight.set_data(ms.Tensor(np.zeros((2, 3), np.float32)))
    gate.set()
    kept.end(3)
    for step in (1, 2, 3):
        saved = ms.load_checkpoint(str(tmp_path / f"Small_{step}_step.ckpt"))
        np.testing.assert_array_equal(saved["dense.weight"].asnumpy(), np.full((2, 3), step, np.float32))


def test_steps_that_hooks_pass_over_are_said_at_once(tmp_path: Path, said: Said) -> None:
    """In sink mode hooks come at the end of an epoch only: the first that passes over a wanted step says so."""
    train(tmp_path, {"intervals": [[2, 6, 10]]}, [4], [8], [12])
    passed = [message for message in said("weights") if "hooks come" in message]
    assert [message.split(":")[0] for message in passed] == [
        "No weights are kept at step [6]", "No weights are kept at step [10]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "missed"), [({"sink_size": 4}, [6, 10]), ({"batch_num": 5, "sink_size": -1}, [4, 6])]
)
def test_steps_that_sink_mode_cannot_keep_are_said_before_training(
    tmp_path: Path, said: Said, sizes: dict[str, int], missed: list[int]
) -> None:
    """Once, before the first step, with what would be kept."""
    wanted = {"intervals": [sorted({4, 6, 10})]}
    train(tmp_path, wanted, [4], [5], [8], [10], dataset_sink_mode=True, **sizes)
    (message, *others) = said("sink mode")
    assert message.startswith(f"The weights at steps {missed} cannot be kept: in dataset sink mode hooks come every ")
    assert others == []


def test_a_training_that_is_killed_leaves_what_can_be_drawn(tmp_path: Path) -> None:
    """The metadata is there as soon as the first checkpoint is, and lists those that are whole."""
    network = Small()
    kept = checkpoints.Checkpoints(str(tmp_path), checkpoints.LandscapeOptions.from_dict({"intervals": [[1, 2, 3]]}))
    kept.begin(network)
    kept.save(1, network)
    thread = kept._thread
    if thread is not None:
        thread.join()
    found = json.loads((tmp_path / "train_metadata.json").read_text())
    assert found["model_params_file_map"] == {"1": "Small_1_step.ckpt"}
