"""Images: the rule by which numbers become grey levels, the canvas, and bytes that are no picture."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as pillow

from instrument.codec import image, wire
from instrument.errors import CorruptMessage
from instrument.values import Image
from tests import protobuf

MAX = float(np.finfo(np.float64).max)


def levels(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The grey levels of a batch, out of the PNG, as (height, width, channels)."""
    with np.errstate(all="raise"):  # as a user may have it; nothing of ours may raise then
        value = image.from_array(array)
    pixels = image.pixels(value)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (value.height, value.width, value.channels)
    return pixels


def row(*values: float, dtype: str = "float64") -> list[int]:
    """The grey levels of one picture of one row."""
    result: list[int] = levels(np.array(values, dtype).reshape(1, 1, 1, -1))[0, :, 0].tolist()
    return result


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        # uint8 as it is
        ([0, 1, 2, 127, 255], "uint8", [0, 1, 2, 127, 255]),
        ([0, 1, 1, 0], "uint8", [0, 1, 1, 0]),
        ([3, 3], "uint8", [3, 3]),
        # bool and [0, 1] times 255
        ([False, True], "bool", [0, 255]),
        ([True, True], "bool", [255, 255]),
        ([0.0, 1.0, 0.5, 0.2], "float32", [0, 255, 128, 51]),
        ([0.25, 0.5], "float16", [64, 128]),
        ([0.0, 0.0], "float64", [0, 0]),
        ([1.0, 1.0], "float64", [255, 255]),
        ([5e-324, 0.0], "float64", [0, 0]),
        # anything else linearly from the smallest to the largest
        ([-1.0, 1.0, 0.0, 0.5], "float32", [0, 255, 128, 191]),
        ([0.0, 1.001], "float32", [0, 255]),
        ([0.0, 1.001, 0.786314], "float64", [0, 255, 200]),  # times 255 it were 201
        ([0, 1], "int64", [0, 255]),
        ([0, 1, 1], "int8", [0, 255, 255]),
        ([-(2**63), 0, 2**63 - 1], "int64", [0, 128, 255]),
        ([0, 2**64 - 1], "uint64", [0, 255]),
        ([0, 65535, 257], "uint16", [0, 255, 1]),
        ([100, 200, 300], "int32", [0, 128, 255]),
        ([-65504, 65504, 0], "float16", [0, 255, 128]),
        ([-3.4e38, 3.4e38, 0], "float32", [0, 255, 128]),
        ([-MAX, MAX, 0], "float64", [0, 255, 128]),
        ([MAX, MAX / 2], "float64", [255, 0]),
        # equal
        ([3.0, 3.0], "float32", [128, 128]),
        ([-7, -7, -7], "int16", [128, 128, 128]),
        ([1, 1], "int64", [128, 128]),
        ([MAX, MAX], "float64", [128, 128]),
        # what is not finite takes no part in the range
        ([0.0, 1.0, np.nan, 0.2], "float32", [0, 255, 0, 51]),
        ([0.0, 1.0, np.inf, 0.2], "float32", [0, 255, 255, 51]),
        ([0.5, 1.0, -np.inf, 0.2], "float16", [128, 255, 0, 51]),
        ([-1.0, 1.0, np.nan, np.inf, -np.inf], "float64", [0, 255, 0, 255, 0]),
        ([3.0, 3.0, np.nan, np.inf, -np.inf], "float32", [128, 128, 0, 255, 0]),
        ([np.nan, np.inf, -np.inf], "float32", [0, 255, 0]),
    ],
)
def test_one_rule_gives_these_levels(values: list[float], dtype: str, expected: list[int]) -> None:
    """A row of numbers becomes this row of grey levels."""
    assert row(*values, dtype=dtype) == expected


@pytest.mark.parametrize("scale", [5e-324, 1e-45, 1e-38])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiny_ranges_raise_nothing(scale: float, dtype: str) -> None:
    """Numbers that vanish when they are halved are still a picture."""
    assert len(row(-scale, 0.0, dtype=dtype)) == 2


def test_floats_equal_the_uint8_picture_within_one_level() -> None:
    """The same picture recorded as uint8 and as floats in [0, 1] looks the same."""
    picture = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    for dtype in ("float16", "float32", "float64"):
        floats = (picture / 255).astype(dtype)
        assert np.abs(levels(floats).astype(int) - levels(picture)).max() <= 1
    np.testing.assert_array_equal(levels((picture / 255).astype(np.float32)), levels(picture))


def test_float_levels_are_times_255_rounded(rng: np.random.Generator) -> None:
    """Within [0, 1] the level is the number times 255, rounded."""
    values = rng.random(1000)
    assert row(*values) == np.rint(values * 255).astype(int).tolist()


def test_equal_numbers_of_a_batch_get_equal_levels(rng: np.random.Generator) -> None:
    """One rule holds for the whole batch, not one for each picture."""
    batch = rng.standard_normal((3, 1, 4, 4)).astype(np.float32)
    batch[:, 0, 0, 0] = 0.125
    batch[1] *= 10
    batch[1, 0, 0, 0] = 0.125
    pixels = levels(batch)
    assert len({int(pixels[0, 4 * index, 0]) for index in range(3)}) == 1


@pytest.mark.parametrize("channels", [1, 3])
def test_uint8_pictures_are_kept_exactly(rng: np.random.Generator, channels: int) -> None:
    """Each picture lies in its cell, eight in a row, and no level changes."""
    batch = rng.integers(0, 256, (9, channels, 5, 7)).astype(np.uint8)
    pixels = levels(batch)
    assert pixels.shape == (10, 56, channels)
    for index, picture in enumerate(batch):
        y, x = 5 * (index // 8), 7 * (index % 8)
        np.testing.assert_array_equal(pixels[y : y + 5, x : x + 7], picture.transpose(1, 2, 0))


@pytest.mark.parametrize("value", [-5.0, 0.25, 3.0, 1e300])
def test_empty_cells_are_black_and_take_no_part(value: float) -> None:
    """The seven free cells beside the ninth picture are 0 and do not shift the range of the others."""
    batch = np.full((9, 1, 2, 2), value)
    batch[0] = value * 2
    pixels = levels(batch)
    assert pixels.shape == (4, 16, 1)
    assert not pixels[2:, 2:].any()
    expected = {0.25: (128, 64)}.get(value, (0, 255) if value < 0 else (255, 0))
    assert (pixels[0, 0, 0], pixels[2, 0, 0]) == expected


def expected_levels(array: NDArray[Any]) -> NDArray[Any]:
    """The exact level of each number, before it is rounded, by the rule in the documentation."""
    numbers = array.astype(np.longdouble)
    finite = numbers[np.isfinite(numbers)]
    low, high = (finite.min(), finite.max()) if finite.size else (np.longdouble(0), np.longdouble(1))
    if array.dtype != np.uint8:
        if array.dtype.kind in "fb" and low >= 0 and high <= 1:
            numbers = numbers * 255
        elif low == high:
            numbers = np.where(np.isfinite(numbers), np.longdouble(128), numbers)
        else:
            numbers = (numbers - low) / (high - low) * 255
    return np.nan_to_num(numbers, nan=0.0, posinf=255.0, neginf=0.0)


DTYPES = [
    "bool",
    "float16",
    "float32",
    "float64",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
]


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # signalling NaN, in the test's own cast
@pytest.mark.parametrize("dtype", DTYPES)
def test_pillow_sees_the_levels_of_any_numbers(rng: np.random.Generator, dtype: str) -> None:
    """Of any bits that a number can have, in one pixel, one row, one column and wide batches, grey and coloured."""
    for count, height, width in [(1, 1, 1), (1, 1, 300), (1, 300, 1), (2, 1, 20_000), (9, 3, 5)]:
        for channels in (1, 3):
            shape = (count, channels, height, width)
            bits = rng.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
            array = np.frombuffer(bits, "uint8" if dtype == "bool" else dtype).astype(dtype).reshape(shape)
            if dtype.startswith("float") and rng.random() < 0.5:
                array = rng.random(shape).astype(dtype)
                array[rng.random(shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
            value = image.from_array(array)
            with pillow.open(io.BytesIO(value.data)) as picture:
                assert (picture.format, picture.mode) == ("PNG", "L" if channels == 1 else "RGB")
                pixels = np.asarray(picture).reshape(value.height, value.width, channels)
            for index, one in enumerate(expected_levels(array)):
                y, x = height * (index // 8), width * (index % 8)
                cell = pixels[y : y + height, x : x + width].transpose(2, 0, 1)
                assert np.abs(cell - one).max() <= 0.501  # float32 arithmetic may round to the other side


@pytest.mark.parametrize(
    ("count", "shape"),
    [(1, (2, 3)), (2, (2, 6)), (7, (2, 21)), (8, (2, 24)), (9, (4, 24)), (16, (4, 24)), (17, (6, 24))],
)
def test_the_canvas_is_eight_pictures_wide(count: int, shape: tuple[int, int]) -> None:
    """Fewer than eight pictures make one row; more begin the next."""
    assert levels(np.zeros((count, 3, 2, 3), np.uint8)).shape == (*shape, 3)


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (3, 2, 1, 0)])
def test_layout_in_memory_does_not_show(rng: np.random.Generator, order: tuple[int, ...]) -> None:
    """A strided batch is the same picture as its copy."""
    batch = rng.random((3, 3, 3, 3)).astype(np.float32).transpose(order)[:, :, ::-1]
    np.testing.assert_array_equal(levels(batch), levels(np.array(batch, order="C")))


@pytest.mark.parametrize(
    ("values", "dtype", "mapping"),
    [
        ([1, 2], "uint8", "as recorded"),
        ([0, 1], "float32", "[0, 1] times 255"),
        ([-1.5, 2], "float32", "linear, -1.5 to 0 and 2 to 255"),
        ([7, 7], "int32", "all 7, drawn as 128"),
    ],
)
def test_the_rule_is_told_in_words(values: list[float], dtype: str, mapping: str) -> None:
    """Who looks at a picture can learn what its levels were."""
    value = image.from_array(np.array(values, dtype).reshape(1, 1, 1, -1))
    assert value.mapping == mapping
    data = b"".join(image.encode(value))
    assert image.decode(memoryview(data)) == value


def test_the_message_is_mindspores() -> None:
    """The fields are those of the message class; without the rule in words the bytes are, too."""
    value = image.from_array(np.zeros((2, 3, 4, 5), np.uint8))
    message = protobuf.message_class("Summary.Image")(height=4, width=10, colorspace=3, encoded_image=value.data)
    plain = Image(value.data, value.height, value.width, value.channels)
    assert b"".join(image.encode(plain)) == message.SerializeToString()
    assert image.decode(memoryview(message.SerializeToString())) == plain
    assert value.data.startswith(b"\x89PNG\r\n\x1a\n")


def file_of(array: NDArray[np.uint8], file_format: str, mode: str = "") -> Image:
    """A picture as another program might have written it."""
    picture = pillow.fromarray(array)
    out = io.BytesIO()
    (picture.convert(mode) if mode else picture).save(out, format=file_format)
    return Image(out.getvalue(), array.shape[0], array.shape[1], 3)


@pytest.mark.parametrize(("file_format", "mode"), [("PNG", ""), ("PNG", "P"), ("BMP", ""), ("GIF", ""), ("JPEG", "")])
def test_other_files_are_decoded(file_format: str, mode: str) -> None:
    """Palettes become colours, and the formats that MindInsight shows are shown."""
    array = np.full((32, 32, 3), [255, 0, 0], np.uint8)
    array[:, 16:] = [0, 0, 255]
    difference = np.abs(image.pixels(file_of(array, file_format, mode)).astype(int) - array)
    assert difference[:, np.r_[0:8, 24:32]].max() <= (4 if file_format == "JPEG" else 0)


@pytest.mark.parametrize("file_format", ["EPS", "TIFF", "PPM", "ICO"])
def test_other_formats_are_not_opened(file_format: str) -> None:
    """Only what a viewer shows is decoded: PostScript, say, would be handed to an interpreter."""
    with pytest.raises(CorruptMessage, match="cannot be decoded"):
        image.pixels(file_of(np.zeros((16, 16, 3), np.uint8), file_format))


def png_of(width: int, height: int, body: bytes) -> bytes:
    """A grey PNG with this header and this compressed body."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", body), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("data", "height", "width", "reason"),
    [
        (png_of(100_000, 100_000, b""), 100_000, 100_000, "cannot hold a picture of 100000x100000"),
        (png_of(100_000, 100_000, b""), 10, 10, "cannot be decoded"),
        (png_of(9000, 9000, b""), 9000, 9000, "cannot hold"),
        (png_of(2, 2, zlib.compress(bytes(6))), 2, 3, "2x2 is announced as 2x3"),
        (png_of(2, 2, zlib.compress(bytes(6))), 0, 0, "announced as 0x0"),
        (png_of(2, 2, zlib.compress(bytes(6))), -2, -2, "announced as -2x-2"),
        (png_of(20, 20, zlib.compress(bytes(60))), 20, 20, "cannot be decoded"),
        (png_of(20, 20, b"no deflate"), 20, 20, "cannot be decoded"),
        (b"", 0, 0, "cannot be decoded"),
        (b"GIF89a", 1, 1, "cannot be decoded"),
        (b"no picture at all", 1, 1, "cannot be decoded"),
    ],
)
def test_hostile_pictures_are_corrupt(data: bytes, height: int, width: int, reason: str) -> None:
    """Sizes are checked before anything is unpacked, and what cannot be unpacked is told."""
    with pytest.raises(CorruptMessage, match=reason):
        image.pixels(Image(data, height, width, 1))


def test_a_picture_cut_anywhere_is_corrupt_or_whole(rng: np.random.Generator) -> None:
    """A cut file is told, unless the cut lies behind the last pixel; never is a pixel made up."""
    value = image.from_array(rng.integers(0, 256, (1, 3, 9, 9)).astype(np.uint8))
    expected = image.pixels(value)
    for size in range(len(value.data)):
        try:
            pixels = image.pixels(Image(value.data[:size], 9, 9, 3))
        except CorruptMessage:
            continue
        assert size > len(value.data) - 24
        np.testing.assert_array_equal(pixels, expected)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_damaged_pictures_raise_nothing_else(rng: np.random.Generator) -> None:
    """Any damage gives pixels or a corrupt message, in whatever chunk it is and with its checksum right or wrong."""
    whole = image.from_array(rng.integers(0, 256, (1, 3, 5, 5)).astype(np.uint8)).data
    for _ in range(1000):
        data = bytearray(whole)
        for position in rng.integers(8, len(data), 3):
            data[position] = int(rng.integers(256))
        length = struct.unpack(">I", data[8:12])[0]
        if length < 20:
            data[16 + length : 20 + length] = struct.pack(">I", zlib.crc32(data[12 : 16 + length]))
        try:
            assert image.pixels(Image(bytes(data), 5, 5, 3)).dtype == np.uint8
        except CorruptMessage:
            continue


@pytest.mark.parametrize(
    "data",
    [
        b"",
        wire.integer(1, 5),
        wire.integer(4, 5),
        wire.double(1, 5.0) + wire.delimited(4, b"x"),
        wire.delimited(4, b"x") + wire.integer(100, 1),
        wire.delimited(4, b"x")[:-1],
    ],
)
def test_hostile_messages_are_corrupt(data: bytes) -> None:
    """A message without a picture, or with fields of another type, is no image."""
    with pytest.raises(CorruptMessage):
        image.decode(memoryview(data))
