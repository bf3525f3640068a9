"""A start in a directory that holds a run already: said once, and only where points can be replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from instrument import SummaryCollector, SummaryRecord, read
from instrument.write import resume
from tests.collect.build import BOTH, Said, points
from tests.collect.fake import Loop

HOLDS = "holds a run already"
ROOT = Path(__file__).resolve().parents[2]


def start(directory: Path, *steps: int, value: float = 1.0, **options: object) -> None:
    with SummaryRecord(directory, **{"num_process": 0, **options}) as record:  # type: ignore[arg-type]
        for step in steps:
            record.add_value("scalar", "loss", value)
            assert record.record(step)


@BOTH
@pytest.mark.parametrize("dialect", ["mindspore", "tensorboard", "both"])
def test_a_second_start_says_what_becomes_of_the_first(
    tmp_path: Path, said: Said, processes: int, dialect: str
) -> None:
    """Once, when the recorder is made: the directory, when it was written, and the rule that the reader follows."""
    start(tmp_path, 1, 2, 3, num_process=processes, dialect=dialect)
    assert said() == []
    for path in tmp_path.iterdir():
        os.utime(path, (1e9, 1e9))
    start(tmp_path, 2, value=5.0, num_process=processes, dialect=dialect)
    (message,) = said(HOLDS)
    assert message.startswith(f"{tmp_path} holds a run already, last written 2001-09-0")
    assert "from the first step that it records on" in message
    assert points(tmp_path, "loss") == [(1, 1.0), (2, 5.0)]
    start(tmp_path, 4)
    assert len(said(HOLDS)) == 1


def test_a_relative_directory_is_told_by_its_absolute_path(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the way to it."""
    start(tmp_path / "run", 1)
    monkeypatch.chdir(tmp_path)
    start(Path("x/../run"), 1)
    assert [message.split(" holds")[0] for message in said(HOLDS)] == [str(tmp_path / "run")]


@BOTH
def test_recorders_that_are_open_at_once_are_no_restart(tmp_path: Path, said: Said, processes: int) -> None:
    """Their points do not replace each other, and nothing is said."""
    with SummaryRecord(tmp_path, num_process=processes) as record:
        record.add_value("scalar", "loss", 1.0)
        assert record.record(1)
        record.flush()
        start(tmp_path, 1, value=2.0, num_process=processes)
        record.add_value("scalar", "loss", 3.0)
        assert record.record(2)
    assert said() == []
    assert points(tmp_path, "loss") == [(1, 1.0), (1, 2.0), (2, 3.0)]


def test_a_writer_in_another_process_is_no_restart(tmp_path: Path, said: Said) -> None:
    """As long as it lives; killed, it is one."""
    code = (
        "import sys\nfrom instrument import SummaryRecord\nrecord = SummaryRecord(sys.argv[1], num_process=0)\n"
        "record.add_value('scalar', 'loss', 1.0)\nrecord.record(1)\nprint('ready', flush=True)\nsys.stdin.readline()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        start(tmp_path, 1)
        assert said() == []
        other.kill()
    start(tmp_path, 1)
    assert len(said(HOLDS)) == 1


@BOTH
@pytest.mark.parametrize("earlier_dialect", ["mindspore", "both"])
def test_tensorboards_files_behind_mindspores_are_told(
    tmp_path: Path, said: Said, processes: int, earlier_dialect: str
) -> None:
    """The reader takes them for copies, so that the new values are not seen, by whatever rank they are."""
    start(tmp_path, 1, 2, dialect=earlier_dialect, num_process=processes)
    start(tmp_path, 3, value=5.0, dialect="tensorboard", num_process=processes)
    (message,) = said()
    assert message.startswith(f"{tmp_path} holds a run in MindSpore's files already, last written ")
    assert points(tmp_path, "loss") == [(1, 1.0), (2, 1.0)]


@BOTH
@pytest.mark.parametrize("later_dialect", ["mindspore", "both"])
def test_mindspores_files_behind_tensorboards_are_told(
    tmp_path: Path, said: Said, processes: int, later_dialect: str
) -> None:
    """The reader takes the older ones for copies, so that they are not seen any more."""
    start(tmp_path, dialect="tensorboard", num_process=processes)  # nothing in it
    shutil.copytree(tmp_path, tmp_path / "other")
    start(tmp_path / "other", dialect=later_dialect, num_process=processes)
    assert said() == []
    start(tmp_path, 1, 2, dialect="tensorboard", num_process=processes)
    start(tmp_path, 3, value=5.0, dialect=later_dialect, num_process=processes)
    (message,) = said()
    assert message.startswith(f"{tmp_path} holds a run in TensorBoard's files already, last written ")
    assert points(tmp_path, "loss") == [(3, 5.0)]


def test_files_that_another_tool_wrote_are_no_run_of_ours(tmp_path: Path, said: Said) -> None:
    """The reader shows them beside MindSpore's, and nothing is said."""
    shutil.copytree(ROOT / "tests" / "golden" / "tensorboard" / "torch", tmp_path, dirs_exist_ok=True)
    assert any("tfevents" in path.name for path in tmp_path.iterdir())
    start(tmp_path, 1)
    assert said() == []


def test_the_copies_of_another_rank_are_no_run_in_another_dialect(tmp_path: Path, said: Said) -> None:
    """Both dialects by one rank, and a second one that begins later: nothing is hidden, and nothing is said."""
    start(tmp_path, 1, dialect="both")
    for path in list(tmp_path.iterdir()):
        if "summary" in path.name:
            path.rename(tmp_path / path.name.replace(".0.", ".1."))
    start(tmp_path, 1, value=5.0, dialect="both")
    assert said() == []
    assert points(tmp_path, "loss") == [(1, 1.0), (1, 5.0)]


def test_what_nothing_can_replace_is_not_told(tmp_path: Path, said: Said) -> None:
    """Another rank's files, those of a profile, lineage, and files without any event."""
    start(tmp_path / "run", 1)
    (path,) = (tmp_path / "run").iterdir()
    (tmp_path / "other").mkdir()
    for name in (
        path.name.replace(".0.", ".1."), path.name.replace("_MS", "_lineage"),
        path.name.replace("summary", "profile"), "notes.txt",
    ):  # fmt: skip
        shutil.copy(path, tmp_path / "other" / name)
    start(tmp_path / "other")  # a file without an event
    start(tmp_path / "other", 1)
    assert said() == []


def test_without_the_right_to_list_a_directory_recording_goes_on(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can read the run there either."""
    start(tmp_path, 1)

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(resume.os, "scandir", refuse)
        start(tmp_path, 1)
    assert said(HOLDS) == []
    assert read(tmp_path).scalars("loss").step.tolist() == [1]


def test_the_last_of_many_files_is_asked_for_first(tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand starts in a directory cost the next one no thousand files opened; one just deleted stops nothing."""
    start(tmp_path, 1)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    for second in range(1000):
        older = tmp_path / path.name.replace(".summary.", f".summary.{second}")
        older.write_bytes(data)
        os.utime(older, (second * 86400, second * 86400))
    os.utime(path, (1e9, 1e9))
    (tmp_path / path.name.replace(".summary.", ".summary.1000")).symlink_to("nowhere")
    asked: list[str] = []
    monkeypatch.setattr(resume, "is_being_written", lambda older: bool(asked.append(older)))
    start(tmp_path, 2)
    assert asked[0] == str(path)
    assert len(asked) == 2  # its own file, at its end
    (message,) = said(HOLDS)
    assert "last written 2001-09-0" in message


def test_an_evaluation_goes_on_with_its_training(tmp_path: Path, said: Said) -> None:
    """Of one collector: nothing is said of it, nor of a second training, which replaces nothing."""
    collector = SummaryCollector(tmp_path, num_process=0)
    loop = Loop(collector)
    loop.train([1, 2])
    loop.evaluate({"accuracy": 0.5})
    assert said(HOLDS) == []
    Loop(collector).train([1])
    assert said(HOLDS) == []
    assert points(tmp_path, "eval/accuracy/auto") == [(2, 0.5)]
    assert read(tmp_path).scalars("loss/auto").step.tolist() == [1, 2, 3]


def test_an_evaluation_alone_is_told(tmp_path: Path, said: Said) -> None:
    """It has no step of its own, and its metrics stand from step 0 on in place of those of the training."""
    Loop(SummaryCollector(tmp_path, num_process=0)).train([1, 2]).evaluate({"accuracy": 0.5})
    Loop(SummaryCollector(tmp_path, num_process=0)).evaluate({"accuracy": 0.75})
    assert len(said(HOLDS)) == 1
    assert points(tmp_path, "eval/accuracy/auto") == [(0, 0.75)]
