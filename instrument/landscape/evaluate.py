"""Points -> losses, in whichever process: `evaluate` is what an executor is given."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mindspore
import numpy as np
from numpy.typing import NDArray

from instrument.landscape import work
from instrument.landscape.forward import Form, Forward
from instrument.landscape.parts import EvaluationError, parts_of
from instrument.landscape.plane import Plane
from instrument.landscape.sending import unpickled

#: The losses of one process at the origin are those of another, but for rounding on other processors.
_SAME_LOSS = 1e-4

#: MindSpore is used by one thread at a time.
_LOCK = threading.Lock()
#: The landscape that this process evaluates at present: its folder, and how.
_current: Any = None


class Evaluator:
    """Puts the points of a plane into a network. All parameters are set first, then those that move, point by point."""

    def __init__(self, forward: Forward, plane: Plane) -> None:
        self.forward = forward
        self.plane = plane
        self._is_elsewhere = True

    def at_point(self, point: int) -> NDArray[np.float64]:
        """(1 + metrics,): of a point on the plane."""
        if self._is_elsewhere:
            self.forward.put(known(self.forward, self.plane.origin))
            self._is_elsewhere = False
        self.forward.put(self.plane.tensors(point))
        return self.forward.values()

    def at_checkpoint(self, tensors: Any) -> NDArray[np.float64]:
        """(1 + metrics,): with all that a checkpoint holds, whether it moves or not."""
        self._is_elsewhere = True
        self.forward.put(known(self.forward, tensors))
        return self.forward.values()


def known(forward: Forward, tensors: Any) -> dict[str, NDArray[Any]]:
    """Those tensors that are parameters of the network; a checkpoint may hold the optimiser's beside them."""
    return {name: values for name, values in tensors.items() if name in forward.parameters}


def evaluate(directory: str, points: list[int]) -> tuple[str, Any]:
    """`("rows", values)` (points, 1 + metrics) of a landscape's folder, or `("error", text)` where the network fails.

    Whatever else is raised is no fault of the network: a folder that cannot be read, a module that is missing.
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
        except Exception as error:  # noqa: BLE001  it may not be known where it is to be raised again
            return "error", f"{type(error).__name__}: {error}"


@contextmanager
def registered(directory: str, evaluator: Evaluator) -> Iterator[None]:
    """Inside, `evaluate` of this process takes this one for the folder: an executor may run threads."""
    global _current
    before, _current = _current, (directory, evaluator)
    try:
        yield
    finally:
        _current = before


def _evaluator(directory: str) -> tuple[Evaluator, list[float] | None]:
    """The evaluator of a folder and, where it was made just now, what it should find at the origin."""
    global _current
    expected = None
    if _current is None or _current[0] != directory:
        _close()
        evaluator, expected = _open(directory)
        _current = (directory, evaluator)
    return _current[1], expected


@atexit.register
def _close() -> None:
    global _current
    if _current is not None:
        _current[1].forward.close()
    _current = None


def _open(directory: str) -> tuple[Evaluator, list[float]]:
    """Make the network anew, as the process that began made it."""
    state, samples, arrays, callback = work.shared(directory)
    _end_with_parent()
    device = state.versions["device"]
    if mindspore.get_context("device_target") != device:
        mindspore.set_context(device_target=device)
    mindspore.set_context(mode=mindspore.GRAPH_MODE if state.graph else mindspore.PYNATIVE_MODE)
    parts = parts_of(unpickled(callback)())
    forward = Forward(parts, samples, {name: parts.metrics[name] for name in state.metrics})
    forward.use(Form(state.graph, state.joined, state.unfold, state.early))
    return Evaluator(forward, Plane.of(arrays)), state.origin


@functools.cache
def _end_with_parent() -> None:
    """The standard library's workers would wait for ever for tasks of a process that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent,), name="instrument-landscape-parent", daemon=True).start()


def _watch(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _check_origin(evaluator: Evaluator, expected: list[float]) -> None:
    found = evaluator.at_point(evaluator.plane.origin_point)
    if not np.allclose(found, expected, rtol=_SAME_LOSS, atol=1e-7, equal_nan=True):
        raise EvaluationError(
            f"callback_fn gives another network in this process: at the origin {found.tolist()} instead of "
            f"{expected}. It must not depend on what the calling script has changed since it began."
        )
