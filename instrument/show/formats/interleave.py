"""Interleave series into one sequence of events: points of the same step and moment together, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.values import Event, Item, MessageItem, SummaryValue, ValueItem

_ROWS = 65536
#: A number for scalars, a serialised message for graphs.
PointValue = float | SummaryValue | bytes


class Column(NamedTuple):
    """The points of a series; `value` gives that at an index, None for one that cannot be had."""

    kind: str
    tag: str
    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]
    value: Callable[[int], PointValue | None]


def events(columns: Sequence[Column]) -> Iterator[Event]:
    """Yield all points as events, by step and then by time; what is equal in both keeps the order of the columns."""
    if not columns:
        return
    step = np.concatenate([column.step for column in columns])
    wall_time = np.concatenate([column.wall_time for column in columns])
    lengths = [len(column.step) for column in columns]
    which = np.repeat(np.arange(len(columns)), lengths)
    index = np.concatenate([np.arange(length) for length in lengths])
    order = np.lexsort((wall_time, step))
    group = _Group()
    for start in range(0, order.size, _ROWS):
        part = order[start : start + _ROWS]
        rows = (array[part].tolist() for array in (step, wall_time, which, index))
        for at, moment, number, position in zip(*rows, strict=True):
            column = columns[number]
            if not group.takes(at, moment, column):
                yield from group.event()
                group = _Group(at, moment)
            value = column.value(position)
            if value is not None:
                group.add(column, value)
    yield from group.event()


class _Group:
    """Points that become one event."""

    def __init__(self, step: int = 0, wall_time: float = 0.0) -> None:
        self._step, self._wall_time = step, wall_time
        self._scalars: dict[str, float] = {}
        self._items: dict[tuple[str, str], Item] = {}

    def takes(self, step: int, wall_time: float, column: Column) -> bool:
        """Return True if a point belongs to it: one of the same moment whose series it does not have yet.

        A value that is no number is an event of its own, so that no more than one is in memory.
        """
        if self._items or (column.kind != "scalar" and self._scalars):
            return False
        same = step == self._step and (wall_time == self._wall_time or wall_time != wall_time)
        return same and column.tag not in self._scalars

    def add(self, column: Column, value: PointValue) -> None:
        if isinstance(value, float):
            self._scalars[column.tag] = value
        elif isinstance(value, bytes):
            self._items[column.kind, column.tag] = MessageItem(column.kind, column.tag, value)
        else:
            self._items[column.kind, column.tag] = ValueItem(column.kind, column.tag, value)

    def event(self) -> Iterator[Event]:
        if self._scalars or self._items:
            yield Event(self._step, self._wall_time, list(self._items.values()), self._scalars)
