"""Read whole event files of either dialect and of any size: steps, tags, scalars and tensors."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import numpy as np
from numpy.typing import NDArray

from tests.oracle.frames import all_fields, double, fields, integers, mask, masked, signed
from tests.oracle.frames import crc32c as plain_crc32c
from tests.oracle.mindspore_files import gap

#: What is longer has its checksum made by a library.
_SHORT_BYTES = 256
#: Types by their numbers in TensorBoard's files and in MindSpore's.
_TENSORBOARD_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 9: "<i8"}
_MINDSPORE_TYPES = {11: "<f4", 12: "<f8", 4: "<i4", 6: "u1", 5: "<i8"}


class Broken(Exception):
    """A frame that is not whole, or whose checksum is another."""


class Frame(NamedTuple):
    """A frame of a file; `missing` is how many events it says are missing, `is_version` that it stands first."""

    step: int
    wall_time: float
    payload: memoryview
    tags: list[str]
    missing: int
    is_version: bool


def frames(path: Path) -> Iterator[Frame]:
    """All frames of a file.

    Raises:
        Broken: the file is not frame behind frame.
    """
    for payload in _payloads(path):
        found = all_fields(payload)
        missing = gap(bytes(found[101]))[0] if 101 in found else 0
        tags = [bytes(value[1]).decode() for value in _values(found)]
        step = signed(found.get(2, 0))
        yield Frame(step, double(found[1]), payload, tags, missing, 3 in found)


def _payloads(path: Path) -> Iterator[memoryview]:
    size_bytes = path.stat().st_size
    if not size_bytes:
        return
    with open(path, "rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    at = 0
    while at < size_bytes:
        if size_bytes - at < 16:
            raise Broken(f"{path.name} has {size_bytes - at} bytes behind its last frame")
        length, checksum = struct.unpack_from("<QI", data, at)
        end = at + 16 + length
        if masked(bytes(data[at : at + 8])) != checksum or end > size_bytes:
            raise Broken(f"{path.name} has no frame at {at}")
        payload = data[at + 12 : end - 4]
        if mask(_crc(payload)) != struct.unpack_from("<I", data, end - 4)[0]:
            raise Broken(f"the frame at {at} of {path.name} has another checksum")
        yield payload
        at = end


def _crc(payload: memoryview) -> int:
    return plain_crc32c(bytes(payload)) if len(payload) <= _SHORT_BYTES else int(crc32c.crc32c(payload))


def _values(found: dict[int, Any]) -> list[dict[int, Any]]:
    return [all_fields(content) for number, content in fields(found.get(5, b"")) if number == 1]


def scalars(frame: Frame) -> dict[str, float]:
    """The scalars of a frame of either dialect."""
    numbers = {}
    for value in _values(all_fields(frame.payload)):
        for single in (2, 3):  # TensorBoard's number of the field, and MindSpore's
            if isinstance(value.get(single), memoryview) and len(value[single]) == 4:
                exact = value.get(100)
                number = double(exact) if exact is not None else struct.unpack("<f", value[single])[0]
                numbers[bytes(value[1]).decode()] = number
    return numbers


def tensors(frame: Frame, is_tensorboard: bool) -> dict[str, NDArray[Any]]:
    """The tensors of a frame, flat."""
    read = _tensorboard_array if is_tensorboard else _mindspore_array
    arrays = {}
    for value in _values(all_fields(frame.payload)):
        if 8 in value and (array := read(value)) is not None:
            arrays[bytes(value[1]).decode()] = array
    return arrays


def _tensorboard_array(value: dict[int, Any]) -> NDArray[Any] | None:
    plugin = bytes(all_fields(all_fields(value[9])[1])[1]).decode()
    if plugin != "tensors":
        return None
    found = all_fields(value[8])
    array = np.frombuffer(found.get(4, b""), _TENSORBOARD_TYPES[found[1]])
    dims = [signed(all_fields(dim).get(1, 0)) for _, dim in fields(found[2])]
    assert array.size == np.prod(dims, dtype=np.int64)
    return array


def _mindspore_array(value: dict[int, Any]) -> NDArray[Any]:
    found = all_fields(value[8])
    dtype = _MINDSPORE_TYPES[found[2]]
    if 8 in found:
        array = np.frombuffer(found[8], dtype)
    else:
        array = np.frombuffer(found.get(3, b""), "<f4").astype(dtype, copy=False)
    assert array.size == np.prod(integers(value[8], 1), dtype=np.int64)
    return array
