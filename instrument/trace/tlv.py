"""`mindspore.op_range` and `mindspore.memory_usage` of FRAMEWORK/: records of a fixed part and of text fields.

    u16 type | u32 length | fixed part | fields: u16 type, u32 length, UTF-8 text

Little-endian throughout. A length is believed only as far as there are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from instrument.trace.events import MEMORY, MISSING, NamedRows, Rows
from instrument.trace.text import LIMIT, Buffer, Index, Losses, decode

_HEAD = struct.Struct("<HI")
#: thread, flow, step, start, end; process; module, event, stage; level; graph data, stage, stack
_RANGE = struct.Struct("<5Qi3Hb3B")
#: device; thread, process, ns, address, size, used, peak, allocated, used by event, eager free, stream; ...
_USAGE = struct.Struct("<i11QI4B")
_NAME, _FULL_NAME = 13, 14
_CUT, _SHORT = "bytes of a record that is cut off", "records that are too short"

#: A range on the host, in cycles of the host's counter; equal start and end are a moment.
OP_RANGE = np.dtype(
    [
        ("start", "i8"), ("end", "i8"), ("name", "i4"), ("thread", "i8"), ("process", "i8"), ("step", "i8"),
        ("flow", "i8"), ("level", "i8"),
    ]
)  # fmt: skip


def op_ranges(data: Buffer, losses: Losses) -> NamedRows:
    """Read `mindspore.op_range`: what the framework did on the host (dtype OP_RANGE), in the order of the file.

    The full name is taken where a range has one.
    """
    names = Index[str]()
    rows = []
    for payload in _payloads(data, _RANGE, losses):
        thread, flow, step, start, end, process, _, _, _, level, *_ = _RANGE.unpack_from(payload)
        if max(thread, start, end) >= LIMIT or end < start:
            losses.add("ranges with impossible times or thread")
            continue
        texts = dict(_fields(payload[_RANGE.size :], losses))
        name = names(texts.get(_FULL_NAME) or texts.get(_NAME) or "")
        step, flow = (value if value < LIMIT else MISSING for value in (step, flow))
        rows.append((start, end, name, thread, process, step, flow, level))
    return NamedRows(names.names, np.array(rows, OP_RANGE))


def devices(data: Buffer) -> frozenset[int]:
    """Return the devices that a `mindspore.memory_usage` file has records of."""
    numbers = {_USAGE.unpack_from(payload)[0] for payload in _payloads(data, _USAGE, Losses(""))}
    return frozenset(number for number in numbers if number >= 0)


def memory_usage(data: Buffer, losses: Losses, device: int | None = None) -> Rows:
    """Read `mindspore.memory_usage`: the pool of a device after each change; what events still hold is active, too.

    `device` chooses one where the file has several.
    """
    rows = []
    for payload in _payloads(data, _USAGE, losses):
        number, _, _, time, _, _, used, _, allocated, by_event, *_ = _USAGE.unpack_from(payload)
        if device is not None and number != device:
            continue
        if max(time, used, allocated, by_event) >= LIMIT:
            losses.add("records with impossible times or sizes")
            continue
        rows.append((time, used, allocated, used + by_event))
    samples = np.array(rows, MEMORY)
    return samples[np.argsort(samples["time_ns"], kind="stable")]


def _payloads(data: Buffer, fixed: struct.Struct, losses: Losses) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        end = _end(data, position)
        if end is None:
            losses.add(_CUT, len(data) - position)
            return
        payload = bytes(data[position + _HEAD.size : end])
        position = end
        if len(payload) < fixed.size:
            losses.add(_SHORT)
        else:
            yield payload


def _fields(data: bytes, losses: Losses) -> Iterator[tuple[int, str]]:
    position = 0
    while position < len(data):
        end = _end(data, position)
        if end is None:
            losses.add("bytes of a field that is cut off", len(data) - position)
            return
        yield _HEAD.unpack_from(data, position)[0], decode(data[position + _HEAD.size : end])
        position = end


def _end(data: Buffer, position: int) -> int | None:
    """Return where the record at `position` ends; None if a part of it is missing."""
    if len(data) - position < _HEAD.size:
        return None
    end: int = position + _HEAD.size + _HEAD.unpack_from(data, position)[1]
    return end if end <= len(data) else None
