"""Read the numbers of events that share no layout with enough others, all events of a block at once.

A value that is no plain number with a known tag (a histogram between scalars, the first number of a tag in a new form)
is left for the dialect's own outline, value by value. So are events that hold more than a summary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec import wire
from instrument.codec.outline import Outline
from instrument.errors import CorruptMessage
from instrument.eventfile.blocks import Block, Group
from instrument.runs import cycles, scan
from instrument.runs.columnar import Dialect
from instrument.runs.cycles import Cycle, Events, Repeated
from instrument.runs.numbers import Rows, TaggedNumbers
from instrument.runs.scan import Values
from instrument.runs.templates import PADDING, SIZES, Templates

Indices = NDArray[np.int64]
#: From this many events on it pays to take them together, however few values each has.
_MANY_EVENTS = 32
#: Events that are read before the next ones are compared with them, and how often that may fail.
_FIRST_EVENTS, _MOST_FAILURES = 1200, 8
#: An event of this size may have many values by itself.
_LONG_BYTES = 1024


#: Numbers, and their positions in the file.
Placed = tuple[Indices, TaggedNumbers]


class Decoded(NamedTuple):
    """Decoded events: numbers with their positions, values to be taken one by one, events to be read alone."""

    numbers: list[Placed]
    others: list[tuple[int, Outline]]
    alone: list[int]


def is_cheaper(batches: list[Group], left: list[Group]) -> bool:
    """Return True if most events belong to no batch: the batches are read with them then, as they may be one cycle."""
    count = sum(group.starts.size for group in left)
    return count >= _MANY_EVENTS and count > sum(group.starts.size for group in batches)


def is_worth_it(data: memoryview, starts: Indices, lengths: Indices) -> bool:
    """Return True where payloads are better taken together than one by one."""
    if starts.size >= _MANY_EVENTS:
        return True
    places = zip(starts.tolist(), lengths.tolist(), strict=True)
    return any(_is_wide(data[start : start + length]) for start, length in places)


def _is_wide(payload: memoryview) -> bool:
    """Return True for a payload that is long, by its values and not by their sizes."""
    if len(payload) < _LONG_BYTES:
        return False
    try:
        for number, wire_type, start, end in wire.spans(payload, 0, len(payload)):
            if number == 5 and wire_type == wire.LENGTH_DELIMITED:
                _, _, _, following = next(wire.spans(payload, start, end), (0, 0, 0, end))
                return following - start <= PADDING and following < end
    except CorruptMessage:
        pass
    return False


class Irregular:
    """Takes numbers out of the events of one file; it remembers what values look like."""

    def __init__(self, dialect: Dialect, ids_of: Callable[[list[str]], list[int]]) -> None:
        self._dialect = dialect
        #: The numbers of tags; -1 for those that are too many for the file.
        self._ids_of = ids_of
        self._templates: list[Templates] = []
        #: After how many events they come round; 0 where that is not known yet, -1 where they do not.
        self._period = 0
        self._failures = 0
        #: What the next event is expected to go on with.
        self._cycle: Cycle | None = None

    @property
    def has_cycle(self) -> bool:
        """True where the block before ended in events that came round."""
        return self._cycle is not None

    def go_on(self, block: Block, starts: Indices) -> Placed | None:
        """Read the payloads at `starts`, those of a whole block, as far as they go on with the block before."""
        if self._cycle is None:
            return None
        data = np.frombuffer(block.data, np.uint8)
        repeated = self._cycle.repeated(data, starts)
        if repeated is None:
            self._cycle = None
            return None
        return _placed(data, block.base, starts, repeated)

    def take(self, block: Block, starts: Indices, lengths: Indices) -> Decoded:
        """Read the payloads at `starts` of the block's data, which ascend."""
        self._templates = self._templates or [Templates(size) for size in SIZES]
        data = np.concatenate([np.frombuffer(block.data, np.uint8), np.zeros(PADDING, np.uint8)])
        decoded, done, wanted = Decoded([], [], []), 0, (self._period or _FIRST_EVENTS) + 1
        self._cycle = None
        while done < starts.size:
            if self._period < 0 or starts.size - done < 2 * wanted:
                wanted = starts.size - done
            part = slice(done, done + wanted)
            read = self._read(decoded, data, block.base, done, starts[part], lengths[part])
            done, wanted = done + wanted, 2 * wanted
            self._cycle = None
            if done < starts.size:
                events = self._events(starts[part], lengths[part], *read)
                done += self._repeat(decoded, data, block.base, events, starts[done:])
        return decoded

    def _repeat(self, decoded: Decoded, data: NDArray[np.uint8], base: int, events: Events, starts: Indices) -> int:
        """Take the events at `starts` as far as they repeat the last ones before them; return how many these are."""
        for period in cycles.period(events.template):
            cycle = Cycle.of(data, cycles.last(events, period))
            repeated = cycle.repeated(data, starts) if cycle is not None else None
            if repeated is not None and repeated.step.size >= period:
                self._period, self._cycle = period, cycle
                decoded.numbers.append(_placed(data, base, starts, repeated))
                return int(repeated.step.size)
        self._failures += 1
        if self._failures == _MOST_FAILURES:
            self._period = -1
        return 0

    def _read(
        self, decoded: Decoded, data: NDArray[np.uint8], base: int, first: int, starts: Indices, lengths: Indices
    ) -> tuple[scan.Heads, Values, Indices, Indices]:
        """Read events value by value, of which the first has the index `first`.

        Return their heads, and the values with their templates and the sizes of these.
        """
        heads = scan.heads(data, starts, starts + lengths, self._dialect.own)
        values, is_plain = scan.values(data, heads)
        values = values.only(is_plain[values.event])
        template, size_class = self._matched(data, values)
        decoded.alone.extend((np.flatnonzero(~is_plain) + first).tolist())
        others = self._others(data.data, starts, lengths, heads, values.only(template < 0))
        decoded.others.extend((event + first, outline) for event, outline in others)
        is_known = template >= 0
        if is_known.any():
            numbers, facts = values.only(is_known), self._facts(template[is_known], size_class[is_known])
            positions = numbers.start + facts[:, 1]
            has_values = np.zeros(starts.size, np.bool_)
            has_values[numbers.event] = True
            rows = Rows(base + starts, heads.step, heads.wall_time).only(has_values)
            row = (np.cumsum(has_values) - 1)[numbers.event].astype(np.int32)
            points = TaggedNumbers(rows, facts[:, 3].astype(np.uint16), row, _numbers(data, positions, facts[:, 2]))
            decoded.numbers.append((base + positions, points))
        return heads, values, template, size_class

    def _facts(self, template: Indices, size_class: Indices) -> NDArray[np.int32]:
        """Return the facts of templates, a line for each."""
        facts = np.empty((template.size, 4), np.int32)
        for index, templates in enumerate(self._templates):
            of_class = size_class == index
            facts[of_class] = templates.facts[template[of_class]]
        return facts

    def _events(
        self,
        starts: Indices,
        lengths: Indices,
        heads: scan.Heads,
        values: Values,
        template: Indices,
        size_class: Indices,
    ) -> Events:
        """Return events for those that may repeat them; only the ones with a single number have a template there."""
        counts = np.bincount(values.event, minlength=starts.size)
        single = np.flatnonzero((template >= 0) & (counts[values.event] == 1))
        events, template, size_class = values.event[single], template[single], size_class[single]
        facts = np.zeros((starts.size, 4), np.int64)
        facts[events] = self._facts(template, size_class)
        all_templates, value = np.full((2, starts.size), -1, np.int64)
        all_templates[events] = template * len(SIZES) + size_class
        value[events] = values.start[single]
        mask = np.zeros((starts.size, PADDING), np.uint8)
        for index, templates in enumerate(self._templates):
            of_class = size_class == index
            mask[events[of_class], : templates.size_bytes] = templates.masks(template[of_class])
        _, at, size, tag = facts.T
        return Events(all_templates, starts, starts + lengths, heads.step_end, value, at, size, tag, mask)

    def _matched(self, data: NDArray[np.uint8], values: Values) -> tuple[Indices, Indices]:
        """Return the template of each value, -1 where there is none, and the size of the template."""
        size_class = np.searchsorted(SIZES, values.end - values.start)
        template = np.full(size_class.size, -1, np.int64)
        hashes = np.zeros(size_class.size, np.uint64)
        is_new = np.zeros(size_class.size, np.bool_)
        for index, templates in enumerate(self._templates):
            of_class = np.flatnonzero(size_class == index)
            if of_class.size:
                matched, hashes_found = templates.match(data, values.start[of_class], values.end[of_class])
                template[of_class], hashes[of_class] = matched, hashes_found
                is_new[of_class] = (matched < 0) & (hashes_found != 0) & ~templates.is_known(hashes_found)
        new = np.flatnonzero(is_new)
        if new.size:
            _, first = np.unique(hashes[new], return_index=True)
            self._learn(data, values, hashes, size_class, new[np.sort(first)])
            for index, templates in enumerate(self._templates):
                again = new[size_class[new] == index]
                if again.size:
                    template[again], _ = templates.match(data, values.start[again], values.end[again])
        return template, size_class

    def _learn(
        self, data: NDArray[np.uint8], values: Values, hashes: NDArray[np.uint64], size_class: Indices, new: Indices
    ) -> None:
        """Make templates of those values that are plain numbers, in file order."""
        start, length = values.start[new], values.end[new] - values.start[new]
        number_at, size = scan.plain(data, start, length, self._dialect.plain_key)
        facts = np.stack([length, number_at, size, np.full(new.size, -1)], axis=1).astype(np.int32)
        varying = np.zeros((new.size, 2, 2), np.int64)
        single_end = np.where(size == 8, number_at - len(scan.EXACT_KEY), number_at + size)
        varying[:, 0, 0], varying[:, 0, 1] = number_at, number_at + size
        varying[:, 1, 0], varying[:, 1, 1] = single_end - np.minimum(size, 4), single_end
        view = data.data
        tags: dict[int, str] = {}
        for index, (at, size_bytes, number_size) in enumerate(
            zip(start.tolist(), length.tolist(), size.tolist(), strict=True)
        ):
            if number_size:
                tags[index] = str(view[at + 2 : at + 2 + view[at + 1]], "utf-8", "surrogateescape")
            else:
                outline = Outline()
                try:
                    self._dialect.take_value(outline, view[at : at + size_bytes], 0, size_bytes)
                except CorruptMessage:
                    continue
                if not outline.is_regular or len(outline.places) != 1 or len(outline.varying) > 2:
                    continue
                (place,) = outline.places
                tags[index], facts[index, 1], facts[index, 2] = place.tag, place.start, place.end - place.start
                varying[index] = (outline.varying * 2)[:2]
        facts[[*tags], 3] = self._ids_of([*tags.values()])
        for index, templates in enumerate(self._templates):
            chosen = (size_class[new] == index) & (facts[:, 3] >= 0)
            if chosen.any():
                templates.learn(data, start[chosen], hashes[new[chosen]], facts[chosen], varying[chosen])

    def _others(
        self, data: memoryview, starts: Indices, lengths: Indices, heads: scan.Heads, values: Values
    ) -> list[tuple[int, Outline]]:
        """Outline values one by one; return them by the index of their event."""
        result: list[tuple[int, Outline]] = []
        for event, start, end in zip(*(column.tolist() for column in values), strict=True):
            if not result or result[-1][0] != event:
                result.append((event, Outline(int(heads.step[event]), float(heads.wall_time[event]))))
            outline, begin = result[-1][1], int(starts[event])
            try:
                payload = data[begin : begin + int(lengths[event])]
                self._dialect.take_value(outline, payload, start - begin, end - begin)
            except CorruptMessage as error:
                outline.problem(error)
        return result


def _placed(data: NDArray[np.uint8], base: int, starts: Indices, repeated: Repeated) -> Placed:
    """Return what was read of the first payloads at `starts`."""
    step, wall_time, ids, position, size = repeated
    rows = Rows(base + starts[: step.size], step, wall_time)
    row = np.arange(step.size, dtype=np.int32)
    return base + position, TaggedNumbers(rows, ids.astype(np.uint16), row, _numbers(data, position, size))


def _numbers(data: NDArray[np.uint8], positions: Indices, sizes: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers of four or eight bytes at these places, as float32 where all are."""
    singles: NDArray[np.float32] = np.ndarray((data.size - 3,), "<f4", data, 0, (1,))
    is_single = sizes == 4
    if is_single.all():
        return singles[positions]
    doubles: NDArray[np.float64] = np.ndarray((data.size - 7,), "<f8", data, 0, (1,))
    return np.where(is_single, singles[positions], doubles[positions])
