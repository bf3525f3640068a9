"""Check what users hand to a recorder, and make items of messages."""

from __future__ import annotations

import logging

import mindspore
import numpy as np

from instrument.codec import graph as graph_codec
from instrument.codec import lineage as lineage_codec
from instrument.codec import text as text_codec
from instrument.codec.schema import MINDSPORE
from instrument.collect import convert, lineage, sources
from instrument.errors import CorruptMessage
from instrument.values import LINEAGE_KINDS, MessageItem

log = logging.getLogger("instrument")

ARRAY_PLUGINS = ("scalar", "image", "tensor", "histogram")
PLUGINS = (*ARRAY_PLUGINS, "text", "graph", *LINEAGE_KINDS, "landscape")
_STEPS = range(2**63)


def check_plugin(plugin: object) -> None:
    if plugin not in PLUGINS:
        raise ValueError(f"The plugin is {plugin!r}; expected one of {list(PLUGINS)}.")


def check_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"The name is {name!r} of type {type(name).__name__}; expected str.")
    if not name:
        raise ValueError("The name is empty; expected at least one character.")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The name {name!r} is no valid Unicode: {error.reason} at position {error.start}.") from None
    return str.__str__(name)  # marshal takes no subclass, and NumPy's for a buffer of bytes


def check_step(step: object) -> int:
    """Return a step as an int: of an integer, or of a tensor or array that holds one, such as `optimizer.global_step`.

    Raises:
        TypeError: it is something else.
        ValueError: it is negative, or beyond 64 bits.
    """
    number = step
    if convert.is_tensor(step) or isinstance(step, np.ndarray):
        array = np.asarray(step.asnumpy() if convert.is_tensor(step) else step)
        number = array.reshape(-1)[0] if array.size == 1 and not np.ma.is_masked(step) else step
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        kind = type(step).__name__
        raise TypeError(f"step is {step!r} of type {kind}; expected an integer, or a tensor or array that holds one.")
    if int(number) not in _STEPS:
        raise ValueError(f"step is {number}; expected an integer from 0 to 2**63 - 1.")
    return int(number)


def check_network(name: str, network: object) -> mindspore.nn.Cell | None:
    if network is not None and not isinstance(network, mindspore.nn.Cell):
        raise TypeError(f"{name} is a {type(network).__name__}; expected a mindspore.nn.Cell or None.")
    return network


def check_mode(mode: object) -> None:
    if mode not in ("train", "eval"):
        raise ValueError(f"mode is {mode!r}; expected 'train' or 'eval'.")


def check_record(train_network: object, plugin_filter: object) -> None:
    check_network("train_network", train_network)
    if plugin_filter is not None and not callable(plugin_filter):
        raise TypeError(f"plugin_filter is a {type(plugin_filter).__name__}; expected a function or None.")


def check_callbacks(params: object, collector: type[object]) -> None:
    """Refuse a second collector, which would fight over the summary operators' values and the files."""
    callbacks = sources.get(params, "list_callback") or []
    if sum(isinstance(callback, collector) for callback in callbacks) > 1:
        raise ValueError(
            "There is more than one SummaryCollector among the callbacks; expected one. Merge their options into it."
        )
    if any(
        type(callback).__name__ == collector.__name__ and not isinstance(callback, collector) for callback in callbacks
    ):
        log.warning(
            "MindSpore's SummaryCollector is among the callbacks too; it takes values of summary operators away."
        )


def message_item(plugin: str, name: str, value: object, dialect: str) -> MessageItem:
    """Return an item of a kind that is a message: a text, a graph, a landscape, or lineage."""
    if plugin == "text":
        return MessageItem(plugin, name, b"".join(text_codec.encode(convert.to_text(value, name))))
    if plugin == "graph":
        return MessageItem(plugin, name, _graph_bytes(value, name))
    if plugin == "landscape":
        if dialect == "tensorboard":
            raise ValueError(
                f"TensorBoard's files have no place for a {plugin}; expected a recorder with dialect='mindspore' or "
                "'both'."
            )
        return MessageItem(plugin, name, _message_bytes(value, "LossLandscape", name))
    return MessageItem(plugin, name, _lineage_bytes(plugin, value, name))


def _graph_bytes(value: object, name: str) -> bytes:
    data = value.SerializeToString() if hasattr(value, "SerializeToString") else value
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError(f"The graph {name!r} is a {type(value).__name__}; expected the bytes of a ModelProto.")
    if getattr(getattr(value, "DESCRIPTOR", None), "name", "") == "GraphProto":
        return bytes(data)
    try:
        return graph_codec.from_model(bytes(data)).data
    except CorruptMessage as error:
        raise ValueError(f"The value of {name!r} is no ModelProto message with a graph: {error}") from error


def _message_bytes(value: object, message_name: str, name: str) -> bytes:
    """Return the bytes of a protobuf message, from whatever pool its class comes."""
    given = getattr(getattr(value, "DESCRIPTOR", None), "name", type(value).__name__)
    if isinstance(value, (bytes, bytearray)):
        data = bytes(value)
    elif given == message_name and hasattr(value, "SerializeToString"):
        data = value.SerializeToString()
    else:
        raise TypeError(f"The value of {name!r} is a {given}; expected a {message_name} message or its bytes.")
    try:
        MINDSPORE.type(message_name, errors="strict").decode(data)
    except CorruptMessage as error:
        raise ValueError(f"The value of {name!r} is no {message_name} message: {error}") from error
    return data


def _lineage_bytes(plugin: str, value: object, name: str) -> bytes:
    if plugin == "custom_lineage_data" and isinstance(value, dict):
        return lineage_codec.custom_message(lineage.check_custom(value, name))
    return _message_bytes(value, lineage_codec.MESSAGES[plugin][1], name)
