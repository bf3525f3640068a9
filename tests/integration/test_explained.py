"""A real training on the CPU explains itself: the operators of the network times the steps, and nothing else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.analyse import trace_files
from instrument.analyse.profile import Profile, profile
from instrument.analyse.steps import PARTS
from tests.integration.conftest import Script

STEPS, LAYERS = 5, 3
#: Operators that one step runs, by type: of each layer forward and backward, and an update of each weight and bias.
PER_STEP = {"BiasAdd": LAYERS, "BiasAddGrad": LAYERS, "ApplyMomentum": 2 * LAYERS}


@pytest.fixture
def explained(script: Script, mode: str) -> tuple[Profile, Path]:
    directory = script("explained", mode).directory
    return profile(directory / "run"), directory


def facts(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "facts.json").read_text())
    return found


def test_operators_are_the_networks_times_the_steps(explained: tuple[Profile, Path]) -> None:
    """Each operator runs as often in each step, and each type as often as the network has it."""
    found = explained[0]
    assert found.steps["step"].tolist() == [6, 7, 8, 9, 10]
    assert set((found.operators["count"] % STEPS).tolist()) == {0}
    per_step = dict(zip(found.operator_types["type"], found.operator_types["per_step"].tolist(), strict=True))
    assert {kind: per_step[kind] for kind in PER_STEP} == PER_STEP
    assert len(set(found.steps["operators"].tolist())) == 1
    assert found.counted.left_out == {}


def test_times_are_those_of_the_raw_file(explained: tuple[Profile, Path]) -> None:
    """Each operator's total is the sum of what the device wrote."""
    found, directory = explained
    (window,) = trace_files.windows(directory / "run")
    (name,) = [name for name in window.files if "op_execute_timestamp" in name]
    lines = b"".join(window.files[name]).decode().splitlines()
    raw: dict[str, float] = {}
    for line in lines:
        name, _, executions = line.split(";")
        raw[name] = raw.get(name, 0.0) + sum(float(one.split(",")[1]) for one in executions.split())
    ours = dict(zip(found.operators["full_name"], found.operators["total_ns"].tolist(), strict=True))
    assert ours == {name: round(total * 1e6) for name, total in raw.items()}


def test_the_parts_of_the_steps(explained: tuple[Profile, Path], mode: str) -> None:
    """In graph mode all three, which add up; in PyNative mode the interval, and why not the others."""
    table = explained[0].steps
    total, *parts = (np.ma.asarray(table[name]) for name in ("total_ns", *PARTS))
    assert (total > 0).all()
    if mode == "graph":
        assert (sum(parts[1:], parts[0]) == total).all()
        assert all((part > 0).all() for part in parts)
    else:
        assert (parts[0] > 0).all()
        assert np.ma.getmaskarray(parts[1]).all()
        assert any("PyNative" in note for note in table.notes)


def test_memory_is_there(explained: tuple[Profile, Path]) -> None:
    """With the step of its peak."""
    table = explained[0].memory_peaks
    assert table["kind"].tolist() == ["allocated", "reserved", "active"]
    assert set(table["step"].tolist()) <= {6, 7, 8, 9, 10, None}
    assert (table["peak_bytes"] > 0).all()


def test_the_profiler_itself_says_the_same(explained: tuple[Profile, Path]) -> None:
    """`analyse` in the process that trained, and on the saved files; steps of choice; op_analyse with shapes."""
    found, directory = explained
    told = facts(directory)
    assert told["steps"] == found.steps["step"].tolist()
    assert told["part"] == [7, 8]
    assert told["text"].splitlines()[1:] == str(found).splitlines()[1:]
    assert sum(one["op_occurrences"] for one in told["biases"]) == STEPS * LAYERS
    assert {one["input_shape"] for one in told["biases"]} == {"[4, 8];[8];NoShape", "[4, 2];[2];NoShape"}
    assert len(told["table"].splitlines()) >= 5
    names = {path.name for path in (directory / "run" / "profiler").iterdir()}
    assert {"profiler_info_0.json", "cpu_op_detail_info_0.csv", "cpu_op_type_info_0.csv"} <= names
    assert (directory / "run" / "profile_0_0" / "report.txt").exists()
    with gzip.open(directory / "timeline.json.gz", "rt") as file:
        assert json.load(file)["traceEvents"]
