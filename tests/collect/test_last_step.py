"""The ends of a training: its hyper-parameters from the beginning, its last step, its evaluations, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import mindspore as ms
import pytest
from mindspore import nn

from instrument import Run, SummaryCollector, ops, read
from instrument.values import FAILED, FINISHED
from tests.collect.fake import Loop

Said = Callable[..., list[str]]


def collector(directory: Path, **options: Any) -> SummaryCollector:
    return SummaryCollector(directory, **{"collect_freq": 5, "num_process": 0, **options})


def losses(step: int, params: Any) -> None:
    """Each step's loss is its number."""
    params.net_outputs = ms.Tensor(float(step))


def loss(run: Run) -> list[tuple[int, float]]:
    points = run.scalars("loss/auto", superseded=True)
    return list(zip(points.step.tolist(), points.value.tolist(), strict=True))


class At:
    """A callback that does something at the end of a step, or at its beginning."""

    def __init__(self, step: int, do: Callable[[Any], None], hook: str = "on_train_step_end") -> None:
        self._step, self._do, self._hook = step, do, hook

    def __enter__(self) -> At:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[[Any], None]:
        def call(context: Any) -> None:
            if name == self._hook and context.original_args().cur_step_num == self._step:
                self._do(context)

        return call


# ---------------------------------------------------------------- the last step


@pytest.mark.parametrize("batch_num", [None, 12, 100])
def test_the_last_step_is_recorded(tmp_path: Path, batch_num: int | None) -> None:
    """Of a length that is known before, or not, or known wrongly; with all kinds, and as the lineage has it."""
    Loop(collector(tmp_path), at_step=losses, batch_num=batch_num).train(range(1, 13))
    run = read(tmp_path)
    assert loss(run) == [(step, float(step)) for step in (1, 5, 10, 12)]
    assert run.histograms("weight/auto").step.tolist() == [1, 5, 10, 12]
    assert run.lineage["train"]["algorithm"]["loss"] == 12.0
    assert run.state == FINISHED


@pytest.mark.parametrize("freq", [1, 5])
def test_a_last_step_that_is_due_is_recorded_once(tmp_path: Path, freq: int) -> None:
    """A multiple of the frequency."""
    Loop(collector(tmp_path, collect_freq=freq), at_step=losses).train(range(1, 11))
    assert [step for step, _ in loss(read(tmp_path))].count(10) == 1


@pytest.mark.parametrize("before", [True, False], ids=["before", "behind"])
def test_a_training_that_a_callback_stops(tmp_path: Path, before: bool) -> None:
    """Its last step is recorded, whether the collector stands before or behind who stops it."""
    one, stop = collector(tmp_path), At(7, lambda context: context.request_stop())
    loop = Loop(*([stop, one] if before else [one, stop]), at_step=losses, batch_num=100)
    loop.train(range(1, 8))
    assert loss(read(tmp_path)) == [(1, 1.0), (5, 5.0), (7, 7.0)]


def test_an_evaluation_at_the_end_changes_nothing_of_the_last_step(tmp_path: Path) -> None:
    """Of a training that was stopped, `model.fit` evaluates before it ends: the step is recorded before that."""
    loop = Loop(collector(tmp_path), at_step=losses, batch_num=100)
    with loop.entered():
        loop.call("on_train_begin")
        for step in range(1, 8):
            loop.step(step)
        loop.context.request_stop()
        loop.evaluate({"accuracy": 0.5})
        loop.params.net_outputs = ms.Tensor(99.0)
        loop.call("on_train_epoch_end")
        loop.call("on_train_end")
    run = read(tmp_path)
    assert loss(run) == [(1, 1.0), (5, 5.0), (7, 7.0)]
    assert run.scalars("eval/accuracy/auto").step.tolist() == [7]


def test_in_sink_mode_too(tmp_path: Path) -> None:
    """The last block, also where it crosses no multiple."""
    loop = Loop(collector(tmp_path, collect_freq=100), at_step=losses, dataset_sink_mode=True, sink_size=7)
    loop.train([7], [14], [21])
    assert loss(read(tmp_path)) == [(7, 7.0), (21, 21.0)]


@pytest.mark.parametrize("before", [True, False], ids=["before", "behind"])
def test_a_training_that_raises(tmp_path: Path, before: bool) -> None:
    """The last step that the collector saw end is recorded; of one in the middle only what it cannot have changed."""

    def fail(_: Any) -> None:
        raise RuntimeError("diverged")

    one = collector(tmp_path)
    with pytest.raises(RuntimeError, match="diverged"):
        Loop(*([At(7, fail), one] if before else [one, At(7, fail)]), at_step=losses).train(range(1, 11))
    run = read(tmp_path)
    last = 6 if before else 7
    assert loss(run) == [(1, 1.0), (5, 5.0), (last, float(last))]
    assert run.histograms("weight/auto").step.tolist() == ([1, 5] if before else [1, 5, 7])
    assert run.lineage["train"]["algorithm"]["loss"] == last
    assert (run.state, run.starts[0].reason) == (FAILED, "RuntimeError: diverged")


def test_a_training_that_raises_in_its_network(tmp_path: Path) -> None:
    """The step that fails is not recorded; the one before it is, with its own loss."""

    def fail(step: int, params: Any) -> None:
        if step == 8:
            raise RuntimeError("out of memory")
        losses(step, params)

    with pytest.raises(RuntimeError, match="out of memory"):
        Loop(collector(tmp_path), at_step=fail).train(range(1, 11))
    assert loss(read(tmp_path)) == [(1, 1.0), (5, 5.0), (7, 7.0)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_training_that_is_interrupted(tmp_path: Path, error: type[BaseException]) -> None:
    """Ctrl+C where Python handles it, and sys.exit."""

    def fail(_: Any) -> None:
        raise error

    with pytest.raises(error):
        Loop(collector(tmp_path), At(7, fail), at_step=losses).train(range(1, 11))
    run = read(tmp_path)
    assert loss(run)[-1] == (7, 7.0)
    assert (run.state, run.starts[0].reason) == (FAILED, error.__name__)


@pytest.mark.parametrize(("freq", "expected"), [(None, [1, 5, 10, 12]), (6, [1, 6, 12]), (7, [1, 7])])
def test_tensors_of_the_last_step(tmp_path: Path, freq: int | None, expected: list[int]) -> None:
    """They go with everything else, unless they have a frequency; an evaluation that follows changes nothing."""
    tensor, scalar = ops.TensorSummary(), ops.ScalarSummary()

    def step(number: int, params: Any) -> None:
        losses(number, params)
        tensor("w", ms.Tensor([float(number)]))
        scalar("mean", ms.Tensor(float(number)))

    loop = Loop(collector(tmp_path, collect_tensor_freq=freq), at_step=step, batch_num=12)
    with loop.entered():
        loop.call("on_train_begin")
        loop.call("on_train_epoch_begin")
        for number in range(1, 13):
            loop.step(number)
        scalar("mean", ms.Tensor(99.0))  # as `model.fit` evaluates, of which a collector is not told
        loop.call("on_train_epoch_end")
        loop.call("on_train_end")
    run = read(tmp_path)
    assert run.tensors("w").step.tolist() == expected
    assert run.tensors("w")[expected[-1]].tolist() == [expected[-1]]
    assert run.scalars("mean").value.tolist() == [1, 5, 10, 12]


# ---------------------------------------------------------------- hyper-parameters


@pytest.mark.parametrize("dialect", ["mindspore", "tensorboard", "both"])
def test_hyper_parameters_are_there_before_the_first_step(tmp_path: Path, dialect: str) -> None:
    """Of a training that fails in it: optimiser, learning rate, the user's own, and the data set."""

    def fail(_: int, __: Any) -> None:
        raise RuntimeError("out of memory")

    one = collector(tmp_path, dialect=dialect, custom_lineage_data={"note": "toy"})
    with pytest.raises(RuntimeError, match="out of memory"):
        Loop(one, at_step=fail, net_outputs=None).train([1])
    found = read(tmp_path).lineage
    if dialect == "tensorboard":
        assert (found["hparams"]["learning_rate"], found["hparams"]["note"]) == (0.5, "toy")
        return
    assert found["train"]["hyper_parameters"]["learning_rate"] == 0.5
    assert found["train"]["algorithm"]["network"] == "Dense"
    assert "loss" not in found["train"]["algorithm"]
    assert (found["custom"], "dataset" in found) == ({"note": "toy"}, True)


def schedules() -> dict[str, Any]:
    return {
        "cosine": nn.CosineDecayLR(0.0, 0.25, 8),
        "list": [0.25, 0.125, 0.0625],
        "callback": 0.25,
    }


@pytest.mark.parametrize("name", ["cosine", "list", "callback"])
def test_the_learning_rate_is_the_first_one(tmp_path: Path, name: str) -> None:
    """Of a schedule, a list, and a rate that a callback changes; the last one has a name of its own."""
    with suppress(SystemError):  # the first operator of a process fails with NumPy 2
        ms.Tensor([1.0]) + 1
    network = nn.Dense(4, 1)
    optimizer = nn.Momentum(network.trainable_params(), schedules()[name], 0.9)

    def step(number: int, params: Any) -> None:
        losses(number, params)
        optimizer.global_step.set_data(ms.Tensor([number], ms.int32))
        if name == "callback":
            optimizer.learning_rate.set_data(ms.Tensor(0.25 / 2**number, ms.float32))

    one = collector(tmp_path)
    for _ in range(2):
        Loop(one, at_step=step, network=network, train_network=network, optimizer=optimizer).train(range(1, 4))
    train = read(tmp_path).lineage["train"]
    assert train["hyper_parameters"]["learning_rate"] == 0.25
    rates = read(tmp_path).scalars("learning_rate/auto").value.tolist()
    assert train["algorithm"]["last_learning_rate"] == rates[-1] < 0.25
    if name != "cosine":
        assert rates[-1] == {"list": 0.0625, "callback": 0.03125}[name]


# ---------------------------------------------------------------- evaluations


@pytest.mark.parametrize("before", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("is_new", [True, False], ids=["new outputs", "no outputs"])
def test_an_evaluation_has_the_step_of_its_training(tmp_path: Path, before: bool, is_new: bool) -> None:
    """Whether the callback that evaluates stands before or behind the collector, and whatever the network gives."""
    loops: list[Loop] = []
    evaluations = [At(step, lambda _, step=step: loops[0].evaluate({"accuracy": step / 10})) for step in (1, 2, 4)]
    one = collector(tmp_path)
    callbacks = [*evaluations, one] if before else [one, *evaluations]
    loops.append(Loop(*callbacks, at_step=losses if is_new else None, net_outputs=None))
    loops[0].train(range(1, 6))
    accuracy = read(tmp_path).scalars("eval/accuracy/auto")
    found = list(zip(accuracy.step.tolist(), accuracy.value.tolist(), strict=True))
    assert found[1:] == [(2, 0.2), (4, 0.4)]
    assert found[0] == ((1, 0.1) if is_new or not before else (0, 0.1))  # without outputs nothing tells a first step


@pytest.mark.parametrize("before", [True, False], ids=["before", "behind"])
def test_an_evaluation_before_a_step_has_that_of_the_step_before(tmp_path: Path, before: bool) -> None:
    """Hooks at the beginning of a step: its network has not run."""
    loops: list[Loop] = []
    hook = "on_train_step_begin"
    evaluations = [At(step, lambda _, step=step: loops[0].evaluate({"accuracy": step}), hook) for step in (1, 3)]
    one = collector(tmp_path)
    callbacks = [*evaluations, one] if before else [one, *evaluations]
    loops.append(Loop(*callbacks, at_step=losses, net_outputs=None))
    loops[0].train(range(1, 6))
    assert read(tmp_path).scalars("eval/accuracy/auto").step.tolist() == [0, 2]


def test_an_evaluation_that_raises_leaves_the_training_as_it_was(tmp_path: Path) -> None:
    """Values of operators are recorded again behind it, where the exception is caught."""
    summary = ops.ScalarSummary()
    one = collector(tmp_path, collect_freq=1)

    def step(number: int, params: Any) -> None:
        losses(number, params)
        if number == 2:
            one.on_eval_begin(loop.context)
            with pytest.raises(ValueError, match="no"), one:
                raise ValueError("no")
        summary("mean", ms.Tensor(float(number)))

    loop = Loop(one, at_step=step)
    loop.train(range(1, 4))
    run = read(tmp_path)
    assert (loss(run), run.state) == ([(1, 1.0), (2, 2.0), (3, 3.0)], FINISHED)
    assert run.scalars("mean").step.tolist() == [1, 2, 3]


# ---------------------------------------------------------------- several trainings


def test_trainings_and_evaluations_in_turn(tmp_path: Path, said: Said) -> None:
    """Each evaluation has the last step of the trainings before it; what is not collected is said once."""
    one = collector(tmp_path)
    for number in range(1, 4):
        Loop(one, at_step=losses, train_dataset_element=None).train(range(1, 7)).evaluate({"accuracy": number})
    run = read(tmp_path)
    assert run.scalars("eval/accuracy/auto").step.tolist() == [6, 12, 18]
    assert [step for step, _ in loss(run)] == [1, 5, 6, 7, 10, 12, 13, 15, 18]
    assert len(said("does not collect the input data")) == 1
    assert len(said("The first step of this training is recorded as step 7")) == 1
    assert said("holds a run already") == []


def test_epochs_that_are_given_by_number(tmp_path: Path) -> None:
    """`initial_epoch`, in one process and in the next one."""
    one = collector(tmp_path)
    for epoch in range(1, 4):
        train_epoch(one, epoch)
    train_epoch(collector(tmp_path), 4)
    assert [step for step, _ in loss(read(tmp_path))] == [1, 5, 6, 7, 10, 12, 13, 15, 18, 19, 20, 24]


def train_epoch(one: SummaryCollector, number: int) -> None:
    """One epoch of six steps, which MindSpore counts from 1 whatever the number of the epoch is."""
    loop = Loop(one, at_step=losses, batch_num=6, cur_epoch_num=number)
    with loop.entered():
        loop.call("on_train_begin")
        loop.call("on_train_epoch_begin")
        for step in range(1, 7):
            loop.step(step)
        loop.call("on_train_epoch_end")
        loop.call("on_train_end")


def test_a_framework_that_counts_steps_itself(tmp_path: Path) -> None:
    """It begins at another step than 0: nothing is added to its numbers, and nothing is said."""
    one = collector(tmp_path)
    Loop(one, at_step=losses).train(range(1, 7))
    Loop(one, at_step=losses, cur_step_num=6).train(range(7, 13))
    assert loss(read(tmp_path)) == [(step, float(step)) for step in (1, 5, 6, 7, 10, 12)]


def test_weights_for_a_landscape_are_kept_over_several_trainings(tmp_path: Path) -> None:
    """At steps of the run; the further trainings of a collector take nothing away, another collector's does."""
    options = {"collect_specified_data": {"collect_landscape": {"intervals": [[3, 6, 9]], "unit": "step"}}}
    network = nn.Dense(4, 1)
    one = collector(tmp_path, **options)
    for _ in range(3):
        Loop(one, at_step=losses, network=network, train_network=network).train(range(1, 4))
    assert sorted(path.name for path in tmp_path.glob("ckpt_dir/*.ckpt")) == [
        f"Dense_{step}_step.ckpt" for step in (3, 6, 9)
    ]
    Loop(collector(tmp_path, **options), network=network, train_network=network).train(range(1, 4))
    assert [path.name for path in tmp_path.glob("ckpt_dir/*.ckpt")] == ["Dense_3_step.ckpt"]
