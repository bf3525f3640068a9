"""The data pipeline: taken when its iterator is built, never touched when that is gone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mindspore.dataset import NumpySlicesDataset

from instrument import framework
from instrument.profiler.minddata import Pipeline


class FakeManager:
    """The C++ profiler: refuses what that refuses, and fails where that would crash."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.taken: Any = None
        self.is_waiting = False
        self.is_started = False

    def init(self) -> None:
        if self.is_waiting or self.is_started:
            raise RuntimeError("Stop MD Profiler before initializing it.")
        self.is_waiting, self.taken = True, None
        self.calls.append("init")

    def build(self, iterator: Any) -> None:
        if self.is_waiting and self.taken is None:
            self.taken = iterator

    def start(self) -> None:
        assert self.taken is None or self.taken.alive, "a dangling pointer"
        self.is_started = True
        self.calls.append("start")

    def stop(self) -> None:
        if not self.is_started:
            raise RuntimeError("not started")
        self.is_waiting = self.is_started = False
        self.calls.append("stop")

    def save(self, directory: str) -> None:
        (Path(directory) / "pipeline_profiling_0.json").write_text(str(self.taken.number))


class FakeIterator:
    def __init__(self, number: int) -> None:
        self.number, self.alive = number, True


class World:
    """A pipeline's profiler and the iterators of a program."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.manager = FakeManager()
        self.pipeline = Pipeline()
        hooks: list[Callable[..., Any]] = []
        monkeypatch.setattr(framework, "data_profiler", lambda: self.manager)
        monkeypatch.setattr(framework, "watch_iterators", lambda *given: hooks.extend(given))
        monkeypatch.setattr(framework, "is_alive", lambda iterator: iterator.alive)
        self.pipeline.arm()
        self.pipeline.arm()
        self._before, self._after = hooks
        self._made = 0

    def make(self) -> FakeIterator:
        self._made += 1
        iterator = FakeIterator(self._made)
        is_wanted = self._before()
        self.manager.build(iterator)
        if is_wanted:
            self._after(iterator)
        return iterator


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def number(folder: Path) -> int:
    """Whose files are in a folder."""
    return int((folder / "pipeline_profiling_0.json").read_text())


def test_windows_of_one_pipeline(world: World, tmp_path: Path) -> None:
    """Taken at once, stopped until a window opens, and recorded in each of them."""
    kept = world.make()
    assert world.manager.calls == ["init", "start", "stop"]
    for _ in range(2):
        world.pipeline.start(str(tmp_path))
        assert world.pipeline.stop()
    assert world.manager.calls[3:] == ["start", "stop"] * 2
    assert number(tmp_path) == kept.number


def test_a_pipeline_built_inside_the_window(world: World, tmp_path: Path) -> None:
    """It is recorded, also where it was expected before the window had a directory."""
    world.pipeline.start()
    kept = world.make()
    assert world.manager.is_started
    world.pipeline.start(str(tmp_path))
    assert world.pipeline.stop()
    assert number(tmp_path) == kept.number


def test_a_pipeline_that_is_gone_is_not_touched(world: World, tmp_path: Path) -> None:
    """A window after its end records nothing; the next pipeline is taken again."""
    first = world.make()
    first.alive = False
    world.pipeline.start(str(tmp_path))
    assert not world.pipeline.stop()
    second = world.make()
    world.pipeline.start(str(tmp_path))
    assert world.pipeline.stop()
    assert number(tmp_path) == second.number


def test_pipelines_one_after_the_other_in_a_window(world: World, tmp_path: Path) -> None:
    """Each that is built when the one before is gone has a folder of its own; the next window begins anew."""
    made = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        world.pipeline.start(str(folder))
        for _ in range(3):
            made.append(world.make())
            made[-1].alive = False
        assert world.pipeline.stop()
        folders = [folder, folder / "pipeline_1", folder / "pipeline_2"]
        assert [number(one) for one in folders] == [one.number for one in made[-3:]]
    assert world.pipeline.missed == 0


def test_the_first_of_two_pipelines_is_recorded(world: World, tmp_path: Path) -> None:
    """That of an evaluation, say, does not take the place of the training's, and is counted inside of a window."""
    first = world.make()
    world.make()
    world.pipeline.start(str(tmp_path))
    world.make()
    assert world.pipeline.stop()
    assert number(tmp_path) == first.number
    assert world.pipeline.missed == 1


def test_expected_data_that_do_not_come(world: World) -> None:
    """Without a directory nothing is saved."""
    kept = world.make()
    world.pipeline.start()
    assert not world.pipeline.stop()
    assert not world.manager.is_started
    assert kept.alive


def test_errors_stop_no_data(world: World, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    """They are logged, and iterators are made all the same."""

    def fail() -> None:
        raise RuntimeError("---\n\nno profiler\n")

    monkeypatch.setattr(world.manager, "init", fail)
    assert world.make().number == 1
    assert said() == ["Profiler: the data pipeline is not recorded: no profiler"]


def test_before_it_is_armed_there_is_nothing(tmp_path: Path) -> None:
    pipeline = Pipeline()
    pipeline.start(str(tmp_path))
    assert not pipeline.stop()


def test_real_pipelines_one_after_the_other(tmp_path: Path) -> None:
    """Many iterators, some gone before, some inside of their window: what lives is recorded, and nothing crashes."""
    from instrument.profiler.minddata import PIPELINE

    PIPELINE.arm()
    data = NumpySlicesDataset((np.arange(40, dtype=np.float32).reshape(40, 1),), ["x"], shuffle=False).batch(2)
    for number in range(12):
        iterator = data.create_tuple_iterator(num_epochs=1, output_numpy=True)
        next(iterator)
        if number % 4 == 1:
            del iterator
            gc.collect()
        folder = tmp_path / str(number)
        folder.mkdir()
        PIPELINE.start(str(folder))
        if number % 4 != 1:
            next(iterator)
        if number % 4 == 2:
            del iterator
            gc.collect()
        is_recorded = PIPELINE.stop()
        assert is_recorded == (number % 4 != 1)
        assert ("pipeline_profiling_0.json" in {path.name for path in folder.iterdir()}) == is_recorded
        iterator = None
        gc.collect()


def test_real_pipelines_of_one_window(tmp_path: Path) -> None:
    """A loop that makes an iterator for each epoch: the batches of all epochs are there."""
    from instrument.profiler.minddata import PIPELINE

    PIPELINE.arm()
    data = NumpySlicesDataset((np.arange(10, dtype=np.float32).reshape(10, 1),), ["x"], shuffle=False).batch(2)
    PIPELINE.start(str(tmp_path))
    for _ in range(12):
        for _row in data.create_tuple_iterator(num_epochs=1, output_numpy=True):
            pass
    assert PIPELINE.stop()
    folders = [tmp_path, *(tmp_path / f"pipeline_{place}" for place in range(1, 12))]
    lines = [(one / "dataset_iterator_profiling_0.txt").read_text().splitlines() for one in folders]
    assert [{line.split()[2] for line in of_one} for of_one in lines] == [{"1", "2", "3", "4", "5"}] * 12
    assert PIPELINE.missed == 0
