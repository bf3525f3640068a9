"""Values that stay in the file until they are wanted."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from instrument import read
from instrument.errors import CorruptMessage
from instrument.eventfile.access import OpenFile
from instrument.values import ArrayItem, Event
from tests.runs.build import item, steps, write


def test_one_tensor_of_a_history_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of one step reads that step's bytes and no others, among tensors of the same event too."""
    array = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    events = [
        Event.of(step, 1.0, tuple(ArrayItem("tensor", tag, array + step, "float32") for tag in ("a", "w", "z")))
        for step in range(20)
    ]
    write(tmp_path, events)
    tensors = read(tmp_path).tensors("w")
    counts: list[int] = []
    real = OpenFile.read

    def counted(self: OpenFile, offset: int, count: int) -> memoryview:
        counts.append(count)
        return real(self, offset, count)

    monkeypatch.setattr(OpenFile, "read", counted)
    np.testing.assert_array_equal(tensors[7][2:5, :], (array + 7)[2:5, :])
    assert sum(counts) < array.nbytes + 5000


@pytest.mark.parametrize("kind", ["tensor", "histogram", "image"])
def test_a_value_that_was_changed_since_is_refused(tmp_path: Path, kind: str) -> None:
    """A wrong value is never returned, also when the file is changed, cut or gone behind the reader's back."""
    path = write(tmp_path, steps(kind, "v", range(3), 1.0, start=0.0))
    points = read(tmp_path).points(kind, "v")
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    points.decode(0)
    with pytest.raises(CorruptMessage, match="was changed"):
        points.decode(2)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CorruptMessage, match="was changed"):
        points.decode(2)
    path.unlink()
    with pytest.raises(CorruptMessage, match="cannot be read"):
        points.decode(0)


def test_points_become_data_frames(tmp_path: Path) -> None:
    """Columns with their types; the value of another kind is what `decode` gives."""
    pandas = pytest.importorskip("pandas")
    write(tmp_path, steps("scalar", "x", range(3), 0.5, start=10.0) + steps("tensor", "t", [1], 2.0, start=5.0))
    run = read(tmp_path)
    frame = run.scalars("x").to_pandas()
    assert list(frame.columns) == ["step", "wall_time", "value", "device", "host"]
    assert frame["step"].tolist() == [0, 1, 2]
    assert frame["value"].tolist() == [0.5] * 3
    assert frame["wall_time"][1] == pandas.Timestamp(11.0, unit="s", tz="UTC")
    assert set(frame["host"]) == {"host"}
    assert run.tensors("t").to_pandas()["value"][0].array.tolist() == [2.0] * 4


def test_numbers_of_both_sizes_keep_their_order(tmp_path: Path) -> None:
    """Floats that need eight bytes between those that need four, steps of one to ten bytes."""
    rng = np.random.default_rng(5)
    values = [
        float(number) if index % 3 else float(np.float32(number)) for index, number in enumerate(rng.random(3000))
    ]
    numbers = [*range(2990), *(2**62 + index for index in range(10))]
    events = [Event.of(step, 1.0, (item("scalar", "x", one),)) for step, one in zip(numbers, values, strict=True)]
    events[7:9] = reversed(events[7:9])
    write(tmp_path, events)
    scalars = read(tmp_path).scalars("x")
    assert scalars.step.tolist() == numbers
    assert scalars.value.tolist() == values


def test_the_later_of_equal_steps_wins_in_file_order(tmp_path: Path) -> None:
    """Also where frames of other lengths stand between them."""
    events = [Event.of(index // 2, 1.0, (item("scalar", "x", [0.1, 1.0][index % 2]),)) for index in range(400)]
    write(tmp_path, events)
    scalars = read(tmp_path).scalars("x")
    assert scalars.value.tolist() == [1.0] * 200
    assert len(read(tmp_path).scalars("x", superseded=True)) == 400
