"""The points of one tag as columns, put together from the files that hold them.

A *writer* is a rank, or a device, of a host. A point is *superseded*

- where the same file holds the same step again, later, unless its tag is one of samples (`system/...`); or
- where a file that goes on from its own has this tag from that step or an earlier one on: a restart. Which files go on
  from which is decided in `instrument.runs.starts`; those that were written at the same time keep all their points.

Superseded points are left out unless asked for. Points of different ranks never supersede each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from instrument.codec import image as image_codec
from instrument.errors import CorruptMessage, NoSuchRun
from instrument.eventfile.names import Writer
from instrument.runs.columns import NOT_CONTINUED, Columns, FilePoints, SeriesRows, joined
from instrument.runs.numbers import NumberPoints
from instrument.runs.starts import Origin, replaced_from
from instrument.values import SAMPLED, Histogram, Image, Tensor, Text
from instrument.wording import quoted

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = TypeVar("P", bound="Points")

_SHOWN_AT_EACH_END = 3


Renderer = Callable[[object], str]


class HtmlView:
    """A value that a notebook shows as HTML if a renderer is set, and as text if none is.

    What reads does not import what shows: the package's root names the renderer when it hands out its first name for
    reading (`instrument/__init__.py`).
    """

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return None if _load_renderer is None else _load_renderer()(self)


_load_renderer: Callable[[], Renderer] | None = None


def set_renderer(load: Callable[[], Renderer]) -> None:
    """Have `load` called for the renderer when a notebook asks for HTML."""
    global _load_renderer
    _load_renderer = load


@dataclass
class Part:
    """The points of one tag in one file, and the recorder that wrote the file."""

    origin: Origin
    points: FilePoints | NumberPoints

    @property
    def writer(self) -> Writer:
        return self.origin.writer


class Points(HtmlView):
    """The points of one tag, ordered by step, then by time; all columns have one entry a point.

    `step` is int64, `wall_time` float64 in seconds since the epoch (UTC), `superseded` bool (all False unless
    superseded points were asked for). `writer_index` points into `writers`, pairs of device number and host name. These
    four are read-only, as series that were recorded together share them.

    `len()` counts points, iterating gives (step, wall_time, value) for each, and `step in points` and `points[step]`
    go by step. Where several points have that step, `points[step]` is the one recorded last that is not superseded.
    """

    __slots__ = ("_raw", "_rows", "kind", "tag")

    def __init__(self, kind: str, tag: str, rows: SeriesRows, raw: Any) -> None:
        self.kind = kind
        self.tag = tag
        self._rows = rows
        self._raw = raw

    @property
    def step(self) -> NDArray[np.int64]:
        return self._rows.step

    @property
    def wall_time(self) -> NDArray[np.float64]:
        return self._rows.wall_time

    @property
    def superseded(self) -> NDArray[np.bool_]:
        return self._rows.superseded

    @property
    def writers(self) -> tuple[Writer, ...]:
        return self._rows.writers

    @property
    def writer_index(self) -> NDArray[np.intp]:
        return self._rows.writer_index

    @property
    def writer(self) -> list[Writer]:
        """The device number and host name of each point."""
        return [self.writers[index] for index in self.writer_index.tolist()]

    def by_writer(self: P) -> dict[Writer, P]:
        """Return the points of each writer; a series that another host has continued belongs to that host."""
        names = [self._rows.continued.get(writer, writer) for writer in self.writers]
        if len(names) == 1:
            return {names[0]: self}
        return self._split(names)

    def by_rank(self: P) -> dict[int, P]:
        """Return the points of each rank; -1 stands for files that name none."""
        ranks = self._split([device for device, _ in self.writers])
        return {rank: ranks[rank] for rank in sorted(ranks)}

    def _split(self: P, names: Sequence[K]) -> dict[K, P]:
        """Return the points of each name; `names` has one for each writer."""
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        place = np.array([places[name] for name in names], np.intp)[self.writer_index]
        order = np.argsort(place, kind="stable")
        parts = np.split(order, np.searchsorted(place[order], np.arange(1, len(places))))
        return {name: self._only(part) for name, part in zip(places, parts, strict=True)}

    def _only(self: P, index: NDArray[np.intp]) -> P:
        used, writer_index = np.unique(self.writer_index[index], return_inverse=True)
        rows = SeriesRows(
            self.step[index],
            self.wall_time[index],
            self.superseded[index],
            tuple(self.writers[position] for position in used.tolist()),
            writer_index,
            self._rows.continued,
        )
        return type(self)(self.kind, self.tag, rows, self._raw[index])

    def __len__(self) -> int:
        return len(self._rows.step)

    def __contains__(self, step: object) -> bool:
        return isinstance(step, (int, np.integer)) and bool((self.step == step).any())

    def _find(self, step: int) -> int:
        """Return the index of the point that stands for `step`."""
        first, last = (int(np.searchsorted(self.step, step, side)) for side in ("left", "right"))
        if first == last:
            raise NoSuchRun(f"{self.kind} {quoted(self.tag)} has no point at step {step}; it has {self._extent()}")
        return max(range(first, last), key=lambda index: (not self.superseded[index], self.wall_time[index], index))

    def _extent(self) -> str:
        count = f"{len(self)} point{'s' * (len(self) != 1)}"
        return f"{count}, steps {self.step[0]} to {self.step[-1]}" if len(self) else count

    def decode(self, index: int) -> Any:
        """Return the value of the point at `index` of the columns.

        Raises:
            CorruptMessage: it is damaged.
        """
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`: a row a point, with the columns step, wall_time (UTC), value, device and host.

        `value` are the numbers of scalars; of other kinds it has what `decode` gives. `device` is the rank in a
        training of several: `frame.pivot(index="step", columns="device", values="value")` has a column a rank. The
        extra `pandas` is needed.

        Raises:
            ImportError: pandas is not installed.
        """
        pandas = import_pandas()
        writers = [self.writers[index] for index in self.writer_index.tolist()]
        columns = {
            "step": self.step,
            "wall_time": pandas.to_datetime(self.wall_time, unit="s", utc=True, errors="coerce"),
            "value": self._value_column(),
            "device": [device for device, _ in writers],
            "host": [host for _, host in writers],
        }
        if self.superseded.any():
            columns["superseded"] = self.superseded
        return pandas.DataFrame(columns)

    def _value_column(self) -> Any:
        return [self.decode(index) for index in range(len(self))]

    def _cell(self, index: int) -> str:
        try:
            return _words(self.decode(index))
        except CorruptMessage as error:
            return f"damaged: {error.__cause__}"

    def __repr__(self) -> str:
        count = len(self)
        rows = [f"{self.kind} {quoted(self.tag)}: {self._extent()}"]
        if len(self.writers) > 1:
            how = ".by_rank()" if len({device for device, _ in self.writers}) > 1 else ".by_writer()"
            rows.append(f"  of {len(self.writers)} writers, {named(self.writers)}; {how} has each for itself")
        ends = min(count, _SHOWN_AT_EACH_END)
        shown = sorted({*range(ends), *range(count - ends, count)})
        for index in shown:
            if index == count - ends > ends:
                rows.append(f"{'...':>12}")
            moment = clock(float(self.wall_time[index]))
            rows.append(f"{self.step[index]:>12}  {moment}  {self._cell(index)}".rstrip())
        return "\n".join(rows)


class NonFinite(NamedTuple):
    """How many points of a series are NaN or infinite, and the step of the first of them."""

    points: int
    first_step: int


def import_pandas() -> Any:
    """Import pandas.

    Raises:
        ImportError: it is not installed; the message says how to install it.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas, which is not installed: pip install pandas") from error
    return pandas


class Scalars(Points):
    """Numbers: `value` is float64, an array of this object's own."""

    __slots__ = ("_value",)

    @property
    def value(self) -> NDArray[np.float64]:
        if not hasattr(self, "_value"):
            # A copy: what the file holds of all its tags must not change with it.
            self._raw = self._value = self._raw.astype(np.float64)
        value: NDArray[np.float64] = self._value
        return value

    @property
    def nonfinite(self) -> int:
        """The number of values that are NaN or infinite."""
        return int(np.count_nonzero(~np.isfinite(self.value)))

    @property
    def first_nonfinite_step(self) -> int | None:
        """The step of the first value that is NaN or infinite; None if all are finite."""
        is_nonfinite = ~np.isfinite(self.value)
        return int(self.step[is_nonfinite.argmax()]) if is_nonfinite.any() else None

    def __getitem__(self, step: int) -> float:
        return self.decode(self._find(step))

    def __iter__(self) -> Iterator[tuple[int, float, float]]:
        return zip(self.step.tolist(), self.wall_time.tolist(), self._raw.tolist(), strict=True)

    def decode(self, index: int) -> float:
        return float(self._raw[index])

    def _value_column(self) -> NDArray[np.float64]:
        return self.value


class _Decoded(Points, Generic[V]):
    """Values that stay encoded until they are asked for, each time anew, so that a long series costs no memory."""

    __slots__ = ()

    @property
    def values(self) -> list[V]:
        """All values, decoded.

        Raises:
            CorruptMessage: a value is damaged; `points[step]` and iterating give those before and behind it.
        """
        return [self.decode(index) for index in range(len(self))]

    def decode(self, index: int) -> V:
        try:
            value: V = self._raw[index]()
        except CorruptMessage as error:
            raise CorruptMessage(f"{self.kind} {quoted(self.tag)} at step {self.step[index]}: {error}") from error
        return value

    def __iter__(self) -> Iterator[tuple[int, float, V]]:
        for index, (step, wall_time) in enumerate(zip(self.step.tolist(), self.wall_time.tolist(), strict=True)):
            yield step, wall_time, self.decode(index)


class Images(_Decoded[Image]):
    """Pictures: `values` and `images[step]` are `instrument.values.Image`, still compressed."""

    __slots__ = ()

    def __getitem__(self, step: int) -> Image:
        return self.decode(self._find(step))

    def pixels(self, step: int, most_bytes: int = image_codec.MOST_BYTES) -> NDArray[np.uint8]:
        """Return the picture at a step as uint8 of shape (height, width, channels), decoded in at most `most_bytes`.

        Raises:
            CorruptMessage: the bytes are no picture, not of the size that the file claims, or of one that takes more.
        """
        return image_codec.pixels(self[step], most_bytes)


class Series(_Decoded[V]):
    """Histograms, images, landscapes or graphs: `values` are those of `instrument.values`, and so is `series[step]`."""

    __slots__ = ()

    def __getitem__(self, step: int) -> V:
        return self.decode(self._find(step))


class Tensors(_Decoded[Tensor]):
    """Tensors: `values` are `instrument.values.Tensor`, and `tensors[step]` is the array, which may be read-only."""

    __slots__ = ()

    def __getitem__(self, step: int) -> NDArray[np.generic]:
        return self.decode(self._find(step)).array


class Merging(NamedTuple):
    """How the points of several files become a series: its rows, and the order of its values, those files joined."""

    rows: SeriesRows
    order: slice | NDArray[np.intp]


def merging(
    parts: Sequence[Part], is_sampled: bool, superseded: bool, continued: Mapping[Writer, Writer] = NOT_CONTINUED
) -> Merging:
    """Return how parts are merged, which are in the order of their files; it holds for all tags with the same rows.

    A step may hold several points if they are samples. `continued` are writers that another one has gone on with.
    """
    columns = [part.points.columns() for part in parts]
    writers = tuple(sorted({part.writer for part in parts}))
    starts = _replaced_from(parts, columns)
    masks = [_superseded(column.step, start, is_sampled) for column, start in zip(columns, starts, strict=True)]
    places = {writer: place for place, writer in enumerate(writers)}
    index: list[NDArray[np.intp]] = [
        np.full(len(column.step), places[part.writer]) for part, column in zip(parts, columns, strict=True)
    ]
    step = np.concatenate([column.step for column in columns])
    wall_time = np.concatenate([column.wall_time for column in columns])
    mask, writer_index = np.concatenate(masks), np.concatenate(index)
    order: slice | NDArray[np.intp] = slice(None)
    if not _is_ordered(step, wall_time):
        order = np.lexsort((wall_time, step))  # stable: equal times keep the order of the files
    if not superseded and mask.any():
        chosen = np.arange(mask.size)[order]
        order = chosen[~mask[chosen]]
    shared = step[order], wall_time[order], mask[order], writer_index[order]
    for column in shared:
        column.flags.writeable = False
    rows = SeriesRows(*shared[:3], writers, shared[3], continued)
    return Merging(rows, order)


def merge(cls: Callable[..., P], kind: str, tag: str, parts: Sequence[Part], how: Merging) -> P:
    """Put the points of several files together."""
    raw = joined([part.points.columns().raw for part in parts])
    return cls(kind, tag, how.rows, raw[how.order])


def is_sampled(kind: str, tag: str) -> bool:
    """Return True for a series of samples, of which a step may hold several."""
    return kind == "scalar" and tag.startswith(SAMPLED)


def _is_ordered(step: NDArray[np.int64], wall_time: NDArray[np.float64]) -> bool:
    """Return True if points are ordered by step and then by time."""
    later_step = step[1:] > step[:-1]
    if later_step.all():
        return True
    later = (step[1:] == step[:-1]) & (wall_time[1:] >= wall_time[:-1])
    return bool((later_step | later).all())


def _superseded(step: NDArray[np.int64], replaced_from: int | None, sampled: bool) -> NDArray[np.bool_]:
    """Return True for each superseded point of a file; samples of one step do not supersede each other."""
    mask = np.zeros(len(step), np.bool_)
    if not sampled and (step[1:] >= step[:-1]).all():
        np.equal(step[1:], step[:-1], out=mask[:-1])
    elif not sampled:
        mask[:] = True
        _, last_from_behind = np.unique(step[::-1], return_index=True)
        mask[len(step) - 1 - last_from_behind] = False
    return mask if replaced_from is None else mask | (step >= replaced_from)


def _replaced_from(parts: Sequence[Part], columns: Sequence[Columns]) -> list[int | None]:
    """Return for each part the step from which on restarts have superseded its points."""
    first_steps = [int(column.step.min()) for column in columns] if len(parts) > 1 else [0]
    return replaced_from([part.origin for part in parts], first_steps)


def superseded(kind: str, tag: str, parts: Sequence[Part]) -> int:
    """Return how many points of a series are superseded; `parts` are those that `merging` takes."""
    columns = [part.points.columns() for part in parts]
    sampled = is_sampled(kind, tag)
    starts = _replaced_from(parts, columns)
    return sum(
        int(_superseded(column.step, start, sampled).sum()) for column, start in zip(columns, starts, strict=True)
    )


def replaced(parts: Sequence[Part]) -> int:
    """Return how many points of a series restarts have superseded; `parts` are those that `merging` takes."""
    columns = [part.points.columns() for part in parts] if len(parts) > 1 else []
    starts = _replaced_from(parts, columns) if columns else []
    return sum(
        int((column.step >= start).sum()) for column, start in zip(columns, starts, strict=True) if start is not None
    )


def _words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:>14.7g}"
    if isinstance(value, Tensor):
        return f"{value.dtype} {value.array.shape}"
    if isinstance(value, Histogram):
        return f"{value.count} values, {value.min:.7g} to {value.max:.7g}"
    if isinstance(value, Image):
        return f"{value.width} x {value.height} pixels"
    if isinstance(value, Text):
        return quoted(value.text)
    return f"{len(value.data)} bytes"


def clock(wall_time: float) -> str:
    """Format a wall time (seconds since the epoch) as local time with its offset from UTC; out of range, as seconds."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(wall_time))
    except (OverflowError, ValueError, OSError):
        return f"{wall_time:g} s"


def called(writer: Writer) -> str:
    """Return the name of a writer: rank and host, or the host alone if its files name no rank."""
    device, host = writer
    return host if device < 0 else f"rank {device} on {host}"


def named(writers: Sequence[Writer]) -> str:
    """Return the names of the first few writers, for a message."""
    return ", ".join(map(called, writers[:_SHOWN_AT_EACH_END])) + ", ..." * (len(writers) > _SHOWN_AT_EACH_END)
