"""Every single bit of small files, flipped: no wrong value is ever returned, and nothing beyond its frame is lost."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.analyse import trace_files
from instrument.codec.landscape import from_surface
from instrument.codec.lineage import custom_message
from instrument.codec.trace import encode as encode_trace
from instrument.errors import CorruptMessage, NoSuchRun
from instrument.eventfile.frame import HEADER, OVERHEAD_BYTES
from instrument.runs import verify
from instrument.runs.run import Run, read_run
from instrument.values import Event, LossSurface, MessageItem, Trace
from tests import protobuf
from tests.runs.build import SECONDS, encoded, item, steps, write, write_lineage

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
#: Files that others wrote: MindSpore, torch in the old style, TensorBoard in the new one.
OTHERS = [
    "mindspore/events.out.events.summary.1700000000.0.host_MS",
    "mindspore/events.out.events.summary.1700000000.0.host_lineage",
    "tensorboard/hparams/events.out.tfevents.1700000000.host.1.1",
    "tensorboard/styles/events.out.tfevents.1700000000.host.1.2",
    "tensorboard/torch/events.out.tfevents.1700000000.host.1.0",
]


def graph() -> bytes:
    message = protobuf.message_class("GraphProto")(name="g")
    message.node.add(name="1", op_type="Add")
    return bytes(message.SerializeToString())


def landscape() -> bytes:
    none, ones = np.empty(0), np.ones(2)
    return from_surface(
        LossSurface("t", ones, ones, np.ones((2, 2)), np.arange(2), np.ones((2, 2)), ones, ones, ones, none, none)
    )


def small(kind: str, folder: Path) -> Path:
    if kind == "lineage":
        return write_lineage(folder, [("custom_lineage_data", custom_message({"a": 1})), ("eval_lineage", b"")])
    if kind in ("graph", "landscape", "trace"):
        content = graph() if kind == "graph" else landscape()
        if kind == "trace":
            return small_trace(folder)
        return write(folder, [Event.of(step, 5.0, (MessageItem(kind, "g", content),)) for step in (1, 2)])
    return write(folder, steps(kind, "t", range(3), 0.1, start=10.0))


def small_trace(folder: Path) -> Path:
    path = folder / f"events.out.events.profile.{SECONDS}.0.host_MS"
    parts = [
        Trace(0, "cpu", 0, "a", 0, 5, b"12"),
        Trace(0, "cpu", 0, "a", 2, 5, b"345"),
        Trace(1, "cpu", 0, "b", 0, 1, b"x"),
    ]
    items = [MessageItem("trace", one.name, encode_trace(one)) for one in parts]
    path.write_bytes(b"".join(encoded([Event(0, 1.0, [item]) for item in items])))
    return path


def facts(run: Run) -> list[tuple[Any, ...]]:
    """Every value of a run with its place, as text and bytes."""
    found: list[tuple[Any, ...]] = [("lineage", repr(run.lineage))] if run.lineage else []
    for kind, tags in run.tags().items():
        for tag in tags:
            points = run.points(kind, tag, superseded=True)
            for index, (step, wall_time) in enumerate(
                zip(points.step.tolist(), points.wall_time.tolist(), strict=True)
            ):
                try:
                    value = points.decode(index)
                except CorruptMessage:
                    continue
                found.append((kind, tag, step, wall_time, _plain(value)))
    found += [("surface", one.tag, _plain(one)) for one in run.landscapes]
    for path in run.traces:
        with contextlib.suppress(NoSuchRun):
            found += [("window", one.number, _plain_files(one)) for one in trace_files.windows(path)]
    return found


def _plain_files(window: trace_files.StoredWindow) -> str:
    return repr({name: b"".join(parts) for name, parts in window.files.items()})


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return value.hex()
    return repr({key: one.tolist() if isinstance(one, np.ndarray) else one for key, one in vars(value).items()})


def frames_of(data: bytes) -> list[tuple[int, int]]:
    found, offset = [], 0
    while offset < len(data):
        length = HEADER.unpack_from(data, offset)[0]
        found.append((offset, offset + OVERHEAD_BYTES + length))
        offset += OVERHEAD_BYTES + length
    return found


def damage_of(path: Path) -> list[tuple[str, int, int]]:
    """What `verify` says: file, offset, bytes."""
    return [(one.path, one.offset, one.bytes_skipped) for one in verify.check(str(path)).damage]


def check_flips(path: Path, positions: list[int], load: Callable[[], Run]) -> None:
    content = path.read_bytes()
    frames = frames_of(content)
    whole = facts(load())
    without: dict[int, list[tuple[Any, ...]]] = {}
    for position in positions:
        index = next(index for index, (_, end) in enumerate(frames) if position < end)
        start, end = frames[index]
        if index not in without:
            path.write_bytes(content[:start] + content[end:])
            without[index] = facts(load())
        for bit in range(8):
            data = bytearray(content)
            data[position] ^= 1 << bit
            path.write_bytes(data)
            run = load()
            found = facts(run)
            assert found == without[index], (position, bit)
            told = [(one.path, one.offset, one.bytes_skipped) for one in run.damage]
            assert told == ([] if run.traces else [(str(path), start, end - start)])
            assert damage_of(path) == [(str(path), start, end - start)]
    assert any(found != whole for found in without.values())


KINDS = ["scalar", "tensor", "histogram", "image", "graph", "landscape", "lineage", "trace"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_flipped_bit_gives_a_wrong_value(tmp_path: Path, kind: str) -> None:
    """The value of the frame that holds the bit is lost and told, all others are as they were; in some 60 bytes."""
    path = small(kind, tmp_path)
    check_flips(path, list(range(0, path.stat().st_size, -(-path.stat().st_size // 60))), lambda: read_run(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_flipped_bit_of_all_gives_a_wrong_value(tmp_path: Path, kind: str) -> None:
    """The same in every byte."""
    path = small(kind, tmp_path)
    check_flips(path, list(range(path.stat().st_size)), lambda: read_run(tmp_path))


def test_no_flipped_bit_gives_a_wrong_value_among_many_alike(tmp_path: Path) -> None:
    """The same where frames are taken together: in three frames of a hundred."""
    events = [
        Event.of(step, 10.0 + step, tuple(item("scalar", tag, step / 4) for tag in ("a", "b"))) for step in range(100)
    ]
    path = write(tmp_path, events)
    frames = frames_of(path.read_bytes())
    positions = [at for index in (1, 50, 100) for at in range(frames[index][0], frames[index][1], 3)]
    check_flips(path, positions, lambda: read_run(tmp_path))


@pytest.mark.parametrize("name", OTHERS)
def test_no_flipped_bit_of_others_files_gives_a_wrong_value(tmp_path: Path, name: str) -> None:
    """The same in files of MindSpore's and TensorBoard's recorders, old and new style; in some 50 bytes."""
    path = Path(shutil.copy(GOLDEN / name, tmp_path))
    check_flips(path, list(range(0, path.stat().st_size, -(-path.stat().st_size // 50))), lambda: read_run(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_no_flipped_bit_of_all_of_others_files_gives_a_wrong_value(tmp_path: Path, name: str) -> None:
    """The same in every byte."""
    path = Path(shutil.copy(GOLDEN / name, tmp_path))
    check_flips(path, list(range(path.stat().st_size)), lambda: read_run(tmp_path))
