"""The control words of a ring file: the committed state, and where each ring begins and ends.

Each word is written by one side with a single aligned 64-bit store. The committed state lies in two slots, and the
version word says which of them counts, so it is never seen half written, even if a process is killed during the store.
Each slot has a checksum, which matters after a crash of the machine. Producer and worker write to separate cache lines,
so they do not contend. The lines are adjacent, so that a few workers share one page.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from instrument.errors import CorruptMessage
from instrument.eventfile.crc import crc32c

MAX_WORKERS = 64
#: Words of the file as a whole; what lies between the last one and the slots, and behind these, the recorder may use.
VERSION, IS_CLOSING, IS_OVER, ATTEMPTS = 0, 1, 2, 3
_SLOTS = (8, 24)
_SLOT_WORDS = 16
#: Where a worker's words begin, and how many there are: a line that the worker writes, a line that the trainer writes.
_WORKERS, _WORKER_WORDS = 64, 16
TAIL, WORKER_PID, WORKER_START, HEAD = 0, 1, 2, 8
CONTROL_WORDS = _WORKERS + MAX_WORKERS * _WORKER_WORDS
_MASK = 0xFFFFFFFFFFFFFFFF


class State(NamedTuple):
    """What is committed: everything up to `sequence`.

    The lengths are those of the dialect's files in its order, and are called after those of the dialect "both".
    `full` has bit `1 << file` set for a file at its size limit; `refused` events, or parts of them, would have exceeded
    that.
    """

    sequence: int = 0
    summary_bytes: int = 0
    lineage_bytes: int = 0
    events: int = 0
    lost: int = 0
    full: int = 0
    refused: int = 0
    scalars_bytes: int = 0
    others_bytes: int = 0

    @property
    def lengths(self) -> list[int]:
        """Committed lengths of all files that there may be."""
        return [self.summary_bytes, self.lineage_bytes, self.scalars_bytes, self.others_bytes]


_FIELDS = struct.Struct(f"<{len(State._fields)}Q")


def word_of(worker: int, word: int) -> int:
    """Return the index of a word of a worker, such as `TAIL`."""
    return _WORKERS + worker * _WORKER_WORDS + word


class Control:
    """The control words of a file that processes share; `words` is a view of 64-bit numbers."""

    def __init__(self, words: memoryview) -> None:
        self.words = words

    # The valid slot is written to again two commits later: what was read while a commit came may be half of either.

    @property
    def state(self) -> State:
        while True:
            version = self.words[VERSION]
            slot = _SLOTS[version % 2]
            words = self.words[slot : slot + len(State._fields)].tolist()
            if self.words[VERSION] == version:
                return State(*words)

    @state.setter
    def state(self, state: State) -> None:
        version = self.words[VERSION] + 1
        slot = _SLOTS[version % 2]
        for offset, value in enumerate(state):
            self.words[slot + offset] = value
        self.words[slot + _SLOT_WORDS - 1] = _checksum(version, state)
        self.words[VERSION] = version

    @property
    def committed_sequence(self) -> int:
        while True:
            version = self.words[VERSION]
            sequence = self.words[_SLOTS[version % 2]]
            if self.words[VERSION] == version:
                return sequence

    def checked_state(self) -> State:
        """Return the state of a file that nobody writes any more.

        Raises:
            CorruptMessage: its checksum is wrong, or none was ever stored.
        """
        version, state = self.words[VERSION], self.state
        slot = _SLOTS[version % 2]
        if not version:
            raise CorruptMessage("no committed state was ever stored")
        if self.words[slot + _SLOT_WORDS - 1] != _checksum(version, state):
            raise CorruptMessage("the checksum of the committed state is wrong")
        return state


def _checksum(version: int, state: State) -> int:
    return crc32c(_FIELDS.pack(*state), version & 0xFFFFFFFF)
