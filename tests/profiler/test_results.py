"""What a profiler answers with: analyses, timelines, and what stands in the way of them."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any, NoReturn

import pytest

from instrument import tensorboard_trace_handler
from instrument.profiler.profiler import Profiler
from instrument.profiler.schedule import schedule
from tests.profiler.fake import FakeBackend, FakeProfile, fake_analysis


def test_results_come_from_the_analysis(device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call closes what is open and asks the analysis for the latest window of the event file."""
    made = fake_analysis(monkeypatch)
    profiler = Profiler(tmp_path)
    profile = profiler.analyse(pretty=True, step_list=[3, 2])
    (path,) = tmp_path.iterdir()
    assert (profile.path, profile.window) == (str(path), 0)
    assert profile.calls == [("of_steps", 2, 3), ("save", str(tmp_path), True)]
    profiler.start()
    assert profiler.op_analyse(["Conv2D"], 0) == '[["Conv2D"], 0]'
    assert made[-1].window == 1
    assert profiler.key_averages().table(sort_by="total", row_limit=3) == "total 3"
    profiler.export_chrome_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == "{}"
    assert profiler.analyse(offline_path=path).window == -1
    found = Profiler.offline_analyse(tmp_path)
    assert (found.path, found.calls) == (str(tmp_path), [("save", str(tmp_path), False)])


def test_a_profile_that_cannot_be_saved_is_there(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    """A full disk at the end of a training does not end the script."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fake_analysis(monkeypatch)
    monkeypatch.setattr(FakeProfile, "save", fail)
    profiler = Profiler(tmp_path)
    assert profiler.analyse().window == 0
    assert said() == [f"Profiler: the profile cannot be saved in {tmp_path}: No space left on device"]
    assert Profiler.offline_analyse(tmp_path).window == -1


@pytest.mark.parametrize("use_gzip", [False, True])
def test_a_handler_exports_the_timeline(
    device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_gzip: bool
) -> None:
    """One file a window, named as torch names it, in a directory that is made."""
    fake_analysis(monkeypatch)
    handler = tensorboard_trace_handler(tmp_path / "timelines", "worker", use_gzip)
    profiler = Profiler(tmp_path / "run", schedule=schedule(active=1, repeat=2), on_trace_ready=handler)
    for _ in range(2):
        profiler.step()
    end = r"\.gz" if use_gzip else ""
    names = [path.name for path in (tmp_path / "timelines").iterdir()]
    assert len(names) == 2
    assert all(re.fullmatch(rf"worker\.\d+\.pt\.trace\.json{end}", name) for name in names)


def test_wrong_questions(device: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_analysis(monkeypatch)
    profiler = Profiler(tmp_path)
    with pytest.raises(ValueError, match="mode is 'later'"):
        profiler.analyse(mode="later")
    with pytest.raises(ValueError, match=r"step_list is \[1, 3\]; expected consecutive"):
        profiler.analyse(step_list=[1, 3])
    scheduled = Profiler(tmp_path / "scheduled", schedule=schedule(wait=3, active=1))
    with pytest.raises(RuntimeError, match="no window was recorded yet; the schedule is at step 0"):
        scheduled.analyse()
    scheduled.stop()


@pytest.mark.parametrize("wrong", ["12", 3, [1.5], [None], [True]])
def test_a_step_list_that_is_none(device: FakeBackend, tmp_path: Path, wrong: Any) -> None:
    with Profiler(tmp_path) as profiler:
        pass
    with pytest.raises(TypeError, match="step_list is "):
        profiler.analyse(step_list=wrong)
