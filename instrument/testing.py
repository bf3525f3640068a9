"""For the tests of code that records: keep what recorders are given in memory, where a test can look at it.

    from instrument.testing import capture_records

    def test_the_loss_falls(tmp_path):
        with capture_records() as records:
            train(tmp_path)
        losses = records.scalars("loss/auto")
        assert losses.step == [1, 2, 3]
        assert losses.value[-1] < losses.value[0]

Recorders write through a `Sink`. Inside the block they get one that keeps events, hence neither a file nor a worker
process is made, and everything before the sink (conversion, checks, the collector's schedule) is what a training runs.
Encoding is left out: values are what was handed over, not what a file makes of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec import landscape as landscape_codec
from instrument.codec import lineage as lineage_codec
from instrument.codec import text as text_codec
from instrument.collect import options
from instrument.errors import NoSuchRun
from instrument.ringfile.commit import Diagnostic
from instrument.values import (
    KINDS,
    LINEAGE_KINDS,
    ArrayItem,
    Event,
    Graph,
    Landscape,
    Lineage,
    MessageItem,
    StagedArray,
)
from instrument.wording import closest
from instrument.write.sink import Stats

__all__ = ["CapturedPoints", "CapturedRecord", "CapturedRecords", "capture_records"]


class CapturedPoints(NamedTuple):
    """The values of one tag, in the order in which they were recorded."""

    step: list[int]
    value: list[Any]


class CapturedRecord(NamedTuple):
    """One value; `wall_time` is in seconds since the epoch (UTC)."""

    step: int
    wall_time: float
    kind: str
    tag: str
    value: Any


class CapturedRecords:
    """What was recorded in a block of `capture_records`; may be asked at any time, from any thread.

    Values are a float for a scalar; a NumPy array for a tensor, a histogram and an image (N, C, H, W), as it was
    recorded; a text or an array of texts; a dictionary for lineage; `instrument.values.Graph` and `LossSurface`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: list[CapturedRecord] = []

    def __iter__(self) -> Iterator[CapturedRecord]:
        """Iterate over all records so far in their order; each has `step`, `wall_time`, `kind`, `tag` and `value`."""
        with self._lock:
            records = list(self._records)
        return map(_with_value, records)

    def __len__(self) -> int:
        """Return how many values were recorded."""
        return len(self._records)

    def __repr__(self) -> str:
        tags = "; ".join(f"{kind}: {', '.join(tags)}" for kind, tags in self.tags().items())
        return f"CapturedRecords({len(self)} values; {tags})" if tags else "CapturedRecords(nothing was recorded)"

    def tags(self) -> dict[str, list[str]]:
        """Return the tags of each kind, in the order in which they came."""
        with self._lock:
            seen = dict.fromkeys((record.kind, record.tag) for record in self._records)
        return {kind: [tag for other, tag in seen if other == kind] for kind in dict.fromkeys(kind for kind, _ in seen)}

    def steps(self) -> list[int]:
        """Return the steps at which anything was recorded, ascending."""
        with self._lock:
            return sorted({record.step for record in self._records})

    def points(self, kind: str, tag: str) -> CapturedPoints:
        """Return steps and values of one tag.

        Args:
            kind: a plugin of `SummaryRecord.add_value`.
            tag: its name; that of a graph or of lineage may be empty.

        Raises:
            NoSuchRun: nothing was recorded under this kind and tag; the message names the nearest one.
        """
        with self._lock:
            records = [record for record in self._records if (record.kind, record.tag) == (kind, tag)]
        if not records:
            tags = self.tags().get(kind, [])
            nearest = closest(tag, tags, 5) or tags[:5] or ["nothing"]
            raise NoSuchRun(f"no {kind} {tag!r} was recorded in this block; of this kind there is {', '.join(nearest)}")
        return CapturedPoints([record.step for record in records], [_with_value(record).value for record in records])

    def scalars(self, tag: str) -> CapturedPoints:
        """Return steps and values of a scalar, as floats. Raises `NoSuchRun` where there is none."""
        return self.points("scalar", tag)

    def tensors(self, tag: str) -> CapturedPoints:
        """Return steps and arrays of a tensor. Raises `NoSuchRun` where there is none."""
        return self.points("tensor", tag)

    def histograms(self, tag: str) -> CapturedPoints:
        """Return steps and arrays of a histogram: its values. Raises `NoSuchRun` where there is none."""
        return self.points("histogram", tag)

    def images(self, tag: str) -> CapturedPoints:
        """Return steps and arrays, (N, C, H, W), of an image. Raises `NoSuchRun` where there is none."""
        return self.points("image", tag)

    def texts(self, tag: str) -> CapturedPoints:
        """Return steps and values of a text: a str, or an array of them. Raises `NoSuchRun` where there is none."""
        return self.points("text", tag)

    def _take(self, event: Event) -> None:
        records = [
            CapturedRecord(event.step, event.wall_time, "scalar", tag, number) for tag, number in event.scalars.items()
        ]
        for item in event.items:
            if isinstance(item, (ArrayItem, MessageItem)) and item.kind in KINDS:
                # Arrays are the caller's, and valid during this call only.
                content = np.array(item.array) if isinstance(item, ArrayItem) else item.data
                records.append(CapturedRecord(event.step, event.wall_time, item.kind, item.tag, content))
        with self._lock:
            self._records += records


@contextmanager
def capture_records() -> Iterator[CapturedRecords]:
    """Keep in memory what is recorded inside the block, and write no file.

    This holds for every `SummaryRecord` that is made inside the block, in any thread of this process, and for every
    `SummaryCollector` whose training or evaluation begins there, summary operators included. No worker process is
    started; no directory is made unless the collector was made before the block; weights for landscapes are not kept.
    A recorder's `log_dir` is no path. Exceptions leave the block as they are.

    Blocks may be nested, or be entered by several threads: a recorder belongs to the block that was entered last when
    it was made, until the recorder is closed.

    Yields:
        What was recorded so far; it may be asked inside the block and after it.
    """
    records = CapturedRecords()

    def open_sink() -> _MemorySink:
        return _MemorySink(records._take)

    options.substitutes.append(open_sink)
    try:
        yield records
    finally:
        options.substitutes.remove(open_sink)


class _MemorySink:
    """A `Sink` that hands each event to the captures."""

    #: In messages, where the path of a file would be.
    path = "(in memory)"

    def __init__(self, take: Callable[[Event], None]) -> None:
        self._take = take
        self._lock = threading.RLock()
        self._events = self._dropped = 0
        self._is_closed = False

    @property
    def stats(self) -> Stats:
        return Stats(self._events, 0, 0, 0.0, self._dropped, 0, 0)

    def write(self, event: Event, emit: bool = True) -> bool:
        with self._lock:
            if self._is_closed:
                self._dropped += 1
                return False
            self._take(event)
            self._events += 1
        return True

    def emit(self) -> None:
        """Do nothing: there is nothing to log."""

    def stage(self, array: NDArray[np.generic]) -> StagedArray | None:
        return None

    def flush(self, sync: bool = False) -> None:
        """Do nothing: what was written is there."""

    def close(self) -> None:
        self._is_closed = True

    def take_error(self) -> Diagnostic | None:
        return None


def _with_value(record: CapturedRecord) -> CapturedRecord:
    """Return the record with its value as a user knows it; a recorder has messages as bytes."""
    kind, value = record.kind, record.value
    if isinstance(value, np.ndarray):
        value = value.copy()
    elif kind == "text":
        array = text_codec.decode(memoryview(value)).array
        value = array if array.ndim else str(array[()])
    elif kind == "graph":
        value = Graph(value)
    elif kind == "landscape":
        value = landscape_codec.to_surface(Landscape(value), record.tag)
    elif kind in LINEAGE_KINDS:
        value = lineage_codec.to_dict(Lineage(kind, value))
    return record._replace(value=value)
