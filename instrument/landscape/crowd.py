"""Points on an executor: what it is given, and what is done where it breaks."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.landscape import grid
from instrument.landscape.evaluate import Evaluator, evaluate, registered
from instrument.landscape.parts import EvaluationError

log = logging.getLogger("instrument")

Values = NDArray[np.float64]
Rows = Iterator[tuple[int, Values]]


def check_executor(executor: Any) -> None:
    """Raises `TypeError` or `ValueError` for what cannot work."""
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


def here(points: Sequence[int], evaluator: Evaluator) -> Rows:
    for point in points:
        yield point, evaluator.at_point(point)


class Crowd:
    """Has points evaluated by an executor; where that breaks, by this process."""

    def __init__(self, executor: Executor, evaluator: Evaluator, directory: str, seconds: float) -> None:
        self._executor: Executor | None = executor
        self._evaluator = evaluator
        self._directory = directory
        self._seconds = seconds
        self._workers = int(getattr(executor, "_max_workers", 0) or os.cpu_count() or 1)

    def rows(self, points: list[int]) -> Rows:
        if self._executor is None:
            yield from here(points, self._evaluator)
            return
        left: list[int] = []
        with registered(self._directory, self._evaluator):
            for task, found in self._results(grid.tasks(points, self._seconds, self._workers)):
                if found is None:
                    left += task
                else:
                    yield from zip(task, found, strict=True)
        yield from here(left, self._evaluator)

    def _results(self, tasks: list[list[int]]) -> Iterator[tuple[list[int], Values | None]]:
        """Each task with its values (points, 1 + metrics), or None where the executor could not do it."""
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
                        yield task, self._taken(future)
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

    def _taken(self, future: Future[Any]) -> Values | None:
        try:
            outcome, value = future.result()
        except Exception as error:  # noqa: BLE001  the executor's trouble, of whatever kind: the points are computed here
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
