"""PyNative mode with a compiled function: it runs on while Python goes ahead, so its values come late.

compiled.py DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn

from instrument import SummaryRecord, ops

STEPS = 30


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(256, 256)
        self.scalar, self.tensor = ops.ScalarSummary(), ops.TensorSummary()

    @ms.jit
    def construct(self, x: ms.Tensor) -> ms.Tensor:
        y = x
        for _ in range(20):
            y = self.dense(y) * 0.01 + y * 0.5 + 1
        self.scalar("step", x.max() + y.mean() * 0)
        self.tensor("step", x[0] + y[0] * 0)
        return y


def main(directory: Path) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
    network = Net()
    with SummaryRecord(directory / "run", num_process=0) as record:
        for step in range(1, STEPS + 1):
            network(ms.Tensor(np.full((512, 256), step, np.float32)))
            record.record(step)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
