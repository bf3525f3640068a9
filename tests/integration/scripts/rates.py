"""Train with learning rates of every form, on a network whose gradient is 1, so that each step moves the weights by
exactly the rate that the optimiser used.

    rates.py graph|pynative DIRECTORY
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.experimental import optim as experimental
from mindspore.nn.learning_rate_schedule import LearningRateSchedule
from mindspore.train import Callback, Model

from instrument import SummaryCollector

STEPS = 6


class Slope(nn.Cell):
    """Two weights; the loss is their sum, so the gradient of each is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.a = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="a")
        self.b = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="b")

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return (self.a + self.b + x).sum()


class Step(nn.Cell):
    """A training step of a user's own; `Model` takes optimisers of `mindspore.experimental` in no other way."""

    def __init__(self, network: nn.Cell, optimizer: Any) -> None:
        super().__init__()
        self.network = network
        self.optimizer = optimizer
        self.gradient = ms.value_and_grad(network, None, optimizer.parameters)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        loss, gradients = self.gradient(x)
        return ms.ops.depend(loss, self.optimizer(gradients))


class TupleStep(Step):
    """With loss scaling the output is a tuple: loss, whether there was an overflow, scale."""

    def construct(self, x: ms.Tensor) -> tuple[ms.Tensor, ms.Tensor, ms.Tensor]:
        loss, gradients = self.gradient(x)
        return ms.ops.depend(loss, self.optimizer(gradients)), x > 0, x


class Warmup(LearningRateSchedule):
    """A user's own schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = ms.Tensor(0.125, ms.float32)

    def construct(self, global_step: ms.Tensor) -> ms.Tensor:
        return self.rate * (global_step + 1)


class Probe(Callback):
    def __init__(self) -> None:
        self.weights: list[list[float]] = []
        self.losses: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        params = run_context.original_args()
        network = params.train_network
        self.weights.append([float(one.asnumpy()[0]) for one in network.trainable_params()[:2]])
        output = params.net_outputs
        self.losses.append(float((output[0] if isinstance(output, (list, tuple)) else output).asnumpy()))


class StepScheduler(Callback):
    """Moves a scheduler of `mindspore.experimental` once a step."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def on_train_step_end(self, run_context: Any) -> None:
        self.scheduler.step()


def grouped(net: Slope, first: Any, second: Any) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = [{"params": [net.a]}, {"params": [net.b]}]
    for group, rate in zip(groups, (first, second), strict=True):
        if rate is not None:
            group["lr"] = rate
    return groups


LIST = [0.5, 0.25, 0.125, 0.75, 1.0, 2.0]

OPTIMIZERS: dict[str, Callable[[Slope], Any]] = {
    "constant": lambda net: nn.SGD(net.trainable_params(), 0.1),
    "tensor": lambda net: nn.SGD(net.trainable_params(), ms.Tensor(0.25)),
    "list": lambda net: nn.SGD(net.trainable_params(), LIST),
    "table": lambda net: nn.SGD(net.trainable_params(), nn.exponential_decay_lr(0.1, 0.5, STEPS, 2, 1)),
    "schedule": lambda net: nn.SGD(net.trainable_params(), nn.ExponentialDecayLR(0.5, 0.5, 2)),
    "cosine": lambda net: nn.SGD(net.trainable_params(), nn.CosineDecayLR(0.01, 0.5, STEPS)),
    "own": lambda net: nn.SGD(net.trainable_params(), Warmup()),
    "grouped constant": lambda net: nn.SGD(grouped(net, 0.05, None), 0.5),
    "grouped dynamic": lambda net: nn.SGD(grouped(net, nn.ExponentialDecayLR(0.5, 0.5, 2), 0.25), 0.5),
    "grouped list": lambda net: nn.SGD(grouped(net, LIST, [0.5] * STEPS), 0.5),
    "experimental": lambda net: experimental.SGD(net.trainable_params(), lr=0.5),
    "experimental grouped": lambda net: experimental.SGD(grouped(net, 0.5, 0.25), lr=1.0),
}


def data() -> Any:
    return GeneratorDataset([(np.zeros(1, np.float32),)] * STEPS, ["x"], shuffle=False)


def train(directory: Path, name: str, expected: dict[str, Any]) -> None:
    network = Slope()
    optimizer = OPTIMIZERS[name.partition(",")[0]](network)
    probe = Probe()
    collector = SummaryCollector(
        directory / name, 1, 0, {"collect_metric": True, "collect_train_lineage": True}, keep_default_action=False
    )
    callbacks: list[Any] = [probe, collector]
    if "experimental" in name:
        callbacks.append(StepScheduler(experimental.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)))
        model = Model(Step(network, optimizer))
    elif "inside" in name:
        model = Model(nn.TrainOneStepCell(network, optimizer))
    elif "tuple" in name:
        model = Model(TupleStep(network, optimizer))
    else:
        model = Model(network, optimizer=optimizer)
    model.train(1, data(), callbacks=callbacks, dataset_sink_mode="sunk" in name)
    expected[f"{name}/weights"] = np.array(probe.weights)
    expected[f"{name}/losses"] = np.array(probe.losses)


def main(mode: str, directory: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    expected: dict[str, Any] = {}
    for name in (*OPTIMIZERS, "list, inside the network", "list, sunk", "schedule, tuple"):
        train(directory, name, expected)
        print(name, flush=True)
    np.savez(directory / "expected.npz", **expected)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
