"""Processes of our own that evaluate points, as an executor.

A worker is a plain child process with this process's `sys.path`: not a fork, which hangs once MindSpore has run, and
not multiprocessing's spawn, which runs the user's main module again. It reads tasks from its standard input, and ends
when that does, whatever becomes of this process. One that dies is replaced, and its task is done again.
"""

from __future__ import annotations

import json
import linecache
import logging
import os
import pickle
import queue
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

log = logging.getLogger("instrument")

#: Target, as MindSpore names it, and number.
Device = tuple[str, int]

LENGTH = struct.Struct("<Q")
#: A task is given up when so many workers died over it.
_MOST_TRIES = 3
#: A worker that says nothing for so long hangs.
TASK_LIMIT_SECONDS = 1800.0
_EXIT_SECONDS = 5.0
#: Its names are none that a user's script would have: those of the script are put beside them.
_START = (
    "import sys as _sys, json as _json; _sys.path[:] = _json.loads(_sys.argv[1]); "
    "from instrument.landscape.worker import main as _main; _main(int(_sys.argv[2]), _json.loads(_sys.argv[3]))"
)


class WorkerLost(BrokenExecutor):
    """Workers died over a task, one after the other."""


class _Died(Exception):
    pass


class Processes(Executor):
    """One worker process for each entry of `devices`, the target and number of the device that it uses, or None for
    that of MindSpore's choice.

    Arguments and results travel as pickles; a function is pickled by its name.
    """

    def __init__(self, devices: Sequence[Device | None], task_limit_seconds: float = TASK_LIMIT_SECONDS) -> None:
        self._limit = task_limit_seconds
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, args=(device,), name="instrument-landscape", daemon=True)
            for device in devices
        ]
        self._max_workers = len(self._threads)
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
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
        """Have a task done by the worker, or by a new one; the worker for the next task."""
        try:
            if worker is None:
                worker = _Worker(device)
                self.workers[worker.process.pid] = worker.process
            outcome, value = worker.ask((task.function, task.args, task.kwargs), self._limit)
        except _Died as death:
            assert worker is not None
            worker.end()
            self.workers.pop(worker.process.pid, None)
            self._again(task, worker.process, str(death))
            return None
        except BaseException as error:  # noqa: BLE001  whoever waits for the future is told
            task.future.set_exception(error)
            return worker
        if outcome == "value":
            task.future.set_result(value)
        else:
            task.future.set_exception(value)
        return worker

    def _again(self, task: _Task, process: subprocess.Popen[bytes], reason: str) -> None:
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
    """A process, and the pipe on which it answers."""

    def __init__(self, device: Device | None) -> None:
        self._answers, theirs = os.pipe()
        command = [sys.executable, "-c", _START, json.dumps(sys.path), str(theirs), json.dumps(device)]
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, pass_fds=[theirs], start_new_session=True
            )  # a session of its own: an interrupt from the keyboard is this process's to handle
        except BaseException:
            os.close(self._answers)
            raise
        finally:
            os.close(theirs)
        self._buffer = b""
        self._is_told = False

    def ask(self, task: tuple[Any, ...], limit_seconds: float) -> tuple[str, Any]:
        """Do a task: `("value", result)` or `("error", exception)`. Raises `_Died` where no answer comes."""
        stdin = self.process.stdin
        assert stdin is not None
        request = (task, None if self._is_told else sources_of_cells())
        data = pickle.dumps(request)
        try:
            stdin.write(LENGTH.pack(len(data)) + data)
            stdin.flush()
        except OSError:
            raise _Died(self._how()) from None
        self._is_told = True
        deadline = time.monotonic() + limit_seconds
        answer: tuple[str, Any] = pickle.loads(
            self._take(LENGTH.unpack(self._take(LENGTH.size, deadline))[0], deadline)
        )
        return answer

    def _take(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            ready, _, _ = select.select([self._answers], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                self.process.kill()
                raise _Died("did not answer in time")
            piece = os.read(self._answers, 1 << 16)
            if not piece:
                raise _Died(self._how())
            self._buffer += piece
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _how(self) -> str:
        """How the process ended, in words."""
        try:
            code = self.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "closed its pipe"
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"

    def end(self) -> None:
        """Have it end, and wait until it is gone."""
        stdin = self.process.stdin
        try:
            if stdin is not None:
                stdin.close()
        except OSError:
            pass  # it is gone already
        try:
            self.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._answers)


def sources_of_cells() -> dict[str, list[str]]:
    """The text of code that is in no file, as a notebook's is not: MindSpore compiles a network from its text."""
    cache: dict[str, Any] = linecache.cache  # type: ignore[assignment,unused-ignore]
    return {name: entry[2] for name, entry in cache.items() if len(entry) == 4 and not os.path.exists(name)}
