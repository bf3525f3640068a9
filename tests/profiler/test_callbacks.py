"""`StopAtStep` and `StopAtEpoch` on hooks: exactly the steps that were asked for, whatever ends the training."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from instrument import StopAtEpoch, StopAtStep, SummaryCollector, marks, read
from instrument.profiler import recorder
from instrument.profiler.profiler import Profiler
from tests.collect.fake import Loop
from tests.profiler.fake import FakeBackend, windows

pytestmark = pytest.mark.usefixtures("device")
#: Two epochs of ten steps.
EPOCHS = (range(1, 11), range(11, 21))


@pytest.mark.parametrize(("start", "stop"), [(1, 1), (2, 5), (9, 12), (20, 20), (1, 20)])
def test_the_window_holds_the_steps_asked_for(tmp_path: Path, start: int, stop: int, said: Any) -> None:
    """Both ends included, over the border of an epoch too."""
    Loop(StopAtStep(start, stop, tmp_path)).train(*EPOCHS)
    (found,) = windows(tmp_path)
    assert found.steps == list(range(start, stop + 1))
    assert found.about["requested"] == [start, stop]
    assert (found.about["complete"], found.about["first_step"], found.about["last_step"]) == (True, start, stop)
    assert said() == []


@pytest.mark.parametrize(("start", "stop"), [(1, 1), (1, 2), (2, 2)])
def test_the_window_holds_the_epochs_asked_for(tmp_path: Path, start: int, stop: int, said: Any) -> None:
    Loop(StopAtEpoch(start, stop, tmp_path)).train(*EPOCHS)
    (found,) = windows(tmp_path)
    assert found.steps == [step for epoch in EPOCHS[start - 1 : stop] for step in epoch]
    assert found.of_kind(marks.EPOCH) == [("epoch", number) for number in range(start, stop + 1)]
    assert (found.about["requested"], found.about["requested_epochs"]) == (None, [start, stop])
    assert found.about["complete"] is True
    assert said() == []


@pytest.mark.parametrize(("callback", "first"), [(StopAtStep, 2), (StopAtEpoch, 11)])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_window_holds_no_more_than_its_allowed_steps(
    tmp_path: Path, said: Any, callback: Any, first: int, is_first: bool
) -> None:
    """Whichever of the callbacks tells of the step; the window is incomplete and the training goes on."""
    both = [callback(2, 20, tmp_path, max_steps=5), SummaryCollector(tmp_path, num_process=0)]
    loop = Loop(*(both if is_first else reversed(both)))
    loop.train(*EPOCHS)
    (found,) = windows(tmp_path)
    assert found.steps == list(range(first, first + 5))
    assert found.about["complete"] is False
    assert "max_steps=5 was reached" in found.about["reason"]
    assert len(said("max_steps=5 was reached")) == 1


@pytest.mark.parametrize("callback", [StopAtStep, StopAtEpoch])
@pytest.mark.parametrize(
    ("start", "stop", "error"),
    [
        (0, 1, ValueError), (-1, 1, ValueError), (3, 2, ValueError), (1.0, 2, TypeError), (1, "2", TypeError),
        (True, 2, TypeError),
    ],
)  # fmt: skip
def test_wrong_ranges_are_refused(callback: Any, start: Any, stop: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"(start|stop)_(step|epoch) is"):
        callback(start, stop)


def test_options_are_the_profilers(tmp_path: Path) -> None:
    """All but those that say when to record; unknown ones are refused by name."""
    with pytest.raises(TypeError, match="StopAtStep got 'schedule', but says itself when to record"):
        StopAtStep(1, 2, tmp_path, schedule=lambda step: step)
    with pytest.raises(TypeError, match="did you mean 'profile_memory'"):
        StopAtStep(1, 2, tmp_path, profile_memroy=True)
    assert isinstance(StopAtStep(1, 2, tmp_path, keep_raw=True).profiler, Profiler)


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("error", [ValueError("what"), KeyboardInterrupt(), SystemExit(1)])
def test_an_exception_inside_the_window(tmp_path: Path, said: Any, error: BaseException) -> None:
    """The trace is whole, has the steps that ran and the one that did not end, and the caller sees the exception."""

    def at_step(step: int, _: Any) -> None:
        if step == 15:
            raise error

    with pytest.raises(type(error)):
        Loop(StopAtStep(10, 20, tmp_path), at_step=at_step).train(*EPOCHS)
    (found,) = windows(tmp_path)
    assert found.steps == list(range(10, 16))
    assert found.marks[found.marks["kind"] == marks.STEP]["duration_ns"].tolist()[-1] == -1
    assert (found.about["first_step"], found.about["last_step"], found.about["complete"]) == (10, 14, False)
    assert found.about["reason"].startswith(f"steps 10 to 14 ran of 10 to 20: {type(error).__name__}")
    assert ("epoch", 2) in found.of_kind(marks.EPOCH)
    assert len(said("is not complete")) == len(said()) == 1
    assert (recorder._recording, marks._window) == (None, None)


def test_an_early_end_inside_the_window(tmp_path: Path, said: Any) -> None:
    Loop(StopAtStep(10, 20, tmp_path)).train(range(1, 11), range(11, 16))
    (found,) = windows(tmp_path)
    assert (found.steps, found.about["complete"]) == (list(range(10, 16)), False)
    assert found.about["reason"] == "steps 10 to 15 ran of 10 to 20: the training ended"
    assert len(said()) == 1


def test_the_forced_end_comes_once(tmp_path: Path, device: FakeBackend) -> None:
    """The end of the training and of its context stop the window one time."""
    Loop(StopAtStep(5, 20, tmp_path)).train(*EPOCHS)
    assert device.calls.count("stop") == 1


@pytest.mark.parametrize(
    ("callback", "epochs", "message"),
    [
        (StopAtStep, EPOCHS, "StopAtStep: the window (steps 50 to 60) was not reached, steps 1 to 20 ran"),
        (StopAtStep, ((),), "StopAtStep: the window (steps 50 to 60) was not reached, no step ran"),
        (StopAtEpoch, EPOCHS, "the window (epochs 50 to 60) was not reached, steps 1 to 20 ran (epochs 1 to 2)"),
    ],
)  # fmt: skip
def test_a_window_that_is_not_reached(tmp_path: Path, said: Any, callback: Any, epochs: Any, message: str) -> None:
    """One warning names the window and what ran; there is no file, and an empty profile says the same."""
    asked = callback(50, 60, tmp_path / "run")
    Loop(asked).train(*epochs)
    (warning,) = said()
    assert message in warning
    assert warning.endswith("; nothing was recorded.")
    assert not (tmp_path / "run").exists()
    profile = asked.profiler.analyse()
    assert f"NOT COMPLETE: {warning.partition(': ')[2]}" in str(profile)
    assert len(profile.steps) == len(profile.operators) == len(profile.key_averages()) == 0
    assert not (tmp_path / "run").exists()


def test_a_training_that_goes_on_behind_the_start(tmp_path: Path, said: Any) -> None:
    """A resumed training records what is left of the window, and says what is missing."""
    Loop(StopAtStep(5, 14, tmp_path), cur_step_num=10).train(range(11, 21))
    (found,) = windows(tmp_path)
    assert (found.steps, found.about["complete"]) == ([11, 12, 13, 14], False)
    assert found.about["reason"] == "steps 11 to 14 ran of 5 to 14"


def test_a_resumed_training_behind_the_window(tmp_path: Path, said: Any) -> None:
    Loop(StopAtStep(5, 8, tmp_path), cur_step_num=10).train(range(11, 21))
    assert said("was not reached, steps 11 to 20 ran") != []


def test_each_training_has_its_window(tmp_path: Path) -> None:
    callback = StopAtStep(2, 3, tmp_path)
    for _ in range(2):
        Loop(callback).train(range(1, 5))
    found = windows(tmp_path)
    assert [(one.number, one.steps) for one in found] == [(0, [2, 3]), (1, [2, 3])]


def test_data_sink_mode(tmp_path: Path, said: Any) -> None:
    """Hooks come once in ten steps: the blocks that touch the window are recorded, and said; epochs are exact."""
    by_step, by_epoch = StopAtStep(12, 15, tmp_path / "steps"), StopAtEpoch(3, 3, tmp_path / "epochs")
    Loop(by_step, by_epoch, dataset_sink_mode=True, sink_size=10).train([10], [20], [30])
    (steps,), (epochs,) = windows(tmp_path / "steps"), windows(tmp_path / "epochs")
    assert (steps.steps, steps.about["complete"]) == ([20], False)
    assert (epochs.steps, epochs.about["complete"]) == ([30], True)
    assert len(said("in data sink mode hooks come once in many steps")) == 1


def test_windows_that_overlap(tmp_path: Path, said: Any) -> None:
    """The second one is not recorded, with one word; training goes on, and a third one works."""
    callbacks = [StopAtStep(first, last, tmp_path / str(first)) for first, last in ((2, 6), (4, 8), (9, 9))]
    Loop(*callbacks).train(*EPOCHS)
    assert [[one.steps for one in windows(tmp_path / name)] for name in ("2", "9")] == [[[2, 3, 4, 5, 6]], [[9]]]
    assert not (tmp_path / "4").exists()
    (error,) = said()
    assert "StopAtStep: the window (steps 4 to 8) is not recorded" in error
    assert "Another profiler records into" in error
    assert error.partition(": ")[2] in str(callbacks[1].profiler.analyse())


def test_hooks_have_the_name_of_their_class_and_count_once(tmp_path: Path) -> None:
    """Also where one calls what it inherits."""
    Loop(StopAtEpoch(1, 2, tmp_path)).train(*EPOCHS)
    (found,) = windows(tmp_path)
    hooks = Counter(name for name, _ in found.of_kind(marks.CALLBACK))
    assert {name.partition(".")[0] for name in hooks} == {"StopAtEpoch"}
    assert hooks["StopAtEpoch.on_train_epoch_begin"] == 1  # that of the first epoch opens the window
    assert hooks["StopAtEpoch.on_train_epoch_end"] == 1  # that of the second one closes it


def test_a_device_that_fails_stops_no_training(tmp_path: Path, device: FakeBackend, said: Any) -> None:
    device.fail_start = RuntimeError("gone")
    reached: list[int] = []
    Loop(StopAtStep(2, 3, tmp_path), at_step=lambda step, _: reached.append(step)).train(range(1, 6))
    assert reached == [1, 2, 3, 4, 5]
    assert len(said()) == 1


def test_the_data_of_the_first_step_are_expected(tmp_path: Path, device: FakeBackend) -> None:
    """The device is told before the wait for them; if the step does not come, it is told too."""
    Loop(StopAtStep(3, 3, tmp_path)).train(range(1, 5))
    assert device.calls == ["prepare", "expect True", "start", "stop"]
    device.calls.clear()
    Loop(StopAtStep(1, 1, tmp_path)).train(range(1, 5))
    assert device.calls == ["prepare", "expect True", "start", "stop"]
    device.calls.clear()
    Loop(StopAtStep(5, 6, tmp_path)).train(range(1, 5))
    assert device.calls == ["prepare", "expect True", "expect False"]


# ---------------------------------------------------------------- beside a collector


def steps_of(path: Path) -> list[list[int]]:
    return [one.steps for one in windows(path)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_beside_a_collector(tmp_path: Path, order: tuple[int, int]) -> None:
    """In either order, in one directory: the same scalars and the same steps as alone, and the collector's own time."""
    Loop(SummaryCollector(tmp_path / "alone", collect_freq=2, num_process=0)).train(*EPOCHS)
    both = [StopAtStep(9, 12, tmp_path / "run"), SummaryCollector(tmp_path / "run", collect_freq=2, num_process=0)]
    Loop(*(both[index] for index in order)).train(*EPOCHS)
    alone, beside = read(tmp_path / "alone"), read(tmp_path / "run")
    for tag in ("loss/auto", "learning_rate/auto"):
        found, expected = beside.scalars(tag), alone.scalars(tag)
        assert found.step.tolist() == expected.step.tolist()
        assert found.value.tolist() == expected.value.tolist()
    (found,) = windows(tmp_path / "run")
    assert found.steps == [9, 10, 11, 12]
    hooks = {name for name, _ in found.of_kind(marks.CALLBACK)}
    assert {"SummaryCollector.on_train_step_begin", "SummaryCollector.on_train_step_end"} <= hooks
    assert found.of_kind(marks.EPOCH) == [("epoch", 1)] or order == (0, 1)


def test_a_profiler_of_the_user_gets_the_collectors_steps(tmp_path: Path) -> None:
    """Who profiles a whole training has its steps and epochs marked by whatever callback of ours is there."""
    profiler = Profiler(tmp_path)
    Loop(SummaryCollector(tmp_path, num_process=0)).train(*EPOCHS)
    profiler.stop()
    (found,) = windows(tmp_path)
    assert found.steps == list(range(1, 21))
    assert found.of_kind(marks.EPOCH) == [("epoch", 1), ("epoch", 2)]


@pytest.mark.parametrize(("start", "stop"), list(product((1, 3), (3, 4))))
def test_the_legacy_pattern(tmp_path: Path, start: int, stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback as MindSpore's documentation has it: start in step_begin, stop in step_end, analyse in end."""
    from tests.profiler.fake import fake_analysis

    made = fake_analysis(monkeypatch)
    profiler = Profiler(tmp_path, start_profile=False)
    for step in range(1, 6):
        if step == start:
            profiler.start()
        if step == stop:
            profiler.stop()
    profiler.analyse()
    assert len(windows(tmp_path)) == len(made) == 1


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_callback_is_copied_before_its_window_only(
    tmp_path: Path, device: FakeBackend, way: Callable[[Any], Any]
) -> None:
    """Once it has recorded the error names the class, be it the callback's or the profiler's."""
    callback = StopAtStep(1, 2, tmp_path)
    way(callback)
    way(callback.profiler)
    Loop(callback).train([1, 2, 3])
    for owner, name in ((callback, "StopAtStep"), (callback.profiler, "Profiler")):
        with pytest.raises(TypeError, match=f"A {name} cannot be pickled or copied once it has recorded, "):
            way(owner)


def test_a_copy_belongs_to_itself(tmp_path: Path, device: FakeBackend) -> None:
    """`on_trace_ready` of a copied profiler is called with the copy."""
    ready: list[Any] = []
    original = Profiler(tmp_path, start_profile=False, on_trace_ready=ready.append)
    copied = copy.deepcopy(original)
    copied.start()
    copied.stop()
    assert ready == [copied]
