"""Checkpoints: where they are looked for, and what is said of those that are missing, damaged or of another network."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument.landscape import weights
from instrument.landscape.weights import BadCheckpoint, Source
from tests.landscape import build


def collected(directory: Path, absolute: bool = False) -> Path:
    """What a collector leaves, MindSpore's with absolute paths."""
    folder = directory / "ckpt_dir"
    folder.mkdir(parents=True)
    files = {}
    for number, tensors in build.small_checkpoints(4).items():
        path = folder / f"Small_{number}_step.ckpt"
        ms.save_checkpoint([{"name": name, "data": ms.Tensor(array)} for name, array in tensors.items()], str(path))
        files[str(number)] = str(path) if absolute else path.name
    metadata = {
        "epoch_group": {"0": [1, 2, 3, 4]}, "model_params_file_map": files, "step_per_epoch": 7, "unit": "step",
        "num_samples": 40, "landscape_size": 3, "create_landscape": {"train": True, "result": True},
    }  # fmt: skip
    (folder / "train_metadata.json").write_text(json.dumps(metadata))
    return directory


@pytest.mark.parametrize("absolute", [False, True], ids=["ours", "MindSpore's"])
def test_a_directory_may_be_moved(tmp_path: Path, absolute: bool) -> None:
    """Checkpoints are found beside the metadata, whatever it says, and those of the old place are not taken."""
    old = collected(tmp_path / "old", absolute)
    shutil.copytree(old, tmp_path / "new")
    for path in (old / "ckpt_dir").glob("*.ckpt"):
        path.chmod(0o600)
        path.write_bytes(b"another run")
    source = weights.find(str(tmp_path / "new"))
    assert (source.unit, source.steps_per_epoch, source.size, source.samples) == ("step", 7, 3, 40)
    found = weights.load(source, [4, 1, 2, 2])
    assert [one.number for one in found] == [1, 2, 4]
    for name, values in build.small_checkpoints(4)[2].items():
        np.testing.assert_array_equal(found[1].tensors[name], values)


def test_without_metadata_it_says_why(tmp_path: Path) -> None:
    """A directory that is not there, one that kept no weights, and one whose training did not end."""
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist; the summary_dir"):
        weights.find(str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"no weights were kept in this run.*collect_landscape"):
        weights.find(str(tmp_path))
    collected(tmp_path / "run")
    os.remove(tmp_path / "run" / "ckpt_dir" / "train_metadata.json")
    with pytest.raises(
        FileNotFoundError, match=r"4 checkpoints lie beside it: the training that wrote them did not end"
    ):
        weights.find(str(tmp_path / "run"))


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"model_params_file_map": 3}', "\x00\x01"])
def test_damaged_metadata_is_said(tmp_path: Path, content: str) -> None:
    """Whatever stands there, the file is named."""
    (tmp_path / "ckpt_dir").mkdir()
    (tmp_path / "ckpt_dir" / "train_metadata.json").write_text(content)
    with pytest.raises(BadCheckpoint, match=r"train_metadata.json is not what the collector writes"):
        weights.find(str(tmp_path))


def test_a_missing_or_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    """By its number and file: gone, cut off, no checkpoint at all; and a number that training never reached."""
    source = weights.find(str(collected(tmp_path)))
    path = str(source.files[2])
    os.chmod(path, 0o600)
    whole = Path(path).read_bytes()
    for content in (whole[: len(whole) // 2], b"nonsense", b""):
        Path(path).write_bytes(content)
        with pytest.raises(BadCheckpoint, match=r"The checkpoint of step 2 (cannot be read|holds no parameter)"):
            weights.load(source, [1, 2, 3])
    os.remove(path)
    with pytest.raises(BadCheckpoint, match=r"The checkpoint of step 2 is gone: .*Small_2_step.ckpt does not exist"):
        weights.load(source, [1, 2, 3])
    with pytest.raises(BadCheckpoint, match=r"no checkpoint for step 9, 11: .*There are those of step 1, 2, 3, 4"):
        weights.load(source, [1, 9, 11])


def test_numbers_that_are_not_finite_are_named() -> None:
    """The checkpoint, and the parameter that holds them."""
    tensors: Any = build.small_checkpoints(3)
    tensors[2]["fc2.bias"][1] = np.nan
    with pytest.raises(BadCheckpoint, match=r"step 2 holds NaN or infinity in fc2.bias: training had diverged"):
        weights.load(Source(tensors), [1, 2, 3])


def test_checkpoints_of_two_networks_are_refused() -> None:
    """Other names, or another shape: they are said."""
    tensors: Any = build.small_checkpoints(3)
    tensors[1]["fc1.weight"] = np.zeros((6, 5), np.float32)
    with pytest.raises(BadCheckpoint, match=r"step 1 and 3 differ in fc1.weight"):
        weights.load(Source(tensors), [1, 2, 3])


def test_what_is_no_checkpoint_is_refused() -> None:
    """A dictionary from number to path or arrays is expected, and said."""
    for wrong in (None, [], {}, {"1": "a"}, {1: 3}, {True: "a"}):
        with pytest.raises(TypeError, match="expected a dictionary from step or epoch"):
            weights.given(wrong)


def test_repeated_weights_are_left_out() -> None:
    """Those of the same weights as a later one; the last always stays."""
    tensors: Any = build.small_checkpoints(4)
    tensors[2] = tensors[1]
    tensors[3] = {name: values.copy() for name, values in tensors[4].items()}
    path = weights.load(Source(tensors), [1, 2, 3, 4])
    kept, dropped = weights.without_repeated(path, list(tensors[1]))
    assert ([one.number for one in kept], dropped) == ([2, 4], [1, 3])


def test_halves_are_read(tmp_path: Path) -> None:
    """float16 and bfloat16 parameters of a .ckpt."""
    values = np.array([1.5, -2.0, 0.25], np.float32)
    tensors = [
        {"name": "a", "data": ms.Tensor(values, ms.float16)}, {"name": "b", "data": ms.Tensor(values, ms.bfloat16)},
    ]  # fmt: skip
    ms.save_checkpoint(tensors, str(tmp_path / "half.ckpt"))
    found = weights.read(str(tmp_path / "half.ckpt"), 1, "step")
    assert found["a"].dtype == np.float16
    for name in "ab":
        np.testing.assert_array_equal(found[name].astype(np.float32), values)
