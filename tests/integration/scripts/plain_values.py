"""plain_values.py MODE DIRECTORY: operators inside `construct` that are given numbers, and things that are no value."""

from __future__ import annotations

import logging
import os
import sys

import mindspore as ms
import numpy as np
from mindspore import nn

from instrument import SummaryRecord, ops

logging.basicConfig(level=logging.INFO)
mode, directory = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")


class Network(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.scalar, self.tensor = ops.ScalarSummary(), ops.TensorSummary()
        self.image, self.histogram = ops.ImageSummary(), ops.HistogramSummary()
        self.expand_dims = ms.ops.ExpandDims()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        self.scalar("float", 1.5)
        self.scalar("int", 3)
        self.scalar("bool", True)
        self.scalar("extent", x.shape[0])
        self.scalar("boxed", self.expand_dims(self.expand_dims(x.sum(), 0), 0))
        self.tensor("number", 2)
        self.histogram("number", 2.5)
        self.scalar("", x.sum())
        self.tensor("", x)
        self.scalar("vector", x)
        self.scalar("none", None)
        self.tensor("tuple", (x, x))
        self.image("flat", x)
        self.image("number", 3)
        return x.sum()


network = Network()
with SummaryRecord(os.path.join(directory, "run")) as record:
    for step in range(3):
        network(ms.Tensor(np.full((2, 3), step, np.float32)))
        assert record.record(step)
