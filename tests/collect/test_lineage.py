"""Lineage: custom values and the tuner's variable, dataset graphs and paths, and the last state of a training."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.dataset import transforms, vision
from mindspore.train import ModelCheckpoint

from instrument import SummaryCollector, SummaryRecord, read
from instrument.codec.lineage import to_dict
from instrument.collect import lineage, sources
from instrument.values import Lineage, MessageItem
from tests.collect.fake import Loop, parameters

Said = Callable[..., list[str]]
VARIABLE = "MINDINSIGHT_HYPER_CONFIG"


def collected(directory: Path, custom: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The lineage of a training of two steps."""
    Loop(SummaryCollector(directory, num_process=0, custom_lineage_data=custom), **changes).train([1, 2])
    return read(directory).lineage


def as_dict(item: MessageItem) -> dict[str, Any]:
    return to_dict(Lineage(item.kind, item.data))


# ---------------------------------------------------------------- custom lineage


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, 5), (-(2**31), -(2**31)), (2**31 - 1, 2**31 - 1), (2**31, float(2**31)), (-(2**31) - 1, -(2.0**31) - 1),
        (2**53, 2.0**53), (2**53 + 1, str(2**53 + 1)), (2**60, 2.0**60), (2**70 + 1, str(2**70 + 1)),
        (10**400, "1" + "0" * 400), (True, 1), (0.1, 0.1), (math.inf, math.inf), (1e300, 1e300), ("text", "text"),
        ("", ""), ("中文", "中文"), (np.float32(0.5), 0.5), (np.int64(7), 7),
    ],
)  # fmt: skip
def test_custom_values_of_any_size(tmp_path: Path, given: Any, expected: Any) -> None:
    """An int that the file's int32 cannot hold is kept as a double where that is exact, else as text."""
    found = collected(tmp_path, {"value": given})["custom"]
    assert found == {"value": expected}
    assert type(found["value"]) is type(expected)


def test_custom_values_that_are_not_finite(tmp_path: Path) -> None:
    """NaN in the user's own lineage is kept as NaN."""
    assert math.isnan(collected(tmp_path, {"value": math.nan})["custom"]["value"])


def test_the_tuners_variable_is_custom_lineage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MINDINSIGHT_HYPER_CONFIG adds its values; where both name a value, the user's own counts."""
    config = {"custom_lineage_data": {"lr": 0.5, "layers": 3, "name": "tuner"}, "params": {"lr": 0.5}}
    monkeypatch.setenv(VARIABLE, json.dumps(config))
    assert collected(tmp_path, {"name": "mine"})["custom"] == {"lr": 0.5, "layers": 3, "name": "mine"}


def test_a_wrong_entry_of_the_variable_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """That one alone, with a warning each; what a user gives in the same form is refused."""
    config = {"custom_lineage_data": {"lr": 0.5, "list": [1], "key\udcff": 1, "text": "\ud800", "layers": 3}}
    monkeypatch.setenv(VARIABLE, json.dumps(config))
    assert collected(tmp_path)["custom"] == {"lr": 0.5, "layers": 3}
    assert len(said(f"One entry of {VARIABLE} is not used: ")) == 3


@pytest.mark.parametrize("custom", [{"key\udcff": 1}, {"text": "\udcff"}, {"\ud800": "x", "good": 1}])
def test_custom_lineage_that_no_file_can_hold_is_refused(tmp_path: Path, custom: dict[str, Any]) -> None:
    """At construction, and by `add_value`, with the entry's name; not at the end of a training."""
    with pytest.raises(ValueError, match=r"custom_lineage_data\['.*'\] holds '.*', which is no valid Unicode"):
        SummaryCollector(tmp_path, custom_lineage_data=custom)
    with SummaryRecord(tmp_path, num_process=0) as record, pytest.raises(ValueError, match="is no valid Unicode"):
        record.add_value("custom_lineage_data", "mine", custom)


@pytest.mark.parametrize("dialect", ["mindspore", "tensorboard", "both"])
def test_an_odd_metric_is_left_out_alone(tmp_path: Path, dialect: str, said: Said) -> None:
    """A name that is no Unicode, a value that is no number: each is told, and all other metrics are recorded."""
    metrics = {
        "m\udcff": 1.0,
        "n\ud800": {"inner": 2.0},
        "accuracy": 0.5,
        3: 0.25,
        "": 0.125,
        "matrix": np.ones((2, 2)),
        "none": None,
    }
    Loop(SummaryCollector(tmp_path, num_process=0, dialect=dialect)).evaluate(metrics)
    run = read(tmp_path)
    found = {tag: run.scalars(tag).value.tolist() for tag in run.tags()["scalar"] if tag.startswith("eval/")}
    assert found == {"eval/accuracy/auto": [0.5], "eval/3/auto": [0.25], "eval//auto": [0.125]}
    assert run.damage == []
    assert run.gaps == []
    for name in ("'m\\udcff'", "'matrix'", "'none'"):
        assert len(said(f"does not collect the metric {name} as a scalar")) == 1
    if dialect != "tensorboard":
        assert run.lineage["eval"]["metric"]["accuracy"] == 0.5


def test_a_dataset_with_odd_names_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is not UTF-8, which Python has with surrogates, is escaped; numbers beyond float64 are texts."""
    tree = {"dataset_dir": "/data/\udcff", "k\udcff": 1, "size": 10**400, "operations": [{"sizes": [10**400, 1.5]}]}
    monkeypatch.setattr("mindspore.dataset.serialize", lambda _: tree)
    data = as_dict(lineage.dataset_graph(None))
    assert data == {
        "dataset_dir": "/data/\\udcff", "k\\udcff": 1, "size": str(10**400),
        "operations": [{"sizes": [str(10**400), "1.5"]}],
    }  # fmt: skip


@pytest.mark.parametrize("text", ["{}", '{"params": {"lr": 1}}', "[]", '"text"', "3", '{"custom_lineage_data": null}'])
def test_a_variable_without_custom_lineage_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said, text: str
) -> None:
    """A configuration that names no custom lineage adds nothing and is not worth a word."""
    monkeypatch.setenv(VARIABLE, text)
    assert "custom" not in collected(tmp_path)
    assert said(VARIABLE) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not used: Expecting property name"), ("lr=0.1", "is not used: Expecting value"),
        ('{"custom_lineage_data": [1]}', "custom_lineage_data is a list; expected a dictionary"),
        ('{"custom_lineage_data": {"a": [1]}}', "['a'] is a list; expected str, int or float"),
        ('{"custom_lineage_data": {"a": null}}', "['a'] is a NoneType; expected str, int or float"),
        (" " * 100_001, "has 100001 characters, at most 100000 are read"),
    ],
    ids=["cut off", "no JSON", "a list", "a list inside", "null inside", "too long"],
)  # fmt: skip
def test_a_wrong_variable_is_said_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said, text: str, message: str
) -> None:
    """Whoever starts the training did not write the variable: a wrong one is logged, the user's own lineage stays."""
    monkeypatch.setenv(VARIABLE, text)
    assert collected(tmp_path, {"a": 1})["custom"] == {"a": 1}
    (line,) = said(VARIABLE)
    assert message in line


# ---------------------------------------------------------------- train and evaluation


def test_every_field_of_a_training(tmp_path: Path) -> None:
    """Optimiser, rate, loss, epochs, device, batch, dataset, network and model: each field that the schema has."""
    found = collected(tmp_path, epoch_num=3, device_number=2, parallel_mode="data_parallel", net_outputs=ms.Tensor(0.5))
    assert found["train"] == {
        "hyper_parameters": {
            "optimizer": "Momentum", "learning_rate": 0.5, "loss_function": "MSELoss", "epoch": 3,
            "parallel_mode": "data_parallel", "device_num": 2, "batch_size": 2,
        },
        "algorithm": {"network": "Dense", "loss": 0.5, "last_learning_rate": 0.5},
        "train_dataset": {"train_dataset_size": 10},
        "model": {"path": {"ckpt": None}, "size": 0},
    }  # fmt: skip


def test_a_network_with_its_own_loss(tmp_path: Path) -> None:
    """Without loss_fn the loss function is the one inside the network; without any there is none."""
    network = nn.WithLossCell(nn.Dense(4, 1), nn.L1Loss())
    assert collected(tmp_path / "a", loss_fn=None, train_network=network)["train"]["hyper_parameters"][
        "loss_function"
    ] == ("L1Loss")
    assert "loss_function" not in collected(tmp_path / "b", loss_fn=None)["train"]["hyper_parameters"]


def test_without_optimiser_and_loss_the_rest_is_there(tmp_path: Path) -> None:
    """What is not known is left out; the other fields are recorded."""
    found = collected(tmp_path, optimizer=None, net_outputs=None)["train"]
    assert "optimizer" not in found["hyper_parameters"]
    assert "learning_rate" not in found["hyper_parameters"]
    assert found["algorithm"] == {"network": "Dense"}
    assert found["hyper_parameters"]["batch_size"] == 2


def test_the_last_checkpoint_is_named(tmp_path: Path) -> None:
    """The newest file of a ModelCheckpoint among the callbacks, with its size."""
    path = tmp_path / "net-1_5.ckpt"
    path.write_bytes(b"x" * 321)
    saver = ModelCheckpoint("net", str(tmp_path))
    saver._latest_ckpt_file_name = str(path)
    item = lineage.train(_Params(list_callback=[saver]), 0.5, None)
    assert as_dict(item)["model"] == {"path": {"ckpt": str(path)}, "size": 321}


class _Params(dict):  # type: ignore[type-arg]
    def __init__(self, **changes: Any) -> None:
        super().__init__(parameters(**changes))

    __getattr__ = dict.__getitem__


def test_numbers_beyond_the_schema_are_clipped() -> None:
    """A dataset of more than 2**31 rows does not stop the lineage."""

    class Endless:
        def get_batch_size(self) -> int:
            return 2

        def get_dataset_size(self) -> int:
            return 2**40

    item = lineage.train(_Params(train_dataset=Endless()), None, None)
    assert as_dict(item)["train_dataset"] == {"train_dataset_size": 2**31 - 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 0.5), (np.float32(0.5), 0.5), (ms.Tensor(0.5), 0.5), (np.eye(2), [[1.0, 0.0], [0.0, 1.0]]), (None, None),
        ({"a": (1, np.int64(2))}, {"a": [1, 2]}), ("text", "text"), (True, True), (1j, "1j"),
        (np.array([1j]), "[0.+1.j]"),
        ({1: 2}, {"1": 2}), (ms.Tensor([1, 2]), [1, 2]),
    ],
)  # fmt: skip
def test_metrics_of_any_type_are_json(value: Any, expected: Any) -> None:
    """The evaluation's metrics become what JSON has; what it has not becomes text."""
    assert json.loads(json.dumps(lineage.plain(value))) == expected


# ---------------------------------------------------------------- dataset graphs


def rows(count: int = 12) -> ds.Dataset:
    pictures = np.zeros((count, 8, 8, 3), np.uint8)
    return ds.NumpySlicesDataset((pictures, np.arange(count, dtype=np.int32)), ["image", "label"], shuffle=False)


def test_a_pipeline_of_shuffle_map_and_batch() -> None:
    """Operators from the last to the source, with their parameters and their operations' own."""
    pipeline = (
        rows()
        .shuffle(6)
        .map([vision.Resize((4, 6)), vision.Normalize([0.5, 0.25, 0.5], [1.0, 2.0, 3.0]), vision.HWC2CHW()], ["image"])
        .map(transforms.TypeCast(ms.int32), ["label"])
        .batch(3, drop_remainder=True)
    )
    batch = as_dict(lineage.dataset_graph(pipeline))
    assert (batch["op_type"], batch["batch_size"], batch["drop_remainder"]) == ("Batch", 3, True)
    (cast,) = batch["children"]
    assert (cast["op_type"], cast["input_columns"]) == ("Map", ['"label"'])
    (image,) = cast["children"]
    (shuffle,) = image["children"]
    assert (shuffle["op_type"], shuffle["buffer_size"]) == ("Shuffle", 6)
    (source,) = shuffle["children"]
    assert "children" not in source
    assert [one["tensor_op_name"] for one in image["operations"]] == ["Resize", "Normalize", "HwcToChw"]
    resize, normalize = (json.loads(one["tensor_op_params"]) for one in image["operations"][:2])
    assert resize["size"] == [4, 6]
    assert (normalize["mean"], normalize["std"]) == ([0.5, 0.25, 0.5], [1.0, 2.0, 3.0])


def test_a_source_directory_is_named(tmp_path: Path) -> None:
    """An image folder's path is in the dataset graph and in the lineage, below any transform."""
    from PIL import Image

    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(3):
            Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(tmp_path / label / f"{number}.png")
    pipeline = ds.ImageFolderDataset(str(tmp_path), decode=True, shuffle=False).batch(2)
    found = as_dict(lineage.dataset_graph(pipeline))
    (source,) = found["children"]
    assert source["op_type"] == "ImageFolderDataset"
    assert source["dataset_dir"] == str(tmp_path)
    train = as_dict(lineage.train(_Params(train_dataset=pipeline), None, None))
    assert train["train_dataset"] == {"train_dataset_path": str(tmp_path), "train_dataset_size": 6}
    assert train["hyper_parameters"]["batch_size"] == 2


def test_a_source_file_names_its_directory(tmp_path: Path) -> None:
    """A dataset of files is known by the directory of the first."""
    (tmp_path / "data.csv").write_text("1,2\n3,4\n")
    pipeline = ds.CSVDataset(str(tmp_path / "data.csv"), column_defaults=[0.0, 0.0], column_names=["a", "b"])
    train = as_dict(lineage.train(_Params(train_dataset=pipeline), None, None))
    assert train["train_dataset"] == {"train_dataset_path": str(tmp_path), "train_dataset_size": 2}


def test_a_dataset_that_mindspore_cannot_describe_is_uncollectable() -> None:
    """What MindSpore's serialiser raises comes as one reason in words."""
    with pytest.raises(sources.Uncollectable, match="MindSpore cannot describe the dataset"):
        lineage.dataset_graph(object())


def test_python_functions_in_a_pipeline_are_described() -> None:
    """Lambdas and generators have their place in the pipeline."""
    pipeline = ds.GeneratorDataset(lambda: iter([(np.zeros(2),)] * 4), ["x"]).map(lambda x: x + 1, ["x"]).batch(2)
    found = as_dict(lineage.dataset_graph(pipeline))
    assert (found["op_type"], found["children"][0]["op_type"]) == ("Batch", "Map")
    assert found["children"][0]["children"][0]["op_type"] == "GeneratorDataset"
