"""Advice: each sentence has its figure, and without a figure there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.analyse import advice
from instrument.analyse.profile import profile
from instrument.trace.events import AI_CPU, BATCH, COMMUNICATION, MISSING, SPAN, SPAN_CALLBACK, Capture, PipelineStage
from tests.analyse import build
from tests.analyse.build import T0, capture, executions, operator, profile_of, steps, training
from tests.analyse.test_pipeline import batches, chain, device, waiting

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "samples"
MS = 10**6


def said(one: Capture) -> dict[str, str]:
    found = advice.advice(profile_of(one))
    assert list(profile_of(one).advice) == [text for _, text in found]
    assert len({topic for topic, _ in found}) == len(found)
    return dict(found)


def network(*times: tuple[str, str, int], count: int = 20, time: int = 10) -> Capture:
    """`count` small operators of a time in us each, and those of `times`: (name, side, us)."""
    operators = [operator(f"net/Small-op{place}", kind=f"Small{place}") for place in range(count)]
    rows = [(T0 + place, time * 1000, place, place) for place in range(count)]
    for name, side, extra in times:
        rows.append((T0 + len(operators), extra * 1000, len(operators), len(operators)))
        operators.append(operator(name, side))
    return capture(operators, executions(*rows), target="ascend")


# ---------------------------------------------------------------- nothing to say


def test_no_evidence_no_advice() -> None:
    """Nothing, a good training, one operator, many equal ones: nothing is advised."""
    for one in (capture(), training(), capture([operator("a")], executions((T0, 5, 0))), network()):
        assert said(one) == {}


# ---------------------------------------------------------------- data


def slow_start(interval: int = 3 * MS, **more: Any) -> Capture:
    """Steps of 10 ms that begin late."""
    begins = [T0 + 10 * MS * place for place in range(4)]
    rows = steps(*((n, t, t + interval, t + 8 * MS, t + 10 * MS) for n, t in enumerate(begins)))
    return device(steps=rows, **more)


def test_an_interval_above_a_millisecond() -> None:
    """It is waiting for data, says how much, and how to find the stage."""
    assert said(slow_start())["data"] == (
        "3.000 ms of each step (30.0 % of it) pass before its first operator, and more than 1 ms means waiting for "
        "data. Profile with data_process=True to see which stage of the data pipeline is slow."
    )
    assert said(slow_start(interval=MS)) == said(slow_start(interval=0)) == {}
    assert said(replace(slow_start(), target="cpu"))["data"].endswith(
        "The trace has no data pipeline: it is recorded where the profiler is made before the dataset's iterator. Mark "
        "the Python code between the steps with span() to see what it takes."
    )


def test_a_small_share_of_long_steps() -> None:
    """Two milliseconds of a hundred are no verdict, but more than a launch takes."""
    rows = steps((1, T0, T0 + 2 * MS, T0 + 90 * MS, T0 + 100 * MS))
    assert said(device(steps=rows))["data"].startswith(
        "2.000 ms of each step (2.0 % of it) pass before its first operator, and more than 1 ms means waiting for data."
    )


def test_the_stage_and_what_to_do() -> None:
    """The stage that holds the others back, what its workers do, how many there could be."""
    stages = [
        replace(one, type=kind, workers=1, cpu_percent=use)
        for one, kind, use in zip(chain([0], [0], [10]), ("BatchOp", "MapOp", "GeneratorOp"), (0, 24, 1), strict=True)
    ]
    one = device(**waiting(60), pipeline=stages, metadata={"processors": 4})
    assert said(one) == {"data": (
        "The training waits for data: the device waited for data 60.0 % of the time, and found its queue empty 4 of 4 "
        "times; MapOp (1) holds the others back: its input is 100 % full, its output 0 % full. The worker of "
        "MapOp (1) uses 96 % of a processor: it computes. It has num_parallel_workers=1 on a machine with 4 "
        "processors. To make MapOp (1) faster, give map() more num_parallel_workers, and python_multiprocessing=True "
        "where its functions are Python."
    )}  # fmt: skip
    idle = [replace(stage, cpu_percent=1.0, workers=4) for stage in stages]
    text = said(device(**waiting(60), pipeline=idle, metadata={"processors": 4}))["data"]
    assert "Each worker of MapOp (1) uses only 1 % of a processor: it waits itself, for files or for Python." in text
    assert "num_parallel_workers=" not in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [("ShuffleOp", "buffer_size"), ("TFReader", "more files"), ("MindRecordOp", "faster disk"), ("Odd", "cache()")],
)
def test_each_kind_of_stage_has_its_remedy(kind: str, words: str) -> None:
    """By the type of the stage, with or without the ending that newer files have."""
    only = PipelineStage(0, kind, 1, MISSING, (), 10, (0.0,))
    text = said(device(**waiting(), pipeline=[only]))["data"]
    assert f"To make {kind} (0) faster, " in text
    assert words in text


def test_late_steps_with_data_at_hand() -> None:
    """The interval is long, but the queue never was empty: it is not the data, and callbacks are named if marked."""
    full = batches((T0, MISSING, 3), (T0 + 5, MISSING, 2))
    text = said(slow_start(batches=full))["data"]
    assert text == (
        "3.000 ms of each step (30.0 % of it) pass before its first operator, but not for data: the device's queue was "
        "never empty in 2 samples. Look at what runs between the steps: callbacks, logging, evaluation."
    )
    long = steps((1, T0, T0 + 3 * MS, T0 + 90 * MS, T0 + 100 * MS))
    assert "data" not in said(device(steps=long, batches=full))  # 3 % of a step, and the data were there
    marks = np.array([(T0, 2 * MS, 0, SPAN_CALLBACK, 1, MISSING)] * 4, SPAN)
    text = said(slow_start(batches=full, spans=marks, names=("Saver",)))["data"]
    assert text.endswith("Callbacks take 2.000 ms a step of what runs between the steps.")


# ---------------------------------------------------------------- operators


def intervals(*ms: float) -> Capture:
    """Steps of 20 ms that wait that long for their first operator."""
    begins = [T0 + 20 * MS * place for place in range(len(ms))]
    rows = [(place + 1, begin, begin + int(wait * MS), begin + 19 * MS, begin + 20 * MS)
            for place, (begin, wait) in enumerate(zip(begins, ms, strict=True))]  # fmt: skip
    return device(steps=steps(*rows))


def test_two_slow_steps_of_ten_are_not_each_step() -> None:
    """How many they are, and what the median step waits."""
    text = said(intervals(0.5, 0.8, 12, 0.8, 0.8, 0.79, 0.8, 10, 0.7, 0.79, 0.79))["data"]
    assert text.startswith(
        "In 2 of 10 steps 11.000 ms pass before the first operator (14.1 % of the time of all steps; the median step "
        "waits 0.800 ms)"
    )
    assert "each step" not in text


def test_steps_that_differ_are_told_by_their_median() -> None:
    """All of them wait, one ten times as long."""
    assert "2.000 ms of the median step (10.0 % of it) pass" in said(intervals(1, 2, 2, 2, 15, 2))["data"]


def test_a_pipeline_that_is_hardly_ahead_is_named() -> None:
    """Its queue holds one of sixteen, and the training does not wait yet."""
    rows = np.full(20, MISSING, np.int64).astype(BATCH)
    rows["time_ns"] = T0 + np.arange(20) * 12 * MS
    rows["pipeline_ns"] = rows["push_ns"] = rows["total_ns"] = 0
    rows["queue_size"], rows["queue_capacity"] = [1, 0] * 10, 16
    text = said(capture(batches=rows))["data"]
    assert text.startswith("The training hardly waits for data yet: the training loop waited for data 0.0 %")
    assert "The pipeline is hardly ahead: its queue held 0.5 of 16 on average." in text
    rows["queue_size"] = 9
    assert "data" not in said(capture(batches=rows))


def test_a_wait_just_below_the_limit_is_named() -> None:
    """Four percent are not input-bound, and no reason to look away."""
    verdict = build.data_verdict(device(**waiting(4)))
    assert verdict.near_miss == "That is just below the 5 % from which a training is called input-bound."
    assert str(verdict).endswith(verdict.near_miss)


def test_one_worker_with_threads_of_its_own() -> None:
    """It is one, and uses more than one processor."""
    found = [replace(one, workers=1, cpu_percent=use) for one, use in zip(chain([0], [10]), (59, 1), strict=True)]
    text = said(device(**waiting(60), pipeline=found, metadata={"processors": 2}))["data"]
    assert "The worker of Stage0 (0) uses 118 % of a processor, with threads of its own: it computes." in text


def test_what_to_do_about_an_operator_depends_on_it() -> None:
    """Matrices, other operators of a device, and those of the host."""
    others = said(network(("net/Gather-op1", "AI Core", 800)))["operators"]
    host = said(network(("net/MatMul-op1", "CPU", 80000)))["operators"]
    assert "one fused operator" in others
    assert "OMP_NUM_THREADS" in host


def test_a_few_operators_that_take_most() -> None:
    """Two of 22 take over half of the time."""
    one = network(("net/Conv2D-op1", "AI Core", 150), ("net/MatMul-op2", "AI Core", 100))
    assert said(one) == {
        "operators": (
            "2 operators take 55.6 % of the time of all 22: net/Conv2D-op1 (33.3 %), net/MatMul-op2 (22.2 %). If "
            "net/Conv2D-op1 took half as long, 16.7 % of that time were saved: give it a lower precision (amp_level, "
            "or a cast to float16 or bfloat16), and dimensions that are multiples of 16."
        )
    }
    assert said(network(("net/Conv2D-op1", "AI Core", 800)))["operators"].startswith("1 operator takes 80.0 %")
    assert said(network(("net/Conv2D-op1", "AI Core", 800), count=7)) == {}


def test_communication_does_not_compute() -> None:
    """It waits for others: it neither counts as one of a few nor hides them."""
    assert said(network(("AllReduce", COMMUNICATION, 10_000))) == {}
    one = network(("AllReduce", COMMUNICATION, 10_000), ("net/Conv2D-op1", "AI Core", 300))
    assert said(one)["operators"].startswith("1 operator takes 60.0 % of the time of all 21")


def test_casts_and_transposes() -> None:
    """From a tenth of the time on."""
    one = network(("net/Cast-op1", "AI Core", 30), ("net/TransData-op2", "AI Core", 20))
    assert said(one)["conversions"].startswith(
        "Changes of type and layout take 20.0 % of the operators' time: Cast 12.0 % in 1 execution, "
        "TransData 8.0 % in 1 execution."
    )
    assert said(network(("net/Cast-op1", "AI Core", 20))) == {}


def test_a_type_that_runs_on_two_sides_is_named_once() -> None:
    """With the shares and the executions of both together."""
    one = network(("net/Cast-op1", "AI Core", 30), ("net/Cast-op2", AI_CPU, 20))
    assert "time: Cast 20.0 % in 2 executions. Keep" in said(one)["conversions"]


def test_operators_on_ai_cpu() -> None:
    """Those that compute, not the one that waits for data; the largest are named."""
    one = network(*((f"net/Unique-op{place}", AI_CPU, 10 + place) for place in range(5)))
    text = said(one)["AI CPU"]
    assert text.startswith("23.1 % of the operators' time is on AI CPU, which is much slower than the AI Core: ")
    assert "net/Unique-op4 (once), net/Unique-op3 (once), net/Unique-op2 (once) and 2 more." in text
    assert said(network(("net/GetNext-op1", AI_CPU, 60))) == {}
    assert said(network(("net/Unique-op1", AI_CPU, 10))) == {}


def test_names_cannot_disturb_a_terminal() -> None:
    """Control characters are escapes in a sentence, too."""
    text = said(network(("net\x1b[2J\n", "AI Core", 800)))["operators"]
    assert text.isprintable()
    assert "net\\x1b[2J\\n (80.0 %)" in text


# ---------------------------------------------------------------- the window


def test_a_warm_up_that_spoils_the_mean() -> None:
    """The first step takes ten times as long as the others."""
    rows = steps((1, T0, T0, T0 + 9, T0 + 1000), *((n, T0 + 800 + 100 * n, T0 + 800 + 100 * n, T0 + 810 + 100 * n,
                                                    T0 + 900 + 100 * n) for n in range(2, 6)))  # fmt: skip
    text = said(device(steps=rows))["steps"]
    assert text.startswith("The first step takes 0.001 ms, 10.0 times the median of the others")
    assert text.endswith("Let the window begin later, or look at the mean without the first step.")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            {"requested": [10, 20], "first_step": 10, "last_step": 15, "reason": "the training ended"},
            "The window is incomplete: steps 10 to 20 were asked for, it holds 10 to 15 (the training ended).",
        ),
        ({"requested": [50, 60]}, "The window is incomplete: steps 50 to 60 were asked for, it holds none."),
        ({"requested": None, "reason": "KeyboardInterrupt"}, "The window is incomplete (KeyboardInterrupt)."),
        ({"requested": "odd"}, "The window is incomplete."),
    ],
)
def test_an_incomplete_window(told: dict[str, Any], words: str) -> None:
    """What was asked for, what is there, and why."""
    one = replace(training(), metadata={"complete": False, **told})
    assert said(one)["window"].startswith(words)
    assert said(replace(training(), metadata={"complete": True})) == {}


# ---------------------------------------------------------------- real files


@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the samples are not there: {SAMPLES}")
@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("ascend2020_widedeep", ["operators", "AI CPU"]),
        ("cpu_ms210_lenet", ["operators"]),
        ("minddata_ms210_map_batch", ["data"]),
        ("minddata_ascend2021_small", []),
        ("minddata_pipeline_fixture_a", []),
        ("synth_gpu_sync", ["data"]),
    ],
)
def test_samples(name: str, topics: list[str]) -> None:
    """What each of them has to be told."""
    assert [topic for topic, _ in advice.advice(profile(SAMPLES / name))] == topics
