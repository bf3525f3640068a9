"""Write the folder of an export: file names that are safe for any tag, and files that are whole or absent."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import IO, Any

from instrument.atomic_write import replacing
from instrument.errors import InstrumentError

_LONGEST_BYTES = 150
#: A folder with such a name was meant to be a file.
_FILES = (".csv", ".json", ".jsonl", ".parquet", ".npy", ".npz", ".png")
_KEPT = "._-+=,() "


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
