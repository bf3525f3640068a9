"""Summary operators in the backward pass and in the forward pass below it: ours and MindSpore's in the same places.

backward.py graph|pynative DIRECTORY        a run DIRECTORY/PLACE-ours and one DIRECTORY/PLACE-mindspore for each place
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from instrument import SummaryRecord, framework, ops

STEPS = 2
KINDS = ("ScalarSummary", "TensorSummary", "HistogramSummary", "ImageSummary")


class Net(nn.Cell):
    """Weights of ones, and the operators at the gradient of the hidden values, (1, 4, 4)."""

    def __init__(self, library: Any) -> None:
        super().__init__()
        self.scalar, self.tensor, self.histogram, self.image = (getattr(library, name)() for name in KINDS)
        self.weight = ms.Parameter(ms.Tensor(np.ones((4, 4), np.float32)), name="weight")
        self.at_gradient = ms.ops.InsertGradientOf(self.watch)

    def watch(self, dx: ms.Tensor) -> ms.Tensor:
        self.scalar("scalar", dx.sum())
        self.tensor("tensor", dx + 0.0)
        self.histogram("histogram", dx + 0.0)
        self.image("image", ms.ops.expand_dims(dx, 0) + 0.0)
        return dx

    def hidden(self, x: ms.Tensor) -> ms.Tensor:
        return x * self.weight

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        hidden = self.at_gradient(self.hidden(x))
        return (hidden * hidden).sum()


class Branch(Net):
    def construct(self, x: ms.Tensor) -> ms.Tensor:
        hidden = self.hidden(x)
        if x.sum() > 0:
            hidden = self.at_gradient(hidden)
        return (hidden * hidden).sum()


class BranchInside(Net):
    """The branch is that of the gradient's function."""

    def watch(self, dx: ms.Tensor) -> ms.Tensor:
        if dx.sum() > 0:
            self.scalar("scalar", dx.sum())
            self.tensor("tensor", dx + 0.0)
            self.histogram("histogram", dx + 0.0)
            self.image("image", ms.ops.expand_dims(dx, 0) + 0.0)
        return dx


class Loop(Net):
    """The same gradient twice, in a loop that the compiler unrolls."""

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        hidden = self.hidden(x)
        for _ in range(2):
            hidden = self.at_gradient(hidden)
        return (hidden * hidden).sum()


class Tuple(Net):
    """In an expression whose value is not used."""

    def watch(self, dx: ms.Tensor) -> ms.Tensor:
        return (
            self.scalar("scalar", dx.sum()), self.tensor("tensor", dx + 0.0), self.histogram("histogram", dx + 0.0),
            self.image("image", ms.ops.expand_dims(dx, 0) + 0.0), dx,
        )[-1]  # fmt: skip


class Inner(nn.Cell):
    """A cell with a gradient of its own."""

    def __init__(self, library: Any) -> None:
        super().__init__()
        self.scalar, self.tensor, self.histogram, self.image = (getattr(library, name)() for name in KINDS)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return x * 1.0

    def bprop(self, x: ms.Tensor, out: ms.Tensor, dout: ms.Tensor) -> tuple[ms.Tensor]:
        self.scalar("scalar", dout.sum())
        self.tensor("tensor", dout + 0.0)
        self.histogram("histogram", dout + 0.0)
        self.image("image", ms.ops.expand_dims(dout, 0) + 0.0)
        return (dout,)


class OwnGradient(Net):
    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.inner = Inner(library)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        hidden = self.inner(self.hidden(x))
        return (hidden * hidden).sum()


class Forward(Net):
    """In the forward pass, of a network whose gradient is taken."""

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        hidden = self.watch(self.hidden(x))
        return (hidden * hidden).sum()


def trained(network: Net) -> Callable[[ms.Tensor], Any]:
    step = nn.TrainOneStepCell(network, nn.SGD(network.trainable_params(), 0.0))
    step.set_train()
    return step


def value_and_grad(network: Net) -> Callable[[ms.Tensor], Any]:
    return ms.value_and_grad(network, None, network.trainable_params())


def compiled(network: Net) -> Callable[[ms.Tensor], Any]:
    take = ms.value_and_grad(network, None, network.trainable_params())

    @ms.jit
    def step(x: ms.Tensor) -> Any:
        return take(x)

    return step


def of_a_function(network: Net) -> Callable[[ms.Tensor], Any]:
    def forward(x: ms.Tensor) -> ms.Tensor:
        return network(x)

    return ms.grad(forward)


PLACES: dict[str, tuple[type[Net], Callable[[Net], Callable[[ms.Tensor], Any]]]] = {
    "training": (Net, trained),
    "grad": (Net, ms.grad),
    "value_and_grad": (Net, value_and_grad),
    "compiled": (Net, compiled),
    "function": (Net, of_a_function),
    "branch": (Branch, trained),
    "branch_inside": (BranchInside, trained),
    "loop": (Loop, trained),
    "tuple": (Tuple, trained),
    "bprop": (OwnGradient, trained),
    "bprop_grad": (OwnGradient, value_and_grad),
    "forward": (Forward, trained),
    "forward_grad": (Forward, value_and_grad),
    "forward_compiled": (Forward, compiled),
}


def main(mode: str, directory: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    failed: dict[str, str] = {}
    for place, (kind, step_of) in PLACES.items():
        for name, library in (("ours", ops), ("mindspore", ms.ops)):
            with SummaryRecord(directory / f"{place}-{name}", num_process=0) as record:
                try:
                    step = step_of(kind(library))
                    for number in range(1, STEPS + 1):
                        step(ms.Tensor(np.arange(16, dtype=np.float32).reshape(1, 4, 4) * number))
                        framework.wait_for_operators()
                        record.record(number)
                except (TypeError, ValueError, RuntimeError) as error:  # those of MindSpore's compiler
                    failed[f"{place}-{name}"] = f"{type(error).__name__}: {error}"
    (directory / "failed.json").write_text(json.dumps(failed))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
