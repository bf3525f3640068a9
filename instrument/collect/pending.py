"""Hold the values that were added to a recorder since its last `record`, and warn of those that it cannot take."""

from __future__ import annotations

import logging
import math
import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from instrument.codec import event as event_codec
from instrument.errors import RecordingError
from instrument.values import AnyItem, ArrayItem, Item, ScalarItem, StagedItem
from instrument.wording import listed
from instrument.write.limits import is_too_large, item_bound_bytes
from instrument.write.sink import Sink

log = logging.getLogger("instrument")

#: Tags that a warning names.
_MOST_NAMED = 5
#: Arrays from this size on are copied to where the next `record` will need them.
_STAGED_BYTES = 32 << 10
#: Copies from this size on have memory of their own, which the system gets back at once.
_PRIVATE_BYTES = 1 << 20


class Pending:
    """The last value of each kind and tag. Not for several threads at a time: the caller holds a lock."""

    def __init__(self, sink: Sink) -> None:
        self.scalars: dict[str, float] = {}
        self._items: dict[tuple[str, str], Item] = {}
        self._sink = sink
        self._has_staged = False

    def add(self, item: AnyItem) -> bool:
        """Keep an item; return True if it replaces one of the same kind and tag."""
        if isinstance(item, ScalarItem):
            is_second = item.tag in self.scalars
            self.scalars[str.__str__(item.tag)] = item.value
        else:
            key = item.kind, item.tag
            is_second = self._items.pop(key, None) is not None
            self._items[key] = item
        return is_second

    def add_copy(self, kind: str, tag: str, array: NDArray[np.generic], dtype: str, may_stage: bool) -> bool:
        """Add a copy of an array; `may_stage` says that nobody can record before this returns."""
        if array.nbytes >= _STAGED_BYTES:
            staged = self._sink.stage(array) if may_stage else None
            if staged is not None:
                self._has_staged = True
                return self.add(StagedItem(kind, tag, staged, dtype))
            item = ArrayItem(kind, tag, array, dtype)
            if is_too_large(item):
                return self.add(item)  # what `record` will refuse need not be copied
        copy = np.array(array) if array.nbytes < _PRIVATE_BYTES else _private_copy(array)
        return self.add(ArrayItem(kind, tag, copy, dtype))

    def keys(self) -> list[tuple[str, str]]:
        """Return kind and tag of all that was added since the last call of `take`."""
        return [*(("scalar", tag) for tag in self.scalars), *self._items]

    def clear(self) -> None:
        """Forget all of it."""
        self.scalars, self._items, self._has_staged = {}, {}, False

    def take(self, plugin_filter: Callable[[str], bool] | None = None) -> tuple[dict[str, float], list[Item]]:
        """Return scalars and other items since the last call; arrays are valid until the next event is written.

        Kinds that the filter refuses are dropped.
        """
        scalars, self.scalars = self.scalars, {}
        items, self._items = self._items, {}
        self._has_staged = False
        taken = list(items.values()) if items else []
        if plugin_filter is not None:
            taken = [item for item in taken if plugin_filter(item.kind)]
            scalars = scalars if scalars and plugin_filter("scalar") else {}
        return scalars, taken

    def keep(self) -> None:
        """Copy what is staged, since another event is written first."""
        if self._has_staged:
            for key, item in list(self._items.items()):
                if isinstance(item, StagedItem):
                    self._items[key] = item.copy()
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


# ---------------------------------------------------------------- warnings


class ValueWarnings:
    """Log each warning once; with `raises`, raise `RecordingError` for what is not recorded."""

    def __init__(self, raises: bool) -> None:
        self._raises = raises
        self._logged: set[object] = set()

    def warn_once(self, cause: object, message: str, *arguments: object) -> None:
        """Log a warning, unless there was one for this cause."""
        if cause not in self._logged:
            self._logged.add(cause)
            log.warning(message, *arguments)

    def warn_of_second(self, kind: str, tag: str) -> None:
        text = "The %s %r was added twice before a record(); the last one is kept."
        self.warn_once(("twice", kind, tag), text, kind, tag)

    def warn_of_nonfinite(self, step: int, scalars: Mapping[str, float]) -> None:
        """Warn of scalars that are NaN or an infinity."""
        for tag, number in scalars.items():
            if not math.isfinite(number):
                text = "The scalar %r is %s at step %d. It is recorded as it is; this is logged once."
                self.warn_once(("finite", tag), text, tag, number, step)

    def refuse_large(self, step: int, items: Iterable[Item]) -> None:
        """Raise `RecordingError`, or warn, for items that no reader would take."""
        for item in items:
            message = (
                f"The {item.kind} {item.tag!r} of step {step} takes {item_bound_bytes(item)} bytes in a file, more "
                f"than the {event_codec.MAX_PAYLOAD_BYTES} that its readers accept: it is not recorded, everything "
                "else of the step is. Record a part of it, or its histogram."
            )
            if self._raises:
                raise RecordingError(message)
            self.warn_once(("large", item.kind, item.tag), "%s", message)

    def refuse_use(self, path: str, is_fork: bool) -> None:
        """Raise `RecordingError`, or warn, for a recorder that is closed or another process's."""
        if is_fork:
            message = f"{path} was opened by the process that forked this one, which cannot write to it. Open one here."
        else:
            message = f"{path} is closed: nothing more is recorded there."
        if self._raises:
            raise RecordingError(message)
        self.warn_once("use", "%s", message)


def warn_of_unrecorded(path: str, keys: Sequence[tuple[str, str]]) -> None:
    """Warn of values that were added, and that no `record` followed."""
    if keys:
        named = listed([f"{kind} {tag!r}" for kind, tag in keys], _MOST_NAMED)
        log.warning("Not in %s: %s, added after the last record(). Call record(step) before close().", path, named)
