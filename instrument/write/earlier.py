"""A start in a directory that holds a run already goes on with it, and may replace what was recorded: said once.

What is being written at this moment, by another rank or another recorder, is no run that is over: points of files that
are open at once do not replace each other. Nor do those of another rank or host.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from instrument.codec import tensorboard
from instrument.codec.dialects import LAYOUTS
from instrument.eventfile import frame, names
from instrument.eventfile.writer import is_being_written

log = logging.getLogger("instrument")

_told: set[str] = set()
_is_continuing = ContextVar("_is_continuing", default=False)


@contextmanager
def continuing() -> Iterator[None]:
    """Recorders that are made in here go on with what the same caller recorded before; nothing is said of it."""
    token = _is_continuing.set(True)
    try:
        yield
    finally:
        _is_continuing.reset(token)


def mention(path: str) -> None:
    """Say it of the directory of a recorder's file, which holds nothing yet."""
    directory = os.path.dirname(path)
    own = names.recognise(os.path.basename(path))
    if own is None or directory in _told or _is_continuing.get():
        return
    try:
        found = _last_written(path, own)
    except OSError:
        return  # who cannot list the directory cannot read a run there either
    if found is None:
        return
    _told.add(directory)
    kind, last_written = found
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last_written))
    if kind != own.kind:
        _tell_of_another_dialect(directory, when, kind)
        return
    log.warning(
        "%s holds a run already, last written %s, and this start goes on with it: from the first step that it records "
        "on, its values of a tag take the place of the older ones, which are then read with superseded=True. For a run "
        "of its own, give a directory of its own.", directory, when,
    )  # fmt: skip


def _tell_of_another_dialect(directory: str, when: str, kind: str) -> None:
    if kind == names.SUMMARY:
        log.warning(
            "%s holds a run in MindSpore's files already, last written %s: readers take TensorBoard's files, which "
            "this start writes, for copies of those and pass them over. Give this start a directory of its own, or the "
            'dialect "both".', directory, when,
        )  # fmt: skip
    else:
        log.warning(
            "%s holds a run in TensorBoard's files already, last written %s: readers take them for copies of "
            "MindSpore's files, which this start writes, and pass them over from now on. Give this start a directory "
            "of its own.",
            directory, when,
        )  # fmt: skip


def _last_written(path: str, own: names.EventFileName) -> tuple[str, float] | None:
    """The kind of the older files that this one has to do with, and when the last of them was written.

    Where there are files of MindSpore's dialect, of any writer, TensorBoard's count for copies.
    """
    older = _older(path)
    mindspores = [(name, entry) for name, entry in older if name.kind == names.SUMMARY]
    if own.kind == names.TENSORBOARD and (written := _last_of(mindspores, names.SUMMARY)) is not None:
        return names.SUMMARY, written
    kind = own.kind
    if kind == names.SUMMARY and not mindspores:
        kind = names.TENSORBOARD
        found = [(name, entry) for name, entry in older if name.kind == kind and _is_ours(entry.path)]
    else:
        found = [(name, entry) for name, entry in older if name.kind == kind and name.writer == own.writer]
    written = _last_of(found, kind)
    return None if written is None else (kind, written)


_Older = list[tuple[names.EventFileName, "os.DirEntry[str]"]]


def _older(path: str) -> _Older:
    """The other event files of the directory, without lineage."""
    with os.scandir(os.path.dirname(path)) as entries:
        named = [(names.recognise(entry.name), entry) for entry in entries if entry.path != path]
    return [(name, entry) for name, entry in named if name is not None and not name.is_lineage]


def _last_of(files: _Older, kind: str) -> float | None:
    """When the last of those files of one kind was written that hold an event and are not being written."""
    empty_bytes = _version_bytes(kind) if files else 0
    found = []
    for _, entry in files:
        with suppress(FileNotFoundError):  # deleted at this moment
            status = entry.stat()
            if status.st_size > empty_bytes:
                found.append((status.st_mtime, entry.path))
    # The last ones first: a directory may hold thousands, and each question opens a file.
    return next((written for written, path in sorted(found, reverse=True) if not is_being_written(path)), None)


def _is_ours(path: str) -> bool:
    """Whether a recorder wrote the file: those that other tools write in TensorBoard's dialect are no copies."""
    try:
        with open(path, "rb") as file:
            return tensorboard.WRITER.encode() in file.read(_version_bytes(names.TENSORBOARD))
    except OSError:
        return False  # deleted at this moment, or not for us to read


def _version_bytes(kind: str) -> int:
    """The length of a file without an event."""
    dialect = "tensorboard" if kind == names.TENSORBOARD else "mindspore"
    return sum(map(len, frame.pack(LAYOUTS[dialect].version(0, 1.0))))
