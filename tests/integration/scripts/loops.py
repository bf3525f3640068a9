"""A loop written by hand, with gradients of several batches to one update, recorded by `SummaryRecord`.

    loops.py graph|pynative DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn

from instrument import SummaryRecord, ops

ACCUMULATION, BATCHES, EPOCHS = 4, 10, 2


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.w = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="w")
        self.scalar = ops.ScalarSummary()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        loss = (self.w + x).sum()
        self.scalar("batch/loss", loss)
        return loss


def main(mode: str, directory: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    network = Net()
    optimizer = nn.SGD(network.trainable_params(), 0.5)
    gradient = ms.value_and_grad(network, None, optimizer.parameters)
    expected = []
    update = 0
    with SummaryRecord(directory / "run") as record:
        for _ in range(EPOCHS):
            losses, gradients = [], []
            for batch in range(BATCHES):
                loss, found = gradient(ms.Tensor([float(batch)]))
                losses.append(loss)
                gradients.append(found[0])
                if len(losses) == ACCUMULATION or batch == BATCHES - 1:
                    update += 1
                    mean = sum(losses[1:], losses[0]) / len(losses)
                    record.add_value("scalar", "loss", mean)
                    record.add_value("histogram", "w", network.w)
                    expected.append([update, float(mean.asnumpy()), float(losses[-1].asnumpy()), network.w.asnumpy()[0]])
                    optimizer((sum(gradients[1:], gradients[0]),))
                    assert record.record(update)
                    losses, gradients = [], []
    np.savez(directory / "expected.npz", updates=np.array(expected))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
