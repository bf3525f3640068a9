"""Two profiles side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from instrument.analyse.comparison import Comparison, compare
from instrument.analyse.profile import profile
from instrument.trace.events import CPU, GPU, Capture
from tests.analyse.build import T0, capture, column, executions, marked, operator, profile_of, training
from tests.analyse.files import STEP_NS, cpu_window, directory_of
from tests.trace import encoders

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "samples"


def compared(base: Capture, new: Capture) -> Comparison:
    return compare(profile_of(base, path="p"), profile_of(new, path="p"))


def test_parts_of_the_step() -> None:
    """new - base in ns and in percent of base; negative is faster."""
    table = compared(training(interval=10, forward=20), training(interval=0, forward=30)).steps
    rows = {row["part"]: row for row in table.records()}
    assert rows["iteration_interval"] == {
        "part": "iteration_interval",
        "base_mean_ns": 10.0,
        "new_mean_ns": 0.0,
        "base_median_ns": 10.0,
        "new_median_ns": 0.0,
        "difference_ns": -10.0,
        "difference_percent": -100.0,
    }
    assert rows["fp_and_bp"]["difference_ns"] == 10.0
    assert rows["fp_and_bp"]["difference_percent"] == 20.0
    assert rows["total"]["difference_ns"] == rows["total"]["difference_percent"] == 0.0
    assert rows["all_reduce"]["difference_ns"] is None
    backwards = compared(training(interval=0, forward=30), training(interval=10, forward=20)).steps
    assert {row["part"]: row for row in backwards.records()}["iteration_interval"]["difference_percent"] is None


def test_steps_by_their_number() -> None:
    """Steps that only one of them has are there, without a difference."""
    base = capture(steps=marked((1, T0, T0 + 10), (2, T0 + 10, T0 + 30)))
    new = capture(steps=marked((2, T0, T0 + 50), (3, T0 + 50, T0 + 60)))
    table = compared(base, new).each_step
    assert list(table.rows()) == [
        (1, 10, None, None, None),
        (2, 20, 50, 30, 150.0),
        (3, None, 10, None, None),
    ]
    assert table.notes == ("2 steps are in one profile only.",)


def test_an_evaluation_does_not_count(tmp_path: Path) -> None:
    """On the CPU, executions in no step are left out, and counted; but not where none is in a step."""
    files = cpu_window(1, 2)
    files["instrument.marks.0.bin"] = encoders.mark(T0, STEP_NS, 0, 1, 1)
    base, new = profile(directory_of(tmp_path / "base", cpu_window(1, 2))), profile(directory_of(tmp_path, files))
    found = compare(base, new).operators
    assert set(found["base_step_ns"].tolist()) == set(found["new_step_ns"].tolist()) == {20_000.0}
    assert found["base_count"].tolist() == [2] * 3
    assert found["new_count"].tolist() == [1] * 3
    assert found.notes == ("0 (base) and 3 (new) executions in no step are left out.",)
    assert compare(base, base).operators.notes == ()


def test_operators_by_step() -> None:
    """Time a step, whatever the number of steps; the largest difference comes first."""
    operators = [operator("net/a", CPU), operator("net/b", CPU)]
    base = capture(operators, executions((T0, 30, 0), (T0, 5, 1)), steps=marked((1, T0, T0 + 50)))
    twice = executions((T0, 30, 0), (T0 + 50, 30, 0), (T0, 9, 1), (T0 + 50, 9, 1))
    new = capture(operators, twice, steps=marked((1, T0, T0 + 50), (2, T0 + 50, T0 + 100)))
    table = compared(base, new).operators
    assert table.records()[0] == {
        "full_name": "net/b",
        "base_side": CPU,
        "new_side": CPU,
        "base_count": 1,
        "new_count": 2,
        "base_mean_ns": 5.0,
        "new_mean_ns": 9.0,
        "base_step_ns": 5.0,
        "new_step_ns": 9.0,
        "difference_ns": 4.0,
        "difference_percent": 80.0,
    }
    assert column(table["full_name"]) == ["net/b", "net/a"]
    assert column(table["difference_ns"]) == [4.0, 0.0]


def test_without_steps_the_windows_are_compared() -> None:
    """Times are sums, and the note says so; the parts of a step would be those of a window, and are left out."""
    base = capture([operator("net/a")], executions((T0, 30, 0)))
    found = compared(base, training())
    assert len(found.steps) == 0
    assert found.steps.notes == ("One of the profiles has no steps.",)
    found = compared(base, capture([operator("net/a")], executions((T0, 30, 0), (T0 + 50, 30, 0))))
    (row,) = found.operators.records()
    assert (row["base_total_ns"], row["new_total_ns"], row["difference_ns"]) == (30, 60, 30)
    assert found.operators.notes[0].endswith("Times are sums over the windows.")


def test_operators_of_another_device() -> None:
    """Matched by full name, then without the number of the compilation; what is not unique stays apart."""
    base = [
        operator(name, CPU) for name in ("net/Same-op1", "net/Conv2D-op3", "net/Add-op1", "net/Add-op2", "net/Old-op1")
    ]
    new = [operator(name, GPU) for name in ("net/Same-op1", "net/Conv2D-op7", "net/Add-op8", "net/New-op1")]
    rows = [[(T0 + 10 * place, 1 + place, place, place) for place in range(len(one))] for one in (base, new)]
    found = compared(
        capture(base, executions(*rows[0])), capture(new, executions(*rows[1]), target="gpu", clock="device")
    )
    assert sorted(found.operators["full_name"]) == ["net/Conv2D-op3", "net/Same-op1"]
    assert set(found.operators["base_side"]) == {CPU}
    assert set(found.operators["new_side"]) == {GPU}
    assert list(zip(found.unmatched["where"], found.unmatched["full_name"], strict=True)) == [
        ("base only", "net/Old-op1"),
        ("base only", "net/Add-op2"),
        ("new only", "net/New-op1"),
        ("base only", "net/Add-op1"),
        ("new only", "net/Add-op8"),
    ]
    types = {row["type"]: row for row in found.operator_types.records()}
    assert (types["Add"]["base_count"], types["Add"]["new_count"]) == (2, 1)
    assert (types["Add"]["base_total_ns"], types["Add"]["new_total_ns"]) == (7, 3)
    assert set(types) == {"Same", "Conv2D", "Add"}


def test_a_name_on_two_sides() -> None:
    """The same name on AI Core and AI CPU is two operators, each beside its own."""
    operators = [operator("net/a", "AI Core"), operator("net/a", "AI CPU")]
    base = capture(operators, executions((T0, 10, 0), (T0, 20, 1)), target="ascend")
    new = capture(operators, executions((T0, 11, 0), (T0, 25, 1)), target="ascend")
    found = compared(base, new)
    assert [(row["base_side"], row["difference_ns"]) for row in found.operators.records()] == [
        ("AI CPU", 5),
        ("AI Core", 1),
    ]
    (row,) = found.operator_types.records()
    assert (row["base_side"], row["base_total_ns"], row["new_total_ns"]) == ("AI CPU, AI Core", 30, 36)


def test_nothing_beside_nothing() -> None:
    """Empty tables, and a text."""
    found = compared(capture(), capture())
    assert [len(table) for table in found.tables()] == [0] * 5
    assert str(found).startswith("base: p (cpu 0, 0 steps), new: p (cpu 0, 0 steps)\n")
    assert "<table>" in found._repr_html_()
    json.dumps([table.to_json() for table in found.tables()], allow_nan=False)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the samples are not there: {SAMPLES}")
def test_samples() -> None:
    """The same network on the GPU, twice; a device and a host have only types in common."""
    sync, asynchronous = (profile(SAMPLES / f"synth_gpu_{kind}") for kind in ("sync", "async"))
    found = asynchronous.compare(sync)
    assert len(found.operators) == len(sync.operators) == 6
    assert len(found.unmatched) == 0
    for row in found.operators.records():
        assert row["difference_ns"] == pytest.approx(row["new_step_ns"] - row["base_step_ns"])
    other = compare(profile(SAMPLES / "cpu_ms210_lenet"), sync)
    assert len(other.operators) == 0
    assert sorted(other.operator_types["type"]) == ["ApplyMomentum", "Conv2D", "ReLU"]
    assert len(other.unmatched) == 43 + 6
