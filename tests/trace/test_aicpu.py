"""AICPU: messages and records of what ran on the AI CPUs."""

from __future__ import annotations

import numpy as np
import pytest

from instrument.trace import data_preprocess
from instrument.trace.events import MISSING, NamedRows
from instrument.trace.text import Losses
from tests.trace import encoders_ascend as encode

UNNAMED = "Node messages without a Thread message behind them"


def decode(data: bytes) -> tuple[NamedRows, dict[str, int]]:
    losses = Losses("aicpu")
    found = data_preprocess.ai_cpu(data, losses)
    return found, {problem.what: problem.amount for problem in losses.problems()}


def test_a_thread_message_is_named_by_the_node_message_before_it() -> None:
    """The two make one task."""
    found, lost = decode(encode.messages(encode.node("GetNext", 200, 230), encode.thread(12, 20_000, 24_000)))
    assert found.names == ["GetNext"]
    names = ["operator", "thread", "run_start_us", "run_end_us", "before_cycles", "after_cycles", "dispatch_us"]
    assert found.rows[names].tolist() == [(0, 12, 200, 230, 20_000, 24_000, 10)]
    assert found.rows[["submit_cycles", "schedule_cycles", "total_us"]].tolist() == [(19_000, 19_500, 50)]
    assert lost == {}


def test_a_long_node_message_tells_the_times_inside() -> None:
    """Operators that are not MindSpore's own have three times more."""
    extra = " compute start:202, memcpy start:210, memcpy end:220,"
    found, _ = decode(encode.messages(encode.node("Default/Top-op1", 200, 230, extra), encode.thread(1, 9000, 9900)))
    assert found.names == ["Default/Top-op1"]
    assert found.rows[["compute_start_us", "memcpy_start_us", "memcpy_end_us"]].tolist() == [(202, 210, 220)]


def test_counters_behind_the_times_are_read() -> None:
    """Builds of 2021 write the counter behind the time."""
    node = "Node:A, Run tart:5 500, Run end:7 777"
    found, _ = decode(encode.messages(node, encode.thread(1, 9000, 9900)))
    assert found.rows[["run_start_us", "run_start_cycles", "run_end_cycles"]].tolist() == [(5, 500, 777)]


def test_a_thread_message_alone_is_a_task_without_a_name() -> None:
    """Some files hold no other."""
    found, lost = decode(encode.messages(encode.thread(1, 9000, 9900), "\n" + encode.thread(2, 9100, 9200)))
    assert found.rows[["operator", "thread", "run_start_us"]].tolist() == [
        (MISSING, 1, MISSING),
        (MISSING, 2, MISSING),
    ]
    assert lost == {}


def test_a_node_message_alone_is_counted() -> None:
    """It names no task: not one after another message, and not one that came before it."""
    node, thread = encode.node("A", 1, 2), encode.thread(1, 9000, 9900)
    found, lost = decode(encode.messages(node, node, thread, node, "noise", thread, node))
    assert found.rows["operator"].tolist() == [0, MISSING]
    assert lost == {UNNAMED: 3, "messages of unknown form": 1}


def test_a_message_that_does_not_end_is_cut() -> None:
    """Its last number may have been longer."""
    whole = encode.messages(encode.thread(1, 9000, 9900))
    found, lost = decode(whole + b"Thread[ 1] proc")
    assert (len(found.rows), lost) == (1, {"bytes at the end that are no whole record": 15})


def test_records_are_read() -> None:
    """The binary form names its tasks by stream and task."""
    found, lost = decode(encode.aicpu_record(3, 12, 7_000, 9_000) + encode.aicpu_record(3, 14, 10_000, 10_500))
    assert found.rows[["operator", "stream", "task", "run_start_cycles", "run_end_cycles"]].tolist() == [
        (MISSING, 3, 12, 7_000, 9_000), (MISSING, 3, 14, 10_000, 10_500),
    ]  # fmt: skip
    assert found.rows[["dispatch_us", "total_us", "thread"]].tolist() == [(5, 50, 7)] * 2
    assert lost == {}


def test_records_of_nothing_are_counted() -> None:
    """Records without the magic number, and those of tasks that never ran, are no tasks."""
    good = encode.aicpu_record(3, 12, 7_000, 9_000)
    data = good + encode.aicpu_record(3, 12, 7_000, 9_000, magic=1) + encode.aicpu_record(3, 12, 0, 9_000) + good[:100]
    found, lost = decode(data)
    assert len(found.rows) == 1
    assert lost == {
        "bytes at the end that are no whole record": 100,
        "records without the magic number": 1,
        "records of tasks that did not run": 1,
    }


@pytest.mark.parametrize("hostile", [",Run start:1" * 20_000, "Thread[" * 9000, "Node:" + "," * 60_000, "x" * 100_000])
def test_hostile_messages_take_no_time(hostile: str) -> None:
    """Messages that almost fit are given up in linear time."""
    found, lost = decode(encode.messages(hostile))
    assert (len(found.rows), lost) == (0, {"messages of unknown form": 1})


def test_cuts_and_garbage_do_no_harm(rng: np.random.Generator) -> None:
    """Each prefix of either form, and random bytes, give tasks and counts."""
    text = encode.messages(encode.node("A", 1, 2), encode.thread(1, 9000, 9900))
    records = encode.aicpu_record(1, 2, 3, 4) * 2
    for data in (text, records):
        assert [len(decode(data[:size])[0].rows) for size in range(len(data))] == sorted(
            len(decode(data[:size])[0].rows) for size in range(len(data))
        )
    decode(rng.bytes(10_000))
    decode(b"\x5a\x5a" + rng.bytes(10_000))
