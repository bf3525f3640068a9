"""Names in the order in which people expect them."""

from __future__ import annotations

from pathlib import Path

from instrument.runs.run import find_runs, read_run
from instrument.values import Event
from instrument.wording import natural
from tests.runs.build import write


def test_digits_count_as_numbers() -> None:
    """Whatever their length; letters as they are, and equal numbers by their characters."""
    names = ["layer_10/w", "layer_2/w", "layer_1/w", "layer_01/w", "a", "10", "9", "9" * 30, "", "b2c10", "b2c9"]
    assert sorted(names, key=natural) == [
        "", "9", "10", "9" * 30, "a", "b2c9", "b2c10", "layer_01/w", "layer_1/w", "layer_2/w", "layer_10/w",
    ]  # fmt: skip


def test_tags_and_runs_are_sorted_so(tmp_path: Path) -> None:
    """`layer_2` comes before `layer_10`, as a tag and as a folder."""
    for number in (10, 2, 1):
        write(tmp_path / f"run_{number}", [Event(1, 1.0, (), {f"layer_{layer}/w": 0.5 for layer in (10, 1, 2)})])
    assert [run.name for run in find_runs(tmp_path)] == ["run_1", "run_2", "run_10"]
    assert read_run(tmp_path / "run_1").tags()["scalar"] == ["layer_1/w", "layer_2/w", "layer_10/w"]
