"""What is drawn of a capture, and in which process and lane."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np

from instrument.analyse import chrome_trace
from instrument.trace.events import (
    BATCH,
    CPU,
    FETCH,
    MEMORY,
    MISSING,
    SPAN_CALLBACK,
    SPAN_EPOCH,
    SPAN_FRAMEWORK,
    SPAN_STEP,
    SPAN_USER,
    Operator,
)
from tests.analyse.build import T0, capture, executions, operator, reduces, steps, training
from tests.analyse.chrome import lanes_of, loaded, spans, written


def test_spans_nest_by_thread(tmp_path: Path) -> None:
    """Marks of steps, epochs and callbacks and the user's spans are drawn in their thread, one within the other."""
    rows = spans(
        (T0, 1000, 0, SPAN_EPOCH, 5, 1),
        (T0 + 10, 400, 1, SPAN_STEP, 5, 7),
        (T0 + 10, 50, 2, SPAN_USER, 5, MISSING),
        (T0 + 20, 10, 3, SPAN_CALLBACK, 5, MISSING),
        (T0 + 30, 10, 2, SPAN_USER, 6, MISSING),
        (T0 + 40, 10, 4, SPAN_FRAMEWORK, 5, MISSING),
    )
    names = ("epoch", "step", "augment", "SummaryCollector", "launch")
    trace = written(tmp_path, capture(spans=rows, names=names))
    assert lanes_of(trace) == {
        "CPU 0/spans, thread 5": [
            ("epoch 1", 0, 1000), ("ProfilerStep#7", 10, 400), ("augment", 10, 50), ("SummaryCollector", 20, 10),
        ],
        "CPU 0/spans, thread 6": [("augment", 30, 10)],
        "CPU 0/framework, thread 5": [("launch", 40, 10)],
    }  # fmt: skip
    categories = {event["cat"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert categories == {"epoch", "step", "span", "callback", "framework"}


def test_an_open_span_lasts_until_the_end(tmp_path: Path) -> None:
    """A step that was cut short is drawn until the last thing that is known, and says that it was open."""
    rows = spans((T0, MISSING, 0, SPAN_STEP, 1, 3), (T0 + 100, MISSING, 0, SPAN_USER, 1, MISSING))
    trace = written(tmp_path, capture([operator("a", CPU)], executions((T0 + 50, 200, 0)), spans=rows, names=("s",)))
    assert lanes_of(trace)["CPU 0/spans, thread 1"] == [("ProfilerStep#3", 0, 250), ("s", 100, 150)]
    is_open = [event["args"].get("open") for event in trace["traceEvents"] if event.get("cat") in ("step", "span")]
    assert is_open == [True, True]


def test_steps_of_a_device_have_their_parts(tmp_path: Path) -> None:
    """Each step holds its interval, forward and backward, and tail; those that are not known or empty are not drawn."""
    rows = steps(
        (1, T0, T0, T0 + 60, T0 + 100),
        (2, T0 + 100, T0 + 130, T0 + 180, T0 + 200),
        (3, T0 + 200, MISSING, MISSING, T0 + 300),
        (4, T0 + 300, T0 + 390, T0 + 310, T0 + 400),
        (5, 0, MISSING, MISSING, 0),
        (6, T0 + 500, MISSING, MISSING, T0 + 450),
    )
    result = chrome_trace.write([capture(steps=rows, target="ascend")], tmp_path / "trace.json")
    assert lanes_of(loaded(tmp_path / "trace.json")) == {
        "Ascend 0/steps": [
            ("ProfilerStep#1", 0, 100), ("forward and backward", 0, 60), ("tail", 60, 40),
            ("ProfilerStep#2", 100, 100), ("iteration interval", 100, 30), ("forward and backward", 130, 50),
            ("tail", 180, 20),
            ("ProfilerStep#3", 200, 100),
            ("ProfilerStep#4", 300, 100), ("iteration interval", 300, 90),
        ]
    }  # fmt: skip
    assert result.left_out == {"steps that end before they start": 2}


def test_overlapping_steps_keep_their_parts(tmp_path: Path) -> None:
    """Where a step begins before the one before it ends, its parts are drawn in its own lane."""
    rows = steps((1, T0, T0, T0 + 60, T0 + 100), (2, T0 + 90, T0 + 95, T0 + 150, T0 + 200))
    found = lanes_of(written(tmp_path, capture(steps=rows, target="gpu")))
    assert found["GPU 0/steps"] == [("ProfilerStep#1", 0, 100), ("forward and backward", 0, 60), ("tail", 60, 40)]
    assert found["GPU 0/steps (2)"][:2] == [("ProfilerStep#2", 90, 110), ("iteration interval", 90, 5)]


def test_steps_of_the_host_get_parts_from_scopes(tmp_path: Path) -> None:
    """On the CPU the parts come from the operators."""
    found = lanes_of(written(tmp_path, training(count=2, interval=10, forward=20, backward=30, tail=5)))
    assert found["CPU 0/steps"] == [
        ("ProfilerStep#1", 0, 65), ("iteration interval", 0, 10), ("forward and backward", 10, 50), ("tail", 60, 5),
        ("ProfilerStep#2", 65, 65), ("iteration interval", 65, 10), ("forward and backward", 75, 50), ("tail", 125, 5),
    ]  # fmt: skip


def test_marks_are_not_drawn_twice(tmp_path: Path) -> None:
    """Steps that are nothing but the marks of the host are in its thread only."""
    marks = spans((T0, 100, 0, SPAN_STEP, 1, 1), (T0 + 100, 100, 0, SPAN_STEP, 1, 2))
    rows = steps((1, T0, MISSING, MISSING, T0 + 100), (2, T0 + 100, MISSING, MISSING, T0 + 200))
    found = lanes_of(written(tmp_path, capture(spans=marks, steps=rows, names=("step",))))
    assert found == {"CPU 0/spans, thread 1": [("ProfilerStep#1", 0, 100), ("ProfilerStep#2", 100, 100)]}


def test_operators_activities_and_communication_by_stream(tmp_path: Path) -> None:
    """Each stream is a lane; what is below the operators is a process of its own; the host's own nest."""
    operators = [operator("a", "AI Core"), operator("b", "AI CPU"), operator("c", CPU), operator("d", CPU)]
    rows = executions((T0, 10, 0, 3), (T0 + 5, 10, 0, 4), (T0, 10, 1, 3), (T0, 50, 2, 9), (T0 + 10, 10, 3, 9))
    one = capture(
        operators, rows, activities=executions((T0, 4, 0, 3), (T0 + 4, 4, 1, MISSING)), target="ascend",
        reduces=reduces((1, 8, T0 + 2, 6)), names=("AllReduce-op1",),
        fetches=np.array([(MISSING, MISSING, T0 + 1, 3, 0), (MISSING, MISSING, T0 + 6, 2, MISSING)], FETCH),
    )  # fmt: skip
    trace = written(tmp_path, one)
    assert lanes_of(trace) == {
        "Ascend 0/AI Core, stream 3": [("a", 0, 10)],
        "Ascend 0/AI Core, stream 4": [("a", 5, 10)],
        "Ascend 0/AI CPU, stream 3": [("b", 0, 10)],
        "host of Ascend 0/CPU, thread 9": [("c", 0, 50), ("d", 10, 10)],
        "Ascend 0/communication, stream 8": [("AllReduce-op1", 2, 6)],
        "Ascend 0/data queue": [("get next", 1, 3), ("get next", 6, 2)],
        "Ascend 0, below the operators/activities, stream 3": [("a", 0, 4)],
        "Ascend 0, below the operators/activities": [("b", 4, 4)],
    }
    fetched = [event["args"] for event in trace["traceEvents"] if event["name"] == "get next" and "args" in event]
    assert fetched == [{"queue_size": 0}]


def test_arguments_say_what_an_operator_is(tmp_path: Path) -> None:
    """Full name, type, shapes of its inputs and step, where they are known."""
    operators = [Operator("Default/net/MatMul-op1", "MatMul-op1", "MatMul", CPU, "[2, 3]"), Operator("b", "b", "", CPU)]
    trace = written(tmp_path, capture(operators, executions((T0, 5, 0, 0, 12), (T0 + 5, 5, 1), (T0 + 10, 5, 0))))
    assert [event.get("args") for event in trace["traceEvents"] if event["ph"] == "X"] == [
        {"full_name": "Default/net/MatMul-op1", "type": "MatMul", "shapes": "[2, 3]", "step": 12},
        None,
        {"full_name": "Default/net/MatMul-op1", "type": "MatMul", "shapes": "[2, 3]"},
    ]


def test_memory_and_queues_are_counters(tmp_path: Path) -> None:
    """Sizes by time; what is not known is no value. Batches lead up to the moment when they were there."""
    memory = np.array([(T0 + 50, 8, 16, MISSING), (T0, 4, MISSING, MISSING), (0, 1, 1, 1)], MEMORY)
    batches = np.zeros(2, BATCH)
    batches["time_ns"], batches["batch"], batches["total_ns"] = (T0 + 20, T0 + 40), (1, 2), (20, MISSING)
    batches["queue_size"] = 3, 0
    one = capture(memory=memory, batches=batches, metadata={"batches_clock": "epoch"})
    result = chrome_trace.write([one], tmp_path / "trace.json")
    trace = loaded(tmp_path / "trace.json")
    counters = [(e["name"], e["ts"], e["args"]) for e in trace["traceEvents"] if e["ph"] == "C"]
    assert counters == [
        ("queue", Decimal("0.020"), {"queue_size": 3}),
        ("queue", Decimal("0.040"), {"queue_size": 0}),
        ("memory", 0, {"allocated_bytes": 4}),
        ("memory", Decimal("0.050"), {"allocated_bytes": 8, "reserved_bytes": 16}),
    ]
    assert lanes_of(trace) == {"data pipeline of CPU 0/batches": [("batch 1", 0, 20)]}
    assert result == chrome_trace.Written(5, {"zero_timestamp": 1})


def test_batches_of_another_clock_are_counted(tmp_path: Path) -> None:
    """Without an anchor they cannot be put on the axis."""
    one = capture([operator("a")], executions((T0, 5, 0)), batches=np.zeros(3, BATCH), clock="epoch",
                  metadata={"batches_clock": "monotonic"})  # fmt: skip
    assert chrome_trace.write([one], tmp_path / "t.json").left_out == {"batches on another clock than the rest": 3}
