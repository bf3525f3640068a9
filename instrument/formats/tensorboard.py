"""TensorBoard: `events.out.tfevents...0` has the scalars, `...1` all else; of several writers each has a folder.

Hyper-parameters and metrics come from the lineage, all of which is there as text too. A tag that several kinds have is
that of the first of them, and `TAG/KIND` for the others: TensorBoard shows one kind a tag.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec import lineage, wire
from instrument.codec import tensorboard as tb
from instrument.codec import tensorboard_event as codec
from instrument.errors import CorruptMessage
from instrument.eventfile import frame
from instrument.eventfile.names import Writer
from instrument.formats.job import Job, Written, safe_name
from instrument.runs.points import Points, Scalars
from instrument.values import Event, Graph, Item, MessageItem, SummaryValue, ValueItem

_KINDS = ("scalar", "histogram", "image", "tensor", "text")
#: Rows of all series that are lists of Python at a time.
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
    """Yield all points as events, by step and then by time; what is equal in both keeps the order of the columns.

    Scalars of one moment share an event. A value that is no number is an event of its own, so that no more than one is
    in memory.
    """
    if not columns:
        return
    step = np.concatenate([column.step for column in columns])
    wall_time = np.concatenate([column.wall_time for column in columns])
    lengths = [len(column.step) for column in columns]
    which = np.repeat(np.arange(len(columns)), lengths)
    index = np.concatenate([np.arange(length) for length in lengths])
    order = np.lexsort((wall_time, step))
    last_step, last_time, scalars, items = 0, 0.0, dict[str, float](), list[Item]()
    for start in range(0, order.size, _ROWS):
        part = order[start : start + _ROWS]
        rows = (array[part].tolist() for array in (step, wall_time, which, index))
        for at, moment, number, position in zip(*rows, strict=True):
            column = columns[number]
            is_same = at == last_step and (moment == last_time or moment != moment)
            has_room = not items and (column.kind == "scalar" or not scalars)
            if not (is_same and has_room and column.tag not in scalars):
                if scalars or items:
                    yield Event(last_step, last_time, items, scalars)
                last_step, last_time, scalars, items = at, moment, {}, []
            value = column.value(position)
            if isinstance(value, float):
                scalars[column.tag] = value
            elif isinstance(value, bytes):
                items.append(MessageItem(column.kind, column.tag, value))
            elif value is not None:
                items.append(ValueItem(column.kind, column.tag, value))
    if scalars or items:
        yield Event(last_step, last_time, items, scalars)


def export(job: Job) -> Iterator[Written]:
    """Write everything but landscapes and all graphs but the last."""
    _tell_what_stays(job)
    names = _names(job.tags)
    series = [(name, job.points(kind, tag)) for (kind, tag), name in names.items()]
    writers = sorted({writer for _, points in series for writer in points.by_writer()})
    own = {writer: _folder(writer, writers) for writer in writers} or {(-1, ""): ""}
    for writer, folder in own.items():
        chosen = [(name, part) for name, points in series if (part := points.by_writer().get(writer)) is not None]
        yield from _Export(job, writer, folder).write(chosen, is_first=writer == next(iter(own)))


def _tell_what_stays(job: Job) -> None:
    for kind in job.tags:
        if kind == "graph":
            count = sum(len(job.run.graphs(tag)) for tag in job.tags[kind])
            if count > 1:
                job.left_out.append(f"{count - 1} of {count} graphs: TensorBoard shows one a run, the last")
        elif kind not in _KINDS:
            job.leave_out(kind, "TensorBoard has no place for them")


def _names(tags: dict[str, list[str]]) -> dict[tuple[str, str], str]:
    """Return the tag under which each kind and tag is written."""
    names: dict[tuple[str, str], str] = {}
    taken = {tag for members in tags.values() for tag in members}
    owned: set[str] = set()
    for kind in _KINDS:
        for tag in tags.get(kind, ()):
            name = tag
            if tag in owned:
                name = f"{tag}/{kind}"
                while name in taken:
                    name += "_"
                taken.add(name)
            owned.add(tag)
            names[kind, tag] = name
    return names


def _folder(writer: Writer, writers: list[Writer]) -> str:
    """Return the folder of a writer, an empty text if it is the only one."""
    device, host = writer
    return "" if len(writers) == 1 else safe_name(f"device {device} on {host}" if device >= 0 else host or "unknown")


class _Export:
    """The files of one writer."""

    def __init__(self, job: Job, writer: Writer, folder: str) -> None:
        self._job = job
        self._writer = writer
        self._parts = [folder] if folder else []
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._stack = ExitStack()
        self._files: dict[int, IO[bytes]] = {}
        self._seconds = 0

    def write(self, series: list[tuple[str, Points]], is_first: bool) -> Iterator[Written]:
        """Write series under their names, and if it `is_first` what belongs to the run as a whole."""
        extent = self._job.run.extent()
        starts = [float(points.wall_time.min()) for _, points in series if len(points)]
        start = min(starts, default=time.time())
        self._seconds = max(int(start), 0) if start == start else 0
        with self._stack:
            if is_first:
                self._write_lineage(start, *((extent[1], extent[2]) if extent else (0, start)))
                self._write_graph()
            for event in events([self._column(name, points) for name, points in series]):
                self._put(0, codec.encode_scalars(event))
                if event.items:
                    self._put(1, codec.encode_others(event))
        for (kind, tag, file), count in self._counts.items():
            yield Written(self._path(file), kind, tag, count)

    def _column(self, name: str, points: Points) -> Column:
        def decode(index: int) -> Any:
            try:
                value = points.decode(index)
            except CorruptMessage as error:
                self._job.left_out.append(str(error))
                return None
            self._counts[points.kind, name, 0 if is_scalar else 1] += 1
            return value

        is_scalar = isinstance(points, Scalars)
        return Column(points.kind, name, points.step, points.wall_time, decode)

    def _write_lineage(self, start: float, step: int, wall_time: float) -> None:
        sections = self._job.run.lineage
        values = codec.encode_lineage(sections, start)
        if not values:
            return
        metrics = lineage.metrics(sections)
        self._put(0, codec.encode_scalars(Event(step, wall_time, (), metrics)))
        head = wire.double(tb.WALL_TIME, start)
        self._put(1, [[head, *wire.delimited_pieces(tb.SUMMARY, values)]])
        self._counts["lineage", "", 1] = len(sections)

    def _write_graph(self) -> None:
        graphs = [point for tag in self._job.tags.get("graph", ()) for point in self._job.run.graphs(tag)]
        if graphs:
            step, wall_time, graph = max(graphs, key=lambda point: (point[1], point[0]))
            assert isinstance(graph, Graph)
            self._put(1, codec.encode_others(Event(step, wall_time, [MessageItem("graph", "", graph.data)])))
            self._counts["graph", "", 1] = 1

    def _path(self, file: int) -> str:
        return self._job.folder.join(*self._parts, self._name(file))

    def _name(self, file: int) -> str:
        host = safe_name(self._writer[1] or "localhost")
        return f"events.out.tfevents.{self._seconds}.{host}.0.{file}"

    def _put(self, file: int, payloads: list[wire.Pieces]) -> None:
        for payload in payloads:
            if file not in self._files:
                opened = self._job.folder.binary(*self._parts, self._name(file))
                self._files[file] = self._stack.enter_context(opened)
                self._files[file].writelines(frame.pack(codec.encode_version(float(self._seconds))))
            self._files[file].writelines(frame.pack(payload))
