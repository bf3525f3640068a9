"""Finding runs in a tree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from instrument.errors import NoSuchRun
from instrument.runs.folders import find
from instrument.runs.run import Runs, find_runs, read_run
from tests.runs.build import steps, write

EVENTS = steps("scalar", "x", [0], 1.0, start=1.0)


def listed(runs: Runs, root: Path) -> list[str]:
    return [os.path.relpath(run.path, root) for run in runs]


def test_runs_are_found_at_any_depth_in_order(tmp_path: Path) -> None:
    """Every folder that holds event files itself is a run, the root too, parents before children."""
    for name in ("b", "a/x/y", "a-b", "", "a"):
        write(tmp_path / name, EVENTS)
    (tmp_path / "c" / "ckpt_dir").mkdir(parents=True)
    (tmp_path / "c" / "events.txt").touch()

    runs = find_runs(tmp_path)

    assert listed(runs, tmp_path) == [".", "a", "a/x/y", "a-b", "b"]
    assert runs[1].scalars("x")[0] == 1.0
    assert runs[1].name == "a"
    assert runs.notes == []


def test_links_are_followed_once_and_cycles_end(tmp_path: Path) -> None:
    """A linked run outside appears by its link, one inside by its real path; broken links are noted."""
    root = tmp_path / "root"
    write(tmp_path / "elsewhere" / "outside", EVENTS)
    write(root / "z-inside", EVENTS)
    (root / "named").symlink_to(tmp_path / "elsewhere" / "outside")
    (root / "again").symlink_to(root / "named")
    (root / "a-link").symlink_to(root / "z-inside")
    (root / "loop").symlink_to(root)
    (root / "z-inside" / "up").symlink_to("..")
    (root / "broken").symlink_to(tmp_path / "nowhere")
    (root / "itself").symlink_to(root / "itself")

    runs = find_runs(root)

    assert listed(runs, root) == ["again", "z-inside"]
    assert runs.notes == [f"{root / 'broken'} is a broken link", f"{root / 'itself'} is a broken link"]


def test_linked_event_files_count(tmp_path: Path) -> None:
    """A folder whose event file is a link is a run; one whose link is broken is none."""
    path = write(tmp_path / "real", EVENTS)
    for name, target in (("linked", path), ("dangling", tmp_path / "nowhere")):
        (tmp_path / name).mkdir()
        (tmp_path / name / path.name).symlink_to(target)

    runs = find_runs(tmp_path)

    assert listed(runs, tmp_path) == ["linked", "real"]
    assert runs.notes == [f"{tmp_path / 'dangling' / path.name} is a broken link"]


def test_an_unreadable_folder_is_passed_over_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are listed, and the note says which and why."""
    for name in ("locked", "ok"):
        write(tmp_path / name, EVENTS)
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if path == str(tmp_path / "locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    runs = find_runs(tmp_path)

    assert listed(runs, tmp_path) == ["ok"]
    assert runs.notes == [f"{tmp_path / 'locked'} cannot be read: Permission denied"]


def test_odd_names_are_folders_like_others(tmp_path: Path) -> None:
    """Blanks, commas, quotes, newlines and bytes that are no UTF-8 do not hide a run."""
    names = ["a b", "a,b", "q'uote", "new\nline", "-x", "\udcff"]
    for name in names:
        write(tmp_path / name, EVENTS)

    assert listed(find_runs(tmp_path), tmp_path) == sorted(names)


def test_a_search_can_be_bounded(tmp_path: Path) -> None:
    """It stops after the given number of folders and says so."""
    for number in range(5):
        (tmp_path / str(number)).mkdir()

    found = find(str(tmp_path), max_folders=3)

    assert found.scanned == 3
    assert found.notes == ["the search ended after 3 folders"]


def test_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    """A missing path and a file are told apart."""
    with pytest.raises(NoSuchRun, match=r"nowhere does not exist; a directory with runs at or below it is expected$"):
        find_runs(tmp_path / "nowhere")
    path = write(tmp_path, EVENTS)
    with pytest.raises(NoSuchRun, match=r"_MS is a file; a directory with runs at or below it is expected$"):
        find_runs(path)


def test_a_pipe_named_like_an_event_file_is_refused(tmp_path: Path) -> None:
    """Opening one would wait for a writer for ever."""
    path = tmp_path / "events.out.events.summary.1700000000.0.host_MS"
    os.mkfifo(path)
    with pytest.raises(NoSuchRun, match="no regular file"):
        read_run(path)
