"""Points -> losses: in this process, or handed out to an executor's workers.

`evaluate` is what an executor is given: the folder of the computation and some points. Whichever process runs it makes
the network anew from that folder, once, and checks that the loss at the origin is that of the process that began.
"""

from __future__ import annotations

import atexit
import functools
import logging
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import mindspore
import numpy as np
from numpy.typing import NDArray

from instrument.landscape import checkpoint_store
from instrument.landscape.callback_pickle import unpickled
from instrument.landscape.forward import Forward
from instrument.landscape.model_parts import EvaluationError, parts_of
from instrument.landscape.plane import Plane
from instrument.landscape.weights import Tensors

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


def evaluate(directory: str, points: list[int]) -> tuple[str, Any]:
    """Return `("rows", values)` (points, 1 + metrics), or `("error", text)` if the network of the folder fails.

    Whatever is raised is no fault of the network: a folder that cannot be read, a module that is missing.
    """
    with _LOCK:
        evaluator, expected = _evaluator(directory)
        try:
            if expected is not None:
                _check_origin(evaluator, expected)
            return "rows", np.array([evaluator.at_point(point) for point in points])
        except EvaluationError:
            _close()
            raise
        except Exception as error:  # noqa: BLE001  the edge: the other process may lack the class of a user's error
            return "error", f"{type(error).__name__}: {error}"


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
    state, samples, arrays, callback = checkpoint_store.shared(directory)
    _end_with_parent()
    device = state.versions["device"]
    if mindspore.get_context("device_target") != device:
        mindspore.set_context(device_target=device)
    mindspore.set_context(mode=mindspore.GRAPH_MODE if state.graph else mindspore.PYNATIVE_MODE)
    parts = parts_of(unpickled(callback)())
    forward = Forward(parts, samples, {name: parts.metrics[name] for name in state.metrics})
    forward.use(state.form)
    return Evaluator(forward, Plane.of(arrays)), state.origin


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
        running: dict[Future[Any], list[int]] = {}
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

    def _submit(self, task: list[int], running: dict[Future[Any], list[int]]) -> bool:
        if self._executor is None:
            return False
        try:
            running[self._executor.submit(evaluate, self._directory, task)] = task
        except (BrokenExecutor, RuntimeError) as error:
            self._give_up(error)
            return False
        return True

    def _result(self, future: Future[Any]) -> Values | None:
        try:
            outcome, value = future.result()
        except Exception as error:  # noqa: BLE001  the edge: executors of others raise anything
            self._give_up(error)
            return None
        if outcome == "error":
            raise EvaluationError(f"The network of callback_fn fails in a worker: {value}")
        rows: Values = value
        return rows

    def _give_up(self, error: BaseException) -> None:
        if self._executor is not None:
            log.warning(
                "The executor fails (%s: %s): the remaining points are computed by this process.", type(error).__name__,
                error,
            )  # fmt: skip
        self._executor = None
