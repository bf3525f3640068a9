"""What tests of landscapes share: small networks, their training's checkpoints, and the reference case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.dataset import GeneratorDataset
from mindspore.train import Accuracy, Loss, Model

ROOT = Path(__file__).resolve().parents[2]
CASE = ROOT.parent / "shared" / "landscape" / "case_a"
NUMBERS = (4, 8, 12, 18, 26, 36, 50, 70)
#: Distances between two values that only rounding may make.
COORDINATE, LOSS, RATIO = 2e-5, 1e-4, 1e-4

Callback = Callable[[], Any]


class Digits(nn.Cell):
    """The network of the reference case: (N, 64) to (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(64, 16)
        self.fc2 = nn.Dense(16, 10)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.fc2(ops.relu(self.fc1(x)))


def cross_entropy() -> nn.Cell:
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def dataset(x: Any, y: Any, batch: int, shuffle: bool = False) -> Any:
    rows = [(one, np.array(label)) for one, label in zip(x, y, strict=True)]  # on NumPy 2 a row holds arrays only
    return GeneratorDataset(rows, ["x", "y"], shuffle=shuffle).batch(batch)


def case_callback() -> Any:
    """The reference case's samples, in batches of 32."""
    network = Digits()
    with np.load(CASE / "samples.npz") as samples:
        data = dataset(samples["x"], samples["y"], 32)
    metrics = {"Loss": Loss(), "Accuracy": Accuracy()}
    return Model(network, cross_entropy(), metrics=metrics), network, data, metrics


def case_checkpoints() -> dict[int, str]:
    return {number: str(CASE / f"checkpoint_{number}.npz") for number in NUMBERS}


class Small(nn.Cell):
    """(N, 4) to (N, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(4, 6)
        self.fc2 = nn.Dense(6, 3)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.fc2(ops.tanh(self.fc1(x)))


X = np.random.default_rng(1).standard_normal((40, 4)).astype(np.float32)
Y = (np.arange(40) % 3).astype(np.int32)


def small_dataset(batch: int = 8, shuffle: bool = False) -> Any:
    return dataset(X, Y, batch, shuffle)


def small_callback() -> Any:
    network = Small()
    metrics = {"Loss": Loss(), "accuracy": Accuracy()}
    return Model(network, cross_entropy(), metrics=metrics), network, small_dataset(), metrics


def loss_callback() -> Any:
    """With the only metric that MindSpore's own landscape takes."""
    network = Small()
    metrics = {"Loss": Loss()}
    return Model(network, cross_entropy(), metrics=metrics), network, small_dataset(), metrics


def small_checkpoints(count: int = 5, seed: int = 0) -> dict[int, dict[str, Any]]:
    """Weights that go along a curve in space, numbered from 1."""
    generator = np.random.default_rng(seed)
    shapes = {name: parameter.shape for name, parameter in Small().parameters_dict().items()}
    start, speed, bend = ({name: generator.standard_normal(shape) for name, shape in shapes.items()} for _ in range(3))
    return {
        t: {
            name: (start[name] + 0.3 * t * speed[name] + 0.03 * t * t * bend[name]).astype(np.float32)
            for name in shapes
        }
        for t in range(1, count + 1)
    }


def small_loss(tensors: dict[str, Any], samples: int = 40) -> float:
    """The loss of `Small`, by NumPy in float64."""
    hidden = np.tanh(X[:samples].astype(np.float64) @ tensors["fc1.weight"].T + tensors["fc1.bias"])
    logits = hidden @ tensors["fc2.weight"].T + tensors["fc2.bias"]
    logits -= logits.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(samples), Y[:samples]]))
