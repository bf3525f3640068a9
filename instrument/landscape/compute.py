"""Compute the losses at all points of a plane: finished ones come from disk, the others are computed and stored."""

from __future__ import annotations

import hashlib
import logging
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TextIO

import mindspore
import numpy as np
from numpy.typing import NDArray

from instrument import framework
from instrument._version import __version__
from instrument.landscape.checkpoint_store import CheckpointStore, StoredState
from instrument.landscape.dispatch import Dispatcher, Evaluator, Rows, Values, evaluate_here, pickled
from instrument.landscape.forward import Form, Forward
from instrument.landscape.model_parts import Callback, EvaluationError, Parts, Samples, take_samples
from instrument.landscape.plane import Plane
from instrument.landscape.weights import Tensors

log = logging.getLogger("instrument")

#: Points done, points in all, seconds left (None before there is a rate).
Report = Callable[[int, int, "float | None"], object]
_EVERY_SECONDS = 0.2


@dataclass(frozen=True)
class Options:
    """How a landscape is computed, and where its event and its unfinished points go (`output`).

    `parts` are what `callback` returned in this process; `samples` is the number of samples that was asked for.
    """

    callback: Callback
    parts: Parts
    metrics: list[str]
    samples: int
    unfold: bool
    executor: Executor | None
    report: Report | None
    output: str


@dataclass(frozen=True, eq=False)
class Job:
    """A plane to compute. `others` are the tensors of the path's checkpoints but the last."""

    tag: str
    plane: Plane
    others: Sequence[Tensors]
    options: Options


@dataclass
class Result:
    """`values` (points, 1 + metrics) are NaN where `is_done` (points,) is False; columns are the loss and `metrics`.

    `difference` is the largest relative difference between losses in this `form` and in the plain one. `resumed` is
    the number of points that an earlier process computed.
    """

    values: Values
    is_done: NDArray[np.bool_]
    metrics: list[str]
    form: Form
    difference: float
    samples: int
    resumed: int


def compute(job: Job, on_level: Callable[[int, Result], None]) -> Result:
    """Compute all points; call `on_level` when a level of the grid is whole.

    Raises:
        AlreadyComputing: another process computes the same.
        EvaluationError: the network fails, or its loss is no number.
        OSError: the directory cannot be written.
    """
    with ExitStack() as stack:
        store = stack.enter_context(CheckpointStore(job.options.output, job.tag, _digest(job)))
        state, taken, forward = _begin(job, store, stack)
        result = _resumed(job, store, state, taken)
        _finish(job, Evaluator(forward, job.plane), result, store, on_level)
        store.remove()
        return result


def _digest(job: Job) -> str:
    """Return what a computation is found by again; never change it without need, or unfinished ones are lost."""
    state = hashlib.sha256(job.plane.digest().encode())
    for tensors in job.others:
        for name, values in tensors.items():
            state.update(name.encode())
            state.update(values.tobytes())
    options = job.options
    state.update(repr((options.samples, list(options.metrics), options.unfold)).encode())
    return state.hexdigest()


# ---------------------------------------------------------------- from the start, or where another one ended


def _begin(job: Job, store: CheckpointStore, stack: ExitStack) -> tuple[StoredState, Samples, Forward]:
    """Return samples and form of the computation: those of an earlier process if its points can be used."""
    options = job.options
    taken = take_samples(options.parts.dataset, options.samples)
    metrics = {name: options.parts.metrics[name] for name in options.metrics}
    earlier = store.load()
    if earlier is not None and earlier[0].versions == _versions() and _can_resume(job, earlier[1], taken):
        state, taken = earlier
        forward = stack.enter_context(Forward(options.parts, taken, metrics))
        origin = _origin(job, forward, state.form)
        if origin is not None and np.array_equal(origin, state.origin, equal_nan=True):
            return state, taken, forward
        log.info("%s: the loss at the last checkpoint is another than before; all points are computed anew.", job.tag)
        forward.close()
        taken = take_samples(options.parts.dataset, options.samples)
    forward = stack.enter_context(Forward(options.parts, taken, metrics))
    state = _first_state(job, forward, taken)
    store.begin(state, taken)
    return state, taken, forward


def _origin(job: Job, forward: Forward, form: Form) -> Values | None:
    """Return the values at the origin; None if the network is another by now, and has no such form."""
    try:
        forward.use(form)
        return Evaluator(forward, job.plane).at_point(job.plane.origin_point)
    except framework.OPERATOR_ERRORS as error:
        log.debug("The form %s cannot be taken: %s", form, error)
        return None


def _can_resume(job: Job, before: Samples, now: Samples) -> bool:
    """Return True if the samples are the same, or the dataset shuffles: then the first ones stay."""
    if before.digest() == now.digest():
        return True
    options = job.options
    shuffles = take_samples(options.parts.dataset, options.samples).digest() != now.digest()
    log.info(
        "%s: %s", job.tag,
        "the dataset shuffles; the samples of the points that are finished are used for the others too." if shuffles
        else "the dataset has changed; all points are computed anew.",
    )  # fmt: skip
    return shuffles and before.count == now.count


def _first_state(job: Job, forward: Forward, taken: Samples) -> StoredState:
    """Choose the form, and evaluate the origin."""
    plane = job.plane
    places: list[Tensors] = [forward.own(plane.origin)]
    places.append(forward.own(job.others[0]) if job.others else plane.tensors(0))
    try:
        form, difference = forward.choose(job.options.unfold, places)
        origin = Evaluator(forward, plane).at_point(plane.origin_point)
    except EvaluationError:
        raise
    except framework.OPERATOR_ERRORS as error:
        raise EvaluationError(
            f"The network cannot be evaluated on the samples of callback_fn: {type(error).__name__}: {error}"
        ) from error
    return StoredState(
        form.graph, form.joined, form.unfold, form.early, difference, list(job.options.metrics), _versions(),
        origin.tolist(), taken.digest(),
    )  # fmt: skip


def _versions() -> dict[str, str]:
    """Return what the last bits of a loss depend on."""
    return {
        "instrument": __version__, "mindspore": str(mindspore.__version__), "numpy": np.__version__,
        "python": platform.python_version(), "device": str(mindspore.get_context("device_target")),
    }  # fmt: skip


def _resumed(job: Job, store: CheckpointStore, state: StoredState, taken: Samples) -> Result:
    columns, count = 1 + len(state.metrics), job.plane.count
    values, is_done = np.full((count, columns), np.nan), np.zeros(count, np.bool_)
    finished = store.finished(columns, count)
    for point, row in finished.items():
        values[point], is_done[point] = row, True
    values[job.plane.origin_point], is_done[job.plane.origin_point] = state.origin, True
    return Result(values, is_done, state.metrics, state.form, state.difference, taken.count, len(finished))


# ---------------------------------------------------------------- the points


def _finish(
    job: Job, evaluator: Evaluator, result: Result, store: CheckpointStore, on_level: Callable[[int, Result], None]
) -> None:
    """Compute all that is not done, coarse to fine."""
    plane = job.plane
    progress = Progress(job.tag, plane.count, int(result.is_done.sum()), job.options.report)

    def keep(point: int, row: Values) -> None:
        store.add(point, row)
        result.values[point], result.is_done[point] = row, True
        progress.step()

    try:
        for point, tensors in zip(plane.true, job.others, strict=True):
            if not result.is_done[point]:
                keep(point, evaluator.at_checkpoint(tensors))
        rows = _evaluation(job, evaluator, store)
        for level, points in enumerate(_levels(plane)):
            for point, row in rows([int(point) for point in points if not result.is_done[point]]):
                keep(point, row)
            on_level(level, result)
    finally:
        progress.close()


def _levels(plane: Plane) -> Iterator[NDArray[np.intp]]:
    """Yield the points of each level of the grid; those of the path come with the first."""
    for level, points in enumerate(plane.grid.order()):
        path = np.array(plane.projected, np.intp) if level == 0 else np.empty(0, np.intp)
        yield np.concatenate([path, points])


def _evaluation(job: Job, evaluator: Evaluator, store: CheckpointStore) -> Callable[[list[int]], Rows]:
    """Return the function that evaluates points, in any order: here, or by the executor."""
    started = time.perf_counter()
    evaluator.at_point(job.plane.origin_point)  # everything is compiled and warm by now
    seconds = time.perf_counter() - started
    executor = job.options.executor
    if executor is None:
        return lambda points: evaluate_here(points, evaluator)
    store.share(job.plane, pickled(job.options.callback))
    return Dispatcher(executor, evaluator, store.path, seconds).rows


# ---------------------------------------------------------------- what the user sees meanwhile


class Progress:
    """Count points; write to a terminal only. What was done before this process does not count for the rate."""

    def __init__(
        self, title: str, total: int, done: int, report: Report | None = None,
        stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._title, self._total, self.done, self._first = title, total, done, done
        self._report, self._clock = report, clock
        stream = sys.stderr if stream is None else stream
        self._stream = stream if stream is not None and stream.isatty() else None
        self._started, self._last = clock(), -_EVERY_SECONDS
        self._width = 0

    @property
    def rate(self) -> float:
        """Return points a second, 0 before there is one."""
        elapsed = self._clock() - self._started
        return (self.done - self._first) / elapsed if elapsed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        return (self._total - self.done) / self.rate if self.rate > 0 else None

    def step(self, count: int = 1) -> None:
        self.done += count
        now = self._clock()
        if now - self._last >= _EVERY_SECONDS or self.done >= self._total:
            self._last = now
            if self._report is not None:
                self._report(self.done, self._total, self.seconds_left)
            self._show(self._line())

    def close(self) -> None:
        """End the line."""
        if self._stream is not None and self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0

    def _line(self) -> str:
        left = self.seconds_left
        words = "" if left is None else f", {self.rate:.3g}/s, {clock_words(left)} left"
        return f"{self._title}: {self.done}/{self._total} points{words}"

    def _show(self, line: str) -> None:
        if self._stream is not None:
            self._stream.write("\r" + line.ljust(self._width))
            self._stream.flush()
            self._width = len(line)


def clock_words(seconds: float) -> str:
    """Return `"12 s"`, `"3 min 12 s"` or `"2 h 3 min"`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
