"""The command line."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import instrument
from instrument import read
from instrument.codec import lifecycle
from instrument.codec.lineage import custom_message
from instrument.show.cli import main
from instrument.values import ArrayItem, Event, Gap, MessageItem
from tests import protobuf
from tests.analyse.files import cpu_window, event_file
from tests.runs.build import SECONDS, framed, item, steps, write, write_lineage

ROOT = Path(__file__).resolve().parents[2]


def call(*words: object) -> subprocess.CompletedProcess[str]:
    """`python -m instrument` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "instrument", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def shown_json(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """The JSON that `show` prints of one run."""
    assert main(["show", *map(str, words), "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out, parse_constant=refuse)
    return report


def shown_values(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """The points that `show --tag` prints of one run, by their kind."""
    return {series["kind"]: series["values"] for series in shown_json(capsys, *words)["series"]}


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """What was printed, line by line, split where two spaces are."""
    return [re.split(r" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with each kind, odd numbers, a restart, lineage and a torn tail."""
    directory = tmp_path / "runs" / "lenet"
    numbers = [0.0, math.nan, math.inf, -math.inf, 0.1]
    events = [Event.of(step, 1000.0 + step, (item("scalar", "loss", value),)) for step, value in enumerate(numbers)]
    array = np.array([[1, 2, 3], [4, 5, 6]], np.int64)
    histogram = np.array([1, 2, 3, math.nan, math.inf], np.float32)
    events.append(
        Event.of(
            7, 1010.0, (ArrayItem("tensor", "w", array, "int64"), ArrayItem("tensor", "empty", array[:0], "int64"))
        )
    )
    events.append(Event.of(8, 1020.0, (ArrayItem("histogram", "h", histogram, "float32"), item("image", "i", 9.0))))
    graph = protobuf.message_class("GraphProto")(name="net")
    graph.node.add(name="1", op_type="MatMul")
    events.append(Event.of(0, 1030.0, (MessageItem("graph", "", graph.SerializeToString()),)))
    write(directory, events)
    later = write(directory, steps("scalar", "loss", [4], 0.5, start=2000.0), seconds=SECONDS + 1)
    later.write_bytes(later.read_bytes() + b"\x01\x02")
    train = protobuf.message_class("TrainLineage")()
    train.hyper_parameters.optimizer = "Momentum"
    messages = [("custom_lineage_data", custom_message({"note": "a\nb", "score": math.nan}))]
    write_lineage(directory, [("train_lineage", train.SerializeToString()), *messages])
    return directory


def test_help_of_a_verb_keeps_its_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of products are no words like others."""
    assert main(["import", "--help"]) == 0
    assert "Write TensorBoard's event files in MindSpore's dialect." in capsys.readouterr().out


def test_version_and_help() -> None:
    """Both answer with 0 and load neither NumPy nor the reader."""
    assert call("--version").stdout == f"instrument {instrument.__version__}\n"
    code = """
import sys
from instrument.show.cli import main
print(main(["--help"]), sorted({"numpy", "instrument.runs.run"} & set(sys.modules)))
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "list the runs at or below a directory" in result.stdout
    assert result.stdout.endswith("0 []\n")


@pytest.mark.parametrize("words", [[], ["nonsense"], ["ls", "--nonsense"], ["show"], ["doctor", "a", "b"]])
def test_a_wrong_call_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The usage goes to stderr."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: instrument")


def test_exit_codes_of_the_process(run: Path, tmp_path: Path) -> None:
    """0 for a run, 1 with one sentence and no traceback for none, 2 for a wrong call."""
    assert call("show", run).returncode == 0
    missing = call("show", tmp_path / "missing")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == (
        f"instrument: {tmp_path / 'missing'} does not exist; the directory of a run or of several, or an event file is "
        "expected\n"
    )
    assert call("ls", "--what").returncode == 2


def test_ls_gives_a_line_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Name below the directory, tags by kind, steps, last time with its zone, damage."""
    write(run.parent / "empty", [])

    assert main(["ls", str(run.parent)]) == 0

    header, empty, lenet = lines(capsys)
    assert header == ["RUN", "TAGS", "STEPS", "LAST", "NOTES"]
    assert empty == ["empty", "-", "-", "-"]
    assert lenet[0] == "lenet"
    assert lenet[1] == "1 scalar, 1 image, 2 tensor, 1 histogram, 1 graph"
    assert lenet[2] == "0..8"
    assert re.fullmatch(r"19(69|70)-\d\d-\d\d \d\d:\d\d:20[+-]\d{4}", lenet[3])
    assert lenet[4] == "3 NaN or infinite from step 1, 1 superseded point, 1 unfinished end"


def test_a_profile_is_listed_and_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside a summary or alone: `ls` counts it, and `show` has its file and the command that explains it."""
    alone = run.parent / "profiled"
    for directory in (alone, run):
        event_file(directory, [cpu_window()])
    assert main(["ls", str(run.parent)]) == 0
    _, lenet, profiled = lines(capsys)
    assert lenet[1].endswith("1 graph, 1 profile")
    assert profiled == ["profiled", "1 profile", "-", "-"]
    assert main(["show", str(alone)]) == 0
    shown = capsys.readouterr().out
    assert "events.out.events.profile." in shown
    assert shown.endswith(f"instrument profile {alone}\n")


def test_ls_of_a_run_lists_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is given itself goes by the last part of its path."""
    assert main(["ls", str(run)]) == 0
    assert lines(capsys)[1][0] == "lenet"


def test_ls_without_a_directory_looks_here(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are relative to the current directory."""
    monkeypatch.chdir(run.parent.parent)
    assert main(["ls"]) == 0
    assert lines(capsys)[1][0] == os.path.join("runs", "lenet")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("empty", "no event file at or below {}, folders searched: 1; give the summary_dir or log_dir of a run"),
        ("missing", "{} does not exist; the directory of a run or of several, or an event file is expected"),
        ("file", "{} is an empty file, and no event file"),
    ],
)
def test_ls_of_nothing_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, sentence: str) -> None:
    """An empty directory, a missing path and a file each have their sentence."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()

    assert main(["ls", str(tmp_path / name)]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"instrument: {sentence.format(tmp_path / name)}")
    assert err.count("\n") == 1


def test_ls_tells_what_it_passed_over(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Notes go to stderr and the runs are listed all the same."""
    (run.parent / "broken").symlink_to("nowhere")

    assert main(["ls", str(run.parent)]) == 0

    out, err = capsys.readouterr()
    assert "lenet" in out
    assert err == f"instrument: {run.parent / 'broken'} is a broken link\n"


def test_show_gives_an_overview(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files, tags with their numbers, lineage and damage, in one piece."""
    assert main(["show", str(run)]) == 0

    rows = lines(capsys)
    assert rows[0] == [f"lenet in {run}"]
    assert ["TAG", "POINTS", "SUPERSEDED", "STEPS", "LAST TIME", "FIRST", "LAST", "MIN", "MAX", "NOT FINITE"] in rows
    (loss,) = [row for row in rows if row[0] == "loss"]
    assert loss[1:4] == ["5", "1", "0..4"]
    assert loss[5:] == ["0", "0.5", "-Infinity", "Infinity", "3 from step 1"]
    assert ["custom.note", r"a\nb"] in rows
    assert ["custom.score", "NaN"] in rows
    assert ["train.hyper_parameters.optimizer", "Momentum"] in rows
    assert rows[-2] == ["FILE", "OFFSET", "BYTES SKIPPED", "REASON"]
    assert rows[-1][2] == "2"
    assert rows[-1][3] == "the file ends inside a frame"


def test_show_as_json_holds_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard JSON: numbers exact, NaN and the infinities as texts."""
    report = shown_json(capsys, run)

    keys = ["run", "path", "ranks", "state", "files", "tags", "has_profile", "lineage", "gaps", "damage"]
    assert list(report) == keys
    assert (report["run"], report["path"]) == ("lenet", str(run))
    assert [file["bytes"] for file in report["files"]] == [
        Path(file["file"]).stat().st_size for file in report["files"]
    ]
    assert {kind: [row["tag"] for row in rows] for kind, rows in report["tags"].items()} == {
        "scalar": ["loss"], "image": ["i"], "tensor": ["empty", "w"], "histogram": ["h"], "graph": ["net"],
    }  # fmt: skip
    assert report["tags"]["scalar"] == [
        {
            "tag": "loss", "device": 0, "host": "host", "points": 5, "superseded_points": 1, "first_step": 0,
            "last_step": 4, "last_wall_time": 2000.0, "first": 0.0, "last": 0.5, "min": "-Infinity", "min_step": 3,
            "max": "Infinity", "max_step": 2, "nan_count": 1, "positive_infinity_count": 1,
            "negative_infinity_count": 1, "first_nonfinite_step": 1,
        }
    ]  # fmt: skip
    assert report["lineage"] == {
        "train": {"hyper_parameters": {"optimizer": "Momentum"}},
        "custom": {"score": "NaN", "note": "a\nb"},
    }
    assert report["gaps"] == []
    (damage,) = report["damage"]
    assert (damage["bytes_skipped"], damage["torn"]) == (2, True)


def test_show_a_scalar(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every point with step, time and value; what a restart replaced is counted, and shown on demand."""
    assert main(["show", str(run), "--tag", "loss"]) == 0
    rows = lines(capsys)
    assert [(row[0], row[2]) for row in rows[4:9]] == [
        ("0", "0"), ("1", "NaN"), ("2", "Infinity"), ("3", "-Infinity"), ("4", "0.5"),
    ]  # fmt: skip
    assert rows[3] == ["STEP", "TIME", "VALUE"]
    assert ["superseded points that are not shown (--superseded shows them): 1"] in rows

    (series,) = shown_json(capsys, run, "--tag", "loss")["series"]
    assert [point["value"] for point in series["values"]] == [0.0, "NaN", "Infinity", "-Infinity", 0.5]
    assert (series["kind"], series["superseded_points"]) == ("scalar", 1)

    values = shown_values(capsys, run, "--tag", "loss", "--superseded")["scalar"]
    assert [point["value"] for point in values] == [0.0, "NaN", "Infinity", "-Infinity", 0.1, 0.5]
    assert [point["superseded"] for point in values] == [False] * 4 + [True, False]
    assert values[4]["wall_time"] == 1004.0


def test_show_other_kinds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind has its own columns."""
    common = {"device": 0, "host": "host", "superseded": False}
    kinds = {tag: shown_values(capsys, run, "--tag", tag) for tag in ("w", "empty", "h", "i", "net")}
    png_bytes = kinds["i"]["image"][0].pop("bytes")

    assert kinds["w"] == {
        "tensor": [
            {
                "step": 7,
                "wall_time": 1010.0,
                **common,
                "dtype": "int64",
                "shape": [2, 3],
                "min": 1,
                "max": 6,
                "nan_count": 0,
            }
        ]
    }
    assert [kinds["empty"]["tensor"][0][key] for key in ("shape", "min", "max")] == [[0, 3], None, None]
    assert kinds["h"]["histogram"] == [
        {
            "step": 8, "wall_time": 1020.0, **common, "count": 5, "min": 1.0, "max": 3.0, "mean": 2.0, "nan_count": 1,
            "positive_infinity_count": 1, "negative_infinity_count": 0,
        }
    ]  # fmt: skip
    assert kinds["i"]["image"] == [
        {
            "step": 8, "wall_time": 1020.0, **common, "width": 2, "height": 2, "channels": 1, "mapping": "as recorded",
        }
    ]  # fmt: skip
    assert png_bytes > 50
    assert kinds["net"]["graph"][0]["nodes"] == 1

    assert main(["show", str(run), "--tag", "w"]) == 0
    rows = lines(capsys)
    assert rows[3] == ["STEP", "TIME", "DTYPE", "SHAPE", "MIN", "MAX"]
    assert rows[4][2:] == ["int64", "2x3", "1", "6"]


def test_gaps_are_shown_beside_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How many events are missing, of which steps and why: in tables, in JSON and in the list of runs."""
    gaps = [Gap(3, 5, 7, "No space\nleft"), Gap(1, 9, 9, "it cannot be encoded")]
    items = [MessageItem("gap", "", lifecycle.encode_gap(gap)) for gap in gaps]
    path = write(tmp_path / "run", [Event(8, 1.0, items[:1], {"x": 8.0}), Event(9, 2.0, items[1:])])
    path.write_bytes(path.read_bytes() + b"\x01")

    for words in ((), ("--tag", "x")):
        assert main(["show", str(path.parent), *words]) == 0
        rows = lines(capsys)
        place = rows.index(["gaps"])
        assert rows[place + 1 : place + 4] == [
            ["EVENTS", "STEPS", "REASON"],
            ["3", "5..7", r"No space\nleft"],
            ["1", "9..9", "it cannot be encoded"],
        ]
        assert rows.index(["damage"]) > place
        assert shown_json(capsys, path.parent, *words)["gaps"] == [
            {"events": 3, "first_step": 5, "last_step": 7, "reason": "No space\nleft"},
            {"events": 1, "first_step": 9, "last_step": 9, "reason": "it cannot be encoded"},
        ]
    assert main(["ls", str(tmp_path)]) == 0
    assert lines(capsys)[1][-1] == "4 missing events, 1 unfinished end"


def test_show_a_tag_of_two_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both are shown."""
    write(tmp_path, [Event.of(1, 1.0, (item("scalar", "x", 1.0), item("histogram", "x", 2.0)))])

    assert list(shown_values(capsys, tmp_path, "--tag", "x")) == ["scalar", "histogram"]


def test_show_names_the_writers_where_there_are_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each rank has a row of its own in the overview, and each point its writer; `--rank` shows one alone."""
    for device in (0, 1):
        write(tmp_path, steps("scalar", "x", [0, 1], float(device), start=1.0), device=device)
    zero, one = "rank 0 on host", "rank 1 on host"

    assert main(["show", str(tmp_path)]) == 0
    shown = lines(capsys)
    assert shown[0] == [f"{tmp_path.name} in {tmp_path}, ranks 0, 1"]
    rows = [row for row in shown if row[0] in ("TAG", "x")]
    assert [row[:3] for row in rows] == [["TAG", "WRITER", "POINTS"], ["x", zero, "2"], ["x", one, "2"]]

    assert main(["show", str(tmp_path), "--tag", "x"]) == 0
    assert [row[2] for row in lines(capsys)[3:]] == ["WRITER", zero, one, zero, one]

    assert [row["device"] for row in shown_json(capsys, tmp_path, "--rank", "1")["tags"]["scalar"]] == [1]
    assert main(["show", str(tmp_path), "--rank", "2"]) == 1
    assert "has no rank 2; it has 0, 1" in capsys.readouterr().err


def test_a_damaged_value_takes_its_row_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other points are shown, and the error stands in the row."""
    path = write(tmp_path, steps("tensor", "w", [0], 1.0, start=10.0))
    value = b"\x0a\x01w" + b"\x42\x04\x08\x05\x10\x0b"  # dims [5], float32, no data
    summary = b"\x0a" + bytes([len(value)]) + value
    payload = b"\x09" + bytes(8) + b"\x10\x01" + b"\x2a" + bytes([len(summary)]) + summary
    path.write_bytes(path.read_bytes() + framed([payload]))

    assert main(["show", str(tmp_path), "--tag", "w"]) == 0
    rows = lines(capsys)
    assert rows[4][2:5] == ["float32", "4", "1"]
    assert rows[5][-1].startswith("tensor 'w' at step 1: a tensor")
    values = shown_values(capsys, tmp_path, "--tag", "w")["tensor"]
    assert ["error" in row for row in values] == [False, True]


@pytest.mark.parametrize(
    ("tag", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("../x/y", "../x/y"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\N{ROCKET}", "\N{ROCKET}"),
        ("x" * 5000, "x" * 5000),
    ],
)
def test_names_are_safe_in_tables_and_whole_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tag: str, shown: str
) -> None:
    """A tag is escaped for the eye, and whole in a pipe; `--tag` and JSON have it as it is."""
    write(tmp_path, [Event.of(1, 1.0, (item("scalar", tag, 3.0),))])

    assert main(["show", str(tmp_path)]) == 0
    assert [row[1] for row in lines(capsys) if row[0] == shown] == ["1"]
    assert shown_json(capsys, tmp_path)["tags"]["scalar"][0]["tag"] == tag
    assert shown_values(capsys, tmp_path, f"--tag={tag}")["scalar"][0]["value"] == 3.0


def test_run_names_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder's name cannot add lines or colours."""
    write(tmp_path / "new\nline\x1b", [])

    assert main(["ls", str(tmp_path)]) == 0
    assert lines(capsys)[1][0] == r"new\nline\x1b"
    assert main(["show", str(tmp_path / "new\nline\x1b"), "--tag", "\x1b"]) == 1
    assert capsys.readouterr().err == "instrument: run 'new\\nline\\x1b' has no tag '\\x1b'; it has none at all\n"


def test_show_of_other_paths(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of a run is shown by itself; of a parent the runs below it; an empty directory says what to do."""
    (run.parent / "void").mkdir()
    first = sorted(run.iterdir())[0]

    assert main(["show", str(first)]) == 0
    assert lines(capsys)[0] == [f"{first.name} in {first}"]
    assert main(["show", str(run.parent)]) == 0
    assert lines(capsys)[0] == [f"lenet in {run}"]
    assert main(["show", str(run.parent / "void")]) == 1
    assert capsys.readouterr().err.startswith(f"instrument: no event file at or below {run.parent / 'void'}")
    assert main(["show", str(run), "--tag", "los"]) == 1
    assert capsys.readouterr().err == "instrument: run 'lenet' has no tag 'los'; the nearest is 'loss'\n"


def test_an_empty_run_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of no bytes is a run with nothing in it."""
    (tmp_path / f"events.out.events.summary.{SECONDS}.0.host_MS").touch()

    assert main(["show", str(tmp_path)]) == 0
    assert len(lines(capsys)) == 5
    report = shown_json(capsys, tmp_path)
    assert (report["tags"], report["lineage"], report["damage"]) == ({}, {}, [])


def test_an_unreadable_file_is_one_sentence(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the system is told without a traceback."""

    def denied(path: str) -> NoReturn:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)

    assert main(["show", str(run)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"({run} cannot be read: Permission denied)" in err


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """As in `instrument show ... | head`: no message, no traceback."""
    write(tmp_path, steps("scalar", "x", range(20_000), 1.0, start=1.0))
    process = subprocess.Popen(
        [sys.executable, "-m", "instrument", "show", str(tmp_path), "--tag", "x"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline().startswith(b"x of ")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.wait(60) == 0


def test_names_print_on_a_terminal_without_unicode(tmp_path: Path) -> None:
    """A character that the terminal lacks is escaped, and nothing fails."""
    write(tmp_path, [Event.of(1, 1.0, (item("scalar", "中", 1.0),))])
    result = subprocess.run(
        [sys.executable, "-m", "instrument", "show", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert rb"\u4e2d" in result.stdout


def test_times_are_utc_in_files_and_local_with_zone_in_tables(tmp_path: Path) -> None:
    """Written in Shanghai, listed in New York: seconds since the epoch in the file, the reader's zone beside it."""
    code = (
        "import sys, time; from instrument.values import Event, ScalarItem;"
        "from instrument.write.factory import open_sink;"
        "from instrument.write.sink import Target; sink = open_sink(Target(sys.argv[1]), 0);"
        "sink.write(Event.of(1, time.time(), (ScalarItem('loss', 1.0),))); sink.close()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = time.time()
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], env={**environment, "TZ": "Asia/Shanghai"}, check=True
    )
    (written,) = read(tmp_path / "run").scalars("loss").wall_time
    assert before <= written <= time.time()
    shown = subprocess.run(
        [sys.executable, "-m", "instrument", "ls", str(tmp_path)],
        env={**environment, "TZ": "America/New_York"}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert datetime.fromtimestamp(written, ZoneInfo("America/New_York")).strftime("%Y-%m-%d %H:%M:%S%z") in shown
