"""The worker processes of a pool: started when first needed, heard when they speak, replaced when they die.

What they share with the trainer (memory, bells, socket pairs) is anonymous and inherited by descriptor: nothing has a
name that could be left behind. When the trainer ends, for whatever reason, the sockets' other ends see it, and the
workers drain their rings and end.

A dead worker's successor gets the same ring and skips what is committed. An event over which workers die again and
again is given up; so is, but for a try now and then, waiting for workers where none comes to life.
"""

from __future__ import annotations

import logging
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from typing import NamedTuple

from instrument.write.commit import Notice, State
from instrument.write.sink import Files, Notices
from instrument.write.worker import Config, PoolMemory

#: An event is given up when three workers in a row crashed over it, or thirty were killed: a crash is most likely the
#: event's own fault, a SIGKILL is not, unless the system runs out of memory each time.
_FATAL_BLAME, _CRASH_BLAME = 30, 10
#: So long must starting workers have failed before nobody waits for them any longer.
_PATIENCE_SECONDS = 5.0
_RETRY_SECONDS, _RARE_RETRY_SECONDS = 0.2, 10.0
_EXIT_SECONDS = 10.0
_LONGEST_NOTICE_BYTES = 1 << 16


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    socket: socket.socket


class Crew:
    """Up to `count` workers, each with a ring of `ring_bytes`; the first is started at once.

    Not for several threads at a time: whoever calls holds the pool's lock.

    Raises:
        OSError: shared memory, descriptors or a process are not to be had.
    """

    def __init__(self, files: Files, notices: Notices, count: int, ring_bytes: int) -> None:
        self._files = files
        self._notices = notices
        self._ring_bytes = ring_bytes
        self._workers: dict[int, _Worker] = {}
        self._missing: set[int] = set()
        self._blame: dict[int, int] = {}
        self._failing_since: float | None = None
        self._next_try = 0.0
        self._fds: list[int] = []
        # Shut down, its other end wakes the watching thread for good; a descriptor that is merely closed would not.
        self._end_of_watch, self.watched_end = socket.socketpair()
        self._end_of_watch.setblocking(False)
        self.watched_end.setblocking(False)
        self._release = weakref.finalize(self, _release, self._fds, self._end_of_watch)
        self._release.atexit = False  # the end of the process does the same, and later
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
        self._workers[index] = _Worker(process, ours)
        self.watched.register(ours.fileno(), select.EPOLLIN)

    def _spawn(self, index: int, theirs: socket.socket) -> subprocess.Popen[bytes]:
        files = self._files
        given_up = [sequence for sequence, blame in self._blame.items() if blame >= _FATAL_BLAME]
        config = Config(
            index, self._memory_fd, self._ring_bytes, self._bells, self._trainer_bell,
            theirs.fileno(), files.summary_path, files.export_directory, files.target.max_file_bytes, given_up,
        )  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "instrument.write.worker", config.to_argument()],
            pass_fds=[*self._fds, theirs.fileno()],
            env=_worker_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",  # `-m` looks for modules in the working directory first, and the user's may hold a json.py
        )

    def ensure(self, index: int) -> bool:
        """Have worker `index` at work; False where it is not, and cannot be started."""
        if index in self._workers or index in self._missing or time.monotonic() < self._next_try:
            return index in self._workers
        try:
            self._start(index)
        except OSError as error:
            self._next_try = time.monotonic() + _RARE_RETRY_SECONDS
            self._notices.note(logging.WARNING, "No further worker can be started to write %s: %s", self._path, error)
            return False
        return True

    def warm(self) -> None:
        """Have this process's pages of the rings mapped, by a thread beside it: their first touch costs many copies."""
        threading.Thread(target=self.pool.populate, name="instrument-warm", daemon=True).start()

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
        return list(self._workers) or list(self._missing)

    @property
    def is_hopeless(self) -> bool:
        """A worker is missing, and starting one has failed for too long to wait for it any longer."""
        since = self._failing_since
        return bool(self._missing) and since is not None and time.monotonic() - since >= _PATIENCE_SECONDS

    @property
    def next_look_seconds(self) -> float | None:
        """When to call `service` again although nothing is heard; None where no worker is missing."""
        return max(self._next_try - time.monotonic(), 0.0) if self._missing else None

    def clear_bell(self) -> None:
        try:
            os.eventfd_read(self._trainer_bell)
        except OSError:
            pass  # it was not rung, or a signal handler ended the crew

    def sleep(self, timeout_ms: int) -> None:
        """Until a worker rings, speaks or dies."""
        poll = select.poll()
        poll.register(self._trainer_bell, select.POLLIN)
        for worker in self._workers.values():
            poll.register(worker.socket, select.POLLIN)
        poll.poll(timeout_ms)

    def service(self) -> None:
        """Hear what workers say, and replace those that died."""
        for index, worker in list(self._workers.items()):
            if not self._hear(worker.socket):
                self._bury(index)
        for index in list(self._missing):
            self._revive(index)

    def hand_over(self) -> None:
        """Have the watching thread look for missing workers: whoever heard of their end first may look no more."""
        if self._missing:
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

    def _bury(self, index: int) -> None:
        self._missing.add(index)
        worker = self._workers.pop(index)
        self.watched.unregister(worker.socket.fileno())
        worker.socket.close()
        code = worker.process.wait()
        came_to_life, in_hand = self.pool.bury(index)
        blame = self._lay_blame(in_hand, 1 if code == -signal.SIGKILL else _CRASH_BLAME)
        is_first = self._failing_since is None
        if came_to_life and blame < 2 * _FATAL_BLAME:
            self._failing_since = None
        elif code != -signal.SIGKILL:
            self._note_failure()
        if is_first:
            text = "The worker that writes %s ended with status %d; another one carries on."
            self._notices.note(logging.WARNING, text, self._path, code)

    def _lay_blame(self, sequence: int, blame: int) -> int:
        """Add to the blame of the event that a worker died of, 0 being none, and return the whole."""
        committed = self.pool.committed_sequence
        self._blame = {event: sum_ for event, sum_ in self._blame.items() if event > committed}
        if not sequence:
            return 0
        self._blame[sequence] = self._blame.get(sequence, 0) + blame
        return self._blame[sequence]

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
            return
        self._missing.discard(index)

    def _note_failure(self) -> None:
        now = time.monotonic()
        if self._failing_since is None or now - self._next_try > _RARE_RETRY_SECONDS:
            self._failing_since = now
        is_patient = now - self._failing_since < _PATIENCE_SECONDS
        self._next_try = now + (_RETRY_SECONDS if is_patient else _RARE_RETRY_SECONDS)

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """Tell the workers that nothing more will come, wait until they are gone, and give everything back."""
        for worker in self._workers.values():
            with worker.socket:
                _shut_down(worker.socket)  # a child that was forked at a bad moment may hold a copy of this end
        for worker in self._workers.values():
            self._see_off(worker.process)
        self._workers = {}
        self._release()

    def _see_off(self, process: subprocess.Popen[bytes]) -> None:
        if self._nothing_is_left():
            process.kill()  # it would only take longer to end by itself, much longer when it has just been started
        try:
            process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._notices.note(logging.ERROR, "The worker that writes %s does not end.", self._path)

    def _nothing_is_left(self) -> bool:
        """Whether the workers have written everything that was published."""
        return not self.pool.is_busy and all(ring.tail == ring.head for ring in self.pool.rings)

    def disband(self) -> None:
        """`end`, where no thread watches."""
        self.end()
        self.watched_end.close()
        self.watched.close()

    def abandon(self) -> None:
        """In a forked child: close the inherited ends, so that the workers see when the real trainer is gone."""
        for worker in self._workers.values():
            worker.socket.close()
        self._release.detach()  # to shut the watch's end down would end the parent's watch
        self._end_of_watch.close()
        self.watched_end.close()
        self.watched.close()
        _close_all(self._fds)


def _worker_environment() -> dict[str, str]:
    """The trainer's environment with its `sys.path`, and without MindSpore's choice of the slow protobuf."""
    environment = dict(os.environ)
    environment.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)
    # Python itself passes over entries that are no text.
    entries = [entry for entry in sys.path if isinstance(entry, str) and "\0" not in entry]
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, entries))
    return environment


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _release(fds: list[int], end_of_watch: socket.socket) -> None:
    """End the watching thread and close the crew's descriptors: at the end, or when nobody holds the crew any more."""
    with end_of_watch:
        _shut_down(end_of_watch)
    _close_all(fds)


def _shut_down(end: socket.socket) -> None:
    """Have the other end see that this is over, whoever else holds a copy of this one."""
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the other side is gone already
