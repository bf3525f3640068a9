"""What becomes of our own raw files."""

from __future__ import annotations

import json

import numpy as np

from instrument.trace import marks
from instrument.trace.events import SPAN_CALLBACK, SPAN_EPOCH, SPAN_STEP, SPAN_USER, Problem
from instrument.trace.jsontext import mapping
from tests.trace.encoders import EPOCH_NS, damaged, mark, parsed

NAMES = ["step", "augment", "épisode"]


def test_marks_and_names() -> None:
    """Spans come by start, with thread and number; one that is still open has no duration."""
    data = (
        mark(EPOCH_NS + 9, -1, 2, SPAN_EPOCH, 1)
        + mark(EPOCH_NS + 5, 37, 0, SPAN_STEP, 7, thread=2**40)
        + mark(EPOCH_NS, 11, 1, SPAN_USER)
    )
    names, problems = parsed(marks.names, json.dumps(NAMES).encode(), "n")
    found, problems = parsed(marks.marks, memoryview(data), "f", names)
    assert (names, problems, problems) == (NAMES, [], [])
    assert found.names == NAMES
    assert found.rows.tolist() == [
        (EPOCH_NS, 11, 1, SPAN_USER, 1, -1),
        (EPOCH_NS + 5, 37, 0, SPAN_STEP, 2**40, 7),
        (EPOCH_NS + 9, -1, 2, SPAN_EPOCH, 1, 1),
    ]


def test_steps_of_marks() -> None:
    """Steps that have ended, and nothing else, are steps."""
    data = mark(5, 10, 0, SPAN_STEP, 3) + mark(15, -1, 0, SPAN_STEP, 4) + mark(1, 100, 0, SPAN_CALLBACK)
    assert marks.steps(parsed(marks.marks, data, "f", NAMES)[0].rows).tolist() == [(3, 5, -1, -1, 15, -1)]


def test_what_marks_may_lack() -> None:
    """Unknown kinds, impossible times and a cut record are counted; a mark without a name is kept."""
    data = b"".join(
        (
            mark(5, 10, 0, 9),
            mark(5, -2, 0, 0),
            mark(-5, 2, 0, 0),
            mark(2**62, 2, 0, 0),
            mark(5, 2**62, 0, 0),
            mark(5, 10, 3, 0),
            b"1234567",
        )
    )
    found, problems = parsed(marks.marks, data, "f", NAMES)
    assert found.names == [*NAMES, "?"]
    assert found.rows["name"].tolist() == [3]
    assert problems == [
        Problem("f", "bytes of a mark that is cut off", 7),
        Problem("f", "marks of an unknown kind or with impossible times", 5),
        Problem("f", "marks without a name", 1),
    ]


def test_cut_names_keep_their_numbers() -> None:
    """Names before the cut are right; those behind are none."""
    data = json.dumps(NAMES).encode()
    for length in range(len(data)):
        names, problems = parsed(marks.names, data[:length], "n")
        assert names == NAMES[: len(names)]
        assert problems or not length
    names, problems = parsed(marks.names, b'["a", x, "b"]', "n")
    assert names == ["a"]
    assert problems


def test_window() -> None:
    """A window is what it says; a damaged one is empty, and its bytes are counted."""
    assert parsed(mapping, b'{"rank": 3, "complete": true}', "w") == ({"rank": 3, "complete": True}, [])
    assert parsed(mapping, b'{"rank": 3, "comp', "w") == ({}, [Problem("w", "no JSON: bytes not read", 17)])
    assert parsed(mapping, b"[1]", "w") == ({}, [Problem("w", "no JSON object: bytes not read", 3)])


def test_hostile_files(rng: np.random.Generator) -> None:
    """Nothing that a file may hold is an error."""
    for data in (mark(5, 10, 0, 1) * 4, json.dumps(NAMES).encode(), b'{"rank": 3, "user": {"a": [1, 2.5]}}'):
        for broken in damaged(data, rng, 200):
            marks.steps(parsed(marks.marks, broken, "f", NAMES)[0].rows)
            parsed(marks.names, broken)
            parsed(mapping, broken)
