"""Files that were damaged or made to harm: reading ends, soon, in bounded memory, with all that is whole."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from instrument import read
from instrument.codec import image, scalar, wire
from instrument.errors import CorruptMessage
from instrument.eventfile import frame
from instrument.values import Event, Image
from tests.runs.build import SECONDS, encoded, framed, item, steps
from tests.runs.test_tensorboard import FILE as TENSORBOARD_FILE
from tests.runs.test_tensorboard import event as tensorboard_event
from tests.runs.test_tensorboard import value as tensorboard_value

NAME = f"events.out.events.summary.{SECONDS}.0.host_MS"
_MARGIN_BYTES = 64 << 20


def decode_all(folder: Path) -> int:
    """How many values a run gives; each is decoded, or says that it is damaged."""
    run = read(folder)
    count = 0
    for kind, tags in run.tags().items():
        for tag in tags:
            points = run.points(kind, tag, superseded=True)
            for index in range(len(points)):
                try:
                    value = points.decode(index)
                    if isinstance(value, Image):
                        image.pixels(value)
                    count += 1
                except CorruptMessage:
                    continue
    _ = run.lineage, run.graph, run.damage, repr(run)
    return count


def test_whatever_is_overwritten_all_other_frames_are_read(tmp_path: Path, rng: np.random.Generator) -> None:
    """Random spans of random files: each frame that was not touched is found, and no value is wrong."""
    events = []
    for step in range(120):
        kinds = ["scalar"] * 3 + ["tensor", "histogram"] if step % 10 == 0 else ["scalar"]
        events.append(
            Event.of(step, 5.0 + step, tuple(item(kind, f"{kind}{n}", step / 8) for n, kind in enumerate(kinds)))
        )
    frames = encoded(events)
    starts = np.cumsum([0, *map(len, frames)])
    for _ in range(60):
        data = bytearray(b"".join(frames))
        touched = np.zeros(len(data), bool)
        for _ in range(int(rng.integers(1, 5))):
            start, size = int(rng.integers(len(data))), int(rng.choice([1, 4, 40, 400]))
            size = min(size, len(data) - start)
            data[start : start + size] = bytes(size) if rng.random() < 0.5 else rng.bytes(size)
            touched[start : start + size] = True
        (tmp_path / NAME).write_bytes(data)
        scalars = read(tmp_path).scalars("scalar0")
        whole = {step for step in range(120) if not touched[starts[step + 1] : starts[step + 2]].any()}
        assert whole <= set(scalars.step.tolist())
        np.testing.assert_array_equal(scalars.value, scalars.step / 8)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 300, 5000])
def test_garbage_is_read(tmp_path: Path, rng: np.random.Generator, size: int) -> None:
    """Any bytes under any name: nothing is raised, and every byte is told."""
    for name in (NAME, NAME.replace("_MS", "_lineage"), TENSORBOARD_FILE):
        for _ in range(10):
            (tmp_path / name).write_bytes(rng.bytes(size))
            assert sum(one.bytes_skipped for one in read(tmp_path / name).damage) == size
            assert decode_all(tmp_path) == 0
        (tmp_path / name).unlink()


@pytest.mark.parametrize("name", [NAME, NAME.replace("_MS", "_lineage"), TENSORBOARD_FILE])
def test_any_payload_is_decoded_or_told(tmp_path: Path, rng: np.random.Generator, name: str) -> None:
    """Right checksums around wrong messages."""
    good = np.frombuffer(encoded(steps("histogram", "h", [1], 3.0, start=0.0))[1][12:-4], np.uint8)
    frames = []
    for _ in range(400):
        bad = good[: int(rng.integers(1, good.size + 1))].copy()
        bad[rng.integers(bad.size, size=3)] = rng.integers(256, size=3)
        frames.append(framed([bad.tobytes()]))
    (tmp_path / name).write_bytes(b"".join(frames))
    decode_all(tmp_path)


def _tensor(dims: list[int], content: bytes) -> bytes:
    body = b"".join(wire.integer(1, extent) for extent in dims) + wire.integer(2, 11) + wire.delimited(3, content)
    return framed([wire.delimited(5, wire.delimited(1, wire.delimited(1, b"t") + wire.delimited(8, body)))])


def _tensorboard_tensor(dims: list[int]) -> bytes:
    shape = b"".join(wire.delimited(2, wire.integer(1, extent)) for extent in dims)
    body = wire.integer(1, 1) + wire.delimited(2, shape) + wire.delimited(5, np.float32(1).tobytes())
    return tensorboard_event(1, tensorboard_value("t", wire.delimited(8, body)))


def _picture(height: int, width: int, data: bytes) -> bytes:
    body = wire.integer(1, height) + wire.integer(2, width) + wire.integer(3, 1) + wire.delimited(4, data)
    return framed([wire.delimited(5, wire.delimited(1, wire.delimited(1, b"t") + wire.delimited(4, body)))])


def _png_of(height: int, width: int) -> bytes:
    import io
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    out = io.BytesIO(b"\x89PNG\r\n\x1a\n")
    out.seek(0, io.SEEK_END)
    out.write(chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)))
    out.write(chunk(b"IDAT", zlib.compress(bytes(1000))))
    out.write(chunk(b"IEND", b""))
    return out.getvalue()


HOSTILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "length of 2**62": (NAME, lambda: frame.head(2**62) + bytes(500)),
    "length of 2**64 - 1": (NAME, lambda: frame.head(2**64 - 1) + bytes(500)),
    "length of 8 GiB": (NAME, lambda: frame.head(2**33) + bytes(500)),
    "huge dims": (NAME, lambda: _tensor([1 << 20, 1 << 20, 1 << 20], bytes(4))),
    "dims of a terabyte of nothing": (NAME, lambda: _tensor([0, 1 << 40], b"")),
    "dims that overflow": (NAME, lambda: _tensor([1 << 32, 1 << 32, 0], b"")),
    "ten thousand dims": (NAME, lambda: _tensor([1] * 10_000, bytes(4))),
    "one element for a gigabyte": (TENSORBOARD_FILE, lambda: _tensorboard_tensor([16384, 16384])),
    "a picture of 16 GB": (NAME, lambda: _picture(1 << 17, 1 << 17, _png_of(1 << 17, 1 << 17))),
    "a picture larger than announced": (NAME, lambda: _picture(10, 10, _png_of(20_000, 20_000))),
    "a text of nothing": (TENSORBOARD_FILE, lambda: tensorboard_event(0, tensorboard_value("t", b"\x42\x00"))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_claims_cost_no_memory(tmp_path: Path, name: str) -> None:
    """A few bytes that claim to be much take no more than the file's size and 64 MB, and none of the time."""
    file_name, make = HOSTILE[name]
    (tmp_path / file_name).write_bytes(make())
    decode_all(tmp_path)
    tracemalloc.start()
    started = time.process_time()
    decode_all(tmp_path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < (tmp_path / file_name).stat().st_size + _MARGIN_BYTES
    assert time.process_time() - started < 2


def test_many_places_of_damage_are_told_in_bounded_memory(tmp_path: Path) -> None:
    """Beyond ten thousand places the last one grows; nothing that is whole is lost for it."""
    good = encoded(steps("scalar", "x", [1], 1.0, start=0.0))[1]
    (tmp_path / NAME).write_bytes((b"\x01" + good) * 12_000)
    run = read(tmp_path)
    assert len(run.scalars("x", superseded=True)) == 12_000
    assert len(run.damage) == 10_000
    assert run.damage[-1].offset + run.damage[-1].bytes_skipped > 11_999 * (len(good) + 1)


@pytest.mark.slow
def test_a_file_of_countless_tags_is_bounded(tmp_path: Path) -> None:
    """A few megabytes of tags: the first 50,000 are read, and it is told from where on others are left out."""
    frames = []
    for first in range(0, 60_000, 1000):
        values = b"".join(scalar.encode_field(f"{tag:06d}", 1.0) for tag in range(first, first + 1000))
        frames.append(framed([wire.integer(2, 1) + wire.delimited(5, values)]))
    (tmp_path / NAME).write_bytes(b"".join(frames))
    tracemalloc.start()
    run = read(tmp_path)
    assert len(run.tags()["scalar"]) == 50_000
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < (tmp_path / NAME).stat().st_size + _MARGIN_BYTES
    (damage,) = run.damage
    assert damage.offset == sum(map(len, frames[:50]))
    assert "50000 are left out" in damage.reason


@pytest.mark.slow
def test_an_event_of_countless_values_is_bounded(tmp_path: Path) -> None:
    """A million values in one event: as many are read as an event may have, and it is told."""
    (tmp_path / NAME).write_bytes(framed([wire.delimited(5, scalar.encode_field("x", 1.0) * 1_000_000)]))
    tracemalloc.start()
    run = read(tmp_path)
    assert len(run.scalars("x", superseded=True)) == 50_000
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < (tmp_path / NAME).stat().st_size + _MARGIN_BYTES
    (damage,) = run.damage
    assert "more than 50000 values" in damage.reason


def test_nested_lengths_that_lie_are_told(tmp_path: Path) -> None:
    """A value that claims more than its event holds is damage; its neighbours are read."""
    good = scalar.encode_field("good", 1.0)
    liar = b"\x0a\x7f\x0a\x01x"
    payload = wire.delimited(5, good + good.replace(b"good", b"also")) + b"\x2a\x05" + liar
    (tmp_path / NAME).write_bytes(framed([payload]))
    run = read(tmp_path)
    assert run.tags() == {"scalar": ["also", "good"]}
    assert [one.offset for one in run.damage] == [0]
