"""One event file as a reader sees it: its points by kind and tag, its lineage, and what could not be read.

It can be read on where it ended. What reaches to the end and is no whole frame is looked at again then: it may be a
write under way, or a part that a network file system does not show yet.
"""

from __future__ import annotations

import functools
import math
import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from instrument.codec import lineage, outline, tensorboard_outline
from instrument.codec.outline import Outline, Place
from instrument.errors import CorruptMessage
from instrument.eventfile import frame, names
from instrument.eventfile.access import OpenFile
from instrument.eventfile.blocks import Block, BlockReader, Damage, Group, note
from instrument.read import alike
from instrument.read.columns import Chunk, Columns, FilePoints, Payload, Sharing
from instrument.values import TRACE_KIND, End, Gap, Lineage, Start

#: A file whose last so many bytes are others than they were is another file.
_LAST_BYTES = 64
#: A tag takes half a kilobyte and more: a file could make millions of them out of a few megabytes.
MOST_TAGS = 50_000
#: The same holds for what a file tells of its run, and for gaps.
MOST_TOLD = 20_000
#: Points that come one by one may take more memory than they have bytes in the file, but no more than this.
_SPARE_BYTES = 16 << 20
_NUMBER_BYTES, _STORED_BYTES = 24, 48
#: So many places of damage, the last ones, are looked at again when reading goes on.
_MENDED = 16
_TAGS = f"tags beyond the file's first {MOST_TAGS}"
#: A kind and a tag.
Key = tuple[str, str]


class Told(NamedTuple):
    """Something a file says of its run: lineage, or the hyper-parameters of TensorBoard; `frame` is where it stands."""

    frame: Damage
    what: Lineage | dict[str, Any]


B = TypeVar("B", Start, End)


class Moment(NamedTuple, Generic[B]):
    """The start or the end of a recorder, and when that was."""

    wall_time: float
    what: B


@dataclass(eq=False)
class EventFile:
    """What was read of the file at `path` so far; `end` is where reading goes on.

    `begun` and `ended` are the start and the end of its recorder, as far as the file has them.

    `gaps` are the places where the writing side says that events are missing; `damage` lists frames that are broken, or
    hold no event, or less than a whole one; `unread` counts what is passed over, by what it is. `first_wall_time` and
    `last_wall_time` are those of its points.
    """

    path: str
    name: names.EventFileName

    def __post_init__(self) -> None:
        self.points: dict[Key, FilePoints] = {}
        self.told: list[Told] = []
        self.gaps: list[Gap] = []
        self.unread: Counter[str] = Counter()
        self.damage: list[Damage] = []
        self.first_wall_time = math.inf
        self.last_wall_time = -math.inf
        self.begun: Moment[Start] | None = None
        self.ended: Moment[End] | None = None
        self._end_bytes = 0
        self.end = 0
        self.frames = 0
        self._identity: tuple[int, int] | None = None
        self._last = b""
        self._plugins: tensorboard_outline.Plugins = {}
        self._touched: set[Key] = set()
        self._unsettled: set[Key] = set()
        #: What has been left out, which is told once.
        self._left_out: set[str] = set()
        self._seen_bytes = self._taken_bytes = 0

    @classmethod
    def at(cls, path: str) -> EventFile:
        """The file at a path, not read yet; its name must be that of an event file."""
        name = names.recognise(os.path.basename(path))
        assert name is not None, path
        return cls(path, name)

    def is_replaced(self) -> bool:
        """Whether what was read so far is no longer what stands at the path, as far as its last bytes say."""
        if self._identity is None:
            return False
        try:
            with OpenFile(self.path) as file:
                return file.identity != self._identity or self._last_bytes(file) != self._last
        except OSError:
            return True

    def _last_bytes(self, file: OpenFile) -> bytes:
        """The end of what was read."""
        start = max(0, self.end - _LAST_BYTES)
        return bytes(file.read(start, self.end - start))

    def read(self) -> None:
        """Read on to the end of the file. One that cannot be opened is damage."""
        broken = [one for one in self.damage if one.offset < self.end]
        self.damage = []
        try:
            if self.end:
                broken[-_MENDED:] = [left for one in broken[-_MENDED:] for left in self._mended(one)]
            broken += self._read_on(self.end, None)
        except OSError as error:
            broken.append(Damage(self.path, 0, 0, f"the file cannot be read: {error.strerror}", torn=False))
        self.damage = sorted([*broken, *self.damage], key=lambda one: one.offset)

    def _read_on(self, start: int, stop: int | None) -> list[Damage]:
        reader = BlockReader(self.path, start, stop)
        try:
            for block in reader:
                self._take(block)
        finally:
            self._settle()
        if stop is None:
            self._identity, self.end = reader.identity, reader.end
            with OpenFile(self.path) as file:
                self._last = self._last_bytes(file)
        return reader.damage

    def _mended(self, one: Damage) -> list[Damage]:
        """What is left of damage between frames: what a file system did not show may be there now."""
        known = self._count()
        left = self._read_on(one.offset, one.offset + one.bytes_skipped)
        return [one] if self._count() == known else [replace(new, torn=False) for new in left]

    def _count(self) -> int:
        return sum(map(len, self.points.values())) + len(self.told) + len(self.gaps)

    def _settle(self) -> None:
        sharing = Sharing()
        for key in self._unsettled:
            self.points[key].settle(sharing)
        self._unsettled = set()

    def faults(self, block: Block) -> dict[int, str]:
        """The payloads of a block that are no events of such a file, by where they begin, and why."""
        faults: dict[int, str] = {}

        def read(length: int, start: int) -> Outline | None:
            payload = block.data[start : start + length]
            try:
                if not self.name.is_lineage:
                    return self._parsed(payload)
                lineage.decode_event(payload)
            except CorruptMessage as error:
                faults[start] = str(error)
            return None

        for group in block.groups:
            for _ in alike.families(group, functools.partial(read, group.length)):
                pass
        return faults

    def _parsed(self, payload: memoryview) -> Outline:
        if self.name.kind == names.TENSORBOARD:
            return tensorboard_outline.outline(payload, self._plugins)
        return _mindspore(payload)

    def _take(self, block: Block) -> None:
        self.frames += sum(group.starts.size for group in block.groups)
        self._seen_bytes += len(block.data)
        if self.name.is_lineage:
            self._take_lineage(block)
            return
        for group in block.groups:
            read = functools.partial(self._outline, block, group.length)
            for found in alike.families(group, read):
                if isinstance(found, alike.One):
                    self._take_one(block, group, found)
                else:
                    self._take_family(block, found)
        sharing = Sharing()
        for key in self._touched:
            self.points[key].end_block(sharing)
        self._unsettled |= self._touched
        self._touched = set()

    def _outline(self, block: Block, length: int, start: int) -> Outline | None:
        try:
            found = self._parsed(block.data[start : start + length])
        except CorruptMessage as error:
            self._note(block, start, length, str(error))
            return None
        for problem in found.problems:
            self._note(block, start, length, problem)
        return found

    def _note(self, block: Block, start: int, length: int, reason: str) -> None:
        note(self.damage, self._frame(block, start, length, reason))

    def _leave_out(self, block: Block, start: int, length: int, what: str) -> None:
        """Say once that something is left out."""
        if what not in self._left_out:
            self._left_out.add(what)
            self._note(block, start, length, f"from here on {what} are left out")

    def _frame(self, block: Block, start: int, length: int, reason: str = "") -> Damage:
        offset = block.base + start - frame.HEADER.size
        return Damage(self.path, offset, length + frame.OVERHEAD_BYTES, reason, torn=False)

    def _series(self, place: Place) -> FilePoints | None:
        """Where the points of a value go; None where the file has too many tags."""
        key = place.kind, place.tag
        series = self.points.get(key)
        if series is None:
            if len(self.points) >= MOST_TAGS:
                return None
            series = self.points[key] = FilePoints()
        self._touched.add(key)
        return series

    def _span(self, first: float, last: float) -> None:
        if first < self.first_wall_time:
            self.first_wall_time = first
        if last > self.last_wall_time:
            self.last_wall_time = last

    def _take_family(self, block: Block, family: alike.Family) -> None:
        places = family.outline.places
        if not places:
            return
        step, wall_time = family.steps(), family.wall_times()
        self._span(float(np.fmin.reduce(wall_time)), float(np.fmax.reduce(wall_time)))
        starts = family.group.starts
        for place in places:
            numbers = family.numbers(place.start, place.end)
            series = self._series(place)
            if series is None:
                self._leave_out(block, int(starts[0]), family.group.length, _TAGS)
            else:
                series.add(Chunk(starts, Columns(step, wall_time, numbers)))

    def _take_one(self, block: Block, group: Group, one: alike.One) -> None:
        found, start = one
        data = block.data[start : start + group.length]
        (footer,) = frame.FOOTER.unpack_from(block.data, start + group.length)
        payload = Payload(self.path, block.base + start, data, footer)
        for place in found.places:
            if place.kind == TRACE_KIND:
                continue
            if place.kind in tensorboard_outline.UNREAD_KINDS:
                self.unread[place.kind] += 1
                continue
            content = data[place.start : place.end]
            if place.kind in ("start", "end"):
                self._take_lifecycle(block, start, group.length, found.wall_time, place)
                continue
            self._span(found.wall_time, found.wall_time)
            try:
                if place.kind in ("gap", "hparams"):
                    assert place.decode is not None
                    self._tell(block, start, group.length, place.decode(content))
                elif place.kind != "scalar":
                    series = self._series_of_one(block, start, group.length, place, _STORED_BYTES)
                    if series is not None:
                        series.add_stored(start, found.step, found.wall_time, payload.stored(place))
                else:
                    number = _number(content) if place.decode is None else place.decode(content)
                    series = self._series_of_one(block, start, group.length, place, _NUMBER_BYTES)
                    if series is not None:
                        series.add_number(start, found.step, found.wall_time, number)
            except CorruptMessage as error:
                self._note(block, start, group.length, str(error))

    def _take_lifecycle(self, block: Block, start: int, length: int, wall_time: float, place: Place) -> None:
        """Take the start, which is the file's first event, or the end of its recorder; the last end counts."""
        assert place.decode is not None
        try:
            what = place.decode(block.data[start + place.start : start + place.end])
        except CorruptMessage as error:
            self._note(block, start, length, str(error))
            return
        if isinstance(what, End):
            self.ended = Moment(wall_time, what)
            self._end_bytes = length + frame.OVERHEAD_BYTES
        elif self.begun is None:
            self.begun = Moment(wall_time, what)

    @property
    def content_bytes(self) -> int:
        """What was read of the file, without the end of its recorder."""
        return self.end - self._end_bytes

    def _series_of_one(
        self, block: Block, start: int, length: int, place: Place, taken_bytes: int
    ) -> FilePoints | None:
        """Where one point goes that takes so much memory; None where it is left out, which is told."""
        if self._taken_bytes + taken_bytes > self._seen_bytes + _SPARE_BYTES:
            self._leave_out(block, start, length, "values that would take more memory than the file has bytes")
            return None
        series = self._series(place)
        if series is None:
            self._leave_out(block, start, length, _TAGS)
            return None
        self._taken_bytes += taken_bytes
        return series

    def _tell(self, block: Block, start: int, length: int, what: Any) -> None:
        """Take what the file says of its run; of too much of it what came first."""
        known = self.gaps if isinstance(what, Gap) else self.told
        if len(known) >= MOST_TOLD:
            self._leave_out(block, start, length, f"more than {MOST_TOLD} gaps or events of lineage")
        elif isinstance(what, Gap):
            self.gaps.append(what)
        else:
            self.told.append(Told(self._frame(block, start, length), what))

    def _take_lineage(self, block: Block) -> None:
        frames = [(start, group.length) for group in block.groups for start in group.starts.tolist()]
        for start, length in sorted(frames):
            try:
                _, found = lineage.decode_event(block.data[start : start + length])
            except CorruptMessage as error:
                self._note(block, start, length, str(error))
                continue
            if found is not None:
                self._forget_earlier(found.what)
                self._tell(block, start, length, found)

    def _forget_earlier(self, kind: str) -> None:
        """Of the kinds of lineage of which the last event counts, let go of half where there are too many."""
        if len(self.told) >= MOST_TOLD and kind != "custom_lineage_data":
            same = [one for one in self.told if isinstance(one.what, Lineage) and one.what.what == kind]
            gone = {id(one) for one in same[: len(same) // 2]}
            self.told = [one for one in self.told if id(one) not in gone]


def _number(content: memoryview) -> float:
    return float(np.frombuffer(content, f"<f{len(content)}")[0])


#: The last outline of each length: the runs of a tree mostly record the same.
_known: dict[int, tuple[Outline, NDArray[np.uint8], NDArray[np.uint8]]] = {}
_KNOWN_LENGTHS = 256
#: Outlining a payload of few values takes no longer than comparing it.
_KNOWN_FROM_BYTES = 256


def _mindspore(payload: memoryview) -> Outline:
    length = len(payload)
    known = _known.get(length)
    if known is not None:
        found, mask, example = known
        if not ((np.frombuffer(payload, np.uint8) & mask) ^ example).any():
            return found.with_head(payload)
    found = outline.mindspore(payload)
    if found.is_regular and length >= _KNOWN_FROM_BYTES and found.places:
        if len(_known) >= _KNOWN_LENGTHS:
            _known.clear()
        mask = np.frombuffer(found.mask(length), np.uint8)
        _known[length] = found, mask, np.frombuffer(payload, np.uint8) & mask
    return found
