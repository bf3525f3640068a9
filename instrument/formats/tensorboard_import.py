"""Import TensorBoard's event files: each becomes one in MindSpore's dialect, with a twin for hyper-parameters.

Values keep their steps, times and all digits; events are ordered by step. What has no place is counted and told.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from instrument.codec import event as codec
from instrument.codec import lifecycle, lineage, message, wire
from instrument.codec.scalar import to_float32
from instrument.codec.schema import MINDSPORE
from instrument.errors import CorruptMessage, NoSuchRun
from instrument.eventfile import frame, names
from instrument.formats.job import Folder, Written
from instrument.formats.tensorboard import Column, events
from instrument.runs.event_file import EventFile
from instrument.runs.run import Run, find_runs, read_run
from instrument.values import Event, MessageItem

#: MindInsight shows no histogram with more.
_SHOWN_BUCKETS = 90
#: The value of a hyper-parameter.
Value = str | int | float
#: Type by name of the fields of lineage that hold hyper-parameters.
_FIELD_TYPES = {
    row.name: row.type
    for part in ("HyperParameters", "TrainDataset", "Algorithm")
    for row in MINDSPORE.table[f"TrainLineage.{part}"]
}


class Imported(NamedTuple):
    """The files that were written with the run of each, in words what was left out, and the runs that were read."""

    written: list[tuple[Run, Written]]
    left_out: list[str]
    runs: list[Run]


def import_runs(path: str, out: str, force: bool = False) -> Imported:
    """Write what TensorBoard's event files at `path` hold into the folder `out`.

    Args:
        path: an event file, a run, or a directory with runs at or below it; these keep their places below `out`.
        out: a folder that is new or empty; with `force` files of the same names are replaced.

    Raises:
        NoSuchRun: there is no event file of TensorBoard.
        InstrumentError: the folder is not empty.
        OSError: a file cannot be read or written.
    """
    folder = Folder(out, force)
    imported = Imported([], [], [])
    has_ours = False
    for run in find_runs(path) if os.path.isdir(path) else [read_run(path)]:
        files = [file for file in run.contents.files if file.name.kind == names.TENSORBOARD]
        if not files:
            has_ours = True
            continue
        imported.runs.append(run)
        below = os.path.relpath(run.path, path) if os.path.isdir(path) else "."
        taken: set[str] = set()
        for file in files:
            converter = _Import(file, folder, [] if below == "." else below.split(os.sep), taken)
            imported.written.extend((run, written) for written in converter.write())
            imported.left_out.extend(
                f"{os.path.normpath(os.path.join(below, os.path.basename(file.path)))}: {reason}"
                for reason in converter.left_out()
            )
    if not imported.runs:
        if has_ours:
            raise NoSuchRun(f"what is at {path} is in MindSpore's dialect already, and is read without an import")
        raise NoSuchRun(f"there is no event file of TensorBoard at {path}")
    return imported


class _Import:
    """One file; `taken` are the names that others of its run have."""

    def __init__(self, file: EventFile, folder: Folder, below: list[str], taken: set[str]) -> None:
        self._file = file
        self._folder = folder
        self._below = below
        self._counts: Counter[tuple[str, str]] = Counter()
        self._damaged: list[str] = []
        self._renamed = 0
        self._wide = 0
        self._lost_hparams = 0
        self._names = self._free_names(taken)

    def _free_names(self, taken: set[str]) -> tuple[str, str]:
        name = self._file.name
        first = self._file.first_wall_time
        seconds = name.seconds or (int(first) if 0 < first < 2**40 else 0)
        while (own := names.join("events", seconds, 0, names.SUFFIX, host_name=name.host)) in taken:
            seconds += 1
        taken.add(own)
        return own, names.join("events", seconds, 0, names.LINEAGE_SUFFIX, host_name=name.host)

    def write(self) -> Iterator[Written]:
        """Write the file and, for hyper-parameters, its twin."""
        columns = [column for key in sorted(self._file.points) if (column := self._column(*key)) is not None]
        with self._folder.binary(*self._below, self._names[0]) as out:
            first = self._file.first_wall_time
            out.writelines(frame.pack(codec.encode_version(first if first < float("inf") else 0.0)))
            for event in events(columns):
                _put(out, codec.encode(event))
            for missing in self._file.gaps:
                item = MessageItem("gap", "", lifecycle.encode_gap(missing))
                _put(out, codec.encode(Event(missing.first_step, self._file.last_wall_time, [item])))
        path = self._folder.join(*self._below, self._names[0])
        yield from (Written(path, *key, count) for key, count in self._counts.items())
        hparams: dict[str, Value | None] = {}
        for record in self._file.lineage:
            hparams.update(record.content if isinstance(record.content, dict) else {})
        if hparams:
            yield self._write_lineage(hparams)

    def _column(self, kind: str, tag: str) -> Column | None:
        columns = self._file.points[kind, tag].columns()
        name = tag.encode("utf-8", "backslashreplace").decode()
        self._renamed += name != tag

        def value(index: int) -> Any:
            raw = columns.raw[index]
            try:
                decoded: Any = float(raw) if kind == "scalar" else raw()
            except CorruptMessage as error:
                self._damaged.append(f"{kind} {name!r} at step {columns.step[index]}: {error}")
                return None
            self._counts[kind, name] += 1
            self._wide += kind == "histogram" and decoded.counts.size > _SHOWN_BUCKETS
            return decoded.data if kind == "graph" else decoded

        return Column(kind, name, columns.step, columns.wall_time, value)

    def _write_lineage(self, hparams: Mapping[str, Value | None]) -> Written:
        start = self._file.first_wall_time
        with self._folder.binary(*self._below, self._names[1]) as out:
            for kind, data in self._messages(hparams).items():
                if data:
                    _put(out, [lineage.encode_event(kind, data, start if start < float("inf") else 0.0)])
        return Written(self._folder.join(*self._below, self._names[1]), "hparams", "", len(hparams))

    def _messages(self, hparams: Mapping[str, Value | None]) -> dict[str, bytes]:
        """Return the hyper-parameters for which MindSpore's lineage has fields, and those that these do not hold."""
        fields: dict[str, dict[str, message.Value]] = {}
        for name, (outer, inner) in lineage.TRAIN_FIELDS.items():
            if (held := _held(inner, hparams.get(name))) is not None:
                fields.setdefault(outer, {})[inner] = held
        own: dict[str, Value] = {}
        for name, value in hparams.items():
            if value is None:
                self._lost_hparams += 1
            elif name not in lineage.TRAIN_FIELDS or not _is_exact(_held(lineage.TRAIN_FIELDS[name][1], value)):
                own[name.encode("utf-8", "backslashreplace").decode()] = value
        custom = lineage.custom_message(own) if own else b""
        return {"train_lineage": MINDSPORE.type("TrainLineage").encode(**fields), "custom_lineage_data": custom}

    def left_out(self) -> list[str]:
        """Return in words what is left out, or not as it was."""
        left_out: list[str] = []
        for kind, count in sorted(self._file.unread.items()):
            left_out.append(f"{count} of {kind}: there is no place for them")
        left_out += self._damaged
        if self._lost_hparams:
            left_out.append(f"{self._lost_hparams} hyper-parameters without a value")
        if self._renamed:
            left_out.append(f"{self._renamed} tags are not UTF-8: the bytes that are not stand as \\udcXX")
        if self._wide:
            left_out.append(
                f"{self._wide} histograms have over {_SHOWN_BUCKETS} buckets: MindInsight shows none of them"
            )
        return left_out


def _held(field: str, value: Value | None) -> Value | None:
    """Return what a field of the lineage holds of a value, None if it can hold nothing of it."""
    kind = _FIELD_TYPES[field]
    if kind == "string":
        return value if isinstance(value, str) and _is_unicode(value) else None
    if kind == "float":
        return float(value) if isinstance(value, (int, float)) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if isinstance(value, int) and -(2**31) <= value < 2**31 else None


def _is_unicode(text: str) -> bool:
    return text.encode("utf-8", "backslashreplace").decode() == text


def _is_exact(held: Value | None) -> bool:
    """Return True if a field holds a value as it is; a float32 of few digits is meant to be those."""
    if isinstance(held, float):
        return to_float32(held) == held or float(f"{held:.7g}") == held
    return held is not None


def _put(out: IO[bytes], payloads: list[wire.Pieces]) -> None:
    for payload in payloads:
        out.writelines(frame.pack(payload))
