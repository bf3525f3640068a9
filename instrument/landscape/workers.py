"""Worker processes that evaluate points, as a `concurrent.futures.Executor`: this process's end and the worker's.

A worker is a plain process with this process's `sys.path`, environment and working directory, since it runs the user's
code: not a fork, which hangs once MindSpore has run, and not multiprocessing's spawn, which runs the user's main module
again. It is started as the processes that write are (`processes.py`), but not isolated. It has to say that it is a
worker within `_READY_SECONDS`; a program that does not is no interpreter, or its packages are gone, and the next
interpreter is tried. When there is none left, the future raises `WorkersUnavailable`.

Tasks and answers travel over two sockets. A worker ends when the one for tasks does, whatever becomes of this process.
One that dies is replaced, and its task is done again.
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
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack
from typing import Any

from instrument import processes
from instrument.descriptors import above_streams, socket_pair
from instrument.processes import Process

log = logging.getLogger("instrument")

#: Target, as MindSpore names it, and number.
Device = tuple[str, int]

_Work = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_LENGTH = struct.Struct("<Q")
#: A task is given up when so many workers died over it.
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


class WorkerPool(Executor):
    """One worker process for each entry of `devices`: target and number of its device, or None for the default one.

    Arguments and results travel as pickles; a function is pickled by its name.
    """

    def __init__(self, devices: Sequence[Device | None], task_limit_seconds: float = TASK_LIMIT_SECONDS) -> None:
        self._limit = task_limit_seconds
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._closed = self._is_cancelled = False
        self._interpreters = processes.interpreters()
        self._failure = f"there is no Python interpreter to start; sys.executable is {sys.executable!r}"
        self._threads = [
            threading.Thread(target=self._serve, args=(device,), name="instrument-landscape", daemon=True)
            for device in devices
        ]
        self._max_workers = len(self._threads)
        self.workers: dict[int, Process] = {}
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        task = _Task(fn, args, kwargs)
        self._tasks.put(task)
        return task.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; the running tasks are finished first unless futures are cancelled."""
        self._closed = True
        if cancel_futures:
            self._is_cancelled = True
            while not self._tasks.empty():
                task = self._tasks.get()
                if task is not None:
                    task.future.cancel()
            for process in list(self.workers.values()):
                process.kill()
        for _ in self._threads:
            self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    # ------------------------------------------------------------------ the thread of one worker

    def _serve(self, device: Device | None) -> None:
        worker: _Worker | None = None
        try:
            while (task := self._tasks.get()) is not None:
                if task.tries or task.future.set_running_or_notify_cancel():
                    worker = self._do(task, worker, device)
        finally:
            if worker is not None:
                worker.end()
                self.workers.pop(worker.process.pid, None)

    def _do(self, task: _Task, worker: _Worker | None, device: Device | None) -> _Worker | None:
        """Have a task done by the worker, or by a new one; return the worker for the next task."""
        try:
            if worker is None:
                worker = self._started(device)
                self.workers[worker.process.pid] = worker.process
                if self._is_cancelled:
                    worker.process.kill()
            outcome, value = worker.ask((task.function, task.args, task.kwargs), self._limit)
        except _Died as death:
            assert worker is not None
            worker.end()
            self.workers.pop(worker.process.pid, None)
            self._again(task, worker.process, str(death))
            return None
        except BaseException as error:  # noqa: BLE001  the edge: the future raises it
            task.future.set_exception(error)
            return worker
        if outcome == "value":
            task.future.set_result(value)
        else:
            task.future.set_exception(value)
        return worker

    def _started(self, device: Device | None) -> _Worker:
        """Start a worker with the first interpreter that becomes one; those that do not are not tried again."""
        for interpreter in list(self._interpreters):
            try:
                return _start(interpreter, device)
            except OSError as error:
                self._failure = str(error.strerror or error)
                if interpreter in self._interpreters:
                    self._interpreters.remove(interpreter)
        raise WorkersUnavailable(self._failure)

    def _again(self, task: _Task, process: Process, reason: str) -> None:
        task.tries += 1
        if self._closed or task.tries >= _MOST_TRIES:
            task.future.set_exception(WorkerLost(f"{task.tries} workers died over a task; the last one {reason}"))
            return
        log.warning("A worker of the landscape (process %d) %s; its points are computed again.", process.pid, reason)
        self._tasks.put(task)


class _Task:
    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.future: Future[Any] = Future()
        self.tries = 0


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

    def ask(self, task: _Work, limit_seconds: float) -> tuple[str, Any]:
        """Do a task: `("value", result)` or `("error", exception)`. Raises `_Died` if no answer comes."""
        data = pickle.dumps((task, None if self._has_sources else _sources_of_cells()))
        deadline = time.monotonic() + limit_seconds
        try:
            self._tasks.settimeout(limit_seconds)
            self._tasks.sendall(_LENGTH.pack(len(data)) + data)
        except OSError:
            raise _Died("ended unexpectedly") from None
        self._has_sources = True
        length = _LENGTH.unpack(self._take(_LENGTH.size, deadline))[0]
        answer: tuple[str, Any] = pickle.loads(self._take(length, deadline))
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
    cache: dict[str, Any] = linecache.cache  # type: ignore[assignment,unused-ignore]
    return {name: entry[2] for name, entry in cache.items() if len(entry) == 4 and not os.path.exists(name)}


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


def _answer(task: _Work) -> bytes:
    function, args, kwargs = task
    try:
        return pickle.dumps(("value", function(*args, **kwargs)))
    except Exception as error:  # noqa: BLE001  the edge: it is raised where the result is awaited
        return _pickled_error(error)


def _pickled_error(error: Exception) -> bytes:
    try:
        data = pickle.dumps(("error", error))
        pickle.loads(data)
    except Exception:  # noqa: BLE001  errors of others need not be picklable
        return pickle.dumps(("error", RuntimeError(f"{type(error).__name__}: {error}")))
    return data
