"""Train a small network inside of a profile, and let it explain itself.

explained.py graph|pynative DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Model

from instrument import StopAtStep

#: Operators of a type that the network runs in one step: three dense layers, forward and backward, and an optimizer.
LAYERS = 3


class Net(nn.Cell):
    """Three dense layers. (N, 4) to (N, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Dense(4, 8), nn.Dense(8, 8), nn.Dense(8, 2)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.third(self.second(self.first(x)))


def data() -> Any:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(80, 4)).astype(np.float32)
    return GeneratorDataset([(row, np.array(row.sum() > 0, np.int32)) for row in rows], ["x", "y"]).batch(4)


def main(mode: str, directory: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    network = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    profiling = StopAtStep(6, 10, directory / "run", profile_memory=True, record_shapes=True)
    Model(network, loss, optimizer).train(1, data(), callbacks=[profiling], dataset_sink_mode=False)
    profiler = profiling.profiler
    profile = profiler.analyse()
    part = profiler.analyse(step_list=[8, 7])
    profiler.export_chrome_trace(directory / "timeline.json.gz")
    facts = {
        "steps": profile.steps["step"].tolist(),
        "part": part.steps["step"].tolist(),
        "text": str(profile),
        "biases": json.loads(profiler.op_analyse("BiasAdd"))["BiasAdd"],
        "table": profiler.key_averages().table(sort_by="count", row_limit=3),
    }
    (directory / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
