"""The pool: events go into shared-memory rings, worker processes encode them and write in order.

- `write` copies an event into the ring of one worker and rings its bell: no waiting, no encoding, no file. It stays
  with one worker as long as that one keeps up, and takes another, started when first needed, when its ring fills.
  What `stage` was given lies in the ring already.
- Each event has a sequence number; workers commit in that order (`worker.py`). An event is numbered, copied and
  published in this order, so that an exception in between leaves no gap.
- Workers outlive this process until they have written what it published, and are replaced when they die (`crew.py`).
  A thread that sleeps on their sockets notices it, and so does whoever waits for them.
- A record larger than a ring is sent in chunks, and `write` waits until it is committed: until then it could have to
  be sent again.
- While the disk takes nothing, events stay in the rings; when these are full, `write` answers False at once, and the
  first event that finds room again says in the file how many are missing.
- A signal handler may call anything here, also in the middle of a `write`: what it records then is refused.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from instrument import forks
from instrument.values import Event
from instrument.write import message, stream, watch
from instrument.write.commit import Notice, State, trim
from instrument.write.crew import Crew
from instrument.write.memory import round_up
from instrument.write.ring import MORE, Ring, chunks
from instrument.write.sink import (
    Files,
    FileSink,
    Missing,
    Notices,
    Sink,
    Stats,
    Target,
    full_files,
    log,
    upper_bound_bytes,
)  # fmt: skip
from instrument.write.worker import MAX_WORKERS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_RING_BYTES = 24 << 20

#: A worker with more than this share of its ring unread is busy: the next event goes to another.
_BUSY_SHARE = 0.25
#: From the first event of this size on, all of the rings' memory is made ready.
_LARGE_BYTES = 256 << 10
#: Waiting here is not idling: a look this often guards against a bell that nobody rang.
_WAIT_POLL_MS = 200
_WATCHER_EXIT_SECONDS = 10.0
#: So long does `flush` or `close` wait for a disk that takes nothing.
_FULL_DISK_PATIENCE_SECONDS = 3.0
_EXIT_SECONDS = 10.0


class _GaveUp(Exception):
    """Waiting is in vain: the sink was closed meanwhile, or there is no worker and none can be started."""


#: An event on its way: its ring, where the head of that stood, its sequence number, and whether it comes in chunks. It
#: is published when the head has moved.
_Sent = tuple[Ring, int, int, bool]


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
        self._ring_bytes = round_up(max(ring_bytes // count, 1 << 16))
        self._lock = threading.RLock()
        self._closed = False
        self._is_writing = False
        self._depth = 0
        self._is_warm = False
        self._next_sequence = 1
        self._step = 0
        self._sent: _Sent | None = None
        #: What `stage` was given for the next event: the `id` of each copy, its offset in the payload and itself.
        self._staged: dict[int, int] = {}
        self._staged_arrays: list[NDArray[np.generic]] = []
        self._missing = Missing(self._notices, files.summary_path)
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
        forks.tell(self)

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
            if self._closed:
                return False
            if self._is_writing:
                self._lost += 1  # the outer write is in the middle of saying what is missing
                return self._refuse(event, "it was recorded by a signal handler inside another record()")
            self._is_writing = True
            try:
                taken = self._write(event)
            except _GaveUp:
                taken = not self._closed and self._lose(event, "no worker can be started")
            finally:
                self._is_writing = False
                if self._staged:
                    self._forget_staged()
        if self._notices.is_unsaid:
            self._notices.say()
        return taken

    def stage(self, array: NDArray[np.generic]) -> NDArray[np.generic] | None:
        with self._lock:
            if self._closed or self._is_writing or not array.size:
                return None
            self._is_writing = True
            try:
                return self._stage(array)
            except _GaveUp:
                return None  # the write will say so
            finally:
                self._is_writing = False

    def _stage(self, array: NDArray[Any]) -> NDArray[np.generic] | None:
        if not self._staged:
            self._make_ready(array.nbytes)
            self._choose()
        ring = self._pool.rings[self._favourite]
        offset = ring.staged_bytes
        bytes_: Any = array.ravel().view("u1")
        piece = memoryview(bytes_)
        place = ring.stage(piece)
        if place is None:
            if self._drop_when_full or not ring.may_stage(len(piece)):
                return None
            # Its `write` would have to wait all the same, with a copy elsewhere.
            if not self._wait_for_room(lambda: ring.has_room(len(piece))) or (place := ring.stage(piece)) is None:
                return None
        import numpy as np

        copy = np.frombuffer(place, array.dtype).reshape(array.shape)
        self._staged_arrays.append(copy)
        self._staged[id(copy)] = offset
        return copy

    def _forget_staged(self) -> None:
        self._pool.rings[self._favourite].staged_bytes = 0
        self._staged.clear()
        self._staged_arrays.clear()

    def _write(self, event: Event) -> bool:
        self._step = event.step
        if self._missing.is_any:
            event = self._missing.before(event)
        try:
            lineage_path = self._files.lineage_path(event.items) if event.items else ""
            index = self._favourite if self._staged else self._choose()
            ring = self._pool.rings[index]
            packed = message.pack(event, lineage_path, self._staged, ring.staged_bytes)
        except OSError as error:
            return self._lose(event, os.strerror(error.errno or 0))
        except Exception as error:  # noqa: BLE001  one event's fault must not stop training, here as in a worker
            return self._lose(event, f"it cannot be encoded: {error!r:.500}")
        if self._target.max_file_bytes is not None and full_files(self._pool.state, event)[1]:
            self._dropped += 1
            return False
        if packed[1] > ring.largest_record_bytes:
            is_published = self._stream(index, event, lineage_path)
        else:
            is_published = self._publish(index, packed)
        if not is_published:
            return False
        if self._missing.is_any:
            self._missing.said()
        return not self._closed and (self._target.max_file_bytes is None or self._fits(event))

    def _lose(self, event: Event, reason: str) -> bool:
        self._lost += 1
        self._missing.add(event.step, reason)
        return self._refuse(event, reason)

    def _refuse(self, event: Event, reason: str) -> bool:
        self._notices.add(Notice("lost", event.step, self.path, reason))
        return False

    def _drop(self, is_stalled: bool) -> bool:
        """There is no room, maybe since the disk takes nothing: False."""
        self._dropped += 1
        if is_stalled:
            self._missing.add(self._step, "the disk took nothing")
        return False

    def _confirm(self) -> None:
        """Count the last event if it was published: an exception or a signal handler may have come in between."""
        if self._sent is None:
            return
        ring, head, sequence, in_chunks = self._sent
        if sequence < self._next_sequence or ring.head == head:
            return
        if in_chunks:  # its worker has all of it, unless that died meanwhile
            self._wait(lambda: self._is_committed(sequence) or ring.tail == ring.head)
            if not self._is_committed(sequence):
                return
        self._next_sequence = sequence + 1

    def _is_committed(self, sequence: int) -> bool:
        return self._pool.committed_sequence >= sequence

    def _make_ready(self, length: int) -> None:
        """From the first large event on, all of the rings' memory is needed."""
        if length > _LARGE_BYTES and not self._is_warm:
            self._is_warm = True
            self._crew.warm()

    def _publish(self, index: int, packed: message.Packed) -> bool:
        self._confirm()
        pieces, length, head_offset = packed
        if length > _LARGE_BYTES:
            self._make_ready(length)
        ring, sequence = self._pool.rings[index], self._next_sequence
        self._sent = (ring, ring.head, sequence, False)  # in case that something comes between the next two lines
        if not ring.put(pieces, length, sequence, head_offset):
            if self._drop_when_full:
                return self._drop(self._pool.is_stalled)
            put = functools.partial(ring.put, pieces, length, sequence, head_offset)
            if not self._wait_for_room(put):
                return self._drop(is_stalled=True)
        self._next_sequence = sequence + 1
        self._sent = None
        if not self._closed:
            self._crew.wake(index)
        return True

    def _wait_for_room(self, is_done: Callable[[], bool]) -> bool:
        """Wait until `is_done`; False where the disk takes nothing, for which training does not wait."""
        is_in_vain = False

        def is_over() -> bool:
            nonlocal is_in_vain
            if is_done():
                return True
            is_in_vain = self._pool.is_stalled
            return is_in_vain

        self._wait(is_over, stalls=True)
        return not is_in_vain

    def _choose(self) -> int:
        """The worker for the next event: the same as before unless it is busy, then the least busy one."""
        rings = self._pool.rings
        if len(rings) == 1:
            return 0
        backlog = [ring.head - ring.tail for ring in rings]
        if backlog[self._favourite] > self._ring_bytes * _BUSY_SHARE:
            self._favourite = min(range(len(rings)), key=backlog.__getitem__)
        if not self._crew.ensure(self._favourite):
            self._favourite = min(self._crew.employed, key=backlog.__getitem__)
        return self._favourite

    def _stream(self, index: int, event: Event, lineage_path: str) -> bool:
        """Send a large event through the ring in chunks, and wait until it is written."""
        self._confirm()
        ring = self._pool.rings[index]
        if self._drop_when_full and ring.head != ring.tail:
            return self._drop(self._pool.is_stalled)
        self._make_ready(self._ring_bytes)
        items = [
            item._replace(payload=item.payload.copy()) if id(item.payload) in self._staged else item  # type: ignore[union-attr]
            for item in event.items
        ]
        ring.staged_bytes = 0
        items.sort(key=lambda item: item.kind == "tensor")  # what has to be gathered comes first
        buffers = message.pack_for_stream(event._replace(items=items), lineage_path, stream.passes)
        sequence = self._next_sequence
        if not self._wait_for_room(lambda: self._is_committed(sequence - 1)):
            return self._drop(is_stalled=True)
        before = self._pool.state
        while not self._is_committed(sequence):
            self._send_in_chunks(index, buffers, sequence)
        self._next_sequence = sequence + 1
        after = self._pool.state
        if after.lost == before.lost:
            return True
        if after.summary_bytes == before.summary_bytes:  # where it could not be encoded the file says so already
            self._missing.add(event.step, "it could not be written")
        return False

    def _send_in_chunks(self, index: int, buffers: list[bytes | memoryview], sequence: int) -> None:
        """Send it once, to a worker that may die meanwhile."""
        ring, process = self._pool.rings[index], self._crew.process(index)
        self._sent = None

        def is_over() -> bool:
            return self._is_committed(sequence) or self._crew.process(index) is not process

        for chunk, flags in chunks(buffers, self._ring_bytes // 256 * 64):
            put = functools.partial(ring.put, [chunk], len(chunk), sequence, 0, flags)
            if not flags & MORE:
                self._sent = (ring, ring.head, sequence, True)
            self._wait(lambda put=put: is_over() or put(), stalls=True)  # type: ignore[misc]
            self._crew.wake(index)
        self._wait(is_over, stalls=True)

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

    def _wait_for_all(self, patience_seconds: float = 0.0) -> bool:
        """Wait until everything is committed; False where the disk has taken nothing for so long."""
        self._confirm()

        def is_over() -> bool:
            return self._is_committed(self._next_sequence - 1) or (
                self._pool.is_stalled and self._pool.stalled_seconds >= patience_seconds
            )

        self._wait(is_over)
        return self._is_committed(self._next_sequence - 1)

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
            if self._closed:
                return
            self._settle()
            if sync:
                self._files.sync(self._notices.add)
        self._notices.say()

    def _settle(self, is_end: bool = False) -> None:
        try:
            is_settled = self._wait_for_all(_FULL_DISK_PATIENCE_SECONDS)
            if not is_settled and is_end:
                self._pool.give_up()
                deadline = time.monotonic() + _EXIT_SECONDS
                self._wait(lambda: self._is_committed(self._next_sequence - 1) or time.monotonic() > deadline)
            elif not is_settled:
                text = "%d events wait in memory until %s can be written again."
                self._notices.note(logging.ERROR, text, self.stats.pending, self.path)
            self._service()
        except _GaveUp:
            if not (self._closed or is_end):
                reason = f"no worker can be started, and {self.stats.pending} events wait for one"
                self._notices.add(Notice("lost", self._step, self.path, reason))

    def close(self) -> None:
        with self._inside() as is_outermost:
            if self._closed:
                return
            try:
                self._settle(is_end=True)
                if is_outermost and self._missing.is_any and self._is_committed(self._next_sequence - 1):
                    self._say_what_is_missing()
            finally:
                if not self._closed:  # a signal handler may have done it meanwhile
                    self._end(is_outermost)
        self._notices.say()
        # The outer call holds the lock that the watching thread may want.
        if is_outermost and threading.current_thread() is not self._watcher:
            self._watcher.join(_WATCHER_EXIT_SECONDS)

    def _say_what_is_missing(self) -> None:
        """The last chance for it: no event comes that could."""
        if self._staged:
            self._forget_staged()
        try:
            if self._publish(self._choose(), message.pack(self._missing.event, "")):
                self._wait_for_all()
                self._missing.said()
        except _GaveUp:
            self._next_sequence = self._pool.committed_sequence + 1  # it is no event that could be missing

    def _end(self, is_outermost: bool) -> None:
        self._closed = True
        forks.forget(self)
        self._crew.end()
        self._last_state = self._pool.state
        trim(self.path, self._last_state.summary_bytes)  # a worker may have died in a large event that was given up
        left = self._next_sequence - 1 - self._last_state.sequence
        if left:
            self._lost += left
            self._next_sequence -= left
            why = "no worker can be started" if self._crew.is_hopeless else "there was no time"
            reason = f"{left} events could not be written until the end: {why}"
            self._notices.add(Notice("lost", self._step, self.path, reason))
        if is_outermost:  # an outer call still has these in its hands
            self._sent = None
            self._forget_staged()
            del self._crew, self._pool  # gives the shared memory back

    def watch_once(self) -> float | None:
        with self._lock:
            if self._closed:
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
        self._staged = {}
