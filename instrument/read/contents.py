"""Event files to the points of each tag, the lineage messages, and what could not be read.

A file is read once, from start to end. Numbers are taken out at once; everything else stays encoded in the mapped file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from instrument.codec import event, lineage
from instrument.errors import CorruptMessage
from instrument.eventfile import names
from instrument.eventfile.frame import OVERHEAD_BYTES
from instrument.eventfile.reader import Damage, EventFileReader
from instrument.read.points import FilePoints, Part
from instrument.values import Gap, Lineage

#: A kind and a tag.
Key = tuple[str, str]


@dataclass
class Contents:
    """`parts` of each series, and `lineages` with the frames they came from, in the order in which files were opened.

    `gaps` are the places where the writing side says that events are missing; `damage` lists frames that are broken, or
    hold no event, or less than a whole one.
    """

    parts: dict[Key, list[Part]] = field(default_factory=dict)
    lineages: list[tuple[Damage, Lineage]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


@dataclass
class _File:
    name: names.EventFileName
    reader: EventFileReader
    points: dict[Key, FilePoints] = field(default_factory=dict)
    first_wall_time: float = math.inf
    last_wall_time: float = -math.inf


def load(paths: Iterable[str]) -> Contents:
    """Read event files, whose names must be those of event files. One that cannot be opened is reported as damage."""
    contents = Contents()
    files = [_read(path, contents) for path in paths]
    # Names with the same second do not tell which file was first; the points do.
    files.sort(key=lambda file: (file.name.seconds, file.first_wall_time, file.reader.path))
    for file in files:
        for key, points in file.points.items():
            part = Part(file.name.writer, file.first_wall_time, file.last_wall_time, points)
            contents.parts.setdefault(key, []).append(part)
    return contents


def _read(path: str, contents: Contents) -> _File:
    name = names.parse(os.path.basename(path))
    assert name is not None, path
    file = _File(name, EventFileReader(path))
    unreadable = []
    try:
        for payload in file.reader:
            try:
                if name.is_lineage:
                    _take_lineage(payload, file, contents)
                else:
                    _take_points(payload, file, contents)
            except CorruptMessage as error:
                unreadable.append(_frame(file, payload, str(error)))
    except OSError as error:
        unreadable.append(Damage(path, 0, 0, f"the file cannot be read: {error.strerror}", torn=False))
    contents.damage += sorted(file.reader.damage + unreadable, key=lambda damage: damage.offset)
    return file


def _take_points(payload: memoryview, file: _File, contents: Contents) -> None:
    points = file.points
    for step, wall_time, kind, tag, decode in event.scan(payload):
        if wall_time < file.first_wall_time:
            file.first_wall_time = wall_time
        if wall_time > file.last_wall_time:
            file.last_wall_time = wall_time
        if kind == "gap":
            contents.gaps.append(decode())
            continue
        series = points.get((kind, tag))
        if series is None:
            series = points[kind, tag] = FilePoints(kind)
        series.step.append(step)
        series.wall_time.append(wall_time)
        series.raw.append(decode().value if kind == "scalar" else decode)


def _take_lineage(payload: memoryview, file: _File, contents: Contents) -> None:
    _, found = lineage.decode_event(payload)
    if found is not None:
        contents.lineages.append((_frame(file, payload, ""), found))


def _frame(file: _File, payload: memoryview, reason: str) -> Damage:
    """The frame that was read last, as damage."""
    return Damage(file.reader.path, file.reader.offset, len(payload) + OVERHEAD_BYTES, reason, torn=False)
