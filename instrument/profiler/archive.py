"""Copy the raw files of a window into the trace event file, and verify the copy before they are deleted.

Files are read and written a piece at a time, so memory does not grow with the window. What was written is read back and
compared with the raw files byte for byte.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from itertools import zip_longest

from instrument.codec import trace as trace_codec
from instrument.errors import CorruptFrame, CorruptMessage, RecordingError
from instrument.eventfile import frame
from instrument.values import TRACE_KIND, Event, MessageItem, Trace
from instrument.write.sink import Sink

#: Files that describe the window; they are written first, so that an event file that is cut still has them.
OWN_PREFIX = "instrument."
_OWN_KIND, _PIPELINE_KIND = "instrument", "minddata"
#: Files of MindSpore's data pipeline.
_PIPELINE_PREFIXES = (
    "pipeline_profiling_", "dataset_iterator_profiling_", "device_queue_profiling_", "minddata_",
)  # fmt: skip


def archive_files(directory: str, window: int, device: int, target: str, sink: Sink) -> int:
    """Write all files below `directory`. Return their size in bytes. `target` is the kind of the device's own files.

    Raises:
        RecordingError: not all of it is in the event file.
        OSError: a raw file cannot be read.
    """
    begin = sink.stats.bytes
    total_bytes = 0
    for piece in _pieces(directory, window, device, target):
        total_bytes += len(piece.data)
        item = MessageItem(TRACE_KIND, piece.name, trace_codec.encode(piece))
        if not sink.write(Event(0, time.time(), [item])):
            notice = sink.take_error()
            raise RecordingError(f"{sink.path}: {notice.reason if notice else 'a piece was refused'}")
    sink.flush()
    _verify(sink.path, begin, _pieces(directory, window, device, target))
    return total_bytes


def file_kind(name: str, target: str) -> str:
    """Return which tool wrote a file: "instrument", "minddata", or the profiler of the device."""
    if name.startswith(OWN_PREFIX):
        return _OWN_KIND
    return _PIPELINE_KIND if name.rpartition("/")[2].startswith(_PIPELINE_PREFIXES) else target


def _files(directory: str) -> list[str]:
    """List the regular files by their path inside `directory`, those that describe the window first."""
    regular = []
    for folder, _, names in os.walk(directory):
        paths = (os.path.join(folder, name) for name in names)
        regular += [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
    names = [os.path.relpath(path, directory).replace(os.sep, "/") for path in regular]
    return sorted(names, key=lambda name: (not name.startswith(OWN_PREFIX), name))


def _pieces(directory: str, window: int, device: int, target: str) -> Iterator[Trace]:
    for name in _files(directory):
        kind = file_kind(name, target)
        with open(os.path.join(directory, name), "rb", buffering=0) as file:
            total_bytes = os.fstat(file.fileno()).st_size
            offset = 0
            while offset < total_bytes or not total_bytes:
                data = file.read(min(trace_codec.CHUNK_BYTES, total_bytes - offset))
                if not data and total_bytes:
                    raise RecordingError(f"{file.name} became shorter while it was read.")
                yield Trace(window, kind, device, name, offset, total_bytes, data)
                offset += len(data)
                if not total_bytes:
                    break


def _verify(path: str, begin: int, expected: Iterator[Trace]) -> None:
    try:
        for written, piece in zip_longest(_written(path, begin), expected):
            if written != piece:  # compares views and bytes by content
                raise RecordingError(f"{path} does not hold what was written to it.")
    except (CorruptFrame, CorruptMessage) as error:
        raise RecordingError(f"{path} does not hold what was written to it: {error}") from error


def _written(path: str, begin: int) -> Iterator[Trace]:
    for payload in read_back(path, begin):
        yield from trace_codec.pieces(payload)


def read_back(path: str, offset: int = 0) -> Iterator[memoryview]:
    """Iterate over the payloads behind `offset`, where a frame must begin, as views into the mapped file.

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
        unpacked = frame.unpack(data, offset)
        if unpacked is None:
            raise CorruptFrame("the file ends inside a frame", offset, path)
        payload, offset = unpacked
        yield payload
