"""Train LeNet-5 on handwritten digits, save checkpoints on the way, and draw the loss around the training path.

    python examples/landscape.py [DIRECTORY] [--epochs N] [--size N]

Network and digits come from lenet5.py. The landscape is stored in the run. A page and, if matplotlib is installed, a
picture of it are written beside the event files.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from typing import Any

import mindspore as ms
from lenet5 import LeNet5, digits
from mindspore import nn
from mindspore.train import LossMonitor, Model

from instrument import SummaryCollector, SummaryLandscape
from instrument.show.cli import main as instrument

STEPS_PER_EPOCH = 46
#: The weights are kept ten times; the last time at the end of the training.
CHECKPOINTS = 10
#: All that are kept for testing.
SAMPLES = 288


def loss() -> nn.Cell:
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def train(directory: str, epochs: int) -> None:
    ms.set_seed(1)
    network = LeNet5()
    model = Model(network, loss(), nn.Momentum(network.trainable_params(), learning_rate=0.05, momentum=0.9))
    last = epochs * STEPS_PER_EPOCH
    numbers = [last * part // CHECKPOINTS for part in range(1, CHECKPOINTS + 1)]
    kept = {"unit": "step", "intervals": [numbers], "num_samples": SAMPLES}
    collector = SummaryCollector(directory, collect_specified_data={"collect_landscape": kept})
    data = digits(training=True)
    model.train(epochs, data, callbacks=[LossMonitor(data.get_dataset_size()), collector], dataset_sink_mode=False)


def evaluation() -> tuple[Any, ...]:
    """What the loss is computed with: a model, the network inside it, samples, and no metrics."""
    network = LeNet5()
    return Model(network, loss()), network, digits(training=False), {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default="demo_landscape")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--size", type=int, default=25, help="points of a side of the grid")
    arguments = parser.parse_args()
    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE)
    train(arguments.directory, arguments.epochs)
    started = time.perf_counter()
    SummaryLandscape(arguments.directory).compute(evaluation, axes="anchored", size=arguments.size)
    print(f"\n{arguments.size} x {arguments.size} points in {time.perf_counter() - started:.1f} s\n")
    instrument(["landscape", arguments.directory])
    print()
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    for name in ["landscape.html", *["landscape.png"] * has_matplotlib]:
        instrument(["landscape", arguments.directory, "--index", "0", "-o", os.path.join(arguments.directory, name)])


if __name__ == "__main__":
    main()
