"""The profiler's life: every order of calls works or says what to do, and each window is kept."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from instrument import framework
from instrument.profiler import recorder
from instrument.profiler.profiler import Profiler
from instrument.profiler.schedule import ProfilerAction, schedule
from tests.profiler.fake import FakeBackend, fake_analysis, windows

CALLS = ("start", "stop", "analyse", "step")


@pytest.mark.parametrize("start_profile", [True, False])
def test_every_order_of_four_calls(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_profile: bool
) -> None:
    """Each call works or raises `RuntimeError` with what to do; no window twice, and the profiler is usable after."""
    fake_analysis(monkeypatch)
    for number, calls in enumerate(product(CALLS, repeat=4)):
        path = tmp_path / str(number)
        profiler = Profiler(path, start_profile=start_profile)
        is_open, opened = start_profile, int(start_profile)
        for call in calls:
            is_wrong = call in ("stop", "analyse") and not opened
            if is_wrong:
                with pytest.raises(RuntimeError, match=rf"{call}\(\) was called, .*call start\(\)"):
                    getattr(profiler, call)()
                continue
            getattr(profiler, call)()
            opened += call == "start" and not is_open
            is_open = {"start": True, "step": is_open}.get(call, False)
        profiler.start()
        profiler.stop()
        opened += not is_open
        assert [one.number for one in windows(path)] == list(range(opened)), calls


def test_a_second_start_is_said_and_changes_nothing(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    profiler = Profiler(tmp_path)
    profiler.start()
    profiler.start()
    profiler.stop()
    profiler.stop()
    assert device.calls == ["prepare", "start", "stop"]
    assert len(said("start() was called while the profiler is recording already")) == 1
    assert len(windows(tmp_path)) == 1


def test_every_window_is_kept_in_one_file(device: FakeBackend, tmp_path: Path) -> None:
    """Three windows with different files: each is whole, and earlier bytes of the event file stay as they were."""
    profiler = Profiler(tmp_path, start_profile=False)
    sizes: list[int] = []
    before = b""
    for number in range(3):
        device.files = {f"data/{number}.bin": bytes([number]) * 1000, "empty.done": b""}
        profiler.start()
        profiler.stop()
        (path,) = tmp_path.iterdir()
        data = path.read_bytes()
        assert data.startswith(before)
        before = data
        sizes.append(len(data))
    found = windows(tmp_path)
    assert [one.number for one in found] == [0, 1, 2]
    assert [one.raw for one in found] == [
        {f"data/{number}.bin": bytes([number]) * 1000, "empty.done": b""} for number in range(3)
    ]
    assert {one.about["target"] for one in found} == {"ascend"}


def test_two_profilers_one_after_the_other(device: FakeBackend, tmp_path: Path) -> None:
    """Each has a file of its own, also in one directory and one second."""
    for _ in range(2):
        profiler = Profiler(tmp_path)
        profiler.stop()
    assert len(list(tmp_path.iterdir())) == 2
    assert [one.number for one in windows(tmp_path)] == [0, 0]


def test_two_profilers_at_once(device: FakeBackend, tmp_path: Path) -> None:
    """The second one says where the first records; both go on to work."""
    first = Profiler(tmp_path / "first")
    with pytest.raises(RuntimeError, match=r"Another profiler records into .*first; .*Stop that one"):
        Profiler(tmp_path / "second")
    second = Profiler(tmp_path / "second", start_profile=False)
    with pytest.raises(RuntimeError, match="Another profiler records"):
        second.start()
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        second.stop()
    first.stop()
    second.start()
    second.stop()
    assert (len(windows(tmp_path / "first")), len(windows(tmp_path / "second"))) == (1, 1)


def test_steps_are_numbered_through_all_windows(device: FakeBackend, tmp_path: Path) -> None:
    """Steps count from 0 whether a window is open or not, and are marked inside of windows only."""
    profiler = Profiler(tmp_path, start_profile=False)
    for step in range(12):
        if step in (2, 8):
            profiler.start()
        profiler.step()
        if step in (4, 8):
            profiler.stop()
    found = windows(tmp_path)
    assert [one.steps for one in found] == [[2, 3, 4], [8]]
    assert [(one.about["first_step"], one.about["last_step"]) for one in found] == [(2, 4), (8, 8)]
    assert all(one.about["complete"] for one in found)


def test_marks_lie_inside_their_window(device: FakeBackend, tmp_path: Path) -> None:
    profiler = Profiler(tmp_path)
    for _ in range(3):
        profiler.step()
    profiler.stop()
    (found,) = windows(tmp_path)
    ends = found.marks["start_ns"] + found.marks["duration_ns"]
    assert found.about["start_ns"] == found.marks["start_ns"][0]
    assert ends[:-1].tolist() == found.marks["start_ns"][1:].tolist()
    assert ends[-1] <= found.about["stop_ns"]


# ---------------------------------------------------------------- schedules


@pytest.mark.parametrize(
    ("skip_first", "wait", "warmup", "active", "repeat"), list(product((0, 1), (0, 2), (0, 1), (1, 3), (0, 1, 2)))
)
def test_a_schedule_records_its_steps(
    device: FakeBackend, tmp_path: Path, skip_first: int, wait: int, warmup: int, active: int, repeat: int
) -> None:
    """Exactly the steps [skip_first + wait + warmup, ... + active) of each cycle, one window and one call a cycle."""
    given = schedule(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
    ready: list[Profiler] = []
    length, total = wait + warmup + active, 24
    with Profiler(tmp_path, schedule=given, on_trace_ready=ready.append) as profiler:
        for _ in range(total):
            profiler.step()
    starts = range(skip_first + wait + warmup, total, length)
    cycles = [list(range(start, min(start + active, total))) for start in (starts[:repeat] if repeat else starts)]
    found = windows(tmp_path)
    ended = [one.steps for one in found]
    assert ended == cycles
    assert len(ready) == len(found)
    assert set(ready) == {profiler}
    assert [one.about["requested"] for one in found] == [[s[0], s[0] + active - 1] for s in cycles]
    assert [one.about["complete"] for one in found] == [len(steps) == active for steps in ended]


def test_a_window_without_a_step_is_no_window_of_a_schedule(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    """The step behind the last one opens the next window, which the end of the loop leaves empty."""
    profiler = Profiler(tmp_path, schedule=schedule(active=2))
    profiler.step()
    profiler.step()
    profiler.stop()
    assert [one.steps for one in windows(tmp_path)] == [[0, 1]]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
    assert said() == []


@pytest.mark.parametrize("steps", [3, 4, 5])
def test_windows_of_a_schedule_that_do_not_come_are_said(
    device: FakeBackend, tmp_path: Path, said: Any, steps: int
) -> None:
    """Of two windows the second one is not reached, or is open when the loop ends and has no step."""
    profiler = Profiler(tmp_path, schedule=schedule(wait=1, active=2, repeat=2))
    for _ in range(steps):
        profiler.step()
    profiler.stop()
    assert [one.steps for one in windows(tmp_path)] == ([[1, 2]] if steps < 5 else [[1, 2], [4]])
    if steps < 5:
        (message,) = said()
        assert message.endswith("the schedule's window (steps 4 to 5) was not reached; 1 of 2 were recorded.")
    else:
        assert [message for message in said() if "steps 4 to 4 ran of 4 to 5" not in message] == []


def test_a_schedule_that_never_opens_says_so(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    profiler = Profiler(tmp_path, schedule=schedule(wait=5, active=2))
    profiler.step()
    profiler.stop()
    assert said("first window (steps 5 to 6) was not reached; nothing was recorded") != []
    found = profiler.analyse()
    assert "steps 5 to 6) was not reached" in str(found)
    assert len(found.steps) == len(found.operators) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_function_is_a_schedule(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    """One that leaves RECORD without saving keeps its window, with a word."""
    actions = [ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.NONE]
    profiler = Profiler(tmp_path, schedule=lambda step: actions[step % 3])
    for _ in range(6):
        profiler.step()
    profiler.stop()
    assert [one.steps for one in windows(tmp_path)] == [[1], [4]]
    assert len(said("leaves RECORD without RECORD_AND_SAVE")) == 1


def test_another_profiler_skips_windows_of_a_schedule(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    """A step never raises for it."""
    first = Profiler(tmp_path / "first")
    scheduled = Profiler(tmp_path / "second", schedule=schedule(wait=1, active=1))
    scheduled.step()
    scheduled.step()
    first.stop()
    scheduled.step()
    scheduled.step()
    scheduled.stop()
    assert [one.steps for one in windows(tmp_path / "second")] == [[3]]
    assert len(said("Another profiler records into")) == 1


def test_results_inside_of_on_trace_ready(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    """The handler may analyse the window that was just closed; it cannot start or stop, and its errors stop nothing."""
    made = fake_analysis(monkeypatch)

    def handler(profiler: Profiler) -> None:
        profiler.analyse()
        profiler.start()
        profiler.stop()
        raise ValueError("handler")

    profiler = Profiler(tmp_path, schedule=schedule(active=2), on_trace_ready=handler)
    for _ in range(4):
        profiler.step()
    profiler.stop()
    assert [one.window for one in made] == [0, 1]
    assert [one.steps for one in windows(tmp_path)] == [[0, 1], [2, 3]]
    assert len(said("on_trace_ready failed")) == 2
    assert len(said("was called inside of on_trace_ready")) == 2


# ---------------------------------------------------------------- with blocks


def test_a_with_block(device: FakeBackend, tmp_path: Path) -> None:
    """It starts what is not started, and stops; what was started at once is one window."""
    for start_profile in (True, False):
        with Profiler(tmp_path / str(start_profile), start_profile=start_profile) as profiler:
            profiler.step()
        (found,) = windows(tmp_path / str(start_profile))
        assert (found.steps, found.about["complete"]) == ([0], True)


@pytest.mark.parametrize("error", [ValueError("what"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_leaves_a_whole_trace(
    device: FakeBackend, tmp_path: Path, said: Any, error: BaseException
) -> None:
    """The caller sees it, the window is kept, says that it is not complete, and marks the step that was running."""

    def fail() -> None:
        with Profiler(tmp_path) as profiler:
            profiler.step()
            raise error

    with pytest.raises(type(error)):
        fail()
    (found,) = windows(tmp_path)
    assert found.steps == [0, 1]
    assert found.marks["duration_ns"].tolist()[-1] == -1
    assert (found.about["complete"], found.about["first_step"], found.about["last_step"]) == (False, 0, 0)
    assert found.about["reason"].startswith(type(error).__name__)
    assert len(said("is not complete")) == 1
    assert recorder._recording is None


def test_metadata_go_to_the_windows_behind_them(device: FakeBackend, tmp_path: Path) -> None:
    profiler = Profiler(tmp_path)
    profiler.add_metadata("run", "7")
    profiler.stop()
    profiler.start()
    profiler.add_metadata_json("parts", "[1, 2]")
    profiler.stop()
    assert [one.about["metadata"] for one in windows(tmp_path)] == [{"run": "7"}, {"run": "7", "parts": [1, 2]}]


def test_a_window_says_where_it_was_made(device: FakeBackend, tmp_path: Path) -> None:
    profiler = Profiler(tmp_path)
    profiler.stop()
    about = windows(tmp_path)[0].about
    assert about["pid"] == os.getpid()
    assert set(about["versions"]) == {"instrument", "mindspore", "python"}
    assert (about["mode"], about["requested"], about["reason"]) == (framework.mode(), None, "")
    assert about["start_ns"] < about["stop_ns"]
