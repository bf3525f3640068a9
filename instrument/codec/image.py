"""Images: `Summary.Image`, and how a batch of pictures becomes one.

The pictures of a batch are laid out eight in a row on one canvas and stored as PNG. One rule holds for the whole batch:

- uint8 is kept as it is;
- bool and floats within [0, 1] are multiplied by 255 and rounded;
- anything else is mapped linearly, the smallest finite value to 0 and the largest to 255 (all to 128 when they are
  equal).

NaN and minus infinity become 0, plus infinity 255; neither they nor the canvas's empty cells take part in the range.
The rule that was used stands in words in field 100 of the message, which MindSpore's readers skip.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import wire
from instrument.codec.schema import MINDSPORE
from instrument.errors import CorruptMessage
from instrument.values import Image

PICTURES_A_ROW = 8

_IMAGE = MINDSPORE.type("Summary.Image")
#: Differences to the line above, packed by run lengths and Huffman's code only: in a third of the time of a search for
#: each line's best filter and for repeated strings (Pillow's way at this level). Photographs, digits and line charts
#: come out as small within 1 %, or smaller; patches of many flat colours come out twice as large.
_COMPRESS_LEVEL, _STRATEGY = 1, zlib.Z_RLE
_FILTER_UP, _GREY, _RGB = 2, 0, 2
#: What MindInsight shows. Pillow knows formats whose decoders run other programs.
_FORMATS = ("PNG", "JPEG", "GIF", "BMP")
#: Deflate packs 1032 to 1 at best, and PNG eight pixels into a byte.
_MOST_PIXELS_A_BYTE = 8 * 1032
_MODES = ("L", "LA", "RGB", "RGBA")
#: A picture may take so much memory while it is decoded.
MOST_BYTES = 64 << 20
#: What a pixel takes then by Pillow's mode: in Pillow itself, and in the array.
_PIXEL_BYTES = {"1": 4, "L": 2, "P": 8, "LA": 6, "RGB": 7, "RGBA": 8}
_MOST_PIXEL_BYTES = 11
_JPEG_PIXEL_BYTES = 6
_STRIP_ROWS = 64
_PNG, _TEXTS = b"\x89PNG\r\n\x1a\n", (b"zTXt", b"iTXt")


def from_array(array: NDArray[np.generic]) -> Image:
    """Encode a batch of shape (N, C, H, W), C being 1 or 3, any extent at least 1."""
    levels, mapping = _grey_levels(array)
    canvas = _canvas(levels)
    return Image(_png(canvas), canvas.shape[0], canvas.shape[1], canvas.shape[2], mapping)


@np.errstate(all="ignore")  # at the limits of a type, and whatever the user's own settings are
def _grey_levels(array: NDArray[Any]) -> tuple[NDArray[np.uint8], str]:
    """Return the batch as uint8, and in words how its numbers were mapped."""
    if array.dtype == np.uint8:
        return array, "as recorded"
    values: NDArray[Any] = array.astype(
        np.float64 if array.dtype.itemsize > 2 and array.dtype != np.float32 else np.float32, copy=False
    )
    low, high = float(values.min()), float(values.max())  # NaN where there is one
    are_finite = math.isfinite(low) and math.isfinite(high)
    if not are_finite:
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low >= 0.0 and high <= 1.0 and array.dtype.kind in "fb":
        scaled, mapping = values * 255.0, "[0, 1] times 255"
    elif low == high:
        scaled, mapping = np.where(np.isfinite(values), 128.0, values), f"all {low:.9g}, drawn as 128"
    else:
        # Halves of both ends keep the difference finite near the limits of float64.
        scaled = values / 2
        scaled -= low / 2
        scaled /= high / 2 - low / 2
        scaled *= 255.0
        mapping = f"linear, {low:.9g} to 0 and {high:.9g} to 255"
    if not are_finite:
        scaled = np.nan_to_num(scaled, nan=0.0, posinf=255.0, neginf=0.0)
    return np.rint(scaled, out=scaled).astype(np.uint8), mapping


def _canvas(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Lay the pictures (N, C, H, W) out on one canvas (rows * H, columns * W, C); cells without a picture are 0."""
    count, channels, height, width = pictures.shape
    columns = min(count, PICTURES_A_ROW)
    rows = -(-count // columns)
    cells = np.zeros((rows * columns, channels, height, width), np.uint8)
    cells[:count] = pictures
    grid = cells.reshape(rows, columns, channels, height, width).transpose(0, 3, 1, 4, 2)
    return grid.reshape(rows * height, columns * width, channels)


def _png(canvas: NDArray[np.uint8]) -> bytes:
    """Return a PNG (ISO/IEC 15948) of 8-bit grey or colour; every line is stored as its difference to the one above."""
    height, width, channels = canvas.shape
    rows = canvas.reshape(height, width * channels)
    lines = np.empty((height, 1 + width * channels), np.uint8)
    lines[:, 0] = _FILTER_UP
    lines[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=lines[1:, 1:])
    packer = zlib.compressobj(_COMPRESS_LEVEL, strategy=_STRATEGY)
    pixels = packer.compress(lines.data) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, _GREY if channels == 1 else _RGB, 0, 0, 0)
    return _PNG + _png_chunk(b"IHDR", head) + _png_chunk(b"IDAT", pixels) + _png_chunk(b"IEND", b"")


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def encode(value: Image) -> wire.Pieces:
    """Return the content of a `Summary.Image`, of which TensorBoard's dialect has the same."""
    return _IMAGE.pieces(
        {
            "height": value.height,
            "width": value.width,
            "colorspace": value.channels,
            "encoded_image": value.data,
            "mapping": value.mapping or None,
        }
    )


def decode(data: memoryview) -> Image:
    """Return the image of a message; the picture itself is not decoded.

    Raises:
        CorruptMessage: the bytes are no image message.
    """
    message = _IMAGE.decode(data)
    if "encoded_image" not in message:
        raise CorruptMessage("an image has no encoded bytes")
    return Image(
        bytes(message.data("encoded_image")),
        message.integer("height"),
        message.integer("width"),
        message.integer("colorspace"),
        message.text("mapping"),
    )


def pixels(value: Image, most_bytes: int = MOST_BYTES) -> NDArray[np.uint8]:
    """Decode the picture to (height, width, channels) uint8, in at most `most_bytes` of memory beside its own bytes.

    Raises:
        CorruptMessage: the bytes are no picture, not of the size that the message claims, or of one that takes more.
    """
    from PIL import Image as pillow

    if value.height * value.width > _MOST_PIXELS_A_BYTE * len(value.data):
        raise CorruptMessage(f"{len(value.data)} bytes cannot hold a picture of {value.height}x{value.width}")
    try:
        with pillow.open(io.BytesIO(_without_texts(value.data)), formats=_FORMATS) as picture:
            if (picture.height, picture.width) != (value.height, value.width):
                raise CorruptMessage(
                    f"a picture of {picture.height}x{picture.width} is announced as {value.height}x{value.width}"
                )
            pixel_bytes = _PIXEL_BYTES.get(picture.mode, _MOST_PIXEL_BYTES)
            pixel_bytes += _JPEG_PIXEL_BYTES * (picture.format == "JPEG")
            needed_bytes = value.height * value.width * pixel_bytes
            if needed_bytes > most_bytes:
                raise CorruptMessage(
                    f"a picture of {value.height}x{value.width} takes {needed_bytes} bytes while it is decoded; "
                    f"pixels() was allowed {most_bytes}, and takes more where most_bytes= says so"
                )
            decoded = _decoded(picture)
    except CorruptMessage:
        raise
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise CorruptMessage(f"an image cannot be decoded: {error}") from error
    return decoded


def _without_texts(data: bytes) -> bytes:
    """Return a PNG without its compressed texts, of which Pillow would keep up to 64 million characters."""
    if not data.startswith(_PNG) or not any(kind in data for kind in _TEXTS):
        return data
    kept, offset = [_PNG], len(_PNG)
    while offset + 12 <= len(data):
        end = offset + 12 + int.from_bytes(data[offset : offset + 4], "big")
        if data[offset + 4 : offset + 8] not in _TEXTS:
            kept.append(data[offset:end])
        offset = end
    return b"".join(kept)


def _decoded(picture: Any) -> NDArray[np.uint8]:
    """Return the pixels, taken out in strips: Pillow copies what it hands out more than once."""
    if picture.mode not in _MODES:
        picture = picture.convert("RGB")
    channels = len(picture.getbands())
    out = np.empty((picture.height, picture.width, channels), np.uint8)
    for top in range(0, picture.height, _STRIP_ROWS):
        strip = np.asarray(picture.crop((0, top, picture.width, min(top + _STRIP_ROWS, picture.height))))
        out[top : top + _STRIP_ROWS] = strip.reshape(-1, picture.width, channels)
    return out
