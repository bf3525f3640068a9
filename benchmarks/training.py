"""What a collector costs a training: LeNet-5 in graph mode, with the collector and without it, in one process.

A process's luck (where its threads and its memory lie) and other processes change a step by more than a good
collector does. So short trainings without and with the collector alternate on one compiled network, and each is
compared with its neighbour only.

Even so, on two cores a step takes half as long again for seconds, and then does not. So within one more training the
collector is told of ten steps, and not of the next ten, and so on: neighbours are half a second apart then, and there
are many. What a recorder does in the second half as well, this does not see: MindSpore's, which keeps a core busy
always, is not measured so.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import processes
import writers
from intervals import interval
from numpy.typing import NDArray

_BATCH = 32
_PERIOD = 10
_WARM_UP_STEPS = 20
_ORDER = (False, True, True, False) * 2  # pairs, so that a steady drift cancels


class Training(NamedTuple):
    """One training. A step is the time from its beginning to the next one's; `hooks_ms` is what the collector's hooks
    took of each."""

    steps_ms: NDArray[np.float64]
    hooks_ms: NDArray[np.float64]
    wall_s: float
    helpers_cpu_s: float


def measure(writer: writers.Writer, folder: str, steps: int, every: int) -> dict[str, float]:
    """Trainings of so many steps; the collector collects every so many of them."""
    model = lenet5()
    _train(model, _WARM_UP_STEPS, None)
    without: list[Training] = []
    collected: list[Training] = []
    for number, has_collector in enumerate(_ORDER):
        if has_collector:
            target = os.path.join(folder, str(number))
            collected.append(_train(model, steps, (writer, target, every)))
        else:
            without.append(_train(model, steps, None))
    typical_ms = [(_typical_ms(one), _typical_ms(other)) for one, other in zip(without, collected, strict=True)]
    hooks_ms = np.concatenate([training.hooks_ms[1:] for training in collected])
    in_blocks: dict[str, float] = {}
    if isinstance(writer, writers.Ours):
        in_blocks = _in_blocks(model, writer, os.path.join(folder, "blocks"), every, blocks=steps // 2)
    wall_s = [sum(training.wall_s for training in kind) / len(kind) for kind in (without, collected)]
    return {
        "step_ms_without": statistics.median(before for before, _ in typical_ms),
        "step_ms": statistics.median(after for _, after in typical_ms),
        "slowdown_percent": 100 * (statistics.median(after / before for before, after in typical_ms) - 1),
        **in_blocks,
        "hook_ms": float(hooks_ms.mean()),
        "helper_cpu_ms": 1e3 * sum(training.helpers_cpu_s for training in collected) / (steps * len(collected)),
        "wall_s_without": wall_s[0],
        "wall_s": wall_s[1],
        "extra_wall_s": wall_s[1] - wall_s[0],
    }


def _in_blocks(model: Any, writer: writers.Writer, folder: str, every: int, blocks: int) -> dict[str, float]:
    """By how many percent the steps of which the collector is told take longer than those before and after them: the
    Hodges-Lehmann estimate, and the ends of its 95 % interval."""
    collector = writer.collector(folder, every)
    training = _train(model, (2 * blocks + 1) * _PERIOD, None, [_in_turn(collector, _PERIOD)])
    # The first step of a block pays for the last hook before it.
    sums = np.array([
        training.steps_ms[first : first + _PERIOD].sum()
        for first in range(0, len(training.steps_ms) - _PERIOD + 1, _PERIOD)
    ])  # fmt: skip
    told, before, after = sums[1::2], sums[0::2], sums[2::2]
    count = min(len(told), len(after))
    ratios = told[:count] / (0.5 * (before[:count] + after[:count]))
    middle, low, high = interval(ratios[1:])  # its worker starts in the first block
    return {
        "blocks_percent": 100 * (middle - 1),
        "blocks_percent_low": 100 * (low - 1),
        "blocks_percent_high": 100 * (high - 1),
    }


def _in_turn(collector: Any, period: int) -> Any:
    """The collector as a callback that is told of so many steps and not of the next ones; first of none."""
    from mindspore.train import Callback

    class InTurn(Callback):  # type: ignore[misc]
        def __enter__(self) -> Any:
            collector.__enter__()
            return self

        def __exit__(self, *error: Any) -> None:
            collector.__exit__(*error)

        def on_train_begin(self, run_context: Any) -> None:
            collector.on_train_begin(run_context)

        def on_train_epoch_begin(self, run_context: Any) -> None:
            collector.on_train_epoch_begin(run_context)

        def on_train_step_begin(self, run_context: Any) -> None:
            if self._is_told(run_context):
                collector.on_train_step_begin(run_context)

        def on_train_step_end(self, run_context: Any) -> None:
            if self._is_told(run_context):
                collector.on_train_step_end(run_context)

        def on_train_epoch_end(self, run_context: Any) -> None:
            collector.on_train_epoch_end(run_context)

        def on_train_end(self, run_context: Any) -> None:
            collector.on_train_end(run_context)

        @staticmethod
        def _is_told(run_context: Any) -> bool:
            return bool((run_context.original_args().cur_step_num - 1) // period % 2)

    return InTurn()


def _typical_ms(training: Training) -> float:
    """The mean over ten successive steps, each the median of all steps at its place.

    A median leaves out what disturbed single steps; that of all steps would also leave out the collected ones, where
    one in ten is.
    """
    places = [training.steps_ms[first::_PERIOD] for first in range(1, _PERIOD + 1)]
    return float(np.mean([np.median(place) for place in places]))


def _train(
    model: Any, steps: int, collected: tuple[writers.Writer, str, int] | None, others: Sequence[Any] = ()
) -> Training:
    data = pictures(steps)
    before, after = _clock(), _clock()
    helpers_s = processes.helpers_cpu_s()
    started = time.perf_counter()
    callbacks = [before, *others, after]
    if collected is not None:
        writer, folder, every = collected
        callbacks.insert(1, writer.collector(folder, every))
    model.train(1, data, callbacks=callbacks, dataset_sink_mode=False)
    wall_s = time.perf_counter() - started
    begins = np.array(before.begins)
    hooks = np.array(after.begins) - begins + np.array(after.ends) - np.array(before.ends)
    return Training(1e3 * np.diff(begins), 1e3 * hooks, wall_s, processes.helpers_cpu_s() - helpers_s)


def _clock() -> Any:
    """A callback that notes when its hooks ran: what lies between two of them is what runs between them."""
    from mindspore.train import Callback

    class Clock(Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.begins: list[float] = []
            self.ends: list[float] = []

        def on_train_step_begin(self, run_context: Any) -> None:
            self.begins.append(time.perf_counter())

        def on_train_step_end(self, run_context: Any) -> None:
            self.ends.append(time.perf_counter())

    return Clock()


def lenet5() -> Any:
    import mindspore
    from mindspore import nn
    from mindspore.train import Model

    mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
    mindspore.set_seed(1)
    network = nn.SequentialCell(
        nn.Conv2d(1, 6, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Conv2d(6, 16, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Flatten(), nn.Dense(16 * 5 * 5, 120), nn.ReLU(), nn.Dense(120, 84), nn.ReLU(), nn.Dense(84, 10),
    )  # fmt: skip
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return Model(network, loss, nn.Momentum(network.trainable_params(), learning_rate=0.01, momentum=0.9))


def pictures(steps: int) -> Any:
    from mindspore.dataset import GeneratorDataset

    random = np.random.default_rng(0)
    pictures = random.standard_normal((steps * _BATCH, 1, 32, 32), np.float32)
    labels = random.integers(0, 10, steps * _BATCH).astype(np.int32)
    rows = [(picture, np.array(label)) for picture, label in zip(pictures, labels, strict=True)]
    return GeneratorDataset(rows, ["image", "label"], shuffle=False).batch(_BATCH)
