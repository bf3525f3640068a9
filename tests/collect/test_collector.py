"""SummaryCollector by its hooks: steps and frequencies, evaluations, reuse, failures, and what a step costs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument import Run, SummaryCollector, read
from tests.collect.fake import Loop, dataset

Said = Callable[..., list[str]]
ONLY_METRICS = {"collect_specified_data": {"collect_metric": True}, "keep_default_action": False}


def collector(directory: Path, **options: Any) -> SummaryCollector:
    return SummaryCollector(directory, **{"collect_freq": 1, "num_process": 0, **options})


def steps(run: Run, tag: str = "loss/auto") -> list[int]:
    return run.scalars(tag).step.tolist()


def losses(step: int, params: Any) -> None:
    """Each step's loss is its number."""
    params.net_outputs = ms.Tensor(float(step))


# ---------------------------------------------------------------- steps


def test_a_short_training_is_whole(tmp_path: Path) -> None:
    """One step is enough: loss, learning rate, input, histograms, lineage, dataset graph and what ran are recorded."""
    Loop(collector(tmp_path)).train([1])
    run = read(tmp_path)
    assert run.tags() == {
        "scalar": ["learning_rate/auto", "loss/auto"],
        "image": ["input_data/auto"],
        "histogram": ["bias/auto", "weight/auto"],
    }
    assert sorted(run.lineage) == ["dataset", "ran", "train"]
    assert (steps(run), run.scalars("loss/auto")[1], run.scalars("learning_rate/auto")[1]) == ([1], 0.25, 0.5)


@pytest.mark.parametrize("plain", [False, True], ids=["RunContext", "plain attributes"])
def test_accumulation_gives_one_point_a_step(tmp_path: Path, plain: bool) -> None:
    """Two epochs of ten micro-batches are steps 1 to 20, each with the loss of its own micro-batch, each once."""
    Loop(collector(tmp_path, **ONLY_METRICS), at_step=losses, plain=plain).train(range(1, 11), range(11, 21))
    points = read(tmp_path).scalars("loss/auto", superseded=True)
    assert list(zip(points.step.tolist(), points.value.tolist(), strict=True)) == [(n, float(n)) for n in range(1, 21)]


def test_steps_count_over_epochs_of_any_length(tmp_path: Path) -> None:
    """Epochs of 3, 5 and 2 steps, the length unknown, are steps 1 to 10."""
    loop = Loop(collector(tmp_path, **ONLY_METRICS), batch_num=None, epoch_num=3)
    loop.train(range(1, 4), range(4, 9), range(9, 11))
    assert steps(read(tmp_path)) == list(range(1, 11))


def test_a_resumed_training_counts_on(tmp_path: Path) -> None:
    """Where the framework begins at step 100: step 101, then multiples of the frequency, and the last one."""
    Loop(collector(tmp_path, collect_freq=4, **ONLY_METRICS), cur_step_num=100).train(range(101, 114))
    assert steps(read(tmp_path)) == [101, 104, 108, 112, 113]


@pytest.mark.parametrize(
    ("hooks", "expected"),
    [(range(7, 71, 7), [7, 14, 21, 35, 42, 56, 63, 70]), (range(7, 50, 7), [7, 14, 21, 35, 42, 49]), ([5], [5])],
)
def test_sink_mode_collects_at_true_steps_and_at_the_end(
    tmp_path: Path, said: Said, hooks: list[int], expected: list[int]
) -> None:
    """Hooks that come once in seven steps collect when they cross a multiple; the last always does; it is said once."""
    loop = Loop(
        collector(tmp_path, collect_freq=10, **ONLY_METRICS), at_step=losses, dataset_sink_mode=True, sink_size=7
    )
    loop.train(*[[step] for step in hooks])
    points = read(tmp_path).scalars("loss/auto", superseded=True)
    assert points.step.tolist() == expected
    assert points.value.tolist() == expected
    (line,) = said("sink mode", logging.INFO)
    assert "hooks come once in 7 steps" in line
    assert "collect_freq=10" in line


def test_every_kind_has_the_collected_steps(tmp_path: Path) -> None:
    """Pictures, histograms, loss and learning rate fall on the same steps."""
    Loop(collector(tmp_path, collect_freq=5)).train(range(1, 13))
    run = read(tmp_path)
    for kind, tags in run.tags().items():
        for tag in tags:
            assert run.points(kind, tag, superseded=True).step.tolist() == [1, 5, 10, 12], tag


# ---------------------------------------------------------------- evaluations


def test_metrics_lie_at_the_training_step(tmp_path: Path, said: Said) -> None:
    """Evaluations inside a training are recorded at the step that it had reached; what is no number is said once."""
    loop = Loop(collector(tmp_path))
    with loop.entered():
        loop.call("on_train_begin")
        for step in range(1, 7):
            loop.step(step)
            if step % 2 == 0:
                loop.evaluate({"accuracy": step / 10, "f1": np.float32(0.5), "confusion": np.eye(2)})
        loop.call("on_train_end")
    run = read(tmp_path)
    accuracy = run.scalars("eval/accuracy/auto")
    assert list(zip(accuracy.step.tolist(), accuracy.value.tolist(), strict=True)) == [(2, 0.2), (4, 0.4), (6, 0.6)]
    assert run.scalars("eval/f1/auto").value.tolist() == [0.5] * 3
    assert steps(run) == [1, 2, 3, 4, 5, 6]
    assert run.lineage["eval"]["metric"] == {"accuracy": 0.6, "f1": 0.5, "confusion": [[1.0, 0.0], [0.0, 1.0]]}
    assert run.lineage["eval"]["valid_dataset"] == {"valid_dataset_size": 10}
    assert len(said("confusion")) == 1


def test_an_evaluation_before_the_first_step_keeps_the_training(tmp_path: Path) -> None:
    """Evaluated when the training begins, the metrics lie at step 0 and the training is recorded as ever."""
    loop = Loop(collector(tmp_path))
    with loop.entered():
        loop.call("on_train_begin")
        loop.evaluate({"accuracy": 0.1})
        loop.step(1)
        loop.call("on_train_end")
    run = read(tmp_path)
    assert (steps(run, "eval/accuracy/auto"), steps(run)) == ([0], [1])
    assert len(run.files) == 2


def test_an_evaluation_alone_makes_a_run(tmp_path: Path) -> None:
    """`model.eval` without a training: metrics at step 0 and the lineage of the evaluation, in files of its own."""
    loop = Loop(collector(tmp_path))
    loop.evaluate({"accuracy": 0.75, "loss": ms.Tensor(0.5), "top": ms.Tensor([0.5, 0.25])})
    run = read(tmp_path)
    assert run.tags() == {"scalar": ["eval/accuracy/auto", "eval/loss/auto"]}
    assert run.scalars("eval/accuracy/auto").step.tolist() == [0]
    assert run.lineage == {
        "eval": {
            "metric": {"accuracy": 0.75, "loss": 0.5, "top": [0.5, 0.25]},
            "valid_dataset": {"valid_dataset_size": 10},
        }
    }


def test_metrics_left_for_the_epoch_end_count_once(tmp_path: Path) -> None:
    """`model.fit` leaves metrics in the parameters and tells subclasses twice: one point an evaluation."""
    loop = Loop(collector(tmp_path))
    with loop.entered():
        loop.call("on_train_begin")
        for epoch in (1, 2, 3):
            loop.step(epoch)
            loop.params.metrics = {"accuracy": epoch / 4}
            loop.params.eval_results = {"accuracy": epoch / 4, "eval_loss": 1.0 / epoch}
            loop.params.valid_dataset = dataset()
            loop.call("on_eval_begin")
            loop.call("on_eval_end")
            loop.call("on_train_epoch_end")
            loop.params.pop("metrics")
            loop.params.pop("eval_results")
        loop.call("on_train_epoch_end")
        loop.call("on_train_end")
    run = read(tmp_path)
    assert run.scalars("eval/accuracy/auto", superseded=True).value.tolist() == [0.25, 0.5, 0.75]
    assert run.scalars("eval/eval_loss/auto").value.tolist() == [1.0, 0.5, 1 / 3]
    assert steps(run) == [1, 2, 3]


# ---------------------------------------------------------------- reuse


def test_a_collector_serves_twice(tmp_path: Path, said: Said) -> None:
    """A second training has files of its own, and its steps are counted behind those of the first; this is said."""
    one = collector(tmp_path, **ONLY_METRICS)
    assert one.stats is None
    for _ in range(3):
        Loop(one, at_step=losses).train(range(1, 6))
        assert one.stats is not None
        assert one.stats.events == 5
    run = read(tmp_path)
    assert len(run.files) == 3
    points = run.scalars("loss/auto", superseded=True)
    assert points.step.tolist() == list(range(1, 16))
    assert points.value.tolist() == [1, 2, 3, 4, 5] * 3
    (message,) = said("The first step of this training")
    assert "is recorded as step 6, as the training before it ended at step 5; MindSpore calls it step 1" in message


def test_what_failed_in_one_training_is_tried_in_the_next(tmp_path: Path, said: Said) -> None:
    """A source given up in the first training is collected in the second."""
    one = collector(tmp_path, **ONLY_METRICS)
    Loop(one, net_outputs=None).train([1, 2])
    Loop(one, net_outputs=ms.Tensor(1.0)).train([1, 2])
    assert steps(read(tmp_path)) == [3, 4]
    assert len(said("the loss")) == 1


def test_a_training_that_raises_is_kept_and_followed(tmp_path: Path) -> None:
    """What was recorded before an exception is in the file when it leaves the training; the next training works."""
    one = collector(tmp_path, num_process=1, **ONLY_METRICS)

    def fail(step: int, params: Any) -> None:
        losses(step, params)
        if step == 3:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        Loop(one, at_step=fail).train(range(1, 6))
    assert steps(read(tmp_path)) == [1, 2]
    Loop(one, at_step=losses).train(range(1, 6))
    run = read(tmp_path)
    assert steps(run) == [1, 2, 3, 4, 5, 6, 7]
    assert [(start.number, start.state, start.reason) for start in run.starts] == [
        (1, "failed", "RuntimeError: out of memory"),
        (2, "finished", ""),
    ]


def test_two_collectors_are_refused_before_the_first_step(tmp_path: Path) -> None:
    """One clear error, no step run, whichever directories they have."""
    reached = []
    pair = [collector(tmp_path / "a"), collector(tmp_path / "b")]
    with pytest.raises(ValueError, match="more than one SummaryCollector among the callbacks; expected one"):
        Loop(*pair, at_step=lambda step, _: reached.append(step)).train([1])
    assert reached == []
    with pytest.raises(ValueError, match="more than one SummaryCollector"):
        Loop(*pair).evaluate({"accuracy": 1.0})


def test_a_directory_that_vanished_stops_nothing(tmp_path: Path, said: Said) -> None:
    """If the files cannot be made when training or evaluation begins, that is said once and both go on."""
    one = collector(tmp_path / "run")
    (tmp_path / "run").rmdir()
    (tmp_path / "run").write_text("in the way")
    reached = []
    loop = Loop(one, at_step=lambda step, _: reached.append(step))
    loop.train([1, 2])
    loop.evaluate({"accuracy": 1.0})
    assert reached == [1, 2]
    assert len(said("does not collect the run")) == 2
    (tmp_path / "run").unlink()
    loop.train([1, 2])
    assert steps(read(tmp_path / "run")) == [1, 2]


# ---------------------------------------------------------------- cost


class Counting:
    """A tensor that counts how often it is looked into."""

    def __init__(self, name: str) -> None:
        self.name, self.dtype, self.size, self.conversions = name, ms.float32, 4, 0

    def asnumpy(self) -> np.ndarray[Any, Any]:
        self.conversions += 1
        return np.ones((1, 1, 2, 2), np.float32)

    def item(self) -> float:
        self.conversions += 1
        return 1.0


def test_steps_that_are_not_collected_convert_nothing(tmp_path: Path) -> None:
    """Of 100 steps with collect_freq=100 only the first and the last look into weights, loss and input."""
    weights, output, element = [Counting("w0"), Counting("w1")], Counting("loss"), Counting("input")
    optimizer = SimpleNamespace(parameters=weights, learning_rate=0.1)
    counts = []

    def count(step: int, _: Any) -> None:
        counts.append([counted.conversions for counted in (*weights, output, element)])

    loop = Loop(
        collector(tmp_path, collect_freq=100), optimizer=optimizer, net_outputs=output, at_step=count,
        train_dataset_element=element,
    )  # fmt: skip
    loop.train(range(1, 101))
    assert counts[0] == [0, 0, 0, 0]
    assert counts[1:] == [[1, 1, 1, 1]] * 99
    assert [counted.conversions for counted in (*weights, element)] == [2, 2, 2]
    assert read(tmp_path).histograms("w0/auto").step.tolist() == [1, 100]


@pytest.mark.alone
def test_steps_that_are_not_collected_cost_next_to_nothing(tmp_path: Path) -> None:
    """A step between two collected ones costs less than 20 us of processor time."""
    loop = Loop(collector(tmp_path, collect_freq=10**9))
    with loop.entered():
        loop.call("on_train_begin")
        loop.step(1)
        costs = []
        for start in (2, 2002, 4002, 6002, 8002):
            before = time.process_time()
            for step in range(start, start + 2000):
                loop.step(step)
            costs.append((time.process_time() - before) / 2000)
        loop.call("on_train_end")
    assert min(costs) < 20e-6
