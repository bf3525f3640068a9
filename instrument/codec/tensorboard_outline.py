"""Where everything stands in an event of TensorBoard's dialect.

What a tensor means is said by the metadata of its tag's first value in the file: the reader of a file hands the names
of its plugins, by tag, from one event to the next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from instrument.codec import event, graph, lifecycle, lineage, wire
from instrument.codec import tensorboard as tb
from instrument.codec import tensorboard_values as values
from instrument.codec.outline import LIFECYCLE, Outline


class Plugins(dict[str, str]):
    """Plugin names by tag, empty for a tag whose tensors came without one so far.

    `is_late` is set once the name of such a tag is known after all, as where its first value is damaged: what was read
    before is to be read again then.
    """

    is_late = False


#: The plugins of this many tags are kept; what further ones mean is guessed from their values.
_MOST_PLUGINS = 50_000
_Span = tuple[int, int]

_OLD: dict[int, tuple[str, Callable[[memoryview], Any]]] = {
    tb.IMAGE: ("image", values.image),
    tb.HISTO: ("histogram", values.histogram),
    tb.AUDIO: ("audio", bytes),
}
#: Fields of an event that nobody reads here, and what they are.
_UNREAD = {
    tb.LOG_MESSAGE: "log message", tb.SESSION_LOG: "session log", tb.RUN_METADATA: "run metadata",
    tb.META_GRAPH_DEF: "meta graph",
}  # fmt: skip
#: Fields of an event that are values beside those of its summary.
OWN = frozenset({tb.GRAPH_DEF, event.GAP, *LIFECYCLE, *_UNREAD})
#: The key of the number of a scalar in the old style.
PLAIN_KEY = tb.SIMPLE_VALUE << 3 | wire.FIXED32
#: Kinds that are noticed and not read.
UNREAD_KINDS = frozenset({*_UNREAD.values(), "audio"})
_BY_PLUGIN: dict[str, tuple[str, Callable[[memoryview], Any]]] = {
    tb.SCALARS: ("scalar", values.number),
    tb.IMAGES: ("image", values.image_of_tensor),
    tb.HISTOGRAMS: ("histogram", values.histogram_of_tensor),
    tb.TEXT: ("text", values.text),
    tb.AUDIOS: ("audio", bytes),
}


def outline(data: memoryview, plugins: Plugins) -> Outline:
    """Return the outline of an event; `plugins` takes up the tags that it is the first to describe.

    Raises:
        CorruptMessage: the payload is no event.
    """
    result = Outline()
    for span in wire.spans(data, 0, len(data)):
        number = span[0]
        if number in (tb.WALL_TIME, tb.STEP):
            result.take_head(data, span)
        elif number == tb.SUMMARY:
            start, end = wire.expect(span, wire.LENGTH_DELIMITED)
            result.each_value(data, start, end, functools.partial(take_value, result, plugins), PLAIN_KEY)
        elif number == tb.GRAPH_DEF:
            result.other("graph", "", *wire.expect(span, wire.LENGTH_DELIMITED), graph.from_graph_def)
        elif number == event.GAP:
            result.other("gap", "", *wire.expect(span, wire.LENGTH_DELIMITED), lifecycle.decode_gap)
        elif number in LIFECYCLE:
            kind, decode = LIFECYCLE[number]
            result.other(kind, "", *wire.expect(span, wire.LENGTH_DELIMITED), decode)
        elif number in _UNREAD:
            result.other(_UNREAD[number], "", *wire.expect(span, wire.LENGTH_DELIMITED), bytes)
    return result


def source_writer(data: memoryview) -> str:
    """Return who wrote the file that begins with this event, empty if it does not say."""
    for field in wire.fields(data):
        if field[0] == tb.SOURCE_METADATA:
            for inner in wire.fields(wire.as_bytes(field)):
                if inner[0] == tb.SOURCE_WRITER:
                    return wire.as_text(inner)
    return ""


def take_value(result: Outline, plugins: Plugins, data: memoryview, start: int, end: int) -> None:
    """Take the value of a summary that stands in `data[start:end]`.

    Raises:
        CorruptMessage: it is none.
    """
    parts: dict[int, _Span] = {}
    exact: wire.Span | None = None
    for span in wire.spans(data, start, end):
        if span[0] == tb.EXACT:
            exact = span
        elif span[0] in _WIRE_TYPES:
            parts[span[0]] = wire.expect(span, _WIRE_TYPES[span[0]])
    tag = wire.text_at(data, *parts[tb.TAG]) if tb.TAG in parts else ""
    if tb.METADATA in parts:
        _note_plugin(result, plugins, tag, data, parts[tb.METADATA])
    plugin = plugins.get(tag, "")
    if tb.SIMPLE_VALUE in parts:
        _take_number(result, tag, parts[tb.SIMPLE_VALUE], exact)
    elif tb.TENSOR in parts and exact is not None and plugin == tb.HISTOGRAMS:
        result.other("histogram", tag, start, end, values.histogram_of_value)
    elif tb.TENSOR in parts:
        if not plugin and len(plugins) < _MOST_PLUGINS:
            plugins.setdefault(tag, "")
        _take_tensor(result, plugin, tag, data, parts[tb.TENSOR])
    for number, (kind, decode) in _OLD.items():
        if number in parts:
            result.other(kind, tag, *parts[number], decode)


_WIRE_TYPES = dict.fromkeys((tb.TAG, *_OLD, tb.TENSOR, tb.METADATA), wire.LENGTH_DELIMITED)
_WIRE_TYPES[tb.SIMPLE_VALUE] = wire.FIXED32


def _take_number(result: Outline, tag: str, single: _Span, exact: wire.Span | None) -> None:
    if exact is None or exact[1] != wire.FIXED64:
        result.number(tag, *single)
        return
    result.number(tag, exact[2], exact[3])
    result.varying.append(single)


def _note_plugin(result: Outline, plugins: Plugins, tag: str, data: memoryview, where: _Span) -> None:
    for span in wire.spans(data, *where):
        if span[0] == tb.PLUGIN_DATA:
            start, end = wire.expect(span, wire.LENGTH_DELIMITED)
            for inner in wire.spans(data, start, end):
                if inner[0] == tb.PLUGIN_NAME and not plugins.get(tag) and len(plugins) < _MOST_PLUGINS:
                    name = wire.text_at(data, *wire.expect(inner, wire.LENGTH_DELIMITED))
                    plugins.is_late |= bool(name) and tag in plugins
                    plugins[tag] = name
                elif inner[0] == tb.PLUGIN_CONTENT and tag == tb.HPARAMS_START:
                    result.other(
                        "hparams", tag, *wire.expect(inner, wire.LENGTH_DELIMITED), lineage.decode_session_start
                    )


def _take_tensor(result: Outline, plugin: str, tag: str, data: memoryview, where: _Span) -> None:
    dtype, dims = 0, 0
    contents: list[wire.Span] = []
    for span in wire.spans(data, *where):
        if span[0] == tb.DTYPE:
            dtype = wire.read_varint(data, wire.expect(span, wire.VARINT)[0])[0]
        elif span[0] == tb.SHAPE:
            dims = span[3] - span[2]
        elif span[1] != wire.VARINT and len(contents) < 2:  # one is a number, how many more does not matter
            contents.append(span)
    if plugin == tb.HPARAMS:
        return
    if plugin == tb.SCALARS and dims == 0 and len(contents) == 1 and _is_number(dtype, contents[0]):
        result.number(tag, contents[0][2], contents[0][3])
        return
    kind, decode = _BY_PLUGIN.get(plugin, ("text", values.text) if dtype == tb.DT_STRING else ("tensor", values.tensor))
    if kind == "scalar" and dims:  # of another shape, whatever the plugin says
        kind, decode = "tensor", values.tensor
    result.other(kind, tag, *where, decode)


def _is_number(dtype: int, content: wire.Span) -> bool:
    """Return True if a field of a tensor is a single float or double, as the type says."""
    number, _, start, end = content
    if number == tb.TENSOR_CONTENT or (number, dtype) in ((tb.FLOAT_VAL, tb.DT_FLOAT), (tb.DOUBLE_VAL, tb.DT_DOUBLE)):
        return end - start == {tb.DT_FLOAT: 4, tb.DT_DOUBLE: 8}.get(dtype)
    return False
