"""A network trained on real digits with `model.fit` and `model.eval`: every number in the files against a probe's."""

from __future__ import annotations

import json
import math
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument.codec import graph as graph_codec
from instrument.codec import histogram as histogram_codec
from instrument.codec import image as image_codec
from tests.integration.conftest import Ran, Script

STEPS_PER_EPOCH, EPOCHS = 9, 4
COLLECTED = [1, *range(5, 37, 5), 36]
LAST_RATE = float(np.float32(0.1 * 0.5**3))


@pytest.fixture
def ran(script: Script, mode: str) -> Ran:
    return script("digits", mode)


def test_kinds_and_tags(ran: Ran, mode: str) -> None:
    """Everything that was asked for is there under MindSpore's tags, and nothing else; a graph in graph mode only."""
    run = ran.run()
    tags = run.tags()
    graphs = tags.pop("graph", [])
    assert tags == {
        "scalar": ["eval/accuracy/auto", "eval/eval_loss/auto", "input/mean", "learning_rate/auto", "loss/auto"],
        "image": ["input_data/auto"],
        "tensor": ["features"],
        "histogram": ["conv.weight/auto", "dense.bias/auto", "dense.weight/auto"],
    }
    assert len(graphs) == (mode == "graph")
    assert run.damage == []
    assert len(run.files) == 2


def test_the_training_says_only_what_is_so(ran: Ran, mode: str) -> None:
    """In PyNative mode one line says that there is no graph; nothing else is said of the recording."""
    lines = [line for line in ran.stderr.splitlines() if "SummaryCollector" in line or "summary" in line]
    assert len(lines) == (mode == "pynative"), lines
    assert all("graphs exist in graph mode only" in line for line in lines)
    assert "events=15" in ran.stdout  # nine steps, four evaluations, the lineage at the beginning and at the end
    assert "lost=0, errors=0" in ran.stdout


def test_the_loss_is_that_of_each_collected_step(ran: Ran) -> None:
    """`loss/auto` is what LossMonitor calls the loss, as float32, at exactly the collected steps."""
    points = ran.run().scalars("loss/auto", superseded=True)
    assert points.step.tolist() == COLLECTED
    losses = ran.expected["losses"]
    assert len(losses) == STEPS_PER_EPOCH * EPOCHS
    assert points.value.astype(np.float32).tolist() == [np.float32(losses[step - 1]) for step in COLLECTED]
    assert (np.diff(points.wall_time) >= 0).all()


def test_the_learning_rate_decays_as_it_was_told(ran: Ran) -> None:
    """A list of rates, halved each epoch: the rate of each collected step is the one that the optimiser used."""
    points = ran.run().scalars("learning_rate/auto")
    assert points.step.tolist() == COLLECTED
    expected = [np.float32(0.1 * 0.5 ** ((step - 1) // STEPS_PER_EPOCH)) for step in COLLECTED]
    assert points.value.astype(np.float32).tolist() == expected


def test_metrics_lie_at_the_end_of_each_epoch(ran: Ran) -> None:
    """Accuracy and loss of each evaluation inside `fit`, at the last step of its epoch."""
    run, expected = ran.run(), ran.expected["metrics"]
    assert expected[:, 0].tolist() == [9, 18, 27, 36]
    for column, tag in ((1, "eval/accuracy/auto"), (2, "eval/eval_loss/auto")):
        points = run.scalars(tag, superseded=True)
        assert points.step.tolist() == [9, 18, 27, 36]
        assert points.value.tolist() == expected[:, column].tolist()


def test_histograms_are_those_of_the_weights(ran: Ran) -> None:
    """Buckets, minimum, maximum and sum are those of the parameter at the same step."""
    run, expected = ran.run(), ran.expected
    for name in ("conv.weight", "dense.weight", "dense.bias"):
        series = run.histograms(f"{name}/auto")
        assert series.step.tolist() == COLLECTED
        for step in COLLECTED:
            array, found = expected[f"weights/{name}"][step - 1], series[step]
            counted = histogram_codec.from_array(array)
            assert found.left.tolist() == counted.left.tolist()
            assert found.width.tolist() == counted.width.tolist()
            assert found.counts.tolist() == counted.counts.tolist()
            assert (found.min, found.max, found.count) == (array.min(), array.max(), array.size)
            assert found.sum == array.sum(dtype=np.float64)


def test_the_picture_is_the_batch(ran: Ran) -> None:
    """The decoded picture holds the digits of the batch, eight in a row, each grey level right."""
    series, batches = ran.run().images("input_data/auto"), ran.expected["batches"]
    assert series.step.tolist() == COLLECTED
    for step in COLLECTED:
        grey = image_codec.pixels(series[step])[:, :, 0]
        grid = batches[step - 1][:, 0].reshape(4, 8, 8, 8).transpose(0, 2, 1, 3).reshape(32, 64)
        np.testing.assert_array_equal(grey, np.rint(grid * 255).astype(np.uint8))


def test_summary_operators_see_training_only(ran: Ran) -> None:
    """What operators in the network were given, at the collected steps, also at the one that follows an evaluation."""
    run, batches = ran.run(), ran.expected["batches"]
    means = run.scalars("input/mean", superseded=True)
    assert means.step.tolist() == COLLECTED
    for step, _, value in means:
        assert value == pytest.approx(batches[step - 1].mean(), rel=1e-5)
    features = run.tensors("features", superseded=True)
    assert features.step.tolist() == COLLECTED
    assert {array.array.shape for array in features.values} == {(32, 144)}


def test_the_graph_has_the_networks_operators(ran: Ran, mode: str) -> None:
    """In graph mode: convolution, matrix product, loss and optimiser, each in the scope of its cell."""
    graph = ran.run().graph
    if mode == "pynative":
        assert graph is None
        return
    assert graph is not None
    scopes = {node.op_type: node.scope for node in graph_codec.nodes(graph)}
    assert "conv-Conv2d" in scopes["Conv2D"]
    assert "dense-Dense" in scopes["MatMul"]
    assert any("CrossEntropy" in name for name in scopes)
    assert any("Momentum" in name for name in scopes)
    parameters = graph_codec.parameters(graph)
    assert {"conv.weight", "dense.weight", "dense.bias", "moments.conv.weight"} <= set(parameters)


def test_the_dataset_graph_is_the_pipeline(ran: Ran) -> None:
    """Batch over two maps over a shuffle over the source, with their operations."""
    batch = ran.run().lineage["dataset"]
    assert (batch["op_type"], batch["batch_size"], batch["drop_remainder"]) == ("Batch", 32, True)
    (label,) = batch["children"]
    (image,) = label["children"]
    (shuffle,) = image["children"]
    assert (label["op_type"], label["input_columns"]) == ("Map", ['"label"'])
    assert [one["tensor_op_name"] for one in image["operations"]] == ["Rescale", "HwcToChw"]
    assert json.loads(image["operations"][0]["tensor_op_params"])["rescale"] == 1 / 16
    assert (shuffle["op_type"], shuffle["buffer_size"]) == ("Shuffle", 64)
    (source,) = shuffle["children"]
    assert "Generator" in source["op_type"]


def test_every_field_of_the_lineage(ran: Ran) -> None:
    """Training, evaluation and the user's own facts."""
    lineage = ran.run().lineage
    losses, metrics = ran.expected["losses"], ran.expected["metrics"]
    saved = list((ran.directory / "saved").glob("*.ckpt"))
    assert len(saved) == 1
    assert lineage["train"] == {
        "hyper_parameters": {
            "optimizer": "Momentum", "learning_rate": float(np.float32(0.1)),
            "loss_function": "SoftmaxCrossEntropyWithLogits", "epoch": 4, "parallel_mode": "stand_alone",
            "device_num": 1, "batch_size": 32,
        },
        "algorithm": {"network": "Net", "loss": float(np.float32(losses[-1])), "last_learning_rate": LAST_RATE},
        "train_dataset": {"train_dataset_size": 288},
        "model": {"path": {"ckpt": str(saved[0].resolve())}, "size": saved[0].stat().st_size},
    }  # fmt: skip
    assert lineage["eval"] == {
        "metric": {"accuracy": metrics[-1, 1]},
        "valid_dataset": {"valid_dataset_size": 96},
    }
    assert lineage["custom"] == {"data": "digits", "scale": 0.0625, "pictures": 288, "large": float(2**40)}


def test_the_landscapes_weights_are_those_at_the_end_of_each_epoch(ran: Ran) -> None:
    """Checkpoints of epochs 1 to 3 hold the network's parameters after 9, 18 and 27 steps."""
    directory = ran.directory / "run" / "ckpt_dir"
    metadata = json.loads((directory / "train_metadata.json").read_text())
    assert metadata["model_params_file_map"] == {str(epoch): f"Net_{epoch}_epoch.ckpt" for epoch in (1, 2, 3)}
    assert (metadata["step_per_epoch"], metadata["unit"], metadata["epoch_group"]) == (9, "epoch", {"0": [1, 2, 3]})
    for epoch in (1, 2, 3):
        found: dict[str, Any] = ms.load_checkpoint(str(directory / f"Net_{epoch}_epoch.ckpt"))
        assert sorted(found) == ["conv.weight", "dense.bias", "dense.weight"]
        for name, parameter in found.items():
            expected = ran.expected[f"weights/{name}"][epoch * STEPS_PER_EPOCH - 1]
            np.testing.assert_array_equal(parameter.asnumpy(), expected)


def test_an_evaluation_alone_is_a_run(ran: Ran) -> None:
    """`model.eval` with a collector of its own: the metric at step 0 and the lineage of the evaluation."""
    run, accuracy = ran.run("evaluation"), float(ran.expected["accuracy"])
    assert run.tags() == {"scalar": ["eval/accuracy/auto"]}
    assert next(iter(run.scalars("eval/accuracy/auto")))[::2] == (0, accuracy)
    assert run.lineage == {
        "eval": {"metric": {"accuracy": accuracy}, "valid_dataset": {"valid_dataset_size": 96}},
    }
    assert accuracy == ran.expected["metrics"][-1, 1]


def test_recording_does_not_change_training(ran: Ran) -> None:
    """With the same seed, every weight is the same to the last bit with and without a collector."""
    expected = ran.expected
    names = [name.removeprefix("with/") for name in expected if name.startswith("with/")]
    assert len(names) == 3
    for name in names:
        assert expected[f"with/{name}"].tobytes() == expected[f"without/{name}"].tobytes()
        assert not math.isnan(expected[f"with/{name}"].sum())
