"""Read the event files of TensorBoard's dialect in plain Python."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.oracle import mindspore_files
from tests.oracle.frames import all_fields, double, fields, frames, signed

#: Number -> name and letter of `struct`.
_DTYPES = {
    1: ("float32", "f"), 2: ("float64", "d"), 3: ("int32", "i"), 4: ("uint8", "B"), 5: ("int16", "h"), 6: ("int8", "b"),
    7: ("string", ""), 9: ("int64", "q"), 10: ("bool", "?"), 17: ("uint16", "H"), 19: ("float16", "e"),
    22: ("uint32", "I"), 23: ("uint64", "Q"),
}  # fmt: skip


@dataclass
class File:
    """What one file holds: `points` are (step, value) by kind and tag, `nodes` (name, type, inputs) of the graph."""

    writer: str = ""
    version: str = ""
    points: dict[tuple[str, str], list[tuple[int, Any]]] = field(default_factory=dict)
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    status: int = 0
    nodes: list[tuple[str, str, list[str]]] = field(default_factory=list)
    gaps: list[tuple[int, int, int, str]] = field(default_factory=list)


def open_file(path: Path) -> File:
    result = File()
    found = frames(path.read_bytes())
    assert (found.damage, found.torn) == ([], None)
    for at, payload in enumerate(found.payloads):
        event = all_fields(payload)
        assert (at == 0) == (3 in event) == (10 in event)
        if at == 0:
            result.version, result.writer = event[3].decode(), all_fields(event[10])[1].decode()
        if 4 in event:
            result.nodes = _nodes(event[4])
        for number, content in fields(event.get(5, b"")):
            assert number == 1
            _take(result, signed(event.get(2, 0)), all_fields(content))
        if 101 in event:
            result.gaps.append(mindspore_files.gap(event[101]))
    return result


def _take(result: File, step: int, value: dict[int, Any]) -> None:
    tag = value[1].decode()
    if 2 in value:
        number = double(value[100]) if 100 in value else struct.unpack("<f", value[2])[0]
        result.points.setdefault(("scalar", tag), []).append((step, number))
        return
    if 4 in value:
        result.points.setdefault(("image", tag), []).append((step, mindspore_files.image(value[4])))
        return
    metadata = all_fields(value[9])
    plugin = all_fields(metadata[1])
    assert metadata[4] == 2
    name, tensor = plugin[1].decode(), _tensor(value[8])
    if name == "hparams":
        _take_hyperparameters(result, tag, all_fields(plugin[2]))
    elif name == "histograms":
        assert tensor.dtype == "float64"
        assert tensor.dims[1:] == [3]
        rows = [tuple(tensor.values[at : at + 3]) for at in range(0, len(tensor.values), 3)]
        result.points.setdefault(("histogram", tag), []).append((step, (rows, mindspore_files.histogram(value[100]))))
    else:
        kind = {"tensors": "tensor", "text": "text"}[name]
        result.points.setdefault((kind, tag), []).append((step, tensor))


def _take_hyperparameters(result: File, tag: str, content: dict[int, Any]) -> None:
    if tag == "_hparams_/session_end_info":
        result.status = all_fields(content[4])[1]
        return
    assert tag == "_hparams_/session_start_info"
    for number, entry in fields(content[3]):
        if number == 1:
            named = all_fields(entry)
            ((kind, given),) = all_fields(named[2]).items()
            read = {2: double, 3: bytes.decode, 4: bool}[kind]
            result.hyperparameters[named[1].decode()] = read(given)


def _tensor(data: bytes) -> mindspore_files.Tensor:
    found = all_fields(data)
    dtype, letter = _DTYPES[found[1]]
    dims = [signed(all_fields(dim).get(1, 0)) for _, dim in fields(found[2])]
    content = found.get(4, b"")
    if dtype == "string":
        values: list[Any] = [text.decode() for number, text in fields(data) if number == 8]  # type: ignore[union-attr]
    else:
        values = list(struct.unpack(f"<{len(content) // struct.calcsize(letter)}{letter}", content))
    assert len(values) == math.prod(dims)
    return mindspore_files.Tensor(dims, dtype, values)


def _nodes(data: bytes) -> list[tuple[str, str, list[str]]]:
    nodes = []
    for number, content in fields(data):
        if number == 1:
            node = all_fields(content)
            inputs = [name.decode() for at, name in fields(content) if at == 3]  # type: ignore[union-attr, arg-type]
            nodes.append((node[1].decode(), node[2].decode(), inputs))
    return nodes


def section(file: File, name: str) -> Any:
    """A section of the lineage, out of its text."""
    ((_, text),) = file.points["text", f"lineage/{name}"]
    begin, *lines, end = text.values[0].split("\n")
    assert (begin, end) == ("```json", "```")
    return json.loads("\n".join(lines))
