"""Find the slow stage of a data pipeline with the profiler, fix it, and compare both profiles.

    python examples/slow_data.py [DIRECTORY]

The pipeline rotates the digits a little, against overfitting. The slow version rotates row by row with SciPy in one
worker; the fast one rotates all digits before the training.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.dataset import config as dataset_config
from mindspore.train import Model
from scipy.ndimage import rotate
from small import Net, rows

from instrument import StopAtStep, read

#: Later than all that the pipeline had ready when the first step was compiled.
STEPS = (61, 80)
#: Pictures are turned enlarged, for the sake of the edges.
ENLARGED = 16


def turned(picture: np.ndarray, angle: float) -> np.ndarray:
    """(64,) to (64,), turned by some degrees."""
    large = np.kron(picture.reshape(8, 8), np.ones((ENLARGED, ENLARGED), np.float32))
    small = rotate(large, angle, reshape=False).reshape(8, ENLARGED, 8, ENLARGED).mean((1, 3))
    return np.clip(small, 0, 1).astype(np.float32).ravel()


def slow() -> GeneratorDataset:
    """Each row is turned when it is asked for, in each epoch anew."""
    random = np.random.default_rng(1)
    data = GeneratorDataset(rows(training=True), ["x", "y"], shuffle=True)
    data = data.map(lambda picture: turned(picture, random.uniform(-10, 10)), ["x"], num_parallel_workers=1)
    return data.batch(32, drop_remainder=True)


def mended() -> GeneratorDataset:
    """All are turned beforehand, once."""
    random = np.random.default_rng(1)
    ready = [(turned(picture, random.uniform(-10, 10)), label) for picture, label in rows(training=True)]
    return GeneratorDataset(ready, ["x", "y"], shuffle=True).batch(32, drop_remainder=True)


def train(directory: str, data: Callable[[], GeneratorDataset]) -> None:
    ms.set_seed(1)
    network = Net()
    model = Model(network, nn.CrossEntropyLoss(), nn.Momentum(network.trainable_params(), 0.1, 0.9))
    model.train(2, data(), callbacks=[StopAtStep(*STEPS, directory)], dataset_sink_mode=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default="slow_data_run")
    arguments = parser.parse_args()
    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE)
    dataset_config.set_monitor_sampling_interval(10)  # ms; the usual second is longer than the whole window
    for name, data in (("slow", slow), ("mended", mended)):
        train(f"{arguments.directory}/{name}", data)
    before, after = (read(f"{arguments.directory}/{name}").profile() for name in ("slow", "mended"))
    print("\nBefore:")
    print("\n".join(before.advice))
    print(before.pipeline)
    print("\nAfter:")
    print(after.compare(before).steps)
    print(f"\nThe same:  instrument profile {arguments.directory}/slow --data")
    print(f"           instrument profile {arguments.directory}/mended --compare {arguments.directory}/slow")


if __name__ == "__main__":
    main()
