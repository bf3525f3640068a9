"""The event files of one run together: the parts of each series, what they tell of the run, and what could not be read.

A file is read once, from start to end, and after that only what came behind. A file that was replaced or cut back is
read anew, one that is gone is forgotten: what was followed equals what is opened afresh.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from instrument.codec import tensorboard, tensorboard_outline
from instrument.errors import CorruptFrame, CorruptMessage
from instrument.eventfile import frame, names
from instrument.eventfile.access import OpenFile
from instrument.eventfile.blocks import Damage
from instrument.read.event_file import EventFile, Key, Told
from instrument.read.points import Part, Points, is_sampled, merge, replaced, superseded
from instrument.values import Gap

_HEAD_BYTES = 4096


class Contents:
    """What a set of event files holds; `read` brings it up to date."""

    def __init__(self) -> None:
        self._files: dict[str, EventFile] = {}
        self._in_order: list[EventFile] | None = None
        self._notes: list[Damage] = []

    def note(self, damage: Damage) -> None:
        """Note what turned out to be damaged when it was decoded."""
        if damage not in self._notes:
            self._notes.append(damage)

    def read(self, paths: Iterable[str]) -> None:
        """Read what is new in the files at these paths, whose names must be those of event files."""
        wanted = list(paths)
        copies = _copies(wanted)
        known, self._files, self._in_order = self._files, {}, None
        for path in wanted:
            if path not in copies:
                file = known.get(path)
                self._files[path] = EventFile.at(path) if file is None or file.is_replaced() else file
                self._files[path].read()

    @property
    def files(self) -> list[EventFile]:
        """The files, the oldest first; names with the same second do not tell which that is, their points do."""
        if self._in_order is None:
            order = lambda file: (file.name.seconds, file.first_wall_time, file.path)  # noqa: E731
            self._in_order = sorted(self._files.values(), key=order)
        return self._in_order

    def keys(self) -> set[Key]:
        """Kind and tag of each series."""
        return {key for file in self._files.values() for key in file.points}

    def parts(self, key: Key) -> list[Part]:
        """The parts of a series, in the order in which their files were opened; none where there is no such series."""
        return _parts(self.files, key)

    def extent(self) -> tuple[int, int, float] | None:
        """The first and the last step of all points that stand, and their last wall time; None without points."""
        found: dict[object, tuple[int, int, float]] = {}
        for key, parts, where in self._series():
            if where in found:
                continue
            extent = parts[0].points.extent() if len(parts) == 1 else None
            if extent is None:
                points = merge(Points, *key, parts, superseded=False)
                extent = int(points.step[0]), int(points.step[-1]), float(points.wall_time.max())
            found[where] = extent
        if not found:
            return None
        first, last, wall_time = zip(*found.values(), strict=True)
        return min(first), max(last), max(wall_time)

    def replaced(self, keys: Iterable[Key]) -> int:
        """How many points of these series, given by kind and tag, a later start has replaced."""
        return sum(replaced(self.parts(key)) for key in keys)

    def superseded(self) -> int:
        """Return how many points of all series are superseded, which is how many reading leaves out."""
        counts: dict[object, int] = {}
        total = 0
        for key, parts, together in self._series():
            where = is_sampled(*key), together
            if where not in counts:
                is_plain = len(parts) == 1 and parts[0].points.extent() is not None
                counts[where] = 0 if is_plain else superseded(*key, parts)
            total += counts[where]
        return total

    def _series(self) -> Iterator[tuple[Key, list[Part], object]]:
        """Each series with its parts; the last is equal for series that were recorded together, in all of the files."""
        files = self.files
        for key in self.keys():
            parts = _parts(files, key)
            yield key, parts, tuple(part.points.together for part in parts)

    @property
    def told(self) -> Iterator[Told]:
        """What the files say of the run, in file order; of several ranks the lowest comes last, as the last counts."""
        files = sorted(self._files.values(), key=lambda file: -file.name.device)
        return (one for file in files for one in file.told)

    @property
    def gaps(self) -> list[Gap]:
        """Where the writing side says that events are missing, in file order."""
        return [gap for file in self._files.values() for gap in file.gaps]

    @property
    def damage(self) -> list[Damage]:
        """Places that hold no frame, or a frame that is no event, or a value that is none."""
        return [one for file in self._files.values() for one in file.damage] + self._notes


def _parts(files: Sequence[EventFile], key: Key) -> list[Part]:
    return [
        Part(file.name.writer, file.first_wall_time, file.last_wall_time, file.points[key])
        for file in files
        if key in file.points
    ]


def _copies(paths: list[str]) -> set[str]:
    """Files that hold the values of others once more, in TensorBoard's dialect, and say so."""
    kinds = {path: names.recognise(os.path.basename(path)) for path in paths}
    if not any(name is not None and name.kind == names.SUMMARY and not name.is_lineage for name in kinds.values()):
        return set()
    return {path for path, name in kinds.items() if name and name.kind == names.TENSORBOARD and _is_ours(path)}


def _is_ours(path: str) -> bool:
    try:
        with OpenFile(path) as file:
            found = frame.unpack(file.read(0, _HEAD_BYTES))
        return found is not None and tensorboard_outline.source_writer(found[0]) == tensorboard.WRITER
    except (OSError, CorruptFrame, CorruptMessage):
        return False  # reading it says what is wrong
