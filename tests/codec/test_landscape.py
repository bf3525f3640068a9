"""Landscapes travel as the serialised message that they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from instrument.codec import landscape
from instrument.errors import CorruptMessage
from instrument.values import Landscape, LossSurface
from tests import protobuf


def test_the_message_is_the_content() -> None:
    """Neither direction changes a byte."""
    data = bytes(range(256))
    assert landscape.encode(data) == [data]
    assert landscape.decode(memoryview(data)) == Landscape(data)


def surface(rng: np.random.Generator, rows: int, columns: int, count: int) -> LossSurface:
    """With NaN, infinities and numbers that float32 does not hold."""
    z = rng.standard_normal((rows, columns)) * 1e3
    z.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    return LossSurface(
        "plane", np.sort(rng.random(columns)), np.sort(rng.random(rows)), z, np.arange(1, count + 1),
        rng.random((count, 2)), rng.random(count), rng.random(count), rng.random(count), rng.random(4), rng.random(3),
        {"accuracy": rng.random((rows, columns))},
        {"decomposition": "PCA", "unit": "epoch", "step_per_epoch": 9, "frozen": ["fc.weight"], "seed": 3},
    )  # fmt: skip


ARRAYS = ("x", "y", "z", "numbers", "path", "path_loss", "true_loss", "unexplained", "explained", "convergence")


@pytest.mark.parametrize(("rows", "columns", "count"), [(3, 5, 4), (1, 7, 2), (4, 4, 0)])
def test_a_surface_comes_back(rng: np.random.Generator, rows: int, columns: int, count: int) -> None:
    """Every array exactly, the metadata, and metrics under their names."""
    given = surface(rng, rows, columns, count)
    found = landscape.to_surface(Landscape(landscape.from_surface(given)), "plane")
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(found, name), getattr(given, name))
    np.testing.assert_array_equal(found.metrics["accuracy"], given.metrics["accuracy"])
    assert (found.tag, found.metadata) == ("plane", given.metadata)


def test_the_message_is_mindspores(rng: np.random.Generator) -> None:
    """Its own class reads the grid, the path, the convergence point and the metadata, and skips the rest."""
    given = surface(rng, 3, 5, 4)
    message = protobuf.message_class("LossLandscape").FromString(landscape.from_surface(given))
    for point, arrays in (
        (message.landscape, (given.x, given.y, given.z)),
        (message.loss_path.points, (given.path[:, 0], given.path[:, 1], given.path_loss)),
        (message.convergence_point, tuple(given.convergence.reshape(3, 1))),
    ):
        for field, values in zip((point.x, point.y, point.z), arrays, strict=True):
            assert list(field.dims) == list(values.shape)
            np.testing.assert_array_equal(field.float_data, values.astype(np.float32).reshape(-1))
    assert list(message.loss_path.intervals) == [1, 2, 3, 4]
    metadata = message.metadata
    assert (metadata.decomposition, metadata.unit, metadata.step_per_epoch) == ("PCA", "epoch", 9)


def test_a_landscape_of_mindspores_is_read() -> None:
    """What it does not say is empty or NaN."""
    message = protobuf.message_class("LossLandscape")()
    for field, dims in ((message.landscape.x, [2]), (message.landscape.y, [3]), (message.landscape.z, [3, 2])):
        field.dims.extend(dims)
        field.data_type = 12
        field.float_data.extend(range(int(np.prod(dims))))
    message.loss_path.intervals.extend([4, 8])
    for field in (message.loss_path.points.x, message.loss_path.points.y, message.loss_path.points.z):
        field.dims.extend([2])
        field.data_type = 12
        field.float_data.extend([1.0, 2.0])
    found = landscape.to_surface(Landscape(message.SerializeToString()), "tag")
    assert found.z.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert (found.numbers.tolist(), found.path.tolist()) == ([4, 8], [[1, 1], [2, 2]])
    assert np.isnan(found.true_loss).all()
    assert (found.explained.size, found.convergence.size, found.metrics) == (0, 0, {})
    assert found.metadata == {"decomposition": "", "unit": "", "step_per_epoch": 0}


def test_what_is_no_landscape_is_refused(rng: np.random.Generator) -> None:
    """A message without a grid, one whose arrays do not fit together, any damage: `CorruptMessage` and nothing else."""
    for data in (b"", b"\xff" * 8, b"\x0a\x00"):
        with pytest.raises(CorruptMessage):
            landscape.to_surface(Landscape(data), "tag")
    given = surface(rng, 3, 5, 4)
    for wrong in (
        {"z": given.z[:, :4]}, {"path_loss": given.path_loss[:3]}, {"true_loss": given.true_loss[:2]},
        {"convergence": np.ones(3), "metrics": {"a": given.z[:2]}},
    ):  # fmt: skip
        with pytest.raises(CorruptMessage):
            landscape.to_surface(Landscape(landscape.from_surface(replace(given, **wrong))), "tag")
    whole = landscape.from_surface(given)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        try:
            landscape.to_surface(Landscape(bytes(damaged[: rng.integers(1, len(whole) + 1)])), "tag")
        except CorruptMessage:
            pass
