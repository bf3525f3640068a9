"""`instrument doctor`: what it says of a machine that is well, and of one that lacks something."""

from __future__ import annotations

import getpass
import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from instrument import __version__
from instrument.doctor import examine
from instrument.doctor.findings import FAILS, NOTE, WORKS, Finding, attempt
from instrument.show.cli import doctor, main

ROOT = Path(__file__).resolve().parents[2]
HAS_MINDSPORE = importlib.util.find_spec("mindspore") is not None
RECORDING = ["shared memory", "worker processes", "without workers", "fork beside a recorder", "reading recording back"]
TRAINING = [
    "MindSpore", "MindSpore's inner names", "training in graph mode", "training in PyNative mode", "profiling",
    "system metrics", "reading training back", "reading the profile",
]  # fmt: skip


def statuses(found: list[dict[str, Any]]) -> dict[str, str]:
    return {one["name"]: one["status"] for one in found}


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without MindSpore."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "mindspore" else find(name, *rest)
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A whole examination, in a process of its own that never imported MindSpore; and where it wrote."""
    place = tmp_path_factory.mktemp("doctor")
    ran = subprocess.run(
        [sys.executable, "-m", "instrument", "doctor", str(place), "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return ran, place


@pytest.mark.skipif(not HAS_MINDSPORE, reason="MindSpore is not installed")
def test_all_works_on_a_machine_that_runs_these_tests(whole: tuple[Any, Path]) -> None:
    """Recording with and without workers, trainings in both modes, a profile: written, and read back as written."""
    ran, place = whole
    assert (ran.returncode, ran.stderr) == (0, "")
    report = json.loads(ran.stdout)
    assert report["is_well"] is True
    assert report["versions"]["instrument"] == __version__
    assert report["versions"]["mindspore"] is not None
    found = statuses(report["findings"])
    assert {name: found.get(name) for name in (*RECORDING, *TRAINING)} == dict.fromkeys((*RECORDING, *TRAINING), WORKS)
    details = {one["name"]: one["detail"] for one in report["findings"]}
    assert details["reading recording back"].startswith(f"{1001 + 1 + 101 + 1 + 11 + 1} points in ")
    assert details["reading training back"].startswith("18 points in ")
    assert details["reading the profile"].startswith("steps 3 to 4, ")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("versions", "status"),
    [
        ({"mindspore": "2.10.0", "numpy": "2.4.6"}, NOTE), ({"mindspore": "2.10.0", "numpy": "1.26.4"}, None),
        ({"mindspore": None, "numpy": "2.4.6"}, None),
    ],
)  # fmt: skip
def test_numpy_2_beside_mindspore_is_noted(
    versions: dict[str, str | None], status: str | None, no_training: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """With the cure; a reader without MindSpore may have any NumPy."""
    installed = examine._version
    monkeypatch.setattr(examine, "_version", lambda name: versions[name] if name in versions else installed(name))
    code, report = told(capsys)
    findings = [one for one in report["findings"] if one["name"] == "numpy"]
    assert code == 0
    assert [one["status"] for one in findings] == ([status] if status else [])
    assert all("pip install 'numpy<2'" in one["advice"] for one in findings)


def test_no_names_are_told(whole: tuple[Any, Path]) -> None:
    """Neither the user's, nor the host's, nor those of directories."""
    ran, place = whole
    assert str(place) not in ran.stdout
    assert os.path.expanduser("~") + "/" not in ran.stdout
    assert f"/{getpass.getuser()}/" not in ran.stdout
    assert f" {socket.gethostname()} " not in ran.stdout


@pytest.mark.usefixtures("no_training")
def test_without_mindspore_all_else_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That is said, with what needs it, and is no failure."""
    code, report = told(capsys, str(tmp_path))
    assert code == 0
    found = statuses(report["findings"])
    assert {name: found[name] for name in RECORDING} == dict.fromkeys(RECORDING, WORKS)
    assert found["MindSpore"] == NOTE
    (finding,) = [one for one in report["findings"] if one["name"] == "MindSpore"]
    assert finding["detail"] == "not installed"
    assert finding["advice"] == "Reading works without it. For recording a training: MindSpore 2.7 to 2.10."


@pytest.mark.usefixtures("no_training")
def test_a_system_without_shared_memory_is_told_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason, what it means, exit code 1; what works without it is tried all the same."""
    (tmp_path / "sitecustomize.py").write_text("import os\ndel os.memfd_create\n")
    monkeypatch.syspath_prepend(tmp_path)
    code, report = told(capsys)
    assert (code, report["is_well"]) == (1, False)
    found = {one["name"]: one for one in report["findings"]}
    assert found["shared memory"]["status"] == FAILS
    assert "this system has no memfd_create" in found["shared memory"]["detail"]
    assert "records all the same" in found["shared memory"]["advice"]
    assert found["without workers"]["status"] == WORKS
    assert found["reading recording back"]["status"] == WORKS


def fake_mindspore(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    (folder / "mindspore").mkdir()
    (folder / "mindspore" / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(examine, "_recording", lambda place: [])


def test_a_mindspore_that_ends_the_process_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its signal and its last words."""
    fake_mindspore(
        tmp_path, monkeypatch, "import os, sys\nprint('no device', file=sys.stderr, flush=True)\nos.abort()\n"
    )
    code, report = told(capsys)
    assert code == 1
    (finding,) = [one for one in report["findings"] if one["status"] == FAILS]
    assert (finding["name"], finding["detail"]) == ("the trial of training", "it ended with -6: no device")


def test_a_mindspore_that_cannot_be_imported_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the error, but for the user's directories in it."""
    monkeypatch.setenv("HOME", "/home/somebody")
    fake_mindspore(tmp_path, monkeypatch, "raise ImportError('libgomp.so.1 is not in /home/somebody/lib')\n")
    code, report = told(capsys)
    assert code == 1
    found = {one["name"]: one for one in report["findings"]}
    assert found["MindSpore"]["detail"] == "import: ImportError: libgomp.so.1 is not in ~/lib"
    assert "training in graph mode" not in found


@pytest.mark.usefixtures("no_training")
def test_what_is_read_back_must_be_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that lost its end is found out."""
    written = examine._run

    def cut(module: str, place: str, outcome: str, seconds: float) -> str:
        died = written(module, place, outcome, seconds)
        (path,) = Path(place, "process").glob("*_MS")
        os.truncate(path, path.stat().st_size // 2)
        return died

    monkeypatch.setattr(examine, "_run", cut)
    report = examine.examine(str(tmp_path))
    found = {finding.name: finding for finding in report.findings}
    assert found["reading recording back"].status == FAILS
    assert found["reading recording back"].detail.startswith("process: ")
    assert not report.is_well


def test_a_directory_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, exit code 1."""
    assert main(["doctor", str(tmp_path / "none")]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{tmp_path / 'none'} is no directory" in err


def test_the_text_has_everything_and_its_advice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions, what is absent and what it is for, each check with its reason, and a last line that sums up."""
    findings = [Finding("one", WORKS, "well", seconds=1.234), Finding("two", FAILS, "bad", "Mend it.")]
    report = examine.Report({"python": "CPython 3"}, {"instrument": "0", "psutil": None}, findings)
    monkeypatch.setattr(doctor, "examine", lambda _: report)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "WHAT        VERSION",
        "python      CPython 3",
        "instrument  0",
        "psutil      not installed (system_metrics: the extra `system`)",
        "",
        "CHECK         SECONDS  FOUND",
        "one    works  1.23     well",
        "two    FAILS           bad",
        "",
        "two: Mend it.",
        "2 checks, 1 failed",
    ]
    assert main(["doctor", "--csv"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "table,is_well,name,value,status,detail,advice,seconds",
        "report,false,,,,,,",
        "system,,python,CPython 3,,,,",
        "versions,,instrument,0,,,,",
        "versions,,psutil,,,,,",
        "findings,,one,,works,well,,1.234",
        "findings,,two,,fails,bad,Mend it.,0.0",
    ]


def test_a_check_is_timed_and_its_error_told() -> None:
    """The first line of the error with its class; advice only where it fails."""
    good = attempt("a", lambda: "fine", "advice")
    assert (good.status, good.detail, good.advice) == (WORKS, "fine", "")

    def bad() -> str:
        raise OSError("first\nsecond")

    failed = attempt("b", bad, "advice")
    assert (failed.status, failed.detail, failed.advice) == (FAILS, "OSError: first", "advice")
    assert failed.seconds >= 0


def test_names_are_taken_out_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The home, the user and the host; a short name only where it is a part of a path."""
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    monkeypatch.setattr(socket, "gethostname", lambda: "server-7")
    private = examine._Private("/data/ann/tmp", "/data/ann/tmp/instrument-x")
    assert private("no /home/ann/x, /opt/ann/y, /data/ann/tmp/instrument-x/z on server-7; ann can") == (
        "no ~/x, /opt/<user>/y, <trial>/z on <host>; ann can"
    )
    assert private("/home/annabel") == "/home/annabel"
