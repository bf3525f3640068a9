"""Find where each value of many events begins and ends, whatever layouts the events have.

Events of one layout are compared with each other (`instrument.runs.columnar`). If a training records other tags in each
step, or each value as an event, there is no such layout, and a call for each field of each event takes microseconds.
Here heads are read in step with each other, one byte position of all events at a time. The values in a long summary are
found the other way round: every place that looks like the beginning of a value is a candidate, and the candidates that
follow each other without a gap from the beginning of the summary are its values.

An event is not `plain` if it holds more than a time, a step, a summary and unknown fields: it is read by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec import wire
from instrument.codec.outline import MOST_VALUES
from instrument.codec.scalar import EXACT_NUMBER
from instrument.errors import CorruptMessage

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

#: Fields of an event, in both dialects.
WALL_TIME, STEP, SUMMARY = 1, 2, 5
_WALL_TIME = WALL_TIME << 3 | wire.FIXED64
_STEP = STEP << 3 | wire.VARINT
_SUMMARY = SUMMARY << 3 | wire.LENGTH_DELIMITED
_VALUE = _TAG = 1 << 3 | wire.LENGTH_DELIMITED
#: Wall time, step of one byte and an empty summary.
_LEAST_BYTES = 11
#: Fields behind the summary that are passed over; an event with more is read alone.
_MOST_FURTHER = 8
_FIXED = {wire.FIXED64: 8, wire.FIXED32: 4}
#: A value with an empty tag and a number of four bytes, without its own head.
_LEAST_PLAIN = 7
#: What the field of the exact number begins with (`instrument.codec.scalar.EXACT_NUMBER`), and its size.
EXACT_KEY = wire.key(EXACT_NUMBER, wire.FIXED64)
_EXACT_BYTES = len(EXACT_KEY) + 8


class Heads(NamedTuple):
    """What stands before the values of events, valid where `is_plain`; the step ends at `step_end`.

    Summaries begin at `start` and end at `end`.
    """

    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]
    step_end: Indices
    start: Indices
    end: Indices
    is_plain: Mask


class Values(NamedTuple):
    """Values in file order: the index of the event of each, and where its content begins and ends."""

    event: Indices
    start: Indices
    end: Indices

    def only(self, mask: Mask) -> Values:
        """Return some of them."""
        return Values(*(column[mask] for column in self))


def heads(data: Bytes, starts: Indices, ends: Indices, own: frozenset[int]) -> Heads:
    """Read the heads of the payloads at `starts`; `own` are numbers of fields that are values beside a summary's."""
    last = data.size - 1
    is_plain = (ends - starts >= _LEAST_BYTES) & (data[starts] == _WALL_TIME)
    times: NDArray[np.float64] = np.ndarray((data.size - 7,), "<f8", data, 0, (1,))
    wall_time = times[np.minimum(starts + 1, times.size - 1)]
    at = starts + 9
    has_step = data[np.minimum(at, last)] == _STEP
    step_end, step, _ = _varints(data, at + has_step, has_step)
    is_plain &= data[np.minimum(step_end, last)] == _SUMMARY
    start, length, is_whole = _varints(data, step_end + 1, is_plain)
    end = np.where(length < 1 << 32, start + length.astype(np.int64), ends + 1)
    is_plain &= is_whole & (end <= ends)
    further = np.flatnonzero(is_plain & (end < ends))
    if further.size:
        is_plain[further] = _only_unknown(data, end[further], ends[further], own)
    return Heads(step.view(np.int64), wall_time, step_end, start, end, is_plain)


def _varints(data: Bytes, at: Indices, is_there: Mask) -> tuple[Indices, NDArray[np.uint64], Mask]:
    """Read a number at each place where one is; return the places behind them, the numbers, and which of them end."""
    value = np.zeros(at.size, np.uint64)
    goes_on = is_there.copy()
    for shift in range(0, 70, 7):
        byte = data[np.minimum(at, data.size - 1)]
        value |= ((byte & np.uint8(0x7F)) * goes_on).astype(np.uint64) << np.uint64(shift)
        at = at + goes_on
        goes_on &= byte >= 0x80
        if not goes_on.any():
            break
    return at, value, ~goes_on


def _only_unknown(data: Bytes, at: Indices, ends: Indices, own: frozenset[int]) -> Mask:
    """Return which events have nothing but unknown fields between these places."""
    is_right = np.ones(at.size, np.bool_)
    numbers = np.array(sorted({0, 1, 2, 5} | own), np.uint64)
    for _ in range(_MOST_FURTHER):
        is_there = is_right & (at < ends)
        if not is_there.any():
            break
        at, key, is_whole = _varints(data, at, is_there)
        kind = key & np.uint64(7)
        is_right &= is_whole & ~(is_there & np.isin(key >> np.uint64(3), numbers))
        has_number = is_there & (kind != wire.FIXED64) & (kind != wire.FIXED32)
        at, number, is_whole = _varints(data, at, has_number)
        is_delimited = is_there & (kind == wire.LENGTH_DELIMITED)
        is_known = is_delimited | (kind == wire.VARINT)
        length = np.where(is_delimited, np.minimum(number, np.uint64(1 << 32)).astype(np.int64), 0)
        for fixed, size in _FIXED.items():
            length[is_there & (kind == fixed)] = size
            is_known |= kind == fixed
        at = at + length
        is_right &= is_whole & (is_known | ~is_there) & (at <= ends)
    is_right &= at == ends
    return is_right


def values(data: Bytes, head: Heads) -> tuple[Values, Mask]:
    """Find the values of plain events; return them, and which events are still plain.

    Those of other events may be among the values, too.
    """
    is_plain = head.is_plain.copy()
    events = np.flatnonzero(is_plain & (head.start < head.end))
    start, end = head.start[events], head.end[events]
    at, length, is_whole = _varints(data, start + 1, np.ones(events.size, np.bool_))
    is_single = is_whole & (data[start] == _VALUE) & (length == (end - at).astype(np.uint64)) & (at <= end)
    single = Values(events[is_single], at[is_single], end[is_single])
    is_other = ~is_single
    if not is_other.any():
        return single, is_plain
    others = _chained(data, events[is_other], start[is_other], end[is_other], is_plain)
    joined = Values(*(np.concatenate(pair) for pair in zip(single, others, strict=True)))
    counts = np.bincount(joined.event, minlength=is_plain.size)
    is_plain &= counts <= MOST_VALUES
    order = np.argsort(joined.start, kind="stable")
    return Values(*(column[order] for column in joined)), is_plain


def _chained(data: Bytes, events: Indices, starts: Indices, ends: Indices, is_plain: Mask) -> Values:
    """Find the values of summaries that hold several; an event whose summary is damaged is no longer plain."""
    chains = _Chains(data, int(starts.min()), int(ends.max()))
    first = np.searchsorted(chains.head, starts)
    last = chains.last_of(first)
    is_whole = (chains.head_at(first) == starts) & (chains.end_at(last) == ends)
    counts = (last - first + 1)[is_whole]
    index = np.repeat(first[is_whole] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    parts = [Values(np.repeat(events[is_whole], counts), chains.start[index], chains.end[index])]
    view = data.data
    for event, start, end in zip(*(column[~is_whole].tolist() for column in (events, starts, ends)), strict=True):
        try:
            parts += chains.walk(view, event, start, end)
        except CorruptMessage:
            is_plain[event] = False
    return Values(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class _Chains:
    """Places in `data[first:stop]` that look like the heads of values with a tag first, and which follow each other."""

    def __init__(self, data: Bytes, first: int, stop: int) -> None:
        part = data[first:stop]
        if part.size < 4:
            part = np.zeros(4, np.uint8)
        is_head = part[:-3] == _VALUE
        is_long = part[1:-2] >= 0x80
        short = np.flatnonzero(is_head & (part[2:-1] == _TAG) & ~is_long)
        long = np.flatnonzero(is_head & is_long & (part[2:-1] < 0x80) & (part[3:] == _TAG))
        length = part[long + 1].astype(np.int64) & 0x7F | part[long + 2].astype(np.int64) << 7
        head = np.concatenate([short, long])
        end = np.concatenate([short + 2 + part[short + 1], long + 3 + length])
        start = np.concatenate([short + 2, long + 3])
        if long.size:
            order = np.argsort(head, kind="stable")
            head, start, end = head[order], start[order], end[order]
        self.head, self.start, self.end = head + first, start + first, end + first
        #: The last candidates of chains.
        self._last = np.flatnonzero(np.append(head[1:] != end[:-1], True)) if head.size else head

    def last_of(self, index: Indices) -> Indices:
        """Return the last candidate of the chain from each candidate on."""
        if not self._last.size:
            return index
        return self._last[np.minimum(np.searchsorted(self._last, index), self._last.size - 1)]

    def head_at(self, index: Indices) -> Indices:
        """Return where candidates begin; -1 for an index behind the last."""
        return np.append(self.head, -1)[np.minimum(index, self.head.size)]

    def end_at(self, index: Indices) -> Indices:
        """Return where candidates end; -1 for an index behind the last."""
        return np.append(self.end, -1)[np.minimum(index, self.end.size)]

    def walk(self, view: memoryview, event: int, at: int, end: int) -> list[Values]:
        """Go through a summary whose values are no single chain: field by field where there is no candidate.

        Raises:
            CorruptMessage: a field reaches past the end, or a value is no message.
        """
        parts = []
        while at < end:
            first = int(np.searchsorted(self.head, at))
            count = 0
            if first < self.head.size and self.head[first] == at:
                last = int(self.last_of(np.array([first]))[0])
                count = int(np.searchsorted(self.end[first : last + 1], end, "right"))
            if count:
                chain = slice(first, first + count)
                parts.append(Values(np.full(count, event), self.start[chain], self.end[chain]))
                at = int(self.end[first + count - 1])
                continue
            number, wire_type, start, at = next(wire.spans(view, at, end))
            if number == 1:
                wire.expect((number, wire_type, start, at), wire.LENGTH_DELIMITED)
                parts.append(Values(np.array([event]), np.array([start]), np.array([at])))
        return parts


def plain(data: Bytes, start: Indices, length: Indices, key: int) -> tuple[Indices, Indices]:
    """Return where the number stands in values that are a short tag and a number, and its size; 0 for others.

    The `key` of the number is a byte. Behind the last value there must be as many bytes as a value may have.
    """
    number = 2 + data[start + 1].astype(np.int64) + 1
    rest = length - number
    has_key = (rest >= 4) & (data[start + number - 1] == key)
    is_single = has_key & (rest == 4)
    is_exact = has_key & (rest == 4 + _EXACT_BYTES)
    for index, byte in enumerate(EXACT_KEY):
        is_exact &= data[start + number + 4 * is_exact + index * is_exact] == byte
    return number + is_exact * (4 + len(EXACT_KEY)), is_single * 4 + is_exact * 8


def plain_numbers(
    payload: memoryview, first: int, stop: int, key: int
) -> tuple[list[str], Indices, Indices, Indices] | None:
    """Return the tags of a summary in `payload[first:stop]`, where their numbers stand, their sizes, and varying spans.

    None if not all values are a short tag and a number.
    """
    try:
        parts = _Chains(np.frombuffer(payload, np.uint8), first, stop).walk(payload, 0, first, stop)
    except CorruptMessage:
        return None
    if not parts:
        return None
    _, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    length = end - start
    data = np.concatenate([np.frombuffer(payload, np.uint8), np.zeros(0x80, np.uint8)])
    if start.size > MOST_VALUES or ((length < _LEAST_PLAIN) | (data[start] != _TAG) | (data[start + 1] >= 0x80)).any():
        return None
    number_at, size = plain(data, start, length, key)
    if not size.all():
        return None
    number = start + number_at
    is_exact = size == 8
    varying = np.stack([number, number + size], axis=1)
    if is_exact.any():
        singles = number[is_exact] - len(EXACT_KEY)
        varying = np.concatenate([varying, np.stack([singles - 4, singles], axis=1)])
    return _texts(data, start + 2, start + 2 + data[start + 1]), number, size, varying


def _texts(data: Bytes, start: Indices, end: Indices) -> list[str]:
    """Return the texts that begin and end at these places, which ascend, with a byte at least between two of them."""
    # Decoding all together takes a tenth of the time: line feeds stand between them then, and all else is left out.
    is_edge = np.zeros(data.size, np.int8)
    is_edge[start], is_edge[end + 1] = 1, -1
    lines = data.copy()
    lines[end] = 0x0A
    content = lines[is_edge.cumsum(dtype=np.int8).view(np.bool_)].tobytes()
    texts = content[:-1].decode("ascii").split("\n") if content.isascii() else []
    if len(texts) != start.size:  # line feeds in them, or other characters
        content, spans = data.tobytes(), zip(start.tolist(), end.tolist(), strict=True)
        texts = [content[first:stop].decode("utf-8", "surrogateescape") for first, stop in spans]
    return texts
