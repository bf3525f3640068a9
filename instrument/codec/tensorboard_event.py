"""Whole events of TensorBoard's dialect: what one `record(step)` becomes in each of its two files.

Scalars have a file of their own: importers of other tools take such a file, and fail on one with other kinds in it.
Landscapes have no place in this dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from instrument.codec import event as mindspore
from instrument.codec import scalar, wire
from instrument.codec import tensorboard as tb
from instrument.events import LINEAGE_KINDS, SESSION_END, Event

if TYPE_CHECKING:
    from instrument.codec.lineage import Sections

#: The names that kinds and tags have in TensorBoard where that is not the tag: it shows one kind a tag.
Aliases = Mapping[tuple[str, str], str]
_NO_ALIASES: Aliases = {}
_SUMMARY_KEY = wire.key(tb.SUMMARY, wire.LENGTH_DELIMITED)
_heads = scalar.heads_of(tb.SIMPLE_VALUE)
#: Kinds that are values of a summary in the other file.
_VALUES = ("tensor", "image", "histogram", "text", SESSION_END)


def encode_version(wall_time: float) -> wire.Pieces:
    """Return the payload that stands first in a file; it names us as its writer."""
    source = wire.delimited(tb.SOURCE_WRITER, tb.WRITER.encode())
    head = wire.double(tb.WALL_TIME, wall_time) + wire.delimited(tb.FILE_VERSION, tb.VERSION.encode())
    return [head + wire.delimited(tb.SOURCE_METADATA, source)]


def encode_scalars(event: Event, aliases: Aliases = _NO_ALIASES) -> list[wire.Pieces]:
    """Return the payloads for the file of scalars: those of the event, and the metrics in its lineage."""
    numbers: Mapping[str, float] = event.scalars
    if aliases:
        numbers = {aliases.get(("scalar", tag), tag): number for tag, number in numbers.items()}
    if sections := _sections(event):
        from instrument.codec import lineage

        numbers = {**lineage.metrics(sections), **numbers}
    values = b"".join([scalar.encode_field(tag, number, _heads) for tag, number in numbers.items()])
    return [[b"".join((_head(event), _SUMMARY_KEY, wire.varint(len(values)), values))]] if values else []


def encode_others(event: Event, aliases: Aliases = _NO_ALIASES) -> list[wire.Pieces]:
    """Return the payloads for the other file.

    A graph is one of its own; values share one, or several if it grows too large.
    """
    head = _head(event)
    payloads: list[wire.Pieces] = []
    values: wire.Pieces = []
    values_bytes = 0
    for item in event.items:
        if item.kind == "graph":
            from instrument.codec import graph

            graph_def = graph.to_graph_def(mindspore.message_data(item))
            payloads.append([head, wire.delimited(tb.GRAPH_DEF, graph_def)])
        if item.kind not in _VALUES:
            continue
        from instrument.codec import tensorboard_values

        value = tensorboard_values.encode(aliases.get((item.kind, item.tag), item.tag), item)
        value_bytes = wire.size(value)
        if values and values_bytes + value_bytes > mindspore.MAX_PAYLOAD_BYTES - 64:
            payloads.append([head, *wire.delimited_pieces(tb.SUMMARY, values)])
            values, values_bytes = [], 0
        values += value
        values_bytes += value_bytes
    if sections := _sections(event):
        values += encode_lineage(sections, event.wall_time)
    if values:
        payloads.append([head, *wire.delimited_pieces(tb.SUMMARY, values)])
    return payloads


def encode_gaps(event: Event) -> list[wire.Pieces]:
    """Return the payloads that say what is missing before an event; other readers skip them."""
    gaps = [mindspore.message_data(item) for item in event.items if item.kind == "gap"]
    return [[_head(event), wire.delimited(mindspore.GAP, gap)] for gap in gaps]


def encode_lineage(sections: Sections, wall_time: float) -> wire.Pieces:
    """Return the values that hold the hyper-parameters in sections of lineage, and each section as a text."""
    from instrument.codec import lineage, tensorboard_values

    values: wire.Pieces = []
    if hparams := lineage.hyperparameters(sections):
        content = lineage.encode_session_start(hparams, wall_time)
        values += tensorboard_values.encode_hparams(tb.HPARAMS_START, content)
    for tag, text in lineage.texts(sections).items():
        values += tensorboard_values.encode_text(tag, text)
    return values


def _head(event: Event) -> bytes:
    step = wire.integer(tb.STEP, event.step) if event.step else b""
    return wire.double(tb.WALL_TIME, event.wall_time) + step


def _sections(event: Event) -> Sections:
    """Return the lineage of an event as plain values by section."""
    items = [item for item in event.items if item.kind in LINEAGE_KINDS]
    if not items:
        return {}
    from instrument.codec import lineage  # most events have none, and who writes scalars only does without NumPy
    from instrument.values import Lineage

    return lineage.sections([Lineage(item.kind, mindspore.message_data(item)) for item in items])
