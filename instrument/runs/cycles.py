"""Events that come round: a training that writes an event a value goes through the same tags in each step.

Once all events of a step were read, the next ones are compared with them as a whole, with all bytes but times, steps,
numbers and checksums of payloads, which were checked before: a step of a thousand events is one comparison.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.eventfile import frame

Indices = NDArray[np.int64]
Bytes = NDArray[np.uint8]
#: So many lengths of a cycle are tried: a tag may come more than once in it.
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


def repeated(data: Bytes, cycle: Events, starts: Indices) -> Repeated | None:
    """Read the payloads at `starts` as far as they repeat the events of a cycle; None where they do not."""
    count = cycle.start.size
    first = int(cycle.start[0]) - frame.HEADER.size
    length = int(starts[0]) - int(cycle.start[0])
    rounds = min(starts.size // count, (data.size - first) // length - 1)
    if rounds < 1 or (cycle.template < 0).any() or int(cycle.end[-1]) > first + length:
        return None
    starts = starts[: rounds * count].reshape(rounds, count)
    is_same = (starts - cycle.start == np.arange(1, rounds + 1)[:, None] * length).all(axis=1)
    rows: Bytes = np.ndarray((rounds, length), np.uint8, data, first + length, (length, 1))
    is_same &= ~((rows ^ data[first : first + length]) & _mask(cycle, first, length)).any(axis=1)
    rounds = rounds if is_same.all() else int(is_same.argmin())
    if not rounds:
        return None
    starts = starts[:rounds].reshape(-1)
    times: NDArray[np.float64] = np.ndarray((data.size - 7,), "<f8", data, 0, (1,))
    position = starts + np.tile(cycle.value + cycle.at - cycle.start, rounds)
    return Repeated(
        _steps(data, cycle, starts, rounds), times[starts + 1], np.tile(cycle.id, rounds), position,
        np.tile(cycle.size, rounds),
    )  # fmt: skip


def _mask(cycle: Events, first: int, length: int) -> Bytes:
    """Return the bits in which a round agrees with the one at `first` where it has the same layout."""
    bounds = np.zeros(length + 1, np.int8)
    bounds[cycle.start - first - frame.HEADER.size] += 1
    bounds[cycle.end - first] -= 1
    mask = (np.cumsum(bounds[:-1]) * np.uint8(0xFF)).astype(np.uint8)
    start = cycle.start - first
    mask[start[:, None] + np.arange(1, 9)] = 0
    for at, is_there in _step_bytes(cycle):
        mask[start[is_there] + at] = 0x80
    values = cycle.mask[:, : int((cycle.end - cycle.value).max())]
    event, at = np.nonzero(values != 0xFF)
    place = cycle.value[event] + at
    is_there = place < cycle.end[event]
    mask[place[is_there] - first] &= values[event[is_there], at[is_there]]
    return mask


def _step_bytes(cycle: Events) -> Any:
    """The places of the bytes of steps, counted from the beginnings of payloads, and which events have one there."""
    sizes = cycle.head_end - cycle.start - 10
    return ((10 + index, sizes > index) for index in range(int(sizes.max())))


def _steps(data: Bytes, cycle: Events, starts: Indices, rounds: int) -> NDArray[np.int64]:
    steps = np.zeros(starts.size, np.uint64)
    for at, is_there in _step_bytes(cycle):
        byte = (data[starts + at] & np.uint8(0x7F)) * np.tile(is_there, rounds)
        steps |= byte.astype(np.uint64) << np.uint64(7 * (at - 10))
    return steps.view(np.int64)
