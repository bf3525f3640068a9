"""Measure what a profile costs the training: ours beside MindSpore's own in the same window, and beside none.

    python benchmarks/profiled.py [--quick] [--modes graph,pynative] > profile.json

LeNet-5, batches of 32, on the CPU. The report goes to standard output as JSON. Each mode is a process of its own, in
which short trainings without a profiler, with ours and with MindSpore's follow each other on one network, in the order
none, ours, theirs, theirs, ours, none, so that a steady drift cancels. A training is compared with the nearest one of
the other kind only, by the medians of their steps; a figure is the median of these ratios, beside it stand the
quartiles. *inside* are the steps of the window but its first and last one, in which it is opened and closed;
*outside* those before and behind it, with the callback attached. *spans* are in microseconds each, *hooks* are what the
callback takes of a step outside and inside of a window, which other processes hardly disturb.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import training  # noqa: E402

#: What a profile may cost: percent above MindSpore's own inside, above none outside; microseconds of a span.
LIMITS = {"inside_of_theirs_percent": 2.0, "outside_percent": 0.0, "span_on_us": 1.0, "span_off_us": 0.1}
CYCLE = ("none", "ours", "theirs", "theirs", "ours", "none")


class Plan(NamedTuple):
    """Trainings of `steps` steps with a window from `first` to `last`, in so many cycles."""

    steps: int
    first: int
    last: int
    cycles: int


PLANS = {"graph": Plan(26, 6, 20, 16), "pynative": Plan(15, 4, 12, 6)}
QUICK = Plan(10, 4, 8, 1)


class Training(NamedTuple):
    """Medians of one training's steps; `cpu_ms` is the time of all of the process's threads, inside."""

    kind: str
    inside_ms: float
    outside_ms: float
    cpu_ms: float


def main() -> int:
    arguments = _parse()
    if arguments.mode:
        print(json.dumps(measure(arguments.mode, QUICK if arguments.quick else PLANS[arguments.mode])))
        return 0
    load = os.getloadavg()[0]
    machine = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "load_before": load}
    report: dict[str, Any] = {"benchmark": "profile", "quick": arguments.quick, "machine": machine, "limits": LIMITS}
    for mode in arguments.modes.split(","):
        report[mode] = _in_a_process(mode, arguments.quick)
    repetitions = 10 if arguments.quick else 100
    report["spans"], report["hooks"] = spans(repetitions), hooks(repetitions)
    print(json.dumps(report, indent=1))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps: shows that it works")
    parser.add_argument("--modes", default="graph,pynative", help="which ones (%(default)s)")
    parser.add_argument("--mode", choices=PLANS, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(mode: str, is_quick: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "--mode", mode, *(["--quick"] if is_quick else [])]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=900)
    result: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])  # MindSpore may print before it
    return result


# ---------------------------------------------------------------- trainings


def measure(mode: str, plan: Plan) -> dict[str, Any]:
    """All trainings of one mode, compared."""
    import mindspore

    model = training.lenet5()
    mindspore.set_context(mode=mindspore.GRAPH_MODE if mode == "graph" else mindspore.PYNATIVE_MODE)
    _train("none", model, plan)  # compiles and warms up
    done = [_train(kind, model, plan) for _ in range(plan.cycles) for kind in CYCLE]
    return {
        "steps": plan.steps,
        "window": [plan.first, plan.last],
        "trainings": len(done),
        "step_ms": {
            kind: round(statistics.median(one.inside_ms for one in done if one.kind == kind), 3) for kind in CYCLE[:3]
        },
        "inside_of_theirs_percent": _more(done, "inside_ms", "ours", "theirs"),
        "inside_of_theirs_cpu_percent": _more(done, "cpu_ms", "ours", "theirs"),
        "inside_percent": _more(done, "inside_ms", "ours", "none"),
        "theirs_inside_percent": _more(done, "inside_ms", "theirs", "none"),
        "outside_percent": _more(done, "outside_ms", "ours", "none"),
    }


def _more(done: list[Training], figure: str, kind: str, than: str) -> dict[str, float]:
    """By how many percent trainings of one kind are slower than their neighbours of another kind."""
    ratios = []
    chosen = [one for one in done if one.kind in (kind, than)]
    for before, after in pairwise(chosen):
        if before.kind != after.kind:
            one, other = (before, after) if before.kind == kind else (after, before)
            ratios.append(getattr(one, figure) / getattr(other, figure))
    more = [100 * (ratio - 1) for ratio in ratios]
    low, median, high = np.percentile(more, (25, 50, 75)).tolist()
    found = {"median": median, "quarter_below": low, "quarter_above": high}
    return {"pairs": len(more), **{name: round(value, 2) for name, value in found.items()}}


def _train(kind: str, model: Any, plan: Plan) -> Training:
    data, clock = training.pictures(plan.steps), _clock()
    callbacks = [clock]
    with tempfile.TemporaryDirectory() as folder:
        if kind == "ours":
            from instrument import StopAtStep

            callbacks.append(StopAtStep(plan.first, plan.last, folder))
        elif kind == "theirs":
            callbacks.append(_theirs(plan.first, plan.last, folder))
        model.train(1, data, callbacks=callbacks, dataset_sink_mode=False)
        if kind != "none" and not any(path.is_file() for path in Path(folder).rglob("*")):
            raise RuntimeError(f"The profiler {kind!r} recorded nothing; its figures would be those of none.")
    steps_ms, cpu_ms = 1e3 * np.diff(np.array(clock.begins), axis=0).T  # of the steps from 1 to the last but one
    inside = slice(plan.first, plan.last - 1)
    outside = np.concatenate([steps_ms[1 : plan.first - 1], steps_ms[plan.last :]])
    return Training(kind, _median(steps_ms[inside]), _median(outside), _median(cpu_ms[inside]))


def _median(values: NDArray[np.float64]) -> float:
    return float(np.median(values))


def _clock() -> Any:
    """A callback that notes the time and the process's CPU time at the begin of each step."""
    from mindspore.train import Callback

    class Clock(Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.begins: list[tuple[float, float]] = []

        def on_train_step_begin(self, run_context: Any) -> None:
            self.begins.append((time.perf_counter(), time.process_time()))

    return Clock()


def _theirs(first: int, last: int, folder: str) -> Any:
    """MindSpore's profiler in a callback as its documentation has it, but for the handler: without it the second
    window of a process is not recorded."""
    from mindspore.profiler import profile, tensorboard_trace_handler
    from mindspore.train import Callback

    class StopAtStep(Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._profiler = profile(start_profile=False, on_trace_ready=tensorboard_trace_handler(folder))

        def on_train_step_begin(self, run_context: Any) -> None:
            if run_context.original_args().cur_step_num == first:
                self._profiler.start()

        def on_train_step_end(self, run_context: Any) -> None:
            if run_context.original_args().cur_step_num == last:
                self._profiler.stop()

    return StopAtStep()


# ---------------------------------------------------------------- spans


def spans(repetitions: int) -> dict[str, float]:
    """What a span takes, above that of an empty loop, while a window is open and while none is."""
    from instrument import marks

    off = _span_us(repetitions)
    marks.open_window(max_marks=10**9)
    try:
        on = _span_us(repetitions)
    finally:
        marks.close_window()
    return {"span_off_us": round(off, 3), "span_on_us": round(on, 3)}


def _span_us(repetitions: int, count: int = 2000) -> float:
    """The least of all repetitions: what disturbs only adds."""
    from instrument import span

    times, empty = [], []
    for _ in range(repetitions):
        started = time.perf_counter_ns()
        for _ in range(count):
            with span("benchmark"):
                pass
        between = time.perf_counter_ns()
        for _ in range(count):
            pass
        times.append(between - started)
        empty.append(time.perf_counter_ns() - between)
    return (min(times) - min(empty)) / count / 1e3


def hooks(repetitions: int, steps: int = 500) -> dict[str, float]:
    """What the callback's own hooks take of a step, without MindSpore between them."""
    from instrument import StopAtStep, framework, marks

    callback = StopAtStep(10**9, 10**9, tempfile.gettempdir())
    context = SimpleNamespace(original_args=lambda: SimpleNamespace(cur_step_num=1))
    outside = _hooks_us(callback, context, repetitions, steps)
    marks.open_window(max_marks=10**9, settle=framework.wait_for_operators)
    try:
        inside = _hooks_us(callback, context, repetitions, steps)
    finally:
        marks.close_window()
    return {"outside_us": round(outside, 2), "inside_us": round(inside, 2)}


def _hooks_us(callback: Any, context: Any, repetitions: int, steps: int) -> float:
    """The least of all repetitions: what disturbs only adds."""
    times = []
    for _ in range(repetitions):
        started = time.perf_counter_ns()
        for _ in range(steps):
            callback.on_train_step_begin(context)
            callback.on_train_step_end(context)
        times.append(time.perf_counter_ns() - started)
    return min(times) / steps / 1e3


if __name__ == "__main__":
    sys.exit(main())
