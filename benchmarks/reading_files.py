"""The files that `read.py` has read: the same numbers in MindSpore's and in TensorBoard's dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from instrument.codec import event, scalar, wire
from instrument.codec import tensorboard as tb
from instrument.eventfile import frame
from instrument.values import ArrayItem, Event

Write = Callable[[Any], Any]
DIALECTS = {
    "mindspore": "events.out.events.summary.1700000000.0.host_MS",
    "tensorboard": "events.out.tfevents.1700000000.host.1.0",
}
_START = 1_700_000_000.0
_BUCKETS = 64


class Tree(NamedTuple):
    """Runs in a tree, of `tags` scalars in each event."""

    what: str
    runs: int
    quick: int
    tags: int
    events: int


class Case(NamedTuple):
    """`events` beside the version, made by `make(events, dialect)`; `quick` is their number with --quick."""

    what: str
    events: int
    quick: int
    make: Callable[[int, str], Iterator[bytes]]


def path_of(folder: Path, case: str, dialect: str, quick: bool) -> Path:
    """The file of a case, which is made where it is not there yet."""
    path = folder / f"{case}-{dialect}{'-quick' * quick}" / DIALECTS[dialect]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".part")
        with open(made, "wb") as file:
            version = event.VERSION if dialect == "mindspore" else tb.VERSION
            file.write(_framed(wire.double(1, _START) + wire.delimited(3, version.encode())))
            chosen = CASES[case]
            for data in chosen.make(chosen.quick if quick else chosen.events, dialect):
                file.write(data)
        made.rename(path)
    return path


def tree_of(folder: Path, dialect: str, quick: bool) -> Path:
    """The root of the tree, which is made where it is not there yet."""
    root = folder / f"tree-{dialect}{'-quick' * quick}"
    if not root.exists():
        made = root.with_suffix(".part")
        version = event.VERSION if dialect == "mindspore" else tb.VERSION
        content = _framed(wire.double(1, _START) + wire.delimited(3, version.encode()))
        content += b"".join(_scalars(TREE.tags)(TREE.events, dialect))
        for number in range(TREE.quick if quick else TREE.runs):
            (made / f"run_{number:04d}").mkdir(parents=True)
            (made / f"run_{number:04d}" / DIALECTS[dialect]).write_bytes(content)
        made.rename(root)
    return root


def _framed(payload: bytes) -> bytes:
    return b"".join(frame.pack([payload]))


def _event(step: int, values: bytes) -> bytes:
    head = wire.double(1, _START + step * 0.001) + wire.integer(2, step)
    return _framed(head + wire.delimited(5, values))


def _number(dialect: str, tag: str) -> Callable[[float], bytes]:
    """What makes the field of a number under a tag."""
    number = scalar.NUMBER if dialect == "mindspore" else tb.SIMPLE_VALUE
    head = wire.delimited(1, tag.encode()) + wire.key(number, wire.FIXED32)
    head = wire.key(1, wire.LENGTH_DELIMITED) + wire.varint(len(head) + 4) + head
    return lambda value: head + np.float32(value).tobytes()


def _scalars(tags: int) -> Callable[[int, str], Iterator[bytes]]:
    def make(events: int, dialect: str) -> Iterator[bytes]:
        fields = [_number(dialect, f"metrics/value_{index}") for index in range(tags)]
        for step in range(1, events + 1):
            yield _event(step, b"".join([field(step / (index + 2)) for index, field in enumerate(fields)]))

    return make


def _wide(tags: int) -> Callable[[int, str], Iterator[bytes]]:
    """Steps of many tags, as the recorders of the dialects write them: an event a step, or an event a value."""

    def make(steps: int, dialect: str) -> Iterator[bytes]:
        fields = [_number(dialect, f"layer_{index}/weight/norm") for index in range(tags)]
        for step in range(1, steps + 1):
            values = [field(step / (index + 2)) for index, field in enumerate(fields)]
            yield from (_event(step, one) for one in (values if dialect == "tensorboard" else [b"".join(values)]))

    return make


def _mixed(steps: int, dialect: str) -> Iterator[bytes]:
    each = [_number(dialect, tag) for tag in ("train/loss", "train/lr")]
    tenth = [_number(dialect, f"eval/m{index}") for index in range(5)]
    for step in range(1, steps + 1):
        yield _event(step, b"".join([field(1 / step) for field in each]))
        if step % 10 == 0:
            yield _event(step, b"".join([field(step) for field in tenth]))
        if step % 100 == 0:
            yield _event(step, _histogram(step, dialect))


def _histogram(step: int, dialect: str) -> bytes:
    array = np.linspace(0, step, 1000, dtype=np.float32)
    if dialect == "mindspore":
        return b"".join(event.encode_value(ArrayItem("histogram", "h/weights", array)))
    edges = np.linspace(0, step, _BUCKETS + 1)[1:]
    counts = np.full(_BUCKETS, 1000 / _BUCKETS)
    facts = ((1, 0.0), (2, float(step)), (3, 1000.0), (4, step * 500.0))
    body = b"".join(wire.double(number, value) for number, value in facts)
    body += wire.delimited(6, edges.tobytes()) + wire.delimited(7, counts.tobytes())
    return wire.delimited(1, wire.delimited(1, b"h/weights") + wire.delimited(tb.HISTO, body))


def _tensors(events: int, dialect: str) -> Iterator[bytes]:
    array = np.random.default_rng(0).normal(size=(1024, 1024)).astype("<f4")
    for step in range(1, events + 1):
        array[0, 0] = step
        if dialect == "mindspore":
            made = event.encode(Event.of(step, _START + step, [ArrayItem("tensor", "weights", array, "float32")]))
            yield b"".join(frame.pack(made[0]))
            continue
        dims = b"".join(wire.delimited(tb.DIM, wire.integer(tb.DIM_SIZE, extent)) for extent in array.shape)
        body = wire.integer(tb.DTYPE, tb.DT_FLOAT) + wire.delimited(tb.SHAPE, dims)
        body += wire.delimited(tb.TENSOR_CONTENT, array.tobytes())
        plugin = wire.delimited(tb.PLUGIN_DATA, wire.delimited(tb.PLUGIN_NAME, b"weights"))
        plugin += wire.integer(4, tb.DATA_CLASS_TENSOR)
        content = wire.delimited(1, b"weights") + wire.delimited(tb.TENSOR, body) + wire.delimited(tb.METADATA, plugin)
        yield _event(step, wire.delimited(1, content))


CASES = {
    "1m_x_1": Case("1,000,000 events of a scalar", 1_000_000, 20_000, _scalars(1)),
    "200k_x_10": Case("200,000 events of ten scalars", 200_000, 4_000, _scalars(10)),
    "wide": Case("1,000 steps of 1,000 scalars; in TensorBoard's dialect an event each", 1000, 20, _wide(1000)),
    "wide_short": Case("20 steps of 1,000 scalars, likewise", 20, 2, _wide(1000)),
    "mixed": Case(
        "500,000 steps of two scalars; five more each tenth, a histogram each hundredth", 500_000, 10_000, _mixed
    ),
    "tensors": Case("256 float32 tensors of 4 MiB", 256, 16, _tensors),
}
#: Its case is called `tree`.
TREE = Tree("1,000 runs of 100 scalars at 10 steps, listed", 1000, 20, 100, 10)
