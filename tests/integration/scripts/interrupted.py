"""Trainings that end before their time, one behind the other, in a flat script: no function, no main guard.

    interrupted.py graph|pynative DIRECTORY
"""

import os
import signal
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, Model

from instrument import SummaryCollector, ops

print("BODY", flush=True)
mode, directory = sys.argv[1], Path(sys.argv[2])
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(2, 1, weight_init="zeros")
        self.scalar = ops.ScalarSummary()

    def construct(self, x):
        self.scalar("mean", x.mean())
        return self.dense(x).sum()


class End(Callback):
    """Ends the training in the middle of step 7, before the collector hears of it."""

    def __init__(self, how):
        self.how = how

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 7:
            self.how()


def fail():
    raise RuntimeError("out of memory")


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()  # MindSpore's own handler ends the process by SIGTERM


rows = [(np.full((1, 2), number, np.float32),) for number in range(1, 11)]
network = Net()
model = Model(network, optimizer=nn.SGD(network.trainable_params(), 0.5))
# One object for all: what a training left behind must not hinder the next.
collectors = {name: SummaryCollector(directory / name, collect_freq=1, num_process=2) for name in ("error", "exit")}
collectors["interrupt"] = collectors["exit"]
for name, how in (("error", fail), ("exit", lambda: sys.exit(5)), ("interrupt", interrupt)):
    try:
        model.train(2, GeneratorDataset(rows, ["x"], shuffle=False), callbacks=[End(how), collectors[name]])
    except BaseException as error:
        print(name, type(error).__name__, collectors[name].stats, flush=True)
        if name == "interrupt":
            raise
