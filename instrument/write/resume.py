"""Starts of recorders in one directory: number them, warn where one resumes a run, and append how one ended.

A directory is a run, which may be started many times: after a crash, on another host, with the clock set back. Readers
have to know which starts go on from which, so that the newer values of a step count, and which were at work at the same
time, so that both are kept. Wall clocks of several hosts do not tell that. So each start has a number, one more than
the greatest number in the directory; and it lists the files without an end, with their sizes: a file that has grown
since belongs to a recorder that was at work at the same time, all others are over.

A start that continues a run may replace what was recorded, so it is warned about, once a directory. Files that another
recorder, or another rank, is writing at this moment are no run that is over: they are not replaced.

Rejected: locks on the files. File systems that clusters share often have none, and a worker that still writes for a
killed trainer holds one.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

from instrument.codec import lifecycle, tensorboard
from instrument.errors import CorruptFrame, CorruptMessage
from instrument.eventfile import frame, names
from instrument.eventfile.writer import EventFileWriter, is_being_written
from instrument.values import ENDED, FAILED, FINISHED, End, Start

log = logging.getLogger("instrument")

#: A start lists the newest files of those that have no end.
_MOST_UNFINISHED = 256
#: A start that lists as many files is no longer.
_HEAD_BYTES = 128 << 10
#: An end is never longer.
_TAIL_BYTES = 1 << 10
#: MindInsight lists no run with a file from a later second.
_LAST_SECOND = 253_402_300_799


class Beginning(NamedTuple):
    """A start, and the second for the names of its files: readers take files in the order of these."""

    start: Start
    seconds: int


class Extent(NamedTuple):
    """The start and the end that a file holds, and the bytes of what lies between them."""

    start: Start | None
    end: End | None
    content_bytes: int


def number_start(directory: str, kind: str, device: int) -> Beginning:
    """Return what a new recorder has to write down; `kind` and `device` are those of the names of its files."""
    files = list(event_files(directory, kind, device))
    extents = [(name, entry, extent_of(entry.path)) for name, entry in files]
    ended = {names.recorder_of(entry.name) for _, entry, extent in extents if extent.end is not None}
    unfinished = [
        (name.seconds, entry.name, _size(entry))
        for name, entry, _ in extents
        if names.recorder_of(entry.name) not in ended
    ]
    numbers = [extent.start.number for _, _, extent in extents if extent.start is not None]
    seconds = [name.seconds for name, _ in files if name.seconds < _LAST_SECOND]
    listed = {name: size for _, name, size in sorted(unfinished)[-_MOST_UNFINISHED:]}
    start = Start(os.urandom(8).hex(), max(numbers, default=0) + 1, listed)
    return Beginning(start, max([int(time.time()), *(second + 1 for second in seconds)]))


def event_files(directory: str, kind: str, device: int) -> list[tuple[names.EventFileName, os.DirEntry[str]]]:
    """Return the event files of a rank in a directory, without lineage; none where it cannot be listed."""
    try:
        with os.scandir(directory) as entries:
            named = [(names.recognise(entry.name), entry) for entry in entries]
    except OSError:
        return []
    return [
        (name, entry)
        for name, entry in named
        if name is not None and not name.is_lineage and (name.kind, name.device) == (kind, device)
    ]


def extent_of(path: str) -> Extent:
    """Return the start and the end in the first and the last event of a file; one that cannot be read has none."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
            size_bytes = os.fstat(file.fileno()).st_size
            file.seek(max(0, size_bytes - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES)
    except OSError:
        return Extent(None, None, 0)
    start, start_bytes = _first(head)
    end, end_bytes = _last(tail)
    return Extent(start, end, max(size_bytes - start_bytes - end_bytes, 0))


def _first(head: bytes) -> tuple[Start | None, int]:
    with suppress(CorruptFrame, CorruptMessage):
        if (unpacked := frame.unpack(head)) is not None:
            return lifecycle.start_in(unpacked[0]), unpacked[1]
    return None, 0


def _last(tail: bytes) -> tuple[End | None, int]:
    """Return the end in the last frame of a file, and the bytes of that frame."""
    for offset in range(len(tail) - frame.OVERHEAD_BYTES):
        if int.from_bytes(tail[offset : offset + 8], "little") == len(tail) - offset - frame.OVERHEAD_BYTES:
            with suppress(CorruptFrame, CorruptMessage):
                unpacked = frame.unpack(tail, offset)
                if unpacked is not None and (end := lifecycle.end_in(unpacked[0])) is not None:
                    return end, len(tail) - offset
    return None, 0


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return os.stat(entry.path).st_size  # that of the entry may be older on a network file system
    except OSError:
        return 0


def append_end(path: str, end: End, step: int, max_file_bytes: int | None) -> int:
    """Write how a recorder ended behind the last event of its first file, and return the bytes that this takes.

    0 where it cannot be: the file is gone, at its limit, or a worker that did not end in time still has it.
    """
    pieces = frame.pack(lifecycle.encode_end(end, step, time.time()))
    end_bytes = sum(map(len, pieces))
    try:
        size_bytes = os.path.getsize(path)
        if is_being_written(path) or size_bytes + end_bytes > (max_file_bytes or size_bytes + end_bytes):
            return 0
        writer = EventFileWriter(path)
        try:
            writer.append(pieces, size_bytes)
        finally:
            writer.close()
    except OSError:
        return 0
    return end_bytes


def end_of(error: BaseException | None) -> End:
    """Return the end of a recorder that is closed by an exception, or by none."""
    if error is None:
        return End(FINISHED)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  the exception is the user's, and so is what makes a text of it
        text = ""
    return End(FAILED, f"{type(error).__name__}: {text}" if text else type(error).__name__)


class Ending:
    """The last event of a recorder's first file. `end` is None in a forked child, whose file it is not."""

    def __init__(self, max_file_bytes: int | None) -> None:
        self.end: End | None = End(ENDED)
        self.step = 0
        #: Its size in the file.
        self.bytes = 0
        self._max_file_bytes = max_file_bytes

    def write(self, path: str) -> None:
        """Write it, when the recorder's last event is in the file."""
        end, self.end = self.end, None
        if end is not None:
            self.bytes = append_end(path, end, self.step, self._max_file_bytes)


# ---------------------------------------------------------------------- the warning

_warned: set[str] = set()
_is_continuing = ContextVar("_is_continuing", default=False)


@contextmanager
def continuing() -> Iterator[None]:
    """Have recorders that are made in this block continue a run without a warning: their caller recorded it."""
    token = _is_continuing.set(True)
    try:
        yield
    finally:
        _is_continuing.reset(token)


def warn_if_resumed(path: str) -> None:
    """Warn, once a directory, that a new recorder continues the run there; `path` is its file, which is still empty."""
    directory = os.path.dirname(path)
    own = names.recognise(os.path.basename(path))
    if own is None or directory in _warned or _is_continuing.get():
        return
    try:
        last = _last_written(path, own)
    except OSError:
        return  # a directory that cannot be listed cannot be read as a run either
    if last is None:
        return
    _warned.add(directory)
    kind, last_written = last
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last_written))
    if kind != own.kind:
        _warn_of_other_dialect(directory, when, kind)
        return
    log.warning(
        "%s holds a run already, last written %s, and this start goes on with it: from the first step that it records "
        "on, its values of a tag take the place of the older ones, which are then read with superseded=True. For a run "
        "of its own, give a directory of its own.", directory, when,
    )  # fmt: skip


def _warn_of_other_dialect(directory: str, when: str, kind: str) -> None:
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
    if own.kind == names.TENSORBOARD and (written := _last_write_time(mindspores)) is not None:
        return names.SUMMARY, written
    kind = own.kind
    if kind == names.SUMMARY and not mindspores:
        kind = names.TENSORBOARD
        files = [(name, entry) for name, entry in files if name.kind == kind and _is_from_recorder(entry.path)]
    else:
        files = [(name, entry) for name, entry in files if (name.kind, name.device) == (kind, own.device)]
    written = _last_write_time(files)
    return None if written is None else (kind, written)


_Files = list[tuple[names.EventFileName, "os.DirEntry[str]"]]


def _other_files(path: str) -> _Files:
    """Return the other event files of the directory, without lineage."""
    with os.scandir(os.path.dirname(path)) as entries:
        named = [(names.recognise(entry.name), entry) for entry in entries if entry.path != path]
    return [(name, entry) for name, entry in named if name is not None and not name.is_lineage]


def _last_write_time(files: _Files) -> float | None:
    """Return when the last of those files was written that hold an event and are not being written."""
    candidates = []
    for _, entry in files:
        with suppress(FileNotFoundError):  # deleted at this moment
            candidates.append((entry.stat().st_mtime, entry.path))
    # The last ones first: a directory may hold thousands, and each question opens a file.
    for written, path in sorted(candidates, reverse=True):
        if extent_of(path).content_bytes and not is_being_written(path):
            return written
    return None


def _is_from_recorder(path: str) -> bool:
    """Return True if a recorder wrote the file: those that other tools write in TensorBoard's dialect are no copies."""
    try:
        with open(path, "rb") as file:
            return tensorboard.WRITER.encode() in file.read(_VERSION_BYTES)
    except OSError:
        return False  # deleted at this moment, or not readable


#: The version of TensorBoard's dialect, which names the writer, is no longer.
_VERSION_BYTES = 64
