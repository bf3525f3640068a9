"""Whatever a path holds -> the windows in it, each with the raw files of its devices; parsed when one is asked for.

A path is a trace event file, a directory with such files (of several ranks, of several runs of a script), a directory
of raw files (a job's, a `*_ascend_ms`, a `PROF_*`, or one that holds several of them), or one raw file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from instrument.analyse.table import Table
from instrument.errors import InstrumentError, NoSuchRun
from instrument.runs import traces
from instrument.runs.hints import absent, ranges
from instrument.trace import grouping, jsontext, load, marks
from instrument.trace.events import Capture, Problem
from instrument.trace.files import RawFiles, from_directory
from instrument.trace.kinds import kind_of
from instrument.trace.text import Losses

#: Says in a `profiler_info_<rank>.json` that the folder is what an analysis saved, which is no source of another one.
WRITTEN_BY = "instrument"
#: How the directory begins in which the profiler collects the raw files of a window.
RAW_PREFIX = "profile_raw_"
_ROWS = ("start_ns", "stop_ns", "first_step", "last_step")


@dataclass(frozen=True, eq=False)
class Piece:
    """The raw files of one window that come from one place: an event file, or a folder. `told` is what it says."""

    place: str
    number: int
    devices: tuple[int, ...]
    files: Mapping[str, Any]
    told: Mapping[str, Any]
    problems: Sequence[Problem] = ()

    def captures(self) -> list[Capture]:
        files = self.files if isinstance(self.files, RawFiles) else RawFiles(self.files)
        return load.captures(RawFiles(files, [*self.problems, *files.problems]))


def find(path: str) -> list[Piece]:
    """All that is at `path`. Pieces of one window, which are of different devices, have the same number.

    Raises:
        NoSuchRun: nothing of a profile is there.
        InstrumentError: it cannot be read.
    """
    if not os.path.exists(path):
        raise NoSuchRun(f"{path} {absent(path)}; a run, a trace event file or a directory of raw files is expected")
    try:
        pieces = _find(path)
    except OSError as error:
        kind = NoSuchRun if isinstance(error, (FileNotFoundError, NotADirectoryError)) else InstrumentError
        raise kind(f"{path} cannot be read: {error.strerror or error}") from error
    if not pieces:
        raise NoSuchRun(
            f"{path} holds nothing of a profile; expected a trace event file (events.out.events.profile.*), a run "
            f"directory with such files, or a directory of raw files.{_on_killed(path)}"
        )
    return pieces


def _on_killed(path: str) -> str:
    """A word on windows that were opened and never closed: their directories are all that is left."""
    names = sorted(name for name in os.listdir(path) if name.startswith(RAW_PREFIX)) if os.path.isdir(path) else []
    if not names:
        return ""
    return (
        f" {names[-1]} is of a window that was not closed: the training is still in it or was killed there, and until "
        "a window is closed MindSpore keeps in memory what it records."
    )


def _find(path: str) -> list[Piece]:
    if not os.path.isdir(path):
        name = os.path.basename(path)
        if kind_of(name) is not None:
            with open(path, "rb") as file:
                return _of_folders(RawFiles({name: file.read()}), path)
        return [_of_window(window) for window in traces.windows(path)]
    directories = [folder for folder, _, _ in os.walk(path) if traces.files(folder)]
    if directories:
        return _of_event_files(sorted(directories))
    return _of_folders(_without_own(from_directory(path)), path)


# ---------------------------------------------------------------- event files


def _of_event_files(directories: Sequence[str]) -> list[Piece]:
    """The windows of several files; those of one device are numbered as they were opened."""
    found: list[tuple[int, Piece]] = []
    errors = []
    for file in (file for directory in directories for file in traces.files(directory)):
        try:
            found += _by_start([_of_window(window) for window in traces.windows(file)])
        except NoSuchRun as error:
            errors.append(str(error))
    if not found:
        raise NoSuchRun("; ".join(errors))
    pieces = list(_numbered([piece for _, piece in sorted(found, key=lambda one: one[0])]))
    lost = [Problem(text, "event file without any window", 1) for text in errors]
    pieces[0] = replace(pieces[0], problems=(*lost, *pieces[0].problems))
    return pieces


def _by_start(pieces: Sequence[Piece]) -> Iterator[tuple[int, Piece]]:
    """Each with when it was opened; one that does not say, with when the one before it was."""
    latest = 0
    for piece in pieces:
        start = _integer(piece.told.get("start_ns"))
        latest = latest if start is None else start
        yield latest, piece


def _of_window(window: traces.Window) -> Piece:
    problems = [Problem(*problem) for problem in window.problems]
    told = _told(RawFiles(window.files))
    return Piece(window.path, window.number, (window.device,), window.files, told, problems)


# ---------------------------------------------------------------- raw files


def _of_folders(files: RawFiles, path: str) -> list[Piece]:
    """A piece for each folder of a window: by the time that it was opened or by name, that of `path` itself last."""
    folders: dict[str, dict[str, list[memoryview]]] = {}
    for name in files:
        folders.setdefault(grouping.folder_of(name), {})[name] = files[name]
    found = []
    for folder, content in folders.items():
        devices = tuple(sorted({group.device for group in grouping.groups_of(RawFiles(content).without_slices())}))
        told = _told(RawFiles(content))
        start = told.get("start_ns")
        order = (not folder, start if isinstance(start, int) else 0, folder)
        found.append((order, Piece(os.path.join(path, folder) if folder else path, 0, devices, content, told)))
    pieces = [piece for _, piece in sorted(found, key=lambda one: one[0]) if piece.devices]
    for problem in files.problems:
        folder = grouping.folder_of(problem.file)
        place = os.path.join(path, folder) if folder else path
        row = next((row for row, piece in enumerate(pieces) if piece.place == place), 0)
        if pieces:
            pieces[row] = replace(pieces[row], problems=(*pieces[row].problems, problem))
    return list(_numbered(pieces))


def _numbered(pieces: Sequence[Piece]) -> Iterator[Piece]:
    following: dict[int, int] = {}
    for piece in pieces:
        number = max(following.get(device, 0) for device in piece.devices)
        following |= dict.fromkeys(piece.devices, number + 1)
        yield replace(piece, number=number)


def _without_own(files: RawFiles) -> RawFiles:
    """`files` without the folders that an analysis saved."""
    own = set()
    for name in files:
        kind = kind_of(name)
        if kind is not None and kind.name == "profiler_info":
            told = jsontext.mapping(files.joined(name), Losses(name))
            own |= {name.rpartition("/")[0]} if told.get("written_by") == WRITTEN_BY else set()
    kept = {name: files[name] for name in files if name.rpartition("/")[0] not in own}
    return RawFiles(kept, files.problems)


def _told(files: RawFiles) -> Mapping[str, Any]:
    """What a window of ours says about itself; nothing for others."""
    for name in files:
        kind = kind_of(name)
        if kind is not None and kind.name == "window":
            return marks.window(files.joined(name), name)[0]
    return {}


# ---------------------------------------------------------------- the list of windows


def choose(pieces: Sequence[Piece], window: int, path: str) -> int:
    """The number of a window; negative ones count from the end.

    Raises:
        InstrumentError: there is no such window.
    """
    numbers = sorted({piece.number for piece in pieces})
    if window in numbers:
        return window
    if -len(numbers) <= window < 0:
        return numbers[window]
    raise InstrumentError(f"{path} has no window {window}; it has {ranges(numbers)}.")


def listed(pieces: Sequence[Piece], chosen: int) -> Table:
    """One row a window and place: device, when it was open, its steps, whether it is complete and why not."""
    rows = sorted(pieces, key=lambda piece: (piece.number, piece.devices))
    columns: dict[str, Any] = {
        "window": [piece.number for piece in rows],
        "is_shown": [piece.number == chosen for piece in rows],
        "device": [ranges(piece.devices) for piece in rows],
    }
    for name in _ROWS:
        columns[name] = [_integer(piece.told.get(name)) for piece in rows]
    columns["complete"] = [_complete(piece.told) for piece in rows]
    columns["reason"] = [str(piece.told.get("reason") or "") for piece in rows]
    columns["place"] = [piece.place for piece in rows]
    return Table("windows", columns, "Windows")


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < 2**62 else None


def _complete(told: Mapping[str, Any]) -> str:
    return {True: "yes", False: "no"}.get(told.get("complete"), "") if told else ""  # type: ignore[arg-type]
