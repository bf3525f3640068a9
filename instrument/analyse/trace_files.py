"""Read the windows of a trace event file: raw files by name, put together from their pieces.

A raw file is a list of pieces as they came out of the event file. A parser joins them where it must, so memory does not
grow with the window.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from instrument.codec import trace
from instrument.errors import CorruptMessage, NoSuchRun
from instrument.eventfile import names
from instrument.eventfile.blocks import MOST_PLACES, EventFileReader
from instrument.eventfile.file_kinds import described
from instrument.eventfile.frame import OVERHEAD_BYTES
from instrument.ringfile import pending
from instrument.trace.events import Problem
from instrument.values import Trace

#: Pieces are of a mebibyte but for the last of each raw file; each takes up to a kilobyte beside its bytes.
MOST_PIECES = 30_000


@dataclass
class StoredWindow:
    """One window of one device: `number` counts from 0 within its event file, `path`.

    `files` has the parts of each raw file, in order. `kinds` says which tool wrote it. `problems` name the bytes that
    are missing: of a file with a gap only text stands before the gap is there.
    """

    path: str
    number: int
    device: int
    files: dict[str, list[memoryview]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def files(directory: str) -> list[str]:
    """List the paths of the trace event files directly in `directory`, the oldest first.

    Raises:
        OSError: the directory cannot be listed.
    """
    files = []
    with os.scandir(directory) as entries:
        for entry in entries:
            name = names.parse(entry.name, names.PROFILE)
            if name is not None and os.path.isfile(entry.path):
                files.append((name.seconds, entry.name, entry.path))
    return [path for _, _, path in sorted(files)]


def folder_of(place: str) -> str:
    """Return the directory of a trace event file. A path that is no such file is a directory itself."""
    return place if names.parse(os.path.basename(place), names.PROFILE) is None else os.path.dirname(place)


def windows(path: str | os.PathLike[str]) -> list[StoredWindow]:
    """Read the windows at `path`, a trace event file or a directory of some, in the order in which they were closed.

    Raises:
        NoSuchRun: there is none.
        OSError: the path cannot be read.
    """
    path = os.fspath(path)
    pending.look_beside(os.path.join(path, "") if os.path.isdir(path) else path)
    paths = files(path) if os.path.isdir(path) else [path]
    if not paths:
        raise NoSuchRun(f"{path} holds no trace event file (events.out.events.profile.*)")
    kind = "" if os.path.isdir(path) or names.recognise(os.path.basename(path)) else described(path)
    if kind:
        raise NoSuchRun(
            f"{path} is {kind}; a profile is a run, one of its trace event files (events.out.events.profile.*), or a "
            "directory of raw files"
        )
    read: list[StoredWindow] = []
    damage: list[Problem] = []
    for file in paths:
        reader = _TraceFileReader(file)
        read += reader.read()
        damage += reader.damage
    if not read:
        reasons = "; ".join(f"{place.file}: {place.what}" for place in damage)
        raise NoSuchRun(f"{path} holds no window of a profile" + (f" ({reasons})" if reasons else ""))
    return read


class _TraceFileReader:
    """Reads one file. `damage` has the places in it that hold no piece."""

    def __init__(self, path: str) -> None:
        self.damage: list[Problem] = []
        self._path = path
        self._windows: dict[tuple[int, int], StoredWindow] = {}
        #: (window, device, name) -> how many bytes are there, and how many there should be.
        self._sizes: dict[tuple[int, int, str], tuple[int, int]] = {}
        self._pieces = 0

    def read(self) -> list[StoredWindow]:
        reader = EventFileReader(self._path)
        for payload in reader:
            try:
                for piece in trace.pieces(payload):
                    self._take(piece)
            except CorruptMessage as error:
                self._note(f"at byte {reader.offset}: {error}", len(payload) + OVERHEAD_BYTES)
        for damage in reader.damage:
            self.damage.append(Problem(damage.path, f"at byte {damage.offset}: {damage.reason}", damage.bytes_skipped))
        self._report_missing_ends()
        windows = list(self._windows.values())
        if windows:
            windows[-1].problems += self.damage
        return windows

    def _take(self, piece: Trace) -> None:
        self._pieces += 1
        if self._pieces > MOST_PIECES:
            self._note(f"pieces beyond the first {MOST_PIECES} are left out", len(piece.data))
            return
        window = self._windows.get((piece.window, piece.device))
        if window is None:
            window = StoredWindow(self._path, piece.window, piece.device)
            self._windows[piece.window, piece.device] = window
        key = piece.window, piece.device, piece.name
        end, total_bytes = self._sizes.get(key, (0, piece.total_bytes))
        parts = window.files.setdefault(piece.name, [])
        window.kinds[piece.name] = piece.kind
        if piece.offset != end or piece.total_bytes != total_bytes:
            text = f"a piece at {piece.offset} of {piece.total_bytes} bytes follows the first {end} of {total_bytes}"
            window.problems.append(Problem(piece.name, text, len(piece.data)))
            return
        if len(piece.data):
            parts.append(memoryview(piece.data))
        self._sizes[key] = end + len(piece.data), total_bytes

    def _note(self, text: str, amount: int) -> None:
        """Record damage. Beyond the limit of places, add the amount to the last of them."""
        if len(self.damage) < MOST_PLACES:
            self.damage.append(Problem(self._path, text, amount))
        else:
            self.damage[-1] = self.damage[-1]._replace(amount=self.damage[-1].amount + amount)

    def _report_missing_ends(self) -> None:
        for (number, device, name), (end, total_bytes) in self._sizes.items():
            if end != total_bytes:
                text = f"the last {total_bytes - end} of {total_bytes} bytes are missing"
                self._windows[number, device].problems.append(Problem(name, text, total_bytes - end))
