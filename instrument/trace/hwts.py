"""hwts: the start and end of each task on the device, 64 bytes a record.

Streams interleave, so an end is looked for among the records of its own (stream, task), not behind its start: within
one key and in file order a start directly followed by an end is one execution. A stable sort by key brings the two
together, without a loop. A huge file is taken in blocks: what is open at the end of a block is sorted with the next
one. A block is at least as large as what is open, so that a file of nothing but starts takes no longer either.

Where the running number jumps, or bytes are missing, records were lost, and a start before that place may have been
paired with the end of a later execution: `Hwts.lost` has these places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import Integers, Rows
from instrument.trace.records import TOO_LARGE, UNKNOWN_RECORDS, Chunks, Framer, Word, pieces
from instrument.trace.text import Buffer, Losses

#: A record of types 0 to 3; bits 0 to 2 of `head` are its type, bit 3 a warning, bits 4 to 7 its running number.
RECORD = np.dtype(
    {
        "names": ["head", "core", "magic", "block", "task", "cycles", "stream"],
        "formats": ["u1", "u1", "<u2", "<u2", "<u2", "<i8", "<u4"],
        "offsets": [0, 1, 2, 4, 6, 8, 16],
        "itemsize": 64,
    }
)
MAGIC_WORD = 0x6BD3
START, END = 0, 1
#: The known types behind them: start and end of a block, performance counters of a block.
_BLOCK_TYPES, _UNKNOWN_TYPES = slice(2, 5), slice(5, 8)

#: One execution: the cycles of its start and its end, and the number of its start record in the file.
PAIR = np.dtype([("start_cycles", "i8"), ("end_cycles", "i8"), ("record", "i8"), ("stream", "u4"), ("task", "u2")])
#: A place where records were lost: the cycles of the last record before it and of the first one after it.
LOST_CYCLES = np.dtype([("start_cycles", "i8"), ("end_cycles", "i8")])
#: A start or an end without its other half.
UNPAIRED = np.dtype([("cycles", "i8"), ("record", "i8"), ("stream", "u4"), ("task", "u2"), ("is_end", "?")])

#: Types up to here have the counter where `RECORD` has it.
_LAST_TIMED_TYPE = 3
_BLOCK_RECORDS = 1 << 17
#: A task id wraps at 16 bits; ids that fall from above this to far below have wrapped.
_WRAPS_ABOVE, _WRAPS_BY = 65_000, 1 << 15


@dataclass(frozen=True, eq=False)
class Hwts:
    """A whole file: `pairs` (dtype PAIR) in the order of their starts, `unpaired` (dtype UNPAIRED).

    `type_counts` are the records of each of the 8 types; `breaks` is how often the running number jumped, so records
    were lost; `warnings` the records with the warning bit; `without_magic` those without the usual word at byte 2.
    `lost` (dtype LOST_CYCLES) are the places where records were lost, as far as records around them have a time.
    """

    pairs: Rows
    unpaired: Rows
    type_counts: Integers
    breaks: int
    warnings: int
    without_magic: int
    lost: Rows


def decode(data: Chunks, losses: Losses) -> Hwts:
    """Decode a whole hwts file, or its pieces in order, which are not kept."""
    decoder = Decoder(losses)
    for piece in pieces(data):
        decoder.feed(piece)
    return decoder.finish()


class Decoder:
    """Pairs the records of a file that comes in pieces: `feed` each in order, then `finish`."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._framer = Framer(RECORD, Word(MAGIC_WORD, 2), losses)
        self._known_breaks = 0
        self._record = 0
        self._events = np.empty(0, UNPAIRED)  # the open starts, in file order
        self._pending: list[Rows] = []
        self._pending_events = 0
        self._pairs: list[Rows] = []
        self._unpaired: list[Rows] = []
        self._type_counts = np.zeros(8, np.int64)
        self._last_number: int | None = None
        self._breaks = self._warnings = self._without_magic = 0
        self._lost: list[tuple[int, int]] = []
        self._last_cycles: int | None = None
        self._lost_since: int | None = None  # records were lost behind these cycles, and none with a time followed yet

    def feed(self, data: Buffer) -> None:
        """Take the next piece; its borders may cut a record. The piece is not kept."""
        for records in self._framer.feed(data):
            self._take_all(records)

    def finish(self) -> Hwts:
        """Return all that was found; starts that are still open have no end."""
        for records in self._framer.finish():
            self._take_all(records)
        self._pair()
        unpaired = np.concatenate([*self._unpaired, self._events])
        self._unpaired.clear()
        self._losses.add(UNKNOWN_RECORDS, int(self._type_counts[_UNKNOWN_TYPES].sum()))
        self._losses.add("records of blocks, which are parts of tasks", int(self._type_counts[_BLOCK_TYPES].sum()))
        return Hwts(
            self._ordered_pairs(), unpaired[np.argsort(unpaired["record"], kind="stable")], self._type_counts,
            self._breaks, self._warnings, self._without_magic, np.array(self._lost, LOST_CYCLES),
        )  # fmt: skip

    def _take_all(self, records: Rows) -> None:
        if self._framer.breaks != self._known_breaks:
            self._known_breaks = self._framer.breaks
            self._last_number = None  # what was lost is counted in bytes and slices
            self._lost_since = self._last_cycles if self._lost_since is None else self._lost_since
        for start in range(0, len(records), _BLOCK_RECORDS):
            self._take(records[start : start + _BLOCK_RECORDS])

    def _take(self, block: Rows) -> None:
        """Count a block of records, and keep of it the starts and ends."""
        numbers = np.arange(self._record, self._record + len(block))
        self._record += len(block)
        block, numbers = self._without_padding(block, numbers)
        head = block["head"].copy()
        self._follow(head >> 4, np.where((head & 7) <= _LAST_TIMED_TYPE, block["cycles"], -1))
        self._warnings += int(np.count_nonzero(head & 8))
        self._without_magic += int(np.count_nonzero(block["magic"] != MAGIC_WORD))
        types = head & 7
        self._type_counts += np.bincount(types, minlength=8)
        chosen = np.flatnonzero((types <= END) & (block["cycles"] >= 0))
        self._losses.add(TOO_LARGE, int(np.count_nonzero(types <= END)) - len(chosen))
        events = np.empty(len(chosen), UNPAIRED)
        for name in ("cycles", "stream", "task"):
            events[name] = block[name][chosen]
        events["record"], events["is_end"] = numbers[chosen], types[chosen] == END
        self._pending.append(events)
        self._pending_events += len(events)
        if self._pending_events >= max(_BLOCK_RECORDS, len(self._events)):
            self._pair()

    def _without_padding(self, block: Rows, numbers: Integers) -> tuple[Rows, Integers]:
        """Leave out records of zeros, which were never written and would be starts of task 0 at time 0."""
        suspects = np.flatnonzero((block["head"] == 0) & (block["magic"] == 0))
        suspect = block[suspects]
        empty = suspects[(suspect["cycles"] == 0) & (suspect["stream"] == 0) & (suspect["task"] == 0)]
        if not len(empty):
            return block, numbers
        self._losses.add("records of zeros", len(empty))
        return np.delete(block, empty), np.delete(numbers, empty)

    def _follow(self, numbers: NDArray[np.integer], cycles: Integers) -> None:
        """Note where the running number of 4 bits, one for the whole file, does not go on by one."""
        if not len(numbers):
            return
        before = int(numbers[0]) - 1 if self._last_number is None else self._last_number
        steps = np.diff(numbers, prepend=numbers.dtype.type(before & 15)) & 15
        self._last_number = int(numbers[-1])
        breaks = np.flatnonzero(steps != 1)
        self._breaks += len(breaks)
        timed = np.flatnonzero(cycles >= 0)
        self._note_lost(breaks, timed, cycles[timed])

    def _note_lost(self, breaks: NDArray[np.intp], timed: NDArray[np.intp], cycles: Integers) -> None:
        """Note what was lost before the records at `breaks`; `timed` are those with a time, and `cycles` these."""
        if self._lost_since is not None and len(timed):
            self._lost.append((self._lost_since, int(cycles[0])))
            self._lost_since = None
        following = np.searchsorted(timed, breaks)
        for place in np.unique(following).tolist():
            since = int(cycles[place - 1]) if place else self._last_cycles
            if since is None:
                continue
            if place < len(timed):
                self._lost.append((since, int(cycles[place])))
            else:
                self._lost_since = since
        if len(timed):
            self._last_cycles = int(cycles[-1])

    def _pair(self) -> None:
        """Sort what is pending behind the open starts; keep the pairs, and the starts that may yet find their end."""
        events = np.concatenate([self._events, *self._pending])
        self._pending, self._pending_events = [], 0
        order = _by_key(events["stream"], events["task"])
        stream, task, is_end = (events[name][order] for name in ("stream", "task", "is_end"))
        same_as_next = (stream[:-1] == stream[1:]) & (task[:-1] == task[1:])
        starts = np.flatnonzero(same_as_next & ~is_end[:-1] & is_end[1:])
        follower = np.full(len(events), -1)
        follower[order[starts]] = order[starts + 1]
        firsts = np.flatnonzero(follower >= 0)
        self._pairs.append(_pairs(events[firsts], events["cycles"][follower[firsts]]))
        alone = ~is_end
        alone[starts] = False
        is_open = np.zeros(len(events), bool)
        is_open[order] = alone & ~np.append(same_as_next, False)
        is_paired = follower >= 0
        is_paired[follower[firsts]] = True
        self._events = events[is_open]
        self._unpaired.append(events[~is_open & ~is_paired])

    def _ordered_pairs(self) -> Rows:
        pairs = np.concatenate(self._pairs)
        self._pairs.clear()
        if np.all(pairs["record"][:-1] < pairs["record"][1:]):
            return pairs
        return pairs[np.argsort(pairs["record"], kind="stable")]


def _pairs(starts: Rows, end_cycles: Integers) -> Rows:
    pairs = np.empty(len(starts), PAIR)
    for name in ("record", "stream", "task"):
        pairs[name] = starts[name]
    pairs["start_cycles"], pairs["end_cycles"] = starts["cycles"], end_cycles
    return pairs


def _by_key(streams: NDArray[np.uint32], tasks: NDArray[np.uint16]) -> Integers:
    """Return the order by (stream, task), else as they stand; 16 bits are sorted in linear time."""
    is_narrow = not len(streams) or streams.max() < 1 << 16
    return np.lexsort((tasks, streams.astype(np.uint16) if is_narrow else streams))


def unwrapped_tasks(streams: NDArray[np.uint32], tasks: NDArray[np.uint16]) -> Integers:
    """Return task ids of 16 bits, in file order, as they were before they wrapped; each stream wraps for itself.

    An id far below its predecessor on the stream, where that was above 65000, has wrapped.
    """
    order = _by_key(streams, np.zeros(len(streams), np.uint16))
    sorted_streams, ids = streams[order], tasks[order].astype(np.int64)
    same = sorted_streams[:-1] == sorted_streams[1:]
    wraps = np.zeros(len(ids), np.int64)
    wraps[1:] = same & (ids[:-1] > _WRAPS_ABOVE) & (ids[:-1] - ids[1:] > _WRAPS_BY)
    wraps = np.cumsum(wraps)
    first_of_stream = np.maximum.accumulate(np.where(np.append(True, ~same)[: len(ids)], np.arange(len(ids)), 0))
    unwrapped = np.empty(len(ids), np.int64)
    unwrapped[order] = ids + 65_536 * (wraps - wraps[first_of_stream])
    return unwrapped
