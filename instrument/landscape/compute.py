"""All points of a plane: those that are finished already are taken from disk, the others computed, and each is kept."""

from __future__ import annotations

import hashlib
import logging
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import mindspore
import numpy as np
from mindspore import train
from numpy.typing import NDArray

from instrument._version import __version__
from instrument.landscape import samples
from instrument.landscape.crowd import Crowd, Rows, Values, check_executor, here
from instrument.landscape.evaluate import Evaluator, known
from instrument.landscape.forward import Form, Forward
from instrument.landscape.parts import EvaluationError, Parts, parts_of
from instrument.landscape.plane import Plane
from instrument.landscape.progress import Progress, Report
from instrument.landscape.samples import Samples
from instrument.landscape.sending import pickled
from instrument.landscape.weights import Tensors
from instrument.landscape.work import State, Work

log = logging.getLogger("instrument")

#: What a network raises that does not fit its samples or its form.
_OF_NETWORKS = (EvaluationError, TypeError, ValueError, RuntimeError, AttributeError)


@dataclass(frozen=True)
class Question:
    """What is to be computed, and how. `others` are the tensors of the path's checkpoints but the last."""

    tag: str
    plane: Plane
    others: Sequence[Tensors]
    callback: Callable[[], Any]
    samples: int
    metrics: Sequence[str] = ()
    unfold: bool = True
    executor: Executor | None = None
    report: Report | None = None


@dataclass
class Answer:
    """`values` (points, 1 + metrics) are NaN where `is_done` (points,) is False; columns are the loss and `metrics`."""

    values: Values
    is_done: NDArray[np.bool_]
    metrics: list[str]
    form: Form
    difference: float
    samples: int
    resumed: int


def compute(question: Question, parts: Parts, directory: str, on_level: Callable[[int, Answer], None]) -> Answer:
    """Compute all points; `on_level` is told when a level of the grid is whole.

    Args:
        parts: what the question's callback gave in this process.
        directory: under which unfinished work is kept.

    Raises:
        Busy: another process computes the same.
        EvaluationError: the network fails, or its loss is no number.
        OSError: the directory cannot be written.
    """
    check_executor(question.executor)
    with ExitStack() as stack:
        work = stack.enter_context(Work(directory, question.tag, _digest(question)))
        state, taken, forward = _begin(question, parts, work, stack)
        evaluator = Evaluator(forward, question.plane)
        answer = _resumed(question, work, state, taken)
        _finish(question, evaluator, answer, work, on_level)
        work.remove()
        return answer


def _digest(question: Question) -> str:
    state = hashlib.sha256(question.plane.digest().encode())
    for tensors in question.others:
        for name, values in tensors.items():
            state.update(name.encode())
            state.update(values.tobytes())
    state.update(repr((question.samples, list(question.metrics), question.unfold)).encode())
    return state.hexdigest()


# ---------------------------------------------------------------- from the start, or where another one ended


def _begin(question: Question, parts: Parts, work: Work, stack: ExitStack) -> tuple[State, Samples, Forward]:
    """The samples and the form of the computation, of an earlier process where its points can be gone on with."""
    taken = samples.take(parts.dataset, question.samples)
    metrics = {name: parts.metrics[name] for name in question.metrics}
    earlier = work.load()
    if earlier is not None and earlier[0].versions == _versions() and _may_go_on(earlier[1], taken, parts, question):
        state, taken = earlier
        forward = stack.enter_context(Forward(parts, taken, metrics))
        found = _origin(question, forward, Form(state.graph, state.joined, state.unfold, state.early))
        if found is not None and np.array_equal(found, state.origin, equal_nan=True):
            return state, taken, forward
        log.info(
            "%s: the loss at the last checkpoint is another than before; all points are computed anew.", question.tag
        )
        forward.close()
        taken = samples.take(parts.dataset, question.samples)
    forward = stack.enter_context(Forward(parts, taken, metrics))
    state = _first(question, forward, taken)
    work.begin(state, taken)
    return state, taken, forward


def _origin(question: Question, forward: Forward, form: Form) -> Values | None:
    """What an earlier process computed first; None where the network is another by now, and cannot be taken so."""
    try:
        forward.use(form)
        return Evaluator(forward, question.plane).at_point(question.plane.origin_point)
    except _OF_NETWORKS as error:
        log.debug("The form %s cannot be taken: %s", form, error)
        return None


def _may_go_on(before: Samples, now: Samples, parts: Parts, question: Question) -> bool:
    """Whether the samples are the same; a dataset that shuffles gives others each time, and the first ones stay."""
    if before.digest() == now.digest():
        return True
    shuffles = samples.take(parts.dataset, question.samples).digest() != now.digest()
    log.info(
        "%s: %s", question.tag,
        "the dataset shuffles; the samples of the points that are finished are used for the others too." if shuffles
        else "the dataset has changed; all points are computed anew.",
    )  # fmt: skip
    return shuffles and before.count == now.count


def _first(question: Question, forward: Forward, taken: Samples) -> State:
    """Try the forms, and evaluate the origin."""
    plane = question.plane
    places = [known(forward, plane.origin)]
    places.append(known(forward, question.others[0]) if question.others else plane.tensors(0))
    try:
        form, difference = forward.choose(question.unfold, places)
        origin = Evaluator(forward, plane).at_point(plane.origin_point)
    except EvaluationError:
        raise
    except _OF_NETWORKS as error:
        raise EvaluationError(
            f"The network cannot be evaluated on the samples of callback_fn: {type(error).__name__}: {error}"
        ) from error
    return State(
        form.graph, form.joined, form.unfold, form.early, difference, list(question.metrics), _versions(),
        origin.tolist(), taken.digest(),
    )  # fmt: skip


def _versions() -> dict[str, str]:
    """What the last bits of a loss depend on."""
    return {
        "instrument": __version__, "mindspore": str(mindspore.__version__), "numpy": np.__version__,
        "python": platform.python_version(), "device": str(mindspore.get_context("device_target")),
    }  # fmt: skip


def _resumed(question: Question, work: Work, state: State, taken: Samples) -> Answer:
    columns, count = 1 + len(state.metrics), question.plane.count
    values, is_done = np.full((count, columns), np.nan), np.zeros(count, np.bool_)
    before = work.finished(columns, count)
    for point, row in before.items():
        values[point], is_done[point] = row, True
    values[question.plane.origin_point], is_done[question.plane.origin_point] = state.origin, True
    form = Form(state.graph, state.joined, state.unfold, state.early)
    return Answer(values, is_done, state.metrics, form, state.difference, taken.count, len(before))


# ---------------------------------------------------------------- the points


def _finish(
    question: Question, evaluator: Evaluator, answer: Answer, work: Work, on_level: Callable[[int, Answer], None]
) -> None:
    """All that is not done, coarse to fine."""
    progress = Progress(question.tag, question.plane.count, int(answer.is_done.sum()), question.report)

    def keep(point: int, row: Values) -> None:
        work.add(point, row)
        answer.values[point], answer.is_done[point] = row, True
        progress.step()

    try:
        for point, tensors in zip(question.plane.true, question.others, strict=True):
            if not answer.is_done[point]:
                keep(point, evaluator.at_checkpoint(tensors))
        seconds = _seconds_of(evaluator)
        source = _source(question, evaluator, work, seconds)
        for level, points in enumerate(_levels(question.plane)):
            for point, row in source([int(point) for point in points if not answer.is_done[point]]):
                keep(point, row)
            on_level(level, answer)
    finally:
        progress.close()


def _seconds_of(evaluator: Evaluator) -> float:
    """What a point takes; everything is compiled and warm by now."""
    started = time.perf_counter()
    evaluator.at_point(evaluator.plane.origin_point)
    return time.perf_counter() - started


def _levels(plane: Plane) -> Iterator[NDArray[np.intp]]:
    """The points of each level of the grid; those of the path come with the first."""
    for level, points in enumerate(plane.grid.order()):
        path = np.array(plane.projected, np.intp) if level == 0 else np.empty(0, np.intp)
        yield np.concatenate([path, points])


def _source(question: Question, evaluator: Evaluator, work: Work, seconds: float) -> Callable[[list[int]], Rows]:
    """What gives the rows of points, in any order."""
    executor = question.executor
    if executor is None:
        return lambda points: here(points, evaluator)
    work.share(question.plane.arrays(), pickled(question.callback))
    crowd = Crowd(executor, evaluator, work.path, seconds)
    return crowd.rows


def prepare(callback: Callable[[], Any]) -> Parts:
    """Call the user's function and check what it gives."""
    if not callable(callback):
        raise TypeError(f"callback_fn is a {type(callback).__name__}; expected a function without arguments.")
    return parts_of(callback())


def checked_metrics(parts: Parts, wanted: Any) -> list[str]:
    """The names of the metrics that are computed beside the loss; None asks for none.

    Raises:
        TypeError, ValueError: there is no such metric, or it needs the output of a network that gives its loss only.
    """
    if wanted is None:
        return []
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise TypeError(f"metrics is {wanted!r}; expected names of metrics that callback_fn gives, in a list.")
    names = list(dict.fromkeys(str(name) for name in wanted))
    unknown = [name for name in names if name not in parts.metrics]
    if unknown:
        raise ValueError(f"metrics has {unknown}; callback_fn gives those of the names {sorted(parts.metrics)}.")
    names = [name for name in names if not isinstance(parts.metrics[name], train.Loss)]
    if names and not parts.can_measure:
        raise ValueError(
            f"metrics has {names}, which need the network's output; the model of callback_fn computes its loss itself. "
            "Give the Model a network and a loss_fn, or an eval_network beside, or ask for no metrics."
        )
    return names
