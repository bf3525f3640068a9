"""Files that take two bytes where a careless reader takes hundreds: `FILES` makes some megabytes of each."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np

from instrument.codec import tensorboard as tb
from instrument.codec import wire
from instrument.eventfile import frame
from tests.runs.build import SECONDS, framed

SUMMARY = f"events.out.events.summary.{SECONDS}.0.host_MS"
LINEAGE = f"events.out.events.summary.{SECONDS}.0.host_lineage"
PROFILE = f"events.out.events.profile.{SECONDS}.0.host_MS"
TENSORBOARD = f"events.out.tfevents.{SECONDS}.host.1.0"
SIZE_BYTES = 6 << 20


def many(unit: bytes, size_bytes: int = SIZE_BYTES) -> bytes:
    return unit * (size_bytes // len(unit))


def counted(make: Callable[[int], bytes]) -> bytes:
    """Units that are numbered, until there are enough."""
    return b"".join(make(number) for number in range(SIZE_BYTES // len(make(1 << 14))))


def one(body: bytes) -> bytes:
    return framed([wire.double(1, 1.0) + wire.integer(2, 1) + body])


def value(number: int, content: bytes) -> bytes:
    return one(wire.delimited(5, wire.delimited(1, wire.delimited(1, b"t") + wire.delimited(number, content))))


def of_plugin(plugin: bytes, content: bytes) -> bytes:
    metadata = wire.delimited(tb.METADATA, wire.delimited(1, wire.delimited(1, plugin)))
    return one(wire.delimited(5, wire.delimited(1, wire.delimited(1, b"t") + metadata + content)))


def tensorboard(dtype: int, dims: list[int], content: bytes, plugin: bytes = b"") -> bytes:
    shape = b"".join(wire.delimited(2, wire.integer(1, extent)) for extent in dims)
    return of_plugin(plugin, wire.delimited(8, wire.integer(1, dtype) + wire.delimited(2, shape) + content))


def hparams(names: bytes) -> bytes:
    content = wire.delimited(1, b"hparams") + wire.delimited(2, wire.delimited(3, names))
    metadata = wire.delimited(tb.METADATA, wire.delimited(1, content))
    return wire.delimited(5, wire.delimited(1, wire.delimited(1, tb.HPARAMS_START.encode()) + metadata))


def plugins(first: int) -> bytes:
    tags = [wire.delimited(1, f"{first:x}{number:03x}".encode()) for number in range(1000)]
    return framed([wire.delimited(5, b"".join(wire.delimited(1, tag + b"\x4a\x04\x0a\x02\x0a\0") for tag in tags))])


def piece(*fields: bytes) -> bytes:
    return framed([wire.delimited(100, b"".join(fields))])


def picture(data: bytes, height: int = 8, width: int = 8) -> bytes:
    return value(4, wire.integer(1, height) + wire.integer(2, width) + wire.integer(3, 1) + wire.delimited(4, data))


def png(height: int, width: int, rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A grey picture, with further chunks before its pixels."""
    head = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    out = io.BytesIO(b"\x89PNG\r\n\x1a\n")
    out.seek(0, io.SEEK_END)
    for kind, data in (head, *chunks, (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")):
        out.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    return out.getvalue()


def headers() -> bytes:
    """Headers that hold, each of a frame up to the end of the file, with none that does."""
    return b"".join(frame.head(SIZE_BYTES - 12 * number - 16) for number in range(SIZE_BYTES // 24)) + bytes(
        SIZE_BYTES // 2
    )


_TEXT = b"text\0\0\0\0\0" + zlib.compress("\N{GRINNING FACE}".encode() * 250_000, 9)
_NUMBER, _EMPTY_TENSOR = b"\x0a\x07\x0a\0\x1d\0\0\0\0", b"\x0a\x04\x0a\0\x42\0"
_FLOATS = np.zeros(SIZE_BYTES // 4, np.float32).tobytes()

#: What is in the file -> its name, and what makes it.
FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "packed dims": (SUMMARY, lambda: value(8, wire.delimited(1, b"\x01" * SIZE_BYTES) + wire.integer(2, 11))),
    "dims one by one": (SUMMARY, lambda: value(8, many(b"\x08\x81\x01") + wire.integer(2, 11))),
    "floats one by one": (SUMMARY, lambda: value(8, wire.integer(2, 11) + many(b"\x1d\0\0\0\0"))),
    "integers as floats": (SUMMARY, lambda: value(8, wire.integer(2, 5) + wire.delimited(3, _FLOATS))),
    "empty buckets": (SUMMARY, lambda: value(9, many(b"\x0a\0"))),
    "no picture": (SUMMARY, lambda: picture(bytes(SIZE_BYTES))),
    "a picture of 144 million pixels": (
        SUMMARY,
        lambda: picture(png(12_000, 12_000, bytes(144_012_000)), 12_000, 12_000),
    ),
    "a picture with 64 texts": (SUMMARY, lambda: picture(png(8, 8, bytes(72), *[(b"iTXt", _TEXT)] * 64))),
    "a graph of empty nodes": (SUMMARY, lambda: one(wire.delimited(4, many(b"\x0a\0")))),
    "a landscape of empty points": (SUMMARY, lambda: value(10, many(b"\x0a\0"))),
    "a landscape of empty arrays": (SUMMARY, lambda: value(10, many(b"\xaa\x06\0"))),
    "packed intervals": (
        SUMMARY,
        lambda: value(10, b"\x0a\0" + wire.delimited(2, wire.delimited(1, bytes(SIZE_BYTES)))),
    ),
    "details of a landscape": (
        SUMMARY,
        lambda: value(10, b"\x0a\0" + wire.delimited(100, b"[" + many(b"[],") + b"0]")),
    ),
    "empty tensors in events": (SUMMARY, lambda: many(framed([wire.delimited(5, many(_EMPTY_TENSOR, 250_000))]))),
    "empty tensors": (SUMMARY, lambda: many(framed([wire.delimited(5, _EMPTY_TENSOR)]))),
    "numbers in events": (SUMMARY, lambda: many(framed([wire.delimited(5, many(_NUMBER, 400_000))]))),
    "numbers": (SUMMARY, lambda: many(framed([wire.delimited(5, _NUMBER)]))),
    "numbers in events of all lengths": (
        SUMMARY,
        lambda: counted(lambda number: framed([wire.delimited(5, _NUMBER) + wire.delimited(7, bytes(number % 97))])),
    ),
    "nothing": (SUMMARY, lambda: many(framed([b""]))),
    "no events": (SUMMARY, lambda: many(framed([b"\xff"]))),
    "no frames": (SUMMARY, lambda: many(b"\x01" * 13)),
    "headers": (SUMMARY, headers),
    "gaps": (SUMMARY, lambda: many(framed([wire.delimited(101, b"\x08\x01")]))),
    "user info": (LINEAGE, lambda: framed([wire.delimited(10, many(b"\x0a\0"))])),
    "children": (LINEAGE, lambda: framed([wire.delimited(9, many(b"\x0a\0"))])),
    "weights": (LINEAGE, lambda: framed([wire.delimited(9, wire.delimited(3, many(b"\x1d\0\0\0\0")))])),
    "packed sizes": (
        LINEAGE,
        lambda: framed([wire.delimited(9, wire.delimited(3, wire.delimited(2, bytes(SIZE_BYTES))))]),
    ),
    "metric": (LINEAGE, lambda: framed([wire.delimited(7, wire.delimited(2, b"[" + many(b"[],") + b"0]"))])),
    "lineage events": (LINEAGE, lambda: many(framed([b"\x3a\0"]))),
    "custom lineage events": (LINEAGE, lambda: many(framed([b"\x52\0"]))),
    "TensorBoard, floats one by one": (TENSORBOARD, lambda: tensorboard(1, [SIZE_BYTES // 5], many(b"\x2d\0\0\0\0"))),
    "TensorBoard, packed varints": (TENSORBOARD, lambda: tensorboard(9, [1], wire.delimited(10, b"\x01" * SIZE_BYTES))),
    "TensorBoard, varints": (TENSORBOARD, lambda: tensorboard(9, [1], many(b"\x50\x01"))),
    "TensorBoard, truths": (TENSORBOARD, lambda: tensorboard(10, [1], wire.delimited(11, b"\x01" * SIZE_BYTES))),
    "TensorBoard, doubles of floats": (
        TENSORBOARD,
        lambda: tensorboard(2, [SIZE_BYTES // 4], wire.delimited(5, _FLOATS)),
    ),
    "TensorBoard, bfloat16": (TENSORBOARD, lambda: tensorboard(14, [SIZE_BYTES // 2], wire.delimited(4, _FLOATS))),
    "TensorBoard, texts": (TENSORBOARD, lambda: tensorboard(7, [SIZE_BYTES // 4], many(b"\x42\x02ab"))),
    "TensorBoard, dims": (TENSORBOARD, lambda: tensorboard(1, [1] * (SIZE_BYTES // 4), b"")),
    "TensorBoard, sizes": (
        TENSORBOARD,
        lambda: of_plugin(
            b"", wire.delimited(8, b"\x08\x01" + wire.delimited(2, wire.delimited(2, many(b"\x08\x01"))))
        ),
    ),
    "TensorBoard, buckets one by one": (
        TENSORBOARD,
        lambda: of_plugin(b"", wire.delimited(5, many(b"\x31" + bytes(8) + b"\x39" + bytes(8)))),
    ),
    "TensorBoard, packed buckets": (
        TENSORBOARD,
        lambda: of_plugin(b"", wire.delimited(5, wire.delimited(6, _FLOATS) + wire.delimited(7, _FLOATS))),
    ),
    "TensorBoard, buckets in a tensor": (
        TENSORBOARD,
        lambda: tensorboard(1, [SIZE_BYTES // 12, 3], wire.delimited(4, _FLOATS), b"histograms"),
    ),
    "TensorBoard, pictures": (TENSORBOARD, lambda: tensorboard(7, [1], many(b"\x42\x02ab"), b"images")),
    "TensorBoard, nodes": (TENSORBOARD, lambda: one(wire.delimited(4, many(b"\x0a\0")))),
    "TensorBoard, inputs": (TENSORBOARD, lambda: one(wire.delimited(4, wire.delimited(1, many(b"\x1a\0"))))),
    "TensorBoard, hyper-parameters": (
        TENSORBOARD,
        lambda: one(hparams(counted(lambda number: b"\x0a\x06\x0a\x04" + struct.pack("<I", number & 0x7F7F7F)))),
    ),
    "TensorBoard, starts": (TENSORBOARD, lambda: many(one(hparams(b"\x0a\x04\x0a\x02ab")))),
    "TensorBoard, plugins": (TENSORBOARD, lambda: counted(plugins)),
    "pieces of a byte": (
        PROFILE,
        lambda: counted(
            lambda number: piece(b"\x22\x01n", wire.integer(5, number), wire.integer(6, 1 << 20), b"\x3a\x01x")
        ),
    ),
    "empty raw files": (PROFILE, lambda: counted(lambda number: piece(wire.delimited(4, str(number).encode())))),
    "windows": (PROFILE, lambda: counted(lambda number: piece(wire.integer(1, number)))),
}
