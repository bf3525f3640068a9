"""What ran is recorded at the start of a training: command, commit, versions, device."""

from __future__ import annotations

import copy
import os
import platform
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument import SummaryCollector, read
from instrument.collect import provenance
from tests.collect.fake import Loop


@pytest.fixture
def work_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git work tree with one commit, whose script is said to run."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("epochs = 1\n")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "train.py")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "first")
    monkeypatch.setattr(sys, "argv", [str(folder / "train.py"), "--lr", "0.1 0.2"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "train.py", "--lr", "0.1 0.2"])
    return folder


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def ran(directory: Path, specified: dict[str, Any] | None = None, **options: Any) -> Any:
    """What a training of one step says of itself."""
    Loop(SummaryCollector(directory, num_process=0, collect_specified_data=specified, **options)).train([1])
    return read(directory).lineage.get("ran")


def test_a_run_says_what_ran(work_tree: Path, tmp_path: Path) -> None:
    """Command, place, versions, device, and the commit of the script's work tree."""
    found = ran(tmp_path / "run")
    commit = git(work_tree, "rev-parse", "HEAD")
    assert found.pop("git") == {"commit": commit, "branch": "main", "changed_files": 0}
    versions = found.pop("versions")
    assert versions["mindspore"] == ms.__version__
    assert versions["numpy"] == np.__version__
    assert found == {
        "command": "python train.py --lr '0.1 0.2'",
        "directory": os.getcwd(),
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": "CPU",
    }
    assert shlex.split(found["command"]) == sys.orig_argv


def test_changes_are_counted_and_kept_when_asked_for(work_tree: Path, tmp_path: Path) -> None:
    """The patch is what `git diff` prints of tracked files, and applies to the commit."""
    (work_tree / "train.py").write_text("epochs = 2  # 中文\n")
    (work_tree / "notes.txt").write_text("not tracked\n")
    assert ran(tmp_path / "run")["git"]["changed_files"] == 1
    assert "patch" not in ran(tmp_path / "run")["git"]
    patch = ran(tmp_path / "patched", {"collect_patch": True})["git"]["patch"]
    git(work_tree, "checkout", "-q", "train.py")
    subprocess.run(["git", "-C", work_tree, "apply", "-"], input=patch, text=True, check=True)
    assert (work_tree / "train.py").read_text() == "epochs = 2  # 中文\n"


def test_the_users_own_lineage_is_apart(work_tree: Path, tmp_path: Path) -> None:
    """A value of the user's with that name stays his."""
    directory = tmp_path / "run"
    assert ran(directory, custom_lineage_data={"ran": "yesterday", "team": "vision"})["device"] == "CPU"
    assert read(directory).lineage["custom"] == {"ran": "yesterday", "team": "vision"}


def test_nothing_is_recorded_when_it_is_not_wanted(work_tree: Path, tmp_path: Path) -> None:
    """By its key, or because only named things are collected."""
    assert ran(tmp_path / "a", {"collect_provenance": False}) is None
    assert ran(tmp_path / "b", {"collect_metric": True}, keep_default_action=False) is None


def test_states_of_a_work_tree(work_tree: Path, tmp_path: Path) -> None:
    """Detached, without a commit, or none at all."""
    git(work_tree, "checkout", "-q", "--detach")
    assert set(provenance.commit_of(str(work_tree))) == {"commit", "changed_files"}
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q", "-b", "main")
    assert provenance.commit_of(str(empty), with_patch=True) == {"branch": "main", "changed_files": 0}
    assert provenance.commit_of(str(tmp_path / "absent")) == {}


@pytest.mark.parametrize("script", ["", "sleep 60", "kill -9 $$", "exit 3"])
def test_git_that_fails_stops_nothing(
    work_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Absent, hanging, killed or failing, it leaves a run without a commit."""
    folder = tmp_path / "bin"
    folder.mkdir()
    if script:
        (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin" if script and Path("/bin/git").exists() is False else str(folder))
    monkeypatch.setattr(provenance, "_GIT_SECONDS", 0.2)
    found = ran(tmp_path / "run")
    assert "git" not in found
    assert found["device"] == "CPU"


def test_a_large_patch_is_left_out(work_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is data rather than code; the number of changed files tells that there is one."""
    monkeypatch.setattr(provenance, "MOST_PATCH_BYTES", 100)
    (work_tree / "train.py").write_text("x = 1\n" * 100)
    assert provenance.commit_of(str(work_tree), with_patch=True).keys() == {"commit", "branch", "changed_files"}


def test_a_directory_that_was_removed(work_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is unknown then, and the rest is known."""
    monkeypatch.setattr(os, "getcwd", lambda: (_ for _ in ()).throw(FileNotFoundError()))
    found = provenance.provenance()
    assert "directory" not in found
    assert "commit" in found["git"]


def test_trainings_of_one_collector_ask_once(work_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ran does not change between them; a copy of the collector records it for its own run."""
    asked = list[bool]()
    monkeypatch.setattr(provenance, "provenance", lambda with_patch: asked.append(with_patch) or {"device": "CPU"})
    collector = SummaryCollector(tmp_path / "run", num_process=0)
    for _ in range(3):
        Loop(collector).train([1])
    assert asked == [False]
    Loop(copy.deepcopy(collector)).train([1])
    assert asked == [False, False]
    assert read(tmp_path / "run").lineage["ran"] == {"device": "CPU"}


def test_an_installed_program_runs_the_code_of_the_working_directory(
    work_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook's launcher, a console script and `python -m` lie in the environment, which may be a clone itself."""
    monkeypatch.chdir(work_tree)
    commit = git(work_tree, "rev-parse", "HEAD")
    launcher = tmp_path / "lib" / "site-packages" / "ipykernel_launcher.py"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("")
    for script in (str(launcher), f"{sys.prefix}/bin/python", "-c", "", None):
        monkeypatch.setattr(sys, "argv", [script])
        assert provenance.provenance()["git"]["commit"] == commit, script
    monkeypatch.setattr(sys, "argv", [])
    assert provenance.provenance()["git"]["commit"] == commit


def test_another_repository_in_the_environment(
    work_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook of git that starts a training names its own repository there."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert provenance.commit_of(str(work_tree))["branch"] == "main"
    assert "commit" in provenance.commit_of(str(work_tree))


def test_an_ignored_end_of_children(tmp_path: Path) -> None:
    """Python takes a failed command for a successful one then; without a commit's line nothing is known."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert provenance.commit_of(str(tmp_path)) == {}
    finally:
        signal.signal(signal.SIGCHLD, before)
