"""Runs as data frames, and runs by their names."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from instrument.errors import NoSuchRun
from instrument.runs.run import Runs, find_runs, read_run
from instrument.values import Event
from tests.runs.build import steps, write
from tests.show.runs import START, every_kind, three, training

COLUMNS = ["run", "tag", "step", "wall_time", "value", "device", "host"]


def test_a_run_as_a_frame(tmp_path: Path) -> None:
    """A row a point of every scalar, ordered by tag and step; nothing is left out."""
    pytest.importorskip("pandas")
    frame = read_run(training(tmp_path / "adam", [4.0, 2.0], [0.5])).to_pandas()
    assert list(frame.columns) == COLUMNS
    assert frame.drop(columns="wall_time").to_numpy().tolist() == [
        ["adam", "eval/accuracy/auto", 10, 0.5, 0, "host"],
        ["adam", "loss/auto", 1, 4.0, 0, "host"],
        ["adam", "loss/auto", 2, 2.0, 0, "host"],
    ]
    assert frame["wall_time"][1].to_pydatetime() == datetime.fromtimestamp(START + 1, timezone.utc)
    assert [str(frame[name].dtype) for name in ("step", "value", "device")] == ["int64", "float64", "int64"]


def test_tags_and_kinds_are_chosen(tmp_path: Path) -> None:
    """By name or pattern, several of them; values of other kinds are decoded."""
    pytest.importorskip("pandas")
    run = read_run(every_kind(tmp_path / "run"))
    assert set(run.to_pandas(["lo*", "x"])["tag"]) == {"loss"}
    assert run.to_pandas(kind="tensor")["value"][0].dtype == "float32"
    assert list(run.to_pandas(superseded=True)["superseded"]) == [False, False, True, False]
    with pytest.raises(NoSuchRun, match=r"^no scalar has a tag that matches 'los'; the nearest is 'loss'$"):
        run.to_pandas("los")


def test_a_run_without_scalars_is_an_empty_frame(tmp_path: Path) -> None:
    """With the columns of any other."""
    pytest.importorskip("pandas")
    write(tmp_path / "void", [])
    frame = read_run(tmp_path / "void").to_pandas()
    assert (len(frame), list(frame.columns)) == (0, COLUMNS)


def test_all_runs_as_a_frame(tmp_path: Path) -> None:
    """Under the names that `names` has; one tag turns into a column a run."""
    pytest.importorskip("pandas")
    runs = find_runs(three(tmp_path / "runs"))
    frame = runs.to_pandas("loss/auto")
    wide = frame.pivot_table(index="step", columns="run", values="value")
    assert list(wide.columns) == ["adam", "momentum", "plain"]
    assert wide["adam"].tolist() == [4.0, 2.0, 1.0]
    assert len(frame) == 7


def test_without_pandas_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is nothing to show."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    write(tmp_path, [])
    with pytest.raises(ImportError, match="pip install pandas"):
        read_run(tmp_path).to_pandas()


def test_a_run_by_its_name(tmp_path: Path) -> None:
    """Its place below the tree, or an end of that which no other run has; numbers and slices are those of a list."""
    for place in ("a/x", "b/x", "b/y", "y"):
        write(tmp_path / place, [Event(1, 1.0, (), {"loss": 1.0})])
    runs = find_runs(tmp_path)
    assert runs.names == ["a/x", "b/x", "b/y", "y"]
    assert runs["a/x"].path == str(tmp_path / "a" / "x")
    assert runs["y"] is runs[3]
    assert (type(runs[:2]), runs[:2].names) == (Runs, ["a/x", "b/x"])
    assert find_runs(tmp_path / "y")["y"].path == str(tmp_path / "y")
    with pytest.raises(NoSuchRun, match=r"^2 runs end in 'x': a/x, b/x; give more of the path$"):
        _ = runs["x"]
    with pytest.raises(NoSuchRun, match=r"^there is no run 'b/z'; the nearest are "):
        _ = runs["b/z"]


def test_ranks_are_rows_of_their_own(tmp_path: Path) -> None:
    """The device tells them apart."""
    pytest.importorskip("pandas")
    for device in (0, 1):
        write(tmp_path, steps("scalar", "x", [1], float(device), start=1.0), device=device)
    frame = read_run(tmp_path).to_pandas("x")
    assert frame[["device", "value"]].to_numpy().tolist() == [[0, 0.0], [1, 1.0]]
