"""One evaluation: evaluation mode, no optimiser's step, all as before, and quick forms that give the same loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops
from mindspore.train import Accuracy, Loss, Model, Precision

from instrument import SummaryRecord, read
from instrument.collect import ops as summary_operators
from instrument.landscape.forward import Form, Forward
from instrument.landscape.im2col import convolutions, im2col, with_columns, with_im2col
from instrument.landscape.landscape import SummaryLandscape
from instrument.landscape.model_parts import EvaluationError, check_names, parts_of, take_samples
from instrument.landscape.weights import BadCheckpoint
from tests.landscape import build

PICTURES = np.random.default_rng(2).random((20, 3, 12, 11)).astype(np.float32)
LABELS = (np.arange(20) % 3).astype(np.int32)


@pytest.fixture(autouse=True)
def _graph() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)


class Conv(nn.Cell):
    """A convolution, whatever its options, then normalisation, dropout and a dense layer."""

    def __init__(self, conv: nn.Cell) -> None:
        super().__init__()
        self.conv = conv
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(p=0.5)
        self.dense = nn.Dense(4, 3)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = ops.relu(self.norm(self.conv(x)))
        return self.dense(self.dropout(ops.reduce_mean(x, (2, 3))))


def conv_answer(conv: nn.Cell | None = None, batch: int = 8) -> Any:
    network = Conv(conv or nn.Conv2d(3, 4, 3))
    optimizer = nn.Momentum(network.trainable_params(), 0.5, 0.9)
    model = Model(network, build.cross_entropy(), optimizer)
    return model, network, build.dataset(PICTURES, LABELS, batch), {"Loss": Loss(), "acc": Accuracy()}


def held(network: nn.Cell) -> dict[str, Any]:
    return {parameter.name: parameter.asnumpy().copy() for parameter in network.get_parameters()}


def test_evaluation_changes_nothing() -> None:
    """Neither an optimiser's step, nor dropout, nor batch statistics: one point has one loss, time and again."""
    answer = conv_answer()
    parts, network = parts_of(answer), answer[1]
    before = held(network)
    with Forward(parts, take_samples(parts.dataset, 20), {"acc": parts.metrics["acc"]}) as forward:
        forward.use(Form(True, False, False))
        losses = [forward.values().tolist() for _ in range(5)]
        assert held(network).keys() == before.keys()
        assert all(np.array_equal(values, before[name]) for name, values in held(network).items())
    assert losses == [losses[0]] * 5
    network.set_train(False)
    output = network(ms.Tensor(PICTURES))
    loss = float(build.cross_entropy()(output, ms.Tensor(LABELS)).asnumpy())
    accuracy = float(np.mean(output.asnumpy().argmax(axis=1) == LABELS))
    assert losses[0] == pytest.approx([loss, accuracy], rel=1e-5)


def fail_inside(parts: Any, before: dict[str, Any]) -> None:
    with Forward(parts, take_samples(parts.dataset, 20), {}) as forward:
        forward.use(Form(True, True, True))
        forward.put({name: values + 1 for name, values in before.items()})
        forward.values()
        raise ZeroDivisionError


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_all_is_as_before_even_after_an_error(mode: int) -> None:
    """Parameters to the last bit, the mode of each cell, the class of each convolution, and the context."""
    ms.set_context(mode=mode)
    answer = conv_answer()
    parts, network = parts_of(answer), answer[1]
    network.set_train(True)
    network.norm.set_train(False)
    before = held(network)
    with pytest.raises(ZeroDivisionError):
        fail_inside(parts, before)
    assert all(np.array_equal(values, before[name]) for name, values in held(network).items())
    assert (network.training, network.norm.training, type(network.conv)) == (True, False, nn.Conv2d)
    assert ms.get_context("mode") == mode


OPTIONS = [
    {"pad_mode": "valid"}, {"pad_mode": "same"}, {"pad_mode": "same", "stride": 2},
    {"pad_mode": "same", "stride": (3, 2)},
    {"pad_mode": "pad", "padding": 2}, {"pad_mode": "pad", "padding": (1, 0, 2, 1), "stride": 2},
    {"dilation": 2, "pad_mode": "same"}, {"dilation": (2, 1), "pad_mode": "valid", "has_bias": True},
    {"kernel_size": (3, 5), "has_bias": True}, {"kernel_size": (4, 2), "stride": (2, 3), "pad_mode": "same"},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_unfolded_convolutions_are_the_same(options: dict[str, Any]) -> None:
    """Kernels, strides, dilations, padding of each mode, and biases."""
    conv = nn.Conv2d(3, 4, **{"kernel_size": 3, **options})
    network = nn.SequentialCell(conv)
    expected = conv(ms.Tensor(PICTURES)).asnumpy()
    assert convolutions(network) == [conv]
    with with_im2col(network):
        found = nn.SequentialCell(conv)(ms.Tensor(PICTURES)).asnumpy()
    assert type(conv) is nn.Conv2d
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    windows, places = im2col(conv, PICTURES)
    with with_columns(conv, places):
        found = nn.SequentialCell(conv)(ms.Tensor(windows)).asnumpy()
    assert (type(conv), places) == (nn.Conv2d, expected.shape[2:])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_only_what_is_the_same_is_unfolded() -> None:
    """Not groups, not kernels of 1 x 1, which are quick already, and not a class of the user's own."""

    class Own(nn.Conv2d):
        pass

    assert convolutions(nn.SequentialCell(nn.Conv2d(4, 4, 3, group=2), nn.Conv2d(4, 4, 1), Own(4, 4, 3))) == []


@pytest.mark.parametrize("allowed", [True, False])
def test_the_quickest_form_with_the_same_losses_is_taken(allowed: bool) -> None:
    """On the CPU that is a graph, few batches, and convolutions as products unless that is switched off."""
    answer = conv_answer()
    parts = parts_of(answer)
    other = {name: values + 0.1 for name, values in held(answer[1]).items()}
    with Forward(parts, take_samples(parts.dataset, 20), {}) as forward:
        form, difference = forward.choose(allowed, [held(answer[1]), other])
        assert form == Form(True, True, allowed, early=allowed)
        assert difference < 1e-5


@pytest.mark.parametrize("factor", [2.0, 1.0])
def test_samples_that_are_changed_before_the_convolution(factor: float) -> None:
    """Are not laid out beforehand; the convolution is a product all the same, and the mode is as it was."""

    class Changed(Conv):
        def construct(self, x: ms.Tensor) -> ms.Tensor:
            return super().construct(x * factor)

    network = Changed(nn.Conv2d(3, 4, 3))
    parts = parts_of((Model(network, build.cross_entropy()), network, build.dataset(PICTURES, LABELS, 8), None))
    with Forward(parts, take_samples(parts.dataset, 20), {}) as forward:
        form, _ = forward.choose(True, [held(network)])
        assert form == Form(True, True, True, early=factor == 1.0)
        assert ms.get_context("mode") == ms.GRAPH_MODE
    assert type(network.conv) is nn.Conv2d


def test_a_form_with_other_losses_is_not_taken() -> None:
    """A network whose output depends on the batch keeps the user's batches."""

    class Batchwise(build.Small):
        def construct(self, x: ms.Tensor) -> ms.Tensor:
            return super().construct(x) * x.shape[0]

    network = Batchwise()
    parts = parts_of((Model(network, build.cross_entropy()), network, build.small_dataset(8), None))
    with Forward(parts, take_samples(parts.dataset, 40), {}) as forward:
        form, _ = forward.choose(True, [held(network)])
        assert form == Form(True, False, False)


def test_outside_of_graphs_a_graph_is_taken() -> None:
    """PyNative takes ten times as long; the network follows the weights that it is given."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    parts = parts_of(build.small_callback())
    path: Any = build.small_checkpoints(3)
    with Forward(parts, take_samples(parts.dataset, 40), {}) as forward:
        assert forward.choose(True, [path[1], path[3]])[0] == Form(True, True, False)
        for tensors in path.values():
            forward.put(tensors)
            assert forward.values()[0] == pytest.approx(build.small_loss(tensors), rel=1e-5)
    assert ms.get_context("mode") == ms.PYNATIVE_MODE


def test_samples_are_taken_as_asked() -> None:
    """Exactly so many, the last batch cut; all where there are fewer; none is an error."""
    assert take_samples(build.small_dataset(8), 20).sizes == [8, 8, 4]
    assert take_samples(build.small_dataset(8), 3).sizes == [3]
    assert take_samples(build.small_dataset(16), 1000).sizes == [16, 16, 8]
    parts = parts_of(build.small_callback())
    tensors: Any = build.small_checkpoints(1)[1]
    with Forward(parts, take_samples(parts.dataset, 20), {}) as forward:
        forward.use(Form(True, False, False))
        forward.put(tensors)
        assert forward.values()[0] == pytest.approx(build.small_loss(tensors, 20), rel=1e-5)
    with pytest.raises(ValueError, match="columns of the shapes"):
        take_samples(ms.dataset.GeneratorDataset([(build.X[0], np.array(1))], ["x", "y"]), 3)
    with pytest.raises(TypeError, match="callback_fn gave a list as dataset"):
        take_samples([1], 3)


def test_half_parameters_are_cast() -> None:
    """A float16 network computes with float16 weights, set from float32 ones."""
    network = build.Small().to_float(ms.float16)
    for parameter in network.get_parameters():
        parameter.set_dtype(ms.float16)
    parts = parts_of((Model(network, build.cross_entropy()), network, build.small_dataset(), None))
    tensors: Any = build.small_checkpoints(1)[1]
    with Forward(parts, take_samples(parts.dataset, 40), {}) as forward:
        forward.choose(True, [tensors])
        forward.put(tensors)
        assert forward.values()[0] == pytest.approx(build.small_loss(tensors), rel=2e-2)
    assert network.fc1.weight.dtype == ms.float16


def test_a_network_that_computes_its_loss_itself() -> None:
    """Is evaluated as it is; what an optimiser is wrapped around is taken out."""
    network = WithLoss(build.Small())
    model = Model(network, optimizer=nn.Adam(network.trainable_params()))
    parts = parts_of((model, network, build.small_dataset(), None))
    assert (parts.backbone, parts.loss) == (network, None)
    tensors: Any = build.small_checkpoints(1)[1]
    with Forward(parts, take_samples(parts.dataset, 40), {}) as forward:
        forward.choose(True, [tensors])
        assert forward.values()[0] == pytest.approx(build.small_loss(tensors), rel=1e-5)


def test_answers_that_are_none_are_refused() -> None:
    """What callback_fn must give is said; a network outside of its model too."""
    model, network, data, metrics = build.small_callback()
    for wrong in (None, (model, network, data), (network, model, data, metrics)):
        with pytest.raises(TypeError, match="callback_fn gave"):
            parts_of(wrong)
    with pytest.raises(TypeError, match="as metrics"):
        parts_of((model, network, data, 3))
    with pytest.raises(ValueError, match="not part of its model"):
        parts_of((model, build.Small(), data, metrics))


def test_names_that_do_not_match_are_named() -> None:
    """Parameters that the checkpoint lacks, or has in another shape; what it has beside them is no error."""
    parts = parts_of(build.small_callback())
    tensors: Any = build.small_checkpoints(1)[1]
    assert check_names(parts, {**tensors, "moments.fc1.weight": tensors["fc1.weight"]}, 1, "step") == [
        "moments.fc1.weight"
    ]
    renamed = {f"net.{name}": values for name, values in tensors.items()}
    with pytest.raises(BadCheckpoint, match=r"has no fc1.bias, fc1.weight.*; it has net.fc1.bias.* instead"):
        check_names(parts, renamed, 1, "step")
    with pytest.raises(BadCheckpoint, match=r"fc2.bias has shape \(3,\) and \(4,\)"):
        check_names(parts, {**tensors, "fc2.bias": np.zeros(4)}, 1, "step")


def test_the_gradient_is_that_of_the_mean_loss() -> None:
    """Against differences of NumPy's loss, over batches of different sizes."""
    parts = parts_of(build.small_callback())
    tensors: Any = build.small_checkpoints(1)[1]
    with Forward(parts, take_samples(parts.dataset, 20), {}) as forward:
        forward.use(Form(True, False, False))
        forward.put(tensors)
        found = forward.gradient(["fc2.bias"])
    wide = {name: values.astype(np.float64) for name, values in tensors.items()}
    for i in range(3):
        up, down = ({**wide, "fc2.bias": wide["fc2.bias"] + sign * 1e-6 * np.eye(3)[i]} for sign in (1, -1))
        expected = (build.small_loss(up, 20) - build.small_loss(down, 20)) / 2e-6
        assert found[i] == pytest.approx(expected, abs=1e-5)


class WithOutput(nn.Cell):
    """A user's own evaluation network: what it calls the loss, the label, and the prediction."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, x: ms.Tensor, y: ms.Tensor) -> Any:
        output = self.network(x)
        return ops.reduce_sum(output), y, output


class WithLoss(nn.Cell):
    """A network that computes its loss itself."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss = build.cross_entropy()

    def construct(self, x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        return self.loss(self.network(x), y)


@pytest.mark.parametrize("computes_itself", [False, True])
def test_metrics_of_the_models_own_evaluation_network(computes_itself: bool) -> None:
    """They are those of its outputs, by the model's `eval_indexes`; the loss is the one that is trained."""
    inner, metrics = build.Small(), {"accuracy": Accuracy()}
    whole = WithLoss(inner) if computes_itself else inner
    loss = None if computes_itself else build.cross_entropy()
    model = Model(whole, loss, metrics=metrics, eval_network=WithOutput(inner), eval_indexes=[0, 2, 1])
    parts = parts_of((model, whole, build.small_dataset(), metrics))
    assert parts.can_measure
    tensors: Any = build.small_checkpoints(1)[1]
    hidden = np.tanh(build.X @ tensors["fc1.weight"].T + tensors["fc1.bias"])
    right = (hidden @ tensors["fc2.weight"].T + tensors["fc2.bias"]).argmax(axis=1) == build.Y
    inner.set_train(True)
    with Forward(parts, take_samples(parts.dataset, 40), metrics) as forward:
        forward.choose(True, [tensors])
        forward.put(tensors)
        assert forward.values().tolist() == pytest.approx([build.small_loss(tensors), right.mean()], rel=1e-4)
    assert (inner.training, model.eval_network.training) == (True, False)


def test_a_metric_that_is_no_number_is_named() -> None:
    """One for each class, say."""
    model, network, data, _ = build.small_callback()
    parts = parts_of((model, network, data, {"precision": Precision()}))
    with Forward(parts, take_samples(data, 40), parts.metrics) as forward:
        forward.use(Form(True, True, False))
        with pytest.raises(EvaluationError, match=r"metric 'precision' gives a ndarray of shape \(3,\); expected one"):
            forward.values()


class Watched(build.Small):
    """With operators, of which one is given what is no picture."""

    def __init__(self) -> None:
        super().__init__()
        self.scalar, self.image = summary_operators.ScalarSummary(), summary_operators.ImageSummary()
        self.theirs = ms.ops.ScalarSummary()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = super().construct(x)
        self.scalar("mean", x.mean())
        self.theirs("theirs", x.mean())
        self.image("no picture", x[0])
        return x


def _watched_callback() -> Any:
    network = Watched()
    return Model(network, build.cross_entropy()), network, build.small_dataset(), None


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_nothing_is_recorded_or_said_of_operators_in_the_network(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A recorder that is open meanwhile gets what a training left before, and nothing of the evaluations."""
    ms.set_context(mode=mode)
    with SummaryRecord(tmp_path / "run", num_process=0) as record:
        summary_operators.ScalarSummary()("before", ms.Tensor(0.5))
        SummaryLandscape(tmp_path).compute(
            _watched_callback, axes="random", size=3, checkpoints=build.small_checkpoints(3)
        )
        record.record(1)
    assert read(tmp_path / "run").tags() == {"scalar": ["before"]}
    assert [message for message in caplog.messages if "summary" in message] == []
