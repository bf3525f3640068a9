"""How long a window may be, and what its steps wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instrument.profiler.profiler import Profiler
from instrument.profiler.schedule import schedule
from tests.profiler.fake import FakeBackend, windows


@pytest.mark.parametrize("given", [None, schedule(wait=1, active=100)])
def test_a_window_ends_with_its_last_allowed_step(device: FakeBackend, tmp_path: Path, said: Any, given: Any) -> None:
    """`max_steps` closes it, says so and marks it as incomplete; a schedule ends with it."""
    profiler = Profiler(tmp_path, schedule=given, max_steps=10)
    for _ in range(30):
        profiler.step()
    profiler.stop()
    (found,) = windows(tmp_path)
    first = 0 if given is None else 1
    assert found.steps == list(range(first, first + 10))
    assert [found.about["complete"], "max_steps=10 was reached" in found.about["reason"]] == [False, True]
    assert len(said("max_steps=10 was reached")) == 1


def test_a_long_window_is_warned_of(
    device: FakeBackend, tmp_path: Path, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with what to do about it."""
    monkeypatch.setattr("instrument.profiler.recorder.MANY_STEPS", 5)
    with Profiler(tmp_path) as profiler:
        for _ in range(20):
            profiler.step()
    (message,) = said()
    assert "open for 5 steps" in message
    assert "max_steps" in message
    (found,) = windows(tmp_path)
    assert found.steps == list(range(20))


def test_a_step_waits_for_its_operators(device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In PyNative mode they run behind Python's back: only while a window is open `step` waits for them."""
    from instrument import framework

    waits: list[int] = []
    profiler = Profiler(tmp_path, schedule=schedule(wait=2, active=2, repeat=1))
    monkeypatch.setattr(framework, "wait_for_operators", lambda: waits.append(profiler.step_num))
    for _ in range(6):
        profiler.step()
    assert waits == [2, 2, 3, 4]  # opened, two steps, closed
    profiler.stop()
