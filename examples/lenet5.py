"""Train LeNet-5 on real handwritten digits, record it and profile ten of its steps, then print what was recorded.

    python examples/lenet5.py [DIRECTORY] [--epochs N] [--mode graph|pynative]

The 1797 digits come with scikit-learn. They have 8 x 8 pixels and are enlarged to LeNet's 32 x 32.
"""

from __future__ import annotations

import argparse
import time

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Accuracy, LossMonitor, Model
from sklearn.datasets import load_digits

from instrument import StopAtStep, SummaryCollector, ops
from instrument.show.cli import main as instrument

BATCH_SIZE = 32
TRAINING_DIGITS = 1500
#: In the first epoch, after the steps that compile and warm up.
PROFILED_STEPS = (31, 40)


class LeNet5(nn.Cell):
    """LeNet-5: two convolutions with pooling, three dense layers; (N, 1, 32, 32) to (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.pool = nn.MaxPool2d(2, 2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(16 * 5 * 5, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, 10)
        self.activation_mean = ops.ScalarSummary()
        self.features = ops.TensorSummary()
        self.logits = ops.HistogramSummary()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.flatten(self.pool(self.relu(self.conv2(x))))
        self.features("features", x)
        x = self.relu(self.fc1(x))
        self.activation_mean("fc1/mean", x.mean())
        x = self.fc3(self.relu(self.fc2(x)))
        self.logits("logits", x)
        return x


def digits(training: bool) -> GeneratorDataset:
    """Batches of pictures, (N, 1, 32, 32) float32 in [0, 1], and labels, (N,) int32."""
    data = load_digits()
    pictures = np.kron(data.images / 16.0, np.ones((4, 4))).astype(np.float32)[:, None]
    labels = data.target.astype(np.int32)
    chosen = slice(None, TRAINING_DIGITS) if training else slice(TRAINING_DIGITS, None)
    rows = [(picture, np.array(label)) for picture, label in zip(pictures[chosen], labels[chosen], strict=True)]
    return GeneratorDataset(rows, ["image", "label"], shuffle=training).batch(BATCH_SIZE, drop_remainder=True)


def train(directory: str, epochs: int) -> SummaryCollector:
    ms.set_seed(1)
    network = LeNet5()
    model = Model(
        network,
        loss_fn=nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        optimizer=nn.Momentum(network.trainable_params(), learning_rate=0.05, momentum=0.9),
        metrics={"accuracy": Accuracy()},
    )
    collector = SummaryCollector(
        directory,
        collect_specified_data={"histogram_regular": "conv.*"},
        custom_lineage_data={"dataset": "digits", "enlarged": 4},
    )
    data = digits(training=True)
    profiling = StopAtStep(*PROFILED_STEPS, directory, profile_memory=True)
    callbacks = [LossMonitor(data.get_dataset_size()), collector, profiling]
    model.fit(epochs, data, digits(training=False), callbacks=callbacks, dataset_sink_mode=False)
    return collector


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default="demo_run")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph")
    arguments = parser.parse_args()
    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE if arguments.mode == "graph" else ms.PYNATIVE_MODE)
    started = time.perf_counter()
    collector = train(arguments.directory, arguments.epochs)
    print(f"\nTrained {arguments.epochs} epochs in {time.perf_counter() - started:.1f} s; {collector.stats}\n")
    instrument(["show", arguments.directory])
    print()
    instrument(["profile", arguments.directory])


if __name__ == "__main__":
    main()
