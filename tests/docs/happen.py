"""Make a message happen, and see that it is said in the words of docs/messages.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.docs.test_messages import listed

KNOWN = set(listed())


def said(action: Callable[[], Any], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What an action raises, logs and prints on stderr."""
    caplog.set_level("DEBUG", logger="instrument")
    texts = []
    try:
        action()
    except Exception as error:  # noqa: BLE001  whatever it is, its text is looked at
        texts.append(str(error))
        if isinstance(error, KeyError):
            texts.append(str(error.args[0]))
    texts += [record.getMessage() for record in caplog.records if record.name == "instrument"]
    return [*texts, capsys.readouterr().err]


def is_said(template: str, texts: list[str]) -> bool:
    """Whether a text has the message, with anything in place of what is filled in."""
    assert template in KNOWN, f"docs/messages.md has no {template!r}"
    pattern = ".*?".join(re.escape(part) for part in template.split("…"))
    return any(re.search(pattern, " ".join(text.split())) for text in texts)
