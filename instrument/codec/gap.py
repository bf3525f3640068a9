"""Gaps: how many events are missing at a place of a file, in field 101 of `Event`, which its other readers skip."""

from __future__ import annotations

from instrument.codec import wire
from instrument.errors import CorruptMessage
from instrument.values import Gap

NUMBER = 101

_EVENTS, _FIRST_STEP, _LAST_STEP, _REASON = 1, 2, 3, 4


def encode(value: Gap) -> bytes:
    """The content of the field."""
    return b"".join(
        (
            wire.integer(_EVENTS, value.events),
            wire.integer(_FIRST_STEP, value.first_step),
            wire.integer(_LAST_STEP, value.last_step),
            wire.delimited(_REASON, value.reason.encode("utf-8", "backslashreplace")),
        )
    )


def decode(data: memoryview) -> Gap:
    """The gap; raises `CorruptMessage` for bytes that are none."""
    numbers = {_EVENTS: 0, _FIRST_STEP: 0, _LAST_STEP: 0}
    reason = ""
    for field in wire.fields(data):
        if field[0] in numbers:
            numbers[field[0]] = wire.as_int(field)
        elif field[0] == _REASON:
            reason = wire.as_text(field)
    if numbers[_EVENTS] < 1:
        raise CorruptMessage(f"a gap of {numbers[_EVENTS]} events")
    return Gap(numbers[_EVENTS], numbers[_FIRST_STEP], numbers[_LAST_STEP], reason)
