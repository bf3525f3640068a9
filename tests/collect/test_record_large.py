"""Tensors larger than what lies between a recorder and its workers: added and recorded like any other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import mindspore as ms
import numpy as np
import psutil
import pytest

from instrument import Run, SummaryRecord, read
from instrument.values import Event
from tests.collect.build import Said

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool")

QUEUE_BYTES = 1 << 20
LARGE = 500_000  # float32 values: twice the queue
OpenRecord = Callable[..., SummaryRecord]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenRecord]:
    """Open recorders with a small queue; all of them are closed at the end."""
    records: list[SummaryRecord] = []

    def open_one(**options: object) -> SummaryRecord:
        records.append(SummaryRecord(tmp_path, num_process=1, queue_bytes=QUEUE_BYTES, **options))  # type: ignore[arg-type]
        return records[-1]

    yield open_one
    for record in records:
        record.close()


def filled(number: float, elements: int = LARGE) -> np.ndarray:  # type: ignore[type-arg]
    return np.full(elements, number, np.float32)


def values(run: Run, tag: str = "large") -> list[tuple[int, float]]:
    """Step, and the number that fills the tensor of that step."""
    found = []
    for step, _, value in run.tensors(tag):
        assert (value.array == value.array.flat[0]).all()
        found.append((step, float(value.array.flat[0])))
    return found


@pytest.mark.parametrize("dialect", ["mindspore", "tensorboard", "both"])
def test_what_becomes_of_it_later_changes_nothing(opened: OpenRecord, tmp_path: Path, dialect: str) -> None:
    """The values are those of the call, beside all else of the step, of tensors and of arrays."""
    record = opened(dialect=dialect)
    array, parameter, tensor = filled(1.0), ms.Parameter(ms.Tensor(filled(2.0)), name="w"), ms.Tensor(filled(3.0))
    for step, value in enumerate([array, parameter, tensor], start=1):
        record.add_value("scalar", "loss", step / 2)
        record.add_value("histogram", "h", np.arange(1000.0))
        record.add_value("tensor", "large", value)
        record.add_value("tensor", "small", filled(step, 20_000))
        array[:] = 9.0
        if step == 2:
            parameter.set_data(ms.Tensor(filled(8.0)))
        tensor.asnumpy()[:] = 7.0 if step == 3 else 3.0
        assert record.record(step)
    record.close()
    run = read(tmp_path)
    assert run.damage == run.gaps == []
    assert values(run) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert values(run, "small") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert run.scalars("loss").value.tolist() == [0.5, 1.0, 1.5]
    assert run.histograms("h").step.tolist() == [1, 2, 3]
    assert (record.stats.events, record.stats.lost, record.stats.dropped, record.stats.errors) == (3, 0, 0, 0)


def test_it_takes_one_copy(opened: OpenRecord) -> None:
    """Of 64 MB that are added there is one copy until they are recorded, and none afterwards."""
    record = opened()
    large = filled(1.0, 16_000_000)
    record.add_value("tensor", "first", filled(0.0))
    assert record.record(0)
    process = psutil.Process()
    before = process.memory_info().rss
    for step in range(1, 4):
        record.add_value("tensor", "large", large)
        assert process.memory_info().rss - before < 80e6
        assert record.record(step)
        assert process.memory_info().rss - before < 16e6


def test_several_in_one_step(opened: OpenRecord, tmp_path: Path) -> None:
    """Each is there."""
    record = opened()
    for tag in ("a", "b", "c"):
        record.add_value("tensor", tag, filled(ord(tag)))
    assert record.record(1)
    record.close()
    run = read(tmp_path)
    assert [values(run, tag) for tag in ("a", "b", "c")] == [[(1, 97.0)], [(1, 98.0)], [(1, 99.0)]]


def test_a_second_value_replaces_it(opened: OpenRecord, tmp_path: Path, said: Said) -> None:
    """Large or small, the last one of a name counts, with one warning."""
    record = opened()
    for step, numbers in enumerate([(1.0, LARGE, 2.0, LARGE), (3.0, LARGE, 4.0, 10), (5.0, 10, 6.0, LARGE)], start=1):
        record.add_value("tensor", "large", filled(numbers[0], numbers[1]))  # type: ignore[arg-type]
        record.add_value("tensor", "large", filled(numbers[2], numbers[3]))  # type: ignore[arg-type]
        assert record.record(step)
    record.close()
    assert values(read(tmp_path)) == [(1, 2.0), (2, 4.0), (3, 6.0)]
    assert len(said("'large'")) == 1


def test_a_filter_may_drop_it(opened: OpenRecord, tmp_path: Path) -> None:
    """Then the rest of its step is there, and nothing of it."""
    record = opened()
    record.add_value("tensor", "large", filled(1.0))
    record.add_value("scalar", "loss", 0.5)
    assert record.record(1, plugin_filter=lambda plugin: plugin == "scalar")
    record.add_value("tensor", "large", filled(2.0))
    assert record.record(2, plugin_filter=lambda plugin: False)
    record.add_value("tensor", "large", filled(3.0))
    record.close()
    run = read(tmp_path)
    assert run.tags() == {"scalar": ["loss"]}
    assert run.damage == []
    assert os.path.getsize(record.log_dir) < 1000


def test_something_is_recorded_beside_it(opened: OpenRecord, tmp_path: Path) -> None:
    """A sample of the system comes between the value and its step: both are there, in the order of the calls."""
    record = opened()
    record.add_value("scalar", "loss", 0.5)
    record.add_value("tensor", "large", filled(1.0))
    record.add_value("tensor", "small", filled(2.0, 20_000))
    record._write_sample(Event(7, 1.5, [], {"system/cpu": 3.0}))
    record.add_value("tensor", "other", filled(3.0))
    assert record.record(8)
    record.close()
    run = read(tmp_path)
    assert [values(run, tag) for tag in ("large", "small", "other")] == [[(8, 1.0)], [(8, 2.0)], [(8, 3.0)]]
    assert run.scalars("system/cpu").step.tolist() == [7]
    assert run.damage == run.gaps == []
    assert (record.stats.events, record.stats.lost) == (2, 0)


def test_its_file_is_taken_away_meanwhile(opened: OpenRecord, tmp_path: Path, said: Said) -> None:
    """It is not in the file before its step: it goes into the new one with all else."""
    record = opened()
    record.add_value("tensor", "large", filled(1.0))
    os.remove(record.log_dir)
    record._write_sample(Event(7, 1.5, [], {"system/cpu": 3.0}))
    assert record.record(8)
    record.add_value("tensor", "large", filled(2.0))
    assert record.record(9)
    record.close()
    run = read(tmp_path)
    assert values(run) == [(8, 1.0), (9, 2.0)]
    assert run.gaps == []
    assert record.stats.lost == 0
    assert len(said("it was deleted or cut")) == 1


@pytest.mark.parametrize("options", [{"max_file_size": 1 << 30}, {"on_full": "drop"}, {"num_process": 0}])
def test_where_it_is_copied(tmp_path: Path, options: dict[str, object]) -> None:
    """With a limit of size, without waiting, and without workers it comes with its step."""
    arguments: dict[str, object] = {"num_process": 1, "queue_bytes": QUEUE_BYTES, **options}
    with SummaryRecord(tmp_path, **arguments) as record:  # type: ignore[arg-type]
        array = filled(1.0)
        record.add_value("tensor", "large", array)
        array[:] = 2.0
        assert record.record(1)
    assert values(read(tmp_path)) == [(1, 1.0)]
