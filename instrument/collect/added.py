"""What is added to a recorder between two calls of `record`."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.ringfile.record import StagedArray
from instrument.values import Item
from instrument.write.limits import is_too_large
from instrument.write.sink import Sink

#: Arrays from this size on are copied to where the next `record` will need them.
_STAGED_BYTES = 32 << 10
#: Copies from this size on have memory of their own, which the system gets back at once.
_PRIVATE_BYTES = 1 << 20


class Added:
    """The last value of each kind and tag. Not for several threads at a time: whoever calls holds a lock."""

    def __init__(self, sink: Sink) -> None:
        self.scalars: dict[str, float] = {}
        self._items: dict[tuple[str, str], Item] = {}
        self._sink = sink
        self._has_staged = False

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
        if array.nbytes >= _STAGED_BYTES:
            if may_stage:
                payload = self._sink.stage(array)
            if payload is not None:
                self._has_staged = True
            elif is_too_large(Item(kind, tag, array, dtype)):
                payload = array  # what `record` will refuse need not be copied
        if payload is None:
            payload = np.array(array) if array.nbytes < _PRIVATE_BYTES else _private_copy(array)
        return self.add(Item(kind, tag, payload, dtype))

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
        """Copy what is staged: another event is written first."""
        if self._has_staged:
            for key, item in list(self._items.items()):
                if isinstance(item.payload, StagedArray):
                    self._items[key] = item._replace(payload=item.payload.copy())
            self._has_staged = False


def _private_copy(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a copy in memory that is given back to the system when the copy is no longer used."""
    memory = mmap.mmap(-1, array.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages
    copy: NDArray[np.generic] = np.ndarray(array.shape, array.dtype, memory)
    np.copyto(copy, array)
    return copy
