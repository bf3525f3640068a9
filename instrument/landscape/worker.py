"""A process that evaluates points for another one: tasks on standard input, answers on a pipe."""

from __future__ import annotations

import linecache
import os
import pickle
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO

from instrument.landscape.workers import LENGTH


def main(answers: int, device: tuple[str, int] | None) -> None:
    """Work until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    if device is not None:
        _pin(*device)
    while True:
        task, sources = pickle.loads(tasks.get())
        _remember(sources)
        data = _answer(task)
        view = memoryview(LENGTH.pack(len(data)) + data)
        while view:
            view = view[os.write(answers, view) :]


def _listen(stream: BinaryIO, tasks: queue.SimpleQueue[bytes]) -> None:
    """Whoever gives the tasks may be gone while one is being done: end then, in the middle of it."""
    try:
        while head := stream.read(LENGTH.size):
            tasks.put(stream.read(LENGTH.unpack(head)[0]))
    finally:
        os._exit(0)


def _pin(target: str, number: int) -> None:
    """Use this device, before anything else is done with MindSpore. A CPU has no numbers."""
    import mindspore

    if mindspore.get_context("device_target") != target:
        mindspore.set_context(device_target=target)
    if target != "CPU":
        mindspore.set_context(device_id=number)


def _remember(sources: dict[str, list[str]] | None) -> None:
    for name, lines in (sources or {}).items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)


def _answer(task: Any) -> bytes:
    function, args, kwargs = task
    try:
        return pickle.dumps(("value", function(*args, **kwargs)))
    except Exception as error:  # noqa: BLE001  it is raised where the result is waited for
        return _pickled_error(error)


def _pickled_error(error: Exception) -> bytes:
    try:
        data = pickle.dumps(("error", error))
        pickle.loads(data)
    except Exception:  # noqa: BLE001  errors of others need not be picklable
        return pickle.dumps(("error", RuntimeError(f"{type(error).__name__}: {error}")))
    return data
