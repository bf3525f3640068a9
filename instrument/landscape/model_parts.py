"""Take apart and check what a `callback_fn` returns: the network, its loss, and what metrics are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import mindspore
from mindspore import nn, train

from instrument import framework
from instrument.errors import InstrumentError
from instrument.landscape.weights import BadCheckpoint, Tensors, listed

#: A user's function: () -> model, network, dataset, metrics.
Callback = Callable[[], Any]


class EvaluationError(InstrumentError, RuntimeError):
    """The network cannot be evaluated."""


#: What a network raises that does not fit its samples or its form; also inside a graph that is compiled.
NETWORK_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip


class _Loss(nn.Cell):
    """From a batch to the loss, and no output."""

    def __init__(self, backbone: nn.Cell, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # parameters keep their names
        self.backbone = backbone
        self.loss = loss

    def construct(self, data: object, label: object) -> Any:
        return self.loss(self.backbone(data), label), None


class _Pass(_Loss):
    """From a batch to the loss and what a metric takes: the network's output and the label."""

    def construct(self, data: object, label: object) -> Any:
        output = self.backbone(data)
        return self.loss(output, label), (output, label)


class _Whole(nn.Cell):
    """The loss of a network that computes it itself; no output is known."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *columns: object) -> Any:
        return self.network(*columns), None


class _Evaluated(nn.Cell):
    """The loss of one cell, and what the user's own evaluation network gives beside it."""

    def __init__(self, cell: nn.Cell, evaluation: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.cell = cell
        self.evaluation = evaluation

    def construct(self, *columns: object) -> Any:
        return self.cell(*columns)[0], self.evaluation(*columns)


@dataclass(frozen=True)
class Parts:
    """What a `callback_fn` gave, taken apart.

    `loss` is None where the network computes its loss itself. `evaluation` is the model's own evaluation network and
    which of its outputs are prediction and label (None: a metric takes all), where it has one.
    """

    network: nn.Cell
    backbone: nn.Cell
    loss: nn.Cell | None
    dataset: Any
    metrics: Mapping[str, Any]
    evaluation: tuple[nn.Cell, tuple[int, int] | None] | None = None

    @property
    def can_measure(self) -> bool:
        """Return True if there is an output for metrics."""
        return self.loss is not None or self.evaluation is not None

    def cell(self, with_output: bool) -> nn.Cell:
        """Make a cell: a batch -> the loss, and a tuple that metrics take, or None.

        It is a new one each time, as MindSpore keeps what it compiled with the cell.
        """
        cell = _Whole(self.backbone) if self.loss is None else _Loss(self.backbone, self.loss)
        if not with_output:
            return cell
        return _Pass(self.backbone, self.loss) if self.evaluation is None else _Evaluated(cell, self.evaluation[0])

    def update(self, metric: train.Metric, output: object) -> None:
        """Give a metric what it takes of a pass, as `model.eval` does."""
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        which = None if self.evaluation is None else self.evaluation[1]
        metric.update(*(outputs if which is None else [outputs[index] for index in which]))

    @property
    def cells(self) -> list[nn.Cell]:
        """Return all cells that are put into evaluation mode."""
        return [cell for _, cell in self.cell(self.can_measure).cells_and_names()]

    @property
    def parameters(self) -> dict[str, mindspore.Parameter]:
        """Return all parameters of the network by name."""
        return {parameter.name: parameter for parameter in self.network.get_parameters()}


def parts_of(returned: object) -> Parts:
    """Check and take apart what `callback_fn` returned: model, network, dataset, metrics.

    The loss is that of `model.train_network` inside the cells that train: an optimiser is never run.

    Raises:
        TypeError, ValueError: it is something else, or the network is not the model's.
    """
    if not isinstance(returned, tuple) or len(returned) != 4:
        kind = f"{len(returned)} things" if isinstance(returned, tuple) else f"a {type(returned).__name__}"
        raise TypeError(f"callback_fn gave {kind}; expected (model, network, dataset, metrics).")
    model, network, dataset, metrics = returned
    if not isinstance(network, nn.Cell) or not isinstance(getattr(model, "train_network", None), nn.Cell):
        raise TypeError(
            f"callback_fn gave a {type(model).__name__} and a {type(network).__name__} first; expected a "
            "mindspore.train.Model and the network (nn.Cell) inside it."
        )
    if metrics is not None and not isinstance(metrics, (Mapping, set)):
        raise TypeError(f"callback_fn gave a {type(metrics).__name__} as metrics; expected a dictionary by name.")
    cell = _without_training(model.train_network)
    backbone, loss = getattr(cell, "_backbone", cell), getattr(cell, "_loss_fn", None)
    if not set(map(id, network.get_parameters())) & set(map(id, cell.get_parameters())):
        raise ValueError(
            "callback_fn gave a network that is not part of its model: the weights put into it would change nothing. "
            "Return the network that the Model was made with."
        )
    return Parts(network, backbone, loss, dataset, _metrics(metrics), framework.evaluation_of(model))


def _metrics(given: Any) -> dict[str, Any]:
    """Return metrics by name, of a dictionary or of a set of names that MindSpore knows."""
    if isinstance(given, Mapping):
        return dict(given)
    return {str(name): train.get_metric_fn(name) for name in given or ()}


def _without_training(cell: nn.Cell) -> nn.Cell:
    """Return the cell that computes the loss, inside those that give it to an optimiser."""
    while getattr(cell, "optimizer", None) is not None and isinstance(getattr(cell, "network", None), nn.Cell):
        cell = cell.network
    return cell


def check_names(parts: Parts, tensors: Tensors, number: int, unit: str) -> list[str]:
    """Return the names that a checkpoint has beside those of the network's parameters.

    Raises:
        BadCheckpoint: it lacks a parameter of the network, or has it in another shape.
    """
    parameters = parts.parameters
    missing = sorted(set(parameters) - set(tensors))
    extra = sorted(set(tensors) - set(parameters))
    where = f"The network of callback_fn and the checkpoint of {unit} {number} do not fit"
    if missing:
        others = f"; it has {listed(extra)} instead" if extra else ""
        raise BadCheckpoint(f"{where}: the checkpoint has no {listed(missing)}{others}.")
    for name, parameter in parameters.items():
        if tuple(parameter.shape) != tuple(tensors[name].shape):
            raise BadCheckpoint(f"{where}: {name} has shape {tuple(parameter.shape)} and {tensors[name].shape}.")
    return extra


def prepare(callback: Callback) -> Parts:
    """Call the user's function and check what it returns."""
    if not callable(callback):
        raise TypeError(f"callback_fn is a {type(callback).__name__}; expected a function without arguments.")
    return parts_of(callback())


def checked_metrics(parts: Parts, wanted: object) -> list[str]:
    """Return the names of the metrics that are computed beside the loss; None asks for none.

    Raises:
        TypeError, ValueError: there is no such metric, or it needs the output of a network that gives its loss only.
    """
    if wanted is None:
        return []
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise TypeError(f"metrics is {wanted!r}; expected names of metrics that callback_fn gives, in a list.")
    names = list(dict.fromkeys(str(name) for name in wanted))
    unknown = [name for name in names if name not in parts.metrics]
    if unknown:
        raise ValueError(f"metrics has {unknown}; callback_fn gives those of the names {sorted(parts.metrics)}.")
    names = [name for name in names if not isinstance(parts.metrics[name], train.Loss)]
    if names and not parts.can_measure:
        raise ValueError(
            f"metrics has {names}, which need the network's output; the model of callback_fn computes its loss itself. "
            "Give the Model a network and a loss_fn, or an eval_network beside, or ask for no metrics."
        )
    return names
