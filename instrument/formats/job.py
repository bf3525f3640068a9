"""What the modules of all formats share: the job, its folder with file names that are safe for any tag, the result."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from instrument.atomic_write import replacing
from instrument.errors import InstrumentError
from instrument.runs.points import Points
from instrument.runs.run import Run

_LONGEST_BYTES = 150
#: A folder with such a name was meant to be a file.
_FILES = (".csv", ".json", ".jsonl", ".parquet", ".npy", ".npz", ".png")
_KEPT = "._-+=,() "


class Written(NamedTuple):
    """A file, or a folder of files, with the points that are in it; `tag` is empty if it holds all tags."""

    file: str
    kind: str
    tag: str
    points: int


class Folder:
    """A folder that is new or empty, or whose files may be replaced (`force`). It is made with the first file.

    Raises:
        InstrumentError: there is something at `path`; the message says what to do.
    """

    def __init__(self, path: str, force: bool = False) -> None:
        self.path = path
        if os.path.lexists(path) and not os.path.isdir(path):
            raise InstrumentError(f"{path} is a file; -o takes a folder, which is made where it is missing")
        if path.endswith(_FILES) and not os.path.isdir(path):
            raise InstrumentError(
                f"{path} is called like a file; -o takes a folder, which is made where it is missing, and files in it "
                "get names of their own"
            )
        if not force and os.path.isdir(path) and os.listdir(path):
            raise InstrumentError(
                f"{path} is not empty; give another folder, or --force to replace the files that have the same names"
            )

    def join(self, *parts: str) -> str:
        return os.path.join(self.path, *parts)

    def text(self, *parts: str) -> contextlib.AbstractContextManager[IO[str]]:
        """Open a new text file in UTF-8; it gets its name once all is in it."""
        return self._file(parts, "x", encoding="utf-8", errors="backslashreplace", newline="")

    def binary(self, *parts: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Open a new binary file; it gets its name once all is in it."""
        return self._file(parts, "xb")

    def _file(self, parts: tuple[str, ...], mode: str, **options: Any) -> contextlib.AbstractContextManager[IO[Any]]:
        path = self.join(*parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return replacing(path, mode, **options)


@dataclass
class Job:
    """An export in progress: the run, its tags, the folder to write to, and in words what was left out."""

    run: Run
    to: str
    folder: Folder
    tags: dict[str, list[str]]
    superseded: bool = False
    left_out: list[str] = field(default_factory=list)
    #: Called with each tag whose points are about to be written.
    on_tag: Callable[[str], None] = lambda tag: None

    def points(self, kind: str, tag: str) -> Points:
        """Return the points of a tag that are exported."""
        self.on_tag(tag)
        return self.run.points(kind, tag, self.superseded)

    def leave_out(self, kind: str, reason: str) -> None:
        """Note that a kind has no place in this format."""
        count = len(self.tags[kind])
        self.left_out.append(f"{count} {kind} tag{'s' * (count != 1)}: {reason}")


def safe_name(tag: str) -> str:
    """Return a file name for a tag, a different one for each: letters and digits of any script and `._-+=,() ` stay.

    Everything else stands as %XX, which `urllib.parse.unquote` turns back. A long one is cut, and ends in `~` and a
    digest of the whole.
    """
    last = len(tag) - 1
    chars = [
        char if char.isalnum() or (char in _KEPT and not (char in ". " and index in (0, last))) else _percent(char)
        for index, char in enumerate(tag)
    ]
    name = "".join(chars) or "%"
    if len(name.encode()) <= _LONGEST_BYTES:
        return name
    digest = hashlib.sha256(tag.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return name.encode()[: _LONGEST_BYTES - 17].decode(errors="ignore") + "~" + digest


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
