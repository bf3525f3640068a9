"""Points -> losses: in this process, or handed out to an executor's workers.

`evaluate` is what an executor is given: the folder of the computation and some points. Whichever process runs it makes
the network anew from that folder, once, and checks that the loss at the origin is that of the process that began.

A worker does not run the script or the notebook again, so the user's function is pickled with the names of the main
module that it and its classes refer to. MindSpore compiles a method from its source and looks its names up in the
module that the method belongs to, so the names are put into the worker's main module.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)  # fmt: skip
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType

import mindspore
import numpy as np
from numpy.typing import NDArray

from instrument.framework import OPERATOR_ERRORS
from instrument.landscape import checkpoint_store
from instrument.landscape.forward import Forward
from instrument.landscape.model_parts import Callback, EvaluationError, parts_of
from instrument.landscape.plane import Plane
from instrument.landscape.weights import Tensors
from instrument.landscape.workers import PICKLE_ERRORS

log = logging.getLogger("instrument")

Values = NDArray[np.float64]
#: Points, each with its values (1 + metrics,).
Rows = Iterator[tuple[int, Values]]

#: A task is so much work: little enough that a lost worker costs little, and enough that handing it out costs nothing.
TASK_SECONDS = 2.0
#: The losses of one process at the origin are those of another, but for rounding on other processors.
_SAME_LOSS = 1e-4

#: MindSpore is used by one thread at a time.
_LOCK = threading.Lock()
#: The landscape that this process evaluates at present: its folder, and how.
_current: tuple[str, Evaluator] | None = None


class Evaluator:
    """Evaluate the points of a plane. All parameters are set first, then those that move, point by point."""

    def __init__(self, forward: Forward, plane: Plane) -> None:
        self.forward = forward
        self.plane = plane
        self._is_elsewhere = True

    def at_point(self, point: int) -> Values:
        """Return the values (1 + metrics,) at a point of the plane."""
        if self._is_elsewhere:
            self.forward.put(self.forward.own(self.plane.origin))
            self._is_elsewhere = False
        self.forward.put(self.plane.tensors(point))
        return self.forward.values()

    def at_checkpoint(self, tensors: Tensors) -> Values:
        """Return the values (1 + metrics,) with all that a checkpoint holds, whether it moves or not."""
        self._is_elsewhere = True
        self.forward.put(self.forward.own(tensors))
        return self.forward.values()


def evaluate(directory: str, points: list[int]) -> Values | str:
    """Return the values (points, 1 + metrics), or why the network of the folder fails.

    Whatever is raised is no fault of the network: a folder that cannot be read, a module that is missing.
    """
    with _LOCK:
        evaluator, expected = _evaluator(directory)
        try:
            if expected is not None:
                _check_origin(evaluator, expected)
            return np.array([evaluator.at_point(point) for point in points])
        except EvaluationError:
            _close()
            raise
        except OPERATOR_ERRORS as error:  # as a text: the other process may lack the class of a user's error
            return f"{type(error).__name__}: {error}"


@contextmanager
def registered(directory: str, evaluator: Evaluator) -> Iterator[None]:
    """Let `evaluate` of this process use this evaluator for the folder: an executor may run threads."""
    global _current
    before, _current = _current, (directory, evaluator)
    try:
        yield
    finally:
        _current = before


def _evaluator(directory: str) -> tuple[Evaluator, list[float] | None]:
    """Return the evaluator of a folder and, if it was made just now, the values that it must find at the origin."""
    global _current
    if _current is not None and _current[0] == directory:
        return _current[1], None
    _close()
    evaluator, expected = _open(directory)
    _current = (directory, evaluator)
    return evaluator, expected


@atexit.register
def _close() -> None:
    global _current
    if _current is not None:
        _current[1].forward.close()
    _current = None


def _open(directory: str) -> tuple[Evaluator, list[float]]:
    """Make the network anew, as the process that began made it."""
    state, samples, plane, callback = checkpoint_store.shared(directory)
    _end_with_parent()
    device = state.versions["device"]
    if mindspore.get_context("device_target") != device:
        mindspore.set_context(device_target=device)
    mindspore.set_context(mode=mindspore.GRAPH_MODE if state.graph else mindspore.PYNATIVE_MODE)
    parts = parts_of(unpickled(callback)())
    forward = Forward(parts, samples, {name: parts.metrics[name] for name in state.metrics})
    forward.use(state.form)
    return Evaluator(forward, plane), state.origin


@functools.cache
def _end_with_parent() -> None:
    """End a worker of the standard library with its parent: it would wait for ever for tasks of a killed process."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, name="instrument-landscape-parent", daemon=True).start()


def _check_origin(evaluator: Evaluator, expected: list[float]) -> None:
    values = evaluator.at_point(evaluator.plane.origin_point)
    if not np.allclose(values, expected, rtol=_SAME_LOSS, atol=1e-7, equal_nan=True):
        raise EvaluationError(
            f"callback_fn gives another network in this process: at the origin {values.tolist()} instead of "
            f"{expected}. It must not depend on what the calling script has changed since it began."
        )


# ---------------------------------------------------------------- on an executor


def tasks(points: Sequence[int], seconds_per_point: float, workers: int) -> list[list[int]]:
    """Cut points into pieces of about `TASK_SECONDS`, but small enough that each worker gets one."""
    most = max(len(points) // max(workers, 1), 1)
    length = int(min(max(TASK_SECONDS / max(seconds_per_point, 1e-9), 1), most))
    return [list(points[start : start + length]) for start in range(0, len(points), length)]


def check_executor(executor: object) -> None:
    """Raise `TypeError` or `ValueError` for what cannot work."""
    if executor is None:
        return
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor is a {type(executor).__name__}; expected a concurrent.futures.Executor or None.")
    context = getattr(executor, "_mp_context", None)
    if isinstance(executor, ProcessPoolExecutor) and context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "executor forks its processes, which hang once MindSpore has run in this one. Give "
            'ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn")), or workers=n.'
        )


def evaluate_here(points: Sequence[int], evaluator: Evaluator) -> Rows:
    """Yield the values of points, computed by this process."""
    for point in points:
        yield point, evaluator.at_point(point)


class Dispatcher:
    """Have points evaluated by an executor, and by this process when that breaks."""

    def __init__(self, executor: Executor, evaluator: Evaluator, directory: str, seconds: float) -> None:
        self._executor: Executor | None = executor
        self._evaluator = evaluator
        self._directory = directory
        self._seconds = seconds
        self._workers = int(getattr(executor, "_max_workers", 0) or os.cpu_count() or 1)

    def rows(self, points: list[int]) -> Rows:
        """Yield the values of points, in any order."""
        if self._executor is None:
            yield from evaluate_here(points, self._evaluator)
            return
        left: list[int] = []
        with registered(self._directory, self._evaluator):
            for task, values in self._results(tasks(points, self._seconds, self._workers)):
                if values is None:
                    left += task
                else:
                    yield from zip(task, values, strict=True)
        yield from evaluate_here(left, self._evaluator)

    def _results(self, tasks: list[list[int]]) -> Iterator[tuple[list[int], Values | None]]:
        """Yield each task with its values (points, 1 + metrics), or None if the executor could not do it."""
        waiting = list(reversed(tasks))
        running: dict[Future[Values | str], list[int]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < 2 * self._workers:
                    task = waiting.pop()
                    if not self._submit(task, running):
                        yield task, None
                if running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        task = running.pop(future)
                        yield task, self._result(future)
        finally:
            for future in running:
                future.cancel()

    def _submit(self, task: list[int], running: dict[Future[Values | str], list[int]]) -> bool:
        if self._executor is None:
            return False
        try:
            running[self._executor.submit(evaluate, self._directory, task)] = task
        except (BrokenExecutor, RuntimeError) as error:
            self._give_up(error)
            return False
        return True

    def _result(self, future: Future[Values | str]) -> Values | None:
        error = CancelledError() if future.cancelled() else future.exception()
        if isinstance(error, Exception):  # whatever another's executor raises
            self._give_up(error)
            return None
        result = future.result()
        if isinstance(result, str):
            raise EvaluationError(f"The network of callback_fn fails in a worker: {result}")
        return result

    def _give_up(self, error: Exception) -> None:
        if self._executor is not None:
            log.warning(
                "The executor fails (%s: %s): the remaining points are computed by this process.", type(error).__name__,
                error,
            )  # fmt: skip
        self._executor = None


# ---------------------------------------------------------------- the user's function, as bytes

_MAIN = "__main__"
#: Names that were put into this process's main module.
_added_names: set[str] = set()


def pickled(callback: Callback) -> bytes:
    """Return the function and the names that it needs as bytes.

    Raises:
        TypeError: it refers to something that cannot be sent.
    """
    import dill

    try:
        data: bytes = dill.dumps((callback, _names(callback)), recurse=True)
    except PICKLE_ERRORS as error:
        raise TypeError(
            f"callback_fn cannot be sent to another process ({type(error).__name__}: {error}). Make network and "
            "dataset inside of it, or compute in this process."
        ) from error
    return data


def unpickled(data: bytes) -> Callback:
    """Return the function, and put the names that it needs into this process's main module."""
    import dill

    callback, names = dill.loads(data)
    main = vars(sys.modules[_MAIN])
    for name, value in names.items():
        if name in _added_names or name not in main:  # an executor's worker may have had those of an earlier call
            main[name] = value
            _added_names.add(name)
    function: Callback = callback
    return function


def _names(callback: Callback) -> dict[str, object]:
    """Return the objects of the main module that a function needs, directly or through others, by name."""
    main = vars(sys.modules[_MAIN])
    needed: dict[str, object] = {}
    seen: set[int] = set()  # a method encloses its class
    waiting: list[object] = [callback]
    while waiting:
        value = waiting.pop()
        is_of_main = getattr(value, "__module__", None) == _MAIN or getattr(value, "__globals__", None) is main
        if id(value) in seen or not is_of_main:
            continue
        seen.add(id(value))
        waiting += _inside(value)
        for name in _used(value.__code__) if isinstance(value, FunctionType) else ():
            if name in main and name not in needed and not name.startswith("__"):
                needed[name] = main[name]
                waiting.append(main[name])
    return needed


def _inside(value: object) -> Iterator[object]:
    """Yield what a function encloses, or the methods and bases of a class."""
    if isinstance(value, FunctionType):
        yield from map(_content, value.__closure__ or ())
    elif isinstance(value, type):
        yield from value.__bases__
        for member in vars(value).values():
            yield inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", None) or member))


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def _used(code: CodeType) -> Iterator[str]:
    """Yield the names that a code object, or one inside it, refers to."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant)
