"""MindSpore comes first, as for the recorders. Devices are fakes unless a test trains for real."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator

import pytest

collect_ignore_glob: list[str] = []

if importlib.util.find_spec("mindspore") is not None:
    import mindspore

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)

    from tests.profiler.fake import FakeBackend
else:
    collect_ignore_glob = ["test_*.py", "fake.py"]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """What the package's logger said so far, from warnings on; with `part` only messages that contain it."""
    caplog.set_level(logging.INFO, logger="instrument")

    def messages(part: str = "") -> list[str]:
        found = [
            record for record in caplog.records if record.name == "instrument" and record.levelno >= logging.WARNING
        ]
        return [record.getMessage() for record in found if part in record.getMessage()]

    return messages


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    """An Ascend device that is a fake: each window leaves the files that it was told."""
    from instrument import framework, marks
    from instrument.profiler import backends, options, recorder

    fake = FakeBackend()
    monkeypatch.setattr(backends, "maker", lambda target: lambda given: fake)
    monkeypatch.setattr(framework, "device_target", lambda: "Ascend")
    monkeypatch.setattr(options, "_said", set())
    yield fake
    for left in list(recorder._begun):  # a test that failed inside a window must not spoil the next one
        recorder._begun.discard(left)
    recorder._recording = None
    marks.close_window()
