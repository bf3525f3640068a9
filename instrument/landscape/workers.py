"""Worker processes that evaluate points, as a `concurrent.futures.Executor`: this process's end and the worker's.

Problem. The user's network and dataset are code of a script or a notebook that has used MindSpore, and a landscape
takes hours: a worker must have the script's packages without running the script, and one that dies must cost little.

Strategy. A worker is a plain process with this process's `sys.path`, environment and working directory. It is started
as the processes that write are (`processes.py`), but not isolated. It has to say that it is a worker within
`_READY_SECONDS`; a program that does not is no interpreter, or its packages are gone, and the next interpreter is
tried. When there is none left, the future raises `WorkersUnavailable`. Each thread of the pool has one worker. Tasks
and answers travel over two sockets. A worker ends when the one for tasks does, whatever becomes of this process. One
that dies is replaced, and its task is done again.

Rejected: `ProcessPoolExecutor`. Its fork hangs once MindSpore has run, its spawn runs the user's main module again, and
one worker that dies breaks the whole pool.
"""

from __future__ import annotations

import errno
import json
import linecache
import logging
import os
import pickle
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from instrument import processes
from instrument.descriptors import above_streams, socket_pair
from instrument.processes import Process

log = logging.getLogger("instrument")

#: Target, as MindSpore names it, and number.
Device = tuple[str, int]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
#: A function, its arguments, and those by name.
_Task = tuple[Callable[..., object], tuple[object, ...], dict[str, object]]
#: What pickling, or unpickling, an object of the user's may raise.
PICKLE_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError, RuntimeError,
    TypeError, ValueError, pickle.PickleError,
)  # fmt: skip
_LENGTH = struct.Struct("<Q")
#: A task is given up when this many workers died over it.
_MOST_TRIES = 3
#: A worker that is silent for so long hangs.
TASK_LIMIT_SECONDS = 1800.0
#: A worker is ready before it imports MindSpore: mostly within 0.1 s.
_READY_SECONDS = 30.0
_READY = b"ready"
_EXIT_SECONDS = 5.0
#: What a worker needs of the standard library is imported before the user's path is set, as this process did it:
#: modules of a script may have the same names. `processes.start` starts it in `/`, where nothing is found.
_BOOTSTRAP = """
import sys
version, folder, argument, *paths = sys.argv[1:]
if sys.implementation.cache_tag != version:
    sys.exit(3)
import errno, json, linecache, logging, os, pickle, queue, select, signal, socket, struct, subprocess, threading
os.chdir(folder)
sys.path[:] = paths
from instrument.landscape.workers import main
main(argument)
"""


class WorkerLost(BrokenExecutor):
    """Workers died over a task, one after the other."""


class WorkersUnavailable(BrokenExecutor):
    """There is no interpreter that becomes a worker."""


class _Died(Exception):
    pass


class WorkerPool(ThreadPoolExecutor):
    """One worker process for each entry of `devices`: target and number of its device, or None for the default one.

    Arguments and results travel as pickles; a function is pickled by its name.
    """

    def __init__(self, devices: Sequence[Device | None], task_limit_seconds: float = TASK_LIMIT_SECONDS) -> None:
        self._limit = task_limit_seconds
        self._left_devices = list(devices)
        #: The device of a thread and its worker, if it has one.
        self._of_thread = threading.local()
        self._is_cancelled = False
        self._interpreters = processes.interpreters()
        self._failure = f"there is no Python interpreter to start; sys.executable is {sys.executable!r}"
        self.workers: dict[int, _Worker] = {}
        super().__init__(len(devices), "instrument-landscape", self._begin_thread)

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        return cast("Future[Result]", super().submit(self._do, (fn, args, kwargs)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; the running tasks are finished first unless futures are cancelled."""
        if cancel_futures:
            self._is_cancelled = True
            for worker in list(self.workers.values()):
                worker.process.kill()
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:  # else they end with this process
            for worker in list(self.workers.values()):
                self._end(worker)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(cancel_futures=kind is not None)

    # ------------------------------------------------------------------ the thread of one worker

    def _begin_thread(self) -> None:
        self._of_thread.device = self._left_devices.pop(0)
        self._of_thread.worker = None

    def _do(self, task: _Task) -> object:
        """Have a task done by the worker of this thread, or by a new one."""
        for tries in range(1, _MOST_TRIES + 1):
            worker = self._of_thread.worker or self._started()
            try:
                is_result, value = worker.ask(task, self._limit)
            except _Died as death:
                self._of_thread.worker = None
                self._end(worker)
                if self._is_cancelled or tries == _MOST_TRIES:
                    raise WorkerLost(f"{tries} workers died over a task; the last one {death}") from None
                log.warning(
                    "A worker of the landscape (process %d) %s; its points are computed again.", worker.process.pid,
                    death,
                )  # fmt: skip
                continue
            if is_result:
                return value
            raise value
        raise AssertionError("the last try raises")

    def _started(self) -> _Worker:
        """Start a worker with the first interpreter that becomes one; those that do not are not tried again."""
        for interpreter in list(self._interpreters):
            try:
                worker = _start(interpreter, self._of_thread.device)
            except OSError as error:
                self._failure = str(error.strerror or error)
                if interpreter in self._interpreters:
                    self._interpreters.remove(interpreter)
                continue
            self._of_thread.worker = self.workers[worker.process.pid] = worker
            if self._is_cancelled:
                worker.process.kill()
            return worker
        raise WorkersUnavailable(self._failure)

    def _end(self, worker: _Worker) -> None:
        worker.end()
        self.workers.pop(worker.process.pid, None)


class _Worker:
    """A process that is ready for tasks, and this process's ends of its sockets: one for tasks, one for answers."""

    def __init__(self, process: Process, tasks: socket.socket, answers: socket.socket) -> None:
        self.process = process
        self._tasks, self._answers = tasks, answers
        self._buffer = b""
        self._has_sources = False
        self._poll = select.poll()
        self._poll.register(answers, select.POLLIN)
        if process.fileno() >= 0:  # a child that the worker forked may hold a copy of the socket
            self._poll.register(process.fileno(), select.POLLIN)

    def wait_until_ready(self) -> None:
        """Raise `_Died` if the process is not a worker within `_READY_SECONDS`."""
        if self._take(len(_READY), time.monotonic() + _READY_SECONDS) != _READY:
            raise _Died("is another program")

    def ask(self, task: _Task, limit_seconds: float) -> tuple[bool, Any]:
        """Do a task. Return True and its result, or False and the exception that it raised.

        Raises:
            _Died: no answer comes.
        """
        data = pickle.dumps((task, None if self._has_sources else _sources_of_cells()))
        deadline = time.monotonic() + limit_seconds
        try:
            self._tasks.settimeout(limit_seconds)
            self._tasks.sendall(_LENGTH.pack(len(data)) + data)
        except OSError:
            raise _Died("ended unexpectedly") from None
        self._has_sources = True
        length = _LENGTH.unpack(self._take(_LENGTH.size, deadline))[0]
        answer: tuple[bool, Any] = pickle.loads(self._take(length, deadline))
        return answer

    def _take(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            ready = [fd for fd, _ in self._poll.poll(max(deadline - time.monotonic(), 0) * 1000)]
            if not ready:
                raise _Died("did not answer in time")
            try:
                piece = self._answers.recv(1 << 16, socket.MSG_DONTWAIT)
            except OSError:  # nothing came, and the process has ended; or it reset the socket
                piece = b""
            if not piece:
                raise _Died("ended unexpectedly")
            self._buffer += piece
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def end(self) -> None:
        """Have it end, and wait until it has."""
        self._tasks.close()
        if not self.process.wait(_EXIT_SECONDS):
            self.process.kill()
            self.process.wait(_EXIT_SECONDS)
        self._answers.close()
        self.process.close()


def _start(interpreter: str, device: Device | None) -> _Worker:
    """Start an interpreter as a worker.

    Raises:
        OSError: there is no process to be had, or this one does not become a worker.
    """
    with ExitStack() as on_failure, ExitStack() as always:
        (tasks, their_tasks), (answers, their_answers) = socket_pair(), socket_pair()
        on_failure.callback(tasks.close)
        on_failure.callback(answers.close)
        always.callback(their_tasks.close)
        always.callback(their_answers.close)
        descriptors = [their_tasks.fileno(), their_answers.fileno()]
        try:
            descriptors.append(above_streams(os.dup(1)))
            always.callback(os.close, descriptors[-1])
        except OSError:
            pass  # this process has no standard output
        command = [
            interpreter, "-c", _BOOTSTRAP, sys.implementation.cache_tag or "", os.getcwd(),
            json.dumps([device, *descriptors]), *(path for path in sys.path if isinstance(path, str)),
        ]  # fmt: skip
        environ = {**os.environ, processes.MARK: str(os.getpid())}
        worker = _Worker(processes.start(command, descriptors, interpreter, environ), tasks, answers)
        on_failure.pop_all()
    try:
        worker.wait_until_ready()
    except _Died as death:
        worker.process.kill()
        worker.end()
        raise OSError(errno.ECHILD, f"{interpreter} does not become a worker: it {death}") from None
    return worker


def _sources_of_cells() -> dict[str, list[str]]:
    """Return the source of code that is in no file, such as a notebook's: MindSpore compiles a network's source."""
    entries = [(name, entry) for name, entry in linecache.cache.items() if len(entry) == 4]
    return {name: entry[2] for name, entry in entries if not os.path.exists(name)}


# ---------------------------------------------------------------- in the worker


def main(argument: str) -> None:
    """Do tasks until the socket ends."""
    device, *descriptors = json.loads(argument)
    for fd in descriptors:
        os.set_inheritable(fd, False)
    end, answers = (socket.socket(fileno=fd) for fd in descriptors[:2])
    answers.sendall(_READY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt from the keyboard is for the process that waits
    os.environ.pop(processes.MARK, None)  # it is a worker, and may record
    if len(descriptors) > 2:
        os.dup2(descriptors[2], 1)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(end, tasks), daemon=True).start()
    if device is not None:
        _pin(*device)
    while True:
        task, sources = pickle.loads(tasks.get())
        for name, lines in (sources or {}).items():
            linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
        data = _answer(task)
        answers.sendall(_LENGTH.pack(len(data)) + data)


def _listen(end: socket.socket, tasks: queue.SimpleQueue[bytes]) -> None:
    """Queue what comes; when the other process is gone, end this one in the middle of whatever it does."""
    try:
        with end.makefile("rb") as stream:
            while head := stream.read(_LENGTH.size):
                tasks.put(stream.read(_LENGTH.unpack(head)[0]))
    finally:
        os._exit(0)


def _pin(target: str, number: int) -> None:
    """Use this device, before anything else is done with MindSpore. A CPU has no numbers."""
    import mindspore

    if mindspore.get_context("device_target") != target:
        mindspore.set_context(device_target=target)
    if target != "CPU":
        mindspore.set_context(device_id=number)


def _answer(task: _Task) -> bytes:
    function, args, kwargs = task
    try:
        return pickle.dumps((True, function(*args, **kwargs)))
    except Exception as raised:  # noqa: BLE001  the edge of a worker: whatever the user's code raises is the future's
        error = raised
    try:
        data = pickle.dumps((False, error))
        pickle.loads(data)
    except PICKLE_ERRORS:  # an error of the user's need not be picklable
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    return data
