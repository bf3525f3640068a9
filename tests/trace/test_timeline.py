"""What becomes of timelines in Chrome's format, and of damaged JSON."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from instrument.trace import jsontext
from instrument.trace.events import OVERLAP_KINDS, Problem
from instrument.trace.text import Losses
from instrument.trace.timeline import merged_steps, timeline
from tests.trace.encoders import EPOCH_NS, complete, damaged, decimal, dump, parsed, process, thread

EVENTS: list[dict[str, Any]] = [
    complete("Mul-op1", EPOCH_NS + 37, 1001, 3, 2, args={"Task Type": "AI_CORE", "Task Id": 4}),
    complete("NOTIFY_WAIT", EPOCH_NS, 5, 3, 2, args={"Task Type": "NOTIFY_WAIT", "Task Id": 5}),
    complete("AllReduce_0", EPOCH_NS + 1, 7, 4, 70, as_text=False),
    complete("Memcpy", EPOCH_NS + 2, 7, 4, 1, as_text=False, args={"task id": 9}),
    complete("Computing", EPOCH_NS, 20, 5, 0),
    complete("Computing", EPOCH_NS, 22, 5, 0),
    complete("Communication(Not OverLapped)", EPOCH_NS, 3, 5, 2),
    complete("Default/fc/Add-op3", EPOCH_NS + 3, 15393, 2, 0),
    complete("Default", EPOCH_NS, 99999, 6, 0),
    complete("ProfilerStep#12", EPOCH_NS, 5000, 7, 1),
    complete("launch", EPOCH_NS + 9, 50, 7, 1),
    {"ph": "s", "id": 1, "ts": "5"},
    {"ph": "f", "id": 1, "ts": "5"},
    process(3, "Ascend Hardware"),
    process(4, "HCCL"),
    thread(4, 1, "Plane 1"),
    process(5, "Overlap Analysis"),
    process(2, "CPU OP"),
    process(6, "Scope Layer"),
    process(7, "Python"),
]


@pytest.mark.parametrize(
    "wrap", [lambda events: events, lambda events: {"meta": [1], "traceEvents": events, "more": 5}]
)
def test_a_timeline(wrap: Any) -> None:
    """Both forms; times as text and as numbers are exact; events are what their process is, wherever it is named."""
    found, problems = parsed(timeline, dump(wrap(EVENTS)))
    assert [
        (found.operators[row].full_name, found.operators[row].side, *rest)
        for *rest, row in found.executions[["start_ns", "duration_ns", "stream", "task", "operator"]].tolist()
    ] == [
        ("AllReduce_0", "communication", EPOCH_NS + 1, 7, 70, -1),
        ("Default/fc/Add-op3", "CPU", EPOCH_NS + 3, 15393, 0, -1),
        ("Mul-op1", "AI Core", EPOCH_NS + 37, 1001, 2, 4),
    ]
    assert [(found.operators[row].name, task) for row, task in found.activities[["operator", "task"]].tolist()] == [
        ("NOTIFY_WAIT", 5),
        ("Memcpy", 9),
    ]
    assert [
        (found.names[name], kind, number) for name, kind, number in found.spans[["name", "kind", "number"]].tolist()
    ] == [("ProfilerStep#12", 1, 12), ("launch", 4, -1)]
    assert [(duration, OVERLAP_KINDS[kind]) for _, duration, kind in found.overlap.tolist()] == [
        (20, "computing_ns"),
        (22, "computing_ns"),
        (3, "communication_not_overlapped_ns"),
    ]
    assert found.phases == {"X": 11, "s": 1, "f": 1, "M": 7}
    assert problems == []


def step(number: int, start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    arguments = {"Iteration ID": number, "FP Start": decimal(start_ns + 1, 1000), "BP End": decimal(start_ns + 5, 1000)}
    return [
        thread(9, 9, "Step Trace(Model ID:2)"),
        complete(f"Iteration {number}", start_ns, end_ns - start_ns, 9, 9, cat="Iteration Time", args=arguments),
        complete(f"FP_BP Time {number}", start_ns + 1, 4, 9, 9, cat="FP_BP Time", args=arguments),
        complete(f"Reduce_{number}_0", start_ns + 2, 3, 9, 9, cat="Reduce", args=arguments),
    ]


def test_steps_of_timelines() -> None:
    """A step lasts from the end of the one before it; files that hold the same steps, or one each, give each once."""
    both = parsed(timeline, dump(step(1, 100, 200) + step(2, 230, 300)))[0]
    assert both.steps.tolist() == [(1, 100, 101, 105, 200, 2), (2, 200, 231, 235, 300, 2)]
    single = [
        parsed(timeline, dump(step(number, start, end)))[0] for number, start, end in ((2, 230, 300), (1, 100, 200))
    ]
    for files in ([both, both], single):
        names, steps, reduces = merged_steps(files)
        assert names == ["Reduce 0"]
        assert steps.tolist() == both.steps.tolist()
        assert reduces.tolist() == [(1, -1, 0, 102, 3), (2, -1, 0, 232, 3)]


def test_a_cut_timeline() -> None:
    """Wherever it is cut, what is whole is there, and what is lost is told."""
    data = dump(EVENTS[13:] + EVENTS[:13])
    whole = {row[:2] for row in parsed(timeline, data)[0].executions.tolist()}
    for length in range(0, len(data), 3):
        found, problems = parsed(timeline, data[:length])
        assert {row[:2] for row in found.executions.tolist()} <= whole
        assert problems or not length


@pytest.mark.parametrize("name", ['a"b', "a\\b", "tab\t", "算子", "</script>", "", "x\ny"])
def test_odd_names(name: str) -> None:
    """Names come back as they are."""
    assert parsed(timeline, dump([complete(name, 5000, 5, 7, 1)]))[0].names == [name]


def test_odd_bytes() -> None:
    """Raw control characters are read; what is no UTF-8 is replaced and counted."""
    data = dump([complete("NAME", 5000, 5, 7, 1)])
    assert parsed(timeline, data.replace(b"NAME", b"a\tb\x01"))[0].names == ["a\tb\x01"]
    found, problems = parsed(timeline, data.replace(b"NAME", b"a\xff\xfe"))
    assert found.names == ["a\ufffd\ufffd"]
    assert problems == [Problem("f", "bytes that are no UTF-8", 2)]


def test_events_that_are_none() -> None:
    """Elements without a phase, events that only begin, events without times."""
    events = [
        5,
        {"a": 1},
        {"ph": "B", "ts": 1},
        {"ph": "X", "name": "a", "ts": "x", "dur": 1},
        {"ph": "X", "name": "a", "ts": 5},
    ]
    found, problems = parsed(timeline, json.dumps(events).encode())
    assert len(found.spans) == 0
    assert {problem.what: problem.amount for problem in problems} == {
        "elements that are no events": 2,
        "events that only begin or end": 1,
        "cells of ts that hold no number": 1,
        "cells of dur that say N/A": 1,
    }


def test_a_damaged_element_costs_itself() -> None:
    """What follows it is read."""
    losses = Losses("f")
    data = b'[{"a": 1}, {"b": tru, "c": 5}, {"d": 4}, {"e": "' + b"9" * 20 + b'"}]'
    assert list(jsontext.elements(data, losses)) == [{"a": 1}, {"d": 4}, {"e": "9" * 20}]
    assert [problem.what for problem in losses.problems()] == ["bytes of damaged elements"]


@pytest.mark.parametrize(
    "data",
    [
        b'[{"a":' * 100_000,
        b"[" * 300_000,
        b'{"' * 200_000,
        b'[{"a":' + b"9" * 10_000 + b"}]",
        b'[{"a":[' + b"1," * 300_000,
        b'["' + b'\\"{' * 200_000,
    ],
)
def test_hostile_json_takes_linear_time(data: bytes) -> None:
    """Deep nesting, endless strings, numbers of thousands of digits."""
    started = time.process_time()
    losses = Losses("f")
    list(jsontext.elements(data, losses, "traceEvents"))
    assert losses.problems()
    assert time.process_time() - started < 10


def test_large_lists_are_read_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the windows end does not show, also in the midst of a character."""
    values = [{"n": number, "text": "é算" * (number % 5)} for number in range(300)]
    monkeypatch.setattr(jsontext, "LONGEST_ELEMENT", 100)
    for size in (7, 64, 1000):
        monkeypatch.setattr(jsontext, "_READ", size)
        losses = Losses("f")
        data = json.dumps({"other": {}, "traceEvents": values, "x": 1}, ensure_ascii=False).encode()
        assert list(jsontext.elements(data, losses, "traceEvents")) == values
        assert losses.problems() == []


def test_hostile_timelines(rng: np.random.Generator) -> None:
    """Nothing that a file may hold is an error."""
    for broken in damaged(dump(EVENTS + step(1, 5, 9)), rng, 150):
        found = parsed(timeline, broken)[0]
        assert (found.executions["operator"] < max(len(found.operators), 1)).all()
        merged_steps([found, found])
