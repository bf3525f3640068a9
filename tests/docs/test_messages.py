"""docs/messages.md has every message of the package, and none that it does not have."""

from __future__ import annotations

import re

from tests.docs import messages
from tests.docs.messages import ROOT

PAGE = ROOT / "docs" / "messages.md"

PLACES = list(messages.Collector(messages.modules()).places())


def listed() -> list[str]:
    """The messages in the first column of the page's tables."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            first = re.split(r"(?<!\\)\|", line)[1].replace("\\|", "|")
            found += [re.sub(r"^(`+) ?(.*?) ?\1$", r"\2", one.strip()) for one in first.split("<br>")]
    return found


def test_every_message_is_on_the_page() -> None:
    """What is raised, logged or printed as an error, from wherever its text comes."""
    known = set(listed())
    missing = {text: f"{place.file}:{place.line}" for place in PLACES for text in place.texts if text not in known}

    assert len(known) > 400
    assert missing == {}, "put these into a row of docs/messages.md, with cause and cure"


def test_the_page_has_no_message_that_the_package_lacks() -> None:
    """And none twice."""
    found = listed()

    assert sorted(set(found) - {text for place in PLACES for text in place.texts}) == []
    assert sorted(text for text in set(found) if found.count(text) > 1) == []


def test_every_message_has_a_cause_and_what_to_do() -> None:
    """Except beginnings of other messages, and information."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[2:4]] for line in rows]

    assert len(rows) > 100
    assert [cause for cause, _ in cells if not cause] == []
    assert {cause for cause, cure in cells if not cure} == {
        cause for cause, _ in cells if cause.startswith(("Messages of the profiler", "Information:"))
    }
