"""Steps and operators of a real device: in PyNative mode operators run later than they are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import ops

from instrument import Profiler, SummaryCollector, read
from tests.collect.fake import Loop

STEPS, PRODUCTS = 6, 5


@pytest.fixture
def work() -> Callable[[], ms.Tensor]:
    """A chain of products, each of which takes longer than all of its calls."""
    weight = ms.Tensor(np.full((400, 400), 0.01, np.float32))

    def run() -> ms.Tensor:
        value = weight
        for _ in range(PRODUCTS):
            value = ops.matmul(value, weight)
        return value

    run().asnumpy()
    return run


def check(directory: Path, first: int) -> None:
    """Each step has its own products, and no callback has their time."""
    found = read(directory).profile()
    assert found.steps["step"].tolist() == list(range(first, first + STEPS))
    assert found.steps["operators"].tolist() == [PRODUCTS] * STEPS
    assert set(found.capture.executions["step"].tolist()) == set(range(first, first + STEPS))
    spans = found.capture.spans
    callbacks = int(spans["duration_ns"][spans["kind"] == 3].sum())
    assert callbacks < found.capture.executions["duration_ns"].sum()


def test_operators_run_in_the_step_that_called_them(tmp_path: Path, work: Callable[[], ms.Tensor]) -> None:
    """Of a loop that asks for no result, with `step`."""
    with Profiler(tmp_path) as profiler:
        for _ in range(STEPS):
            work()
            profiler.step()
    check(tmp_path, 0)


def test_operators_run_in_the_step_of_the_callbacks(tmp_path: Path, work: Callable[[], ms.Tensor]) -> None:
    """Of a training, whose steps a collector marks."""
    quiet = SummaryCollector(tmp_path, keep_default_action=False, num_process=0)
    with Profiler(tmp_path):
        Loop(quiet, at_step=lambda number, params: work()).train(range(1, STEPS + 1))
    check(tmp_path, 1)


def test_a_window_without_a_step_is_a_profile(tmp_path: Path, work: Callable[[], ms.Tensor]) -> None:
    """Closed at once it is empty and says so; with operators but no step, the window is the one row."""
    with Profiler(tmp_path) as profiler:
        pass
    empty = profiler.analyse()
    assert (len(empty.steps), len(empty.operators), empty.metadata["first_step"]) == (0, 0, None)
    assert "n/a: the trace has no step marks and no operators." in str(empty)
    profiler.start()
    work()
    found = profiler.analyse()
    assert found.steps["operators"].tolist() == [PRODUCTS]
    assert "The trace has no step marks: the whole window is shown as one step" in str(found)
