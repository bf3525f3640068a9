"""The runs at some paths, under their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrument.errors import NoSuchRun
from instrument.facts.selection import runs_at, select
from tests.show.runs import three, training


def test_a_run_is_named_by_its_place_below_its_path(tmp_path: Path) -> None:
    """Or by the last part of the path; a run that two paths lead to comes once, and a wrong path is an error."""
    root = three(tmp_path / "runs")
    runs, notes, errors = select([str(root), str(root / "adam"), str(root / "absent")])
    assert [name for name, _ in runs] == ["adam", "momentum", "plain"]
    assert notes == []
    (error,) = errors
    assert isinstance(error, NoSuchRun)
    assert f"{root / 'absent'} does not exist" in str(error)
    ((name, run),) = select([str(root / "adam")]).runs
    assert (name, run.path) == ("adam", str(root / "adam"))


def test_equal_names_begin_at_the_common_folder(tmp_path: Path) -> None:
    """Two runs are never shown under one name."""
    for parent in ("a", "b"):
        training(tmp_path / parent / "run", [1.0])
    runs = select([str(tmp_path / "a"), str(tmp_path / "b")]).runs
    assert [name for name, _ in runs] == ["a/run", "b/run"]


def test_a_path_without_a_run_is_refused(tmp_path: Path) -> None:
    """The message names the directory that was searched."""
    with pytest.raises(NoSuchRun, match=str(tmp_path)):
        runs_at(str(tmp_path))
