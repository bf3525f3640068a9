"""Read back what was just written, for those who delete the original only then."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from instrument.errors import CorruptFrame
from instrument.eventfile import frame


def payloads(path: str, offset: int = 0) -> Iterator[memoryview]:
    """The payloads behind `offset`, where a frame must begin, to the end of the file: views into the mapped file.

    Raises:
        CorruptFrame: a frame is broken or does not end.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if offset >= size_bytes:
            return
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    while offset < size_bytes:
        found = frame.unpack(data, offset)
        if found is None:
            raise CorruptFrame("the file ends inside a frame", offset, path)
        payload, offset = found
        yield payload
