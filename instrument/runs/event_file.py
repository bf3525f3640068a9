"""One event file as a reader sees it: its points by kind and tag, its lineage, and what could not be read.

The problem: a file has up to millions of values, may be hostile, may be damaged anywhere, and may still grow. Reading
must be quick, take no more memory than the bytes justify, lose no valid frame, and go on where it stopped.

The strategy: blocks of valid frames come from `instrument.eventfile.blocks`. In each block the numbers are taken by the
cheapest way that fits, without a Python call for each event:

1. events that go on with the cycle of the block before (`cycles`): an event a value, the same tags in each step;
2. batches of payloads of one length and layout (`columnar`): most files consist of them;
3. the rest value by value, but all values at once (`irregular`): other tags in each step, first values of tags;
4. what holds anything else than plain numbers, one event at a time.

Numbers become columns (`numbers`); other values stay in the file, and the place of each is a row (`columns`). The order
of points is that of the file, whichever way they took.

Rejected: decoding event by event into a list for each tag. It costs microseconds a value, and a list of chunks for each
tag costs more than all checksums together if a step has a thousand tags.

To read on, the file's identity and last bytes are compared with those of the last time. Bytes that reach to the end and
are no whole frame are looked at again: they may be a write under way, or a part that a network file system does not
show yet.
"""

from __future__ import annotations

import functools
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
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
from instrument.runs import columnar, irregular
from instrument.runs.columns import FilePoints, Payload
from instrument.runs.numbers import MOST_TAGS, NumberPoints, Numbers, Rows, TaggedNumbers
from instrument.values import TRACE_KIND, End, Gap, Lineage, Start

#: A file is another one if the last bytes of what was read differ.
_LAST_BYTES = 64
#: Lineage and gaps take a kilobyte each in memory: a hostile file of a few megabytes could hold millions.
MOST_RECORDS = 20_000
#: Points that come one by one may take more memory than they have bytes in the file, but no more than this.
_SPARE_BYTES = 16 << 20
_NUMBER_BYTES, _STORED_BYTES = 24, 48
#: The number of damaged places, the last ones, that are read again when reading goes on.
_MENDED = 16
_TAGS = f"tags beyond the file's first {MOST_TAGS}"
#: A kind and a tag.
Key = tuple[str, str]


#: If batches leave no more groups than this, single payloads among these are looked at by themselves.
_FEW_LEFT = 4
#: The most layouts whose tags are kept.
_MOST_LAYOUTS = 64


class _Tags(NamedTuple):
    """The numbers of one size in a layout: of which tags they are, and where they stand in the payload."""

    size: int
    ids: NDArray[np.uint16]
    starts: NDArray[np.int64]
    is_unique: bool


class LineageRecord(NamedTuple):
    """Lineage, or the hyper-parameters of TensorBoard; `frame` is where it stands in the file."""

    frame: Damage
    content: Lineage | dict[str, Any]


B = TypeVar("B", Start, End)


class Moment(NamedTuple, Generic[B]):
    """The start or the end of a recorder, and when that was."""

    wall_time: float
    record: B


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
        self._plugins = tensorboard_outline.Plugins()
        self._begin()

    def _begin(self) -> None:
        #: The values of each tag that are no numbers.
        self._stored: dict[Key, FilePoints] = {}
        self.numbers = Numbers(self.name.writer)
        self.lineage: list[LineageRecord] = []
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
        self._dialect = _tensorboard(self._plugins) if self.name.kind == names.TENSORBOARD else _MINDSPORE
        self._irregular = irregular.Irregular(self._dialect, self._ids_of)
        #: The tags of the last layouts.
        self._tags: dict[columnar.Layout, list[_Tags]] = {}
        #: Payloads of the block at hand that are no events, by where they begin, and why.
        self._refused: dict[int, str] = {}
        self._touched: set[FilePoints] = set()
        self._unsettled: set[FilePoints] = set()
        #: What has been left out; it is reported once.
        self._left_out: set[str] = set()
        self._seen_bytes = self._taken_bytes = 0

    @classmethod
    def at(cls, path: str) -> EventFile:
        """Return the file at a path, not read yet; its name must be that of an event file."""
        name = names.recognise(os.path.basename(path))
        assert name is not None, path
        return cls(path, name)

    def is_replaced(self) -> bool:
        """Return True if the file must be read from its beginning: another one stands there, by its last bytes."""
        if self._identity is None:
            return False
        try:
            with OpenFile(self.path) as file:
                return file.identity != self._identity or self._last_bytes(file) != self._last
        except OSError:
            return True

    def _last_bytes(self, file: OpenFile) -> bytes:
        """Return the last bytes of what was read."""
        start = max(0, self.end - _LAST_BYTES)
        return bytes(file.read(start, self.end - start))

    def read(self) -> None:
        """Read on to the end of the file. One that cannot be opened is damage.

        What a tag of TensorBoard means may stand behind its first values: the file is read again then.
        """
        self._read_further()
        while self._plugins.is_late:
            self._plugins.is_late = False
            self._begin()
            self._read_further()

    def _read_further(self) -> None:
        broken = [place for place in self.damage if place.offset < self.end]
        self.damage = []
        try:
            if self.end:
                broken[-_MENDED:] = [left for place in broken[-_MENDED:] for left in self._mended(place)]
            broken += self._read_on(self.end, None)
        except OSError as error:
            broken.append(Damage(self.path, 0, 0, f"the file cannot be read: {error.strerror}", torn=False))
        self.damage = sorted([*broken, *self.damage], key=lambda place: place.offset)

    def _read_on(self, start: int, stop: int | None) -> list[Damage]:
        reader = BlockReader(self.path, start, stop)
        try:
            for block in reader:
                self._take(block)
                if self._plugins.is_late and not block.base:
                    break  # mostly it shows in the first block, and everything is read again
        finally:
            self._settle()
        if stop is None:
            self._identity, self.end = reader.identity, reader.end
            with OpenFile(self.path) as file:
                self._last = self._last_bytes(file)
        return reader.damage

    def _mended(self, place: Damage) -> list[Damage]:
        """Read a damaged part again, as a network file system may show it by now; return what is still damaged."""
        count = self._count()
        left = self._read_on(place.offset, place.offset + place.bytes_skipped)
        return [place] if self._count() == count else [replace(new, torn=False) for new in left]

    def _count(self) -> int:
        return sum(map(len, self.points.values())) + len(self.lineage) + len(self.gaps)

    @property
    def points(self) -> dict[Key, FilePoints | NumberPoints]:
        """The points of each kind and tag."""
        numbers = {("scalar", tag): NumberPoints(self.numbers, number) for tag, number in self.numbers.ids.items()}
        return {**numbers, **self._stored}

    def part(self, key: Key) -> FilePoints | NumberPoints | None:
        """Return the points of a kind and tag; None without any."""
        if key[0] == "scalar" and (number := self.numbers.ids.get(key[1])) is not None:
            return NumberPoints(self.numbers, number)
        return self._stored.get(key)

    def together(self) -> Iterator[tuple[Key, object]]:
        """Iterate over kinds and tags, each with what is equal for those that have the same steps and times."""
        for tag, table in zip(self.numbers.ids, self.numbers.tables(), strict=True):
            key = "scalar", tag
            yield key, table or key
        yield from ((key, key) for key in self._stored)

    def tags(self) -> dict[str, list[str]]:
        """Return the tags of each kind."""
        tags = {"scalar": list(self.numbers.ids)} if self.numbers.ids else {}
        for kind, tag in self._stored:
            tags.setdefault(kind, []).append(tag)
        return tags

    def _settle(self) -> None:
        for points in self._unsettled:
            points.settle()
        self._unsettled = set()

    def faults(self, block: Block) -> dict[int, str]:
        """Return why payloads of a block are no events of this file, by the offsets of the payloads in the block."""
        other = EventFile(self.path, self.name)
        other._take(block)
        return other._refused

    def _take(self, block: Block) -> None:
        self.frames += sum(group.starts.size for group in block.groups)
        self._seen_bytes += len(block.data)
        self._refused = {}
        if self.name.is_lineage:
            self._take_lineage(block)
            return
        groups = self._go_on(block)
        batches, left = [], []
        for group in groups:
            outline_at = functools.partial(self._outline, block, group.length)
            for part in columnar.batches(group, block.data, self._dialect, outline_at):
                if isinstance(part, columnar.Batch):
                    batches.append(part)
                else:
                    left.append(part)
        if left and irregular.is_cheaper([batch.group for batch in batches], left):
            left, batches = [*left, *(batch.group for batch in batches)], []
        for batch in batches:
            self._take_batch(block, batch)
        if batches and len(left) <= _FEW_LEFT:
            left = [group for group in left if not self._take_wide(block, group)]
        if left:
            self._take_irregular(block, left)
        self.numbers.end_block()
        for points in self._touched:
            points.end_block()
        self._unsettled |= self._touched
        self._touched = set()

    def _go_on(self, block: Block) -> list[Group]:
        """Take the payloads that go on with the cycle of the block before; return the others."""
        if not self._irregular.has_cycle:
            return block.groups
        starts = np.sort(np.concatenate([group.starts for group in block.groups]), kind="stable")
        placed = self._irregular.go_on(block, starts)
        if placed is None:
            return block.groups
        self._add_points(placed)
        last = int(starts[placed[0].size - 1])
        groups = [group.only(group.starts > last) for group in block.groups]
        return [group for group in groups if group.starts.size]

    def _add_points(self, placed: irregular.Placed) -> None:
        positions, points = placed
        self.numbers.add_points(positions, points)
        self._span(points.rows.wall_time)

    def _take_irregular(self, block: Block, groups: list[Group]) -> None:
        """Take the payloads that belong to no batch, in file order."""
        starts = np.concatenate([group.starts for group in groups])
        lengths = np.repeat([group.length for group in groups], [group.starts.size for group in groups])
        order = np.argsort(starts, kind="stable")
        starts, lengths = starts[order], lengths[order]
        alone: Iterable[int] = range(starts.size)
        if irregular.is_worth_it(block.data, starts, lengths):
            decoded = self._irregular.take(block, starts, lengths)
            for placed in decoded.numbers:
                self._add_points(placed)
            for event, outline_ in decoded.others:
                self._take_event(block, int(starts[event]), int(lengths[event]), outline_)
            alone = decoded.alone
        for event in alone:
            start, length = int(starts[event]), int(lengths[event])
            whole = self._outline(block, length, start)
            if whole is not None:
                self._take_event(block, start, length, whole)

    def _outline(self, block: Block, length: int, start: int) -> Outline | None:
        payload = block.data[start : start + length]
        try:
            return self._dialect.outline(payload)
        except CorruptMessage as error:
            self._refused[start] = str(error)
            self._note(block, start, length, str(error))
            return None

    def _note(self, block: Block, start: int, length: int, reason: str) -> None:
        note(self.damage, self._frame(block, start, length, reason))

    def _leave_out(self, block: Block, start: int, length: int, things: str) -> None:
        """Say once that something is left out."""
        if things not in self._left_out:
            self._left_out.add(things)
            self._note(block, start, length, f"from here on {things} are left out")

    def _frame(self, block: Block, start: int, length: int, reason: str = "") -> Damage:
        offset = block.base + start - frame.HEADER.size
        return Damage(self.path, offset, length + frame.OVERHEAD_BYTES, reason, torn=False)

    def _ids_of(self, tags: Collection[str]) -> list[int]:
        """Return the numbers of scalars' tags; -1 for those that are too many for the file."""
        return self.numbers.ids_of(tags, MOST_TAGS - len(self._stored))

    def _span(self, wall_time: NDArray[np.float64]) -> None:
        first, last = float(np.fmin.reduce(wall_time)), float(np.fmax.reduce(wall_time))
        if first < self.first_wall_time:
            self.first_wall_time = first
        if last > self.last_wall_time:
            self.last_wall_time = last

    def _take_batch(self, block: Block, batch: columnar.Batch) -> None:
        group, layout = batch.group, batch.layout
        if not layout.tags:
            return
        rows = Rows(block.base + group.starts, batch.steps(), batch.wall_times())
        self._span(rows.wall_time)
        tags = self._tags_of(layout)
        if sum(of_size.ids.size for of_size in tags) < len(layout.tags):
            self._leave_out(block, int(group.starts[0]), group.length, _TAGS)
        for of_size in tags:
            raw = batch.numbers(of_size.starts, of_size.size)
            if of_size.is_unique:
                self.numbers.add_rows(of_size.ids, rows, raw)
                continue
            row = np.repeat(np.arange(group.starts.size, dtype=np.int32), of_size.ids.size)
            positions = (rows.offset[:, None] + of_size.starts).reshape(-1)
            points = TaggedNumbers(rows, np.tile(of_size.ids, group.starts.size), row, raw.T.reshape(-1))
            self.numbers.add_points(positions, points)

    def _take_wide(self, block: Block, group: Group) -> bool:
        """Take a single payload with the tags of others, as that of step 0 is; return True if it is one."""
        start = int(group.starts[0])
        is_long = group.starts.size == 1 and group.length >= columnar.LONG_BYTES
        payload = block.data[start : start + group.length]
        layout = columnar.Layout.of_wide(payload, self._dialect.plain_key) if is_long else None
        if layout is None or not self.numbers.ids.keys() >= set(layout.tags):
            return False
        if not all(self.numbers.has_rows(of_size.ids, of_size.size) for of_size in self._tags_of(layout)):
            return False
        self._take_batch(block, columnar.Batch(layout, group))
        return True

    def _tags_of(self, layout: columnar.Layout) -> list[_Tags]:
        """Return the tags of a layout by the size of their numbers; tags beyond the file's limit are left out."""
        tags = self._tags.get(layout)
        if tags is None:
            numbers = self._ids_of(layout.tags)
            ids, is_unique = np.array(numbers), len(set(numbers)) == len(numbers)
            tags = []
            for size in set(layout.sizes.tolist()):
                chosen = (layout.sizes == size) & (ids >= 0)
                tags.append(_Tags(size, ids[chosen].astype(np.uint16), layout.starts[chosen], is_unique))
            if len(self._tags) >= _MOST_LAYOUTS:
                self._tags.clear()
            self._tags[layout] = tags
        return tags

    def _take_event(self, block: Block, start: int, length: int, layout: Outline) -> None:
        for problem in layout.problems:
            self._note(block, start, length, problem)
        data = block.data[start : start + length]
        (footer,) = frame.FOOTER.unpack_from(block.data, start + length)
        offset, wall_time = block.base + start, np.array([layout.wall_time])
        payload = Payload(self.path, offset, data, footer)
        for place in layout.places:
            if place.kind == TRACE_KIND:
                continue
            if place.kind in tensorboard_outline.UNREAD_KINDS:
                self.unread[place.kind] += 1
                continue
            content = data[place.start : place.end]
            if place.kind in ("start", "end"):
                self._take_lifecycle(block, start, length, layout.wall_time, place)
                continue
            self._span(wall_time)
            try:
                if place.kind in ("gap", "hparams"):
                    assert place.decode is not None
                    self._add_record(block, start, length, place.decode(content))
                elif place.kind != "scalar":
                    if self._has_room(block, start, length, (place.kind, place.tag), _STORED_BYTES):
                        points = self._stored.setdefault((place.kind, place.tag), FilePoints())
                        points.add(start, layout.step, layout.wall_time, payload.stored(place))
                        self._touched.add(points)
                else:
                    number = _number(content) if place.decode is None else place.decode(content)
                    if self._has_room(block, start, length, (place.kind, place.tag), _NUMBER_BYTES):
                        (id_,) = self._ids_of([place.tag])
                        self.numbers.add_single(
                            id_, offset + place.start, offset, layout.step, layout.wall_time, number
                        )
            except CorruptMessage as error:
                self._note(block, start, length, str(error))

    def _take_lifecycle(self, block: Block, start: int, length: int, wall_time: float, place: Place) -> None:
        """Take the start, which is the file's first event, or the end of its recorder; the last end counts."""
        assert place.decode is not None
        try:
            record = place.decode(block.data[start + place.start : start + place.end])
        except CorruptMessage as error:
            self._note(block, start, length, str(error))
            return
        if isinstance(record, End):
            self.ended = Moment(wall_time, record)
            self._end_bytes = length + frame.OVERHEAD_BYTES
        elif self.begun is None:
            self.begun = Moment(wall_time, record)

    @property
    def content_bytes(self) -> int:
        """Bytes that were read, without the event of the recorder's end."""
        return self.end - self._end_bytes

    def _has_room(self, block: Block, start: int, length: int, key: Key, taken_bytes: int) -> bool:
        """Return True if there is room for a point that takes so much memory; what is left out is reported once."""
        if self._taken_bytes + taken_bytes > self._seen_bytes + _SPARE_BYTES:
            self._leave_out(block, start, length, "values that would take more memory than the file has bytes")
            return False
        if len(self._stored) + len(self.numbers.ids) >= MOST_TAGS and self.part(key) is None:
            self._leave_out(block, start, length, _TAGS)
            return False
        self._taken_bytes += taken_bytes
        return True

    def _add_record(self, block: Block, start: int, length: int, record: Gap | Lineage | dict[str, Any]) -> None:
        """Take what the file says of its run; of too much of it what came first."""
        count = len(self.gaps) if isinstance(record, Gap) else len(self.lineage)
        if count >= MOST_RECORDS:
            self._leave_out(block, start, length, f"more than {MOST_RECORDS} gaps or events of lineage")
        elif isinstance(record, Gap):
            self.gaps.append(record)
        else:
            self.lineage.append(LineageRecord(self._frame(block, start, length), record))

    def _take_lineage(self, block: Block) -> None:
        frames = [(start, group.length) for group in block.groups for start in group.starts.tolist()]
        for start, length in sorted(frames):
            try:
                _, record = lineage.decode_event(block.data[start : start + length])
            except CorruptMessage as error:
                self._note(block, start, length, str(error))
                continue
            if record is not None:
                self._drop_earlier(record.what)
                self._add_record(block, start, length, record)

    def _drop_earlier(self, kind: str) -> None:
        """Drop the older half of a kind of lineage whose last event counts, if there are too many."""
        if len(self.lineage) >= MOST_RECORDS and kind != "custom_lineage_data":
            same = [
                record for record in self.lineage if isinstance(record.content, Lineage) and record.content.what == kind
            ]
            gone = {id(record) for record in same[: len(same) // 2]}
            self.lineage = [record for record in self.lineage if id(record) not in gone]


def _number(content: memoryview) -> float:
    return float(np.frombuffer(content, f"<f{len(content)}")[0])


#: The runs of a tree mostly record the same.
_MINDSPORE_LAYOUTS, _TENSORBOARD_LAYOUTS = columnar.LayoutCache(), columnar.LayoutCache()
_MINDSPORE = columnar.Dialect(
    outline.mindspore, outline.take_value, frozenset(outline.OWN), outline.PLAIN_KEY,
    _MINDSPORE_LAYOUTS, _MINDSPORE_LAYOUTS,
)  # fmt: skip


def _tensorboard(plugins: tensorboard_outline.Plugins) -> columnar.Dialect:
    """Return the dialect of one file: the first value of a tag says what its values mean."""
    return columnar.Dialect(
        functools.partial(tensorboard_outline.outline, plugins=plugins),
        lambda layout, *span: tensorboard_outline.take_value(layout, plugins, *span),
        tensorboard_outline.OWN, tensorboard_outline.PLAIN_KEY, columnar.LayoutCache(), _TENSORBOARD_LAYOUTS,
    )  # fmt: skip
