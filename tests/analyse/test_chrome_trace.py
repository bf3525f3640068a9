"""The timeline: a Chrome trace that says exactly what the capture holds."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from instrument.analyse import chrome_trace
from instrument.trace.events import CPU, MISSING, SPAN_USER, Operator, Problem
from instrument.trace.files import from_directory
from instrument.trace.load import captures
from tests.analyse.build import T0, capture, executions, operator, profile_of, training
from tests.analyse.chrome import lanes_of, loaded, spans, written

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "samples"


# ---------------------------------------------------------------- times


def test_nanoseconds_are_exact(tmp_path: Path) -> None:
    """Epoch times with gaps of 37 ns come out as numbers relative to the start, and the start is in the file (D-49)."""
    rows = executions(*((T0 + 37 * place, 36, 0, 3, MISSING) for place in range(5000)))
    trace = written(tmp_path, capture([operator("a")], rows))
    (lane,) = lanes_of(trace).values()
    assert lane == [("a", 37 * place, 36) for place in range(5000)]
    assert trace["baseTimeNanoseconds"] == T0
    as_floats = json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
    starts = [event["ts"] for event in as_floats if event["ph"] == "X"]
    assert [round(start * 1000) for start in starts] == [37 * place for place in range(5000)]


def test_captures_of_the_wall_clock_share_an_axis(tmp_path: Path) -> None:
    """Two ranks are moved by the same amount; a counter of a device without an anchor begins at its own zero."""
    first = capture([operator("a")], executions((T0 + 500, 10, 0)), device=0)
    second = capture([operator("b")], executions((T0 + 200, 10, 0)), device=1)
    third = capture([operator("c")], executions((77_000, 10, 0)), device=2, clock="device", target="ascend")
    trace = written(tmp_path, first, second, third)
    assert lanes_of(trace) == {
        "CPU 0/AI Core, stream 0": [("a", 300, 10)],
        "CPU 1/AI Core, stream 0": [("b", 0, 10)],
        "Ascend 2 (not aligned: device clock)/AI Core, stream 0": [("c", 0, 10)],
    }
    assert trace["otherData"]["alignment"].startswith(
        "The clocks of these devices cannot be aligned with the wall clock: 2 (device)."
    )
    assert chrome_trace.alignment([first, third]) in str(profile_of(first, third)).replace("\n", " ")
    assert chrome_trace.alignment([first, second]) == chrome_trace.alignment([third]) == ""
    assert [one["base_ns"] for one in trace["otherData"]["captures"]] == [T0 + 200, T0 + 200, 77_000]


def test_impossible_events_are_left_out_and_counted(tmp_path: Path) -> None:
    """Events without a start, without an end, with a negative or endless duration are not drawn."""
    good = [(T0 + 10 * place, 5, 0) for place in range(100)]
    bad = [(0, 0, 0)] * 5 + [(T0 + 50, -3, 0)] * 2 + [(T0 + 60, MISSING, 0), (T0 + 70, 10**16, 0)]
    path = tmp_path / "trace.json"
    result = chrome_trace.write([capture([operator("a")], executions(*bad, *good))], path)
    assert result == chrome_trace.Written(100, {"zero_timestamp": 5, "open": 1, "negative": 2, "too_long": 1})
    trace = loaded(path)
    (lane,) = lanes_of(trace).values()
    assert (len(lane), lane[0], lane[-1]) == (100, ("a", 0, 5), ("a", 990, 5))
    assert trace["baseTimeNanoseconds"] == T0
    assert trace["otherData"]["left_out"] == result.left_out


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "tab\t", "\udcff\udcfe", "算子", "</script>", "", "\x00\x1f\x7f\u2028"]
)
def test_any_name_is_valid_json(tmp_path: Path, name: str) -> None:
    """Quotes, control characters, bytes that are no text and other scripts come through the encoder (D-42)."""
    one = capture(
        [Operator(name, name, name, CPU, name)], executions((T0, 5, 0)), names=(name,),
        spans=spans((T0, 9, 0, SPAN_USER, 1, MISSING)), problems=(Problem(name, name, 1),),
        metadata={"metadata": {name: math.nan, "b": [name, math.inf]}},
    )  # fmt: skip
    trace = written(tmp_path, one)
    shown = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
    readable = name.encode("utf-8", "replace").decode()
    assert shown == [readable, readable]
    assert trace["otherData"]["captures"][0]["metadata"] == {readable: "nan", "b": [readable, "inf"]}


def test_compressed_is_the_same(tmp_path: Path) -> None:
    """`.gz` holds the same bytes."""
    one = training()
    chrome_trace.write([one], tmp_path / "a.json")
    chrome_trace.write([one], str(tmp_path / "b.json.gz"))
    assert gzip.decompress((tmp_path / "b.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()


def test_nothing_is_a_trace_too(tmp_path: Path) -> None:
    """No capture, or one without anything: valid, and empty."""
    assert written(tmp_path)["traceEvents"] == []
    assert written(tmp_path, capture())["traceEvents"] == []


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is replaced when the new one is whole; a part of it stays nowhere."""
    path = tmp_path / "trace.json"
    path.write_text("old")

    def fail(*_: object) -> NoReturn:
        raise OSError("disk full")

    monkeypatch.setattr(chrome_trace, "_microseconds", fail)
    with pytest.raises(OSError, match="disk full"):
        chrome_trace.write([training()], path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["trace.json"]
    with pytest.raises(FileNotFoundError):
        chrome_trace.write([], tmp_path / "absent" / "trace.json")


def test_blocks_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a block ends makes no difference."""
    chrome_trace.write([training(20)], tmp_path / "a.json")
    monkeypatch.setattr(chrome_trace, "_BLOCK_ROWS", 3)
    chrome_trace.write([training(20)], tmp_path / "b.json")
    a, b = (json.loads((tmp_path / name).read_bytes()) for name in ("a.json", "b.json"))
    assert a == b


# ---------------------------------------------------------------- real files


@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the samples are not there: {SAMPLES}")
@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("cpu_ms210_lenet", 1376),
        ("minddata_ms210_map_batch", 80),
        ("synth_gpu_async", 31 + 60 + 6 + 6 * 4),
        ("synth_hwts_edge", 873),
        ("torch_npu2023_kernel_details", 1980),
        ("ascend2023_prof_alexnet_device0", 280 + 702 + 10 + 1 + 10 * 4),
    ],
)
def test_samples(tmp_path: Path, name: str, events: int) -> None:
    """Everything with a time is drawn, rightly nested, and nothing is left out."""
    result = chrome_trace.write(captures(from_directory(SAMPLES / name)), tmp_path / "trace.json")
    trace = loaded(tmp_path / "trace.json")
    assert result == chrome_trace.Written(events, {})
    assert sum(event["ph"] != "M" for event in trace["traceEvents"]) == events


@pytest.mark.slow
def test_a_million_events(tmp_path: Path) -> None:
    """A large window is written in seconds."""
    count = 10**6
    rows = executions(*[(T0, 1000, 0, 7, 1)] * 1000)[np.arange(count) % 1000]
    rows["start_ns"] += np.arange(count) * 1037
    result = chrome_trace.write([capture([operator("Default/network/Conv2D-op1")], rows)], tmp_path / "trace.json")
    assert result == chrome_trace.Written(count, {})
