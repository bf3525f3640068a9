"""Summary operators in graphs with and without gradients, branches and loops: MindSpore loses values there.

places.py DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn

from instrument import SummaryRecord, ops

PLAIN, BRANCH, INSIDE, LOOP = range(4)


class Net(nn.Cell):
    """`place` says where the values are: beside nothing, beside a branch, also inside a branch, or inside a loop."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place
        self.used = ms.Parameter(ms.Tensor([3.0, 1.0], ms.float32), name="used")
        self.unused = ms.Parameter(ms.Tensor([4.0, 2.0], ms.float32), name="unused")
        self.frozen = ms.Parameter(ms.Tensor([5.0], ms.float32), name="frozen", requires_grad=False)
        self.constant = ms.Tensor([[1.0, 2.0]], ms.float32)
        self.tensor, self.scalar = ops.TensorSummary(), ops.ScalarSummary()
        self.reshape, self.flatten = ms.ops.Reshape(), nn.Flatten()

    def construct(self, x: ms.Tensor, count: ms.Tensor) -> ms.Tensor:
        self.tensor("used", self.used)
        self.tensor("unused", self.unused)
        self.scalar("frozen", self.frozen)
        self.tensor("used/twice", self.used * 2)
        self.tensor("unused/view", self.reshape(self.unused, (2, 1)))
        self.tensor("constant/view", self.flatten(self.constant))
        self.tensor("input", x)
        self.tensor("input/view", self.reshape(x, (3, 1)))
        self.scalar("count", count)
        y = x.sum() + self.used.sum()
        self.scalar("result", y)
        if self.place in (BRANCH, INSIDE):
            if count > 0:
                if self.place == INSIDE:
                    self.tensor("inside/used", self.used)
                    self.tensor("inside/unused/view", self.reshape(self.unused, (2, 1)))
                    self.tensor("inside/input", x)
                    self.scalar("inside/result", y)
                y = y * 2
            else:
                y = y * 3
        if self.place == LOOP:
            index = count * 0
            while index < count:
                self.tensor("inside/used", self.used)
                self.tensor("inside/input", x)
                self.scalar("inside/result", y)
                self.scalar("inside/index", index)
                y = y * 2
                index = index + 1
        return y


def main(directory: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    for place, name in enumerate(("plain", "branch", "inside", "loop")):
        for trains in (False, True):
            network = Net(place)
            cell = nn.TrainOneStepCell(network, nn.SGD([network.used, network.unused], 0.5)) if trains else network
            with SummaryRecord(directory / f"{name}-{'training' if trains else 'forward'}", num_process=0) as record:
                cell(ms.Tensor(np.arange(3, dtype=np.float32)), ms.Tensor(2))
                record.record(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
