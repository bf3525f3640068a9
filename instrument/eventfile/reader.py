"""Read the frames of a file: what is whole and right, and a word for each place that is not."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass

from instrument.errors import CorruptFrame
from instrument.eventfile import frame


@dataclass(frozen=True)
class Damage:
    """`bytes_skipped` bytes at `offset` of `path` hold no valid frame. `torn` is True for an unfinished last frame."""

    path: str
    offset: int
    bytes_skipped: int
    reason: str
    torn: bool


class EventFileReader:
    """The payloads of one event file in file order; after iterating, `damage` lists what was passed over.

    `offset` is where the frame of the payload yielded last begins, in bytes from the start of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.damage: list[Damage] = []

    def __iter__(self) -> Iterator[memoryview]:
        """Yield each payload, a view into the mapped file that stays valid as long as it is kept."""
        self.damage = []
        data = _map(self.path)
        offset = 0
        while offset < len(data):
            try:
                found = frame.unpack(data, offset)
            except CorruptFrame as error:
                offset = self._skip(data, offset, error.reason)
                continue
            if found is None:
                offset = self._skip_unfinished(data, offset)
                continue
            self.offset = offset
            payload, offset = found
            yield payload

    def _skip(self, data: memoryview, offset: int, reason: str) -> int:
        following = frame.resume(data, offset)
        self.damage.append(Damage(self.path, offset, following - offset, reason, torn=False))
        return following

    def _skip_unfinished(self, data: memoryview, offset: int) -> int:
        # A frame that runs past the end is an unfinished write, unless whole frames stand behind its start.
        following = frame.find(data, offset + 1)
        torn = following == len(data)
        reason = "the file ends inside a frame" if torn else "the frame's length reaches past valid frames"
        self.damage.append(Damage(self.path, offset, following - offset, reason, torn))
        return following


def _map(path: str) -> memoryview:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
