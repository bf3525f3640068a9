"""What a recorder says of itself: its start, its end, and gaps, in fields of ours that other readers skip.

They stand in `Event`, in both dialects. The start is in the first event of a recorder's first file, beside the version.
The end is the last event of that file; a file without one belongs to a recorder that is at work, or to one that was
killed. A gap stands where events are missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from instrument.codec import wire
from instrument.codec.message import Value
from instrument.codec.schema import MINDSPORE
from instrument.errors import CorruptMessage
from instrument.values import ENDED, FAILED, FINISHED, End, Gap, Start

#: Fields of `Event`; that of a gap is `event.GAP`.
START, END = 102, 103

_EVENT = MINDSPORE.type("Event", skip=("Summary", "GraphProto", "Trace", "Gap"), raw=("Start", "End"))
_START, _END, _GAP = MINDSPORE.type("Start"), MINDSPORE.type("End"), MINDSPORE.type("Gap")
_STATUSES = {1: FINISHED, 2: FAILED, 3: ENDED}
_STATUS_NUMBERS = {status: number for number, status in _STATUSES.items()}
#: A file that claims more of them is damaged.
_MOST_FILES = 10_000
_LONGEST_REASON = 300


def encode_gap(value: Gap) -> bytes:
    """Return the content of the field of a gap."""
    return _GAP.encode(
        events=value.events,
        first_step=value.first_step,
        last_step=value.last_step,
        reason=value.reason.encode("utf-8", "backslashreplace"),
    )


def decode_gap(data: memoryview) -> Gap:
    """Return the gap; raise `CorruptMessage` for bytes that are none."""
    gap = _GAP.decode(data)
    if gap.integer("events") < 1:
        raise CorruptMessage(f"a gap of {gap.integer('events')} events")
    return Gap(gap.integer("events"), gap.integer("first_step"), gap.integer("last_step"), gap.text("reason"))


def encode_start(start: Start) -> bytes:
    """Return the field of a start, to stand in an event."""
    files: list[Mapping[str, Value]] = [
        {"name": name.encode("utf-8", "surrogateescape"), "bytes": size_bytes}
        for name, size_bytes in start.unfinished.items()
    ]
    return _EVENT.encode(start=_START.encode(id=start.id, number=start.number, unfinished=files))


def decode_start(data: memoryview) -> Start:
    """Return the start; raise `CorruptMessage` for bytes that are none."""
    start = _START.decode(data)
    files = start.messages("unfinished")
    if len(files) > _MOST_FILES:
        raise CorruptMessage(f"a start that lists more than {_MOST_FILES} files")
    identity, number = start.text("id"), start.integer("number")
    if not identity or number < 1:
        raise CorruptMessage(f"a start with the id {identity[:40]!r} and the number {number}")
    return Start(identity, number, {file.text("name"): file.integer("bytes") for file in files})


def encode_end(end: End, step: int, wall_time: float) -> wire.Pieces:
    """Return the payload of the event that says how a recorder ended; `step` is the last that it recorded."""
    reason = end.reason.encode("utf-8", "backslashreplace")[:_LONGEST_REASON].decode("utf-8", "ignore")
    content = _END.encode(status=_STATUS_NUMBERS[end.status], reason=reason or None)
    return [_EVENT.encode(wall_time=wall_time, step=step, end=content)]


def decode_end(data: memoryview) -> End:
    """Return the end; raise `CorruptMessage` for bytes that are none."""
    end = _END.decode(data)
    status = end.integer("status")
    if status not in _STATUSES:
        raise CorruptMessage(f"an end with the status {status}")
    return End(_STATUSES[status], end.text("reason"))


def start_in(payload: memoryview) -> Start | None:
    """Return the start that the first event of a file holds, None if it holds none.

    Raises:
        CorruptMessage: the payload is no event.
    """
    event = _EVENT.decode(payload)
    return decode_start(event.data("start")) if "start" in event else None


def end_in(payload: memoryview) -> End | None:
    """Return the end that an event holds, None if it holds none.

    Raises:
        CorruptMessage: the payload is no event.
    """
    event = _EVENT.decode(payload)
    return decode_end(event.data("end")) if "end" in event else None
