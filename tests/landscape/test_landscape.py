"""Whole landscapes of a small network: every value against NumPy, what is refused, what is resumed, what is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Model

from instrument import SummaryLandscape, read
from instrument.landscape import checkpoint_store, dispatch
from instrument.landscape.directions import NoPlane
from instrument.landscape.weights import BadCheckpoint
from instrument.values import LossSurface
from tests.landscape import build
from tests.landscape.test_weights import collected

Said = Any


@pytest.fixture(autouse=True)
def _graph() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)


def draw(directory: Path, checkpoints: Any = None, callback: Any = build.small_callback, **options: Any) -> LossSurface:
    chosen = {"size": 5, "num_samples": 40, **options}
    return SummaryLandscape(directory).compute(callback, checkpoints=checkpoints or build.small_checkpoints(), **chosen)


def same(one: LossSurface, other: LossSurface) -> bool:
    arrays = ("x", "y", "z", "numbers", "path", "path_loss", "true_loss", "unexplained", "explained", "convergence")
    return all(np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in arrays) and all(
        np.array_equal(one.metrics[name], other.metrics[name], equal_nan=True)
        for name in {**one.metrics, **other.metrics}
    )


def test_every_value_is_the_loss_of_its_weights(tmp_path: Path) -> None:
    """Grid, projected path, checkpoints and the origin, each against NumPy in float64."""
    path: Any = build.small_checkpoints()
    first, second = (
        {name: np.random.default_rng(seed).standard_normal(values.shape) for name, values in path[5].items()}
        for seed in (1, 2)
    )
    found = draw(tmp_path, axes=[first, second], normalize=None, extent=0.5, metrics=["accuracy"])

    def at(x: float, y: float) -> float:
        return build.small_loss({name: path[5][name] + x * first[name] + y * second[name] for name in first})

    expected = [[at(x, y) for x in found.x] for y in found.y]
    rtol = 1e-4  # of MindSpore's tanh
    np.testing.assert_allclose(found.z, expected, rtol)
    np.testing.assert_allclose(found.path_loss, [at(x, y) for x, y in found.path], rtol)
    np.testing.assert_allclose(found.true_loss, [build.small_loss(path[number]) for number in range(1, 6)], rtol)
    np.testing.assert_allclose(found.convergence, [0, 0, build.small_loss(path[5])], rtol)
    assert found.metrics["accuracy"].shape == (5, 5)
    assert set(np.unique(np.round(found.metrics["accuracy"] * 40, 6) % 1)) == {0.0}


@pytest.mark.parametrize("size", [4, 5])
def test_the_origin_is_the_checkpoint(tmp_path: Path, size: int) -> None:
    """With an even size too, where it is no point of the grid."""
    path: Any = build.small_checkpoints()
    found = draw(tmp_path, axes="random", size=size)
    assert found.convergence == pytest.approx([0, 0, build.small_loss(path[5])], rel=1e-4)
    assert (0.0 in found.x) == (size == 5)
    if size == 5:
        assert found.z[2, 2] == found.convergence[2]
    assert (found.path.shape, found.numbers.tolist()) == ((0, 2), [])


def test_what_is_written_is_what_is_given_back(tmp_path: Path) -> None:
    """The event has all arrays exactly, and the metadata."""
    found = draw(tmp_path, metrics=["accuracy"], size=9)
    (back,) = read(tmp_path).landscapes
    assert same(found, back)
    assert (back.tag, back.metadata) == ("landscape_[1, 5]_anchored", found.metadata)
    assert back.metadata["samples"] == 40
    assert back.metadata["parameters"] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert os.listdir(tmp_path) == [os.path.basename(read(tmp_path).files[0])]


def test_coarse_grids_are_there_while_it_runs(tmp_path: Path) -> None:
    """Each finished level is a whole landscape of its own, and values do not change from one to the next."""
    seen = []

    def look(done: int, total: int, left: float | None) -> None:
        seen.append([(one.z.shape, one.metadata["complete"], one) for one in read(tmp_path).landscapes])

    found = draw(tmp_path, size=17, progress=look)
    shapes = [one[0][0] for one in seen if one]
    assert shapes, "nothing could be read while it ran"
    assert set(shapes) <= {(5, 5), (9, 9)}
    early = next(one[0][2] for one in seen if one)
    assert not early.metadata["complete"]
    rows, columns = np.searchsorted(found.y, early.y), np.searchsorted(found.x, early.x)
    np.testing.assert_array_equal(early.z, found.z[np.ix_(rows, columns)])
    assert (found.z.shape, found.metadata["complete"]) == ((17, 17), True)


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", [1, 12, 40])
def test_an_interrupted_landscape_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The same values, bit for bit, and no finished point is computed again; in the end only the event is left."""
    whole = draw(tmp_path / "whole", size=9, metrics=["accuracy"])
    at_point, computed = dispatch.Evaluator.at_point, []

    def limited(self: Any, point: int) -> Any:
        if len(computed) == after:
            raise Stop
        computed.append(point)
        return at_point(self, point)

    with monkeypatch.context() as patch:
        patch.setattr(dispatch.Evaluator, "at_point", limited)
        with pytest.raises(Stop):
            draw(tmp_path / "run", size=9, metrics=["accuracy"])
    assert os.path.isdir(tmp_path / "run" / checkpoint_store.FOLDER)
    first = set(computed)
    after = 10**9
    computed.clear()
    with monkeypatch.context() as patch:
        patch.setattr(dispatch.Evaluator, "at_point", limited)
        found = draw(tmp_path / "run", size=9, metrics=["accuracy"])
    origin = 81
    assert (set(computed) & first) <= {origin}
    assert same(whole, found)
    assert not os.path.exists(tmp_path / "run" / checkpoint_store.FOLDER)
    assert same(found, read(tmp_path / "run").landscapes[-1])


def test_a_torn_record_is_cut_off(tmp_path: Path) -> None:
    """What a killed process left in the middle of a write, or a flipped bit, costs that point and those behind it."""
    with checkpoint_store.CheckpointStore(str(tmp_path), "plane", "a" * 64) as kept:
        for point in range(4):
            kept.add(point, np.array([point, 0.5]))
        path = os.path.join(kept.path, "points.log")
        whole = Path(path).read_bytes()
        Path(path).write_bytes(whole[:-3])
        assert sorted(kept.finished(2, 10)) == [0, 1, 2]
        kept.add(3, np.array([3, 0.5]))
        assert Path(path).read_bytes() == whole
        damaged = bytearray(whole)
        damaged[len(whole) // 4 + 12] ^= 1
        Path(path).write_bytes(damaged)
        assert sorted(kept.finished(2, 10)) == [0]


def test_what_release_0_1_0_began_is_resumed(tmp_path: Path) -> None:
    """Names of files and fields on disk stay; without this a release would silently compute hours of points again."""
    folder = tmp_path / "landscape_unfinished" / "a_plane-aaaaaaaaaaaa"
    folder.mkdir(parents=True)
    np.savez(folder / "samples.npz", **{"0/0": np.arange(4, dtype=np.float32), "0/1": np.zeros(4, np.int32)})
    digest = "aa77053da5774417c95acab34310bd743928e397f0a28876edb29b4db0ddf9b7"
    (folder / "state.json").write_text(
        '{"graph": true, "joined": true, "unfold": false, "early": false, "difference": 0.0, "metrics": ["accuracy"], '
        f'"versions": {{"python": "3.11"}}, "origin": [1.5, 0.5], "samples_digest": "{digest}"}}'
    )
    (folder / "points.log").write_bytes(bytes.fromhex("0700000000000000000000000000e03f000000000000f03fa53369f6"))
    with checkpoint_store.CheckpointStore(str(tmp_path), "a plane", "a" * 64) as store:
        state, samples = store.load() or (None, None)
        assert state is not None
        assert samples is not None
        assert (state.form.graph, state.form.unfold, state.origin) == (True, False, [1.5, 0.5])
        assert samples.count == 4
        assert {point: row.tolist() for point, row in store.finished(2, 10).items()} == {7: [0.5, 1.0]}


def test_two_processes_do_not_compute_the_same(tmp_path: Path) -> None:
    """The second is told."""
    with (
        checkpoint_store.CheckpointStore(str(tmp_path), "plane", "a" * 64),
        pytest.raises(checkpoint_store.AlreadyComputing, match="Another process computes plane"),
    ):
        checkpoint_store.CheckpointStore(str(tmp_path), "plane", "a" * 64)


def interrupted(directory: Path, monkeypatch: pytest.MonkeyPatch, callback: Any, **options: Any) -> None:
    at_point = dispatch.Evaluator.at_point
    count = iter(range(8))

    def limited(self: Any, point: int) -> Any:
        if next(count, None) is None:
            raise Stop
        return at_point(self, point)

    with monkeypatch.context() as patch:
        patch.setattr(dispatch.Evaluator, "at_point", limited)
        with pytest.raises(Stop):
            draw(directory, callback=callback, **options)


def test_a_dataset_that_shuffles_keeps_its_first_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All points see the same samples, those after an interruption too."""

    def shuffled() -> Any:
        model, network, _, metrics = build.small_callback()
        return model, network, build.small_dataset(shuffle=True), metrics

    interrupted(tmp_path, monkeypatch, shuffled)
    found = draw(tmp_path, callback=shuffled, num_samples=40)
    assert found.metadata["resumed"] > 0
    first = draw(tmp_path / "plain")
    np.testing.assert_allclose(found.z, first.z, rtol=1e-5)  # all 40 samples, in another order


def test_another_dataset_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that were computed on other samples are not mixed in."""
    interrupted(tmp_path, monkeypatch, build.small_callback)

    def other() -> Any:
        model, network, _, metrics = build.small_callback()
        return model, network, build.dataset(build.X + 1, build.Y, 8), metrics

    found = draw(tmp_path, callback=other)
    assert found.metadata["resumed"] == 0
    assert same(found, draw(tmp_path / "plain", callback=other))


def test_losses_that_are_not_finite_stay(tmp_path: Path) -> None:
    """NaN and infinity stand where they arose, are counted, and are read back; the other points are as they were."""

    class Fragile(build.Small):
        def construct(self, x: ms.Tensor) -> ms.Tensor:
            x = super().construct(x)
            return x + ms.ops.log(1.5 - self.fc2.bias[0])

    def callback() -> Any:
        network = Fragile()
        return Model(network, build.cross_entropy()), network, build.small_dataset(), None

    path: Any = build.small_checkpoints()
    for tensors in path.values():
        tensors["fc2.bias"][0] = 0.5
    step = {"fc2.bias": np.array([1, 0, 0])}
    found = draw(tmp_path, path, callback, axes=[step, {"fc1.bias": np.ones(6)}], normalize=None, extent=2.0)
    assert np.isnan(found.z[:, 4]).all()  # log of a negative number
    assert np.isfinite(found.z[:, :3]).all()
    assert found.metadata["not_finite"] == int((~np.isfinite(found.z)).sum()) > 0
    assert same(found, read(tmp_path).landscapes[0])


def with_frozen(*names: str) -> Any:
    """Return a path on which these tensors are equal in all checkpoints."""
    path: Any = build.small_checkpoints()
    return {number: tensors | {name: path[1][name] for name in names} for number, tensors in path.items()}


@pytest.mark.parametrize("axes", ["anchored", "centred"])
def test_a_frozen_layer_is_not_moved(tmp_path: Path, axes: str) -> None:
    """Its direction is zero in our own planes of the path, and it is named."""
    path = with_frozen("fc1.weight")
    found = draw(tmp_path, path, axes=axes)
    assert found.metadata["frozen"] == ["fc1.weight"]
    assert np.isfinite(found.z).all()
    # All of the path still lies in a plane of two directions at most: its weights are a polynomial of degree 2.
    assert found.unexplained.max() < 1e-3


def mindspores_plane(path: Any) -> tuple[Any, Any, Any]:
    """Compute MindSpore's plane in float64: two directions by tensor, coordinates (n, 2) and the last checkpoint.

    Differences to the last checkpoint, each less its own mean; the two leading singular vectors, the largest entry
    positive; each tensor rescaled to its norm in the last checkpoint; coordinates by least squares.
    """
    names, last = list(path[1]), path[max(path)]
    flat = np.array([np.concatenate([path[n][name].ravel() for name in names]) for n in sorted(path)], np.float64)
    rows = flat[:-1] - flat[-1]
    vectors = np.linalg.svd(rows - rows.mean(axis=1, keepdims=True), full_matrices=False)[2][:2]
    vectors *= np.sign(vectors[np.arange(2), np.abs(vectors).argmax(axis=1)])[:, None]
    ends = np.cumsum([last[name].size for name in names])
    parts = np.split(vectors, ends[:-1], axis=1)
    scaled = [
        part * (np.linalg.norm(last[name]) / np.linalg.norm(part, axis=1, keepdims=True))
        for name, part in zip(names, parts, strict=True)
    ]
    coordinates = np.linalg.lstsq(np.concatenate(scaled, axis=1).T, (flat - flat[-1]).T, rcond=None)[0].T
    shaped = [{n: p[i].reshape(last[n].shape) for n, p in zip(names, scaled, strict=True)} for i in (0, 1)]
    return shaped, coordinates, last


@pytest.mark.parametrize("frozen", [(), ("fc1.bias",), ("fc1.weight",), ("fc1.weight", "fc2.bias")])
def test_mindspores_plane_moves_what_mindspore_moves(tmp_path: Path, frozen: tuple[str, ...]) -> None:
    """Grid, path and losses are those of MindSpore's rule, also where tensors never changed: these are moved along."""
    path = with_frozen(*frozen)
    (first, second), coordinates, last = mindspores_plane(path)
    found = draw(tmp_path, path, axes="mindspore")
    assert found.metadata["frozen"] == list(frozen)
    width = np.ptp(coordinates, axis=0)
    np.testing.assert_allclose(found.path / width, coordinates / width, rtol=0, atol=1e-6)
    for axis, values, w in ((found.x, coordinates[:, 0], width[0]), (found.y, coordinates[:, 1], width[1])):
        want = np.linspace(values.min() - 0.2 * w, values.max() + 0.2 * w, 5)
        np.testing.assert_allclose(axis / w, want / w, rtol=0, atol=1e-6)

    def at(x: float, y: float) -> float:
        return build.small_loss({name: last[name] + x * first[name] + y * second[name] for name in last})

    np.testing.assert_allclose(found.z, [[at(x, y) for x in found.x] for y in found.y], 1e-4)  # MindSpore's tanh
    np.testing.assert_allclose(found.path_loss, [at(x, y) for x, y in coordinates], 1e-4)


@pytest.mark.parametrize("normalize", [None, "layer"])
def test_given_directions_are_never_altered(tmp_path: Path, normalize: str | None) -> None:
    """Not by what training left as it was, whether there is one checkpoint or a path of them."""
    path = with_frozen("fc1.weight", "fc2.bias")
    axes = [
        {name: np.random.default_rng(seed).standard_normal(values.shape) for name, values in path[5].items()}
        for seed in (1, 2)
    ]
    of_a_path = draw(tmp_path / "a", path, axes=axes, normalize=normalize, extent=0.5)
    of_one = draw(tmp_path / "b", {5: path[5]}, axes=axes, normalize=normalize, extent=0.5)
    np.testing.assert_array_equal(of_a_path.z, of_one.z)
    assert of_a_path.metadata["frozen"] == ["fc1.weight", "fc2.bias"]
    assert of_a_path.metadata["unmoved"] == []


def test_checkpoints_may_be_of_epochs(tmp_path: Path) -> None:
    """The unit of given checkpoints is the user's to name; that of a collector's is known."""
    assert draw(tmp_path, unit="epoch").metadata["unit"] == "epoch"
    assert draw(tmp_path).metadata["unit"] == "step"
    line = SummaryLandscape(tmp_path).compute_line(
        build.small_callback, checkpoints=build.small_checkpoints(), unit="epoch", size=3
    )
    assert line.metadata["unit"] == "epoch"
    with pytest.raises(ValueError, match="unit is 'day'; expected one of"):
        draw(tmp_path, unit="day")
    with pytest.raises(ValueError, match="unit is for checkpoints="):
        SummaryLandscape(collected(tmp_path / "run")).compute(build.small_callback, unit="epoch")


def test_zero_filters_biases_and_normalisation_are_not_moved(tmp_path: Path) -> None:
    """Filter-normalised directions are finite, and the centre is the plainly evaluated loss."""

    class Normed(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Dense(4, 6)
            self.norm = nn.BatchNorm1d(6)
            self.fc2 = nn.Dense(6, 3)

        def construct(self, x: ms.Tensor) -> ms.Tensor:
            return self.fc2(self.norm(self.fc1(x)))

    network = Normed()
    weight = network.fc1.weight.asnumpy().copy()
    weight[2] = 0
    network.fc1.weight.set_data(ms.Tensor(weight))
    tensors = {parameter.name: parameter.asnumpy().copy() for parameter in network.get_parameters()}

    def callback() -> Any:
        fresh = Normed()
        return Model(fresh, build.cross_entropy()), fresh, build.small_dataset(), None

    found = draw(tmp_path, {7: tensors}, callback, axes="random", size=3)
    assert np.isfinite(found.z).all()
    assert found.metadata["unmoved"] == ["fc1.bias", "norm.gamma", "norm.beta", "fc2.bias"]
    assert found.metadata["excluded"] == ["norm.moving_mean", "norm.moving_variance"]
    network.set_train(False)
    plain = float(build.cross_entropy()(network(ms.Tensor(build.X)), ms.Tensor(build.Y)).asnumpy())
    assert found.z[1, 1] == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize(
    ("numbers", "words"), [([1, 1, 1], "There are 1 different"), ([1, 4, 4], "There are 2 different checkpoints")]
)
def test_a_path_without_a_plane_is_said(tmp_path: Path, numbers: list[int], words: str) -> None:
    """A constant one, and one of two points; nothing is written but the empty event file."""
    every: Any = build.small_checkpoints()
    path = {i: every[number] for i, number in enumerate(numbers, 1)}
    with pytest.raises(NoPlane, match=words):
        draw(tmp_path, path)
    assert read(tmp_path).landscapes == []


def test_repeated_checkpoints_are_left_out(tmp_path: Path) -> None:
    """One that is equal to the last, or to another, is no further point; the picture is that without it."""
    path: Any = build.small_checkpoints()
    with_copy = {**path, 6: path[5]}
    found = draw(tmp_path / "a", with_copy)
    plain = draw(tmp_path / "b", {1: path[1], 2: path[2], 3: path[3], 4: path[4], 6: path[5]})
    assert found.metadata["repeated"] == [5]
    assert same(found, plain)


def test_wrong_wishes_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    """Each names what was given, and callback_fn is not even called."""

    def never() -> Any:
        raise AssertionError

    landscape = SummaryLandscape(tmp_path)
    wrong: list[dict[str, Any]] = [
        {"size": 2}, {"size": 257}, {"size": "x"}, {"size": True}, {"axes": "pca"}, {"normalize": "row"},
        {"axes": "mindspore", "normalize": "filter"}, {"seed": -1}, {"parameters": "("}, {"workers": -1}, {"extent": 0},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(ValueError, match=next(iter(options)) if len(options) == 1 else "normalize"):
            landscape.compute(never, checkpoints=build.small_checkpoints(), **options)
    for options in (
        {"axes": 3}, {"parameters": 3}, {"executor": 3}, {"num_samples": 1.5}, {"extent": "far"}, {"interval": 3},
        {"output": 3}, {"tag": 3}, {"unfold": "yes"}, {"progress": 3},
    ):  # fmt: skip
        with pytest.raises(TypeError, match=next(iter(options))):
            landscape.compute(never, checkpoints=build.small_checkpoints(), **options)
    with pytest.raises(BadCheckpoint, match=r"no checkpoint for step 9: .*those of step 1, 2, 3, 4, 5"):
        landscape.compute(never, checkpoints=build.small_checkpoints(), interval=[1, 2, 9])
    with pytest.raises(TypeError, match=r"\['a', 5\] are no steps or epochs"):
        landscape.compute_line(never, "a", checkpoints=build.small_checkpoints())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callback_fn is a int"):
        landscape.compute(3, checkpoints=build.small_checkpoints())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="summary_dir is a int"):
        SummaryLandscape(3)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


def test_a_directory_is_a_path() -> None:
    """An empty one would be the working directory."""
    for wrong, error in (("", ValueError), ("a\0b", ValueError), (3, TypeError)):
        with pytest.raises(error, match="summary_dir is"):
            SummaryLandscape(wrong)  # type: ignore[arg-type]


def test_metrics_are_checked_before_the_first_point(tmp_path: Path) -> None:
    """One that callback_fn does not give, and any where the network gives no output; the loss needs no metric."""
    with pytest.raises(ValueError, match=r"metrics has \['f1'\]; callback_fn gives those of the names"):
        draw(tmp_path, metrics=["f1"])
    with pytest.raises(TypeError, match="expected names of metrics"):
        draw(tmp_path, metrics="accuracy")

    def bare() -> Any:
        model, network, data, _ = build.small_callback()
        return model, network, data, None

    assert draw(tmp_path, callback=bare).z.shape == (5, 5)


def test_other_names_are_refused(tmp_path: Path) -> None:
    """A checkpoint of a network with other names draws no flat landscape."""
    path = {n: {f"net.{name}": values for name, values in one.items()} for n, one in build.small_checkpoints().items()}
    with pytest.raises(BadCheckpoint, match=r"checkpoint has no fc1.bias"):
        draw(tmp_path, path)


def test_parameters_of_any_name_take_part(tmp_path: Path) -> None:
    """All that are trained; for MindSpore's axes those with weight or bias in the name, and none is an error."""

    class Named(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = ms.Parameter(np.ones((4, 3), np.float32), name="w")
            self.moment_encoder = ms.Parameter(np.ones((1, 3), np.float32), name="moment_encoder")

        def construct(self, x: ms.Tensor) -> ms.Tensor:
            return ms.ops.matmul(x, self.w) + self.moment_encoder

    def callback() -> Any:
        network = Named()
        return Model(network, build.cross_entropy()), network, build.small_dataset(), None

    generator = np.random.default_rng(3)
    path = {
        n: {"w": generator.standard_normal((4, 3)).astype(np.float32), "moment_encoder": np.full((1, 3), n, np.float32)}
        for n in (1, 2, 3)
    }
    assert draw(tmp_path, path, callback).metadata["parameters"] == ["w", "moment_encoder"]
    assert draw(tmp_path, path, callback, parameters="^w$").metadata["excluded"] == ["moment_encoder"]
    with pytest.raises(BadCheckpoint, match=r"No parameter of the network takes part.*'weight' or 'bias'"):
        draw(tmp_path, path, callback, axes="mindspore")


# ---------------------------------------------------------------- MindSpore's call


def test_all_that_was_collected_is_made(tmp_path: Path) -> None:
    """A plane for the interval and one for the result, with MindSpore's tags, from this process."""
    made = SummaryLandscape(collected(tmp_path)).gen_landscapes_with_multi_process(build.small_callback)
    assert [one.tag for one in made] == ["landscape_[1, 4]", "landscape_[4]"]
    assert [one.metadata["decomposition"] for one in made] == ["PCA", "Random"]
    assert [(one.metadata["unit"], one.metadata["step_per_epoch"]) for one in made] == [("step", 7)] * 2
    assert made[0].metrics["accuracy"].shape == (3, 3)
    back = read(tmp_path).landscapes
    assert all(same(one, other) for one, other in zip(made, back, strict=True))


def test_options_may_be_replaced_again_and_again(tmp_path: Path) -> None:
    """By another call of the same object; the metadata stays as the collector wrote it, and is not even writable."""
    landscape = SummaryLandscape(collected(tmp_path))
    path = tmp_path / "ckpt_dir" / "train_metadata.json"
    before = path.read_bytes()
    path.chmod(0o400)
    for size, interval in ((4, [1, 2, 3]), (5, [2, 3, 4])):
        options = {
            "landscape_size": size, "intervals": [interval], "create_landscape": {"train": True, "result": False},
            "num_samples": 10,
        }  # fmt: skip
        (made,) = landscape.gen_landscapes_with_multi_process(build.small_callback, options, [0], tmp_path / "out")
        assert (made.z.shape, made.numbers.tolist(), made.metadata["samples"]) == ((size, size), interval, 10)
    assert path.read_bytes() == before
    assert [one.tag for one in read(tmp_path / "out").landscapes] == ["landscape_[1, 3]", "landscape_[2, 4]"]


def test_intervals_with_the_same_ends_have_tags_of_their_own(tmp_path: Path) -> None:
    """None replaces the other."""
    options = {"intervals": [[1, 2, 3, 4], [1, 3, 4]], "create_landscape": {"result": False}}
    made = SummaryLandscape(collected(tmp_path)).gen_landscapes_with_multi_process(build.small_callback, options)
    assert [one.tag for one in made] == ["landscape_[1, 4]", "landscape_[1, 4]_2"]
    assert [one.numbers.tolist() for one in read(tmp_path).landscapes] == [[1, 2, 3, 4], [1, 3, 4]]


def test_the_result_is_drawn_around_the_last_checkpoint(tmp_path: Path) -> None:
    """Also where the interval is not in order: both landscapes have the same origin."""
    collected(tmp_path)
    metadata = tmp_path / "ckpt_dir" / "train_metadata.json"
    metadata.write_text(metadata.read_text().replace("[1, 2, 3, 4]", "[2, 4, 3, 1]"))
    made = SummaryLandscape(tmp_path).gen_landscapes_with_multi_process(build.small_callback)
    assert [one.tag for one in made] == ["landscape_[1, 4]", "landscape_[4]"]
    assert [one.metadata["number"] for one in made] == [4, 4]
    assert made[0].convergence[2] == made[1].convergence[2]


def test_an_interval_that_cannot_be_drawn_leaves_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is named, with the reason; where none can be drawn, that is an error."""
    landscape = SummaryLandscape(collected(tmp_path))
    options: dict[str, Any] = {"intervals": [[1, 2, 9], [2, 3, 4]], "create_landscape": {"result": False}}
    (made,) = landscape.gen_landscapes_with_multi_process(build.small_callback, options)
    assert made.numbers.tolist() == [2, 3, 4]
    assert any("landscape_[1, 9] cannot be drawn: There is no checkpoint for step 9" in one for one in caplog.messages)
    with pytest.raises(BadCheckpoint, match="no checkpoint for step 9"):
        landscape.gen_landscapes_with_multi_process(
            build.small_callback, {"intervals": [[1, 2, 9]], "create_landscape": {"result": False}}
        )


def test_wrong_arguments_of_mindspores_call_are_refused(tmp_path: Path) -> None:
    """The same checks as when a run is collected, and those of device_ids."""
    landscape = SummaryLandscape(collected(tmp_path))
    for options in (
        {"landscape_size": 2},
        {"intervals": [[1, 2]]},
        {"unknown": 1},
        {"num_samples": 0},
        {"unit": "day"},
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            landscape.gen_landscapes_with_multi_process(build.small_callback, options)
    for wrong in (3, ["0"], [True]):
        with pytest.raises(TypeError, match="device_ids is"):
            landscape.gen_landscapes_with_multi_process(build.small_callback, device_ids=wrong)  # type: ignore[arg-type]
    for numbers in ([-1], [8], [0, 0]):
        with pytest.raises(ValueError, match="device_ids is"):
            landscape.gen_landscapes_with_multi_process(build.small_callback, device_ids=numbers)
    with pytest.raises(ValueError, match="device_target is 'cpu'; expected one of"):
        landscape.gen_landscapes_with_multi_process(build.small_callback, device_target="cpu")
    assert not list(tmp_path.glob("events*"))


def test_checkpoints_may_be_removed(tmp_path: Path) -> None:
    """As MindSpore's `clean_ckpt` does."""
    landscape = SummaryLandscape(collected(tmp_path))
    landscape.clean_ckpt()
    assert os.listdir(tmp_path) == []
