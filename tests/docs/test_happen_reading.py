"""Messages of codecs, of reading and of the command line, made to happen where no other test compares their words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import instrument
from instrument import profile, read
from instrument.analyse import executions
from instrument.analyse.table import Table
from instrument.codec import histogram, image, landscape, lifecycle, lineage, tensor, trace, wire
from instrument.codec import tensorboard_values as tensorboard
from instrument.runs import run as runs
from instrument.runs import verify
from instrument.show.cli import main
from instrument.values import ArrayItem, Event, Image, Landscape, Lineage, MessageItem
from tests.analyse import build as captures
from tests.docs.happen import is_said, said
from tests.runs import build

Given = Callable[[], Any]


def _view(data: bytes) -> memoryview:
    return memoryview(data)


def _point(*columns: list[float]) -> bytes:
    return b"".join(wire.delimited(number, _floats(values)) for number, values in enumerate(columns, 1))


def _floats(values: list[float]) -> bytes:
    array = np.array(values, np.float32)
    return wire.integer(1, array.size) + wire.integer(2, 11) + wire.delimited(3, array.tobytes())


_GRID = wire.delimited(1, _point([0.0, 1.0], [0.0], [1.0, 2.0]))
_PATH = wire.delimited(2, wire.integer(1, 4) + wire.delimited(2, _point([0.0, 1.0], [0.0, 1.0], [0.0, 1.0])))
_DIM = wire.delimited(2, wire.delimited(2, wire.integer(1, 2)))
_SHAPED = wire.integer(1, 1) + _DIM + wire.delimited(4, np.zeros(3, np.float32).tobytes())

CODECS: dict[str, Given] = {
    "a gap of … events": lambda: lifecycle.decode_gap(_view(b"")),
    "a bucket counts … values": lambda: histogram.decode(_view(wire.delimited(1, wire.integer(3, -1)))),
    "an image has no encoded bytes": lambda: image.decode(_view(b"")),
    "an image cannot be decoded: …": lambda: image.pixels(Image(b"no picture", 1, 1, 1)),
    "a landscape has no grid": lambda: landscape.to_surface(Landscape(b""), ""),
    "a landscape's path has … numbers and … x … coordinates": lambda: landscape.to_surface(
        Landscape(_GRID + _PATH), ""
    ),
    "a landscape's details are no JSON: …": lambda: landscape.to_surface(
        Landscape(_GRID + wire.delimited(100, b"{")), ""
    ),
    "a … is no … message": lambda: lineage.to_dict(Lineage("train_lineage", b"\xff")),
    "a tensor of … dims … holds … values": lambda: tensor.decode(_view(wire.integer(1, 2) + wire.integer(2, 11))),
    "a tensor of dims … cannot be made: …": lambda: tensor.decode(
        _view(b"".join(wire.integer(1, extent) for extent in (0, 2**62, 2**62)) + wire.integer(2, 11))
    ),
    "a scalar is a tensor of shape …": lambda: tensorboard.number(
        _view(wire.integer(1, 1) + wire.delimited(2, wire.delimited(2, wire.integer(1, 0))))
    ),
    "a tensor of dims … holds … elements": lambda: tensorboard.tensor(_view(_SHAPED)),
    "a histogram has … bucket limits and … counts; at most … are read": lambda: tensorboard.histogram(
        _view(wire.delimited(6, np.zeros(2).tobytes()) + wire.delimited(7, np.zeros(1).tobytes()))
    ),
    "a histogram is a tensor of shape …; expected is (buckets, 3), at most … of them": lambda: (
        tensorboard.histogram_of_tensor(
            _view(
                wire.integer(1, 1)
                + wire.delimited(2, wire.delimited(2, wire.integer(1, 1)))
                + wire.delimited(4, b"0000")
            )
        )
    ),
    "an image is a tensor of … strings; expected are width, height, file": lambda: tensorboard.image_of_tensor(
        _view(wire.delimited(8, b"1"))
    ),
    "a piece of … claims … bytes at … of … in window …": lambda: trace.decode(_view(wire.delimited(7, b"x"))),
    "a message holds a field of wire type …": lambda: list(wire.fields(_view(b"\x0b"))),
    "a message holds a field with number 0": lambda: list(wire.fields(_view(b"\x00\x00"))),
    "field … claims … bytes where … are left": lambda: list(wire.fields(_view(b"\x0a\x05a"))),
}


@pytest.mark.parametrize("message", CODECS)
def test_messages_of_codecs(message: str, caplog: Any, capsys: Any) -> None:
    """Each of bytes that no writer of ours makes."""
    assert is_said(message, said(CODECS[message], caplog, capsys))


def _run(folder: Path) -> Path:
    """A run with a scalar and a tensor."""
    array = np.arange(4096, dtype=np.float32)
    return build.write(folder, [Event(1, 1.0, [ArrayItem("tensor", "t", array, "float32")], {"loss": 1.0})])


def _changed(folder: Path) -> None:
    path = _run(folder)
    opened = read(folder)
    tensors = opened.tensors("t")
    path.write_bytes(bytes(path.stat().st_size))
    tensors[1]


def _damaged_landscape(folder: Path) -> None:
    build.write(folder, [Event(1, 1.0, [MessageItem("landscape", "plane", b"\x08\x01")])])
    opened = read(folder)
    assert opened.landscapes == []
    raise ValueError(opened.damage[0].reason)


def _without(module: str, monkeypatch: pytest.MonkeyPatch, action: Given) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    action()


def _windowless(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "events.out.events.profile.1700000000.0.host_MS").write_bytes(build.encoded([])[0])
    profile(folder)


def _cut_executions() -> None:
    rows = captures.executions((captures.T0, 0, 0), (captures.T0 + 5, -2, 0))
    found = executions.count_executions(captures.capture([captures.FORWARD], rows)).problems()
    raise ValueError("; ".join(one.what for one in found))


READING: dict[str, Callable[[Path], Any]] = {
    "module 'instrument' has no attribute …": lambda _: instrument.nothing,  # type: ignore[attr-defined]
    "Table …: its columns differ in length: ….": lambda _: Table("t", {"a": np.zeros(1), "b": np.zeros(2)}),
    "Table … has no column …; it has …": lambda _: Table("t", {"a": np.zeros(1)})["b"],
    "executions of 0 ns, counted as executions": lambda _: _cut_executions(),
    "…, left out of sums": lambda _: _cut_executions(),
    "… holds no window of a profile": lambda folder: _windowless(folder),
    "… was changed at byte … since it was read": _changed,
    "… … at step …: …": _changed,
    "landscape …: …": _damaged_landscape,
    "run … has no tag …; …": lambda folder: (_run(folder), read(folder).kinds("los")),
    "the nearest … …": lambda folder: (_run(folder), read(folder).scalars("los")),
    "run … has no … …": lambda folder: (_run(folder), read(folder).images("x")),
    "none at all": lambda folder: (_run(folder), read(folder).images("x")),
    "…; that tag is read by …()": lambda folder: (_run(folder), read(folder).scalars("t")),
    "is a file": lambda folder: runs.find_runs(_run(folder)),
    "… exists; repair writes new files only, give another -o": lambda folder: verify.repair(
        str(_run(folder)), str(_run(folder))
    ),
    "--rows is …; it is a number of rows, or 0 for all of them": lambda folder: main(
        ["profile", str(folder), "--rows", "-1"]
    ),
    "--interval is …; expected FIRST..LAST, or all numbers with commas between": lambda folder: main(
        ["landscape", str(folder), "--interval", "x"]
    ),
    "none of … runs in …: …": lambda folder: (_run(folder), main(["lineage", str(folder), "--where", "path == 'x'"])),
    "wrote … frames into … files at …": lambda folder: (
        _run(folder / "a"),
        main(["repair", str(folder / "a"), "-o", str(folder / "b")]),
    ),
}
EXPRESSIONS = {
    "… is no name; …": "has(3)",
    "comparisons, and, or, not, in, + - * /, numbers, texts, lists and has(NAME) are known": "lambda: 1",
    "…: `is` is not known; == compares, has(NAME) asks for a value": "loss is None",
    "the expression has … characters; at most … are read": "1 + " * 5000 + "1",
    "… is no expression: …; …": "loss >",
}


@pytest.mark.parametrize("message", READING)
def test_messages_of_reading(message: str, tmp_path: Path, caplog: Any, capsys: Any) -> None:
    """Of runs that are not there, not whole, or asked for what they lack."""
    assert is_said(message, said(lambda: READING[message](tmp_path), caplog, capsys))


@pytest.mark.parametrize("message", EXPRESSIONS)
def test_messages_of_expressions(message: str, tmp_path: Path, caplog: Any, capsys: Any) -> None:
    """What `--where` does not understand."""
    _run(tmp_path)
    words = ["lineage", str(tmp_path), "--where", EXPRESSIONS[message]]

    assert is_said(message, said(lambda: main(words), caplog, capsys))


def test_message_of_a_library_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, capsys: Any
) -> None:
    """pandas, which a series can do without."""
    _run(tmp_path)

    found = said(lambda: _without("pandas", monkeypatch, read(tmp_path).scalars("loss").to_pandas), caplog, capsys)
    assert is_said("to_pandas() needs pandas, which is not installed: pip install pandas", found)
