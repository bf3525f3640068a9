"""The network and data of the small examples: three dense layers, and the 8 x 8 digits of scikit-learn."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from sklearn.datasets import load_digits

#: The first of 1797; the others are for evaluation.
TRAINING_DIGITS = 1500


class Net(nn.Cell):
    """(N, 64) to (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(64, 128)
        self.fc2 = nn.Dense(128, 64)
        self.fc3 = nn.Dense(64, 10)
        self.relu = nn.ReLU()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


def rows(training: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pictures, (64,) float32 in [0, 1], and labels, () int32."""
    data = load_digits()
    chosen = slice(None, TRAINING_DIGITS) if training else slice(TRAINING_DIGITS, None)
    pictures, labels = (data.data / 16.0).astype(np.float32), data.target.astype(np.int32)
    return [(picture, np.array(label)) for picture, label in zip(pictures[chosen], labels[chosen], strict=True)]


def digits(training: bool, batch_size: int = 32) -> GeneratorDataset:
    """The same in batches, (N, 64) and (N,)."""
    return GeneratorDataset(rows(training), ["x", "y"], shuffle=training).batch(batch_size, drop_remainder=True)
