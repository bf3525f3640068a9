"""The data pipeline: whether the consumer waits, and which stage holds the others back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from instrument.analyse import pipeline
from instrument.analyse.pipeline import INPUT_BOUND, NOT_INPUT_BOUND, SOMEWHAT
from instrument.trace.events import BATCH, FETCH, MISSING, Capture, PipelineStage
from tests.analyse import build
from tests.analyse.build import T0, capture, column, executions, marked, operator, steps, training

MS = 10**6


def stage(identity: int, kind: str = "Map", use: Sequence[float] = (), **more: Any) -> PipelineStage:
    """A stage with a queue of 10; `use` are the samples of it."""
    told: dict[str, Any] = {"workers": 2, "parent": MISSING, "children": (), "queue_capacity": 10, **more}
    return PipelineStage(identity, kind, queue_sizes=tuple(use), **told)


def chain(*uses: Sequence[float], **more: Any) -> list[PipelineStage]:
    """Stages 0, 1, ... from the consumer to the source."""
    last = len(uses) - 1
    return [
        stage(place, f"Stage{place}", use, parent=place - 1, children=(place + 1,) if place < last else (), **more)
        for place, use in enumerate(uses)
    ]


def fetches(*rows: tuple[int, int, int]) -> Any:
    """(start, duration, queue size) each."""
    return np.array([(MISSING, MISSING, *row) for row in rows], FETCH)


def batches(*rows: tuple[int, int, int]) -> Any:
    """(time, ms in the pipeline, queue size) each, of a queue of 10."""
    found = np.full(len(rows), MISSING, np.int64).astype(BATCH)
    for place, (time, wait, size) in enumerate(rows):
        found[place] = (time, place + 1, wait, 0, wait, size, 10)
    return found


def waiting(percent: int = 50) -> dict[str, Any]:
    """Steps of 50 ms, in each of which the device waits that share of the time."""
    begins = [T0 + 50 * MS * place for place in range(4)]
    return {
        "steps": marked(*((place, begin, begin + 50 * MS) for place, begin in enumerate(begins))),
        "fetches": fetches(*((begin, percent * MS // 2, 0) for begin in begins)),
    }


def device(**parts: Any) -> Capture:
    return capture(target="ascend", **parts)


# ---------------------------------------------------------------- the wait (D-47)


def test_a_queue_that_is_always_full_costs_nothing() -> None:
    """Fetches take their time, but none found the queue empty: not input-bound, and no stage is blamed."""
    parts = waiting(60)
    parts["fetches"]["queue_size"] = 8
    found = build.data_verdict(device(**parts, pipeline=chain([0], [10])))
    assert (found.kind, found.wait_percent, found.stage) == (NOT_INPUT_BOUND, 0.0, None)
    assert str(found) == (
        "not input-bound: the device waited for data 0.0 % of the time, and found its queue empty 0 of 4 times."
    )


def test_an_empty_queue_is_measured_by_the_steps() -> None:
    """Steps of 50 ms with a wait of 30 ms: 60 %."""
    found = build.data_verdict(device(**waiting(60)))
    assert (found.kind, found.wait_percent, found.stage) == (INPUT_BOUND, 60.0, None)
    assert found.reason == "the device waited for data 60.0 % of the time, and found its queue empty 4 of 4 times."


@pytest.mark.parametrize(
    ("percent", "kind"), [(0, NOT_INPUT_BOUND), (4, NOT_INPUT_BOUND), (6, SOMEWHAT), (18, SOMEWHAT), (20, INPUT_BOUND)]
)
def test_limits_of_the_verdict(percent: int, kind: str) -> None:
    """Below 5 % nobody needs to look, from 20 % on it is what a training should care for."""
    found = build.data_verdict(device(**waiting(percent)))
    assert (found.kind, found.wait_percent) == (kind, float(percent))
    assert found.is_waiting == (kind != NOT_INPUT_BOUND)


def test_fetches_without_steps() -> None:
    """The time from the first fetch to the end of the last one counts; a single fetch says nothing."""
    rows = fetches((T0, 10, 0), (T0 + 50, 5, 1), (T0 + 90, 10, 0))
    assert build.data_verdict(device(fetches=rows)).wait_percent == 20.0
    assert build.data_verdict(device(fetches=rows[:1])).kind == "n/a"


def test_fetches_outside_of_the_steps_do_not_count() -> None:
    """What the device waited for before the first step is its start."""
    parts = waiting(10)
    parts["fetches"] = np.concatenate([fetches((T0 - 10**9, 10**9, 0)), parts["fetches"]])
    assert build.data_verdict(device(**parts)).wait_percent == 10.0


def test_fetches_that_do_not_say_what_the_queue_held() -> None:
    """Their time is a wait, and no share of empty queues is claimed."""
    parts = waiting(60)
    parts["fetches"]["queue_size"] = MISSING
    assert build.data_verdict(device(**parts)).reason == "the device waited for data 60.0 % of the time."


def test_the_iterator_on_the_host() -> None:
    """What it waited for batches that were not there, by the time from batch to batch: 4 of 10 ms each, one at hand."""
    rows = batches(*((T0 + 10 * MS * place, 4 * MS, 0) for place in range(10)), (T0 + 100 * MS, 4 * MS, 7))
    rows["pipeline_ns"][0] = rows["total_ns"][0] = 0
    found = build.data_verdict(capture(batches=rows))
    assert found.wait_percent == 36.0
    assert (
        found.reason
        == "the training loop waited for data 36.0 % of the time; the queue was empty for 10 of 11 batches."
    )


def test_intervals_of_steps() -> None:
    """Without a queue that says anything, the time before the first forward operator is the wait."""
    found = build.data_verdict(training(interval=30 * MS, forward=20 * MS, backward=40 * MS, tail=10 * MS))
    assert (found.kind, found.wait_percent, found.is_of_steps) == (INPUT_BOUND, 30.0, True)
    assert found.reason == "30.0 % of the steps' time passed before their first operator."
    begins = T0, T0 + 100 * MS
    rows = steps(*((n, t, t + 40 * MS, t + 60 * MS, t + 100 * MS) for n, t in enumerate(begins)))
    samples = batches((T0, 0, 3), (T0 + 10, 0, 2))
    samples["pipeline_ns"] = MISSING
    full = build.data_verdict(device(steps=rows, batches=samples))
    assert (full.kind, full.wait_percent, full.is_of_steps) == (NOT_INPUT_BOUND, 0.0, False)
    assert full.reason == "the device's queue was never empty in 2 samples."
    samples["queue_size"] = 0, 3
    empty = build.data_verdict(device(steps=rows, batches=samples))
    assert (empty.kind, empty.wait_percent) == (INPUT_BOUND, 40.0)
    assert empty.reason.endswith("and the queue was empty in 50.0 % of 2 samples.")


def test_launching_a_step_is_no_wait() -> None:
    """Up to a millisecond before the first operator is no wait, however short the steps are."""
    found = build.data_verdict(training(interval=MS, forward=20, backward=40, tail=10))
    assert (found.kind, found.wait_percent, found.is_of_steps) == (NOT_INPUT_BOUND, 0.0, True)
    assert found.reason == "steps begin their first operator after 1.000 ms on average, which is launching."
    assert build.data_verdict(training(interval=MS + 1, forward=20, backward=40, tail=10)).kind == INPUT_BOUND


def test_the_feeder_of_the_queue() -> None:
    """Without steps, what fills the device's queue is the consumer that can be seen."""
    rows = batches(*((T0 + 10 * MS * place, 9 * MS, 0) for place in range(4)))
    found = build.data_verdict(device(batches=rows))
    assert found.reason.startswith("the feeder of the device's queue waited for data 92.3 % of the time")


def test_the_queue_nearest_to_the_consumer() -> None:
    """Nothing but samples of queues: how often that of the last stage was empty."""
    found = build.data_verdict(capture(pipeline=chain([0, 0, 0, 5], [10, 10, 10, 10])))
    assert (found.kind, found.wait_percent) == (INPUT_BOUND, 75.0)
    assert found.stage is not None
    assert found.stage.id == 0
    assert found.reason == (
        "the queue of Stage0 (0), nearest to the consumer, was empty in 75.0 % of 4 samples; "
        "Stage0 (0) holds the others back: its input is 100 % full, its output 12 % full."
    )
    assert build.data_verdict(capture(pipeline=chain([5], [0]))).kind == NOT_INPUT_BOUND


def test_without_evidence_there_is_no_verdict() -> None:
    """No data at all, no steps, a pipeline without samples: n/a, and why."""
    nothing = build.data_verdict(capture())
    assert str(nothing) == "n/a: the trace has no files of the data pipeline (data_process)."
    for known in (capture(pipeline=chain([], [])), capture(batches=batches((T0, 1, 0))), device(fetches=fetches())):
        assert build.data_verdict(known).kind == "n/a"
    silent = build.data_verdict(capture(pipeline=chain([], [])))
    assert silent.reason == "the trace does not say what the consumer of the data waited for."
    assert build.data_verdict(capture([operator("a")], executions((T0, 5, 0)))).kind == "n/a"


# ---------------------------------------------------------------- the stage


@pytest.mark.parametrize(
    ("uses", "slow"),
    [
        (([0], [0], [10]), 1),  # it has its input, and nothing at its output
        (([0], [0], [0]), 2),  # nothing anywhere: the source
        (([0], [10], [10]), 0),
        (([10], [10], [10]), None),  # all is there: what waits is not behind them
        (([3], [6], [8]), None),  # a slope without an edge
        (([5], [5], [5]), 2),  # a source whose queue is at most half full
        (([1],), 0),  # a single stage
    ],
)
def test_the_stage_that_holds_the_others_back(uses: Any, slow: int | None) -> None:
    """The one whose input is fuller than its output by half of a queue."""
    found = build.data_verdict(device(**waiting(), pipeline=chain(*uses)))
    assert found.kind == INPUT_BOUND
    assert (found.stage.id if found.stage else None) == slow
    if slow is None:
        assert found.reason.endswith("no stage stands out by its queues.")


def test_a_branch_is_held_back_by_its_slower_source() -> None:
    """A stage that joins two has as much as the emptier of them; the source behind that one is slow."""
    stages = [
        stage(0, "Zip", [0], children=(1, 2)),
        stage(1, "Fast", [10], parent=0),
        stage(2, "Slow", [0], parent=0),
    ]
    found = build.data_verdict(device(**waiting(), pipeline=stages))
    assert found.stage == stages[2]
    assert found.reason.endswith("Slow (2) holds the others back: it is a source, its output 0 % full.")


def test_stages_without_queues_are_passed_over() -> None:
    """A root without one works when the consumer asks; an inner one belongs to whoever it feeds."""
    stages = [
        stage(0, "Batch", queue_capacity=MISSING, children=(1,)),
        stage(1, "Inline", queue_capacity=MISSING, parent=0, children=(2,)),
        stage(2, "Reader", [10], parent=1),
    ]
    found = build.data_verdict(device(**waiting(), pipeline=stages))
    assert found.stage is not None
    assert found.stage.type == "Batch"


def test_damaged_trees_end() -> None:
    """A ring, a child that is not there, two roots: a table with each stage once, and a verdict."""
    ring = [
        stage(0, use=[0], children=(1, 9)),
        stage(1, use=[0], parent=0, children=(2,)),
        stage(2, use=[10], parent=1, children=(1,)),
    ]
    alone = [stage(5, use=[1], parent=6), stage(6, use=[1], parent=5, children=(5,))]
    one = device(**waiting(), pipeline=[*alone, *ring])
    assert build.stages(one)["id"].tolist() == [0, 1, 2, 5, 6]
    found = build.data_verdict(one)
    assert found.stage is not None
    assert found.stage.id == 1


# ---------------------------------------------------------------- tables


def test_the_table_of_stages() -> None:
    """Queue use by the capacity, the processors of all workers by one processor; what was not sampled is masked."""
    stages = [
        stage(1, "Map", [0, 5, 10, 5], parent=0, cpu_percent=30.0, workers=4),
        stage(0, "Batch", queue_capacity=MISSING, children=(1,), workers=MISSING),
    ]
    told = {"processors": 8, "pipeline_sampling_interval_ms": 20}
    table = build.stages(capture(pipeline=stages, metadata=told))
    assert {name: column(values) for name, values in table.columns.items()} == {
        "id": [0, 1],
        "type": ["Batch", "Map"],
        "parent": [None, 0],
        "workers": [None, 4],
        "queue_capacity": [None, 10],
        "samples": [0, 4],
        "queue_mean": [None, 5.0],
        "queue_use_percent": [None, 50.0],
        "empty_percent": [None, 25.0],
        "cpu_percent": [None, 30.0],
        "worker_cpu_percent": [None, 60.0],
        "cpu_ns": [None, 192 * MS],
    }
    bare = build.stages(capture(pipeline=stages)).records()[1]
    assert (bare["worker_cpu_percent"], bare["cpu_ns"]) == (None, None)
    assert len(build.stages(capture())) == 0


def test_a_window_that_is_too_short_for_samples_says_so() -> None:
    """With how often samples are taken, and how to have them taken more often; not where there are some."""
    told = {"pipeline_sampling_interval_ms": 1000, "start_ns": T0, "stop_ns": T0 + MS}
    (_, note) = build.stages(capture(pipeline=[stage(0, "Batch", [])], metadata=told)).notes
    assert "every 1000 ms" in note
    assert "set_monitor_sampling_interval" in note
    assert len(build.stages(capture(pipeline=[stage(0, "Batch", [1])], metadata=told)).notes) == 1


def test_the_table_of_queues() -> None:
    """How often a queue was empty and full; samples that are missing do not count."""
    rows = batches((T0, 4, 0), (T0 + 1, 2, 10), (T0 + 2, 6, 3), (T0 + 3, MISSING, MISSING))
    table = pipeline.queues(device(batches=rows, fetches=fetches((T0, 8, 0), (T0, 2, 5))))
    assert list(table.rows()) == [
        ("device takes from its queue", 2, 1, None, 50.0, 5.0),
        ("pipeline gives a batch", 3, 1, 1, 100 / 3, 4.0),
    ]


def test_the_table_of_batches() -> None:
    """As they come; what is not known is masked."""
    table = pipeline.batches(capture(batches=batches((T0, 4, 0), (T0 + 1, MISSING, 2))))
    assert column(table["pipeline_ns"]) == [4, None]
    assert column(table["queue_size"]) == [0, 2]


@pytest.mark.parametrize(("each", "wait", "is_rough"), [(2, MS, True), (20, MS, False), (2, MS // 2, False)])
def test_whole_milliseconds_are_rough_for_short_steps(each: int, wait: int, is_rough: bool) -> None:
    """MindSpore's files have no finer times; that is said where batches come that fast."""
    rows = batches(*((T0 + place * each * MS, wait, 1) for place in range(5)))
    notes = build.stages(capture(batches=rows, pipeline=chain([1.0], [1.0]))).notes
    assert any("one every 2.0 ms: how long the training waited for data is rough" in note for note in notes) == is_rough
