"""A worker process: ring -> codec -> frame -> file.

The problem: several processes encode events at the same time, the file must hold them in the order of recording, and
each of them, or the trainer, may be killed between any two instructions.

The strategy:

- A worker is started isolated (`processes.py`): nothing of the user's is on its path. It inherits the shared memory, an
  eventfd ("bell") for each worker and one for the trainer, and one end of a socket pair whose end-of-file means that
  the trainer is gone: then it drains its ring and ends. It sleeps until its bell rings; idle, it costs nothing.
- Workers encode in parallel and commit in sequence order: a worker waits until its event is next, commits it, and wakes
  the worker that holds the following event. While the disk takes nothing, that worker keeps its events and tries again,
  and the rings keep the rest.
- A worker that dies may have left anything behind the committed length of a file, and nothing before it. Its successor
  starts at the ring's tail, skips what is committed, and cuts the file. If the predecessor died over a record, the
  successor commits one record at a time up to that one, so that the culprit is known if it happens again.

Rejected: a lock around the files. It would have to be freed after a death, and the order of the numbers is needed
anyway. Rejected as well: one worker that writes what the others encode. The bytes would cross another ring, and the
death of that worker would stop all.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
import time

from instrument.processes import Process
from instrument.ringfile import locks
from instrument.ringfile.commit import Diagnostic, Job
from instrument.ringfile.control import State
from instrument.write.consumer import BATCH_BYTES, Consumer, free_bytes
from instrument.write.pool_memory import Config, PoolMemory, remove

#: In a loop of small events most of the cost is waking a worker: it stays awake this long after its last event, and
#: looks once more.
_LINGER_MS = 2
#: No lock orders announcing sleep and publishing an event; one more look after this time makes up for that.
_LAST_LOOK_MS = 50
#: Waiting for a turn is not idling: a look at the state this often guards against a bell that nobody rang.
_TURN_POLL_MS = 500
#: How often a worker looks for others' commits once the trainer, which would replace a dead worker, is gone.
_ORPHAN_LOOKS = 20
#: Between two attempts to write to a disk that is full; and how long to go on with that when the trainer is gone.
_RETRY_SECONDS = 0.2
_ORPHAN_PATIENCE_SECONDS = 30.0
_ORPHAN_LOOKS_WHILE_STALLED = 80
#: How many attempts are skipped while the file system has no room; quotas are not in what it reports.
_RETRIES_WITHOUT_ROOM = 10
#: How long a worker waits for a trainer that dies to let the ring go, and how often it asks meanwhile.
_TRAINER_EXIT_SECONDS, _TRAINER_POLL_SECONDS = 2.0, 0.05
_NICE = 10


class Worker:
    """Takes events out of one ring until the trainer is gone and the ring is empty."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._index = config.worker
        self._memory, self._has_own_lock = _reopened(config.memory)
        self._pool = PoolMemory(self._memory)
        self._ring = self._pool.rings[config.worker]
        self._bell = config.bells[config.worker]
        self._socket = socket.socket(fileno=config.socket)
        self._trainer = Process(config.trainer)
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        self._poll.register(self._socket, select.POLLIN)
        self._consumer = Consumer(self._pool, config.directory, config.poisoned, self._report)
        # Any other process that was started for this ring is dead before this one looks into it.
        fcntl.lockf(config.gate, fcntl.LOCK_EX, 1, config.worker)
        self._position = self._ring.tail
        self._lingers = self._trainer_is_gone = False
        self._pool.set_awake(self._index, True)
        self._pool.mark_ready(self._index)

    def run(self) -> None:
        while True:
            self._clear_bell()
            while self._work():
                self._release()
            if self._trainer_is_gone:
                break
            self._rest()
        self._consumer.committer.close()
        self._socket.close()
        if all(ring.head == ring.tail for ring in self._pool.rings) and self._is_last():
            self._consumer.trim()
            if self._config.ring_path:
                remove(self._config.ring_path, self._memory)

    def _is_last(self) -> bool:
        """Return True if neither the trainer nor another worker is left, and nobody will come.

        A trainer that closes has set `is_over`. It needs no help, and waits for this process. One that dies closes its
        sockets first and lets the ring go a little later.
        """
        deadline = time.monotonic() + (0.0 if self._pool.is_over else _TRAINER_EXIT_SECONDS)
        if not self._has_own_lock:
            return self._trainer.wait(max(deadline - time.monotonic(), 0.0))
        while not locks.acquire_exclusive(self._memory):
            if time.monotonic() >= deadline or self._trainer.wait(_TRAINER_POLL_SECONDS):
                # Of several workers each gives its lock up before it asks again: the last one to do so finds none.
                locks.release(self._memory)
                return locks.acquire_exclusive(self._memory)
        return True

    def _release(self) -> None:
        self._ring.release(self._position)
        os.eventfd_write(self._config.trainer_bell, 1)

    def _rest(self) -> None:
        """Sleep until there may be something: in a loop of events a moment while awake, then until the bell."""
        if self._lingers:
            self._wait(_LINGER_MS)
            if self._has_news():
                return
        began = time.monotonic()
        self._pool.set_awake(self._index, False)
        for timeout_ms in (0, _LAST_LOOK_MS, None):
            self._wait(timeout_ms)
            if self._has_news():
                break
        self._pool.set_awake(self._index, True)
        self._lingers = time.monotonic() - began < _LINGER_MS / 1000

    def _has_news(self) -> bool:
        return self._trainer_is_gone or self._ring.head != self._position

    def _work(self) -> bool:
        """Encode and commit what the ring holds, up to a batch of consecutive events; False where it holds nothing."""
        position = self._ring.after_padding(self._position)
        if position != self._position:  # at once: behind a padding a ring has little room, and the disk may be slow
            self._position = position
            self._release()
        chunk = self._ring.get(self._position)
        if chunk is None:
            return False
        jobs: list[Job] = []
        size = 0
        while chunk is not None and size < BATCH_BYTES:
            if jobs and (chunk.sequence != jobs[-1].sequence + 1 or chunk.sequence <= self._config.last_suspect):
                break
            self._position = chunk.end
            size += len(chunk.payload)
            if chunk.sequence > self._pool.committed_sequence:
                self._pool.claim(self._index, chunk.sequence)
                jobs.append(self._consumer.encode(chunk))
            chunk = self._ring.get(self._position)
        if jobs:
            self._commit(jobs)
        return True

    # ------------------------------------------------------------------ in order, into the files

    def _commit(self, jobs: list[Job]) -> None:
        self._await_turn(jobs[0].sequence)
        began = 0.0
        while True:
            try:
                state = self._consumer.committer.apply(self._pool.state, jobs)
                break
            except OSError as error:
                if self._gives_up(began):
                    if self._config.ring_path and os.fstat(self._memory).st_nlink:
                        sys.exit(1)  # the ring file keeps it
                    self._consumer.commit_what_fits(self._pool.state, jobs, self._publish)
                    self._pool.set_stalled(self._index, 0)
                    return
                if not began:
                    began = time.monotonic()
                    self._stall(jobs[0], os.strerror(error.errno or 0), began)
                self._pool.claim(self._index, 0)  # if the worker dies now, the record is not to blame
                self._wait_for_disk(jobs)
                self._pool.claim(self._index, jobs[-1].sequence)
        if began:  # now: a process that `_publish` wakes must not take the disk for full
            self._pool.set_stalled(self._index, 0)
        self._publish(state)

    def _gives_up(self, began: float) -> bool:
        """Return True if nothing will make room any more; `began` is when the first attempt failed, 0 for just now."""
        is_late = began > 0 and time.monotonic() - began > _ORPHAN_PATIENCE_SECONDS
        return self._is_ending or (self._trainer_is_gone and is_late)

    @property
    def _is_ending(self) -> bool:
        """True when the trainer waits for nothing more."""
        return self._pool.is_closing or self._pool.is_over

    def _stall(self, job: Job, reason: str, began: float) -> None:
        """Report to the trainer that it must not wait for what is in the rings."""
        self._report(
            Diagnostic("stalled", job.step, job.paths[0], reason)
        )  # first: a trainer that sees the word below has the reason
        self._pool.set_stalled(self._index, int(began * 1000))
        os.eventfd_write(self._config.trainer_bell, 1)
        self._ring.seal()  # what stands there may stand there for long

    def _wait_for_disk(self, jobs: list[Job]) -> None:
        """Return when it is time to try again."""
        needed = sum(job.total_bytes for job in jobs)
        # Readers would see what an attempt writes in part and cuts off again.
        for _ in range(_RETRIES_WITHOUT_ROOM):
            until = time.monotonic() + _RETRY_SECONDS
            while (rest := until - time.monotonic()) > 0 and not self._is_ending:
                self._wait(int(rest * 1000) + 1)
                self._clear_bell()
            if self._is_ending or free_bytes(jobs[0].paths[0]) > needed:
                break

    def _publish(self, state: State) -> None:
        self._pool.state = state
        # The system call orders the store above before the look at the workers that wait.
        os.eventfd_write(self._config.trainer_bell, 1)
        waiting = self._pool.waiting_for(state.sequence + 1)
        if waiting is not None:
            os.eventfd_write(self._config.bells[waiting], 1)

    def _await_turn(self, sequence: int) -> None:
        if self._pool.committed_sequence == sequence - 1:
            return
        self._pool.await_turn(self._index, sequence)
        waited, last = 0, -1
        while (committed := self._pool.committed_sequence) != sequence - 1:
            waited = waited + 1 if self._trainer_is_gone and committed == last else 0
            if waited > (_ORPHAN_LOOKS_WHILE_STALLED if self._pool.is_stalled else _ORPHAN_LOOKS):
                sys.exit(1)
            last = committed
            self._wait(_TURN_POLL_MS)
            self._clear_bell()
        self._pool.await_turn(self._index, 0)

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

    def _report(self, diagnostic: Diagnostic) -> None:
        try:
            self._socket.send(json.dumps(diagnostic).encode(), socket.MSG_DONTWAIT)
        except OSError:
            pass  # the trainer is gone or does not receive; it has the counts in shared memory


def _reopened(fd: int) -> tuple[int, bool]:
    """Replace an inherited descriptor by one with a lock of its own; return it, and if it has the lock."""
    try:
        own = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return fd, False
    has_lock = locks.acquire_shared(own)
    os.close(fd)
    return own, has_lock


def _lower_priority() -> None:
    """Run behind the training: a worker that wakes must not take its processor in the middle of a record."""
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.nice(_NICE)
    except (OSError, AttributeError):
        pass  # not on this system, or not in this container


def main(argument: str) -> None:
    """Run a worker, with the configuration that its supervisor gave it."""
    # The trainer decides when a worker ends: a signal to the whole job must not cost what was recorded before it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # whatever the trainer has closed
    os.close(fd)
    _lower_priority()
    Worker(Config.from_argument(argument)).run()
