"""Train, evaluation, dataset-graph and custom lineage as serialised messages of MindSpore's lineage proto."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import mindspore.dataset
import numpy as np
from mindspore import nn
from mindspore.nn.loss.loss import LossBase
from mindspore.train import ModelCheckpoint

from instrument.codec.lineage import CustomValue, encode_session_end
from instrument.codec.message import Element, Value
from instrument.codec.schema import MINDSPORE
from instrument.collect import convert, sources
from instrument.collect.sources import CallbackParams, Dataset
from instrument.values import SESSION_END, Event, MessageItem
from instrument.write.sink import Sink

log = logging.getLogger("instrument")

HYPER_CONFIG_VARIABLE = "MINDINSIGHT_HYPER_CONFIG"
#: A longer variable is no configuration; MindSpore's limit.
HYPER_CONFIG_LIMIT = 100_000

_IN_VARIABLE = f"{HYPER_CONFIG_VARIABLE}'s custom_lineage_data"
_INT32 = range(-(2**31), 2**31)


def _int32(number: int | None) -> int | None:
    """Return a number clipped to what the schema's int32 holds."""
    return None if number is None else min(max(number, _INT32[0]), _INT32[-1])


def _valid(text: str) -> str:
    """Return a text as a file can hold it: a path that is not UTF-8 has surrogates, which are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def train(
    params: CallbackParams,
    loss: float | None,
    opt: nn.Cell | None,
    initial_rate: float | None = None,
    last_rate: float | None = None,
) -> MessageItem:
    """Describe where the trained model comes from.

    `loss` and `last_rate`, the learning rate, are those of the last step; None while there is none. `opt` is the
    optimiser; None where there is none. `initial_rate` is the rate that it began with, if that is not to be asked for.
    """
    if initial_rate is None and opt is not None:
        initial_rate = first_rate(opt, is_initial=True)
    checkpoint = _checkpoint(params)
    batch_size = _batch_size(params.train_dataset)
    data = MINDSPORE.type("TrainLineage").encode(
        hyper_parameters={
            "optimizer": type(opt).__name__ if opt is not None else None,
            "learning_rate": initial_rate,
            "loss_function": _loss_function(params),
            "epoch": _int32(params.epoch_num),
            "parallel_mode": str(params.parallel_mode),
            "device_num": _int32(params.device_number),
            "batch_size": _int32(batch_size),
        },
        train_dataset={
            "train_dataset_path": _dataset_path(params.train_dataset),
            "train_dataset_size": _dataset_size(params.train_dataset, batch_size),
        },
        algorithm={"network": type(params.network).__name__, "loss": loss},
        # The path is a JSON object in MindSpore's files; null while no checkpoint was saved.
        model={
            "path": json.dumps({"ckpt": checkpoint}),
            "size": os.path.getsize(checkpoint) if checkpoint else 0,
        },
        last_learning_rate=last_rate,
    )
    return MessageItem("train_lineage", "train_lineage", data)


def evaluation(params: CallbackParams) -> MessageItem:
    """Describe what an evaluation measured, and on what."""
    dataset = params.valid_dataset
    data = MINDSPORE.type("EvaluationLineage").encode(
        metric=json.dumps({str(name): plain(value) for name, value in sources.metrics(params).items()}),
        valid_dataset={
            "valid_dataset_path": _dataset_path(dataset),
            "valid_dataset_size": _dataset_size(dataset, _batch_size(dataset)),
        },
    )
    return MessageItem("eval_lineage", "eval_lineage", data)


def plain(value: object) -> object:
    """Return a metric as JSON has it: numbers, lists and dictionaries of them; anything else as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if convert.is_tensor(value) or isinstance(value, (np.ndarray, np.generic)):
        try:
            return convert.to_array(value, "metric")[0].tolist()
        except TypeError:
            return str(value)
    return value if isinstance(value, (str, bool, int, float, type(None))) else str(value)


def first_rate(opt: nn.Cell, is_initial: bool = False) -> float | None:
    """Return the learning rate, of the first group where there are several; None where it cannot be computed."""
    try:
        return next(iter(sources.learning_rates(opt, is_initial).values()))
    except sources.Uncollectable:
        return None


def _loss_function(params: CallbackParams) -> str | None:
    if (loss_fn := sources.get(params, "loss_fn")) is not None:
        return type(loss_fn).__name__
    for _, cell in params.train_network.cells_and_names():
        if isinstance(cell, LossBase):
            return type(cell).__name__
    return None


def _checkpoint(params: CallbackParams) -> str | None:
    """Return the newest file of the last `ModelCheckpoint` among the callbacks."""
    path = ""
    for callback in sources.get(params, "list_callback", ()):
        if isinstance(callback, ModelCheckpoint):
            path = callback.latest_ckpt_file_name
    return os.path.realpath(path) if path and os.path.exists(path) else None


def _batch_size(dataset: Dataset) -> int:
    return int(dataset.get_batch_size())


def _dataset_size(dataset: Dataset, batch_size: int) -> int | None:
    return _int32(int(dataset.get_dataset_size()) * batch_size)


def _dataset_path(dataset: Dataset) -> str | None:
    """Return the directory that the data was read from, of the first source that has one, as a file can hold it."""
    for attribute in ("dataset_dir", "dataset_files", "dataset_file"):
        path = getattr(dataset, attribute, None)
        if path and not isinstance(path, str):
            path = next(iter(path))
        if path:
            return _valid(os.path.dirname(path) if os.path.isfile(path) else str(path))
    for child in getattr(dataset, "children", ()):
        if (path := _dataset_path(child)) is not None:
            return path
    return None


# ---------------------------------------------------------------- the dataset graph


def dataset_graph(dataset: Dataset) -> MessageItem:
    """Describe the pipeline of a dataset: sources, transforms and their parameters.

    Raises:
        Uncollectable: MindSpore cannot serialise the dataset.
    """
    try:
        tree = mindspore.dataset.serialize(dataset)
    except Exception as error:  # whatever a user's Python transforms raise when MindSpore looks into them
        raise sources.Uncollectable(f"MindSpore cannot describe the dataset: {error}") from error
    data = MINDSPORE.type("DatasetGraph").encode(**_dataset(tree))
    return MessageItem("dataset_graph", "dataset_graph", data)


def _dataset(tree: Mapping[str, Any]) -> dict[str, Value]:
    """Return the fields of a `DatasetGraph`."""
    operations: list[Element] = []
    sampler: Value = None
    others: dict[str, object] = {}
    for key, value in tree.items():
        if key == "operations" and value:
            operations += [_operation(operation or {}) for operation in value]
        elif key == "sampler" and value:
            sampler = _operation(value)
        elif key != "children":
            others[key] = value
    children: list[Element] = [_dataset(child) for child in tree.get("children") or () if child]
    return {"children": children, "parameter": _parameters(others), "operations": operations, "sampler": sampler}


def _operation(operation: Mapping[str, Any]) -> dict[str, Value]:
    """Return the fields of an `Operation`."""
    size: list[Element] = []
    weights: list[Element] = []
    others: dict[str, object] = {}
    for key, value in operation.items():
        if isinstance(value, (list, tuple)) and value and all(map(_is_int, value)):
            size += map(int, value)
        elif isinstance(value, (list, tuple)) and value and all(map(_is_weight, value)):
            weights += map(float, value)
        else:
            others[key] = value
    return {"operationParam": _parameters(others), "size": size, "weights": weights}


def _is_weight(value: object) -> bool:
    return isinstance(value, Real) and _fits_double(value)


def _is_int(value: object) -> bool:
    return isinstance(value, Integral) and int(value) in _INT32


def _parameters(values: Mapping[str, object]) -> dict[str, Value] | None:
    """Return the fields of an `OperationParameter`, the entries of each map in the order of their keys."""
    maps: dict[str, dict[str, Element]] = {}
    for key, value in values.items():
        name, element = _parameter(value)
        maps.setdefault(name, {})[_valid(key)] = element
    names = ("mapStr", "mapStrList", "mapBool", "mapInt", "mapDouble")
    return {name: dict(sorted(maps[name].items())) for name in names if name in maps} or None


def _parameter(value: object) -> tuple[str, Element]:
    """Return the map that holds a parameter, and what stands for it there."""
    if isinstance(value, bool):
        return "mapBool", value
    if isinstance(value, Integral) and int(value) in _INT32:
        return "mapInt", int(value)
    if isinstance(value, Real) and _fits_double(value):
        return "mapDouble", float(value)
    if isinstance(value, (list, tuple)):
        return "mapStrList", {"strValue": ["" if element is None else _json(element) for element in value]}
    return "mapStr", _json(value) if isinstance(value, Mapping) else _valid(str(value))


def _fits_double(value: Real) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _json(value: object) -> str:
    return json.dumps(value, default=str)


# ---------------------------------------------------------------- custom lineage


def check_custom(values: object, name: str) -> dict[str, CustomValue]:
    """Return a user's own lineage: text keys; text, int or float values (NumPy's too).

    Raises:
        TypeError: anything else.
        ValueError: a key or a text is no valid Unicode, which no file can hold.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} is a {type(values).__name__}; expected a dictionary or None.")
    return dict(_check_entry(key, value, name) for key, value in values.items())


def _check_entry(key: object, value: object, name: str) -> tuple[str, CustomValue]:
    if not isinstance(key, str):
        raise TypeError(f"{name} has the key {key!r} of type {type(key).__name__}; expected str.")
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"{name}[{key!r}] is a {type(value).__name__}; expected str, int or float.")
    for text in (key, value):
        if isinstance(text, str) and _valid(text) != text:
            raise ValueError(
                f"{name}[{key!r}] holds {text!r}, which is no valid Unicode; expected text that UTF-8 has."
            )
    return str.__str__(key), value


def from_environment() -> dict[str, CustomValue]:
    """Return the custom lineage that a tuner hands over in `MINDINSIGHT_HYPER_CONFIG`.

    What is wrong with the variable is logged: the user who started training did not write it.
    """
    text = os.environ.get(HYPER_CONFIG_VARIABLE)
    if not text:
        return {}
    if len(text) > HYPER_CONFIG_LIMIT:
        log.warning("%s has %d characters, at most %d are read.", HYPER_CONFIG_VARIABLE, len(text), HYPER_CONFIG_LIMIT)
        return {}
    try:
        config = json.loads(text)
        values = config.get("custom_lineage_data") if isinstance(config, dict) else None
        if not isinstance(values, dict):
            return check_custom(values, _IN_VARIABLE) if values is not None else {}
    except (ValueError, TypeError) as error:
        log.warning("%s is not used: %s", HYPER_CONFIG_VARIABLE, error)
        return {}
    result: dict[str, CustomValue] = {}
    for key, value in values.items():
        try:
            result.update([_check_entry(key, value, _IN_VARIABLE)])
        except (ValueError, TypeError) as error:
            log.warning("One entry of %s is not used: %s", HYPER_CONFIG_VARIABLE, error)
    return result


# ---------------------------------------------------------------- TensorBoard's page of hyper-parameters

_STARTS = frozenset({"train_lineage", "custom_lineage_data"})


class HparamsSession:
    """Note whether a recorder writes hyper-parameters, and tell TensorBoard's page of them how the run ended."""

    def __init__(self) -> None:
        self._step = 0
        self._has_begun = False

    def note(self, event: Event) -> None:
        """Look at an event that is written."""
        self._step = event.step
        self._has_begun = self._has_begun or any(item.kind in _STARTS for item in event.items)

    def end(self, sink: Sink, is_success: bool) -> None:
        """Write the session's end, once, if there were hyper-parameters."""
        if self._has_begun:
            self._has_begun = False
            now = time.time()
            item = MessageItem(SESSION_END, "", encode_session_end(is_success, now))
            sink.write(Event(self._step, now, [item]))
