"""One measurement of loss landscapes, in a process of its own: `python planes.py WHAT NETWORK FOLDER RESULT [--quick]`.

FOLDER holds, or gets, the checkpoints that a training with MindSpore's own collector left. The figures go to the file
RESULT as JSON. `landscape.py` starts this and ends it in time.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Loss, Model

SAMPLES, BATCH, CLASSES, CHECKPOINTS = 512, 32, 10, 8
PCA_CHECKPOINTS, PCA_PARAMETERS = 19, 5_000_000
_SEED = 0
_MB = 1e6


@dataclass(frozen=True)
class Sizes:
    """Points of a side of the grids of MindSpore, of ours, and of ours without convolutions."""

    theirs: int
    plain: int
    unfolded: int


class LeNet(nn.Cell):
    """Two convolutions with pooling, three dense layers: (N, 1, 32, 32) to (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.pool = nn.MaxPool2d(2, 2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(400, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, CLASSES)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.flatten(self.pool(self.relu(self.conv2(x))))
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


class Dense(nn.Cell):
    """1024-64-32-10."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.relu = nn.ReLU()
        self.fc1 = nn.Dense(1024, 64)
        self.fc2 = nn.Dense(64, 32)
        self.fc3 = nn.Dense(32, CLASSES)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(self.flatten(x))))))


NETWORKS: dict[str, type[nn.Cell]] = {"lenet": LeNet, "dense": Dense}
SIZES = {"lenet": Sizes(4, 4, 20), "dense": Sizes(8, 40, 40)}
QUICK_SIZES = {"lenet": Sizes(3, 3, 4), "dense": Sizes(3, 16, 16)}


class Clock:
    """When each point was finished: wall time, and CPU time of this process."""

    def __init__(self) -> None:
        self._ticks: list[tuple[float, float, float]] = []
        self._started = time.perf_counter()

    def tick(self, finished: int | None = None) -> None:
        """Points that are finished by now; without a number, one more."""
        count = len(self._ticks) + 1 if finished is None else finished
        self._ticks.append((count, time.perf_counter(), time.process_time()))

    def figures(self) -> dict[str, float]:
        """Of a point on average, from the first tick to the last, so that compiling and PCA are in the whole only."""
        apart = np.diff(np.array(self._ticks), axis=0)
        wall, cpu = 1e3 * apart[:, 1:].T
        return {
            "points": self._ticks[-1][0],
            "seconds": time.perf_counter() - self._started,
            "point_ms": float(wall.sum() / apart[:, 0].sum()),
            "point_cpu_ms": float(cpu.sum() / apart[:, 0].sum()),
        }


class TimedLoss(Loss):
    """MindSpore's metric of the loss, whose value is asked for once a point."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def eval(self) -> float:
        self._clock.tick()
        return float(super().eval())


def images() -> tuple[np.ndarray, np.ndarray]:
    """Pictures about ten centres: (512, 1, 32, 32) float32, and which centre."""
    rng = np.random.default_rng(_SEED)
    labels = rng.integers(0, CLASSES, SAMPLES).astype(np.int32)
    centres = rng.standard_normal((CLASSES, 1, 32, 32)).astype(np.float32)
    return centres[labels] + 0.8 * rng.standard_normal((SAMPLES, 1, 32, 32)).astype(np.float32), labels


def _dataset() -> Any:
    rows = [(x, np.array(y)) for x, y in zip(*images(), strict=True)]
    return GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(BATCH, drop_remainder=True)


def _loss() -> nn.Cell:
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def _callback(name: str, metric: Loss | None = None) -> Callable[[], tuple[Any, ...]]:
    def callback() -> tuple[Any, ...]:
        network, metrics = NETWORKS[name](), {"Loss": metric or Loss()}
        return Model(network, _loss(), metrics=metrics), network, _dataset(), metrics

    return callback


# ---------------------------------------------------------------- measurements


def collect(name: str, folder: str, sizes: Sizes) -> dict[str, Any]:
    """Train for as many steps as there are checkpoints, which MindSpore's collector keeps."""
    from mindspore import SummaryCollector

    ms.set_seed(_SEED)
    network = NETWORKS[name]()
    model = Model(network, _loss(), nn.Momentum(network.trainable_params(), 0.01, 0.9))
    landscape = {
        "landscape_size": sizes.theirs,
        "unit": "step",
        "create_landscape": {"train": True, "result": False},
        "num_samples": SAMPLES,
        "intervals": [list(range(1, CHECKPOINTS + 1))],
    }
    # MindSpore 2.7 with a protobuf of today cannot describe a data set.
    specified = {"collect_landscape": landscape, "collect_dataset_graph": False}
    collector = SummaryCollector(folder, 10**6, collect_specified_data=specified)
    model.train(1, _dataset(), callbacks=[collector], dataset_sink_mode=False)
    return {"parameters": sum(int(np.prod(one.shape)) for one in network.trainable_params())}


def mindspore(name: str, folder: str, sizes: Sizes) -> dict[str, Any]:
    """MindSpore's own."""
    from mindspore import SummaryLandscape

    clock, failure = Clock(), {}
    try:
        SummaryLandscape(folder).gen_landscapes_with_multi_process(_callback(name, TimedLoss(clock)), device_ids=[0])
    except TypeError as error:  # 2.10 with NumPy 2, when all points are finished: nothing is written then
        failure = {"failed_at_the_end": str(error)}
    return clock.figures() | failure


def plain(name: str, folder: str, sizes: Sizes) -> dict[str, Any]:
    """Ours with convolutions as they are, between two measurements of the bare forward pass."""
    before = _forward(name)
    figures = _ours(name, folder, sizes.plain, unfold=False)
    after = _forward(name)
    return figures | {key: (before[key] + after[key]) / 2 for key in before}


def unfolded(name: str, folder: str, sizes: Sizes) -> dict[str, Any]:
    """Ours as it comes: convolutions as matrix products, where that is found to be the same."""
    return _ours(name, folder, sizes.unfolded, unfold=True)


def _forward(name: str, repetitions: int = 5) -> dict[str, float]:
    """The network over the samples with its weights as they are: all at once, and in batches."""
    cell = nn.WithLossCell(NETWORKS[name](), _loss()).set_train(False)
    x, y = images()
    found = {}
    for key, size in (("forward", SAMPLES), ("forward_batches", BATCH)):
        batches = [(ms.Tensor(x[i : i + size]), ms.Tensor(y[i : i + size])) for i in range(0, SAMPLES, size)]
        clock = Clock()
        for _ in range(repetitions + 2):  # the first one compiles, and is before the first tick
            for batch in batches:
                cell(*batch).asnumpy()
            clock.tick()
        figures = clock.figures()
        found |= {f"{key}_ms": figures["point_ms"], f"{key}_cpu_ms": figures["point_cpu_ms"]}
    return found


def _ours(name: str, folder: str, size: int, unfold: bool) -> dict[str, Any]:
    from instrument import SummaryLandscape

    clock = Clock()
    SummaryLandscape(folder).compute(
        _callback(name), size=size, unfold=unfold, progress=lambda done, whole, seconds_left: clock.tick(done)
    )
    return clock.figures()


def pca(name: str, folder: str, sizes: Sizes) -> dict[str, Any]:
    """The axes of a path of large checkpoints that are in memory, and what that takes beside them."""
    from instrument.landscape.directions import principal_axes

    rng = np.random.default_rng(_SEED)
    parameters = PCA_PARAMETERS if name == "whole" else PCA_PARAMETERS // 50
    walk = np.zeros(parameters, np.float32)
    path = []
    for _ in range(PCA_CHECKPOINTS):
        walk = walk + rng.standard_normal(parameters, np.float32)
        path.append([walk[: parameters // 2], walk[parameters // 2 :]])
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = _status("VmRSS")
    spent = []
    for _ in range(3):
        started = time.perf_counter()
        principal_axes(path, "anchored")
        spent.append(time.perf_counter() - started)
    return {"seconds": statistics.median(spent), "first_seconds": spent[0], "peak_mb": _status("VmHWM") - before}


def _status(key: str) -> float:
    """A size out of the process's own account, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 / _MB for line in lines if line.startswith(f"{key}:"))


MEASUREMENTS = {
    "collect": collect, "mindspore": mindspore, "plain": plain, "unfolded": unfolded, "pca": pca,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=MEASUREMENTS)
    parser.add_argument("network", choices=(*NETWORKS, "whole", "part"))
    parser.add_argument("folder")
    parser.add_argument("result")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("instrument").setLevel(logging.WARNING)
    if arguments.what != "pca":
        ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    sizes = (QUICK_SIZES if arguments.quick else SIZES).get(arguments.network, SIZES["lenet"])
    figures = MEASUREMENTS[arguments.what](arguments.network, arguments.folder, sizes)
    versions = {name: metadata.version(name) for name in ("mindspore", "numpy")}
    Path(arguments.result).write_text(json.dumps(figures | {"versions": versions}))


if __name__ == "__main__":
    main()
