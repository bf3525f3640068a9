"""What a file is that is no event file, by its first bytes: for messages that say why it cannot be read."""

from __future__ import annotations

import os
import stat
import zlib

_READ_BYTES = 1 << 16
_TRACE = "a trace in Chrome's format, as torch's profiler writes it (https://ui.perfetto.dev opens it)"
#: How files begin -> what they are.
_BEGINNINGS = (
    (b"version https://git-lfs", "a pointer of Git LFS, which `git lfs pull` replaces by the file itself"),
    (b"PK\x03\x04", "a ZIP archive, as .npz files of NumPy and checkpoints of PyTorch are"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"PAR1", "a Parquet file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database, as Nsight Systems writes it"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"\x7fELF", "a program"),
    (b"\x28\xb5\x2f\xfd", "a file compressed with zstd"),
    (b"BZh", "a file compressed with bzip2"),
    (b"\xfd7zXZ", "a file compressed with xz"),
)
_SPECIAL = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def described(path: str) -> str:
    """Return in words what a file is: "a text file"; empty where its bytes do not tell, as those of an event file.

    Raises:
        OSError: it cannot be read.
    """
    mode = os.stat(path).st_mode
    for is_kind, words in _SPECIAL:
        if is_kind(mode):
            return words
    with open(path, "rb") as file:
        head = file.read(_READ_BYTES)
    return _of_bytes(head) if head else "an empty file"


def _of_bytes(head: bytes) -> str:
    if head.startswith(b"\x1f\x8b"):
        try:
            inner = zlib.decompressobj(31).decompress(head, _READ_BYTES)
        except zlib.error:
            inner = b""
        return f"{(inner and _of_bytes(inner)) or 'a file'}, compressed with gzip"
    for beginning, words in _BEGINNINGS:
        if head.startswith(beginning):
            return words
    return _of_text(head)


def _of_text(head: bytes) -> str:
    try:
        whole = head[:-4] if len(head) == _READ_BYTES else head  # the last character may be cut
        text = whole.decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""
    if not all(char.isprintable() or char.isspace() for char in text):
        return ""
    text = text.lstrip()
    if text.startswith(("{", "[")):
        is_trace = '"traceEvents"' in text or ('"ph"' in text and '"ts"' in text)
        return _TRACE if is_trace else "a JSON file"
    return "an HTML page" if text[:15].lower().startswith(("<!doctype html", "<html")) else "a text file"
