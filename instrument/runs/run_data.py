"""The event files of one run together: the parts of each series, what they tell of the run, and what could not be read.

A file is read once, from start to end, and after that only what came behind. A file that was replaced or cut back is
read anew, one that is gone is forgotten: what was followed equals what is opened afresh.
"""

from __future__ import annotations

import functools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from instrument.codec import lineage, tensorboard, tensorboard_outline
from instrument.errors import CorruptFrame, CorruptMessage
from instrument.eventfile import frame, names
from instrument.eventfile.access import OpenFile
from instrument.eventfile.blocks import Damage
from instrument.eventfile.names import Writer
from instrument.runs.columns import SeriesRows
from instrument.runs.event_file import EventFile, Key, LineageRecord
from instrument.runs.numbers import Numbers
from instrument.runs.points import (
    HtmlView,
    Merging,
    NonFinite,
    Part,
    Points,
    Scalars,
    is_sampled,
    merge,
    merging,
    replaced,
    superseded,
)
from instrument.runs.starts import Origin, joined
from instrument.values import Gap

P = TypeVar("P", bound=Points)

_HEAD_BYTES = 4096
_HPARAMS = "hparams"


class RunLineage(HtmlView, dict[str, dict[str, Any]]):
    """A dictionary that a notebook shows as a table."""


class RunData:
    """What a set of event files holds; `read` brings it up to date."""

    def __init__(self) -> None:
        self._files: dict[str, EventFile] = {}
        self._in_order: list[EventFile] | None = None
        self._by_rows: dict[object, list[Key]] | None = None
        self._mergings: dict[tuple[object, ...], Merging] = {}
        #: Those with the start of their recorder, by what the names of its files have in common.
        self._first_files: dict[str, EventFile] = {}
        self._origins: dict[str, Origin] = {}
        self._continued: dict[Writer, Writer] | None = None
        self._notes: list[Damage] = []

    def note(self, damage: Damage) -> None:
        """Note what turned out to be damaged when it was decoded."""
        if damage not in self._notes:
            self._notes.append(damage)

    def read(self, paths: Iterable[str]) -> None:
        """Read what is new in the files at these paths, whose names must be those of event files."""
        wanted = list(paths)
        copies = _copies(wanted)
        before, self._files, self._in_order, self._by_rows = self._files, {}, None, None
        for path in wanted:
            if path not in copies:
                file = before.get(path)
                self._files[path] = EventFile.at(path) if file is None or file.is_replaced() else file
                self._files[path].read()
        self.__dict__.pop("_sole_numbers", None)
        firsts = [file for file in self._files.values() if file.begun is not None]
        self._continued = None
        self._origins, self._mergings = {}, {}
        self._first_files = {names.recorder_of(os.path.basename(file.path)): file for file in firsts}

    @property
    def files(self) -> list[EventFile]:
        """The files, the oldest first; names with the same second do not tell which that is, their points do."""
        if self._in_order is None:
            order = lambda file: (file.name.seconds, file.first_wall_time, file.path)  # noqa: E731
            self._in_order = sorted(self._files.values(), key=order)
        return self._in_order

    def tags(self) -> dict[str, list[str]]:
        """Return the tags of each kind, in the order in which they first came."""
        tags: dict[str, dict[str, None]] = {}
        for file in self._files.values():
            for kind, of_file in file.tags().items():
                tags.setdefault(kind, {}).update(dict.fromkeys(of_file))
        return {kind: list(of_kind) for kind, of_kind in tags.items()}

    def keys(self) -> set[Key]:
        """Return kind and tag of each series."""
        return {(kind, tag) for kind, tags in self.tags().items() for tag in tags}

    def parts(self, key: Key) -> list[Part]:
        """Return the parts of a series, in the order of their files; an empty list if there is no such series."""
        return [Part(self.origin(file), part) for file in self.files if (part := file.part(key)) is not None]

    def points(self, cls: Callable[..., P], kind: str, tag: str, superseded: bool = False) -> P | None:
        """Return a series, with `superseded` also its points that are; None if there is no such series."""
        if kind == "scalar" and self._sole_numbers is not None:  # there may be thousands of tags
            series = self._sole_numbers.series(tag)
            if series is not None:
                return cls(kind, tag, *series)
        parts = self.parts((kind, tag))
        if len(parts) == 1 and parts[0].points.extent() is not None:  # there is nothing to merge
            step, wall_time, raw = parts[0].points.columns()
            return cls(kind, tag, SeriesRows.of_one(step, wall_time, parts[0].writer, self.continued), raw)
        return merge(cls, kind, tag, parts, self._merging(kind, tag, parts, superseded)) if parts else None

    @functools.cached_property
    def _sole_numbers(self) -> Numbers | None:
        """The numbers of the only file that has any; None where there are several."""
        files = [file for file in self._files.values() if file.numbers.ids]
        return files[0].numbers if len(files) == 1 and not self.continued else None

    def _merging(self, kind: str, tag: str, parts: list[Part], superseded: bool) -> Merging:
        """Return how the parts of a series are merged; series with the same rows in all files share that."""
        key = (is_sampled(kind, tag), superseded, *(part.points.together for part in parts))
        how = self._mergings.get(key)
        if how is None:
            how = merging(parts, is_sampled(kind, tag), superseded, self.continued)
            if None not in key:
                how.rows.freeze()
                self._mergings[key] = how
        return how

    @property
    def continued(self) -> dict[Writer, Writer]:
        """The writers that one of another host has gone on with, and the last of these."""
        if self._continued is None:
            self._continued = joined(map(self.origin, self._files.values()))
        return self._continued

    def origin(self, file: EventFile) -> Origin:
        """Return the recorder that wrote a file."""
        origin = self._origins.get(file.path)
        if origin is None:
            first = file
            if file.begun is None and file.name.kind == names.TENSORBOARD:
                # Of the two files of a recorder the first one has its start.
                recorder = names.recorder_of(os.path.basename(file.path))
                first = self._first_files.get(recorder, file)
            began, start = first.begun or (math.nan, None)
            times = file.first_wall_time, file.last_wall_time
            name = os.path.basename(file.path)
            origin = Origin(name, file.name.writer, *times, file.content_bytes, start, began)
            self._origins[file.path] = origin
        return origin

    def extent(self) -> tuple[int, int, float] | None:
        """Return first step, last step and last wall time of all points that stand; None without points."""
        extents = []
        for key, *_ in self._together().values():
            parts = self.parts(key)
            extent = parts[0].points.extent() if len(parts) == 1 else None
            if extent is None:
                rows = self._merging(*key, parts, superseded=False).rows
                extent = int(rows.step[0]), int(rows.step[-1]), float(rows.wall_time.max())
            extents.append(extent)
        if not extents:
            return None
        first, last, wall_time = zip(*extents, strict=True)
        return min(first), max(last), max(wall_time)

    def replaced(self, keys: Iterable[Key]) -> int:
        """Return how many points of these series, given by kind and tag, a later start has replaced."""
        return sum(replaced(self.parts(key)) for key in keys)

    def superseded(self) -> int:
        """Return how many points of all series are superseded, which is how many reading leaves out."""
        total = 0
        for keys in self._together().values():
            parts = self.parts(keys[0])
            if len(parts) == 1 and parts[0].points.extent() is not None:
                continue
            sampled = [key for key in keys if is_sampled(*key)]
            for same in (sampled, [key for key in keys if not is_sampled(*key)]):
                if same:
                    total += len(same) * superseded(*same[0], parts)
        return total

    def nonfinite(self) -> dict[str, NonFinite]:
        """Return by their tags the scalars with points that are NaN or infinite: how many, and the first step."""
        result: dict[str, NonFinite] = {}
        for tag in sorted({tag for file in self._files.values() for tag in file.numbers.nonfinite()}):
            points = self.points(Scalars, "scalar", tag)
            if points is not None and points.first_nonfinite_step is not None:
                result[tag] = NonFinite(points.nonfinite, points.first_nonfinite_step)
        return result

    def counts(self) -> Counter[str]:
        """Return how many tags of each kind there are."""
        return Counter({kind: len(tags) for kind, tags in self.tags().items()})

    def _together(self) -> dict[object, list[Key]]:
        """Return the series by what they have in common: those of one entry have the same steps in all files."""
        if self._by_rows is not None:
            return self._by_rows
        together: dict[Key, list[object]] = {}
        for index, file in enumerate(self.files):
            for key, rows in file.together():
                together.setdefault(key, []).append((index, rows))
        self._by_rows = {}
        for key, all_files in together.items():
            self._by_rows.setdefault(tuple(all_files), []).append(key)
        return self._by_rows

    def lineage(self) -> RunLineage:
        """Return by key what was recorded last; of custom lineage and hyper-parameters of TensorBoard all names.

        A message that cannot be parsed is left out and noted as damage.
        """
        result = RunLineage()
        for place, record in self._lineage_records():
            if isinstance(record, dict):
                result[_HPARAMS] = {**result.get(_HPARAMS, {}), **record}
                continue
            try:
                fields = lineage.to_dict(record)
            except CorruptMessage as error:
                self.note(replace(place, reason=str(error)))
                continue
            for key, part in lineage.by_section(record.what, fields).items():
                result[key] = {**result.get(key, {}), **part} if key == "custom" else part
        return result

    def _lineage_records(self) -> Iterator[LineageRecord]:
        """Iterate over the lineage in file order; of several ranks the lowest comes last, as the last counts."""
        files = sorted(self._files.values(), key=lambda file: -file.name.device)
        return (record for file in files for record in file.lineage)

    @property
    def gaps(self) -> list[Gap]:
        """Events that the writing side says are missing, in file order."""
        return [gap for file in self._files.values() for gap in file.gaps]

    @property
    def damage(self) -> list[Damage]:
        """Places that hold no frame, or a frame that is no event, or a value that is none."""
        return [place for file in self._files.values() for place in file.damage] + self._notes


def _copies(paths: list[str]) -> set[str]:
    """Return the files that hold the values of others once more, in TensorBoard's dialect, and say so."""
    kinds = {path: names.recognise(os.path.basename(path)) for path in paths}
    if not any(name is not None and name.kind == names.SUMMARY and not name.is_lineage for name in kinds.values()):
        return set()
    return {path for path, name in kinds.items() if name and name.kind == names.TENSORBOARD and _is_ours(path)}


def _is_ours(path: str) -> bool:
    try:
        with OpenFile(path) as file:
            first = frame.unpack(file.read(0, _HEAD_BYTES))
        return first is not None and tensorboard_outline.source_writer(first[0]) == tensorboard.WRITER
    except (OSError, CorruptFrame, CorruptMessage):
        return False  # reading it says what is wrong
