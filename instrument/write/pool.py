"""The pool: events go into shared-memory rings, worker processes encode them and write in order.

- `write` copies an event into the ring of one worker and rings its bell: no waiting, no encoding, no file. It stays
  with one worker as long as that one keeps up, and takes another, started when first needed, when its ring fills.
- Each event has a sequence number; workers commit in that order (`worker.py`). An event is numbered, copied and
  published in this order, so that an exception in between leaves no gap.
- Workers outlive this process until they have written what it published, and are replaced when they die (`crew.py`).
  A thread that sleeps on their sockets notices it, and so does whoever waits for them.
- A record larger than a ring takes is sent in chunks, and `write` waits until it is committed: until then it could
  have to be sent again.
- A signal handler may call anything here, also in the middle of a `write`: what it records then is refused.
"""

from __future__ import annotations

import errno
import functools
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from instrument.values import Event
from instrument.write import message, watch
from instrument.write.commit import Notice, State
from instrument.write.crew import Crew
from instrument.write.ring import MORE, Ring, chunks
from instrument.write.sink import Files, FileSink, Notices, Sink, Stats, Target, full_files, log, upper_bound_bytes
from instrument.write.worker import MAX_WORKERS

DEFAULT_RING_BYTES = 32 << 20

#: A worker with more than this share of its ring unread is busy: the next event goes to another.
_BUSY_SHARE = 0.25
#: From the first event of this size on, all of the rings' memory is made ready.
_LARGE_BYTES = 256 << 10
#: Waiting here is not idling: a look this often guards against a bell that nobody rang.
_WAIT_POLL_MS = 200
_WATCHER_EXIT_SECONDS = 10.0


class _GaveUp(Exception):
    """Waiting is in vain: the sink was closed meanwhile, or there is no worker and none can be started."""


class _Sent(NamedTuple):
    """An event on its way into a ring whose head stood at `head`: published when that has moved."""

    ring: Ring
    head: int
    sequence: int
    in_chunks: bool


def open_sink(target: Target, workers: int, ring_bytes: int = DEFAULT_RING_BYTES, drop_when_full: bool = False) -> Sink:
    """The sink for a target: a pool of `workers`, or one in this process for 0 and where no worker can be started.

    Raises:
        OSError: the target's directory cannot be made or written.
    """
    files = Files(target)
    if workers == 0:
        return FileSink(files)
    try:
        _check_system()
        return PoolSink(files, workers, ring_bytes, drop_when_full)
    except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
        reason = str(error)  # a log that keeps the error itself would keep what is open open
        log.warning("No worker can be started (%s): %s is written by the training process.", reason, files.summary_path)
        return FileSink(files)


def _check_system() -> None:
    for module, name in ((os, "memfd_create"), (os, "eventfd"), (select, "epoll")):
        if not hasattr(module, name):
            raise OSError(errno.ENOSYS, f"this system has no {name}")
    if not sys.executable:
        raise OSError(errno.ENOENT, "sys.executable names no interpreter")


class PoolSink:
    """Write through `workers` processes with `ring_bytes` of shared memory between them.

    Raises:
        OSError, RuntimeError: shared memory, descriptors, a process or a thread are not to be had.
    """

    def __init__(
        self, files: Files, workers: int, ring_bytes: int = DEFAULT_RING_BYTES, drop_when_full: bool = False
    ) -> None:
        count = min(workers, MAX_WORKERS)
        self._files = files
        self._target = files.target
        self._notices = Notices()
        self._drop_when_full = drop_when_full
        self._ring_bytes = max(ring_bytes // count // 4096, 16) * 4096
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._is_writing = False
        self._depth = 0
        self._is_warm = False
        self._next_sequence = 1
        self._step = 0
        self._sent: _Sent | None = None
        self._favourite = 0
        self._bound_bytes = self._files.summary_bytes
        self._stalled_seconds = 0.0
        self._dropped = 0
        self._lost = 0
        self._crew = Crew(files, self._notices, count, self._ring_bytes)
        self._pool = self._crew.pool
        try:
            self._watcher = watch.start(self, self._crew.watched, self._crew.watched_end)
        except BaseException:
            self._crew.disband()
            raise

    @property
    def path(self) -> str:
        return self._files.summary_path

    @property
    def stats(self) -> Stats:
        with self._lock:
            state = self._last_state if self._closed else self._pool.state
            return Stats(
                state.events, state.summary_bytes + state.lineage_bytes, self._next_sequence - 1 - state.sequence,
                self._stalled_seconds, self._dropped, state.lost + self._lost, self._notices.errors,
            )  # fmt: skip

    def take_error(self) -> Notice | None:
        return self._notices.take_first()

    # ------------------------------------------------------------------ the producer

    def write(self, event: Event) -> bool:
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return False
            if self._is_writing:
                return self._lose(event, "it was recorded by a signal handler inside another record()")
            self._is_writing = True
            try:
                taken = self._write(event)
            except _GaveUp:
                taken = not self._closed and self._lose(event, "no worker can be started")
            finally:
                self._is_writing = False
        self._notices.say()
        return taken

    def _write(self, event: Event) -> bool:
        self._step = event.step
        try:
            pieces = message.pack(event, self._files.lineage_path(event.items))
        except OSError as error:
            return self._lose(event, os.strerror(error.errno or 0))
        except Exception as error:  # noqa: BLE001  one event's fault must not stop training, here as in a worker
            return self._lose(event, f"it cannot be encoded: {error!r:.500}")
        is_full = self._target.max_file_bytes is not None and full_files(self._pool.state, event)[1]
        if is_full or not self._publish(pieces):
            self._dropped += 1
            return False
        return not self._closed and (self._target.max_file_bytes is None or self._fits(event))

    def _lose(self, event: Event, reason: str) -> bool:
        self._lost += 1
        self._notices.add(Notice("lost", event.step, self.path, reason))
        return False

    def _confirm(self) -> None:
        """Count the last event if it was published: an exception or a signal handler may have come in between."""
        sent = self._sent
        if sent is None or sent.sequence < self._next_sequence or sent.ring.head == sent.head:
            return
        if sent.in_chunks:  # its worker has all of it, unless that died meanwhile
            self._wait(lambda: self._is_committed(sent.sequence) or sent.ring.tail == sent.ring.head)
            if not self._is_committed(sent.sequence):
                return
        self._next_sequence = sent.sequence + 1

    def _is_committed(self, sequence: int) -> bool:
        return self._pool.committed_sequence >= sequence

    def _publish(self, pieces: list[bytes | memoryview]) -> bool:
        self._confirm()
        length = sum(map(len, pieces))
        if length > _LARGE_BYTES and not self._is_warm:
            self._is_warm = True
            self._crew.warm()
        index = self._choose()
        ring = self._pool.rings[index]
        if length > ring.largest_record_bytes:
            if self._drop_when_full and ring.head != ring.tail:
                return False
            self._send_in_chunks(index, pieces, length)
            return True
        self._sent = _Sent(ring, ring.head, self._next_sequence, in_chunks=False)
        if not ring.put(pieces, length, self._next_sequence):
            if self._drop_when_full:
                return False
            self._wait(functools.partial(ring.put, pieces, length, self._next_sequence), stalls=True)
        self._confirm()
        if not self._closed:
            self._crew.wake(index)
        return True

    def _choose(self) -> int:
        """The worker for the next event: the same as before unless it is busy, then the least busy one."""
        rings = self._pool.rings
        if len(rings) == 1:
            return 0
        backlog = [ring.head - ring.tail for ring in rings]
        if backlog[self._favourite] > self._ring_bytes * _BUSY_SHARE:
            self._favourite = min(range(len(rings)), key=backlog.__getitem__)
        if not self._crew.ensure(self._favourite):
            self._favourite = min(self._crew.running, key=backlog.__getitem__, default=self._favourite)
        return self._favourite

    def _send_in_chunks(self, index: int, pieces: list[bytes | memoryview], length: int) -> None:
        """Stream a large record through the ring and wait until it is committed, again from its start if need be."""
        ring, sequence = self._pool.rings[index], self._next_sequence
        while not self._is_committed(sequence):
            self._sent = None
            process = self._crew.process(index)

            def is_over(process: object = process) -> bool:
                return self._is_committed(sequence) or self._crew.process(index) is not process

            for chunk, flags in chunks(pieces, self._ring_bytes // 4):
                put = functools.partial(ring.put, [chunk], len(chunk), sequence, flags, length)
                if not flags & MORE:
                    self._sent = _Sent(ring, ring.head, sequence, in_chunks=True)
                self._wait(lambda put=put, is_over=is_over: is_over() or put(), stalls=True)  # type: ignore[misc]
                self._crew.wake(index)
            self._wait(is_over, stalls=True)
        self._next_sequence = sequence + 1

    def _wait(self, is_done: Callable[[], bool], stalls: bool = False) -> None:
        """Sleep until `is_done`, looking whenever a worker rings, and replacing workers that die meanwhile.

        Raises:
            _GaveUp: it will not be.
        """
        started = time.monotonic()
        try:
            while not self._closed:
                self._crew.clear_bell()
                if is_done():
                    return
                self._crew.hurry()
                if self._crew.is_hopeless:
                    break
                self._crew.sleep(_WAIT_POLL_MS)
                self._service()
            raise _GaveUp
        finally:
            if stalls:
                self._stalled_seconds += time.monotonic() - started

    def _service(self) -> None:
        self._crew.service()
        if not self._closed:
            self._crew.hand_over()

    # ------------------------------------------------------------------ the size limit

    def _fits(self, event: Event) -> bool:
        """Whether a published event is in the file. Near the limit only the encoded size tells, so it is waited for."""
        assert self._target.max_file_bytes is not None
        self._bound_bytes += upper_bound_bytes(event)
        if self._bound_bytes <= self._target.max_file_bytes:
            return True
        self._wait_for_all()
        state = self._pool.state
        self._bound_bytes = max(state.summary_bytes, state.lineage_bytes)
        is_refused = full_files(state, event)[0]
        self._dropped += is_refused
        return not is_refused

    def _wait_for_all(self) -> None:
        self._confirm()
        self._wait(lambda: self._is_committed(self._next_sequence - 1))

    # ------------------------------------------------------------------ the end

    @contextmanager
    def _inside(self) -> Iterator[bool]:
        """Hold the lock; whether this is the outermost call, and none of a signal handler in the middle of another."""
        with self._lock:
            self._depth += 1
            try:
                yield self._depth == 1 and not self._is_writing
            finally:
                self._depth -= 1

    def flush(self, sync: bool = False) -> None:
        with self._inside():
            if self._closed or os.getpid() != self._pid:
                return
            self._settle()
            if sync:
                self._files.sync(self._notices.add)
        self._notices.say()

    def _settle(self) -> None:
        try:
            self._wait_for_all()
            self._service()
        except _GaveUp:
            if not self._closed:
                reason = f"no worker can be started, and {self.stats.pending} events wait for one"
                self._notices.add(Notice("lost", self._step, self.path, reason))

    def close(self) -> None:
        with self._inside() as is_outermost:
            if self._closed or os.getpid() != self._pid:
                return
            try:
                self._settle()
            finally:
                if not self._closed:  # a signal handler may have done it meanwhile
                    self._end(is_outermost)
        self._notices.say()
        # The outer call holds the lock that the watching thread may want.
        if is_outermost and threading.current_thread() is not self._watcher:
            self._watcher.join(_WATCHER_EXIT_SECONDS)

    def _end(self, is_outermost: bool) -> None:
        self._closed = True
        self._last_state = self._pool.state
        self._crew.end()
        watch.forget(self)
        if is_outermost:  # an outer call still has these in its hands
            self._sent = None
            del self._crew, self._pool  # gives the shared memory back

    def watch_once(self) -> float | None:
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return None
            self._crew.service()
            seconds = self._crew.next_look_seconds
        self._notices.say()
        return -1 if seconds is None else seconds

    def abandon(self) -> None:
        self._crew.abandon()
        self._notices = Notices()
        self._lock = threading.RLock()  # whoever held it in the parent does not exist here
        self._closed = True
        self._last_state = State()
        self._next_sequence = 1
