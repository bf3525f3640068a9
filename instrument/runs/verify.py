"""Check every frame and every value of event files, and write what is whole of a damaged one into a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from instrument.codec import lineage, outline
from instrument.errors import CorruptMessage, InstrumentError, NoSuchRun
from instrument.eventfile import file_kinds, frame, names
from instrument.eventfile.access import OpenFile
from instrument.eventfile.blocks import BlockReader, Damage, note
from instrument.paths import absent
from instrument.ringfile import pending
from instrument.ringfile.pending import Pending
from instrument.runs import folders
from instrument.runs.columns import StoredColumn
from instrument.runs.event_file import EventFile
from instrument.values import Lineage


@dataclass
class Report:
    """What a file of `size_bytes` holds: whole `frames`, `values` in them that could be decoded, and `damage`."""

    path: str
    size_bytes: int
    frames: int = 0
    values: int = 0
    damage: list[Damage] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Return True if nothing is damaged or unfinished."""
        return not self.damage


def rings_at(path: str) -> list[tuple[str, Pending]]:
    """Return the ring files without living processes that hold events of the event files at `path`, or are damaged.

    Call `files_at` first, by which they were looked for.
    """
    if os.path.isdir(path):
        return [ring for directory in folders.find(path).rings for ring in pending.waiting(directory).items()]
    return list(pending.waiting(os.path.dirname(path) or os.curdir).items())


def files_at(path: str) -> tuple[list[str], list[str]]:
    """Return the event files at `path`, those of profiles too, and notes on what was skipped.

    That is an event file, whatever its name, or all in a directory and below it.

    Raises:
        NoSuchRun: there is none.
    """
    if not os.path.exists(path):
        raise NoSuchRun(f"{path} {absent(path)}; an event file or a directory is expected")
    if not os.path.isdir(path):
        if not os.path.isfile(path):
            raise NoSuchRun(f"{path} is {file_kinds.described(path)}; an event file or a directory is expected")
        pending.look_beside(path)
        return [path], []
    tree = folders.find(path)
    files = [file for inside in tree.folders.values() for file in inside]
    if not files:
        raise NoSuchRun(folders.no_event_file(path))
    return files, tree.notes


def check(path: str) -> Report:
    """Read all of one event file.

    Raises:
        NoSuchRun: it is a file of another kind; the message says which.
        OSError: it cannot be read.
    """
    with OpenFile(path) as opened:
        report = Report(path, opened.size_bytes)
    name = _name(path)
    if name is None or name.kind == names.PROFILE:
        _check_frames(report)
    else:
        _check_values(report, EventFile(path, name))
    report.damage.sort(key=lambda place: place.offset)
    return report


def _name(path: str) -> names.EventFileName | None:
    """Return the parts of a file's name, None where it has another one but may be an event file all the same.

    Raises:
        NoSuchRun: the file is of another kind.
    """
    name = names.recognise(os.path.basename(path))
    kind = "" if name is not None and not os.path.getsize(path) else file_kinds.described(path)
    if kind:
        raise NoSuchRun(f"{path} is {kind}, and no event file")
    return name


def _check_frames(report: Report) -> None:
    reader = BlockReader(report.path)
    for block in reader:
        for start, payload in block.payloads():
            report.frames += 1
            try:
                report.values += sum(1 for _ in outline.records(payload))
            except CorruptMessage as error:
                offset = block.base + start - frame.HEADER.size
                whole = len(payload) + frame.OVERHEAD_BYTES
                note(report.damage, Damage(report.path, offset, whole, str(error), torn=False))
    report.damage += reader.damage


def _check_values(report: Report, file: EventFile) -> None:
    file.read()
    report.frames, report.damage = file.frames, list(file.damage)
    report.values = len(file.gaps)
    for record in file.lineage:
        try:
            if isinstance(record.content, Lineage):
                lineage.to_dict(record.content)
            report.values += 1
        except CorruptMessage as error:
            note(report.damage, replace(record.frame, reason=str(error)))
    for points in file.points.values():
        raw = points.columns().raw
        if not isinstance(raw, StoredColumn):
            report.values += len(raw)
            continue
        for value in raw:
            try:
                value()
                report.values += 1
            except CorruptMessage as error:
                note(report.damage, Damage(report.path, value.offset, value.length, str(error), torn=False))


def repair(path: str, out: str) -> Report:
    """Copy the whole frames of an event file that hold events, in order, into the new file `out`.

    The report is on the file that was read, `values` being the frames that were written.

    Raises:
        InstrumentError: `out` exists; nothing is ever overwritten. Or the file is of another kind.
        OSError: a file cannot be read or written.
    """
    with OpenFile(path) as opened:
        report = Report(path, opened.size_bytes)
    name = _name(path)
    reader = EventFile(path, name or names.EventFileName("", 0, -1, "", False))
    try:
        with OpenFile(path), open(out, "xb") as file:
            for piece in _whole(reader, report):
                file.write(piece)
    except FileExistsError:
        raise InstrumentError(f"{out} exists; repair writes new files only, give another -o") from None
    report.damage.sort(key=lambda place: place.offset)
    return report


def _whole(file: EventFile, report: Report) -> Iterator[memoryview]:
    """Yield the valid frames that hold events, as long pieces of the file; note the others in the report."""
    reader = BlockReader(file.path)
    for block in reader:
        faults = file.faults(block)
        first = end = 0
        for start, payload in block.payloads():
            report.frames += 1
            begin, following = start - frame.HEADER.size, start + len(payload) + frame.FOOTER.size
            if start in faults:
                offset, whole = block.base + begin, following - begin
                note(report.damage, Damage(file.path, offset, whole, faults[start], torn=False))
                continue
            report.values += 1
            if begin != end:
                yield block.data[first:end]
                first = begin
            end = following
        yield block.data[first:end]
    report.damage += reader.damage
