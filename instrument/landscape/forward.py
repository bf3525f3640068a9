"""Evaluate the loss: put weights into the user's network, run it over the samples, and leave no trace behind.

Beside the network as the user made it there are quicker forms of the same computation: compiled as a graph, all samples
in one batch, convolutions as matrix products. Which one is taken is tried out with two sets of weights; a form whose
losses differ from the plain ones, or that fails, is not taken.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops, train
from numpy.typing import NDArray

from instrument import framework
from instrument.collect import ops as summary_operators
from instrument.collect.convert import to_array
from instrument.landscape.im2col import convolutions, first_convolution, im2col, with_columns, with_im2col
from instrument.landscape.model_parts import Batch, EvaluationError, Parts, Samples
from instrument.landscape.weights import Tensors

log = logging.getLogger("instrument")

#: A quicker form is right when its losses are those of the plain one, but for rounding.
_SAME_LOSS = 1e-5
#: For so much memory the windows of all samples are kept: for a kernel of 5 x 5, 25 times the samples.
_MOST_WINDOW_BYTES = 256 << 20


@dataclass(frozen=True)
class Form:
    """How the loss is computed: compiled as a graph, with the samples in few batches, without convolutions, and with
    the windows of the first of these laid out once."""

    graph: bool
    joined: bool
    unfold: bool
    early: bool = False


class Forward:
    """Evaluate the loss of a network at given weights. To be closed; a `with` block does it.

    While it is open the network holds other weights than it came with, and is in evaluation mode; afterwards all is as
    it was, bit for bit.

    Args:
        parts: of the user's `callback_fn`.
        samples: on which every point is evaluated.
        metrics: further values, by name, of the same pass.
    """

    def __init__(self, parts: Parts, samples: Samples, metrics: Mapping[str, train.Metric]) -> None:
        self.parts = parts
        self.parameters = parts.parameters
        self._metrics = dict(metrics)
        self._samples = samples
        self._stack = ExitStack()
        self._stack.enter_context(summary_operators.ignored())
        self._stack.enter_context(_kept(parts, self.parameters))
        self._form_stack = self._stack.enter_context(ExitStack())
        self._cell: nn.Cell | None = None
        self._gradient_cell: _Gradient | None = None
        self._batches: list[tuple[Tensor, ...]] = []
        self._sizes: list[int] = []

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()
        self._cell, self._gradient_cell, self._batches = None, None, []

    # ------------------------------------------------------------------ weights and losses

    def own(self, tensors: Tensors) -> Tensors:
        """Return the tensors that are parameters of the network; a checkpoint may hold the optimiser's beside them."""
        return {name: values for name, values in tensors.items() if name in self.parameters}

    def put(self, tensors: Tensors) -> None:
        """Set parameters by name; they are cast to the parameter's own type."""
        for name, values in tensors.items():
            parameter = self.parameters[name]
            # A copy of MindSpore's own: memory that is aligned otherwise could round otherwise.
            parameter.set_data(Tensor(np.ascontiguousarray(values), parameter.dtype))

    def values(self) -> NDArray[np.float64]:
        """Return loss and metrics (1 + metrics,) with the weights as they are, means over the samples."""
        assert self._cell is not None, "use() or choose() comes first"
        total = 0.0
        for metric in self._metrics.values():
            metric.clear()
        for batch, size in zip(self._batches, self._sizes, strict=True):
            loss, output = self._cell(*batch)
            total += float(np.mean(loss.asnumpy().astype(np.float64))) * size
            for metric in self._metrics.values():
                self.parts.update(metric, output)
        return np.array([total / sum(self._sizes), *(_number(*metric) for metric in self._metrics.items())])

    # ------------------------------------------------------------------ forms

    def use(self, form: Form) -> None:
        """Compute the loss this way from now on."""
        self._form_stack.close()
        first = self._first_convolution() if form.early else None
        if form.graph:
            self._form_stack.enter_context(_graph_mode())
        if form.unfold:
            self._form_stack.enter_context(with_im2col(self.parts.network))
        samples = self._samples.joined() if form.joined else self._samples
        batches = self._laid_out(first, samples.batches) if form.early else samples.batches
        self._sizes = samples.sizes
        self._batches = [tuple(map(Tensor, batch)) for batch in batches]
        self._cell = self.parts.cell(with_output=bool(self._metrics))
        self._cell.set_train(False)
        self._gradient_cell = None

    def _first_convolution(self) -> nn.Conv2d | None:
        """Return the convolution that is given the samples as they are, or None."""
        batch = tuple(column[:1] for column in self._samples.batches[0])
        cell = self.parts.cell(with_output=False)
        return first_convolution(self.parts.network, lambda: cell(*map(Tensor, batch)), batch[0])

    def _laid_out(self, cell: nn.Conv2d | None, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return the batches with windows instead of samples, and let the convolution take them."""
        if cell is None:
            raise EvaluationError("The network does not give the samples to a convolution as they are.")
        laid_out = [im2col(cell, batch[0]) for batch in batches]
        self._form_stack.enter_context(with_columns(cell, laid_out[0][1]))
        return [(windows, *batch[1:]) for (windows, _), batch in zip(laid_out, batches, strict=True)]

    def _can_lay_out(self) -> bool:
        """Return True if there is a convolution of the samples themselves, and memory for all windows."""
        self._form_stack.close()
        cell = self._first_convolution()
        if cell is None:
            return False
        batch = self._samples.batches[0][0]
        return im2col(cell, batch[:1])[0].nbytes * self._samples.count <= _MOST_WINDOW_BYTES

    def choose(self, allow_unfold: bool, places: Sequence[Tensors]) -> tuple[Form, float]:
        """Use the quickest form whose losses at all `places` are those of the plain one.

        Returns:
            The form, and the largest relative difference of its losses from the plain ones.
        """
        is_graph = mindspore.get_context("mode") == mindspore.GRAPH_MODE
        plain = Form(is_graph, False, False)
        try:
            wanted = self._losses(plain, places)
        except framework.OPERATOR_ERRORS:
            if is_graph:
                raise
            plain = Form(True, False, False)  # MindSpore 2.10 on NumPy 2 fails at some operators outside of graphs
            wanted = self._losses(plain, places)
        can_unfold = (
            allow_unfold and mindspore.get_context("device_target") == "CPU" and bool(convolutions(self.parts.network))
        )
        forms = [Form(True, True, can_unfold), Form(True, True, False), Form(True, False, False)]
        if can_unfold and self._can_lay_out():
            forms.insert(0, Form(True, True, True, early=True))
        for form in dict.fromkeys(forms):
            try:
                losses = self._losses(form, places)
            except framework.OPERATOR_ERRORS as error:  # the plain form has worked; this one is only quicker
                log.debug("The form %s cannot be taken: %s", form, error)
                continue
            difference = _difference(losses, wanted)
            if difference <= _SAME_LOSS:
                return form, difference
            log.info("The form %s is not taken: its losses differ by %.1e.", form, difference)
        self.use(plain)
        return plain, 0.0

    def _losses(self, form: Form, places: Sequence[Tensors]) -> list[float]:
        self.use(form)
        result = []
        for place in places:
            self.put(place)
            result.append(float(self.values()[0]))
        return result

    # ------------------------------------------------------------------ gradients

    def gradient(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return the gradient (P,) of the mean loss by these parameters, in their order."""
        if self._gradient_cell is None or self._gradient_cell.names != list(names):
            self._gradient_cell = _Gradient(self._cell, [self.parameters[name] for name in names])
        total: NDArray[np.float64] = np.zeros(0)
        for batch, size in zip(self._batches, self._sizes, strict=True):
            gradients = self._gradient_cell(*batch)
            flat = np.concatenate([tensor.asnumpy().reshape(-1).astype(np.float64) for tensor in gradients]) * size
            total = flat if not total.size else total + flat
        return total / sum(self._sizes)


class _First(nn.Cell):
    def __init__(self, cell: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.cell = cell

    def construct(self, *columns: Tensor) -> Tensor:
        return self.cell(*columns)[0]


class _Gradient(nn.Cell):
    def __init__(self, cell: nn.Cell, parameters: Sequence[Parameter]) -> None:
        super().__init__(auto_prefix=False)
        self.names = [parameter.name for parameter in parameters]  # one cell is compiled once
        self.cell = _First(cell)
        self.weights = mindspore.ParameterTuple(parameters)
        self.operator = ops.GradOperation(get_by_list=True)

    def construct(self, *columns: Tensor) -> tuple[Tensor, ...]:
        return self.operator(self.cell, self.weights)(*columns)  # type: ignore[no-any-return]


def _number(name: str, metric: train.Metric) -> float:
    """Return the value of a metric.

    Raises:
        EvaluationError: it is not one number.
    """
    value = metric.eval()
    if np.ndim(value) != 0 or isinstance(value, (dict, str)):
        kind = f"a {type(value).__name__}" + (f" of shape {np.shape(value)}" if np.ndim(value) else "")
        raise EvaluationError(
            f"The metric {name!r} gives {kind}; expected one number. Leave it out of metrics, or take one that is "
            "averaged."
        )
    return float(value)


def _difference(losses: Sequence[float], wanted: Sequence[float]) -> float:
    gaps = [
        0.0 if a == b or (np.isnan(a) and np.isnan(b)) else abs(a - b) / max(abs(b), 1e-12)
        for a, b in zip(losses, wanted, strict=True)
    ]
    return max(gaps, default=0.0)


@contextmanager
def _graph_mode() -> Iterator[None]:
    before = mindspore.get_context("mode")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    try:
        yield
    finally:
        mindspore.set_context(mode=before)


@contextmanager
def _kept(parts: Parts, parameters: Mapping[str, Parameter]) -> Iterator[None]:
    """Give the network its parameters, and all cells their mode, back after the block."""
    before = {name: to_array(parameter, name)[0].copy() for name, parameter in parameters.items()}
    modes = [(cell, cell.training) for cell in [*parts.cells, *dict(parts.network.cells_and_names()).values()]]
    try:
        yield
    finally:
        for name, values in before.items():
            parameters[name].set_data(Tensor(values, parameters[name].dtype))
        for cell, mode in modes:
            cell.training = mode
