"""What a `callback_fn` gives, taken apart and checked: the network, its loss, and what metrics are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mindspore import nn, train

from instrument import framework
from instrument.errors import InstrumentError
from instrument.landscape.weights import BadCheckpoint, Tensors, listed


class EvaluationError(InstrumentError, RuntimeError):
    """The network cannot be evaluated."""


class _Loss(nn.Cell):
    """From a batch to the loss, and no output."""

    def __init__(self, backbone: Any, loss: Any) -> None:
        super().__init__(auto_prefix=False)  # parameters keep their names
        self.backbone = backbone
        self.loss = loss

    def construct(self, data: Any, label: Any) -> Any:
        return self.loss(self.backbone(data), label), None


class _Pass(_Loss):
    """From a batch to the loss and what a metric takes: the network's output and the label."""

    def construct(self, data: Any, label: Any) -> Any:
        output = self.backbone(data)
        return self.loss(output, label), (output, label)


class _Whole(nn.Cell):
    """The loss of a network that computes it itself; no output is known."""

    def __init__(self, network: Any) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *columns: Any) -> Any:
        return self.network(*columns), None


class _Evaluated(nn.Cell):
    """The loss of one cell, and what the user's own evaluation network gives beside it."""

    def __init__(self, cell: Any, evaluation: Any) -> None:
        super().__init__(auto_prefix=False)
        self.cell = cell
        self.evaluation = evaluation

    def construct(self, *columns: Any) -> Any:
        return self.cell(*columns)[0], self.evaluation(*columns)


@dataclass(frozen=True)
class Parts:
    """What a `callback_fn` gave, taken apart.

    `loss` is None where the network computes its loss itself. `evaluation` is the model's own evaluation network and
    which of its outputs are prediction and label (None: a metric takes all), where it has one.
    """

    network: Any
    backbone: Any
    loss: Any
    dataset: Any
    metrics: Mapping[str, Any]
    evaluation: tuple[Any, tuple[int, int] | None] | None = None

    @property
    def can_measure(self) -> bool:
        """Whether metrics have something to be computed from."""
        return self.loss is not None or self.evaluation is not None

    def cell(self, with_output: bool) -> Any:
        """A new cell, for MindSpore keeps what it compiled with the cell: from a batch to the loss and a tuple that
        metrics take, or None."""
        cell = _Whole(self.backbone) if self.loss is None else _Loss(self.backbone, self.loss)
        if not with_output:
            return cell
        return _Pass(self.backbone, self.loss) if self.evaluation is None else _Evaluated(cell, self.evaluation[0])

    def update(self, metric: Any, output: Any) -> None:
        """Give a metric what it takes of a pass, as `model.eval` does."""
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        which = None if self.evaluation is None else self.evaluation[1]
        metric.update(*(outputs if which is None else [outputs[index] for index in which]))

    @property
    def cells(self) -> list[Any]:
        """All that are put into evaluation mode."""
        return [cell for _, cell in self.cell(self.can_measure).cells_and_names()]

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters of the network by name."""
        return {parameter.name: parameter for parameter in self.network.get_parameters()}


def parts_of(answer: Any) -> Parts:
    """Check and take apart what `callback_fn` returned: model, network, dataset, metrics.

    The loss is that of `model.train_network` inside the cells that train: an optimiser is never run.

    Raises:
        TypeError, ValueError: it is something else, or the network is not the model's.
    """
    if not isinstance(answer, tuple) or len(answer) != 4:
        found = f"{len(answer)} things" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        raise TypeError(f"callback_fn gave {found}; expected (model, network, dataset, metrics).")
    model, network, dataset, metrics = answer
    if not isinstance(network, nn.Cell) or not isinstance(getattr(model, "train_network", None), nn.Cell):
        raise TypeError(
            f"callback_fn gave a {type(model).__name__} and a {type(network).__name__} first; expected a "
            "mindspore.train.Model and the network (nn.Cell) inside it."
        )
    if metrics is not None and not isinstance(metrics, (Mapping, set)):
        raise TypeError(f"callback_fn gave a {type(metrics).__name__} as metrics; expected a dictionary by name.")
    cell = _without_training(model.train_network)
    backbone, loss = getattr(cell, "_backbone", cell), getattr(cell, "_loss_fn", None)
    if not {id(one) for one in network.get_parameters()} & {id(one) for one in cell.get_parameters()}:
        raise ValueError(
            "callback_fn gave a network that is not part of its model: the weights put into it would change nothing. "
            "Return the network that the Model was made with."
        )
    return Parts(network, backbone, loss, dataset, _metrics(metrics), framework.evaluation_of(model))


def _metrics(given: Any) -> dict[str, Any]:
    """By name, of a dictionary or of a set of names that MindSpore knows."""
    if isinstance(given, Mapping):
        return dict(given)
    return {str(name): train.get_metric_fn(name) for name in given or ()}


def _without_training(cell: Any) -> Any:
    """The cell that gives the loss, inside those that give it to an optimiser."""
    while getattr(cell, "optimizer", None) is not None and isinstance(getattr(cell, "network", None), nn.Cell):
        cell = cell.network
    return cell


def check_names(parts: Parts, tensors: Tensors, number: int, unit: str) -> list[str]:
    """Whether a checkpoint has each of the network's parameters, in its shape; what it has beside them.

    Raises:
        BadCheckpoint: it has not.
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
