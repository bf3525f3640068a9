"""What is added to a recorder between two calls of `record`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.values import Item
from instrument.write.ahead import Ticket
from instrument.write.limits import is_too_large
from instrument.write.message import Staged
from instrument.write.sink import Sink

#: Arrays from this size on are copied to where the next `record` will need them.
_STAGED_BYTES = 32 << 10


class Added:
    """The last value of each kind and tag. Not for several threads at a time: whoever calls holds a lock."""

    def __init__(self, sink: Sink) -> None:
        self.scalars: dict[str, float] = {}
        self._items: dict[tuple[str, str], Item] = {}
        self._sink = sink
        self._has_staged = False

    @property
    def _ahead(self) -> tuple[str, str] | None:
        """What was written already, of which there is one at a time."""
        for key, item in self._items.items():
            payload: Any = item.payload
            if isinstance(payload, Ticket):
                return key
        return None

    def add(self, item: Item) -> bool:
        """Keep an item; whether it is the second of its kind and tag, which replaces the first."""
        kind, tag, payload, _ = item
        if kind == "scalar":
            is_second = tag in self.scalars
            self.scalars[str.__str__(tag)] = payload  # type: ignore[assignment]
        else:
            is_second = self._items.pop((kind, tag), None) is not None
            self._items[kind, tag] = item
        return is_second

    def add_copy(self, kind: str, tag: str, array: NDArray[np.generic], dtype: str, may_stage: bool) -> bool:
        """`add` an array that is the caller's; `may_stage` says that nobody can record before this returns."""
        payload: Any = None
        is_second = False
        if array.nbytes >= _STAGED_BYTES:
            if may_stage:
                payload = self._sink.stage(array)
            if payload is not None:
                self._has_staged = True
            elif is_too_large(item := Item(kind, tag, array, dtype)):
                payload = array  # what `record` will refuse need not be copied
            elif may_stage and kind == "tensor" and (ahead := self._ahead) in (None, (kind, tag)):
                is_second = ahead is not None
                if is_second:  # its place is written over now, whether or not an interrupt comes meanwhile
                    del self._items[kind, tag]
                payload = self._sink.ahead(item, self._copy_staged)
        if payload is None:
            payload = np.array(array)
        return self.add(Item(kind, tag, payload, dtype)) or is_second

    def keys(self) -> list[tuple[str, str]]:
        """Return kind and tag of all that was added since the last call of `take`."""
        return [*(("scalar", tag) for tag in self.scalars), *self._items]

    def clear(self) -> None:
        """Forget all of it."""
        self.scalars, self._items, self._has_staged = {}, {}, False

    def take(self, plugin_filter: Callable[[str], bool] | None = None) -> tuple[dict[str, float], list[Item]]:
        """Scalars and other items since the last call; arrays are valid until the next event is written.

        Kinds that the filter refuses are dropped.
        """
        scalars, self.scalars = self.scalars, {}
        items, self._items = self._items, {}
        self._has_staged = False
        found = list(items.values()) if items else []
        if plugin_filter is not None:
            found = [item for item in found if plugin_filter(item.kind)]
            scalars = scalars if scalars and plugin_filter("scalar") else {}
        return scalars, found

    def keep(self) -> None:
        """Another event is written first: copy what would not survive that."""
        self._copy_staged()
        if (key := self._ahead) is not None:
            item = self._items[key]
            ticket: Any = item.payload
            array = self._sink.fetch(ticket)
            if array is not None:  # else its record will be told
                self._items[key] = item._replace(payload=array)

    def _copy_staged(self) -> None:
        if self._has_staged:
            for key, item in list(self._items.items()):
                if isinstance(item.payload, Staged):
                    self._items[key] = item._replace(payload=item.payload.copy())
            self._has_staged = False
