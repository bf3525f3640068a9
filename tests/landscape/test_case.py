"""The reference case: every group of it, within its tolerances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument.landscape import hessian
from instrument.landscape.directions import Layout
from instrument.landscape.forward import Form, Forward
from instrument.landscape.landscape import SummaryLandscape
from instrument.landscape.model_parts import parts_of, take_samples
from instrument.values import LossSurface
from tests.landscape import build

pytestmark = pytest.mark.skipif(not build.CASE.exists(), reason=f"the reference case is not there: {build.CASE}")


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    with np.load(build.CASE / "expected.npz") as store:
        return {name: store[name] for name in store.files}


@pytest.fixture(autouse=True)
def _graph() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)


def check_grid(found: LossSurface, expected: dict[str, Any], group: str) -> None:
    want = {name.split("/", 1)[1]: value for name, value in expected.items() if name.startswith(group + "/")}
    for axis, values in (("x", found.x), ("y", found.y)):
        width = np.ptp(want[f"grid_{axis}"])
        np.testing.assert_allclose(values, want[f"grid_{axis}"], rtol=0, atol=build.COORDINATE * width)
        if f"path_{axis}" in want:
            path = found.path[:, "xy".index(axis)]
            np.testing.assert_allclose(path, want[f"path_{axis}"], rtol=0, atol=build.COORDINATE * width)
    np.testing.assert_allclose(found.z, want["grid_z_all"], rtol=build.LOSS)


@pytest.mark.parametrize("axes", ["mindspore", "anchored", "centred"])
def test_planes_of_the_path(tmp_path: Path, expected: dict[str, Any], axes: str) -> None:
    """Grid, path, losses, true losses and shares of the three principal planes are those of the case."""
    found = SummaryLandscape(tmp_path).compute(
        build.case_callback, axes=axes, size=11, checkpoints=build.case_checkpoints(), num_samples=256
    )
    check_grid(found, expected, axes)
    want = {
        name: expected[f"{axes}/{name}"] for name in ("path_z_all", "true_loss_all", "unexplained", "explained_ratio")
    }
    np.testing.assert_allclose(found.path_loss, want["path_z_all"], rtol=build.LOSS)
    np.testing.assert_allclose(found.true_loss, want["true_loss_all"], rtol=build.LOSS)
    np.testing.assert_allclose(found.unexplained, want["unexplained"], rtol=0, atol=build.RATIO)
    count = len(found.explained)
    np.testing.assert_allclose(found.explained, want["explained_ratio"][:count], rtol=0, atol=build.RATIO)
    assert found.numbers.tolist() == list(build.NUMBERS)
    np.testing.assert_allclose(found.metadata["direction_cosine"], expected[f"{axes}/direction_cosine"], atol=1e-6)


@pytest.mark.parametrize("how", ["filter", "layer"])
def test_random_planes(tmp_path: Path, expected: dict[str, Any], how: str) -> None:
    """The stored random directions, normalised by filter and by layer, give the case's losses."""
    with np.load(build.CASE / "random_directions.npz") as store:
        axes = [
            {name.split("/")[1]: store[name] for name in store.files if name.startswith(which)}
            for which in ("first/", "second/")
        ]
    found = SummaryLandscape(tmp_path).compute(
        build.case_callback, axes=axes, normalize=how, size=11, extent=1.0, checkpoints=build.case_checkpoints(),
        num_samples=256,
    )  # fmt: skip
    check_grid(found, expected, f"random_{how}")


def test_the_line(tmp_path: Path, expected: dict[str, Any]) -> None:
    """The loss along the line from the first to the last checkpoint, and beyond both."""
    alpha = expected["line/alpha"]
    found = SummaryLandscape(tmp_path).compute_line(
        build.case_callback, 4, 70, size=len(alpha), checkpoints=build.case_checkpoints(), num_samples=256
    )
    np.testing.assert_allclose(found.x, alpha, rtol=0, atol=1e-12)
    (loss,) = [value for name, value in expected.items() if name.startswith("line/") and "alpha" not in name]
    np.testing.assert_allclose(found.z[0], loss, rtol=build.LOSS)
    assert found.path.tolist() == [[0, 0], [1, 0]]
    assert found.convergence.tolist() == [1.0, 0.0, found.true_loss[-1]]
    np.testing.assert_allclose(found.true_loss, expected["anchored/true_loss_all"][[0, -1]], rtol=build.LOSS)


def test_eigenvectors_of_the_hessian(expected: dict[str, Any]) -> None:
    """The five largest eigenvalues within a thousandth, and the vectors that are known up to the sign."""
    parts = parts_of(build.case_callback())
    with np.load(build.CASE / "checkpoint_70.npz") as store:
        origin = {name: store[name] for name in store.files}
    layout = Layout(tuple(origin), tuple(values.shape for values in origin.values()))
    with Forward(parts, take_samples(parts.dataset, 256), {}) as forward:
        forward.use(Form(True, True, False))
        found = [hessian.eigenvectors(forward, origin, layout, seed) for seed in range(5)]
        again = hessian.eigenvectors(forward, origin, layout, 0)
    for values, vectors in found:
        np.testing.assert_allclose(values, expected["hessian/top_eigenvalues"], rtol=1e-3)
        for vector, wanted in zip(vectors[:2], expected["hessian/top_vectors"], strict=True):
            assert abs(vector @ wanted) > 0.999
    np.testing.assert_array_equal(again[1], found[0][1])  # else an interrupted landscape would begin anew


def test_the_hessian(tmp_path: Path, expected: dict[str, Any]) -> None:
    """Eigenvalues within a thousandth, and a plane along the vectors of the two largest."""
    landscape = SummaryLandscape(tmp_path)
    found = landscape.compute(
        build.case_callback, axes="hessian", size=3, checkpoints=build.case_checkpoints(), num_samples=256
    )
    np.testing.assert_allclose(found.metadata["eigenvalues"], expected["hessian/top_eigenvalues"], rtol=1e-3)
    given = landscape.compute(
        build.case_callback, axes=list(expected["hessian/top_vectors"]), normalize=None, size=3, extent=1.0,
        checkpoints=build.case_checkpoints(), num_samples=256,
    )  # fmt: skip
    np.testing.assert_allclose(found.z, given.z, rtol=5e-3)  # far from the origin, along vectors within a cosine
