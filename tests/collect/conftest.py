"""MindSpore comes first: before protobuf, which 2.7 to 2.9 do not survive otherwise. Without it nothing here runs."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable

import pytest

collect_ignore_glob: list[str] = []

if importlib.util.find_spec("mindspore") is not None:
    import mindspore

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
else:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """What the package's logger said so far, from `level` on; with `part` only messages that contain it."""
    caplog.set_level(logging.INFO, logger="instrument")

    def messages(part: str = "", level: int = logging.WARNING) -> list[str]:
        found = [record for record in caplog.records if record.name == "instrument" and record.levelno >= level]
        return [record.getMessage() for record in found if part in record.getMessage()]

    return messages
