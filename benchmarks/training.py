"""What a collector costs a training: LeNet-5 in graph mode, with the collector and without it, in one process.

A process's luck (where its threads and its memory lie) and other processes change a step by more than a good
collector does. So short trainings without and with the collector alternate on one compiled network, and each is
compared with its neighbour only.

Even so, on two cores MindSpore's steps take either some 33 or some 64 ms, at random, and more of the one or the other
for seconds. So one more training, a long one, goes in pairs of ten steps: the collector is told of one ten and not of
the other, in an order that is drawn for each pair. Without a cost, the difference of a pair is as often above zero as
below, whatever the steps do by themselves; neighbours are half a second apart, and there are many. A step counts from
the hook at the end of the one before it, so that it has in it what that hook has begun elsewhere. What a recorder does
in steps that it is not told of as well, this does not see: MindSpore's, which keeps a core busy always, is not measured
so.
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
from intervals import LEAST_PAIRS, interval
from numpy.typing import NDArray

_BATCH = 32
_PERIOD = 10
_WARM_UP_STEPS = 20
#: Of ten steps each, in the long training: five minutes. A quick run, whose short trainings are shorter, has the least.
_PAIRS = 300
_SHORT_STEPS = 80
#: A long training goes round so many batches.
_BATCHES = 200
_ORDER = (False, True, True, False) * 2  # pairs, so that a steady drift cancels


class Training(NamedTuple):
    """One training. A step is the time from its beginning to the next one's; `hooks_ms` is what the collector's hooks
    took of each.

    In `from_end_ms`, entry i is from the hook at the end of step i to that of the next step; entry 0 is not to be used.
    """

    steps_ms: NDArray[np.float64]
    from_end_ms: NDArray[np.float64]
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
        pairs = _PAIRS if steps >= _SHORT_STEPS else LEAST_PAIRS
        in_blocks = _in_blocks(model, writer, os.path.join(folder, "blocks"), every, pairs)
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


def _in_blocks(model: Any, writer: writers.Writer, folder: str, every: int, pairs: int) -> dict[str, float]:
    """By how many percent the steps of which the collector is told take longer than the others: the Hodges-Lehmann
    estimate of the pairs' differences, and the ends of its 95 % interval."""
    is_told = draw(pairs + 1)  # its worker starts in the first pair
    training = _train(model, len(is_told), None, [_in_turn(writer.collector(folder, every), is_told)])
    return compare(training.from_end_ms[2 * _PERIOD :], is_told[2 * _PERIOD :])


def draw(pairs: int) -> NDArray[np.bool_]:
    """Whether the collector is told, a step: pairs of ten steps that are and ten that are not, in either order."""
    is_first = np.random.default_rng().random(pairs) < 0.5
    return np.repeat(np.stack([is_first, ~is_first], axis=1).reshape(-1), _PERIOD)


def compare(steps_ms: NDArray[np.float64], is_told: NDArray[np.bool_]) -> dict[str, float]:
    """What being told costs, out of whole pairs; a step's time begins with the hook at its end."""
    told, others = (steps_ms[which].reshape(-1, _PERIOD).mean(axis=1) for which in (is_told, ~is_told))
    middle, low, high = interval(told - others)
    usual_ms = float(others.mean())
    return {
        "blocks_percent": 100 * middle / usual_ms,
        "blocks_percent_low": 100 * low / usual_ms,
        "blocks_percent_high": 100 * high / usual_ms,
    }


def _in_turn(collector: Any, is_told: NDArray[np.bool_]) -> Any:
    """The collector as a callback that is told of some steps only.

    Entry i is for step i, counted from 1 as MindSpore does: so tens begin with a multiple of ten, and a collector of
    each tenth step collects once in a ten of which it is told, as it does when it is told of all.
    """
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
            step = run_context.original_args().cur_step_num
            return bool(step < len(is_told) and is_told[step])

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
    return Training(
        1e3 * np.diff(begins), 1e3 * np.diff(before.ends, prepend=begins[0]), 1e3 * hooks, wall_s,
        processes.helpers_cpu_s() - helpers_s,
    )  # fmt: skip


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
    """Batches for so many steps: pictures of 8 x 8 pixels in 17 levels, enlarged to 32 x 32 as in the demonstration."""
    from mindspore.dataset import GeneratorDataset

    random = np.random.default_rng(0)
    count = min(steps, _BATCHES) * _BATCH
    pictures = np.kron(random.integers(0, 17, (count, 1, 8, 8)) / 16, np.ones((4, 4))).astype(np.float32)
    labels = random.integers(0, 10, count).astype(np.int32)
    rows = [(pictures[row % count], np.array(labels[row % count])) for row in range(steps * _BATCH)]
    return GeneratorDataset(rows, ["image", "label"], shuffle=False).batch(_BATCH)
