"""Which raw files belong to one device.

Files belong together by the folder that they are in, less the folders that the tools put in between, and by the number
of their device. A window of ours, and a folder of MindSpore, are of one process: its rank counts for all of them, also
where the device has another number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from instrument.trace import csvtext, tlv
from instrument.trace.files import RawFiles
from instrument.trace.kinds import ASCEND, OF_HOST, OF_RANK, Kind, kind_of

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
    """The known ones of `names` (without `.slice_<n>`), by device; each by kind, in the order of their names.

    `contents` are the devices that files themselves say they have rows of; such a file is in the group of each of them.
    """
    scopes: dict[str, dict[str, list[_File]]] = {}
    for name in sorted(names):
        kind = kind_of(name)
        if kind is not None:
            scope, job = _place(name)
            told = sorted((contents or {}).get(name, ()))
            files = [_File(name, kind._replace(device=device)) for device in told] or [_File(name, kind)]
            scopes.setdefault(scope, {}).setdefault(job, []).extend(files)
    found = []
    for jobs in scopes.values():
        is_one = len(jobs.keys() - {""}) <= 1
        sets = [[file for files in jobs.values() for file in files]] if is_one else list(jobs.values())
        found += [group for files in sets for group in _by_device(files)]
    return found


def groups_of(files: RawFiles) -> list[Group]:
    """Return the files of each device, by their names and by what tables of several devices hold."""
    contents: dict[str, frozenset[int]] = {}
    for name in files:
        kind = kind_of(name)
        if kind is not None and kind.name in _TABLES_OF_DEVICES and kind.device is None:
            devices_in = tlv.devices if kind.name == "memory_usage" else csvtext.devices
            contents[name] = devices_in(files.joined(name))
    return groups(files, contents)


def folder_of(name: str) -> str:
    """The folder of the window that a file belongs to, without those that the tools put in between."""
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
    ranks, hosts, devices = (set(_numbers(files, of)) for of in (_is_rank, _is_host, _is_device))
    ranks = ranks or hosts
    if len(ranks) <= 1 and len(devices) <= 1 and hosts <= ranks | devices:
        return [Group(min(ranks or devices or {0}), _by_kind(files), frozenset(devices or ranks or {0}))]
    numbers = ranks | hosts | devices
    sets = {number: [file for file in files if _is_of(file.kind, number, min(numbers))] for number in numbers}
    return [Group(number, _by_kind(sets[number]), frozenset({number})) for number in sorted(numbers)]


def _numbers(files: list[_File], of: Callable[[str], bool]) -> Iterator[int]:
    return (file.kind.device for file in files if file.kind.device is not None and of(file.kind.name))


def _is_rank(kind: str) -> bool:
    return kind in OF_RANK


def _is_host(kind: str) -> bool:
    return kind in OF_HOST


def _is_device(kind: str) -> bool:
    return kind not in OF_RANK and kind not in OF_HOST


def _is_of(kind: Kind, device: int, first: int) -> bool:
    """Return True if a file is of a device: one that names none is of the first, but logs of the host are of all."""
    return kind.device == device or (kind.device is None and (device == first or kind.name == ASCEND))


def _by_kind(files: list[_File]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in files:
        names = found.setdefault(file.kind.name, [])
        if file.name not in names:
            names.append(file.name)
    return found
