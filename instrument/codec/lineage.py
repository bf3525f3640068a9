"""Lineage: events of the `_lineage` file, and plain dictionaries out of their messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from instrument.codec import schema, wire
from instrument.errors import CorruptMessage
from instrument.values import Lineage

#: Lineage kind -> (number in `LineageEvent`, message).
MESSAGES = {
    "train_lineage": (6, "TrainLineage"),
    "eval_lineage": (7, "EvaluationLineage"),
    "dataset_graph": (9, "DatasetGraph"),
    "custom_lineage_data": (10, "UserDefinedInfo"),
}
#: Lineage kind -> the name under which readers find it.
SECTIONS = {
    "train_lineage": "train", "eval_lineage": "eval", "dataset_graph": "dataset", "custom_lineage_data": "custom",
}  # fmt: skip
_KINDS = {number: kind for kind, (number, _) in MESSAGES.items()}
_WALL_TIME = 1
#: A field of ours in `TrainLineage`, which other readers skip.
_LAST_LEARNING_RATE = 100

CustomValue = str | int | float
#: What a field takes in memory at most, be it a message or another, and what all of a lineage may take.
_MESSAGE_BYTES, _FIELD_BYTES, _MOST_BYTES = 2000, 50, 48 << 20
#: Longer texts are not looked at whether they are JSON.
_LONGEST_JSON = 1 << 20


def encode_event(kind: str, data: bytes, wall_time: float) -> wire.Pieces:
    """The payload of one event of a lineage file."""
    return [wire.double(_WALL_TIME, wall_time), *wire.delimited_pieces(MESSAGES[kind][0], [data])]


def decode_event(payload: memoryview) -> tuple[float, Lineage | None]:
    """The wall time and content of an event of a lineage file; None for a version or an unknown kind."""
    wall_time, lineage = 0.0, None
    for field in wire.fields(payload):
        if field[0] == _WALL_TIME:
            wall_time = wire.as_double(field)
        elif field[0] in _KINDS:
            lineage = Lineage(_KINDS[field[0]], bytes(wire.as_bytes(field)))
    return wall_time, lineage


def parse(lineage: Lineage) -> Any:
    """The protobuf message of a lineage.

    Raises:
        CorruptMessage: its bytes are no such message.
    """
    from google.protobuf.message import DecodeError

    name = MESSAGES[lineage.what][1]
    message = schema.message_class(name)
    _check_size(memoryview(lineage.data), message.DESCRIPTOR)
    try:
        return message.FromString(lineage.data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise CorruptMessage(f"a {lineage.what} is no {name} message") from error


def _check_size(data: memoryview, descriptor: Any) -> None:
    """Raise `CorruptMessage` where a message would take far more memory than its bytes do."""
    if len(data) * _MESSAGE_BYTES < _MOST_BYTES:
        return
    taken_bytes = 0
    left: list[tuple[memoryview, Any]] = [(data, descriptor)]
    while left:
        content, kind = left.pop()
        for number, wire_type, inner in wire.fields(content):
            field = kind.fields_by_number.get(number)
            taken_bytes += _FIELD_BYTES
            if field is None or wire_type != wire.LENGTH_DELIMITED or isinstance(inner, int):
                pass
            elif field.message_type is not None:
                taken_bytes += _MESSAGE_BYTES
                left.append((inner, field.message_type))
            elif field.type not in (field.TYPE_STRING, field.TYPE_BYTES):  # packed numbers
                taken_bytes += _FIELD_BYTES * len(inner)
            if taken_bytes > _MOST_BYTES:
                raise CorruptMessage(f"a lineage of {len(data)} bytes would take more than {_MOST_BYTES} in memory")


def custom_message(values: Mapping[str, CustomValue]) -> bytes:
    """A serialised `UserDefinedInfo`: one `user_info` a key, which is all that MindInsight reads of each.

    An int that does not fit the schema's int32 is kept as a double where that is exact, else as text.
    """
    message = schema.message_class("UserDefinedInfo")()
    for key, value in values.items():
        info = message.user_info.add()
        if isinstance(value, str):
            info.map_str[key] = value
        elif isinstance(value, float):
            info.map_double[key] = value
        elif -(2**31) <= value < 2**31:
            info.map_int32[key] = int(value)
        elif _is_double(value):
            info.map_double[key] = float(value)
        else:
            info.map_str[key] = str(value)
    result: bytes = message.SerializeToString(deterministic=True)
    return result


def _is_double(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def with_last_rate(data: bytes, rate: float | None) -> bytes:
    """Return a serialised `TrainLineage` with the learning rate of the last step, for which MindSpore has no field."""
    return data if rate is None else data + wire.double(_LAST_LEARNING_RATE, rate)


def _last_rate(data: bytes) -> dict[str, float]:
    rates = [wire.as_double(field) for field in wire.fields(memoryview(data)) if field[0] == _LAST_LEARNING_RATE]
    return {"last_learning_rate": rates[-1]} if rates else {}


def to_dict(lineage: Lineage) -> dict[str, Any]:
    """A lineage as plain dictionaries, lists, numbers and texts; only what was recorded is in it.

    Raises:
        CorruptMessage: its bytes are no such message, or hold a text that is not UTF-8.
    """
    message = parse(lineage)
    try:
        result = _dict(lineage, message)
        _check_texts(result)
    except UnicodeDecodeError as error:
        raise CorruptMessage(f"a {lineage.what} holds a text that is not UTF-8") from error
    return result


def _check_texts(value: Any) -> None:
    """Raise `UnicodeDecodeError` where protobuf's fast implementation handed out a text that is not UTF-8, as bytes."""
    if isinstance(value, bytes):
        value.decode()
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_texts(inner)


def _dict(lineage: Lineage, message: Any) -> dict[str, Any]:
    if lineage.what == "custom_lineage_data":
        return _custom(message)
    if lineage.what == "dataset_graph":
        return _dataset(message)
    result = _plain(message)
    if lineage.what == "train_lineage" and (last_rate := _last_rate(lineage.data)):
        result["algorithm"] = {**result.get("algorithm", {}), **last_rate}
    if "metric" in result:
        result["metric"] = _json(result["metric"])
    if "path" in result.get("model", {}):
        result["model"]["path"] = _json(result["model"]["path"])
    return result


def _json(text: str) -> Any:
    if len(text) > _LONGEST_JSON:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _plain(message: Any) -> dict[str, Any]:
    return {
        field.name: _plain(value) if field.message_type is not None else value for field, value in message.ListFields()
    }


def _custom(message: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for info in [message, *message.user_info]:
        result.update(info.map_int32)
        result.update(info.map_double)
        result.update(info.map_str)
        result.update({key: _custom(value) for key, value in info.map_dict.items()})
    return result


def _dataset(message: Any) -> dict[str, Any]:
    result: dict[str, Any] = _parameters(message.parameter)
    if message.operations:
        result["operations"] = [_operation(operation) for operation in message.operations]
    if message.HasField("sampler"):
        result["sampler"] = _operation(message.sampler)
    if message.children:
        result["children"] = [_dataset(child) for child in message.children]
    return result


def _operation(message: Any) -> dict[str, Any]:
    result = _parameters(message.operationParam)
    if message.size:
        result["size"] = list(message.size)
    if message.weights:
        result["weights"] = list(message.weights)
    return result


def _parameters(message: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for mapping in (message.mapStr, message.mapBool, message.mapInt, message.mapDouble):
        result.update(mapping)
    result.update({key: list(value.strValue) for key, value in message.mapStrList.items()})
    return dict(sorted(result.items()))
