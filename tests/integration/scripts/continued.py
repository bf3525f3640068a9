"""Runs of several trainings: continued.py graph|pynative DIRECTORY; what MindSpore said goes to expected.npz."""

import os
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Accuracy, Callback, Model

from instrument import SummaryCollector, ops

mode, directory = sys.argv[1], Path(sys.argv[2])
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
try:
    ms.Tensor([1.0]) + 1  # with NumPy 2 the first operator of a process fails
except SystemError:
    pass


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(4, 2)
        self.scalar = ops.ScalarSummary()

    def construct(self, x):
        self.scalar("mean", x.mean())
        return self.dense(x)


def data(rows=32):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    pairs = [(row, np.array(label)) for row, label in zip(x, y, strict=True)]
    return GeneratorDataset(pairs, ["x", "y"], shuffle=False).batch(4)


def make(rate=0.1):
    network = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return Model(network, loss, nn.Momentum(network.trainable_params(), rate, 0.9), metrics={"accuracy": Accuracy()})


class Losses(Callback):
    """What the network gave in each step."""

    def __init__(self):
        self.seen = []

    def on_train_step_end(self, run_context):
        self.seen.append(float(run_context.original_args().net_outputs.asnumpy()))


class At(Callback):
    """Does something at the end of a step, before whatever stands behind it."""

    def __init__(self, step, do):
        self.step, self.do = step, do

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == self.step:
            self.do(run_context)


def fail(_):
    raise RuntimeError("diverged")


options = {"collect_freq": 5, "num_process": 1, "custom_lineage_data": {"note": "toy"}}
# Three epochs of eight steps, each a training of its own, with evaluations in and behind them.
model, losses = make(nn.cosine_decay_lr(0.0, 0.25, 24, 8, 3)), Losses()
collector = SummaryCollector(directory / "run", dialect="both", **options)
for _ in range(3):
    evaluate = At(3, lambda _: model.eval(data(16), callbacks=[collector]))
    model.train(1, data(), callbacks=[evaluate, collector, losses])
    model.eval(data(16), callbacks=[collector])
np.savez(directory / "expected.npz", losses=losses.seen)

# The first of two epochs, then the second in what could be another process.
for epoch in (0, 1):
    collector = SummaryCollector(directory / "epochs", **options)
    make().fit(epoch + 1, data(), data(16), callbacks=[collector], initial_epoch=epoch)

for name, order in (("before", 1), ("behind", -1)):
    stop = At(7, lambda context: context.request_stop())
    make().train(9, data(), callbacks=[stop, SummaryCollector(directory / f"stop_{name}", **options)][::order])
    try:
        make().train(
            9, data(), callbacks=[At(7, fail), SummaryCollector(directory / f"fail_{name}", **options)][::order]
        )
    except RuntimeError:
        pass

kill = At(7, lambda _: os.kill(os.getpid(), 9))
make().train(9, data(), callbacks=[SummaryCollector(directory / "kill", **options), kill])
