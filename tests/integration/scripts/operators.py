"""Summary operators inside `construct`, in every place and on every kind of value, recorded by hand.

    operators.py graph|pynative DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from instrument import SummaryRecord, ops

STEPS = 4
DTYPES = {
    "bool": ms.bool_, "int8": ms.int8, "int16": ms.int16, "int32": ms.int32, "int64": ms.int64, "uint8": ms.uint8,
    "uint16": ms.uint16, "uint32": ms.uint32, "uint64": ms.uint64, "float16": ms.float16, "bfloat16": ms.bfloat16,
    "float64": ms.float64,
}  # fmt: skip
#: Numbers, and a sum of them, that every float type holds exactly.
BASE = (np.arange(32, dtype=np.float32) / 32).reshape(2, 1, 4, 4)


class Inner(nn.Cell):
    """A cell inside the network."""

    def __init__(self) -> None:
        super().__init__()
        self.scalar = ops.ScalarSummary()
        self.histogram = ops.HistogramSummary()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        self.scalar("inner/max", x.max())
        self.histogram("inner/x", x)
        self.scalar("twice", x.max())
        return x


class Casts(nn.Cell):
    """Every dtype, as a tensor, a histogram and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.cast = ms.ops.Cast()
        self.types = tuple(DTYPES.items())
        self.scalar, self.tensor, self.histogram = ops.ScalarSummary(), ops.TensorSummary(), ops.HistogramSummary()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        total = x.sum()
        for name, dtype in self.types:
            self.tensor("dtype/" + name, self.cast(x, dtype))
            self.histogram("dtype/" + name, self.cast(x, dtype))
            self.scalar("dtype/" + name, self.cast(total, dtype))
        return x


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.casts = Inner(), Casts()
        self.flatten, self.dense = nn.Flatten(), nn.Dense(16, 1, weight_init="ones", bias_init="zeros")
        self.reshape, self.squeeze, self.transpose = ms.ops.Reshape(), ms.ops.Squeeze(), ms.ops.Transpose()
        self.one = ms.Parameter(ms.Tensor([2.5], ms.float32), name="one")
        self.constant = ms.Tensor([[1.0, 2.0], [3.0, 4.0]], ms.float32)
        self.number = ms.Tensor(0.75, ms.float32)
        self.scalar, self.image = ops.ScalarSummary(), ops.ImageSummary()
        self.tensor, self.histogram = ops.TensorSummary(), ops.HistogramSummary()

    def construct(self, x: ms.Tensor, flag: ms.Tensor) -> ms.Tensor:
        self.image("image/nchw", x / 4)
        self.image("image/nhwc", self.transpose(x, (0, 2, 3, 1)) / 4)
        self.tensor("view/flatten", self.flatten(x))
        self.tensor("view/squeeze", self.squeeze(x))
        self.tensor("view/stop_gradient", ms.ops.stop_gradient(x))
        self.tensor("view/plus_zero", x + 0.0)
        self.tensor("view/itself", x)
        self.histogram("view/reshape", self.reshape(x, (32,)))
        self.scalar("view/squeeze", self.squeeze(self.dense.bias))
        self.scalar("constant", self.number)
        self.tensor("constant", self.constant)
        self.histogram("constant", self.constant)
        self.scalar("weight", self.one)
        self.tensor("weight", self.dense.weight)
        self.histogram("weight", self.dense.weight)
        self.tensor("point", x.sum())
        self.histogram("point", x.sum())
        self.scalar("point", x.sum())
        self.scalar("twice", x.sum())
        self.scalar("准确率 %/a:b", x.sum())
        x = self.casts(self.inner(x))
        if flag > 0:
            self.scalar("if", x.mean())
        else:
            self.tensor("else", x.mean())
        return self.dense(self.flatten(x)).sum()


def main(mode: str, directory: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    network = Net()
    train = nn.TrainOneStepCell(network, nn.SGD(network.trainable_params(), 0.5))
    train.set_train()
    weights: list[Any] = []
    with SummaryRecord(directory / "run", num_process=1, network=train) as record:
        for step in range(1, STEPS + 1):
            weights.append([network.dense.weight.asnumpy().copy(), network.one.asnumpy().copy()])
            train(ms.Tensor(BASE * step), ms.Tensor(step % 2))
            print("recorded", step, record.record(step), flush=True)
        record.set_mode("eval")
        network.set_train(False)
        network(ms.Tensor(BASE * 100), ms.Tensor(1))
        print("recorded", 100, record.record(100), flush=True)
    np.savez(
        directory / "expected.npz",
        weight=np.stack([weight for weight, _ in weights]),
        one=np.stack([one for _, one in weights]),
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
