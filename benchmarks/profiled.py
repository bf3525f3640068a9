"""Measure what a profile costs the training: ours beside MindSpore's own in the same window, and beside none.

    python benchmarks/profiled.py [--quick] [--modes graph,pynative] [--seconds 240] > profile.json

LeNet-5, batches of 32, on the CPU. The report goes to standard output as JSON. Each mode is a process of its own with
one network, compiled once. In it blocks follow each other until the time is over; a block is four short trainings, one
of each kind, in an order of chance that the next block turns round, so that a steady drift cancels:

    none      without a profiler
    attached  with our callback, whose window never comes: what it costs outside of a window
    ours      with a window of ours
    theirs    with a window of MindSpore's own profiler

The process keeps to one core (`--cores`): with several, a step waits for the slower of two threads, and differs by a
half from the next one on a machine that is not idle. What others do lasts longer than a block more often than not, and
then hits all four. So kinds are compared within a block only, by the medians of the same steps: those inside of the
window but its first and last one, in which it is opened and closed, once by the clock and once by the CPU time of all
of the process's threads (`_cpu_`), which others hardly disturb. A figure is the Hodges-Lehmann estimate of these
differences (the median of the means of all pairs of blocks, which single wild blocks do not move) in percent, beside it
the interval that holds the true one in 95 of 100 such measurements (Wilcoxon's signed ranks). `verdict` says what that
interval shows of the limit: "met" when all of it is within, "missed" when none is, else "not shown", and then a longer
run on a quieter machine may. `same_percent` compares trainings of one kind, without a profiler, in successive blocks:
what it shows is the machine.

*spans* are in microseconds each, *hooks* are what the callback takes of a step outside and inside of a window, which
other processes hardly disturb; `hooks_percent` is that by the median step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import training  # noqa: E402
from intervals import LEAST_PAIRS, interval  # noqa: E402

#: What a profile may cost: percent above MindSpore's own inside, above none outside; microseconds of a span.
LIMITS = {
    "inside_of_theirs_percent": 2.0, "inside_of_theirs_cpu_percent": 2.0, "outside_percent": 0.5,
    "outside_cpu_percent": 0.5, "span_on_us": 1.0, "span_off_us": 0.1,
}  # fmt: skip
KINDS = ("none", "attached", "ours", "theirs")
#: Figure -> (what is measured, of which kind, above which kind).
FIGURES = {
    "inside_of_theirs_percent": ("wall_ms", "ours", "theirs"),
    "inside_of_theirs_cpu_percent": ("cpu_ms", "ours", "theirs"),
    "inside_percent": ("wall_ms", "ours", "none"),
    "theirs_inside_percent": ("wall_ms", "theirs", "none"),
    "outside_percent": ("wall_ms", "attached", "none"),
    "outside_cpu_percent": ("cpu_ms", "attached", "none"),
}
SEED = 20261130


class Plan(NamedTuple):
    """Trainings of `steps` steps with a window from `first` to `last`; blocks until so many seconds are over."""

    steps: int
    first: int
    last: int
    seconds: float
    least_blocks: int = 2


PLAN = Plan(10, 3, 9, 240.0)
QUICK = Plan(8, 3, 7, 0.0)


class Training(NamedTuple):
    """Medians of one training's steps; `cpu_ms` is the time of all of the process's threads."""

    wall_ms: float
    cpu_ms: float


Block = dict[str, Training]


def main() -> int:
    arguments = _parse()
    plan = QUICK if arguments.quick else PLAN._replace(seconds=arguments.seconds)
    if arguments.mode:
        _keep_to(arguments.cores)
        print(json.dumps(measure(arguments.mode, plan)))
        return 0
    load = os.getloadavg()[0]
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "used": arguments.cores,
        "python": platform.python_version(),
        "load_before": load,
    }
    report: dict[str, Any] = {"benchmark": "profile", "quick": arguments.quick, "machine": machine, "limits": LIMITS}
    for mode in arguments.modes.split(","):
        report[mode] = _in_a_process(mode, arguments)
    repetitions = 10 if arguments.quick else 100
    report["spans"], report["hooks"] = spans(repetitions), hooks(repetitions)
    for mode in arguments.modes.split(","):
        step_us = 1e3 * report[mode]["step_ms"]["none"]
        hooks_us = {"inside": report["hooks"]["inside_us"], "outside": report["hooks"]["outside_us"]}
        report[mode]["hooks_percent"] = {name: round(100 * us / step_us, 4) for name, us in hooks_us.items()}
    print(json.dumps(report, indent=1))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps: shows that it works")
    parser.add_argument("--modes", default="graph,pynative", help="which ones (%(default)s)")
    parser.add_argument("--seconds", type=float, default=PLAN.seconds, help="how long each mode is (%(default)s)")
    parser.add_argument("--cores", type=int, default=1, help="how many the training may use (%(default)s)")
    parser.add_argument("--mode", choices=("graph", "pynative"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _keep_to(cores: int) -> None:
    """Before MindSpore makes its threads; the last cores, as interrupts go to the first ones."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def _in_a_process(mode: str, arguments: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--mode", mode, "--seconds", str(arguments.seconds)]
    command += ["--cores", str(arguments.cores)]
    command += ["--quick"] if arguments.quick else []
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=2 * arguments.seconds + 300)
    result: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])  # MindSpore may print before it
    return result


# ---------------------------------------------------------------- blocks of trainings


def measure(mode: str, plan: Plan) -> dict[str, Any]:
    """Blocks of one mode, compared."""
    import mindspore

    model = training.lenet5()
    mindspore.set_context(mode=mindspore.GRAPH_MODE if mode == "graph" else mindspore.PYNATIVE_MODE)
    for kind in KINDS:  # compiles, and loads what each needs
        _train(kind, model, plan)
    draw, order = random.Random(SEED), list(KINDS)
    blocks: list[Block] = []
    end = time.monotonic() + plan.seconds
    while len(blocks) < plan.least_blocks or time.monotonic() < end:
        if len(blocks) % 2:
            order.reverse()
        else:
            draw.shuffle(order)
        blocks.append({kind: _train(kind, model, plan) for kind in order})
    return {
        "seed": SEED,
        "steps": plan.steps,
        "window": [plan.first, plan.last],
        "blocks": len(blocks),
        "step_ms": {kind: round(statistics.median(one[kind].wall_ms for one in blocks), 3) for kind in KINDS},
        **{name: _figure(name, _ratios(blocks, *what)) for name, what in FIGURES.items()},
        "same_percent": _figure("", _successive(blocks)),
    }


def _ratios(blocks: list[Block], what: str, kind: str, than: str) -> NDArray[np.float64]:
    """The logarithm of the ratio of two kinds in each block."""
    return np.array([math.log(getattr(one[kind], what) / getattr(one[than], what)) for one in blocks])


def _successive(blocks: list[Block]) -> NDArray[np.float64]:
    """The same of trainings without a profiler in successive blocks, whose true difference is none."""
    times = [math.log(one["none"].wall_ms) for one in blocks]
    pairs = zip(times[::2], times[1::2], strict=False)
    return np.array([one - other if place % 2 else other - one for place, (one, other) in enumerate(pairs)])


def _figure(name: str, ratios: NDArray[np.float64]) -> dict[str, Any]:
    estimate, low, high = (100 * math.expm1(value) for value in interval(ratios))
    found: dict[str, Any] = {"pairs": len(ratios)}
    found |= {"estimate": round(estimate, 2), "low": round(low, 2), "high": round(high, 2)}
    if name in LIMITS:
        is_enough = len(ratios) >= LEAST_PAIRS
        is_within, is_beyond = is_enough and high <= LIMITS[name], is_enough and low > LIMITS[name]
        found["verdict"] = "met" if is_within else "missed" if is_beyond else "not shown"
    return found


def _train(kind: str, model: Any, plan: Plan) -> Training:
    data, clock = training.pictures(plan.steps), _clock()
    callbacks = [clock]
    with tempfile.TemporaryDirectory() as folder:
        if kind in ("ours", "attached"):
            from instrument import StopAtStep

            far = 0 if kind == "ours" else 10**6
            callbacks.append(StopAtStep(plan.first + far, plan.last + far, folder))
        elif kind == "theirs":
            callbacks.append(_theirs(plan.first, plan.last, folder))
        model.train(1, data, callbacks=callbacks, dataset_sink_mode=False)
        if kind in ("ours", "theirs") and not any(path.is_file() for path in Path(folder).rglob("*")):
            raise RuntimeError(f"The profiler {kind!r} recorded nothing; its figures would be those of none.")
    steps_ms, cpu_ms = 1e3 * np.diff(np.array(clock.begins), axis=0).T  # of the steps from 1 to the last but one
    inside = slice(plan.first, plan.last - 1)
    return Training(float(np.median(steps_ms[inside])), float(np.median(cpu_ms[inside])))


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
