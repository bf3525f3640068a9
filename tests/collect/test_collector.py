"""SummaryCollector by its hooks: steps, frequencies, sources that fail, reuse, evaluations, and what a step costs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

from instrument import Run, SummaryCollector, ops, read
from instrument.codec import histogram as histogram_codec
from instrument.codec import image as image_codec
from tests.collect.fake import PICTURES, Loop, dataset

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
    """One step is enough: loss, learning rate, input, histograms, lineage and dataset graph are in the files."""
    Loop(collector(tmp_path)).train([1])
    run = read(tmp_path)
    assert run.tags() == {
        "scalar": ["learning_rate/auto", "loss/auto"],
        "image": ["input_data/auto"],
        "histogram": ["bias/auto", "weight/auto"],
    }
    assert sorted(run.lineage) == ["dataset", "train"]
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
    """Where the framework begins at step 100, the first collected step is 101, then multiples of the frequency."""
    Loop(collector(tmp_path, collect_freq=4, **ONLY_METRICS), cur_step_num=100).train(range(101, 114))
    assert steps(read(tmp_path)) == [101, 104, 108, 112]


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
            assert run.points(kind, tag, superseded=True).step.tolist() == [1, 5, 10], tag


# ---------------------------------------------------------------- what is collected


def test_values_are_those_of_the_step(tmp_path: Path) -> None:
    """The picture is the batch, a histogram that of the weights, at the step, though both change in place."""
    batch, seen = np.zeros((2, 1, 4, 4), np.float32), {}

    def change(step: int, params: Any) -> None:
        batch[...] = step / 8
        params.train_dataset_element = (batch, None)
        weight = params.optimizer.parameters[0].asnumpy()
        weight[...] = np.arange(4) * step
        seen[step] = weight.copy()

    Loop(collector(tmp_path, num_process=1), at_step=change).train(range(1, 5))
    run = read(tmp_path)
    for step in range(1, 5):
        assert np.unique(image_codec.pixels(run.images("input_data/auto")[step])).tolist() == [round(step / 8 * 255)]
        found, expected = run.histograms("weight/auto")[step], histogram_codec.from_array(seen[step])
        assert found.left.tolist() == expected.left.tolist()
        assert found.counts.tolist() == expected.counts.tolist()
        assert (found.min, found.max, found.sum) == (0, 3 * step, 6 * step)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, ["w0", "w1", "w2", "w3", "w4"]), ("w[56]", ["w5", "w6"]), ("layer", ["layer.w"]), ("w", None),
        ("ayer", []), ("no", []),
    ],
)  # fmt: skip
def test_histograms_are_of_the_named_parameters(
    tmp_path: Path, said: Said, pattern: str | None, expected: list[str] | None
) -> None:
    """The first five, or those whose names the expression matches at their start; none is said once."""
    weights = [ms.Parameter(ms.Tensor(np.ones(3, np.float32)), name=f"w{number}") for number in range(7)]
    weights.append(ms.Parameter(ms.Tensor(np.ones(3, np.float32)), name="layer.w"))
    optimizer = SimpleNamespace(parameters=weights, learning_rate=0.1)
    specified = {"histogram_regular": pattern}
    Loop(collector(tmp_path, collect_specified_data=specified), optimizer=optimizer).train([1, 2])
    names = [f"w{number}" for number in range(7)] if expected is None else expected
    assert read(tmp_path).tags().get("histogram", []) == sorted(f"{name}/auto" for name in names)
    assert len(said("histograms of weights")) == (not names)


OUTPUTS: list[tuple[Any, float | None]] = [
    (None, None), ("text", None), ((), None), ({}, None), ({"output": 1.0}, None), (object(), None),
    (ms.Tensor(2.0), 2.0), ((ms.Tensor(2.0), ms.Tensor(True)), 2.0), ([ms.Tensor(3.0), ms.Tensor(4.0)], 3.0),
    (((ms.Tensor(5.0), 1), 2), 5.0), ({"loss": ms.Tensor(6.0), "x": 0}, 6.0), ({"loss": (ms.Tensor(7.0),)}, 7.0),
    (ms.Tensor(np.arange(8, dtype=np.float32)), 3.5), (ms.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), 2.5),
    (ms.Tensor([[9.0]]), 9.0), (1.5, 1.5), (3, 3.0), (np.float32(0.5), 0.5), (np.array([1.0, 2.0]), 1.5),
    (ms.Tensor(np.zeros(0, np.float32)), None), (ms.Tensor(np.array([1j], np.complex64)), None),
    (ms.Tensor(2.5, ms.float16), 2.5), (ms.Tensor([2.5, 3.5], ms.float32).astype(ms.bfloat16), 3.0),
    (ms.Tensor(math.nan), math.nan), (ms.Tensor(math.inf), math.inf), (ms.Tensor([2, 4], ms.int32), 3.0),
]  # fmt: skip


@pytest.mark.parametrize(("output", "expected"), OUTPUTS)
def test_any_network_output_is_survived(tmp_path: Path, said: Said, output: Any, expected: float | None) -> None:
    """The loss is recorded where it is defined, at every step; where it is not, that is said once."""
    reached = []
    Loop(collector(tmp_path), net_outputs=output, at_step=lambda step, _: reached.append(step)).train(range(1, 4))
    assert reached == [1, 2, 3]
    run = read(tmp_path)
    if expected is None:
        assert "loss/auto" not in run.tags()["scalar"]
        assert len(said("does not collect the loss")) == 1
    else:
        np.testing.assert_array_equal(run.scalars("loss/auto").value, [expected] * 3)
        assert said("the loss") == []
    assert steps(run, "learning_rate/auto") == [1, 2, 3]


def momentum(rate: Any) -> nn.Optimizer:
    return nn.Momentum(nn.Dense(4, 1).trainable_params(), rate, 0.9)


RATES: list[tuple[Callable[[], Any], float | None]] = [
    (lambda: None, None), (lambda: "adam", None), (lambda: SimpleNamespace(parameters=[]), None),
    (lambda: momentum(0.5), 0.5), (lambda: momentum(ms.Tensor(0.25)), 0.25),
    (lambda: momentum(ms.Tensor([0.5, 0.25, 0.125])), 0.5), (lambda: momentum([0.75, 0.5]), 0.75),
    (lambda: momentum(nn.ExponentialDecayLR(0.5, 0.9, 4)), 0.5),
    (lambda: SimpleNamespace(parameters=[], learning_rate=0.125), 0.125),
    (lambda: SimpleNamespace(parameters=[], learning_rate=np.float32(0.5)), 0.5),
    (lambda: SimpleNamespace(parameters=[], learning_rate="fast"), None),
    (lambda: SimpleNamespace(parameters=[], learning_rate=[0.1, 0.2]), None),
]  # fmt: skip


@pytest.mark.parametrize(("make", "expected"), RATES)
def test_any_optimizer_is_survived(
    tmp_path: Path, said: Said, make: Callable[[], Any], expected: float | None
) -> None:
    """The learning rate is recorded where there is one; a missing or odd optimiser is said once a source."""
    reached = []
    loop = Loop(collector(tmp_path), optimizer=make(), at_step=lambda step, _: reached.append(step))
    loop.train(range(1, 4))
    assert reached == [1, 2, 3]
    run = read(tmp_path)
    assert steps(run) == [1, 2, 3]
    if expected is None:
        assert run.tags()["scalar"] == ["loss/auto"]
        assert len(said("does not collect the learning rate")) == 1
    else:
        assert run.scalars("learning_rate/auto").value.tolist() == [expected] * 3


class Halving(LearningRateSchedule):
    """A schedule of a user's own, whose base happens to be a parameter called `learning_rate`."""

    def __init__(self) -> None:
        super().__init__()
        self.learning_rate = ms.Parameter(ms.Tensor(8.0), name="base")

    def construct(self, global_step: ms.Tensor) -> ms.Tensor:
        return self.learning_rate * 0.5**global_step


def test_a_schedule_of_ones_own_is_asked(tmp_path: Path) -> None:
    """A user's schedule is called with the step that the optimiser used, whatever its attributes are called."""
    optimizer = momentum(Halving())

    def count(step: int, params: Any) -> None:
        optimizer.global_step.set_data(ms.Tensor([step], ms.int32))  # the optimiser counts after it used the rate

    Loop(collector(tmp_path), optimizer=optimizer, at_step=count).train(range(1, 5))
    assert read(tmp_path).scalars("learning_rate/auto").value.tolist() == [8.0, 4.0, 2.0, 1.0]


SHAPES = [
    ((2, 512, 512, 3), True), ((2, 3, 32, 32), True), ((2, 1, 8, 8), True), ((2, 32, 32), False), ((32, 32, 3), False),
    ((2, 4, 64, 64), False), ((2, 7), False), ((2,), False), ((0, 3, 8, 8), False),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "is_picture"), SHAPES)
def test_input_of_any_shape_is_survived(tmp_path: Path, said: Said, shape: tuple[int, ...], is_picture: bool) -> None:
    """Pictures of either layout are recorded; anything else is passed over with one warning that names the option."""
    element = (ms.Tensor(np.zeros(shape, np.float32)), None)
    Loop(collector(tmp_path), train_dataset_element=element).train(range(1, 4))
    run = read(tmp_path)
    assert steps(run) == [1, 2, 3]
    assert ("image" in run.tags()) == is_picture
    if is_picture:
        assert run.images("input_data/auto").step.tolist() == [1, 2, 3]
        assert said("input") == []
    else:
        (message,) = said("input")
        assert f"has shape {shape}" in message
        assert "collect_specified_data={'collect_input_data': False}" in message


@pytest.mark.parametrize(
    ("element", "found"),
    [
        (PICTURES, True), ({"image": ms.Tensor(PICTURES), "label": 0}, True), ([ms.Tensor(PICTURES)], True), ((), False),
        (None, False), ("path", False), ({}, False), (7, False),
    ],
)  # fmt: skip
def test_input_of_any_structure_is_survived(tmp_path: Path, said: Said, element: Any, found: bool) -> None:
    """A batch may be a tensor, a sequence or a dictionary; what is no tensor is said once."""
    Loop(collector(tmp_path), train_dataset_element=element).train([1, 2])
    assert ("image" in read(tmp_path).tags()) == found
    assert len(said("input data")) == (not found)


class Broken:
    """Raises for whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")


def test_broken_sources_stop_nothing(tmp_path: Path, said: Said) -> None:
    """Network, optimiser, dataset and batch that raise for everything: each is said once, the loss is recorded."""
    broken = Broken()
    loop = Loop(
        collector(tmp_path), train_network=broken, optimizer=broken, train_dataset=broken, network=broken,
        train_dataset_element=broken, loss_fn=broken,
    )  # fmt: skip
    loop.train(range(1, 4))
    assert steps(read(tmp_path)) == [1, 2, 3]
    messages = said("does not collect")
    assert len(messages) == len(set(messages)) == 6, messages


def test_one_odd_parameter_does_not_spoil_the_others(tmp_path: Path, said: Said) -> None:
    """A complex parameter among the five is said once, and the others have their histograms."""
    weights = [ms.Parameter(ms.Tensor(np.ones(2, dtype)), name=dtype) for dtype in ("float32", "complex64")]
    optimizer = SimpleNamespace(parameters=weights, learning_rate=0.1)
    Loop(collector(tmp_path), optimizer=optimizer).train([1, 2])
    run = read(tmp_path)
    assert run.tags()["histogram"] == ["float32/auto"]
    assert run.histograms("float32/auto").step.tolist() == [1, 2]
    assert len(said("complex64")) == 1


def test_switches_turn_sources_off(tmp_path: Path, said: Said) -> None:
    """With everything switched off nothing is recorded but what summary operators were given, and nothing is said."""
    scalar = ops.ScalarSummary()
    one = collector(tmp_path, collect_specified_data=None, keep_default_action=False)
    Loop(one, at_step=lambda step, _: scalar("mine", ms.Tensor(float(step)))).train([1, 2])
    run = read(tmp_path)
    assert run.tags() == {"scalar": ["mine"]}
    assert run.lineage == {}
    assert said() == []


# ---------------------------------------------------------------- summary operators


def test_operators_are_recorded_at_collected_steps_only(tmp_path: Path, said: Said) -> None:
    """Between the collected steps, in an evaluation and outside of steps, summary operators leave nothing."""
    scalar, tensor = ops.ScalarSummary(), ops.TensorSummary()

    def operators(number: float) -> None:
        scalar("s", ms.Tensor(number))
        tensor("t", ms.Tensor([number]))

    one = collector(tmp_path, collect_freq=3, collect_tensor_freq=4, **ONLY_METRICS)
    loop = Loop(one, at_step=lambda step, _: operators(float(step)))
    with loop.entered():
        loop.call("on_train_begin")
        operators(-1.0)
        for step in range(1, 10):
            loop.step(step)
            operators(-1.0)
            if step == 5:
                loop.evaluate({"accuracy": 0.5})
                operators(-1.0)
        loop.call("on_train_epoch_end")
        loop.call("on_train_end")
    operators(-1.0)
    run = read(tmp_path)
    assert run.scalars("s").step.tolist() == run.scalars("s").value.tolist() == [1, 3, 6, 9]
    assert run.tensors("t").step.tolist() == [1, 4, 8]
    assert [run.tensors("t")[step].tolist() for step in (1, 4, 8)] == [[1.0], [4.0], [8.0]]
    assert said("more than once") == []


def test_a_name_twice_in_a_step_keeps_the_later(tmp_path: Path, said: Said) -> None:
    """Two operators with one name: the last value counts, and one warning says so for the whole training."""
    scalar, other = ops.ScalarSummary(), ops.ScalarSummary()

    def twice(step: int, _: Any) -> None:
        scalar("s", ms.Tensor(1.0))
        other("s", ms.Tensor(2.0))

    Loop(collector(tmp_path), at_step=twice).train(range(1, 4))
    assert read(tmp_path).scalars("s").value.tolist() == [2.0] * 3
    assert len(said("'s' came more than once")) == 1


def test_an_operators_value_that_cannot_be_recorded_is_said_once(tmp_path: Path, said: Said) -> None:
    """A vector as a scalar, a complex tensor and a name that is no Unicode stop nothing."""
    scalar, tensor = ops.ScalarSummary(), ops.TensorSummary()

    def odd(step: int, _: Any) -> None:
        scalar("odd/vector", ms.Tensor([1.0, 2.0]))
        tensor("odd/complex", ms.Tensor(np.array([1j], np.complex64)))
        scalar("odd/\udcff", ms.Tensor(1.0))
        scalar("good", ms.Tensor(float(step)))

    Loop(collector(tmp_path, **ONLY_METRICS), at_step=odd).train(range(1, 4))
    assert read(tmp_path).tags()["scalar"] == ["good", "learning_rate/auto", "loss/auto"]
    assert len(said("A summary operator's value is not recorded")) == 3


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


def test_a_collector_serves_twice(tmp_path: Path) -> None:
    """A second training has files of its own; by the rule of restarts its points replace those of the first."""
    one = collector(tmp_path, **ONLY_METRICS)
    assert one.stats is None
    for _ in range(2):
        Loop(one, at_step=losses).train(range(1, 6))
        assert one.stats is not None
        assert one.stats.events == 5
    run = read(tmp_path)
    assert len(run.files) == 2
    assert steps(run) == [1, 2, 3, 4, 5]
    assert run.scalars("loss/auto", superseded=True).step.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_what_failed_in_one_training_is_tried_in_the_next(tmp_path: Path, said: Said) -> None:
    """A source given up in the first training is collected in the second."""
    one = collector(tmp_path, **ONLY_METRICS)
    Loop(one, net_outputs=None).train([1, 2])
    Loop(one, net_outputs=ms.Tensor(1.0)).train([3, 4])
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
    assert steps(read(tmp_path)) == [1, 2, 3, 4, 5]
    assert len(read(tmp_path).files) == 2


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
