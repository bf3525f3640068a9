"""The worker processes of a pool: started when first needed, heard when they speak, replaced when they die.

What they share with the trainer (memory, bells, socket pairs) is anonymous and inherited by descriptor: nothing has a
name that could be left behind. When the trainer ends, for whatever reason, the sockets' other ends see it, and the
workers drain their rings and end.

A dead worker's successor gets the same ring and skips what is committed. An event over which workers die again and
again is given up; so is, but for a try now and then, waiting for workers where none comes to life.

A signal handler may call anything here in the middle of anything else. So a worker is replaced in one store, nothing is
closed before `release`, and of two processes for one ring the second waits for the end of the first (`worker.py`).
"""

from __future__ import annotations

import logging
import marshal
import os
import select
import signal
import socket
import subprocess
import threading
import time
import weakref
from typing import NamedTuple

from instrument.write.blame import Blame
from instrument.write.commit import Notice, State
from instrument.write.notices import Notices
from instrument.write.shared import Config, PoolMemory
from instrument.write.sink import Files
from instrument.write.spawn import await_end, exit_status, spawn

#: So long must starting workers have failed before nobody waits for them any longer.
_PATIENCE_SECONDS = 5.0
_RETRY_SECONDS, _RARE_RETRY_SECONDS = 0.2, 10.0
_EXIT_SECONDS = 10.0
_LONGEST_NOTICE_BYTES = 1 << 16


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    socket: socket.socket

    def dismiss(self) -> None:
        """End it in the middle of whatever it does."""
        self.process.kill()
        await_end(self.process, _EXIT_SECONDS)
        self.socket.close()


class Crew:
    """Up to `count` workers, each with a ring of `ring_bytes`; the first is started at once.

    Not for several threads at a time: whoever calls holds the pool's lock.

    Raises:
        OSError: shared memory, descriptors or a process are not to be had.
    """

    def __init__(self, files: Files, notices: Notices, count: int, ring_bytes: int) -> None:
        self._files = files
        self.layout = files.layout
        self._notices = notices
        self._ring_bytes = ring_bytes
        #: None for one that is missing: it died, and its successor could not be started yet.
        self._workers: dict[int, _Worker | None] = {}
        self._is_over = False
        self._seen_off: list[_Worker] = []
        self._blame = Blame()
        self._failing_since: float | None = None
        self._next_try = 0.0
        self._fds: list[int] = []
        # Shut down, its other end wakes the watching thread for good; a descriptor that is merely closed would not.
        self._end_of_watch, self.watched_end = socket.socketpair()
        self._end_of_watch.setblocking(False)
        self.watched_end.setblocking(False)
        self._close = weakref.finalize(self, _close, self._fds, self._end_of_watch)
        self._close.atexit = False  # the end of the process does the same, and later
        #: Readable when a worker says something or dies, at `hand_over`, and for good when the crew is released.
        self.watched = select.epoll()
        try:
            self.watched.register(self.watched_end, select.EPOLLIN)
            self._share(count)
            self._start(0)
        except BaseException:
            self.disband()
            raise

    def _share(self, count: int) -> None:
        self._memory_fd = os.memfd_create("instrument", os.MFD_CLOEXEC)
        self._fds.append(self._memory_fd)
        os.ftruncate(self._memory_fd, PoolMemory.size_bytes(count, self._ring_bytes))
        self.pool = PoolMemory(self._memory_fd, count, self._ring_bytes)
        self.pool.state = State(summary_bytes=self._files.summary_bytes)
        for _ in range(count + 1):
            self._fds.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._trainer_bell, *self._bells = self._fds[1:]

    # ------------------------------------------------------------------ one worker

    def _start(self, index: int) -> None:
        """Start worker `index`, or its successor."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            process = self._spawn(index, theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = _Worker(process, ours)
        if self._is_over or (index in self._workers and self._workers[index] is not None):
            worker.dismiss()  # a signal handler has been here meanwhile
            return
        self._workers[index] = worker
        self.watched.register(ours.fileno(), select.EPOLLIN)

    def _spawn(self, index: int, theirs: socket.socket) -> subprocess.Popen[bytes]:
        files = self._files
        config = Config(
            index, self._memory_fd, self._ring_bytes, self._bells, self._trainer_bell, theirs.fileno(),
            files.paths, files.export_directory, files.target.max_file_bytes, self._blame.given_up,
            files.layout.dialect, os.getpid(),
        )  # fmt: skip
        return spawn(config, [*self._fds, theirs.fileno()])

    def ensure(self, index: int) -> bool:
        """Have worker `index` at work; False where it is not, and cannot be started."""
        if index in self._workers:
            return self._workers[index] is not None
        if time.monotonic() < self._next_try:
            return False
        try:
            self._start(index)
        except OSError as error:
            self._next_try = time.monotonic() + _RARE_RETRY_SECONDS
            self._notices.note(logging.WARNING, "No further worker can be started to write %s: %s", self._path, error)
            return False
        return True

    def warm(self) -> None:
        """Have this process's pages of the rings mapped, by a thread beside it: their first touch costs many copies."""
        try:
            threading.Thread(target=self.pool.populate, name="instrument-warm", daemon=True).start()
        except RuntimeError:
            pass  # there are too many threads; it costs what it costs

    def process(self, index: int) -> subprocess.Popen[bytes] | None:
        """The process that is worker `index`, to tell it from its successor."""
        worker = self._workers.get(index)
        return worker.process if worker is not None else None

    def wake(self, index: int) -> None:
        """Ring the bell of worker `index`, unless it will look by itself in a moment."""
        if not self.pool.is_awake(index):
            os.eventfd_write(self._bells[index], 1)

    def hurry(self) -> None:
        """Ring the bell of each worker that has something to do: somebody waits for it."""
        for bell, ring in zip(self._bells, self.pool.rings, strict=True):
            if ring.head != ring.tail:
                os.eventfd_write(bell, 1)

    # ------------------------------------------------------------------ all of them

    @property
    def employed(self) -> list[int]:
        """The workers that run or, being missing, will have a successor; never none."""
        return [index for index, worker in self._workers.items() if worker is not None] or list(self._workers)

    @property
    def _is_short(self) -> bool:
        """Whether a worker is missing."""
        return None in self._workers.values()

    @property
    def is_hopeless(self) -> bool:
        """A worker is missing, and starting one has failed for too long to wait for it any longer."""
        since = self._failing_since
        return self._is_short and since is not None and time.monotonic() - since >= _PATIENCE_SECONDS

    @property
    def next_look_seconds(self) -> float | None:
        """When to call `service` again although nothing is heard; None where no worker is missing."""
        return max(self._next_try - time.monotonic(), 0.0) if self._is_short else None

    def clear_bell(self) -> None:
        try:
            os.eventfd_read(self._trainer_bell)
        except OSError:
            pass  # it was not rung

    def sleep(self, timeout_ms: int) -> None:
        """Until a worker rings, speaks or dies."""
        poll = select.poll()
        poll.register(self._trainer_bell, select.POLLIN)
        try:
            for worker in list(self._workers.values()):
                if worker is not None:
                    poll.register(worker.socket, select.POLLIN)
        except ValueError:
            return  # a signal handler has just buried it
        poll.poll(timeout_ms)

    def service(self) -> None:
        """Hear what workers say, and replace those that died."""
        for index, worker in list(self._workers.items()):
            if worker is not None and not self._hear(worker.socket):
                self._bury(index, worker)
        for index, worker in list(self._workers.items()):
            if worker is None and not self._is_over:
                self._revive(index)

    def hand_over(self) -> None:
        """Have the watching thread look for missing workers: whoever heard of their end first may look no more."""
        if self._is_short:
            try:
                self._end_of_watch.send(b"!")
            except BlockingIOError:
                pass  # it has been told often enough

    def _hear(self, speaker: socket.socket) -> bool:
        """Pass on what a worker said; False where it is dead."""
        while True:
            try:
                said = speaker.recv(_LONGEST_NOTICE_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not said:
                return False
            self._notices.add(Notice(*marshal.loads(said)))

    def _bury(self, index: int, worker: _Worker) -> None:
        code = exit_status(worker.process)
        if self._workers[index] is not worker:
            return
        self._workers[index] = None
        worker.process.poll()  # now it may go
        self.watched.unregister(worker.socket.fileno())
        worker.socket.close()
        came_to_life, in_hand = self.pool.bury(index)
        was_killed = code == -signal.SIGKILL
        is_in_vain = self._blame.lay(in_hand, was_killed, self.pool.committed_sequence)
        is_first = self._failing_since is None
        if came_to_life and not is_in_vain:
            self._failing_since = None
        elif not was_killed:
            self._note_failure()
        if is_first:
            text = "The worker that writes %s ended with status %d; another one carries on."
            self._notices.note(logging.WARNING, text, self._path, code)

    @property
    def _path(self) -> str:
        return self._files.summary_path

    def _revive(self, index: int) -> None:
        if self._failing_since is not None and time.monotonic() < self._next_try:
            return
        try:
            self._start(index)
        except OSError as error:
            if self._failing_since is None:
                self._notices.note(logging.ERROR, "No worker can be started to write %s: %s", self._path, error)
            self._note_failure()

    def _note_failure(self) -> None:
        now = time.monotonic()
        if self._failing_since is None or now - self._next_try > _RARE_RETRY_SECONDS:
            self._failing_since = now
        is_patient = now - self._failing_since < _PATIENCE_SECONDS
        self._next_try = now + (_RETRY_SECONDS if is_patient else _RARE_RETRY_SECONDS)

    # ------------------------------------------------------------------ the end

    def end(self) -> bool:
        """Tell the workers that nothing more will come, and wait until they are gone; False where one stays."""
        self._is_over = True
        if hasattr(self, "pool"):
            self.pool.end()
        workers = [worker for worker in self._workers.values() if worker is not None]
        self._seen_off += workers
        self._workers = dict.fromkeys(self._workers)
        for worker in workers:
            # A child that was forked at a bad moment may hold a copy of this end.
            _shut_down(worker.socket, socket.SHUT_WR)
        for worker in workers:
            self._see_off(worker.process)
            self._hear(worker.socket)
        return all(worker.process.returncode is not None for worker in workers)

    def release(self) -> None:
        """Give everything back; `watched` and its end are for the watching thread to close."""
        # An interrupt in `end` leaves workers that nobody has told.
        for worker in [*self._workers.values(), *self._seen_off]:
            if worker is not None:
                _shut_down(worker.socket, socket.SHUT_RDWR)
                worker.socket.close()
        self._close()

    def _see_off(self, process: subprocess.Popen[bytes]) -> None:
        if self._nothing_is_left():
            process.kill()  # it would only take longer to end by itself, much longer when it has just been started
        if not await_end(process, _EXIT_SECONDS):
            self._notices.note(logging.ERROR, "The worker that writes %s does not end.", self._path)

    def _nothing_is_left(self) -> bool:
        """Whether the workers have written everything that was published."""
        return not self.pool.is_busy and all(ring.tail == ring.head for ring in self.pool.rings)

    def disband(self) -> None:
        """`end` and `release`, where no thread watches."""
        self.end()
        self.release()
        self.watched_end.close()
        self.watched.close()

    def abandon(self) -> None:
        """In a forked child: close the inherited ends, so that the workers see when the real trainer is gone."""
        for worker in [*self._workers.values(), *self._seen_off]:
            if worker is not None:
                worker.socket.close()
        self._close.detach()  # to shut the watch's end down would end the parent's watch
        self._end_of_watch.close()
        self.watched_end.close()
        self.watched.close()
        _close_all(self._fds)


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _close(fds: list[int], end_of_watch: socket.socket) -> None:
    """End the watching thread and close the crew's descriptors: at the end, or when nobody holds the crew any more."""
    with end_of_watch:
        _shut_down(end_of_watch, socket.SHUT_RDWR)
    _close_all(fds)


def _shut_down(end: socket.socket, how: int) -> None:
    """Have the other end see that this is over, whoever else holds a copy of this one."""
    try:
        end.shutdown(how)
    except OSError:
        pass  # the other side is gone already
