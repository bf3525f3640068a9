"""Train a small network on scikit-learn's digits with a collector, and keep beside the files what they must hold.

digits.py graph|pynative DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset, transforms, vision
from mindspore.train import Accuracy, Callback, CheckpointConfig, LossMonitor, Model, ModelCheckpoint
from sklearn.datasets import load_digits

from instrument import SummaryCollector, ops

EPOCHS, BATCH_SIZE, TRAINING = 4, 32, 288
STEPS_PER_EPOCH = TRAINING // BATCH_SIZE
COLLECT_FREQ = 5


class Net(nn.Cell):
    """A convolution and a dense layer. (N, 1, 8, 8) to (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, pad_mode="valid")
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.dense = nn.Dense(4 * 6 * 6, 10)
        self.scalar = ops.ScalarSummary()
        self.tensor = ops.TensorSummary()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        self.scalar("input/mean", x.mean())
        x = self.flatten(self.relu(self.conv(x)))
        self.tensor("features", x)
        return self.dense(x)


def digits(training: bool) -> Any:
    data = load_digits()
    pictures, labels = data.images[..., None].astype(np.uint8), data.target.astype(np.int32)
    chosen = slice(None, TRAINING) if training else slice(TRAINING, TRAINING + 96)
    rows = [(picture, np.array(label)) for picture, label in zip(pictures[chosen], labels[chosen], strict=True)]
    pipeline = GeneratorDataset(rows, ["image", "label"], shuffle=False)
    if training:
        pipeline = pipeline.shuffle(64)
    pipeline = pipeline.map([vision.Rescale(1 / 16, 0.0), vision.HWC2CHW()], ["image"])
    return pipeline.map(transforms.TypeCast(ms.int32), ["label"]).batch(BATCH_SIZE, drop_remainder=True)


class Probe(Callback):
    """Sees what the collector sees, before it."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.batches: list[np.ndarray[Any, Any]] = []
        self.weights: dict[str, list[np.ndarray[Any, Any]]] = {}
        self.metrics: list[tuple[int, float, float]] = []

    def on_train_step_end(self, run_context: Any) -> None:
        params = run_context.original_args()
        self.losses.append(float(np.mean(params.net_outputs.asnumpy())))  # as LossMonitor has it
        self.batches.append(params.train_dataset_element[0].asnumpy().copy())
        for parameter in params.optimizer.parameters:
            self.weights.setdefault(parameter.name, []).append(parameter.asnumpy().copy())

    def on_train_epoch_end(self, run_context: Any) -> None:
        params = run_context.original_args()
        if "metrics" in params:
            row = (params.cur_step_num, params.metrics["accuracy"], params.eval_results["eval_loss"])
            self.metrics.append(row)


def train(callbacks: list[Callback]) -> tuple[Model, Net]:
    ms.set_seed(3)
    network = Net()
    rates = nn.exponential_decay_lr(0.1, 0.5, EPOCHS * STEPS_PER_EPOCH, STEPS_PER_EPOCH, 1)
    optimizer = nn.Momentum(network.trainable_params(), rates, 0.9)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(network, loss, optimizer, metrics={"accuracy": Accuracy()})
    model.fit(EPOCHS, digits(True), digits(False), callbacks=callbacks, dataset_sink_mode=False)
    return model, network


def weights_of(network: Net) -> dict[str, np.ndarray[Any, Any]]:
    return {parameter.name: parameter.asnumpy().copy() for parameter in network.get_parameters()}


def main(mode: str, directory: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    probe = Probe()
    collector = SummaryCollector(
        directory / "run",
        collect_freq=COLLECT_FREQ,
        num_process=2,
        collect_specified_data={"collect_landscape": {"intervals": [[1, 2, 3]], "unit": "epoch"}},
        custom_lineage_data={"data": "digits", "scale": 0.0625, "pictures": TRAINING, "large": 2**40},
    )
    config = CheckpointConfig(save_checkpoint_steps=STEPS_PER_EPOCH, keep_checkpoint_max=1)
    saver = ModelCheckpoint("digits", str(directory / "saved"), config)
    model, network = train([LossMonitor(STEPS_PER_EPOCH), probe, saver, collector])
    with_collector = weights_of(network)
    evaluation = SummaryCollector(directory / "evaluation", num_process=0)
    result = model.eval(digits(False), callbacks=[evaluation], dataset_sink_mode=False)
    _, network = train([])
    without = weights_of(network)
    np.savez(
        directory / "expected.npz",
        losses=np.array(probe.losses),
        batches=np.stack(probe.batches),
        metrics=np.array(probe.metrics),
        accuracy=result["accuracy"],
        **{f"weights/{name}": np.stack(found) for name, found in probe.weights.items()},
        **{f"with/{name}": array for name, array in with_collector.items()},
        **{f"without/{name}": array for name, array in without.items()},
    )
    print(collector.stats)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
