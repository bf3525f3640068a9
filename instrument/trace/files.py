"""The raw files of a window by name, wherever they come from, and which of them belong to one device.

A file is its pieces in order, so that what came in frames, or is mapped from disk, is not copied before it is needed. A
device writes its large files in slices; here they become one file again.

Files belong together by the folder that they are in, less the folders that the tools put in between, and by the number
of their device. A window of ours, and a folder of MindSpore, are of one process: its rank counts for all of them, also
where the device has another number.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from instrument.trace import tlv
from instrument.trace.events import Problem
from instrument.trace.kinds import ASCEND, OF_HOST, OF_RANK, Kind, kind_of
from instrument.trace.text import Buffer, csv_devices

_SLICE = re.compile(r"(?P<name>.+)\.slice_(?P<number>\d{1,18})", re.ASCII)
_SIDECARS = (".done", ".zip", ".join")
_DONE = ".done"
_LARGEST_DONE = 256
#: Smaller files are read: what is mapped must not be cut while it is in use.
_MAPPED_BYTES = 1 << 26
_FILE_SIZE = re.compile(rb"\s*filesize:\s*(\d{1,18})\s*")


class RawFiles(Mapping[str, "list[memoryview]"]):
    """Name, with "/" between folders, -> the bytes of the file, as its pieces in order."""

    def __init__(self, files: Mapping[str, Buffer | Sequence[Buffer]], problems: Sequence[Problem] = ()) -> None:
        self._files = {name: _pieces(content) for name, content in files.items()}
        self.problems = list(problems)

    def __getitem__(self, name: str) -> list[memoryview]:
        return self._files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def size(self, name: str) -> int:
        return sum(len(piece) for piece in self._files[name])

    def joined(self, name: str) -> Buffer:
        """Return all of a file in one piece; a copy where it has several."""
        pieces = self._files[name]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def without_slices(self) -> RawFiles:
        """Return the same with slices put together by their numbers, and checked against their sidecars.

        Files of a kind and device that are in a job's folder and in its `data/`, too, are taken from the former.
        """
        problems = self.problems + [problem for name in self for problem in self._check(name)]
        slices: dict[str, dict[int, str]] = {}
        for name in self:
            if not name.endswith(_SIDECARS):
                match = _SLICE.fullmatch(name)
                numbered = slices.setdefault(match["name"] if match else name, {})
                if numbered.setdefault(int(match["number"]) if match else 0, name) != name:
                    problems.append(Problem(name, "bytes of a slice that is there twice", self.size(name)))
        files = {}
        for name, numbered in slices.items():
            if (twin := _in_job_folder(name)) in slices and twin != name:
                problems.append(Problem(name, "bytes of a file that is in the job's folder, too", self._size(numbered)))
                continue
            absent = max(numbered) + 1 - len(numbered)
            problems += [Problem(name, "slices that are missing", absent)] if absent else []
            files[name] = [piece for number in sorted(numbered) for piece in self._files[numbered[number]]]
        return RawFiles(files, problems)

    def _size(self, numbered: Mapping[int, str]) -> int:
        return sum(self.size(name) for name in numbered.values())

    def _check(self, name: str) -> Iterator[Problem]:
        """Check that a file is as long as its sidecar says, if that says anything."""
        is_told = name.endswith(_DONE) and self.size(name) <= _LARGEST_DONE
        match = _FILE_SIZE.fullmatch(self.joined(name)) if is_told else None
        subject = name.removesuffix(_DONE)
        if match and subject in self._files and self.size(subject) != int(match[1]):
            difference = abs(self.size(subject) - int(match[1]))
            yield Problem(subject, "bytes more or less than its .done file says", difference)


def _pieces(content: Buffer | Sequence[Buffer]) -> list[memoryview]:
    if isinstance(content, (bytes, bytearray, memoryview)):
        return [memoryview(content).cast("B")]
    return [memoryview(piece).cast("B") for piece in content]


def without_slice(name: str) -> str:
    """Return the name of the file that a slice is one of."""
    match = _SLICE.fullmatch(name)
    return match["name"] if match else name


def _in_job_folder(name: str) -> str:
    """The name that a file in `data/` would have in the folder above."""
    folders, slash, base = name.rpartition("/data/")
    if slash:
        return f"{folders}/{base}"
    return name.removeprefix("data/")


def from_directory(path: str | os.PathLike[str]) -> RawFiles:
    """Return the raw files in and below `path`, large ones mapped into memory; other files are passed over.

    A file that cannot be read is a problem. OSError: `path` is no directory that can be listed.
    """
    root = os.fspath(path)
    os.listdir(root)
    files: dict[str, Buffer] = {}
    problems = []
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            location = os.path.join(folder, name)
            relative = os.path.relpath(location, root).replace(os.sep, "/")
            if not _is_raw(relative) or not os.path.isfile(location):
                continue
            try:
                files[relative] = _content(location)
            except OSError as error:
                problems.append(Problem(relative, f"cannot be read: {error.strerror}", 1))
    return RawFiles(files, problems)


def _is_raw(name: str) -> bool:
    subject = name.removesuffix(_DONE)
    return kind_of(without_slice(subject)) is not None


def _content(path: str) -> Buffer:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < _MAPPED_BYTES:
            return file.read()
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


_BETWEEN = frozenset(
    {
        "ASCEND_PROFILER_OUTPUT", "FRAMEWORK", "container", "data", "host", "mindstudio_profiler_output", "profiler",
        "sqlite", "summary", "timeline",
    }
)  # fmt: skip
#: A device's folder of a job, and the folder of a later data pipeline of a window.
_NUMBERED = re.compile(r"(?:device|pipeline)_\d{1,9}", re.ASCII)
#: Folders of one job each: as long as there is only one, its files are those of the window.
_JOB = re.compile(r"(?:PROF_|JOB).+", re.ASCII)
_JOB_IN_NAME = re.compile(r"\.(JOB\w+)", re.ASCII)


#: Tables whose rows may be of several devices, as a column says.
_TABLES_OF_DEVICES = frozenset(
    {"kernel_details", "op_summary", "op_statistic", "step_trace_time", "memory_record", "memory_usage"}
)


class Group(NamedTuple):
    """The files of one device; `numbers` are those that the device's own files have for it."""

    device: int
    files: dict[str, list[str]]
    numbers: frozenset[int]


class _File(NamedTuple):
    name: str
    kind: Kind


def groups(names: Iterable[str], contents: Mapping[str, Set[int]] | None = None) -> list[Group]:
    """Return the known ones of `names` (without `.slice_<n>`), by device; each by kind, in the order of their names.

    `contents` are the devices that files themselves say they have rows of; such a file is in the group of each of them.
    """
    folders: dict[str, dict[str, list[_File]]] = {}
    for name in sorted(names):
        kind = kind_of(name)
        if kind is not None:
            folder, job = _place(name)
            devices = sorted((contents or {}).get(name, ()))
            files = [_File(name, kind._replace(device=device)) for device in devices] or [_File(name, kind)]
            folders.setdefault(folder, {}).setdefault(job, []).extend(files)
    result = []
    for jobs in folders.values():
        is_one = len(jobs.keys() - {""}) <= 1
        sets = [[file for files in jobs.values() for file in files]] if is_one else list(jobs.values())
        result += [group for files in sets for group in _by_device(files)]
    return result


def groups_of(files: RawFiles) -> list[Group]:
    """Return the files of each device, by their names and by what tables of several devices hold."""
    contents: dict[str, frozenset[int]] = {}
    for name in files:
        kind = kind_of(name)
        if kind is not None and kind.name in _TABLES_OF_DEVICES and kind.device is None:
            devices_in = tlv.devices if kind.name == "memory_usage" else csv_devices
            contents[name] = devices_in(files.joined(name))
    return groups(files, contents)


def folder_of(name: str) -> str:
    """Return the folder of the window that a file belongs to, less those that the tools put in between."""
    return _place(name)[0]


def _place(name: str) -> tuple[str, str]:
    """The folder of the window of a file, and the job in it, "" without one."""
    *folders, base = name.split("/")
    in_name = _JOB_IN_NAME.search(base)
    job = in_name[1] if in_name else ""
    while folders:
        is_number = folders[-1].isdecimal() and folders[-2:-1] == ["container"]
        if _JOB.fullmatch(folders[-1]):
            job = job or folders[-1]
        elif folders[-1] not in _BETWEEN and not is_number and not _NUMBERED.fullmatch(folders[-1]):
            break
        folders.pop()
    return "/".join(folders), job


def _by_device(files: list[_File]) -> list[Group]:
    ranks, hosts, devices = set[int](), set[int](), set[int]()
    for file in files:
        if file.kind.device is not None:
            kind = file.kind.name
            (ranks if kind in OF_RANK else hosts if kind in OF_HOST else devices).add(file.kind.device)
    ranks = ranks or hosts
    if len(ranks) <= 1 and len(devices) <= 1 and hosts <= ranks | devices:
        return [Group(min(ranks or devices or {0}), _by_kind(files), frozenset(devices or ranks or {0}))]
    numbers = ranks | hosts | devices
    sets = {number: [file for file in files if _is_of(file.kind, number, min(numbers))] for number in numbers}
    return [Group(number, _by_kind(sets[number]), frozenset({number})) for number in sorted(numbers)]


def _is_of(kind: Kind, device: int, first: int) -> bool:
    """Return True if a file is of a device: one that names none is of the first, but logs of the host are of all."""
    return kind.device == device or (kind.device is None and (device == first or kind.name == ASCEND))


def _by_kind(files: list[_File]) -> dict[str, list[str]]:
    by_kind: dict[str, list[str]] = {}
    for file in files:
        names = by_kind.setdefault(file.kind.name, [])
        if file.name not in names:
            names.append(file.name)
    return by_kind
