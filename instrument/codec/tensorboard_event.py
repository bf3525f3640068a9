"""Whole events of TensorBoard's dialect: what one `record(step)` becomes in each of its two files.

Scalars have a file of their own: importers of other tools take such a file, and fail on one with other kinds in it.
Landscapes have no place in this dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from instrument.codec import event as mindspore
from instrument.codec import gap, scalar, wire
from instrument.codec import tensorboard as tb
from instrument.values import LINEAGE_KINDS, SESSION_END, Event, Lineage

#: The names that kinds and tags have in TensorBoard where that is not the tag: it shows one kind a tag.
Aliases = Mapping[tuple[str, str], str]
_NO_ALIASES: Aliases = {}
_SUMMARY_KEY = wire.key(tb.SUMMARY, wire.LENGTH_DELIMITED)
_heads = scalar.heads_of(tb.SIMPLE_VALUE)
#: Kinds that are values of a summary in the other file.
_VALUES = ("tensor", "image", "histogram", "text", SESSION_END)


def encode_version(wall_time: float) -> wire.Pieces:
    """The payload that stands first in a file; it names us as its writer."""
    source = wire.delimited(tb.SOURCE_WRITER, tb.WRITER.encode())
    head = wire.double(tb.WALL_TIME, wall_time) + wire.delimited(tb.FILE_VERSION, tb.VERSION.encode())
    return [head + wire.delimited(tb.SOURCE_METADATA, source)]


def encode_scalars(event: Event, aliases: Aliases = _NO_ALIASES) -> list[wire.Pieces]:
    """The payloads for the file of scalars: those of the event, and the metrics in its lineage."""
    numbers: Mapping[str, float] = event.scalars
    if aliases:
        numbers = {aliases.get(("scalar", tag), tag): number for tag, number in numbers.items()}
    if lineages := _lineages(event):
        module = _lineage_module()
        numbers = {**module.metrics(module.sections(lineages)), **numbers}
    values = b"".join([scalar.encode_field(tag, number, _heads) for tag, number in numbers.items()])
    return [[b"".join((_head(event), _SUMMARY_KEY, wire.varint(len(values)), values))]] if values else []


def encode_others(event: Event, aliases: Aliases = _NO_ALIASES) -> list[wire.Pieces]:
    """The payloads for the other file. A graph is one of its own; values share one, or more where it grew too large."""
    head = _head(event)
    payloads: list[wire.Pieces] = []
    values: wire.Pieces = []
    values_bytes = 0
    for item in event.items:
        if item.kind == "graph":
            graph = import_module("instrument.codec.tensorboard_graph").encode(item.payload)
            payloads.append([head, wire.delimited(tb.GRAPH_DEF, graph)])
        if item.kind not in _VALUES:
            continue
        value = _contents().value(aliases.get((item.kind, item.tag), item.tag), mindspore.finish(item))
        value_bytes = wire.size(value)
        if values and values_bytes + value_bytes > mindspore.MAX_PAYLOAD_BYTES - 64:
            payloads.append([head, *wire.delimited_pieces(tb.SUMMARY, values)])
            values, values_bytes = [], 0
        values += value
        values_bytes += value_bytes
    if lineages := _lineages(event):
        values += encode_lineage(_lineage_module().sections(lineages), event.wall_time)
    if values:
        payloads.append([head, *wire.delimited_pieces(tb.SUMMARY, values)])
    return payloads


def encode_gaps(event: Event) -> list[wire.Pieces]:
    """The payloads that say what is missing before an event; other readers skip them."""
    gaps = [item.payload for item in event.items if item.kind == "gap"]
    return [[_head(event), wire.delimited(gap.NUMBER, one)] for one in gaps if isinstance(one, bytes)]


def encode_lineage(sections: Mapping[str, Mapping[str, Any]], wall_time: float) -> wire.Pieces:
    """The values that hold the hyper-parameters in sections of lineage, and each section as a text."""
    module = _lineage_module()
    values: wire.Pieces = []
    if found := module.hyperparameters(sections):
        values += _contents().hparams(tb.HPARAMS_START, module.start(found, wall_time))
    for tag, text in module.texts(sections).items():
        values += _contents().one_text(tag, text)
    return values


def _head(event: Event) -> bytes:
    step = wire.integer(tb.STEP, event.step) if event.step else b""
    return wire.double(tb.WALL_TIME, event.wall_time) + step


def _lineages(event: Event) -> list[Lineage]:
    items = [item for item in event.items if item.kind in LINEAGE_KINDS]
    return [Lineage(item.kind, item.payload) for item in items if isinstance(item.payload, bytes)]


def _contents() -> Any:
    """By name: who writes scalars only does without NumPy."""
    return import_module("instrument.codec.tensorboard_contents")


def _lineage_module() -> Any:
    return import_module("instrument.codec.tensorboard_lineage")
