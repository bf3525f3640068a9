"""Lineage: events of the `_lineage` file, and plain dictionaries out of their messages.

In TensorBoard's dialect lineage is hyper-parameters for its page of them, metrics as scalars, and all of it as texts.
There is no `_hparams_/experiment`: TensorBoard takes the first that it finds for all runs, and puts one together by
itself, of the hyper-parameters and scalars of every run, where there is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from instrument.codec import wire
from instrument.codec.message import Message, Pairs, Value
from instrument.codec.scalar import to_float32
from instrument.codec.schema import MINDSPORE, TENSORBOARD
from instrument.errors import CorruptMessage
from instrument.values import Lineage

#: Lineage kind -> its field in `LineageEvent`, and the message in it.
MESSAGES = {
    "train_lineage": ("train_lineage", "TrainLineage"),
    "eval_lineage": ("evaluation_lineage", "EvaluationLineage"),
    "dataset_graph": ("dataset_graph", "DatasetGraph"),
    "custom_lineage_data": ("user_defined_info", "UserDefinedInfo"),
}
#: Lineage kind -> the name under which readers find it.
SECTIONS = {
    "train_lineage": "train", "eval_lineage": "eval", "dataset_graph": "dataset", "custom_lineage_data": "custom",
}  # fmt: skip
#: The section of what ran: command, commit, versions. In a file it is a dictionary of this name in the custom lineage,
#: where the user's own values are texts and numbers.
RAN = "ran"
_EVENT = MINDSPORE.type("LineageEvent", raw=tuple(message for _, message in MESSAGES.values()))

CustomValue = str | int | float
#: Longer texts are not looked at whether they are JSON.
_LONGEST_JSON = 1 << 20


def encode_event(kind: str, data: bytes, wall_time: float) -> wire.Pieces:
    """Return the payload of an event of a lineage file."""
    return _EVENT.pieces({"wall_time": wall_time, MESSAGES[kind][0]: data})


def decode_event(payload: memoryview) -> tuple[float, Lineage | None]:
    """Return the wall time and content of an event of a lineage file; None for a version or another kind.

    Raises:
        CorruptMessage: the payload is no such event.
    """
    event = _EVENT.decode(payload)
    for kind, (field, _) in MESSAGES.items():
        if field in event:
            return event.number("wall_time"), Lineage(kind, bytes(event.data(field)))
    return event.number("wall_time"), None


def custom_message(values: Mapping[str, CustomValue]) -> bytes:
    """Return a serialised `UserDefinedInfo`: one `user_info` a key, which is all that MindInsight reads of each.

    An int that does not fit the schema's int32 is kept as a double where that is exact, else as text.
    """
    infos: list[Mapping[str, Value]] = [_info(key, value) for key, value in values.items()]
    return MINDSPORE.type("UserDefinedInfo").encode(user_info=infos)


def _info(key: str, value: CustomValue) -> dict[str, Value]:
    if isinstance(value, str):
        return {"map_str": {key: value}}
    if isinstance(value, float):
        return {"map_double": {key: value}}
    if -(2**31) <= value < 2**31:
        return {"map_int32": {key: int(value)}}
    return {"map_double": {key: float(value)}} if _is_double(value) else {"map_str": {key: str(value)}}


def ran_message(facts: Mapping[str, object]) -> bytes:
    """Return a serialised `UserDefinedInfo` with what ran: texts, ints, and dictionaries of these."""
    return MINDSPORE.type("UserDefinedInfo").encode(user_info=[{"map_dict": {RAN: _nested(facts)}}])


def _nested(facts: Mapping[str, object]) -> dict[str, Value]:
    """Return a dictionary as MindInsight reads it: again one `user_info` a key."""
    infos: list[Mapping[str, Value]] = []
    for key, value in facts.items():
        if isinstance(value, Mapping):
            infos.append({"map_dict": {key: _nested(value)}})
        else:
            infos.append(_info(key, value if isinstance(value, int) else _valid(str(value))))
    return {"user_info": infos}


def _is_double(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


# ---------------------------------------------------------------- message -> plain values


def to_dict(lineage: Lineage) -> dict[str, Any]:
    """Return a lineage as plain dictionaries, lists, numbers and texts; only what was recorded is in it.

    Raises:
        CorruptMessage: its bytes are no such message, or hold a text that is not UTF-8.
    """
    name = MESSAGES[lineage.what][1]
    try:
        message = MINDSPORE.type(name, errors="strict").decode(lineage.data)
    except CorruptMessage as error:
        raise CorruptMessage(f"a {lineage.what} is no {name} message") from error
    if lineage.what == "custom_lineage_data":
        return _custom(message)
    if lineage.what == "dataset_graph":
        return _dataset(message)
    last_rate = message.pop("last_learning_rate", None)
    result = _plain(message)
    if last_rate is not None:
        result["algorithm"] = {**result.get("algorithm", {}), "last_learning_rate": last_rate}
    if "metric" in result:
        result["metric"] = _json(result["metric"])
    if "path" in result.get("model", {}):
        result["model"]["path"] = _json(result["model"]["path"])
    return result


def by_section(what: str, fields: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields of a lineage by section; what ran is apart from the user's own custom lineage."""
    if what != "custom_lineage_data" or not isinstance(fields.get(RAN), dict):
        return {SECTIONS[what]: fields}
    custom = {name: value for name, value in fields.items() if name != RAN}
    return {RAN: fields[RAN], **({SECTIONS[what]: custom} if custom else {})}


def _json(text: str) -> Any:
    if len(text) > _LONGEST_JSON:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _plain(message: Message) -> dict[str, Any]:
    return {name: _plain(value) if isinstance(value, Message) else value for name, value in message.items()}


def _custom(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for info in [message, *message.messages("user_info")]:
        for name in ("map_int32", "map_double", "map_str"):
            result.update(info.entries(name))
        result.update({key: _custom(value) for key, value in info.entries("map_dict").items()})
    return result


def _dataset(message: Message) -> dict[str, Any]:
    result = _parameters(message.message("parameter"))
    if "operations" in message:
        result["operations"] = [_operation(operation) for operation in message.messages("operations")]
    if "sampler" in message:
        result["sampler"] = _operation(message.message("sampler"))
    if "children" in message:
        result["children"] = [_dataset(child) for child in message.messages("children")]
    return result


def _operation(message: Message) -> dict[str, Any]:
    result = _parameters(message.message("operationParam"))
    return result | {name: message[name] for name in ("size", "weights") if message.get(name)}


def _parameters(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in ("mapStr", "mapBool", "mapInt", "mapDouble"):
        result.update(message.entries(name))
    result.update({key: value.texts("strValue") for key, value in message.entries("mapStrList").items()})
    return dict(sorted(result.items()))


# ---------------------------------------------------------------- TensorBoard's dialect

#: Facts by name, under the sections train, eval, dataset, custom, ran and hparams.
Sections = Mapping[str, Mapping[str, Any]]

#: Where metrics and texts of the lineage are; user's tags hardly begin so.
PREFIX = "lineage/"
#: Hyper-parameters of the section train by name, and where they stand in it.
TRAIN_FIELDS = {
    **{row.name: ("hyper_parameters", row.name) for row in MINDSPORE.table["TrainLineage.HyperParameters"]},
    "train_dataset_path": ("train_dataset", "train_dataset_path"),
    "train_dataset_size": ("train_dataset", "train_dataset_size"),
    "network": ("algorithm", "network"),
}


_HPARAMS = TENSORBOARD.type("HParamsPluginData")
_SUCCESS, _FAILURE = 1, 2


def sections(lineages: Iterable[Lineage]) -> dict[str, dict[str, Any]]:
    """Return messages as plain values by section; one that cannot be read says why."""
    result: dict[str, dict[str, Any]] = {}
    for lineage in lineages:
        try:
            fields = to_dict(lineage)
        except CorruptMessage as error:
            fields = {"damaged": str(error)}
        for section, part in by_section(lineage.what, fields).items():
            result.setdefault(section, {}).update(part)
    return result


def hyperparameters(sections: Sections) -> dict[str, Any]:
    """Return numbers, texts and truth values by name; a name of the user's that is taken gets `custom.` before it."""
    train = sections.get("train", {})
    at = {name: train.get(outer, {}).get(inner) for name, (outer, inner) in TRAIN_FIELDS.items()}
    result: dict[str, Any] = {name: _shortest(value) for name, value in at.items() if value is not None}
    for name, value in _flat(sections.get("custom", {})):
        result[f"custom.{name}" if name in result else name] = value
    return result | dict(_flat(sections.get("hparams", {})))


def _shortest(value: Any) -> Any:
    """Return a number that is a float32, as MindSpore's schema has it, with the digits that it was given with."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    short = float(f"{value:.7g}")
    return short if to_float32(short) == value else value


def metrics(sections: Sections) -> dict[str, float]:
    """Return what was measured, as scalars by tag."""
    result: dict[str, float] = {}
    loss = sections.get("train", {}).get("algorithm", {}).get("loss")
    if loss is not None:
        result[f"{PREFIX}train/loss"] = float(loss)
    metric = sections.get("eval", {}).get("metric")
    for name, value in _flat(metric) if isinstance(metric, Mapping) else ():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            result[_valid(f"{PREFIX}eval/{name}")] = float(value)
    return result


def texts(sections: Sections) -> dict[str, str]:
    """Return each section as JSON by tag, in the form in which TensorBoard shows code."""
    return {
        f"{PREFIX}{name}": _valid(f"```json\n{json.dumps(fields, indent=1, ensure_ascii=False, default=str)}\n```")
        for name, fields in sections.items()
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


def encode_session_start(values: Mapping[str, Any], wall_time: float) -> bytes:
    """Return a `HParamsPluginData` that says with which hyper-parameters a run began, and when."""
    entries: Pairs = [(name.encode("utf-8", "backslashreplace"), _hparam(value)) for name, value in values.items()]
    return _HPARAMS.encode(session_start_info={"hparams": entries, "start_time_secs": wall_time})


def encode_session_end(is_success: bool, wall_time: float) -> bytes:
    """Return a `HParamsPluginData` that says how a run ended, and when."""
    status = _SUCCESS if is_success else _FAILURE
    return _HPARAMS.encode(session_end_info={"status": status, "end_time_secs": wall_time})


def _hparam(value: Any) -> dict[str, Value]:
    """Return a `google.protobuf.Value`; the page cannot show numbers that are not finite, but texts."""
    if isinstance(value, bool):
        return {"bool_value": value}
    if isinstance(value, (int, float)) and math.isfinite(value):
        return {"number_value": float(value)}
    return {"string_value": str(value).encode("utf-8", "backslashreplace")}


def decode_session_start(data: memoryview) -> dict[str, str | float | bool | None]:
    """Return the hyper-parameters of a run, out of a `HParamsPluginData` with a session's start.

    Raises:
        CorruptMessage: the bytes are no such message.
    """
    hparams = _HPARAMS.decode(data).message("session_start_info").entries("hparams")
    return {name: next(iter(value.values()), None) for name, value in hparams.items()}
