"""Find loss, learning rate, inputs and weights in the parameters that a callback gets.

Each function takes the callback parameters (or an optimiser) and returns named values, or raises `Uncollectable` with
the reason, which the caller logs once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import mindspore
import numpy as np
from mindspore import nn
from numpy.typing import NDArray

from instrument.collect import convert


class Dataset(Protocol):
    """A MindSpore dataset; what only some kinds have, such as `dataset_dir`, is asked for by name."""

    def get_batch_size(self) -> int: ...

    def get_dataset_size(self) -> int: ...


class CallbackParams(Protocol):
    """What MindSpore tells callbacks in every training or evaluation; `get` asks for what may be missing."""

    cur_step_num: int
    cur_epoch_num: int
    epoch_num: int
    parallel_mode: object
    device_number: int
    network: nn.Cell
    train_network: nn.Cell
    train_dataset: Dataset
    valid_dataset: Dataset


class RunContext(Protocol):
    """What MindSpore hands to the hooks of a callback."""

    def original_args(self) -> CallbackParams: ...


#: Without a regular expression, histograms of this many parameters are collected.
DEFAULT_PARAMETERS = 5


class Uncollectable(Exception):
    """What was asked for is not there, or not of a kind that can be recorded."""


def get(params: object, name: str, default: object = None) -> Any:
    """Return a callback parameter, or the default. MindSpore's parameters raise `KeyError` for what they lack."""
    try:
        value = getattr(params, name)
    except (AttributeError, KeyError):
        return default
    return default if value is None else value


def steps_between_hooks(params: CallbackParams) -> int:
    """Return how often step hooks come: in dataset sink mode, once for all steps that are sunk together."""
    if get(params, "dataset_sink_mode"):
        for name in ("sink_size", "batch_num"):
            steps = get(params, name)
            if isinstance(steps, int) and steps > 0:
                return steps
    return 1


def loss(output: object) -> float:
    """Return the loss in what a network gave: the output or its first element, the mean of a vector (as `LossMonitor`).

    A dictionary's loss is its `"loss"` entry.
    """
    if isinstance(output, Mapping):
        output = output.get("loss")
    while isinstance(output, (list, tuple)) and output:
        output = output[0]
    if not (convert.is_tensor(output) or isinstance(output, (int, float, np.ndarray, np.generic))):
        raise Uncollectable(f"the network's output is a {type(output).__name__}, in which no loss is to be found")
    if isinstance(output, np.ma.MaskedArray):
        output = output.mean()
    try:
        if getattr(output, "size", 1) == 1:
            return convert.to_scalar(output, "loss")
        array: Any = convert.to_array(output, "loss")[0]
    except (TypeError, ValueError) as error:
        raise Uncollectable(str(error)) from error
    if not array.size:
        raise Uncollectable("the network's output is empty")
    return float(np.mean(array))


def optimizer(params: CallbackParams) -> nn.Cell:
    """Return the optimiser that the model was given, or the one inside the network."""
    candidate = get(params, "optimizer")
    if candidate is None and (network := get(params, "train_network")) is not None:
        for _, cell in network.cells_and_names():
            inner = getattr(cell, "optimizer", None)
            if isinstance(cell, nn.Optimizer) or inner is not None:
                candidate = cell if isinstance(cell, nn.Optimizer) else inner
                break
    if not (hasattr(candidate, "learning_rate") or hasattr(candidate, "param_groups")):
        raise Uncollectable("no optimiser is found in the model or its network")
    return candidate


def learning_rates(opt: nn.Cell, is_initial: bool = False) -> dict[str, float]:
    """Return the learning rate of the step that has just ended, by tag; one a group if groups have their own.

    With `is_initial` the first rate of a schedule; a rate without one is what it is now.
    """
    has_groups = getattr(opt, "is_group_lr", None)  # first: a cell takes long to say that it lacks an attribute
    if has_groups:
        rates = list({id(rate): rate for rate in opt.group_lr}.values())  # each parameter holds its group's object
    elif has_groups is None and hasattr(opt, "param_groups"):
        rates = [group["lr"] for group in opt.param_groups]
    else:
        rates = [opt.learning_rate]
    values = [_rate_at(rate, opt, is_initial) for rate in rates]
    if len(values) == 1:
        return {"learning_rate/auto": values[0]}
    return {f"learning_rate/group{index}/auto": value for index, value in enumerate(values)}


def _rate_at(rate: object, opt: nn.Cell, is_initial: bool) -> float:
    if isinstance(rate, nn.Cell):
        # A dynamic rate was computed from the global step before the optimiser counted it up.
        has_step = hasattr(opt, "global_step") and not is_initial
        step = max(int(opt.global_step.asnumpy()[0]) - 1, 0) if has_step else 0
        table = getattr(rate, "learning_rate", None)
        # MindSpore's own cell around a list of rates, one a step, or around a constant among dynamic groups.
        if isinstance(table, mindspore.Parameter) and type(rate).__module__.startswith("mindspore."):
            values = np.atleast_1d(table.asnumpy())
            return float(values[min(step, values.size - 1)])
        if next(iter(rate.get_parameters()), None) is not None:
            raise Uncollectable("its schedule has parameters, which computing it once more could change")
        # `construct` itself runs operator by operator: no graph is compiled for a number.
        rate = rate.construct(mindspore.Tensor([step], mindspore.int32))
    try:
        return convert.to_scalar(rate, "learning_rate")
    except (TypeError, ValueError) as error:
        raise Uncollectable(str(error)) from error


def input_images(params: CallbackParams) -> mindspore.Tensor | NDArray[np.generic]:
    """Return the first column of the batch that the step was given."""
    element = get(params, "train_dataset_element")
    if isinstance(element, Mapping):
        element = list(element.values())
    if isinstance(element, (list, tuple)):
        element = element[0] if element else None
    if not (convert.is_tensor(element) or isinstance(element, np.ndarray)):
        reason = "the data goes to the device directly in sink mode" if element is None else "it is no tensor"
        raise Uncollectable(f"the network's input is not at hand: {reason}")
    return element


def weights(opt: nn.Cell, pattern: re.Pattern[str] | None) -> Iterator[tuple[str, mindspore.Parameter]]:
    """Yield tag and tensor of the parameters whose name `pattern` matches at its start, or of the first five."""
    parameters = list(opt.parameters)
    if pattern is None:
        chosen = parameters[:DEFAULT_PARAMETERS]
    else:
        chosen = [parameter for parameter in parameters if pattern.match(parameter.name)]
        if not chosen:
            raise Uncollectable(f"no parameter of the optimiser has a name that {pattern.pattern!r} matches")
    for parameter in chosen:
        yield f"{parameter.name}/auto", parameter


def metrics(params: CallbackParams) -> dict[str, object]:
    """Return the metrics of the evaluation that has just ended, by name."""
    results = get(params, "metrics")
    if not isinstance(results, Mapping):
        raise Uncollectable("the evaluation gave no metrics")
    return dict(results)


def innermost_network(network: nn.Cell) -> nn.Cell:
    """Return the user's network inside the cells that train it (loss, optimiser, scaling)."""
    for _, cell in network.cells_and_names():
        if hasattr(cell, "_backbone"):
            network = cell._backbone
            break
    while "network" in network.name_cells():
        network = network.network
    return network
