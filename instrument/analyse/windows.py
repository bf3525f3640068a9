"""Find the windows of a profile at a path, each with the raw files of its devices, which are parsed on demand.

A path is a trace event file, a directory with such files (of several ranks, of several runs of a script), a directory
of raw files (a job's, a `*_ascend_ms`, a `PROF_*`, or one that holds several of them), or one raw file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from instrument.analyse import trace_files
from instrument.analyse.table import ColumnData, Table
from instrument.errors import InstrumentError, NoSuchRun
from instrument.paths import absent
from instrument.trace import load
from instrument.trace.events import Capture, Problem
from instrument.trace.files import RawFiles, folder_of, from_directory, groups_of
from instrument.trace.jsontext import mapping
from instrument.trace.kinds import kind_of
from instrument.trace.text import Buffer, Losses
from instrument.wording import ranges

#: Says in a `profiler_info_<rank>.json` that the folder is what an analysis saved, which is no source of another one.
WRITTEN_BY = "instrument"
#: How the directory begins in which the profiler collects the raw files of a window.
RAW_PREFIX = "profile_raw_"
_ROWS = ("start_ns", "stop_ns", "first_step", "last_step")


@dataclass(frozen=True, eq=False)
class WindowPart:
    """The raw files of one window that come from one place, an event file or a folder.

    `description` is the window's own file: when it was open, its steps, whether it is complete.
    """

    place: str
    number: int
    devices: tuple[int, ...]
    files: Mapping[str, Sequence[Buffer]]
    description: Mapping[str, object]
    problems: Sequence[Problem] = ()

    def captures(self) -> list[Capture]:
        """Parse the raw files to one capture for each device."""
        files = self.files if isinstance(self.files, RawFiles) else RawFiles(self.files)
        return load.captures(RawFiles(files, [*self.problems, *files.problems]))


def find(path: str) -> list[WindowPart]:
    """List the windows at `path`. Parts of one window, which are of different devices, have the same number.

    Raises:
        NoSuchRun: nothing of a profile is there.
        InstrumentError: it cannot be read.
    """
    if not os.path.exists(path):
        raise NoSuchRun(f"{path} {absent(path)}; a run, a trace event file or a directory of raw files is expected")
    try:
        parts = _find(path)
    except OSError as error:
        kind = NoSuchRun if isinstance(error, (FileNotFoundError, NotADirectoryError)) else InstrumentError
        raise kind(f"{path} cannot be read: {error.strerror or error}") from error
    if not parts:
        raise NoSuchRun(
            f"{path} holds nothing of a profile; expected a trace event file (events.out.events.profile.*), a run "
            f"directory with such files, or a directory of raw files.{_on_killed(path)}"
        )
    return parts


def _on_killed(path: str) -> str:
    """Return a sentence on windows that were opened and never closed: only their directories are left."""
    names = sorted(name for name in os.listdir(path) if name.startswith(RAW_PREFIX)) if os.path.isdir(path) else []
    if not names:
        return ""
    return (
        f" {names[-1]} is of a window that was not closed: the training is still in it or was killed there, and until "
        "a window is closed MindSpore keeps in memory what it records."
    )


def _find(path: str) -> list[WindowPart]:
    if not os.path.isdir(path):
        name = os.path.basename(path)
        if kind_of(name) is not None:
            with open(path, "rb") as file:
                return _of_folders(RawFiles({name: file.read()}), path)
        return [_of_window(window) for window in trace_files.windows(path)]
    directories = [folder for folder, _, _ in os.walk(path) if trace_files.files(folder)]
    if directories:
        return _of_event_files(sorted(directories))
    return _of_folders(_without_own(from_directory(path)), path)


# ---------------------------------------------------------------- event files


def _of_event_files(directories: Sequence[str]) -> list[WindowPart]:
    """Read the windows of several files. Those of one device are numbered as they were opened."""
    dated: list[tuple[int, WindowPart]] = []
    errors = []
    for file in (file for directory in directories for file in trace_files.files(directory)):
        try:
            dated += _by_start([_of_window(window) for window in trace_files.windows(file)])
        except NoSuchRun as error:
            errors.append(str(error))
    if not dated:
        raise NoSuchRun("; ".join(errors))
    parts = list(_numbered([part for _, part in sorted(dated, key=lambda pair: pair[0])]))
    lost = [Problem(text, "event file without any window", 1) for text in errors]
    parts[0] = replace(parts[0], problems=(*lost, *parts[0].problems))
    return parts


def _by_start(parts: Sequence[WindowPart]) -> Iterator[tuple[int, WindowPart]]:
    """Yield each window with the time when it was opened, or if unknown, with that of the window before it."""
    latest = 0
    for part in parts:
        start = _integer(part.description.get("start_ns"))
        latest = latest if start is None else start
        yield latest, part


def _of_window(window: trace_files.StoredWindow) -> WindowPart:
    description = _description(RawFiles(window.files))
    return WindowPart(window.path, window.number, (window.device,), window.files, description, window.problems)


# ---------------------------------------------------------------- raw files


def _of_folders(files: RawFiles, path: str) -> list[WindowPart]:
    """Make a part of each folder of a window: by the time when it was opened or by name, `path` itself last."""
    folders: dict[str, dict[str, list[memoryview]]] = {}
    for name in files:
        folders.setdefault(folder_of(name), {})[name] = files[name]
    ordered = []
    for folder, content in folders.items():
        devices = tuple(sorted({group.device for group in groups_of(RawFiles(content).without_slices())}))
        description = _description(RawFiles(content))
        start = description.get("start_ns")
        order = (not folder, start if isinstance(start, int) else 0, folder)
        place = os.path.join(path, folder) if folder else path
        ordered.append((order, WindowPart(place, 0, devices, content, description)))
    parts = [part for _, part in sorted(ordered, key=lambda pair: pair[0]) if part.devices]
    for problem in files.problems:
        folder = folder_of(problem.file)
        place = os.path.join(path, folder) if folder else path
        index = next((index for index, part in enumerate(parts) if part.place == place), 0)
        if parts:
            parts[index] = replace(parts[index], problems=(*parts[index].problems, problem))
    return list(_numbered(parts))


def _numbered(parts: Sequence[WindowPart]) -> Iterator[WindowPart]:
    """Number the windows of each device from 0."""
    following: dict[int, int] = {}
    for part in parts:
        number = max(following.get(device, 0) for device in part.devices)
        following |= dict.fromkeys(part.devices, number + 1)
        yield replace(part, number=number)


def _without_own(files: RawFiles) -> RawFiles:
    """Return `files` without the folders that an analysis saved."""
    own = set()
    for name in files:
        kind = kind_of(name)
        if kind is not None and kind.name == "profiler_info":
            info = mapping(files.joined(name), Losses(name))
            own |= {name.rpartition("/")[0]} if info.get("written_by") == WRITTEN_BY else set()
    kept = {name: files[name] for name in files if name.rpartition("/")[0] not in own}
    return RawFiles(kept, files.problems)


def _description(files: RawFiles) -> Mapping[str, object]:
    """Return the content of the file that describes a window, empty if instrument did not record it."""
    for name in files:
        kind = kind_of(name)
        if kind is not None and kind.name == "window":
            return mapping(files.joined(name), Losses(name))
    return {}


# ---------------------------------------------------------------- the list of windows


def choose(parts: Sequence[WindowPart], window: int, path: str) -> int:
    """Return the number of a window. Negative ones count from the end.

    Raises:
        InstrumentError: there is no such window.
    """
    numbers = sorted({part.number for part in parts})
    if window in numbers:
        return window
    if -len(numbers) <= window < 0:
        return numbers[window]
    raise InstrumentError(f"{path} has no window {window}; it has {ranges(numbers)}.")


def table(parts: Sequence[WindowPart], chosen: int) -> Table:
    """List the windows, one row a window and place: device, when it was open, its steps, whether it is complete."""
    rows = sorted(parts, key=lambda part: (part.number, part.devices))
    columns: dict[str, ColumnData] = {
        "window": [part.number for part in rows],
        "is_shown": [part.number == chosen for part in rows],
        "device": [ranges(part.devices) for part in rows],
    }
    for name in _ROWS:
        columns[name] = [_integer(part.description.get(name)) for part in rows]
    columns["complete"] = [_complete(part.description) for part in rows]
    columns["reason"] = [str(part.description.get("reason") or "") for part in rows]
    columns["place"] = [part.place for part in rows]
    return Table("windows", columns, "Windows")


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and abs(value) < 2**62 else None


def _complete(description: Mapping[str, object]) -> str:
    complete = description.get("complete")
    return "" if not isinstance(complete, bool) else "yes" if complete else "no"
