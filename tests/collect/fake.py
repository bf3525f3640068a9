"""A training loop of hooks only: what `model.train` would call, with callback parameters made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import RunContext
from mindspore.train.callback import _InternalCallbackParam

PICTURES = np.linspace(0, 1, 2 * 3 * 8 * 8, dtype=np.float32).reshape(2, 3, 8, 8)


def dataset() -> Any:
    rows = np.arange(40, dtype=np.float32).reshape(10, 4)
    return NumpySlicesDataset((rows, rows[:, :1]), ["x", "y"], shuffle=False).batch(2)


def parameters(**changes: Any) -> dict[str, Any]:
    """The callback parameters of a training before its first step, as MindSpore gives them."""
    network = nn.Dense(4, 1)
    found = {
        "mode": "train", "epoch_num": 1, "batch_num": 10, "cur_step_num": 0, "cur_epoch_num": 1,
        "dataset_sink_mode": False, "list_callback": [], "network": network, "train_network": network,
        "optimizer": nn.Momentum(network.trainable_params(), 0.5, 0.9), "loss_fn": nn.MSELoss(),
        "parallel_mode": "stand_alone", "device_number": 1, "train_dataset": dataset(),
        "train_dataset_element": (ms.Tensor(PICTURES), ms.Tensor([0, 1])), "net_outputs": ms.Tensor(0.25),
    }  # fmt: skip
    return {**found, **changes}


class Namespace:
    """A run context whose parameters are plain attributes."""

    def __init__(self, original: dict[str, Any]) -> None:
        self._original = SimpleNamespace(**original)

    def original_args(self) -> Any:
        return self._original


class Loop:
    """Calls the hooks of `callbacks`; `changes` are callback parameters that differ from the usual ones.

    `at_step`, if given, is called with step number and parameters where the network would run.
    """

    def __init__(
        self, *callbacks: Any, at_step: Callable[[int, Any], Any] | None = None, plain: bool = False, **changes: Any
    ) -> None:
        self.callbacks = list(callbacks)
        self._at_step = at_step
        given = parameters(list_callback=self.callbacks, **changes)
        self.context = Namespace(given) if plain else RunContext(_InternalCallbackParam(given))
        self.params = self.context.original_args()

    def call(self, hook: str) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self.context)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Callbacks are entered for a training, and left when it ends or fails."""
        with ExitStack() as stack:
            for callback in self.callbacks:
                stack.enter_context(callback)
            yield

    def step(self, number: int) -> None:
        self.params.cur_step_num = number
        self.call("on_train_step_begin")
        if self._at_step is not None:
            self._at_step(number, self.params)
        self.call("on_train_step_end")

    def train(self, *epochs: Iterable[int]) -> Loop:
        """A whole training; each epoch is given by the numbers of its steps."""
        with self.entered():
            self.call("on_train_begin")
            for number, steps in enumerate(epochs, start=1):
                self.params.cur_epoch_num = number
                self.call("on_train_epoch_begin")
                for step in steps:
                    self.step(step)
                self.call("on_train_epoch_end")
            self.call("on_train_end")
        return self

    def evaluate(self, metrics: dict[str, Any], **changes: Any) -> None:
        """An evaluation that tells the callbacks, as `model.eval` does; with parameters of its own."""
        given = {"mode": "eval", "cur_step_num": 0, "list_callback": self.callbacks, "valid_dataset": dataset()}
        context = RunContext(_InternalCallbackParam({**given, **changes}))
        with ExitStack() as stack:
            for callback in self.callbacks:
                stack.enter_context(callback)
            for hook in ("on_eval_begin", "on_eval_epoch_begin", "on_eval_epoch_end", "on_eval_end"):
                if hook == "on_eval_end":
                    context.original_args().metrics = metrics
                for callback in self.callbacks:
                    getattr(callback, hook)(context)
