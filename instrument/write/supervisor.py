"""Start, watch and replace the worker processes of a pool, and know when to stop trying.

The problem: a worker can fail in many ways. There may be no interpreter to start, or one that runs another program; its
environment may have been removed since; it may be killed, crash over a record, or hang before it does anything. None of
this may lose a record, hold up the training for long, or start processes without end.

The strategy:

- A worker is started as a process that the script never sees (`processes.py`), with the shared memory, an eventfd
  for each party, and one end of a socket pair. When it is ready to look into its ring, it says so in shared memory. One
  that is not ready within `_READY_SECONDS` is killed. After `_STARTS_OF_AN_INTERPRETER` failures in a row the next
  interpreter is tried.
- Death is end-of-file on the socket, or the process's handle. The successor gets the same ring and skips what is
  committed. A record that was claimed at twenty deaths in a row is left out (`Poison`).
- Restarts are bounded: at most `MOST_STARTS` in the life of a recorder. When a bound is reached, when no interpreter is
  left, or when no process can be created for `_PATIENCE_SECONDS`, `exhausted` holds the reason: then the trainer
  empties the rings and writes the files itself (`producer.py`), so that nothing is lost.
- When the trainer ends, for whatever reason, the other ends of the sockets see it; workers drain their rings and end.

A signal handler may call any method in the middle of another. So a worker is replaced by a single assignment, nothing
is closed before `release`, and of two processes for one ring the second waits for the end of the first (`worker.py`).

Rejected: to trust a process that was started. A program that is no interpreter runs happily for ever, and the training
would wait for it. Rejected as well: `multiprocessing` or a child of the trainer. Scripts that wait for all their
children would wait for workers, and a signal to the group of the trainer would end them before they have written.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
import weakref

from instrument import processes
from instrument.descriptors import above_streams, socket_pair
from instrument.processes import Process
from instrument.ringfile import header as headers
from instrument.ringfile.control import State
from instrument.undo import UndoOnError
from instrument.write.diagnostics import Diagnostics
from instrument.write.monitor import Monitor
from instrument.write.pool_memory import Config, create_memory, remove
from instrument.write.sink import Files
from instrument.write.worker_process import Poison, WorkerProcess, disconnect

#: A recorder starts no more processes than this in all its life.
MOST_STARTS = 100
#: An interpreter that fails this often in a row before it is ready is not started again.
_STARTS_OF_AN_INTERPRETER = 12
#: A worker has to be ready within this time; mostly it takes 50 ms.
_READY_SECONDS = 10.0
#: How long the system may refuse processes before the trainer writes itself, and the pause between two attempts.
_PATIENCE_SECONDS = 5.0
_RETRY_SECONDS, _RARE_RETRY_SECONDS = 0.2, 10.0
_EXIT_SECONDS = 10.0


class Supervisor:
    """Up to `count` workers, each with a ring of `ring_bytes`; the first is started at once.

    Not for several threads at a time: the caller holds the sink's lock.

    Raises:
        OSError: shared memory, descriptors or a process are not to be had, or there is no interpreter.
    """

    def __init__(self, files: Files, diagnostics: Diagnostics, count: int, ring_bytes: int) -> None:
        self._files = files
        self._diagnostics = diagnostics
        #: None for one that is missing: it died, and its successor could not be started yet.
        self._workers: dict[int, WorkerProcess | None] = {}
        self._is_over = False
        self.poison = Poison()
        #: Why no worker will ever be started again; empty while workers are used.
        self.exhausted = ""
        self._interpreters = processes.interpreters()
        self._starts = 0
        self._failed_starts = 0
        self._failing_since: float | None = None
        self._next_try = 0.0
        self._fds: list[int] = []
        self.ring_path = ""
        #: Sees when a worker reports something or dies.
        self.monitor = Monitor()
        self._created: list[WorkerProcess] = []
        self._close = weakref.finalize(self, _close, self._fds, self._created, self.monitor.waker)
        self._close.atexit = False  # the end of the process does the same, and later
        with UndoOnError(self.shut_down):
            self._create_memory(count, ring_bytes)
            self._start(0)

    def _create_memory(self, count: int, ring_bytes: int) -> None:
        target = self._files.target
        export_directory = os.path.basename(self._files.export_directory)
        header = headers.of_this_process(target.dialect, count, ring_bytes, target.max_file_bytes, export_directory)
        #: Empty where the memory is anonymous.
        self.ring_path, fd, self.pool = create_memory(target.directory, header)
        self._memory_fd = self._keep(fd)
        self.pool.set_name(0, os.path.basename(self._path))
        self.pool.state = State(summary_bytes=self._files.summary_bytes)
        self._gate = self._keep(os.memfd_create("instrument-gate", os.MFD_CLOEXEC))
        self._trainer_bell, *self._bells = [
            self._keep(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)) for _ in range(count + 1)
        ]

    def _keep(self, fd: int) -> int:
        self._fds.append(above_streams(fd))
        return self._fds[-1]

    # ------------------------------------------------------------------ one worker

    def _start(self, index: int) -> None:
        """Start worker `index`, or its successor."""
        worker = self._spawn(index)
        self._created.append(worker)
        if self._is_over or self._workers.get(index) is not None:  # a signal handler has been here meanwhile
            worker.kill(_EXIT_SECONDS)
            worker.close()
            return
        self._workers[index] = worker
        self.monitor.watch(worker.socket)

    def _spawn(self, index: int) -> WorkerProcess:
        ends = socket_pair(socket.SOCK_SEQPACKET)
        if self._interpreters:
            self._starts += 1
        config = Config(
            index, self._memory_fd, self._gate, self._bells, self._trainer_bell, -1, self._files.target.directory,
            self.poison.poisoned(), self.poison.last_suspect, os.getpid(), self.ring_path,
        )  # fmt: skip
        return WorkerProcess.start(ends, config, self._interpreters, self._fds, _READY_SECONDS)

    def ensure_started(self, index: int) -> bool:
        """Return True if worker `index` is at work, and start it if it never was."""
        if index in self._workers:
            return self._workers[index] is not None
        if self.exhausted or self._starts >= MOST_STARTS or time.monotonic() < self._next_try:
            return False
        try:
            self._start(index)
        except OSError as error:
            self._next_try = time.monotonic() + _RARE_RETRY_SECONDS
            text = "No further worker can be started to write %s: %s"
            self._diagnostics.note(logging.WARNING, text, self._path, error)
            return False
        return True

    def populate(self) -> None:
        """Have this process's pages of the rings mapped by a thread: their first touch costs many copies."""
        try:
            threading.Thread(target=self.pool.populate, name="instrument-populate", daemon=True).start()
        except RuntimeError:
            pass  # there are too many threads; the pages are mapped as they are touched

    def process(self, index: int) -> Process | None:
        """Return the process that is worker `index`, to tell it from its successor."""
        worker = self._workers.get(index)
        return worker.process if worker is not None else None

    def wake(self, index: int) -> None:
        """Ring the bell of worker `index`, unless it will look by itself in a moment."""
        if not self.pool.is_awake(index):
            os.eventfd_write(self._bells[index], 1)

    def wake_busy(self) -> None:
        """Ring the bell of each worker whose ring holds something."""
        for bell, ring in zip(self._bells, self.pool.rings, strict=True):
            if ring.head != ring.tail:
                os.eventfd_write(bell, 1)

    # ------------------------------------------------------------------ all of them

    @property
    def usable(self) -> list[int]:
        """Return the running workers or, if none runs, those that will be replaced; never empty."""
        return [index for index, worker in self._workers.items() if worker is not None] or list(self._workers)

    @property
    def _is_worker_missing(self) -> bool:
        """Return True if a worker is missing."""
        return None in self._workers.values()

    @property
    def next_look_seconds(self) -> float | None:
        """Return the seconds until `service` has to be called even if no worker reports; None for no such time."""
        moments = [
            worker.deadline
            for index, worker in self._workers.items()
            if worker is not None and not self.pool.is_ready(index)
        ]
        if self._is_worker_missing:
            moments.append(self._next_try)
        return max(min(moments) - time.monotonic(), 0.0) if moments and not self.exhausted else None

    def clear_bell(self) -> None:
        try:
            os.eventfd_read(self._trainer_bell)
        except OSError:
            pass  # it was not rung

    def sleep(self, timeout_ms: int) -> None:
        """Sleep until a worker rings, speaks or dies, at most `timeout_ms`."""
        poll = select.poll()
        poll.register(self._trainer_bell, select.POLLIN)
        try:
            for worker in list(self._workers.values()):
                if worker is not None:
                    poll.register(worker.socket, select.POLLIN)
        except ValueError:
            return  # a signal handler has just closed it
        poll.poll(timeout_ms)

    def service(self) -> None:
        """Receive what workers report, and replace those that died or are not ready in time."""
        for index, worker in list(self._workers.items()):
            if worker is not None and self._has_failed(index, worker):
                self._reap(index, worker)
        for index, worker in list(self._workers.items()):
            if worker is None and not (self._is_over or self.exhausted):
                self._restart(index)

    def wake_monitor(self) -> None:
        """Have the monitor look for missing workers: the call that saw their end may be the last one."""
        if self._is_worker_missing or self.exhausted:
            self.monitor.wake()

    def _has_failed(self, index: int, worker: WorkerProcess) -> bool:
        """Return True if a worker has ended, or is not ready in time."""
        if not worker.receive(self._diagnostics.add) or not worker.process.is_alive:
            return True
        if self.pool.is_ready(index):
            self._failed_starts, self._failing_since = 0, None
            return False
        return worker.is_late

    def _reap(self, index: int, worker: WorkerProcess) -> None:
        """Take a worker out that died, or is killed now since it is not ready in time."""
        was_late = worker.is_late
        worker.kill(_EXIT_SECONDS)
        if self._workers[index] is not worker:
            return
        self._workers[index] = None
        self.monitor.unwatch(worker.socket)
        worker.close()
        was_ready = self.pool.is_ready(index)
        self.poison.record_death(self.pool.reset_worker(index), self.pool.committed_sequence)
        if not was_ready:
            self._record_failed_start(was_late)
        elif self.poison.deaths_in_a_row == 1:
            text = "The worker that writes %s (process %d) ended unexpectedly; another one carries on."
            self._diagnostics.note(logging.WARNING, text, self._path, worker.process.pid)
        if self.poison.is_crash_loop:
            self._exhaust("workers end again and again")

    def _record_failed_start(self, was_late: bool) -> None:
        """Count an interpreter that did not become a worker, and go on to the next one after some."""
        self._failed_starts += 1
        self._next_try = time.monotonic() + min(_RETRY_SECONDS, 0.01 * 2 ** (self._failed_starts - 1))
        if was_late or self._failed_starts >= _STARTS_OF_AN_INTERPRETER:
            self._failed_starts = 0
            failed = self._interpreters.pop(0) if self._interpreters else "a worker"
            if not self._interpreters:
                self._exhaust(f"{failed} is not ready within {_READY_SECONDS:.0f} s" if was_late else f"{failed} ends")

    def _exhaust(self, reason: str) -> None:
        self.exhausted = self.exhausted or reason

    @property
    def _path(self) -> str:
        return self._files.summary_path

    def _restart(self, index: int) -> None:
        now = time.monotonic()
        if now < self._next_try:
            return
        if self._starts >= MOST_STARTS:
            self._exhaust(f"{MOST_STARTS} workers were started and ended")
            return
        try:
            self._start(index)
        except OSError as error:
            if self._failing_since is None:
                self._failing_since = now
            self._next_try = now + _RETRY_SECONDS
            if now - self._failing_since >= _PATIENCE_SECONDS:
                self._exhaust(str(error))

    def kill_all(self) -> bool:
        """Kill every worker, and return True if none is left that could still write."""
        workers = [worker for worker in self._workers.values() if worker is not None]
        for worker in workers:
            worker.process.kill()
        deadline = time.monotonic() + _EXIT_SECONDS
        are_gone = [worker.process.wait(max(deadline - time.monotonic(), 0.0)) for worker in workers]
        for worker in workers:
            worker.receive(self._diagnostics.add)
        return all(are_gone)

    # ------------------------------------------------------------------ the end

    @property
    def kept_ring_path(self) -> str:
        """The ring file that keeps what cannot be written; empty for anonymous memory, or a file that was deleted."""
        return self.ring_path if self.ring_path and os.fstat(self._memory_fd).st_nlink else ""

    def end(self) -> bool:
        """End the workers, and wait until they are gone; return False if one stays."""
        self._is_over = True
        if hasattr(self, "pool"):
            self.pool.end()
        workers = [worker for worker in self._workers.values() if worker is not None]
        self._workers = dict.fromkeys(self._workers)
        for worker in workers:
            worker.disconnect(socket.SHUT_WR)  # what it reports until its end is still received
        are_gone = []
        for worker in workers:
            if self._is_drained():
                worker.process.kill()  # by itself it would take longer, much longer if it has just been started
            are_gone.append(worker.process.wait(_EXIT_SECONDS))
            if not are_gone[-1]:
                self._diagnostics.note(logging.ERROR, "The worker that writes %s does not end.", self._path)
            worker.receive(self._diagnostics.add)
        return all(are_gone)

    def release(self, is_empty: bool = True) -> None:
        """Give everything back, and remove the ring file if it `is_empty`.

        The monitor's descriptors are for its thread to close.
        """
        # After an interrupt in `end` some workers still run.
        for worker in self._created:
            worker.disconnect()
        if is_empty and self._fds and self.ring_path:
            remove(self.ring_path, self._memory_fd)
        if hasattr(self, "pool"):
            self.pool.detach()
        self._close()

    def _is_drained(self) -> bool:
        """Return True if the workers have written everything that was published."""
        return not self.pool.is_busy and all(ring.tail == ring.head for ring in self.pool.rings)

    def shut_down(self) -> None:
        """End and release everything, where no monitor runs."""
        self.end()
        self.release()
        self.monitor.close()

    def abandon(self) -> None:
        """Close the inherited ends in a forked child, so that the workers see when the real trainer is gone."""
        for worker in self._created:
            worker.close()
        self._close.detach()  # to shut the monitor's end down would end the parent's monitor
        self.monitor.waker.close()
        self.monitor.close()
        _close_all(self._fds)
        self.pool.detach()


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _close(fds: list[int], workers: list[WorkerProcess], waker: socket.socket) -> None:
    """End the monitor and close the descriptors: at the end, or when nobody holds the supervisor any more."""
    for worker in workers:
        worker.close()
    with waker:
        disconnect(waker)
    _close_all(fds)
