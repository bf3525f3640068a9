"""MindSpore's own landscape on the same checkpoints, and MindInsight's reader on ours."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument import SummaryLandscape, read
from tests.integration.test_oracle import PYTHON, READER, ask
from tests.landscape import build
from tests.landscape.test_weights import collected

TRAIN = """
import sys
import mindspore as ms
from mindspore import SummaryCollector, SummaryLandscape, nn
from mindspore.train import Model
from tests.landscape import build

def main():
    ms.set_context(mode=ms.GRAPH_MODE)
    directory = sys.argv[1] if len(sys.argv) > 1 else {directory!r}
    ms.set_seed(3)
    network = build.Small()
    for parameter in network.get_parameters():
        parameter.requires_grad = parameter.name not in {frozen!r}
    model = Model(network, build.cross_entropy(), nn.Momentum(network.trainable_params(), 0.3, 0.9))
    collector = SummaryCollector(directory, collect_specified_data={{"collect_landscape": {{
        "landscape_size": 4, "unit": "step", "create_landscape": {{"train": True, "result": False}},
        "num_samples": 40, "intervals": [[2, 4, 6, 8, 10]]}}}}, keep_default_action=False)
    model.train(2, build.small_dataset(), callbacks=[collector], dataset_sink_mode=False)
    {draw}

if __name__ == "__main__":
    main()
"""
#: Both compute losses in float32, of which this is 8 units in the last place.
TOLERANCE = 1e-6
DRAW = "SummaryLandscape(directory).gen_landscapes_with_multi_process(build.loss_callback, device_ids=[0])"


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) >= "2.0.0", reason="MindSpore's own fails on NumPy 2")
@pytest.mark.parametrize("frozen", [[], ["fc1.weight"], ["fc1.bias", "fc2.bias"]], ids=str)
def test_mindspores_own_landscape_agrees(tmp_path: Path, run_python: Callable[..., str], frozen: list[str]) -> None:
    """From the directory of its own collector: the same grid, path and losses, but for signs and rounding."""
    run_python(TRAIN.format(directory=str(tmp_path / "run"), draw=DRAW, frozen=frozen))
    (theirs,) = read(tmp_path / "run").landscapes
    ms.set_context(mode=ms.GRAPH_MODE)
    landscape = SummaryLandscape(tmp_path / "run")
    (ours,) = landscape.gen_landscapes_with_multi_process(build.loss_callback, None, [0], tmp_path / "ours")
    assert ours.tag == theirs.tag == "landscape_[2, 10]"
    assert ours.numbers.tolist() == theirs.numbers.tolist() == [2, 4, 6, 8, 10]
    common = ("decomposition", "unit", "step_per_epoch")
    assert [ours.metadata[name] for name in common] == [theirs.metadata[name] for name in common] == ["PCA", "step", 5]
    z, path = ours.z, ours.path.copy()
    axes = [ours.x, ours.y]
    for axis in (0, 1):
        if path[:, axis] @ theirs.path[:, axis] < 0:
            path[:, axis] *= -1
            axes[axis] = -axes[axis][::-1]
            z = np.flip(z, 1 - axis)
    for mine, other in ((axes[0], theirs.x), (axes[1], theirs.y)):
        np.testing.assert_allclose(mine, other, rtol=0, atol=TOLERANCE * np.ptp(other))
    np.testing.assert_allclose(path, theirs.path, rtol=0, atol=TOLERANCE * np.ptp(theirs.path))
    np.testing.assert_allclose(z, theirs.z, rtol=TOLERANCE)
    np.testing.assert_allclose(ours.path_loss, theirs.path_loss, rtol=TOLERANCE)
    np.testing.assert_allclose(ours.convergence, theirs.convergence, rtol=TOLERANCE)


def test_a_directory_of_mindspores_collector_is_taken(tmp_path: Path, run_python: Callable[..., str]) -> None:
    """Moved elsewhere as well; its checkpoints are drawn with any axes."""
    run_python(TRAIN.format(directory=str(tmp_path / "run"), draw="pass", frozen=[]))
    (tmp_path / "run").rename(tmp_path / "moved")
    ms.set_context(mode=ms.GRAPH_MODE)
    found = SummaryLandscape(tmp_path / "moved").compute(build.small_callback, size=3)
    assert (found.numbers.tolist(), found.metadata["samples"]) == ([2, 4, 6, 8, 10], 40)
    assert found.true_loss[0] > found.true_loss[-1]


def digest(numbers: Any) -> str:
    return hashlib.sha256(np.asarray(numbers).astype("<f4").tobytes()).hexdigest()


@pytest.mark.skipif(not PYTHON.exists(), reason=f"MindInsight's Python is not there: {PYTHON}")
@pytest.mark.skipif(not READER.exists(), reason=f"the script that drives MindInsight is not there: {READER}")
def test_mindinsight_shows_our_landscapes(tmp_path: Path) -> None:
    """Path, surface, convergence point and metadata of the interval and of the result, and a line."""
    ms.set_context(mode=ms.GRAPH_MODE)
    landscape = SummaryLandscape(collected(tmp_path / "run"))
    made = landscape.gen_landscapes_with_multi_process(build.small_callback)
    made.append(landscape.compute_line(build.small_callback, size=5))
    seen = ask(tmp_path / "run", tmp_path / "seen.json")
    shown = {one["tag"]: one for one in seen["loader"]["landscapes"]}
    assert sorted(shown) == sorted(f"{one.tag}/loss_landscape" for one in made)
    assert [shown[f"{one.tag}/loss_landscape"]["kind"] for one in made] == ["interval", "final", "interval"]
    for one in made:
        found = shown[f"{one.tag}/loss_landscape"]
        for axis, values in (("x", one.x), ("y", one.y), ("z", one.z)):
            assert found["landscape"][axis]["dims"] == list(values.shape)
            assert found["landscape"][axis]["sha256_f32le"] == digest(values)
        for axis, value in zip("xyz", one.convergence, strict=True):
            assert found["convergence_point"][axis]["sha256_f32le"] == digest([value])
        if one.numbers.size:
            assert found["intervals"] == one.numbers.tolist()
            for axis, values in (("x", one.path[:, 0]), ("y", one.path[:, 1]), ("z", one.path_loss)):
                assert found["loss_path"][axis]["sha256_f32le"] == digest(values)
        common = ("decomposition", "unit", "step_per_epoch")
        assert found["metadata"] == {name: one.metadata[name] for name in common}
