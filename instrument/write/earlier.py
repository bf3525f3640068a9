"""A start in a directory that holds a run already goes on with it, and may replace what was recorded: said once.

What is being written at this moment, by another rank or another recorder, is no run that is over: points of files that
are open at once do not replace each other. Nor do those of another rank or host.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from instrument.eventfile import names
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
    if directory in _told or _is_continuing.get():
        return
    try:
        last_written = max(_finished(path), default=None)
    except OSError:
        return  # who cannot list the directory cannot read a run there either
    if last_written is None:
        return
    _told.add(directory)
    log.warning(
        "%s holds a run already, last written %s, and this start goes on with it: from the first step that it records "
        "on, its values of a tag take the place of the older ones, which are then read with superseded=True. For a run "
        "of its own, give a directory of its own.", directory, time.strftime("%Y-%m-%d %H:%M:%S", last_written),
    )  # fmt: skip


def _finished(path: str) -> Iterator[time.struct_time]:
    """When each older file was written last that the points of this one can replace."""
    own = names.recognise(os.path.basename(path))
    empty_bytes = os.path.getsize(path)
    with os.scandir(os.path.dirname(path)) as entries:
        for entry in entries:
            name = names.recognise(entry.name)
            if name is None or own is None or entry.path == path or name.is_lineage:
                continue
            if (name.kind, name.writer) == (own.kind, own.writer) and not is_being_written(entry.path):
                status = entry.stat()
                if status.st_size > empty_bytes:
                    yield time.localtime(status.st_mtime)
