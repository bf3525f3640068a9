"""The pool: events go into shared-memory rings, worker processes encode them and write in order.

- `write` copies an event into the ring of one worker and rings its bell: no waiting, no encoding, no file. It stays
  with one worker as long as that one keeps up, and takes another, started when first needed, when its ring fills.
- Each event has a sequence number; workers commit in that order (`worker.py`). An event is numbered, copied and
  published in this order, so that an exception in between leaves no gap.
- The pool's memory, bells and sockets are anonymous: nothing has a name that could be left behind. When this process
  ends, for whatever reason, the sockets' other ends see it, and the workers drain their rings and end.
- A worker that dies is replaced by a successor with the same ring, which skips what is committed. A thread that sleeps
  on the sockets notices it (and hears what workers have to say), and so does whoever waits.
- A record larger than a ring takes is sent in chunks, and `write` waits until it is committed: until then it could
  have to be sent again.
"""

from __future__ import annotations

import functools
import marshal
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple

from instrument.values import Event
from instrument.write import message
from instrument.write.commit import Notice, State
from instrument.write.ring import CONTROL_BYTES, MORE, START, Ring
from instrument.write.sink import Files, FileSink, Notices, Sink, Stats, Target, full_files, log, upper_bound_bytes
from instrument.write.worker import MAX_WORKERS, POOL_CONTROL_BYTES, Config, PoolMemory

DEFAULT_RING_BYTES = 32 << 20

#: A worker with more than this share of its ring unread is busy: the next event goes to another.
_BUSY_SHARE = 0.25
#: Waiting here is not idling: a look this often guards against a bell that nobody rang.
_WAIT_POLL_MS = 200
#: An event is given up when three workers in a row crashed over it, or thirty were killed: a crash is most likely the
#: event's own fault, a SIGKILL is not, unless the system runs out of memory each time.
_FATAL_BLAME, _CRASH_BLAME = 30, 10
_EXIT_SECONDS = 10.0
#: So many looks in a row without a worker to be had, and recording gives up rather than hold training any longer.
_PATIENCE = 10


class _NoWorker(Exception):
    """No worker can be started, and waiting for one any longer would hold training up."""


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    socket: socket.socket


def available() -> bool:
    """Whether this system has what the pool needs: anonymous shared memory, eventfd and an interpreter to start."""
    return bool(hasattr(os, "memfd_create") and hasattr(os, "eventfd") and sys.executable)


def open_sink(target: Target, workers: int, ring_bytes: int = DEFAULT_RING_BYTES, drop_when_full: bool = False) -> Sink:
    """The sink for a target: a pool of `workers`, or one in this process for 0 and where no worker can be started.

    Raises:
        OSError: the target's directory cannot be made or written.
    """
    files = Files(target)
    if workers == 0 or not available():
        return FileSink(files)
    try:
        return PoolSink(files, workers, ring_bytes, drop_when_full)
    except OSError as error:
        log.warning("No worker can be started (%s): %s is written by the training process.", error, files.summary_path)
        return FileSink(files)


class PoolSink:
    """Write through `workers` processes with `ring_bytes` of shared memory between them.

    Raises:
        OSError: shared memory, descriptors or a process are not to be had.
    """

    def __init__(
        self, files: Files, workers: int, ring_bytes: int = DEFAULT_RING_BYTES, drop_when_full: bool = False
    ) -> None:
        self._files = files
        self._notices = Notices()
        self._target = files.target
        self._drop_when_full = drop_when_full
        self._count = min(workers, MAX_WORKERS)
        self._ring_bytes = max(ring_bytes // self._count // 4096, 16) * 4096
        self._memory_bytes = POOL_CONTROL_BYTES + self._count * (CONTROL_BYTES + self._ring_bytes)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._next_sequence = 1
        self._unconfirmed: tuple[Ring, int] | None = None
        self._favourite = 0
        self._bound_bytes = self._files.summary_bytes
        self._stalled_seconds = 0.0
        self._dropped = 0
        self._blame = (0, 0)
        self._workers: dict[int, _Worker] = {}
        self._missing: set[int] = set()
        self._failed_looks = 0
        self._fds: list[int] = []
        # Shut down, its other end wakes the watching thread for good; a descriptor that is merely closed would not.
        self._end_of_watch, watched_end = socket.socketpair()
        self._release = weakref.finalize(self, _release, self._fds, self._end_of_watch)
        self._watched = select.epoll()
        self._watched.register(watched_end, select.EPOLLIN)
        self._open()
        try:
            self._start(0)
        except BaseException:
            self._release()
            raise
        _alive.add(self)
        self._watcher = threading.Thread(
            target=_watch, args=(weakref.ref(self), self._watched, watched_end), name="instrument-watch", daemon=True
        )
        self._watcher.start()

    def _open(self) -> None:
        self._memory_fd = os.memfd_create("instrument", os.MFD_CLOEXEC)
        os.ftruncate(self._memory_fd, self._memory_bytes)
        self._memory = mmap.mmap(self._memory_fd, self._memory_bytes)
        self._pool = PoolMemory(memoryview(self._memory), self._ring_bytes)
        self._pool.state = State(summary_bytes=self._files.summary_bytes)
        flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK
        self._bells = [os.eventfd(0, flags) for _ in range(self._count)]
        self._trainer_bell = os.eventfd(0, flags)
        self._fds += [self._memory_fd, self._trainer_bell, *self._bells]

    # ------------------------------------------------------------------ workers

    def _start(self, index: int) -> None:
        """Start worker `index`, or its successor."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            config = Config(
                index, self._memory_fd, self._memory_bytes, self._ring_bytes, self._bells, self._trainer_bell,
                theirs.fileno(), self._files.summary_path, self._files.export_directory,
                self._target.max_file_bytes, self._sequence_to_skip(),
            )  # fmt: skip
            process = subprocess.Popen(
                [sys.executable, "-m", "instrument.write.worker", config.to_argument()],
                pass_fds=[*self._fds, theirs.fileno()],
                env=_worker_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._workers[index] = _Worker(process, ours)
        self._watched.register(ours.fileno(), select.EPOLLIN)

    def _sequence_to_skip(self) -> int:
        sequence, blame = self._blame
        return sequence if blame >= _FATAL_BLAME else 0

    def _service(self) -> None:
        """Hear what workers say and replace those that died. Called with the lock held."""
        for index, worker in list(self._workers.items()):
            while True:
                try:
                    said = worker.socket.recv(1 << 16)
                except BlockingIOError:
                    break
                except OSError:
                    said = b""
                if not said:
                    self._bury(index)
                    break
                self._notices.add(Notice(*marshal.loads(said)))
        for index in list(self._missing):
            self._revive(index)

    def _bury(self, index: int) -> None:
        worker = self._workers.pop(index)
        self._watched.unregister(worker.socket.fileno())
        worker.socket.close()
        code = worker.process.wait()
        culprit = self._pool.committed_sequence + 1
        blame = 1 if code == -signal.SIGKILL else _CRASH_BLAME
        self._blame = (culprit, blame + (self._blame[1] if self._blame[0] == culprit else 0))
        self._pool.await_turn(index, 0)
        self._missing.add(index)
        log.warning("The worker that writes %s ended with status %d; another one carries on.", self.path, code)

    def _revive(self, index: int) -> None:
        try:
            self._start(index)
        except OSError as error:
            self._failed_looks += 1
            if self._failed_looks == 1:
                log.error("No worker can be started to write %s: %s", self.path, error)
            return
        self._failed_looks = 0
        self._missing.discard(index)
        os.eventfd_write(self._bells[index], 1)

    def watch_once(self) -> bool:
        """What the watching thread does when a socket has something; False when there is nothing left to watch."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return False
            self._service()
            return True

    # ------------------------------------------------------------------ the producer

    @property
    def path(self) -> str:
        return self._files.summary_path

    @property
    def stats(self) -> Stats:
        with self._lock:
            state = self._last_state if self._closed else self._pool.state
            return Stats(
                state.events, state.summary_bytes + state.lineage_bytes, self._next_sequence - 1 - state.sequence,
                self._stalled_seconds, self._dropped, state.lost, self._notices.errors,
            )  # fmt: skip

    def write(self, event: Event) -> bool:
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return False
            self._confirm()
            try:
                pieces = message.pack(event, self._files.lineage_path(event.items))
            except OSError as error:
                self._notices.add(Notice("lost", event.step, self._target.directory, os.strerror(error.errno or 0)))
                return False
            if full_files(self._pool.state, event)[1]:
                return False
            try:
                if not self._publish(pieces):
                    self._dropped += 1
                    return False
                return not self._closed and (self._target.max_file_bytes is None or self._fits(event))
            except _NoWorker:
                self._dropped += 1
                return False

    def _confirm(self) -> None:
        """Settle whether the last event was published, should an exception have come between that and its counting."""
        if self._unconfirmed is not None:
            ring, head = self._unconfirmed
            if ring.head != head:
                self._next_sequence += 1
            self._unconfirmed = None

    def _publish(self, pieces: list[bytes | memoryview]) -> bool:
        length = sum(map(len, pieces))
        index = self._choose()
        ring = self._pool.rings[index]
        if length > ring.largest_record_bytes:
            self._send_in_chunks(index, pieces)
            self._next_sequence += 1
            return True
        self._unconfirmed = (ring, ring.head)
        if not ring.put(pieces, length, self._next_sequence):
            if self._drop_when_full:
                self._unconfirmed = None
                return False
            self._wait(functools.partial(ring.put, pieces, length, self._next_sequence), stalls=True)
        self._next_sequence += 1
        self._unconfirmed = None
        os.eventfd_write(self._bells[index], 1)
        return True

    def _choose(self) -> int:
        """The worker for the next event: the same as before unless it is busy, then the least busy one."""
        if self._count == 1:
            return 0
        rings = self._pool.rings
        backlog = [ring.head - ring.tail for ring in rings]
        busy = self._ring_bytes * _BUSY_SHARE
        if backlog[self._favourite] > busy:
            self._favourite = min(range(self._count), key=lambda index: (backlog[index], index))
        if self._favourite not in self._workers:
            self._start(self._favourite)
        return self._favourite

    def _send_in_chunks(self, index: int, pieces: list[bytes | memoryview]) -> None:
        """Stream a large record through the ring and wait until it is committed, again from its start if need be."""
        ring, sequence = self._pool.rings[index], self._next_sequence
        while self._pool.committed_sequence < sequence:
            worker = self._workers.get(index)

            def is_over(worker: _Worker | None = worker) -> bool:
                return self._workers.get(index) is not worker or self._pool.committed_sequence >= sequence

            for chunk, flags in _chunks(pieces, self._ring_bytes // 4):
                put = functools.partial(ring.put, [chunk], len(chunk), sequence, flags)
                self._wait(lambda put=put, is_over=is_over: is_over() or put(), stalls=True)  # type: ignore[misc]
                os.eventfd_write(self._bells[index], 1)
            self._wait(is_over, stalls=True)

    def _wait(self, is_done: Callable[[], bool], stalls: bool = False) -> None:
        """Sleep until `is_done`, looking whenever a worker rings, and replacing workers that die meanwhile."""
        started = time.monotonic()
        try:
            while True:
                try:
                    os.eventfd_read(self._trainer_bell)
                except BlockingIOError:
                    pass
                if is_done():
                    return
                poll = select.poll()
                poll.register(self._trainer_bell, select.POLLIN)
                for worker in self._workers.values():
                    poll.register(worker.socket, select.POLLIN)
                poll.poll(_WAIT_POLL_MS)
                self._service()
                if self._failed_looks > _PATIENCE:
                    raise _NoWorker
        finally:
            if stalls:
                self._stalled_seconds += time.monotonic() - started

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
        return not full_files(state, event)[0]

    # ------------------------------------------------------------------ the end

    def _wait_for_all(self) -> None:
        self._confirm()
        self._wait(lambda: self._pool.committed_sequence >= self._next_sequence - 1)

    def flush(self, sync: bool = False) -> None:
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._settle()
            if sync:
                self._files.sync()

    def _settle(self) -> None:
        try:
            self._wait_for_all()
        except _NoWorker:
            log.error("%s: what was recorded last is not written, since no worker can be started.", self.path)
        self._service()

    def close(self) -> None:
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            try:
                self._settle()
            finally:
                self._closed = True
                self._last_state = self._pool.state
                self._end_workers()
                self._release()
                _alive.discard(self)
        if threading.current_thread() is not self._watcher:
            self._watcher.join(_EXIT_SECONDS)

    def _end_workers(self) -> None:
        for worker in self._workers.values():
            worker.socket.close()
        for worker in self._workers.values():
            try:
                worker.process.wait(_EXIT_SECONDS)
            except subprocess.TimeoutExpired:
                log.error("A worker that writes %s did not end and was killed.", self.path)
                worker.process.kill()
                worker.process.wait()
        self._workers = {}

    def abandon(self) -> None:
        """In a forked child: close the inherited ends, so that the workers see when the real trainer is gone."""
        for worker in self._workers.values():
            worker.socket.close()
        self._release.detach()  # to shut the watch's end down would end the parent's watch
        self._end_of_watch.close()
        self._watched.close()
        _close_all(self._fds)
        self._notices = Notices()
        self._lock = threading.RLock()  # whoever held it in the parent does not exist here
        self._closed = True
        self._last_state = State()

    def take_error(self) -> Notice | None:
        return self._notices.take_first()


def _chunks(pieces: list[bytes | memoryview], chunk_bytes: int) -> list[tuple[memoryview, int]]:
    """Views of at most `chunk_bytes` over all pieces, with the flags that mark first and last."""
    views = [
        memoryview(piece)[start : start + chunk_bytes]
        for piece in pieces
        for start in range(0, len(piece), chunk_bytes)
    ]
    last = len(views) - 1
    return [(view, (START if index == 0 else 0) | (MORE if index < last else 0)) for index, view in enumerate(views)]


def _worker_environment() -> dict[str, str]:
    """The trainer's environment with its `sys.path`, and without MindSpore's choice of the slow protobuf."""
    environment = dict(os.environ)
    environment.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return environment


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _release(fds: list[int], end_of_watch: socket.socket) -> None:
    """End the watching thread and close the pool's descriptors: at `close`, or when nobody holds the sink any more."""
    with end_of_watch:
        end_of_watch.shutdown(socket.SHUT_RDWR)
    _close_all(fds)


def _watch(sink: weakref.ref[PoolSink], watched: select.epoll, end: socket.socket) -> None:
    """The watching thread: asleep until a worker says something or dies, or the sink is no more."""
    with end, watched:
        while True:
            watched.poll()
            alive = sink()
            if alive is None or not alive.watch_once():
                return
            del alive


_alive: weakref.WeakSet[PoolSink] = weakref.WeakSet()


def _abandon_all() -> None:
    for sink in list(_alive):
        sink.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
