"""The start and the end of a recorder: fields 102 and 103 of `Event`, in both dialects. Their other readers skip them.

The start stands in the first event of a recorder's first file, beside the version. The end is the last event of that
file; a file without one belongs to a recorder that is at work, or to one that was killed.
"""

from __future__ import annotations

from instrument.codec import wire
from instrument.errors import CorruptMessage
from instrument.values import ENDED, FAILED, FINISHED, End, Start

START, END = 102, 103

_ID, _NUMBER, _UNFINISHED = 1, 2, 3
_FILE_NAME, _FILE_BYTES = 1, 2
_STATUS, _REASON = 1, 2
_WALL_TIME, _STEP = 1, 2
_STATUSES = {1: FINISHED, 2: FAILED, 3: ENDED}
_STATUS_NUMBERS = {status: number for number, status in _STATUSES.items()}
#: A file that claims more of them is damaged.
_MOST_FILES = 10_000
_LONGEST_REASON = 300


def encode_start(start: Start) -> bytes:
    """Return the field of a start, to stand in an event."""
    pieces = [wire.delimited(_ID, start.id.encode()), wire.integer(_NUMBER, start.number)]
    for name, size_bytes in start.unfinished.items():
        file = wire.delimited(_FILE_NAME, name.encode("utf-8", "surrogateescape"))
        pieces.append(wire.delimited(_UNFINISHED, file + wire.integer(_FILE_BYTES, size_bytes)))
    return wire.delimited(START, b"".join(pieces))


def decode_start(data: memoryview) -> Start:
    """Return the start; raise `CorruptMessage` for bytes that are none."""
    identity, number, count = "", 0, 0
    unfinished: dict[str, int] = {}
    for field in wire.fields(data):
        if field[0] == _ID:
            identity = wire.as_text(field)
        elif field[0] == _NUMBER:
            number = wire.as_int(field)
        elif field[0] == _UNFINISHED:
            count += 1
            if count > _MOST_FILES:
                raise CorruptMessage(f"a start that found more than {_MOST_FILES} files")
            name, size_bytes = _file(wire.as_bytes(field))
            unfinished[name] = size_bytes
    if not identity or number < 1:
        raise CorruptMessage(f"a start with the id {identity[:40]!r} and the number {number}")
    return Start(identity, number, unfinished)


def _file(data: memoryview) -> tuple[str, int]:
    name, size_bytes = "", 0
    for field in wire.fields(data):
        if field[0] == _FILE_NAME:
            name = wire.as_text(field)
        elif field[0] == _FILE_BYTES:
            size_bytes = wire.as_int(field)
    return name, size_bytes


def encode_end(end: End, step: int, wall_time: float) -> wire.Pieces:
    """Return the payload of the event that says how a recorder ended; `step` is the last that it recorded."""
    reason = end.reason.encode("utf-8", "backslashreplace")[:_LONGEST_REASON].decode("utf-8", "ignore").encode()
    content = wire.integer(_STATUS, _STATUS_NUMBERS[end.status])
    content += wire.delimited(_REASON, reason) if reason else b""
    return [wire.double(_WALL_TIME, wall_time) + wire.integer(_STEP, step) + wire.delimited(END, content)]


def decode_end(data: memoryview) -> End:
    """Return the end; raise `CorruptMessage` for bytes that are none."""
    status, reason = 0, ""
    for field in wire.fields(data):
        if field[0] == _STATUS:
            status = wire.as_int(field)
        elif field[0] == _REASON:
            reason = wire.as_text(field)
    if status not in _STATUSES:
        raise CorruptMessage(f"an end with the status {status}")
    return End(_STATUSES[status], reason)


def start_in(payload: memoryview) -> Start | None:
    """Return the start that the first event of a file holds, None where it holds none.

    Raises:
        CorruptMessage: the payload is no event.
    """
    for field in wire.fields(payload):
        if field[0] == START:
            return decode_start(wire.as_bytes(field))
    return None


def end_in(payload: memoryview) -> End | None:
    """Return the end that an event holds, None where it holds none.

    Raises:
        CorruptMessage: the payload is no event.
    """
    for field in wire.fields(payload):
        if field[0] == END:
            return decode_end(wire.as_bytes(field))
    return None
