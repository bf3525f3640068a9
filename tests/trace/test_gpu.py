"""What becomes of the files of a GPU."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from instrument.trace import cpu, gpu
from instrument.trace.events import GPU, Operator, Problem
from tests.trace.encoders import EPOCH_NS, damaged, parsed, table, timestamps

ASYNC = (
    "Default/GetNext-op3,100 Default/Conv2D-op1,140 Gradients/Grad-op2,200 Default/Apply-op3,307"
    " Default/AllReduce-op7,210,250\n"
    "Default/GetNext-op3,400 Default/Conv2D-op1,440 Gradients/Grad-op2,500 Default/Apply-op3,601\n"
)
SYNC = (
    "Default/Conv2D-op1 10,11 30,31 \n"
    "Gradients/Grad-op2 12,15 32,36 \n"
    "Default/Apply-op3 18,19 38,40 \n"
    "Default/AllReduce-op7 15,17 36,37 \n"
)


def test_a_line_a_step() -> None:
    """The async form: ns, to the last digit; the backward pass ends where its operator starts."""
    trace, problems = parsed(gpu.step_trace, ASYNC.encode())
    assert trace.steps.tolist() == [(1, 100, 140, 200, 307, -1), (2, 400, 440, 500, 601, -1)]
    assert trace.names == ["Default/AllReduce-op7"]
    assert trace.reduces.tolist() == [(1, -1, 0, 210, 40)]
    assert problems == []


def test_a_line_a_point() -> None:
    """The sync form: 10 ns; a step begins where the last operator of the one before it started."""
    trace, problems = parsed(gpu.step_trace, SYNC.encode())
    assert trace.steps.tolist() == [(1, 100, 100, 150, 190, -1), (2, 180, 300, 360, 400, -1)]
    assert trace.reduces.tolist() == [(1, -1, 0, 150, 20), (2, -1, 0, 360, 10)]
    assert problems == []


def test_points_that_lack_steps() -> None:
    """Only steps of which all points are there count; the others, and lines without the rest, are told."""
    trace, problems = parsed(gpu.step_trace, SYNC.replace("32,36 ", "").encode())
    assert trace.steps["step"].tolist() == [1]
    assert problems == [Problem("f", "points beyond the last whole step", 3)]
    alone, problems = parsed(gpu.step_trace, b"Default/Conv2D-op1 10,11 30,31 \n")
    assert len(alone.steps) == 0
    assert problems == [Problem("f", "points of steps without the others", 1)]


def test_points_of_communication_may_lack_steps() -> None:
    """A step without communication is a whole step; communication behind the last whole step is told."""
    lacking, problems = parsed(gpu.step_trace, SYNC.replace("15,17 36,37 ", "15,17 ").encode())
    assert lacking.steps["step"].tolist() == [1, 2]
    assert lacking.reduces.tolist() == [(1, -1, 0, 150, 20)]
    assert problems == []
    beyond, problems = parsed(gpu.step_trace, SYNC.replace("36,37 ", "36,37 50,51 ").encode())
    assert beyond.reduces["step"].tolist() == [1, 2]
    assert problems == [Problem("f", "points beyond the last whole step", 1)]
    _, problems = parsed(
        gpu.step_trace, SYNC.replace("15,17 36,37 ", "15,17 ").replace("18,19 38,40 ", "18,19 38,40 58,60 ").encode()
    )
    assert problems == [Problem("f", "points beyond the last whole step", 1)]  # what one lacks offsets nothing


def test_points_without_a_time() -> None:
    """A step without its end is left out; one without forward is there, without it."""
    trace, problems = parsed(gpu.step_trace, ASYNC.replace(",140", ",x").replace(",601", ",").encode())
    assert trace.steps.tolist() == [(1, 100, -1, 200, 307, -1)]
    assert problems == [Problem("f", "points without a time", 2), Problem("f", "steps without start or end", 1)]


@pytest.mark.parametrize("text", [ASYNC, SYNC])
def test_cut_step_traces(text: str) -> None:
    """Wherever the file is cut, a step that is there is one of the whole file."""
    data = text.encode()
    whole = parsed(gpu.step_trace, data)[0].steps.tolist()
    for length in range(len(data)):
        trace, problems = parsed(gpu.step_trace, data[:length])
        assert set(trace.steps.tolist()) <= set(whole)
        assert problems or not length or data[:length].endswith(b"\n")


def test_operators() -> None:
    """Durations are us."""
    data = timestamps({"Default/Conv2D-op1": [(EPOCH_NS, 854.088), (EPOCH_NS + 9, 44.151)]}, "GpuOps")
    found = parsed(partial(cpu.executions, unit_ns=cpu.US, side=GPU), data)[0]
    assert found.operators == [Operator("Default/Conv2D-op1", "Conv2D-op1", "Conv2D", "GPU")]
    assert found.rows["duration_ns"].tolist() == [854_088, 44_151]


def test_kernels() -> None:
    """Names of kernels hold commas, blanks and semicolons; their type is that of the operator that launched them."""
    kernel = "void k<float, float>(int; float const*, 0)"
    heading = ["name", "type", "op_full_name", "stream_id", "occurrences"]
    rows = [[kernel, "cuLaunchKernel", "Default/a/Conv2D-op1", 7, 2]]
    (launched_by, launches), problems = parsed(gpu.launchers, table(heading, rows), "g")
    assert (launched_by, launches, problems) == ({kernel: "Default/a/Conv2D-op1"}, 2, [])
    data = f"{kernel};7;{EPOCH_NS + 5};3.206\n{kernel};17;{EPOCH_NS};19.131\nodd\n{kernel};1;2;3.".encode()

    found, problems = parsed(gpu.activities, data, "f", launched_by)

    assert found.operators == [Operator(kernel, kernel, "Conv2D", "GPU")]
    assert found.rows.tolist() == [(EPOCH_NS, 19131, 0, 17, -1, -1), (EPOCH_NS + 5, 3206, 0, 7, -1, -1)]
    assert problems == [Problem("f", "lines that hold no launch", 2)]


def test_start_time() -> None:
    """One moment on two clocks."""
    data = b"host_monotonic_raw_time(ns): 261003032627\ngpu_start_time(ns): 1600695894500000000\nx\n"
    assert parsed(gpu.start_time, data) == (
        {"host_monotonic_raw_ns": 261003032627, "gpu_start_ns": 1600695894500000000},
        [Problem("f", "lines of another form", 1)],
    )


def test_hostile_files(rng: np.random.Generator) -> None:
    """Nothing that a file may hold is an error."""
    kernels = f"k;7;{EPOCH_NS};3.5\n".encode() * 3
    for data in (ASYNC.encode(), SYNC.encode(), kernels, b"gpu_start_time(ns): 5\n"):
        for broken in damaged(data, rng, 150):
            parsed(gpu.step_trace, broken)[0]
            parsed(gpu.activities, broken)[0]
            parsed(partial(cpu.executions, unit_ns=cpu.US, side=GPU), broken)[0]
            parsed(gpu.start_time, broken)
            parsed(gpu.launchers, broken)
            parsed(partial(cpu.totals, side=GPU), broken)[0]
