"""Lineage in TensorBoard's dialect: hyper-parameters for its page of them, metrics as scalars, and all of it as texts.

There is no `_hparams_/experiment`: TensorBoard takes the first that it finds for all runs, and puts one together by
itself, of the hyper-parameters and scalars of every run, where there is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from instrument.codec import lineage as codec
from instrument.codec import tensorboard as tb
from instrument.codec import wire
from instrument.codec.scalar import to_float32
from instrument.errors import CorruptMessage
from instrument.values import Lineage

#: Facts by name, under the sections train, eval, dataset, custom and hparams.
Sections = Mapping[str, Mapping[str, Any]]

#: Where metrics and texts of the lineage are; user's tags hardly begin so.
PREFIX = "lineage/"
#: Hyper-parameters of the section train by name, and where they stand in it.
TRAIN_FIELDS = {
    **{
        name: ("hyper_parameters", name)
        for name in (
            "optimizer",
            "learning_rate",
            "loss_function",
            "epoch",
            "parallel_mode",
            "device_num",
            "batch_size",
        )
    },
    "train_dataset_path": ("train_dataset", "train_dataset_path"),
    "train_dataset_size": ("train_dataset", "train_dataset_size"),
    "network": ("algorithm", "network"),
}


def sections(lineages: Iterable[Lineage]) -> dict[str, dict[str, Any]]:
    """Messages as plain values by section; one that cannot be read says why."""
    found: dict[str, dict[str, Any]] = {}
    for one in lineages:
        try:
            fields = codec.to_dict(one)
        except CorruptMessage as error:
            fields = {"damaged": str(error)}
        found.setdefault(codec.SECTIONS[one.what], {}).update(fields)
    return found


def hyperparameters(found: Sections) -> dict[str, Any]:
    """Numbers, texts and truth values by name; a name of the user's that is taken gets `custom.` before it."""
    train = found.get("train", {})
    at = {name: train.get(outer, {}).get(inner) for name, (outer, inner) in TRAIN_FIELDS.items()}
    result: dict[str, Any] = {name: _shortest(value) for name, value in at.items() if value is not None}
    for name, value in _flat(found.get("custom", {})):
        result[f"custom.{name}" if name in result else name] = value
    return result | dict(_flat(found.get("hparams", {})))


def _shortest(value: Any) -> Any:
    """A number that is a float32, as MindSpore's schema has it, with the digits that it was given with."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    short = float(f"{value:.7g}")
    return short if to_float32(short) == value else value


def metrics(found: Sections) -> dict[str, float]:
    """What was measured, as scalars by tag."""
    result: dict[str, float] = {}
    loss = found.get("train", {}).get("algorithm", {}).get("loss")
    if loss is not None:
        result[f"{PREFIX}train/loss"] = float(loss)
    metric = found.get("eval", {}).get("metric")
    for name, value in _flat(metric) if isinstance(metric, Mapping) else ():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            result[_valid(f"{PREFIX}eval/{name}")] = float(value)
    return result


def texts(found: Sections) -> dict[str, str]:
    """Each section as JSON by tag, in the form in which TensorBoard shows code."""
    return {
        f"{PREFIX}{name}": _valid(f"```json\n{json.dumps(fields, indent=1, ensure_ascii=False, default=str)}\n```")
        for name, fields in found.items()
        if name != "hparams"
    }


def _valid(text: str) -> str:
    """Return a text without surrogates, which JSON can name and no file can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def start(values: Mapping[str, Any], wall_time: float) -> bytes:
    """A `HParamsPluginData` that says with which hyper-parameters a run began, and when."""
    entries = b"".join(wire.delimited(tb.SESSION_HPARAMS, _entry(name, value)) for name, value in values.items())
    return wire.delimited(tb.SESSION_START_INFO, entries + wire.double(tb.START_TIME, wall_time))


def end(is_success: bool, wall_time: float) -> bytes:
    """A `HParamsPluginData` that says how a run ended, and when."""
    status = wire.integer(tb.STATUS, tb.STATUS_SUCCESS if is_success else tb.STATUS_FAILURE)
    return wire.delimited(tb.SESSION_END_INFO, status + wire.double(tb.END_TIME, wall_time))


def _entry(name: str, value: Any) -> bytes:
    named = wire.delimited(tb.ENTRY_KEY, name.encode("utf-8", "backslashreplace"))
    return named + wire.delimited(tb.ENTRY_VALUE, _value(value))


def _value(value: Any) -> bytes:
    """A `google.protobuf.Value`; the page cannot show numbers that are not finite, but texts."""
    if isinstance(value, bool):
        return wire.integer(tb.BOOL_VALUE, value)
    if isinstance(value, (int, float)) and math.isfinite(value):
        return wire.double(tb.NUMBER_VALUE, float(value))
    return wire.delimited(tb.STRING_VALUE, str(value).encode("utf-8", "backslashreplace"))
