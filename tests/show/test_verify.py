"""`instrument verify` and `instrument repair`."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest

from instrument import read
from instrument.show.cli import main
from tests.ringfile.build import FILES, Recorder, scalar
from tests.runs.build import encoded, steps, write


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A tree of two runs, one of which has a wrong byte and a torn end."""
    write(tmp_path / "tree" / "good", steps("scalar", "x", range(5), 1.0, start=0.0))
    path = write(tmp_path / "tree" / "bad", steps("scalar", "x", range(5), 1.0, start=0.0))
    data = bytearray(path.read_bytes())
    data[len(encoded([])[0]) + 20] ^= 1
    path.write_bytes(data[:-3])
    return path


def test_verify_tells_what_is_whole(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 for a whole run with its counts, 1 for a damaged one with file, offset and reason of each place."""
    tree = damaged.parents[1]
    assert main(["verify", str(tree / "good")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split()[2:4] == ["6", "5"]
    assert out[-1] == "1 file, 0 damaged"

    assert main(["verify", str(tree)]) == 1
    out = capsys.readouterr().out.splitlines()
    start = len(encoded([])[0])
    assert f"{damaged} at byte {start}, " in out[3]
    assert out[3].endswith("the checksum of the payload is wrong")
    assert out[4].endswith("the file ends inside a frame")
    assert out[-1] == "2 files, 1 damaged"


def test_verify_as_json_and_csv(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same facts."""
    assert main(["verify", str(damaged), "--json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["frames"], report["values"], report["damaged_places"], report["unfinished_ends"]) == (4, 3, 1, 1)
    assert [one["torn"] for one in report["damage"]] == [False, True]
    assert main(["verify", str(damaged), "--csv"]) == 1
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["frames"], row["values"], row["damaged_places"]) == ("4", "3", "1")


def test_verify_of_nothing_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing path and an empty directory have their sentence."""
    assert main(["verify", str(tmp_path / "missing")]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert main(["verify", str(tmp_path)]) == 1
    assert "no event file" in capsys.readouterr().err


def test_repair_writes_new_files(damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tree goes to the same places below OUT, and what comes out is whole; nothing is overwritten."""
    tree, out = damaged.parents[1], tmp_path / "out"
    before = damaged.read_bytes()
    assert main(["repair", str(tree), "-o", str(out)]) == 0
    text, err = capsys.readouterr()
    assert "wrote 10 frames into 2 files" in err
    assert "  FRAMES WRITTEN  " in text.splitlines()[0]
    assert main(["verify", str(out)]) == 0
    assert (out / "bad" / damaged.name).stat().st_size < len(before)
    assert main(["repair", str(tree), "-o", str(out)]) == 1
    assert "exists" in capsys.readouterr().err
    assert main(["repair", str(tree), "-o", str(tree)]) == 1
    assert damaged.read_bytes() == before


def test_repair_of_a_file(damaged: Path, tmp_path: Path) -> None:
    """A file goes to a file, or into a directory that is there."""
    mended = tmp_path / f"mended.{damaged.name}"
    assert main(["repair", str(damaged), "-o", str(mended)]) == 0
    assert main(["repair", str(damaged), "-o", str(tmp_path)]) == 0
    assert mended.read_bytes() == (tmp_path / damaged.name).read_bytes()
    assert read(mended).tags() == read(tmp_path / damaged.name).tags()


def test_repair_writes_nothing_that_no_reader_takes(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file keeps a name that says what it is, and a tree goes into no file."""
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    for path, out, why in (
        (
            damaged,
            "mended",
            "is no folder, and no event file by its name, so that nothing would read it; give a folder",
        ),
        (damaged.parent, "file", "is a file; -o takes a folder, which is made where it is missing"),
    ):
        assert main(["repair", str(path), "-o", str(tmp_path / out)]) == 1
        assert f"{tmp_path / out} {why}" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("verb", [["verify"], ["repair", "-o", "out"]], ids=["verify", "repair"])
def test_what_is_no_regular_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    """A pipe would wait for its writer, a device has no end: exit code 1 and a sentence, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for path in ("pipe", "/dev/zero"):
        assert main([*verb, path]) == 1
        kind = "a pipe" if path == "pipe" else "a device"
        assert f"{path} is {kind}; an event file or a directory is expected" in capsys.readouterr().err
    assert os.listdir() == ["pipe"]


def killed(directory: Path) -> str:
    """A run whose recorder was killed with five events in its ring."""
    directory.mkdir(parents=True)
    recorder = Recorder(directory)
    recorder.put(*(scalar(step) for step in range(8)))
    recorder.commit(3)
    return recorder.kill()


def test_verify_counts_what_a_ring_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Events in a killed recorder's ring are checked like those in files; a line says where they are, status is 0."""
    ring = killed(tmp_path / "run")
    assert main(["verify", "--json", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert [(row["frames"], row["values"]) for row in json.loads(out)] == [(9, 8), (0, 0)]
    assert f"{ring} holds 5 events of a recorder that was killed" in err
    assert f"`instrument repair {tmp_path / 'run'}`" in err
    assert main(["verify", str(tmp_path / "run" / FILES["summary"])]) == 0
    assert "holds 5 events" in capsys.readouterr().err


def test_verify_of_a_damaged_ring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ring that is damaged is a row of its own, and the status is 1."""
    ring = killed(tmp_path / "run")
    data = bytearray(Path(ring).read_bytes())
    data[0] ^= 1
    Path(ring).write_bytes(data)
    assert main(["verify", str(tmp_path)]) == 1
    out, _ = capsys.readouterr()
    assert "it does not begin as a ring file does; what it may hold cannot be shown" in out
    assert out.endswith("3 files, 1 damaged\n")


def test_repair_appends_what_a_ring_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without -o, event files of all runs below get their events, and the rings are gone; a second call says so."""
    for name in ("a", "b/c"):
        killed(tmp_path / name)
    shown = [read(tmp_path / name).scalars("loss").value.tolist() for name in ("a", "b/c")]
    assert main(["repair", str(tmp_path)]) == 0
    err = capsys.readouterr().err
    assert err.count("appended 5 events of") == 2
    assert list(tmp_path.rglob(".instrument*")) == []
    assert [read(tmp_path / name).scalars("loss").value.tolist() for name in ("a", "b/c")] == shown
    assert main(["repair", str(tmp_path)]) == 0
    assert "nothing to append" in capsys.readouterr().err


def test_repair_beside_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An event file that is given by its path gets what the ring beside it holds."""
    killed(tmp_path / "run")
    assert main(["repair", str(tmp_path / "run" / FILES["summary"])]) == 0
    assert "appended 5 events" in capsys.readouterr().err
    assert main(["repair", str(tmp_path / "none")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_repair_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ring that cannot be used is left as it is, with the reason and the status 1."""
    ring = killed(tmp_path / "run")
    data = bytearray(Path(ring).read_bytes())
    data[8] = 7
    Path(ring).write_bytes(data)
    assert main(["repair", str(tmp_path)]) == 1
    assert "was left as it is: it has version 7" in capsys.readouterr().err
    assert Path(ring).read_bytes() == data


def test_repair_into_new_files_has_what_a_ring_holds(tmp_path: Path) -> None:
    """With -o nothing is changed, and the copies have all events."""
    ring = killed(tmp_path / "run")
    before = (tmp_path / "run" / FILES["summary"]).read_bytes()
    assert main(["repair", str(tmp_path / "run"), "-o", str(tmp_path / "out")]) == 0
    assert os.path.exists(ring)
    assert (tmp_path / "run" / FILES["summary"]).read_bytes() == before
    assert len(read(tmp_path / "out").scalars("loss")) == 8
    assert main(["verify", str(tmp_path / "out")]) == 0
