"""Chrome traces as a test reads them: checked for their schema, and for order and nesting in each lane."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from instrument.analyse import chrome_trace
from instrument.trace.events import SPAN, Capture

#: Phase -> the members that an event of it has.
SCHEMA: dict[str, dict[str, Any]] = {
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": (int, float), "dur": (int, float)},
    "C": {"name": str, "pid": int, "ts": (int, float), "args": dict},
    "M": {"name": str, "pid": int, "args": dict},
}


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def loaded(path: Path) -> Any:
    """The file as JSON, with its numbers exact, checked for its schema, and for order and nesting in its lanes."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = json.loads(data, parse_constant=refuse, parse_float=Decimal)
    assert trace["displayTimeUnit"] == "ms"
    assert isinstance(trace["baseTimeNanoseconds"], int)
    for event in trace["traceEvents"]:
        for member, kind in SCHEMA[event["ph"]].items():
            assert isinstance(event[member], (*(kind if isinstance(kind, tuple) else (kind,)), *_exact(member)))
            assert not isinstance(event[member], bool)
    check_lanes(trace["traceEvents"])
    check_names(trace["traceEvents"])
    return trace


def _exact(member: str) -> tuple[type, ...]:
    return (Decimal,) if member in ("ts", "dur") else ()


def check_lanes(events: list[Any]) -> None:
    """Events of a lane are in order of time; each is within an earlier one or begins when that has ended."""
    open_ends: dict[tuple[int, int], list[Decimal]] = {}
    last: dict[tuple[int, int], Decimal] = {}
    for event in (event for event in events if event["ph"] == "X"):
        lane = event["pid"], event["tid"]
        ends = open_ends.setdefault(lane, [])
        assert event["ts"] >= last.get(lane, 0)
        assert event["dur"] >= 0
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        assert not ends or event["ts"] + event["dur"] <= ends[-1]
        ends.append(event["ts"] + event["dur"])
        last[lane] = event["ts"]


def check_names(events: list[Any]) -> None:
    """Each process and lane has one name and one place; no lane has the number of a process."""
    named = Counter((e["name"], e["pid"], e.get("tid")) for e in events if e["ph"] == "M")
    assert set(named.values()) <= {1}
    for event in (event for event in events if event["ph"] != "M"):
        assert named["process_name", event["pid"], None] == named["process_sort_index", event["pid"], None] == 1
        if event["ph"] == "X":
            assert named["thread_name", event["pid"], event["tid"]] == 1
            assert named["thread_sort_index", event["pid"], event["tid"]] == 1
    assert not {e["pid"] for e in events} & {e["tid"] for e in events if "tid" in e}


def written(tmp_path: Path, *several: Capture, name: str = "trace.json") -> Any:
    chrome_trace.write(several, tmp_path / name)
    return loaded(tmp_path / name)


def lanes_of(trace: Any) -> dict[str, list[tuple[str, int, int]]]:
    """ "process/lane" -> (name, start, duration) in ns of its events."""
    names = {
        (e["name"].split("_")[0], e["pid"], e.get("tid")): e["args"]["name"]
        for e in trace["traceEvents"]
        if e["ph"] == "M" and e["name"].endswith("_name")
    }
    found: dict[str, list[tuple[str, int, int]]] = {}
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            lane = f"{names['process', e['pid'], None]}/{names['thread', e['pid'], e['tid']]}"
            found.setdefault(lane, []).append((e["name"], int(e["ts"] * 1000), int(e["dur"] * 1000)))
    return found


def spans(*rows: tuple[int, int, int, int, int, int]) -> Any:
    """(start, duration, name, kind, thread, number) each."""
    return np.array(list(rows), SPAN)
