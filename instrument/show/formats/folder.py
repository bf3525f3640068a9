"""The folder that an export goes into: file names that are safe for any tag, and files that are whole or absent."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from typing import IO, Any

from instrument.errors import InstrumentError

_LONGEST_BYTES = 150
#: A folder whose name ends so was meant to be a file.
_FILES = (".csv", ".json", ".jsonl", ".parquet", ".npy", ".npz", ".png")
_KEPT = "._-+=,() "


def safe_name(tag: str) -> str:
    """A file name for a tag, a different one for each: letters and digits of any script and `._-+=,() ` stay.

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
    """A folder that is new or empty; with `force` one whose files may be replaced. It is made with the first file.

    Raises:
        InstrumentError: there is something already; the message says what to do.
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
        """A new text file in UTF-8; it has its name once all is in it."""
        return self._file(parts, "x", encoding="utf-8", errors="backslashreplace", newline="")

    def binary(self, *parts: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """A new file for bytes; it has its name once all is in it."""
        return self._file(parts, "xb")

    @contextlib.contextmanager
    def _file(self, parts: tuple[str, ...], mode: str, **options: Any) -> Iterator[Any]:
        path = self.join(*parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.part")
        try:
            with open(temporary, mode, **options) as file:
                yield file
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
