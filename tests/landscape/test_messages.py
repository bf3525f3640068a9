"""What a landscape says of networks, checkpoints and disks that do not serve, each made to happen."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops
from mindspore.dataset import GeneratorDataset
from mindspore.train import Accuracy, Model

from instrument import SummaryLandscape
from instrument.errors import InstrumentError
from instrument.landscape import workers
from instrument.landscape.directions import NoPlane
from instrument.landscape.model_parts import EvaluationError
from instrument.landscape.weights import BadCheckpoint
from tests.landscape import build
from tests.landscape.tasks import leave
from tests.landscape.test_forward import Conv, WithLoss, conv_answer, held
from tests.landscape.test_landscape import draw, interrupted


@pytest.fixture(autouse=True)
def _graph() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)


def small(directory: Path, callback: Any = build.small_callback, **options: Any) -> Any:
    return draw(directory, callback=callback, **{"size": 3, "num_samples": 8, **options})


def of_network(network: nn.Cell, data: Any = None) -> Callable[[], Any]:
    return lambda: (
        Model(network, build.cross_entropy()),
        network,
        build.small_dataset() if data is None else data,
        None,
    )


class Tampered(build.Small):
    """`Small` with something done to what it is given or gives."""

    def __init__(self, before: Any = None, after: Any = None) -> None:
        super().__init__()
        self.before, self.after = before or nn.Identity(), after or nn.Identity()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.after(super().construct(self.before(x)))


class Halved(nn.Cell):
    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return x / 2


class Read(nn.Cell):
    """Leaves the graph, which only PyNative mode can."""

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return ops.add(x, ms.Tensor(x.asnumpy() * 0))


class WithoutGradient(nn.Cell):
    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return x * 2

    def bprop(self, x: ms.Tensor, out: ms.Tensor, dout: ms.Tensor) -> Any:
        raise ValueError("it has no derivative")


class Line(nn.Cell):
    """A single weight."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(1, 1, has_bias=False)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return ops.concat((self.fc(x[:, :1]), x[:, :2]), axis=1)


# ---------------------------------------------------------------- networks


def test_a_network_that_changed_is_computed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its samples are the same, and the loss at the last checkpoint is another."""
    caplog.set_level("INFO", "instrument")
    interrupted(tmp_path, monkeypatch, build.small_callback)
    found = draw(tmp_path, callback=of_network(Tampered(after=Halved())))
    assert "the loss at the last checkpoint is another than before; all points are computed anew." in caplog.text
    assert found.metadata["resumed"] == 0


def test_convolutions_that_changed_are_computed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the quick form of an earlier call does not serve the network any more."""

    def changed() -> Any:
        class Changed(Conv):
            def construct(self, x: ms.Tensor) -> ms.Tensor:
                return super().construct(x * 2)

        network = Changed(nn.Conv2d(3, 4, 3))
        return Model(network, build.cross_entropy()), network, conv_answer()[2], None

    caplog.set_level("DEBUG", "instrument")
    path = {number: {name: one + number for name, one in held(conv_answer()[1]).items()} for number in (1, 2, 3)}
    for name in ("conv.weight", "dense.weight"):
        path[2][name] = -path[2][name]
    interrupted(tmp_path, monkeypatch, conv_answer, checkpoints=path, parameters="conv.weight|dense")
    found = draw(tmp_path, path, changed, parameters="conv.weight|dense")
    assert "The network does not give the samples to a convolution as they are." in caplog.text
    assert "the loss at the last checkpoint is another than before; all points are computed anew." in caplog.text
    assert found.metadata["resumed"] == 0


def test_samples_that_do_not_fit_the_network_are_said(tmp_path: Path) -> None:
    """With the words of MindSpore."""
    wide = GeneratorDataset([(np.ones(5, np.float32), np.array(0, np.int32))] * 8, ["x", "y"]).batch(8)
    with pytest.raises(EvaluationError, match=r"cannot be evaluated on the samples of callback_fn: ValueError: .+"):
        small(tmp_path, of_network(build.Small(), wide))


@pytest.mark.slow
def test_a_form_that_cannot_be_taken_is_only_slower(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A network that leaves the graph is computed outside of it."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    caplog.set_level("DEBUG", "instrument")
    found = small(tmp_path, of_network(Tampered(before=Read())))
    assert "The form Form(graph=True" in caplog.text
    assert "cannot be taken: " in caplog.text
    assert np.isfinite(found.z).all()


def test_metrics_need_an_output(tmp_path: Path) -> None:
    """Which a network that gives its loss only does not have."""

    def callback() -> Any:
        network = WithLoss(build.Small())
        return Model(network), network, build.small_dataset(), {"accuracy": Accuracy()}

    with pytest.raises(ValueError, match=r"computes its loss itself. Give the Model a network and a loss_fn"):
        small(tmp_path, callback, metrics=["accuracy"])


def test_a_gradient_that_fails_is_said(tmp_path: Path) -> None:
    """The eigenvectors of the curvature need one."""
    with pytest.raises(EvaluationError, match=r"gradient cannot be computed: ValueError: .?it has no derivative"):
        small(tmp_path, of_network(Tampered(after=WithoutGradient())), axes="hessian")


def test_one_direction_of_curvature_is_no_plane(tmp_path: Path) -> None:
    """As of a single weight."""
    path: Any = {number: {"fc.weight": np.full((1, 1), number, np.float32)} for number in (1, 2)}
    with pytest.raises(NoPlane, match="curves along one direction at most; there is no plane of eigenvectors"):
        small(tmp_path, of_network(Line()), checkpoints=path, axes="hessian")


def test_an_empty_dataset_is_said(tmp_path: Path) -> None:
    """As of one whose only batch is dropped because it is not whole."""
    rows = [(np.ones(4, np.float32), np.array(0, np.int32))] * 8
    data = GeneratorDataset(rows, ["x", "y"]).batch(16, drop_remainder=True)
    with pytest.raises(ValueError, match="The dataset of callback_fn is empty; expected at least one batch"):
        small(tmp_path, of_network(build.Small(), data))


# ---------------------------------------------------------------- checkpoints and axes


def test_a_training_that_kept_no_checkpoint_is_said(tmp_path: Path) -> None:
    """It ended before the first of the steps that were asked for."""
    told = {
        "epoch_group": {}, "model_params_file_map": {}, "step_per_epoch": 1, "unit": "step", "num_samples": 1,
        "landscape_size": 3, "create_landscape": {"train": True, "result": True},
    }  # fmt: skip
    (tmp_path / "ckpt_dir").mkdir()
    (tmp_path / "ckpt_dir" / "train_metadata.json").write_text(json.dumps(told))
    with pytest.raises(BadCheckpoint, match="There is no checkpoint at all; training reached none of the steps"):
        SummaryLandscape(tmp_path).compute(build.small_callback)


def test_a_checkpoint_without_parameters_is_said(tmp_path: Path) -> None:
    """With its path."""
    np.savez(tmp_path / "empty.npz")
    path: Any = {**build.small_checkpoints(2), 3: str(tmp_path / "empty.npz")}
    with pytest.raises(BadCheckpoint, match=r"The checkpoint of step 3 holds no parameter: .*/empty\.npz\."):
        small(tmp_path, checkpoints=path)


def test_many_names_are_counted(tmp_path: Path) -> None:
    """What a checkpoint has instead is told by some of its names."""
    path: Any = {number: {f"old.{one}": np.ones(2) for one in range(20)} for number in (1, 2, 3)}
    with pytest.raises(BadCheckpoint, match=r"has no fc1.bias, .*; it has old\.0, old\.1, .* and \d+ more instead\."):
        small(tmp_path, checkpoints=path)


def test_parameters_that_match_none_are_said(tmp_path: Path) -> None:
    """With the names that there are."""
    with pytest.raises(
        BadCheckpoint, match=r"of fc1.weight, .*none is chosen. Set parameters= to a regular expression"
    ):
        small(tmp_path, parameters="conv.*")


def test_axes_of_other_parameters_are_said(tmp_path: Path) -> None:
    """Those that a direction names, and those that there are."""
    with pytest.raises(BadCheckpoint, match=r"axes has fc3.bias, which do not take part; expected some of fc1.weight"):
        small(tmp_path, axes=({"fc3.bias": np.ones(3)}, {"fc1.bias": np.ones(6)}))


def test_a_line_between_equal_checkpoints_is_said(tmp_path: Path) -> None:
    """There is nothing between them."""
    one = build.small_checkpoints(1)[1]
    with pytest.raises(NoPlane, match="The checkpoints 1 and 2 hold the same weights"):
        SummaryLandscape(tmp_path).compute_line(build.small_callback, 1, 2, checkpoints={1: one, 2: one})


# ---------------------------------------------------------------- disks


def fill(disk: Path) -> None:
    with open(disk / "ballast", "ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass


def test_a_disk_that_fills_while_points_are_computed(small_disk_of: Callable[[str], Path]) -> None:
    """The points are told where they stand, and the next call goes on with them."""
    disk = small_disk_of("256k")
    with pytest.raises(OSError, match=r"/disk/.* is full: what has been computed so far stands there\."):
        small(disk, size=17, num_samples=4, progress=lambda done, total, left: fill(disk))
    (disk / "ballast").unlink()
    assert small(disk, size=17, num_samples=4).metadata["resumed"] > 100


def test_a_disk_that_fills_before_the_surface_is_written(small_disk_of: Callable[[str], Path]) -> None:
    """All points are computed; the event file is named."""
    disk = small_disk_of("256k")
    words = r"is computed, but cannot be written to .*events\.out\.events\.summary\..*: No space left on device\."
    with pytest.raises(InstrumentError, match=words):
        small(disk, size=13, progress=lambda done, total, left: fill(disk))
    (disk / "ballast").unlink()
    assert small(disk, size=13).metadata["resumed"] >= 169


# ---------------------------------------------------------------- processes


def test_a_worker_that_lets_go_of_its_socket_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is killed, and another one tries."""
    monkeypatch.setattr(workers, "_EXIT_SECONDS", 0.1)
    with workers.WorkerPool([None]) as pool, pytest.raises(workers.WorkerLost, match="3 workers died over a task"):
        pool.submit(leave).result(120)
    assert "ended unexpectedly; its points are computed again." in caplog.text


def test_a_closed_pool_takes_no_tasks() -> None:
    """In the words of Python's own executors."""
    with workers.WorkerPool([None]) as pool:
        pass
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        pool.submit(os.getpid)
