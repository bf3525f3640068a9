"""Train a small network with profilers around it.

profiled.py graph|pynative windows|alone|stop|raise|interrupt|exit|loop DIRECTORY
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, Model

from instrument import Profiler, StopAtEpoch, StopAtStep, SummaryCollector, schedule, span

EPOCHS, STEPS = 3, 10


class Net(nn.Cell):
    """Two dense layers. (N, 4) to (N, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(4, 8)
        self.relu = nn.ReLU()
        self.second = nn.Dense(8, 2)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.second(self.relu(self.first(x)))


def data() -> Any:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(STEPS * 4, 4)).astype(np.float32)
    pairs = [(row, np.array(row.sum() > 0, np.int32)) for row in rows]
    return GeneratorDataset(pairs, ["x", "y"], shuffle=False).map(lambda x: x * 2, ["x"]).batch(4)


class Probe(Callback):
    """When each step ran, on the clock of the wall, outside of the profiler's own hooks."""

    def __init__(self, how: str, at: int) -> None:
        self.steps: dict[int, tuple[int, int]] = {}
        self._how, self._at = how, at
        self._began = 0

    def on_train_step_begin(self, run_context: Any) -> None:
        self._began = time.time_ns()
        with span("probe"):
            pass

    def on_train_step_end(self, run_context: Any) -> None:
        step = run_context.original_args().cur_step_num
        self.steps[step] = (self._began, time.time_ns())
        if step != self._at:
            return
        if self._how == "stop":
            run_context.request_stop()
        elif self._how == "raise":
            raise ValueError("inside the window")
        elif self._how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()  # MindSpore's own handler ends the process by SIGTERM
        elif self._how == "exit":
            sys.exit(3)


def train(callbacks: list[Callback]) -> None:
    ms.set_seed(3)
    network = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    Model(network, loss, optimizer).train(EPOCHS, data(), callbacks=callbacks, dataset_sink_mode=False)


def loop(directory: Path) -> None:
    """A hand-written loop with a schedule, and a window of a profiler behind it."""
    network = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)

    def forward(x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        return loss(network(x), y)

    step = ms.value_and_grad(forward, None, optimizer.parameters)
    ready: list[Any] = []
    cycles = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    with Profiler(directory / "run", schedule=cycles, on_trace_ready=ready.append) as profiler:
        for x, y in data().create_tuple_iterator(num_epochs=1):
            _, gradients = step(x, y)
            optimizer(gradients)
            profiler.step()
    assert ready == [profiler, profiler]
    with Profiler(directory / "run") as second:
        step(x, y)
        second.step()


def main(mode: str, how: str, directory: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    run = directory / "run"
    if how == "loop":
        loop(directory)
        return
    collector = SummaryCollector(
        run, collect_freq=2, num_process=0, collect_specified_data={"collect_input_data": False}
    )
    probe = Probe(how, 15)
    if how == "alone":
        train([probe, collector])
        return
    if how == "windows":
        profilers = [
            StopAtStep(9, 12, run, profile_memory=True, data_process=True),
            StopAtStep(15, 15, run),
            StopAtEpoch(3, 3, run),
        ]
    else:
        profilers = [StopAtStep(12, 20, run)]
    caught = ""
    try:
        train([*profilers, probe, collector])
    except ValueError as error:
        caught = type(error).__name__
    finally:
        facts = {"steps": probe.steps, "caught": caught, "numpy": np.__version__}
        (directory / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
