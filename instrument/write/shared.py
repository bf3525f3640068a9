"""What a trainer shares with its workers: the pool's memory, and what each worker is told at its start.

The committed state lies in two slots and becomes valid with one 64-bit store, so it is never seen half written, whoever
is killed when. All other words are written by one side only, or by the trainer for a worker that is dead.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from typing import NamedTuple

from instrument.codec.dialects import MINDSPORE
from instrument.ringfile.control import State
from instrument.write import memory
from instrument.write.ring import Ring

_VERSION, _IS_CLOSING, _IS_OVER = 0, 1, 2
_SLOTS = (8, 24)
_LINES, _LINE = 64, 8  # a cache line a worker
_AWAITED, _IN_HAND, _READY, _AWAKE, _STALLED, _TAIL = 0, 1, 2, 3, 4, 5  # its words there
MAX_WORKERS = 64
_HEADS = _LINES + MAX_WORKERS * _LINE  # and a line for what the trainer tells it
_CONTROL_BYTES = memory.round_up((_HEADS + MAX_WORKERS * _LINE) * 8)


class Config(NamedTuple):
    """What a worker is told at its start.

    Descriptors are numbers that it inherits; `bells` has one for each worker. `left_out` are the sequence numbers to be
    left out, and up to `last_suspect` records are committed singly (`poison.py`). `paths` are those of the recorder's
    files, empty for one that is not made yet; the first always is. `trainer` is the number of the trainer's process.
    """

    worker: int
    memory: int
    ring_bytes: int
    bells: list[int]
    trainer_bell: int
    socket: int
    paths: list[str]
    export_directory: str
    max_file_bytes: int | None
    left_out: list[int]
    last_suspect: int = 0
    dialect: str = MINDSPORE.dialect
    trainer: int = 0

    def to_argument(self) -> str:
        """Return it as ASCII; file names may hold any bytes, and the worker another encoding for them."""
        plain = self._replace(paths=list(map(_as_latin, self.paths)), export_directory=_as_latin(self.export_directory))
        return json.dumps(plain)

    @classmethod
    def from_argument(cls, argument: str) -> Config:
        config = cls(*json.loads(argument))
        return config._replace(
            paths=list(map(_from_latin, config.paths)), export_directory=_from_latin(config.export_directory)
        )


def _as_latin(path: str) -> str:
    return os.fsencode(path).decode("latin-1")


def _from_latin(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))


class PoolMemory:
    """The pool's shared memory: the committed state, what each worker does, and a ring a worker."""

    def __init__(self, fd: int, count: int, ring_bytes: int) -> None:
        self._count = count
        self._words = memoryview(mmap.mmap(fd, _CONTROL_BYTES)).cast("Q")
        self._datas = [memory.map_twice(fd, _CONTROL_BYTES + index * ring_bytes, ring_bytes) for index in range(count)]
        lines = range(0, count * _LINE, _LINE)
        self.rings = [
            Ring(data, self._words, _HEADS + line, _LINES + line + _TAIL)
            for data, line in zip(self._datas, lines, strict=True)
        ]

    @staticmethod
    def size_bytes(count: int, ring_bytes: int) -> int:
        return _CONTROL_BYTES + count * ring_bytes

    def populate(self) -> None:
        """Have all pages of the rings provided now."""
        for data in self._datas:
            memory.populate(data)

    # The valid slot is written to again two commits later: what was read while a commit came may be half of either.

    @property
    def state(self) -> State:
        while True:
            version = self._words[_VERSION]
            slot = _SLOTS[version % 2]
            words = self._words[slot : slot + len(State._fields)].tolist()
            if self._words[_VERSION] == version:
                return State(*words)

    @state.setter
    def state(self, state: State) -> None:
        version = self._words[_VERSION] + 1
        slot = _SLOTS[version % 2]
        for offset, value in enumerate(state):
            self._words[slot + offset] = value
        self._words[_VERSION] = version

    @property
    def committed_sequence(self) -> int:
        while True:
            version = self._words[_VERSION]
            sequence = self._words[_SLOTS[version % 2]]
            if self._words[_VERSION] == version:
                return sequence

    def is_ready(self, index: int) -> bool:
        """Return True if worker `index` has come as far as looking into its ring."""
        return bool(self._words[_LINES + index * _LINE + _READY])

    def set_ready(self, index: int) -> None:
        self._words[_LINES + index * _LINE + _READY] = 1

    def is_awake(self, index: int) -> bool:
        """Whether worker `index` will look into its ring without being told."""
        return bool(self._words[_LINES + index * _LINE + _AWAKE])

    def set_awake(self, index: int, awake: bool) -> None:
        self._words[_LINES + index * _LINE + _AWAKE] = awake

    @property
    def is_closing(self) -> bool:
        """Whether the trainer gives up what cannot be written now."""
        return bool(self._words[_IS_CLOSING])

    def give_up(self) -> None:
        self._words[_IS_CLOSING] = 1

    @property
    def is_over(self) -> bool:
        """Whether the trainer has told the workers to end."""
        return bool(self._words[_IS_OVER])

    def end(self) -> None:
        self._words[_IS_OVER] = 1

    @property
    def is_stalled(self) -> bool:
        """Whether a worker holds events that cannot be written at the moment."""
        return any(self._words[_LINES + index * _LINE + _STALLED] for index in range(self._count))

    @property
    def stalled_seconds(self) -> float:
        """For how long it has held them."""
        began = [self._words[_LINES + index * _LINE + _STALLED] for index in range(self._count)]
        return max((time.monotonic() - ms / 1000 for ms in began if ms), default=0.0)

    def set_stalled(self, index: int, began_ms: int) -> None:
        """Worker `index` holds such events since then, in milliseconds on the monotonic clock; 0 for no longer."""
        self._words[_LINES + index * _LINE + _STALLED] = began_ms

    def take_in_hand(self, index: int, sequence: int) -> None:
        """Worker `index` begins with this event: should it die, it died of it."""
        self._words[_LINES + index * _LINE + _IN_HAND] = sequence

    @property
    def is_busy(self) -> bool:
        """Whether a worker is in the middle of an event."""
        committed = self.committed_sequence
        return any(self._words[_LINES + index * _LINE + _IN_HAND] > committed for index in range(self._count))

    def await_turn(self, index: int, sequence: int) -> None:
        """Worker `index` wants its bell rung when everything before `sequence` is committed; 0 for no longer."""
        self._words[_LINES + index * _LINE + _AWAITED] = sequence

    def waiting_for(self, sequence: int) -> int | None:
        """The worker that waits to commit `sequence`."""
        for index in range(self._count):
            if self._words[_LINES + index * _LINE + _AWAITED] == sequence:
                return index
        return None

    def reset_worker(self, index: int) -> int:
        """Make the words of a dead worker those of a new one; return the record that it left undone, 0 for none."""
        line = _LINES + index * _LINE
        in_hand = self._words[line + _IN_HAND]
        for word in (_AWAITED, _IN_HAND, _READY, _AWAKE, _STALLED):
            self._words[line + word] = 0
        return in_hand if in_hand > self.committed_sequence else 0
