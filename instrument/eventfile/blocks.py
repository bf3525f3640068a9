"""Iterate over the valid frames of a file in blocks, and report damaged regions.

A block is what a window of the file holds. Its frames are found by following their lengths; both checksums of each are
checked, for frames of one length together. Nothing in a file is believed before its checksum held, and no memory is
taken for what is not there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.eventfile import crcs, frame
from instrument.eventfile.access import OpenFile
from instrument.eventfile.resync import Resync

WINDOW_BYTES = 1 << 20
#: Behind damage the window is small at first, as more damage may follow.
_FIRST_WINDOW_BYTES = 16 << 10
#: The most places of damage of one file that are listed one by one.
MOST_PLACES = 10_000

WRONG_LENGTH = "the checksum of the length is wrong"
WRONG_PAYLOAD = "the checksum of the payload is wrong"
UNFINISHED = "the file ends inside a frame"
TOO_LONG = "the frame's length reaches past valid frames"

_LENGTH = struct.Struct("<Q")
#: After this many equal lengths in a row the next ones are compared all at once.
_ALIKE = 64
#: The most periods that are tried to find how lengths come round.
_PERIODS = 32
#: Payloads above this size are not gathered into a matrix.
_LONG_BYTES = 4096
#: The headers of a window are searched all at once if its frames are no longer than this, and if at most this share
#: (one place in four) looks like a header.
_SHORT_BYTES, _PLACES_SHARE = 512, 4
#: In a window whose frames are mostly shorter than this, only lengths of one byte are searched.
_VERY_SHORT_BYTES = 160

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Damage:
    """`bytes_skipped` bytes at `offset` of `path` hold no valid frame. `torn` is True for an unfinished last frame."""

    path: str
    offset: int
    bytes_skipped: int
    reason: str
    torn: bool


def note(damage: list[Damage], place: Damage) -> None:
    """Add damage of a file; beyond `MOST_PLACES` the last place grows, unless the new one is an unfinished end."""
    if len(damage) < MOST_PLACES or place.torn:
        damage.append(place)
        return
    last = damage.pop()
    offset = min(last.offset, place.offset)
    end = max(last.offset + last.bytes_skipped, place.offset + place.bytes_skipped)
    reason = "more damaged places than are listed lie between valid frames"
    damage.append(Damage(place.path, offset, end - offset, reason, last.torn))


@dataclass
class Group:
    """Frames of a block whose payloads have one length; the payloads begin at `starts` of the block's data, ascending.

    In memory the first one stands at `origin` of `buffer`, and the others each `stride` bytes behind the one before.
    """

    length: int
    starts: Indices
    buffer: memoryview
    origin: int
    stride: int

    @classmethod
    def gather(cls, data: memoryview, starts: Indices, length: int) -> Group:
        """Gather the payloads at `starts` of `data`; this is a view if they follow each other directly."""
        stride = frame.OVERHEAD_BYTES + length
        if int(starts[-1] - starts[0]) == (starts.size - 1) * stride:
            return cls(length, starts, data, int(starts[0]), stride)
        everywhere: NDArray[np.uint8] = np.ndarray((len(data) - length + 1, length), np.uint8, data, 0, (1, 1))
        return cls(length, starts, everywhere[starts].data, 0, length)

    @property
    def rows(self) -> NDArray[np.uint8]:
        """The bytes of the payloads, one a row."""
        shape = (self.starts.size, self.length)
        return np.ndarray(shape, np.uint8, self.buffer, self.origin, (self.stride, 1))

    def column(self, at: int, dtype: str) -> NDArray[Any]:
        """Return the number at byte `at` of each payload, as a view."""
        return np.ndarray((self.starts.size,), dtype, self.buffer, self.origin + at, (self.stride,))

    def only(self, mask: NDArray[np.bool_]) -> Group:
        """Return some of the frames."""
        if mask.all():
            return self
        return Group(self.length, self.starts[mask], self.rows[mask].data, 0, self.length)


@dataclass
class Block:
    """Payloads in `data`, which is valid until the next block is asked for; `base` is where it begins in the file.

    The groups are in the order of their first frames.
    """

    data: memoryview
    base: int
    groups: list[Group]

    def payloads(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the start of each payload, and a view of it, in file order."""
        frames = [(start, group.length) for group in self.groups for start in group.starts.tolist()]
        for start, length in sorted(frames):
            yield start, self.data[start : start + length]


class BlockReader:
    """Iterate the blocks of the file at `path` from the byte `start` on, or of its part before `stop`.

    Meanwhile `damage` lists what was passed over, in file order, and `end` is where reading would go on if the file
    grew: behind the last frame, before what may still become one.

    Raises, when it is iterated:
        OSError: the file cannot be read.
    """

    def __init__(self, path: str, start: int = 0, stop: int | None = None, as_it_is: bool = False) -> None:
        self.path = path
        self._as_it_is = as_it_is
        self.start = start
        self.stop = stop
        self.end = start
        self.damage: list[Damage] = []
        #: Device and inode of the file that was read.
        self.identity: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Block]:
        self.damage, self.end = [], self.start
        with OpenFile(self.path, self._as_it_is) as file:
            self.identity = file.identity
            size_bytes = file.size_bytes if self.stop is None else min(self.stop, file.size_bytes)
            yield from _Pass(self, file, size_bytes).blocks()

    def add(self, offset: int, bytes_skipped: int, reason: str, torn: bool = False) -> None:
        """Note damage; see `note`."""
        note(self.damage, Damage(self.path, offset, bytes_skipped, reason, torn))


class EventFileReader:
    """The payloads of one event file in file order; after iterating, `damage` lists what was passed over.

    `offset` is where the frame of the payload yielded last begins, in bytes from the start of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.damage: list[Damage] = []

    def __iter__(self) -> Iterator[memoryview]:
        """Yield each payload, a copy that stays valid as long as it is kept."""
        blocks = BlockReader(self.path)
        self.damage = blocks.damage
        for block in blocks:
            self.damage = blocks.damage
            for start, payload in block.payloads():
                self.offset = block.base + start - frame.HEADER.size
                yield memoryview(bytes(payload))
        self.damage = blocks.damage


class _Pass:
    """One way through a file."""

    def __init__(self, reader: BlockReader, file: OpenFile, size_bytes: int) -> None:
        self._reader = reader
        self._file = file
        self._size_bytes = size_bytes
        self._resync = Resync(file, size_bytes)
        self._window_bytes = WINDOW_BYTES
        self._buffer = bytearray()
        #: What was read of long frames whose payloads turned out to be wrong.
        self._wasted_bytes = 0
        #: The lengths of the frames of the last window.
        self._lengths: Indices = np.empty(0, np.int64)

    def blocks(self) -> Iterator[Block]:
        offset = self._reader.start
        while offset < self._size_bytes:
            data = self._window(offset)
            starts, lengths, following = _walk(data, self._lengths)
            self._lengths = lengths
            if not starts.size:
                offset = self._skip(offset)
                self._window_bytes = _FIRST_WINDOW_BYTES
                continue
            groups, bad = _checked(data, starts + frame.HEADER.size, lengths)
            base, offset = offset, offset + following
            if bad.size:
                offset = self._note_payloads(base, bad, lengths, offset)
            self._window_bytes = min(2 * self._window_bytes, WINDOW_BYTES)
            if groups:
                yield Block(data, base, groups)
        self._reader.end = self._settled()

    def _window(self, offset: int) -> memoryview:
        """Return the bytes from `offset` on: a window, or the whole of a larger frame."""
        wanted = min(self._window_bytes, self._size_bytes - offset)
        length = self._resync.length(offset)
        whole = frame.OVERHEAD_BYTES + (length or 0)
        if length is not None and wanted < whole <= self._size_bytes - offset:
            # A hostile file has thousands of long frames over each other, all of them wrong.
            is_plausible = self._wasted_bytes <= self._size_bytes or self._resync.is_valid(offset, length)
            wanted = whole if is_plausible else wanted
        if len(self._buffer) < wanted:
            self._buffer = bytearray(wanted)
        view = memoryview(self._buffer)[:wanted]
        filled = self._file.fill(view, offset)
        if filled < wanted:  # it was cut meanwhile
            self._size_bytes = offset + filled
            self._resync = Resync(self._file, self._size_bytes)
        return view[:filled]

    def _skip(self, offset: int) -> int:
        """Note what stands at `offset` and does not begin a whole frame; where to read on."""
        is_whole = self._size_bytes - offset >= frame.HEADER.size
        has_length = is_whole and self._resync.length(offset) is not None
        if has_length and self._is_in_file(offset):
            following = self._resync.resume(offset)
            self._reader.add(offset, following - offset, WRONG_PAYLOAD)
            return following
        following = self._resync.find(offset + 1)
        if is_whole and not has_length:
            self._reader.add(offset, following - offset, WRONG_LENGTH)
            return following
        # A frame that runs past the end is an unfinished write, unless whole frames stand behind its start.
        is_torn = following == self._size_bytes
        self._reader.add(offset, following - offset, UNFINISHED if is_torn else TOO_LONG, is_torn)
        return following

    def _is_in_file(self, offset: int) -> bool:
        length = self._resync.length(offset)
        return length is not None and frame.OVERHEAD_BYTES + length <= self._size_bytes - offset

    def _note_payloads(self, base: int, bad: Indices, lengths: Indices, following: int) -> int:
        """Note frames with wrong payloads, by (index, start of the payload); where to read on."""
        for index, start in bad.tolist():
            offset = base + start - frame.HEADER.size
            end = offset + frame.OVERHEAD_BYTES + int(lengths[index])
            self._wasted_bytes += int(lengths[index]) if lengths[index] > self._window_bytes else 0
            if index == len(lengths) - 1:  # the frames before it are followed by a header, as `resume` demands
                end = following = self._resync.resume(offset)
            self._reader.add(offset, end - offset, WRONG_PAYLOAD)
        return following

    def _settled(self) -> int:
        """Return where the damage begins that reaches to the end of the file; the end if there is none."""
        end = self._size_bytes
        for place in reversed(self._reader.damage):
            if place.offset + place.bytes_skipped != end:
                break
            end = place.offset
        return max(end, self._reader.start)


def _walk(data: memoryview, before: Indices) -> tuple[Indices, Indices, int]:
    """Return the starts of whole frames with right headers, the lengths of their payloads, and the end of the last.

    `before` are the lengths of the frames before them.
    """
    expected, offset = _expected(data, before)
    pieces, headers = [expected], None
    while True:
        first, (single, is_alike) = offset, _follow(data, offset)
        pieces.append(np.array(single[:-1], np.int64))
        offset = single[-1]
        if len(single) <= _ALIKE:
            break
        if is_alike:
            run = _run(data, offset, offset - single[-2] - frame.OVERHEAD_BYTES)
        elif headers is not None or offset - first < _ALIKE * _SHORT_BYTES:
            headers = headers or _Headers(data, offset, is_short=offset - first < _ALIKE * _VERY_SHORT_BYTES)
            run = headers.run(offset)
        else:
            continue
        if run.size:
            pieces.append(run)
            last = int(run[-1])
            offset = last + frame.OVERHEAD_BYTES + _LENGTH.unpack_from(data, last)[0]
    return _with_headers(data, np.concatenate(pieces), offset)


def _expected(data: memoryview, before: Indices) -> tuple[Indices, int]:
    """Return the starts of the first frames as far as their lengths come round, and the end of the last of them.

    A training goes through the same tags in each step: the lengths that followed the last ones the time before are
    expected again.
    """
    cycle = _cycle(before)
    if not cycle.size:
        return cycle, 0
    bytes_ = int(cycle.sum()) + cycle.size * frame.OVERHEAD_BYTES
    size = min(len(data), WINDOW_BYTES)
    lengths = np.tile(cycle, size // bytes_ + 1)
    ends = np.cumsum(lengths + frame.OVERHEAD_BYTES)
    ends = ends[ends <= size]
    starts = np.append(0, ends)[: ends.size]
    there = np.ndarray((len(data) - _LENGTH.size + 1,), "<u8", data, 0, (1,))[starts] if starts.size else starts
    is_other = there != lengths[: starts.size].astype(np.uint64)
    count = int(is_other.argmax()) if is_other.any() else starts.size
    return starts[:count], int(ends[count - 1]) if count else 0


def _cycle(lengths: Indices) -> Indices:
    """Return the last lengths that all others repeat; an empty array if they do not."""
    if lengths.size < 2 * _ALIKE or lengths.max() > _LONG_BYTES:
        return lengths[:0]
    counts = np.bincount(lengths)
    counts[counts == 0] = lengths.size + 1
    places = np.flatnonzero(lengths == counts.argmin())  # the rarest length gives the fewest periods to try
    for period in (places[-1] - places[-2 : -2 - _PERIODS : -1]).tolist():
        if (lengths[period:] == lengths[:-period]).all():
            return lengths[-period:]
    return lengths[:0]


def _follow(data: memoryview, offset: int) -> tuple[list[int], bool]:
    """Return the starts of the next frames and the end of the last, and True if all lengths are equal.

    There are `_ALIKE` frames, or as many as are whole.
    """
    starts, size, unpack_from = [offset], len(data), _LENGTH.unpack_from
    lengths = set()
    for _ in range(_ALIKE):
        if offset + frame.OVERHEAD_BYTES > size:
            break
        (length,) = unpack_from(data, offset)
        following = offset + frame.OVERHEAD_BYTES + length
        if following > size:
            break
        starts.append(following)
        lengths.add(length)
        offset = following
    return starts, len(lengths) == 1


class _Headers:
    """All places from `first` on that hold a length of one byte, or of two, with its checksum.

    Those are the frames, and few others.
    """

    def __init__(self, data: memoryview, first: int, is_short: bool) -> None:
        is_zero = np.frombuffer(data, np.uint8)[first:] == 0
        count = max(is_zero.size - frame.HEADER.size + 1, 0)
        two = is_zero[:-1] & is_zero[1:]
        four = two[:-2] & two[2:]
        head = 1 if is_short else 2
        places = np.flatnonzero(four[head : head + count] & four[4 : 4 + count]) + first
        self._size = len(data)
        if places.size > count // _PLACES_SHARE:  # zeros, and no frames
            places = places[:0]
        bytes_: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        lengths = bytes_[places].astype(np.uint64) | bytes_[places + 1].astype(np.uint64) << np.uint64(8)
        checksums = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))[places + _LENGTH.size]
        is_right = crcs.of_lengths(lengths) == checksums
        self._starts: Indices = places[is_right]
        self._ends: Indices = self._starts + lengths[is_right].astype(np.int64) + frame.OVERHEAD_BYTES
        #: The last frames before one that does not follow directly, or does not end.
        self._breaks = np.flatnonzero(np.append(self._starts[1:] != self._ends[:-1], True) | (self._ends > self._size))

    def run(self, offset: int) -> Indices:
        """Return the starts of whole frames that follow each other from `offset` on."""
        first = int(np.searchsorted(self._starts, offset))
        if first == self._starts.size or self._starts[first] != offset:
            return self._starts[:0]
        last = int(self._breaks[np.searchsorted(self._breaks, first)])
        return self._starts[first : last + (self._ends[last] <= self._size)]


def _run(data: memoryview, offset: int, length: int) -> Indices:
    """Return the starts of the frames from `offset` on that have this length."""
    stride = frame.OVERHEAD_BYTES + length
    count = (len(data) - offset) // stride
    if count <= 0:
        return np.empty(0, np.int64)
    lengths: NDArray[np.uint64] = np.ndarray((count,), "<u8", data, offset, (stride,))
    other = np.flatnonzero(lengths != length)
    count = int(other[0]) if other.size else count
    return np.arange(offset, offset + count * stride, stride, dtype=np.int64)


def _with_headers(data: memoryview, starts: Indices, end: int) -> tuple[Indices, Indices, int]:
    """Return the frames before the first one whose header has a wrong checksum."""
    if not starts.size:
        return starts, starts, end
    count = len(data) - frame.HEADER.size + 1
    lengths = np.ndarray((count,), "<u8", data, 0, (1,))[starts]
    checksums = np.ndarray((count,), "<u4", data, _LENGTH.size, (1,))[starts]
    wrong = np.flatnonzero(crcs.of_lengths(lengths) != checksums)
    if wrong.size:
        end = int(starts[wrong[0]])
        starts, lengths = starts[: wrong[0]], lengths[: wrong[0]]
    return starts, lengths.astype(np.int64), end


def _checked(data: memoryview, starts: Indices, lengths: Indices) -> tuple[list[Group], Indices]:
    """Return the frames with valid payloads, and (index, start) of the others, ascending."""
    groups, bad = [], [np.empty((0, 2), np.int64)]
    for index in _by_length(lengths):
        group = Group.gather(data, starts[index], int(lengths[index[0]]))
        stored = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))[group.starts + group.length]
        is_right = crcs.masked(crcs.of_strings(data, group.starts, group.rows)) == stored
        if not is_right.all():
            bad.append(np.stack([index, group.starts], axis=1)[~is_right])
            if not is_right.any():
                continue
            group = group.only(is_right)
        groups.append(group)
    groups.sort(key=lambda group: int(group.starts[0]))
    wrong = np.concatenate(bad)
    return groups, wrong[np.argsort(wrong[:, 0])]


def _by_length(lengths: Indices) -> list[Indices]:
    """Return the indices of equal lengths; long payloads are grouped only where they follow each other (no copies)."""
    if (lengths == lengths[0]).all() and lengths[0] <= _LONG_BYTES:
        return [np.arange(lengths.size)]
    order = np.argsort(np.minimum(lengths, _LONG_BYTES + 1).astype(np.uint16), kind="stable")
    in_order = lengths[order]
    is_apart = (in_order[1:] > _LONG_BYTES) & (order[1:] != order[:-1] + 1)
    is_first = np.append(True, (in_order[1:] != in_order[:-1]) | is_apart)
    return np.split(order, np.flatnonzero(is_first)[1:])
