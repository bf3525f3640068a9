"""Events that come round: a training that writes an event a value goes through the same tags in each step.

Once all events of a step were read, the next ones are compared with them as a whole, with all bytes but times, steps,
numbers and checksums of payloads, which were checked before: a step of a thousand events is one comparison. The cycle
goes on from one block of the file to the next, wherever in a step that begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.eventfile import frame

Indices = NDArray[np.int64]
Bytes = NDArray[np.uint8]
#: The most lengths of a cycle that are tried: a tag may come more than once in it.
_TRIES = 3


class Events(NamedTuple):
    """Events of one known number each, but for those with the template -1.

    `start` and `end` are those of the payloads, `head_end` where the step ends; `value` is where the value begins, and
    `at` the number in it, which has `size` bytes; `id` is the number of its tag. `mask` has the bits of the value that
    are the same in all, a line for each.
    """

    template: Indices
    start: Indices
    end: Indices
    head_end: Indices
    value: Indices
    at: Indices
    size: Indices
    id: Indices
    mask: Bytes


class Repeated(NamedTuple):
    """Events that repeat earlier ones: steps, times, tags, and where their numbers stand, and in which size."""

    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]
    id: Indices
    position: Indices
    size: Indices


def period(template: Indices) -> list[int]:
    """Return after how many events the last one may come round, the smallest first."""
    if template.size < 2 or template[-1] < 0:
        return []
    last = template.size - 1
    return [last - index for index in np.flatnonzero(template[:-1] == template[-1])[: -_TRIES - 1 : -1].tolist()]


def last(events: Events, count: int) -> Events:
    """Return the last events."""
    columns: Any = [column[-count:] for column in events]
    return Events(*columns)


class Cycle:
    """The events of one round, whose frames follow each other directly, and which of them is expected next."""

    def __init__(self, data: Bytes, events: Events) -> None:
        first, stop = int(events.start[0]) - frame.HEADER.size, int(events.end[-1]) + frame.FOOTER.size
        self._events = events
        #: Where each frame begins and ends in the round.
        self._begin = events.start - frame.HEADER.size - first
        self._end = events.end + frame.FOOTER.size - first
        self._bytes = data[first:stop].copy()
        self._mask = _mask(events, first, self._bytes.size)
        self._next = 0

    @classmethod
    def of(cls, data: Bytes, events: Events) -> Cycle | None:
        """Return the cycle of these events; None where one is not known, or their frames do not follow each other."""
        is_close = events.start[1:] - events.end[:-1] == frame.OVERHEAD_BYTES
        return cls(data, events) if is_close.all() and (events.template >= 0).all() else None

    def repeated(self, data: Bytes, starts: Indices) -> Repeated | None:
        """Read the payloads at `starts` as far as they go on with the cycle; None where the first one does not."""
        count, length = self._begin.size, self._bytes.size
        order = (self._next + np.arange(count)) % count
        turn = int(self._begin[self._next])
        begin, end = ((places[order] - turn) % length for places in (self._begin, self._end - 1))
        first = int(starts[0]) - frame.HEADER.size
        size = self._fitting(data.size - first, begin, end, starts - int(starts[0]))
        rounds, rest = divmod(size, count)
        pattern, mask = np.roll(self._bytes, -turn), np.roll(self._mask, -turn)
        rows: Bytes = np.ndarray((rounds, length), np.uint8, data, first, (length, 1))
        differs = rows ^ pattern
        differs &= mask
        is_other = differs.any(axis=1)
        if is_other.any():
            rounds, rest = int(is_other.argmax()), count
        if rest:
            part = data[first + rounds * length :][: int(end[rest - 1]) + 1]
            other = np.flatnonzero((part ^ pattern[: part.size]) & mask[: part.size])
            rest = int(np.searchsorted(end, other[0])) if other.size else rest
        size = rounds * count + rest
        if not size:
            return None
        self._next = (self._next + size) % count
        return self._read(data, starts[:size], np.resize(order, size))

    def _fitting(self, size_bytes: int, begin: Indices, end: Indices, starts: Indices) -> int:
        """Return how many payloads stand where the cycle has them, and within the data, of the `starts` in it."""
        rounds = np.arange(starts.size // begin.size + 1)[:, None] * self._bytes.size
        expected = (begin + rounds).reshape(-1)[: starts.size]
        is_other = expected != starts
        size = int(is_other.argmax()) if is_other.any() else starts.size
        ends = (end + rounds).reshape(-1)[:size]
        return int(np.searchsorted(ends, size_bytes))

    def _read(self, data: Bytes, starts: Indices, index: Indices) -> Repeated:
        """Read the payloads at `starts`, each of which is like the event of the cycle with that index."""
        events = self._events
        times: NDArray[np.float64] = np.ndarray((data.size - 7,), "<f8", data, 0, (1,))
        steps = np.zeros(starts.size, np.uint64)
        for at, is_there in _step_bytes(events):
            byte = (data[starts + at] & np.uint8(0x7F)) * is_there[index]
            steps |= byte.astype(np.uint64) << np.uint64(7 * (at - 10))
        position = starts + (events.value + events.at - events.start)[index]
        return Repeated(steps.view(np.int64), times[starts + 1], events.id[index], position, events.size[index])


def _mask(cycle: Events, first: int, length: int) -> Bytes:
    """Return the bits in which a round agrees with the one of `length` bytes at `first` if it has the same layout."""
    mask = np.full(length, 0xFF, np.uint8)
    mask[(cycle.end - first)[:, None] + np.arange(frame.FOOTER.size)] = 0
    start = cycle.start - first
    mask[start[:, None] + np.arange(1, 9)] = 0
    for position, has_byte in _step_bytes(cycle):
        mask[start[has_byte] + position] = 0x80
    values = cycle.mask[:, : int((cycle.end - cycle.value).max())]
    event, at = np.nonzero(values != 0xFF)
    place = cycle.value[event] + at
    is_there = place < cycle.end[event]
    mask[place[is_there] - first] &= values[event[is_there], at[is_there]]
    return mask


def _step_bytes(cycle: Events) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield each position of a step's bytes in a payload, and which events have a byte of theirs there."""
    sizes = cycle.head_end - cycle.start - 10
    return ((10 + index, sizes > index) for index in range(int(sizes.max())))
