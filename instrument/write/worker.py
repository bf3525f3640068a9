"""A worker's main: ring -> codec -> frame -> file.

`python -m instrument.write.worker CONFIG` is a plain child process in a session of its own. It inherits the pool's
shared memory, a bell (eventfd) for each worker and one for the trainer, and one end of a socket pair whose end-of-file
says that the trainer is gone: then it drains its ring and ends. It sleeps unless its bell rings; idle, it costs
nothing.

Each worker encodes ahead; files are appended to in order. The committed state lives in shared memory in two slots and
becomes valid with one 64-bit store, so it is never seen half written, whoever is killed when.
"""

from __future__ import annotations

import json
import marshal
import mmap
import os
import select
import signal
import socket
import sys
from typing import NamedTuple

from instrument.write import commit, message
from instrument.write.commit import Notice, State
from instrument.write.ring import CONTROL_BYTES, MORE, START, Chunk, Ring

#: One batch of small records is written with one system call; a larger batch would only be seen later.
_BATCH_BYTES = 1 << 20
#: After its last event a worker looks once more after so long, and need not be woken meanwhile: in a loop of small
#: events most of the cost is waking it.
_LINGER_MS = 2
#: Announcing sleep and publishing an event are ordered by no lock; one look after so long makes up for that.
_LAST_LOOK_MS = 50
#: Waiting for a turn is not idling: a look at the state this often guards against a bell that nobody rang.
_TURN_POLL_MS = 500
#: So long does a worker wait for others' commits once the trainer, who would replace a dead worker, is gone.
_ORPHAN_PATIENCE = 20
_TOUCH_AHEAD_BYTES = 8 << 20

_VERSION = 0
_SLOTS = (8, 24)
_LINES, _LINE = 64, 8  # a cache line a worker
_AWAITED, _IN_HAND, _ALIVE, _AWAKE = 0, 1, 2, 3  # its words there
MAX_WORKERS = 64
POOL_CONTROL_BYTES = (_LINES + MAX_WORKERS * _LINE) * 8


class Config(NamedTuple):
    """What a worker is told at its start.

    Descriptors are numbers that it inherits; `bells` has one a worker. `given_up` are the events to be left out.
    """

    worker: int
    memory: int
    memory_bytes: int
    ring_bytes: int
    bells: list[int]
    trainer_bell: int
    socket: int
    summary_path: str
    export_directory: str
    max_file_bytes: int | None
    given_up: list[int]

    def to_argument(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_argument(cls, argument: str) -> Config:
        return cls(*json.loads(argument))


class PoolMemory:
    """The pool's shared memory: the committed state, what each worker does, and a ring a worker."""

    def __init__(self, memory: memoryview, ring_bytes: int) -> None:
        self._words = memory[:POOL_CONTROL_BYTES].cast("Q")
        stride = CONTROL_BYTES + ring_bytes
        count = (len(memory) - POOL_CONTROL_BYTES) // stride
        starts = [POOL_CONTROL_BYTES + index * stride for index in range(count)]
        self.rings = [Ring(memory[start : start + stride]) for start in starts]

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

    def come_to_life(self, index: int) -> None:
        """Worker `index` is there."""
        self._words[_LINES + index * _LINE + _ALIVE] = 1

    def is_awake(self, index: int) -> bool:
        """Whether worker `index` will look into its ring without being told."""
        return bool(self._words[_LINES + index * _LINE + _AWAKE])

    def set_awake(self, index: int, awake: bool) -> None:
        self._words[_LINES + index * _LINE + _AWAKE] = awake

    def take_in_hand(self, index: int, sequence: int) -> None:
        """Worker `index` begins with this event: should it die, it died of it."""
        self._words[_LINES + index * _LINE + _IN_HAND] = sequence

    def await_turn(self, index: int, sequence: int) -> None:
        """Worker `index` wants its bell rung when everything before `sequence` is committed; 0 for no longer."""
        self._words[_LINES + index * _LINE + _AWAITED] = sequence

    def waiting_for(self, sequence: int) -> int | None:
        """The worker that waits to commit `sequence`."""
        for index in range(len(self.rings)):
            if self._words[_LINES + index * _LINE + _AWAITED] == sequence:
                return index
        return None

    def bury(self, index: int) -> tuple[bool, int]:
        """Whether dead worker `index` ever came to life, and the event that it left undone, 0 for none."""
        line = _LINES + index * _LINE
        was_alive, in_hand = bool(self._words[line + _ALIVE]), self._words[line + _IN_HAND]
        for word in (_AWAITED, _IN_HAND, _ALIVE, _AWAKE):
            self._words[line + word] = 0
        return was_alive, in_hand if in_hand > self.committed_sequence else 0


class Worker:
    """Takes events out of one ring until the trainer is gone and the ring is empty."""

    def __init__(self, config: Config) -> None:
        self._config = config
        memory = mmap.mmap(config.memory, config.memory_bytes)
        self._pool = PoolMemory(memoryview(memory), config.ring_bytes)
        self._ring = self._pool.rings[config.worker]
        self._bell = config.bells[config.worker]
        self._socket = socket.socket(fileno=config.socket)
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        self._poll.register(self._socket, select.POLLIN)
        self._committer = commit.Committer(config.max_file_bytes, self._report)
        self._position = self._ring.tail
        self._touched_bytes = 0
        self._trainer_is_gone = False
        self._gathered: memoryview | None = None
        self._gathered_bytes = 0
        self._pool.come_to_life(config.worker)
        self._pool.set_awake(config.worker, True)

    def run(self) -> None:
        while True:
            self._clear_bell()
            while (jobs := self._collect()) is not None:
                if jobs:
                    self._commit(jobs)
                self._ring.release(self._position)
                os.eventfd_write(self._config.trainer_bell, 1)
            if self._trainer_is_gone:
                break
            self._touch_ahead()
            self._rest()
        self._committer.close()

    def _rest(self) -> None:
        """Sleep until there may be something: for a moment as one who is awake, then until the bell rings."""
        self._wait(_LINGER_MS)
        if self._has_news():
            return
        self._pool.set_awake(self._config.worker, False)
        for timeout_ms in (0, _LAST_LOOK_MS, None):
            self._wait(timeout_ms)
            if self._has_news():
                break
        self._pool.set_awake(self._config.worker, True)

    def _has_news(self) -> bool:
        return self._trainer_is_gone or self._ring.head != self._position

    def _collect(self) -> list[commit.Job] | None:
        """Encode what the ring holds, up to a batch of consecutive events; None where it holds nothing."""
        jobs: list[commit.Job] = []
        size = 0
        chunk = self._ring.get(self._position)
        if chunk is None:
            return None
        while chunk is not None and (not jobs or (chunk.sequence == jobs[-1].sequence + 1 and size < _BATCH_BYTES)):
            self._pool.take_in_hand(self._config.worker, chunk.sequence)
            self._position = chunk.end
            size += len(chunk.payload)
            data = self._whole(chunk)
            if data is not None and chunk.sequence > self._pool.committed_sequence:
                jobs.append(self._encode(chunk.sequence, data))
            elif data is None:
                break  # a chunk of a large record was copied out: give its room back at once
            chunk = self._ring.get(self._position)
        return jobs

    def _whole(self, chunk: Chunk) -> memoryview | None:
        """The record that ends with this chunk; None while chunks of it are missing."""
        if chunk.flags == START:
            self._gathered = None
            return chunk.payload
        if chunk.flags & START:
            self._gathered, self._gathered_bytes = memoryview(mmap.mmap(-1, chunk.whole_bytes)), 0
        if self._gathered is None:
            return None  # the first chunks went to a predecessor; the trainer sends the record again
        end = self._gathered_bytes + len(chunk.payload)
        self._gathered[self._gathered_bytes : end] = chunk.payload
        self._gathered_bytes = end
        if chunk.flags & MORE:
            return None
        whole, self._gathered = self._gathered, None
        return whole

    def _encode(self, sequence: int, data: memoryview) -> commit.Job:
        event, lineage_path = message.unpack(data)
        paths = (self._config.summary_path, lineage_path)
        if sequence in self._config.given_up:
            self._report(Notice("lost", event.step, paths[0], "workers die of it"))
            return commit.Job(sequence, event.step, ([], []), paths, failed=True)
        if self._config.export_directory:
            commit.export_tensors(event, self._config.export_directory, self._report)
        return commit.encode(sequence, event, paths, self._report)

    def _commit(self, jobs: list[commit.Job]) -> None:
        self._await_turn(jobs[0].sequence)
        self._pool.state = self._committer.apply(self._pool.state, jobs)
        # The system call orders the store above before the look at who waits.
        os.eventfd_write(self._config.trainer_bell, 1)
        waiting = self._pool.waiting_for(jobs[-1].sequence + 1)
        if waiting is not None:
            os.eventfd_write(self._config.bells[waiting], 1)

    def _await_turn(self, sequence: int) -> None:
        if self._pool.committed_sequence == sequence - 1:
            return
        self._pool.await_turn(self._config.worker, sequence)
        patience, seen = _ORPHAN_PATIENCE, -1
        while (committed := self._pool.committed_sequence) != sequence - 1:
            if self._trainer_is_gone:
                patience = _ORPHAN_PATIENCE if committed != seen else patience - 1
                if patience == 0:
                    sys.exit(1)
            seen = committed
            self._wait(_TURN_POLL_MS)
            self._clear_bell()
        self._pool.await_turn(self._config.worker, 0)

    def _wait(self, timeout_ms: int | None) -> None:
        """Sleep until the bell rings or the trainer is gone."""
        for fd, _ in self._poll.poll(timeout_ms):
            if fd != self._bell:
                self._trainer_is_gone = True
                self._poll.unregister(self._socket)

    def _clear_bell(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass

    def _touch_ahead(self) -> None:
        goal = min(self._ring.head + _TOUCH_AHEAD_BYTES, self._ring.capacity_bytes)
        if goal > self._touched_bytes:
            self._ring.touch(self._touched_bytes, goal)
            self._touched_bytes = goal

    def _report(self, notice: Notice) -> None:
        try:
            self._socket.send(marshal.dumps(tuple(notice)), socket.MSG_DONTWAIT)
        except OSError:
            pass  # the trainer is gone or cannot listen; the counts in shared memory say it too


def main(argument: str) -> None:
    # The trainer decides when a worker ends: a signal to the whole job must not cost what was recorded before it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Worker(Config.from_argument(argument)).run()


if __name__ == "__main__":
    main(sys.argv[1])
