"""What SummaryCollector collects: loss, learning rate, weights and input of any type, and what it says is not there."""

from __future__ import annotations

import math
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
from tests.collect.fake import PICTURES, Loop

Said = Callable[..., list[str]]


def collector(directory: Path, **options: Any) -> SummaryCollector:
    return SummaryCollector(directory, **{"collect_freq": 1, "num_process": 0, **options})


def steps(run: Run, tag: str = "loss/auto") -> list[int]:
    return run.scalars(tag).step.tolist()


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
def test_any_optimizer_is_survived(tmp_path: Path, said: Said, make: Callable[[], Any], expected: float | None) -> None:
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
    """A schedule of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.learning_rate = ms.Tensor(8.0)

    def construct(self, global_step: ms.Tensor) -> ms.Tensor:
        return self.learning_rate * 0.5**global_step


class CountingCalls(Halving):
    """One that changes with each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = ms.Parameter(ms.Tensor(0.0), name="calls")

    def construct(self, global_step: ms.Tensor) -> ms.Tensor:
        self.calls += 1
        return self.learning_rate / self.calls


def count_updates(optimizer: nn.Optimizer) -> Callable[[int, Any], None]:
    """Sets the optimiser's step, which it counts up after it used the rate."""
    return lambda step, _: optimizer.global_step.set_data(ms.Tensor([step], ms.int32))


def test_a_schedule_of_ones_own_is_asked(tmp_path: Path) -> None:
    """A user's schedule is called with the step that the optimiser used."""
    optimizer = momentum(Halving())
    Loop(collector(tmp_path), optimizer=optimizer, at_step=count_updates(optimizer)).train(range(1, 5))
    assert read(tmp_path).scalars("learning_rate/auto").value.tolist() == [8.0, 4.0, 2.0, 1.0]


def test_a_schedule_that_could_change_is_left_alone(tmp_path: Path, said: Said) -> None:
    """A schedule with parameters is not called once more than training does; that is said once."""
    optimizer = momentum(schedule := CountingCalls())
    Loop(collector(tmp_path), optimizer=optimizer, at_step=count_updates(optimizer)).train(range(1, 5))
    assert schedule.calls.asnumpy() == 0
    assert read(tmp_path).tags()["scalar"] == ["loss/auto"]
    assert len(said("its schedule has parameters")) == 1


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
        (PICTURES, True), ({"image": ms.Tensor(PICTURES), "label": 0}, True), ([ms.Tensor(PICTURES)], True),
        ((), False), (None, False), ("path", False), ({}, False), (7, False),
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
