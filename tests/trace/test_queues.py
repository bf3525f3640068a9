"""The queues between host and device: TDT, DP and AICPUMI."""

from __future__ import annotations

import numpy as np
import pytest

from instrument.trace import data_preprocess
from instrument.trace.events import Rows
from instrument.trace.text import Losses
from tests.trace import encoders_ascend as encode


def pushes(data: bytes) -> tuple[Rows, dict[str, int]]:
    losses = Losses("queue")
    found = data_preprocess.pushes(data, losses)
    return found, {problem.what: problem.amount for problem in losses.problems()}


def fetches(data: bytes) -> tuple[Rows, dict[str, int]]:
    losses = Losses("queue")
    found = data_preprocess.fetches(data, losses)
    return found, {problem.what: problem.amount for problem in losses.problems()}


@pytest.mark.parametrize("action", ["Enqueue data to dp", "Last queue dequeue"])
def test_messages_of_both_files_are_read(action: str) -> None:
    """TDT and DP say when which element came, and how many waited; a source may hold commas."""
    found, lost = pushes(
        encode.messages(*(f"[{50 + n}] {action}, source:a, b, index:{n}, size:{9 - n}" for n in (1, 2)))
    )
    assert found.tolist() == [(51, 1, 8), (52, 2, 7)]
    assert lost == {}


def test_messages_of_other_actions_are_counted() -> None:
    """Only the two actions tell an element; other messages are told apart from noise."""
    other = "[5] Queue pop, source:a, index:1, size:2"
    found, lost = pushes(encode.messages(other, "noise", f"[{10**19}] Enqueue data to dp, source:a, index:1, size:1"))
    assert len(found) == 0
    assert lost == {"messages of other actions": 1, "messages of unknown form": 2}


def test_records_of_dp_are_read() -> None:
    """The binary form holds the same; a record without the magic number is counted."""
    data = encode.dp_record(100, "q1", 1, 5) + encode.dp_record(110, "q2", 2, 0) + bytes(128) + b"\x5a"
    found, lost = pushes(data)
    assert found.tolist() == [(100, 1, 5), (110, 2, 0)]
    assert lost == {"bytes at the end that are no whole record": 1, "records without the magic number": 1}


def test_the_size_of_the_queue_stands_before_or_behind_the_times() -> None:
    """Both orders of AICPUMI are read; a message with both or neither is none."""
    before, behind = "queue size:3, ", ", queue size:4"
    texts = [f"Node:Get, {first}Run start:10, Run end:12{last}" for first in ("", before) for last in ("", behind)]
    found, lost = fetches(encode.messages(*texts))
    assert found.tolist() == [(10, 12, 4), (10, 12, 3)]
    assert lost == {"messages of unknown form": 2}


def test_the_table_made_of_it_is_read() -> None:
    """A line holds the operator, start, end and size."""
    losses = Losses("table")
    found = data_preprocess.fetch_table(b"GetNext_dequeue_wait 100 110 3\nnoise\nGetNext 5 6 0\nGetNext 7 8 1", losses)
    assert found.tolist() == [(100, 110, 3), (5, 6, 0)]
    assert {problem.what: problem.amount for problem in losses.problems()} == {
        "lines of unknown form": 1,
        "bytes at the end that are no whole record": 13,
    }


def test_empty_files_hold_nothing() -> None:
    """An empty file is no damage."""
    assert (len(pushes(b"")[0]), pushes(b"")[1]) == (0, {})
    assert (len(fetches(b"")[0]), fetches(b"")[1]) == (0, {})


def test_cuts_and_garbage_do_no_harm(rng: np.random.Generator) -> None:
    """Each prefix of a file, and random bytes, give what is whole, and counts."""
    text = encode.messages(*(f"[{n}] Enqueue data to dp, source:a, index:{n}, size:1{n}" for n in (1, 2)))
    assert [len(pushes(text[:size])[0]) for size in (50, 51, 52, len(text))] == [0, 1, 1, 2]
    records = encode.dp_record(1, "a", 1, 1) * 2
    assert [len(pushes(records[:size])[0]) for size in (2, 127, 128, 256)] == [0, 0, 1, 2]
    for data in (rng.bytes(10_000), b"\x5a\x5a" + rng.bytes(10_000), b"Node:" + b"," * 60_000 + b"\0"):
        pushes(data)
        fetches(data)
