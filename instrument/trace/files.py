"""The raw files of a window by name, wherever they come from.

A file is its pieces in order, so that what came in frames, or is mapped from disk, is not copied before it is needed. A
device writes its large files in slices; here they become one file again.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from instrument.trace.events import Problem
from instrument.trace.kinds import kind_of
from instrument.trace.text import Buffer

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
        """All of a file in one piece; a copy where it has several."""
        pieces = self._files[name]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def without_slices(self) -> RawFiles:
        """The same with the slices of a file put together by their numbers, and checked against their sidecars.

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
    """The raw files in and below `path`, large ones mapped into memory; other files are passed over.

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
