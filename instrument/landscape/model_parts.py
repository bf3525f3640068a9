"""Take apart and check what a `callback_fn` returns: the network, its loss, the samples, what metrics are given.

The samples on which every point is evaluated are taken from the dataset once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from mindspore import Parameter, Tensor, nn, train
from mindspore.dataset import Dataset
from mindspore.train import Metric, Model
from numpy.typing import NDArray

from instrument import framework
from instrument.errors import InstrumentError
from instrument.landscape.weights import BadCheckpoint, Tensors, listed

Column = NDArray[np.generic]
Batch = tuple[Column, ...]

#: Batches are put together up to this many bytes: what goes through the network at once has to fit in memory many
#: times.
_MOST_BATCH_BYTES = 8 << 20
#: A user's function: () -> model, network, dataset, metrics.
Callback = Callable[[], tuple[Model, nn.Cell, Dataset, Mapping[str, Metric] | set[str] | None]]


class EvaluationError(InstrumentError, RuntimeError):
    """The network cannot be evaluated."""


#: The loss, and what a metric takes: nothing, one output, or several.
_Passed = tuple[Tensor, Tensor | tuple[Tensor, ...] | None]


class _Loss(nn.Cell):
    """From a batch to the loss, and no output."""

    def __init__(self, backbone: nn.Cell, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # parameters keep their names
        self.backbone = backbone
        self.loss = loss

    def construct(self, data: Tensor, label: Tensor) -> _Passed:
        return self.loss(self.backbone(data), label), None


class _Pass(_Loss):
    """From a batch to the loss and what a metric takes: the network's output and the label."""

    def construct(self, data: Tensor, label: Tensor) -> _Passed:
        output = self.backbone(data)
        return self.loss(output, label), (output, label)


class _Whole(nn.Cell):
    """The loss of a network that computes it itself; no output is known."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *columns: Tensor) -> _Passed:
        return self.network(*columns), None


class _Evaluated(nn.Cell):
    """The loss of one cell, and what the user's own evaluation network gives beside it."""

    def __init__(self, cell: nn.Cell, evaluation: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.cell = cell
        self.evaluation = evaluation

    def construct(self, *columns: Tensor) -> _Passed:
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
    dataset: Dataset
    metrics: Mapping[str, Metric]
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

    def update(self, metric: Metric, output: object) -> None:
        """Give a metric what it takes of a pass, as `model.eval` does."""
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        which = None if self.evaluation is None else self.evaluation[1]
        metric.update(*(outputs if which is None else [outputs[index] for index in which]))

    @property
    def cells(self) -> list[nn.Cell]:
        """Return all cells that are put into evaluation mode."""
        return [cell for _, cell in self.cell(self.can_measure).cells_and_names()]

    @property
    def parameters(self) -> dict[str, Parameter]:
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


def _metrics(given: Mapping[str, Metric] | set[str] | None) -> dict[str, Metric]:
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


# ---------------------------------------------------------------- samples


@dataclass(frozen=True, eq=False)
class Samples:
    """Batches as the network gets them, one array a column, the first extent being samples."""

    batches: tuple[Batch, ...]

    @property
    def count(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Return the number of samples in each batch."""
        return [len(batch[0]) for batch in self.batches]

    def digest(self) -> str:
        """Return a digest that is the same for the same samples in the same order, in whatever batches."""
        states = [hashlib.sha256(str(column.dtype).encode()) for column in self.batches[0]]
        for batch in self.batches:
            for state, column in zip(states, batch, strict=True):
                state.update(column.tobytes())
        return hashlib.sha256(b"".join(state.digest() for state in states)).hexdigest()

    def joined(self) -> Samples:
        """Return the samples in as few batches as memory allows."""
        groups: list[list[Batch]] = [[]]
        size = 0
        for batch in self.batches:
            bytes_ = sum(column.nbytes for column in batch)
            if groups[-1] and size + bytes_ > _MOST_BATCH_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(batch)
            size += bytes_
        return Samples(tuple(tuple(map(np.concatenate, zip(*group, strict=True))) for group in groups))

    def arrays(self) -> dict[str, Column]:
        """Return all arrays by name, to be kept in a file."""
        return {f"{i}/{j}": column for i, batch in enumerate(self.batches) for j, column in enumerate(batch)}

    @classmethod
    def of(cls, arrays: Mapping[str, Column]) -> Samples:
        """Make samples of what `arrays` returned."""
        places = sorted(tuple(map(int, name.split("/"))) for name in arrays)
        batches: list[list[Column]] = [[] for _ in range(places[-1][0] + 1)]
        for i, j in places:
            batches[i].append(arrays[f"{i}/{j}"])
        return cls(tuple(map(tuple, batches)))


def take_samples(dataset: Dataset, count: int) -> Samples:
    """Return the first `count` samples of a dataset, or all if there are fewer, in the dataset's own batches.

    Raises:
        TypeError: it is no dataset of MindSpore's.
        ValueError: it is empty, or not batched.
    """
    if not callable(getattr(dataset, "create_tuple_iterator", None)):
        raise TypeError(
            f"callback_fn gave a {type(dataset).__name__} as dataset; expected one of mindspore.dataset, in batches."
        )
    batches: list[Batch] = []
    left = count
    for row in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True):
        columns = tuple(np.asarray(column) for column in row)
        _check_columns(columns)
        size = len(columns[0])
        batches.append(columns if size <= left else tuple(column[:left] for column in columns))
        left -= size
        if left <= 0:
            break
    if not batches or not len(batches[0][0]):
        raise ValueError("The dataset of callback_fn is empty; expected at least one batch.")
    return Samples(tuple(batches))


def _check_columns(columns: Sequence[Column]) -> None:
    lengths = {len(column) if column.ndim else -1 for column in columns}
    if len(lengths) != 1 or -1 in lengths:
        shapes = [column.shape for column in columns]
        raise ValueError(
            f"A row of callback_fn's dataset has columns of the shapes {shapes}; expected batches, whose first extent "
            "is the same in all columns: call .batch(n) on the dataset."
        )
