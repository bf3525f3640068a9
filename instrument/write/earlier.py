"""A start in a directory that holds a run already goes on with it, and may replace what was recorded: said once.

What is being written at this moment, by another recorder, is no run that is over: points of files that are open at once
do not replace each other. Nor do those of another rank. A start on another host goes on with the run as well.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from instrument.codec import tensorboard
from instrument.eventfile import names
from instrument.eventfile.writer import is_being_written
from instrument.write import starts

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
    """Return the kind of the older files that this one has to do with, and when the last of them was written.

    Where there are files of MindSpore's dialect, of any rank, TensorBoard's count for copies.
    """
    files = _other_files(path)
    mindspores = [file for file in files if file[0].kind == names.SUMMARY]
    if own.kind == names.TENSORBOARD and (written := _last_of(mindspores)) is not None:
        return names.SUMMARY, written
    kind = own.kind
    if kind == names.SUMMARY and not mindspores:
        kind = names.TENSORBOARD
        found = [(name, entry) for name, entry in files if name.kind == kind and _is_ours(entry.path)]
    else:
        found = [(name, entry) for name, entry in files if (name.kind, name.device) == (kind, own.device)]
    written = _last_of(found)
    return None if written is None else (kind, written)


_Files = list[tuple[names.EventFileName, "os.DirEntry[str]"]]


def _other_files(path: str) -> _Files:
    """Return the other event files of the directory, without lineage."""
    with os.scandir(os.path.dirname(path)) as entries:
        named = [(names.recognise(entry.name), entry) for entry in entries if entry.path != path]
    return [(name, entry) for name, entry in named if name is not None and not name.is_lineage]


def _last_of(files: _Files) -> float | None:
    """Return when the last of those files was written that hold an event and are not being written."""
    found = []
    for _, entry in files:
        with suppress(FileNotFoundError):  # deleted at this moment
            found.append((entry.stat().st_mtime, entry.path))
    # The last ones first: a directory may hold thousands, and each question opens a file.
    for written, path in sorted(found, reverse=True):
        if starts.extent_of(path).content_bytes and not is_being_written(path):
            return written
    return None


def _is_ours(path: str) -> bool:
    """Return True if a recorder wrote the file: those that other tools write in TensorBoard's dialect are no copies."""
    try:
        with open(path, "rb") as file:
            return tensorboard.WRITER.encode() in file.read(_VERSION_BYTES)
    except OSError:
        return False  # deleted at this moment, or not for us to read


#: The version of TensorBoard's dialect, which names the writer, is no longer.
_VERSION_BYTES = 64
