"""`instrument scalars` and `instrument compare`."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from pathlib import Path

import pytest

from instrument import read
from instrument.show import compare
from instrument.show.cli import main
from instrument.values import Event
from tests.read.build import steps, write
from tests.show.runs import EVIL, START, three, training


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    three(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_a_row_with_a_curve_for_each_series(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All runs below the directory, the tags by name; NaN is counted, and told from what is missing."""
    assert (
        printed(capsys, "scalars", "runs")
        == """\
RUN            TAG                 CURVE  LAST   MIN   MAX  NAN  POINTS  STEPS
runs/adam      eval/accuracy/auto  ▁█      0.5  0.25   0.5    0       2  10..20
runs/adam      loss/auto           █▃▁       1     1     4    0       3  1..3
runs/momentum  eval/accuracy/auto  ▄      0.75  0.75  0.75    0       1  10..10
runs/momentum  loss/auto           █▁!     NaN     1     4    1       3  1..3
runs/plain     loss/auto           ▄         3     3     3    0       1  1..1
"""
    )


def test_one_run_and_its_last_points(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The column of the run is left out, and points stand below the table."""
    assert (
        printed(capsys, "scalars", "runs/adam", "--tag", "loss/*", "--last", "2")
        == """\
TAG        CURVE  LAST  MIN  MAX  POINTS  STEPS
loss/auto  █▃▁       1    1    4       3  1..3

loss/auto of runs/adam: the last 2 of 3 points
STEP  TIME                      VALUE
   2  2023-11-14 22:13:22+0000      2
   3  2023-11-14 22:13:23+0000      1
"""
    )


def test_points_as_csv(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every point of every series, or the last of each."""
    assert (
        printed(capsys, "scalars", "runs/momentum", "runs/plain", "--tag", "loss*", "--csv")
        == """\
run,tag,device,host,step,wall_time,value
runs/momentum,loss/auto,0,host,1,1700000001.0,4.0
runs/momentum,loss/auto,0,host,2,1700000002.0,1.0
runs/momentum,loss/auto,0,host,3,1700000003.0,NaN
runs/plain,loss/auto,0,host,1,1700000001.0,3.0
"""
    )
    assert (
        printed(capsys, "scalars", "runs/adam", "--tag", "loss*", "--csv", "--last", "1")
        == """\
run,tag,device,host,step,wall_time,value
runs/adam,loss/auto,0,host,3,1700000003.0,1.0
"""
    )


def test_points_as_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The facts of the row, and the points in columns."""
    assert json.loads(printed(capsys, "scalars", "runs/momentum", "--tag", "loss/auto", "--last", "2", "--json")) == [
        {
            "run": "runs/momentum", "tag": "loss/auto", "device": 0, "host": "host", "points": 3, "first_step": 1,
            "last_step": 3, "last_wall_time": START + 3, "first": 4.0, "last": "NaN", "min": 1.0, "max": 4.0, "nan": 1,
            "values": {"step": [2, 3], "wall_time": [START + 2, START + 3], "value": [1.0, "NaN"]},
        }
    ]  # fmt: skip


def test_writers_have_rows_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two devices are two series."""
    for device in (0, 1):
        write(tmp_path, steps("scalar", "x", [0, 1], float(device), start=1.0), device=device)
    assert (
        printed(capsys, "scalars", str(tmp_path))
        == """\
TAG  WRITER          CURVE  LAST  MIN  MAX  POINTS  STEPS
x    rank 0 on host  ▄▄        0    0    0       2  0..1
x    rank 1 on host  ▄▄        1    1    1       2  0..1
"""
    )


def test_a_tag_is_a_name_before_it_is_a_pattern(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tag with brackets is found by its name."""
    write(tmp_path, steps("scalar", "w[0]", [0], 1.0, start=1.0))
    assert printed(capsys, "scalars", str(tmp_path), "--tag", "w[0]", "--csv").endswith("w[0],0,host,0,1.0,1.0\n")


def test_nothing_to_show_is_1_and_says_what_there_is(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pattern without a match, and a run without scalars."""
    write(tree / "void", [])
    assert main(["scalars", "runs/adam", "--tag", "los"]) == 1
    assert capsys.readouterr() == (
        "",
        "instrument: run 'adam' has no tag that matches 'los'; it has 'eval/accuracy/auto', 'loss/auto'\n",
    )
    assert main(["scalars", "runs/void"]) == 1
    assert capsys.readouterr() == ("", "instrument: runs/void: no scalars\n")


def test_a_wrong_number_is_2(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--last counts from 1; JSON and CSV exclude each other."""
    assert main(["scalars", "runs", "--last", "0"]) == 2
    assert capsys.readouterr() == ("", "instrument scalars: --last is 0; it is a number of points from 1 on\n")
    assert main(["scalars", "runs", "--json", "--csv"]) == 2


def test_what_is_missing_is_told(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A torn end is no error, and stands on stderr."""
    (path,) = (tree / "plain").iterdir()
    path.write_bytes(path.read_bytes() + b"\x01")
    assert main(["scalars", "runs/plain"]) == 0
    assert capsys.readouterr().err == ("instrument: runs/plain: 1 unfinished end; `instrument show` has the details\n")


def test_points_that_a_later_start_replaced_are_told(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are not shown, and how many they are stands on stderr, once a run, with the way to them."""
    path = training(tree / "twice", [4.0, 2.0, 1.0])
    write(path, [Event(1, START + 60, (), {"loss/auto": 3.0})], seconds=int(START) + 50)
    assert main(["scalars", "runs/twice"]) == 0
    assert capsys.readouterr().err == (
        "instrument: runs/twice: a later start in this directory replaced 3 points; "
        "`instrument show RUN --tag TAG --superseded` has them\n"
    )


def test_every_list_tells_what_a_later_start_replaced(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`ls` in its notes, `compare` on stderr for each run, of the tags that it compares, a run when it is printed."""
    path = training(tree / "twice", [4.0, 2.0, 1.0], [0.5])
    write(path, [Event(2, START + 60, (), {"loss/auto": 3.0})], seconds=int(START) + 50)
    shown = {row["run"]: row["replaced_points"] for row in json.loads(printed(capsys, "ls", "runs", "--json"))}
    assert shown["twice"] == 2
    assert set(shown.values()) == {0, 2}
    for _ in range(2):  # the second time out of the index
        (line,) = (one for one in printed(capsys, "ls", "runs").splitlines() if one.startswith("twice"))
        assert line.endswith("  a later start replaced 2 points")
    assert main(["compare", "runs/twice", "runs/adam"]) == 0
    assert capsys.readouterr().err == (
        "instrument: runs/twice: a later start in this directory replaced 2 points; "
        "`instrument show RUN --tag TAG --superseded` has them\n"
    )
    assert main(["compare", "runs/twice", "runs/adam", "--tag", "eval/*"]) == 0
    assert capsys.readouterr().err == ""
    assert repr(read(path)).splitlines()[-1] == "  replaced      2  see superseded=True of a series"


def test_a_step_recorded_twice_is_no_later_start(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last value of a step counts in one file, too; nobody started again."""
    write(tree / "again", [Event(1, START + at, (), {"loss/auto": float(at)}) for at in (1, 2)])
    assert main(["scalars", "runs/again"]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[1].split()[-2:], err) == (["1", "1..1"], "")
    assert main(["ls", "runs/again"]) == 0
    assert "replaced" not in capsys.readouterr().out


@pytest.mark.parametrize("tag", EVIL)
def test_names_are_escaped_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str], tag: str) -> None:
    """No control character reaches the terminal, no formula a spreadsheet; JSON has the name as it is."""
    write(tmp_path / "r", steps("scalar", tag, [1], 1.0, start=1.0))
    for words in (["scalars", "r"], ["compare", "r", "r"], ["ls", "r"], ["show", "r"], ["lineage", "r"]):
        for form in ([], ["--csv"], ["--json"]):
            words = [str(tmp_path / word) if word == "r" else word for word in words]
            out = printed(capsys, *words, *form)
            assert out.replace("\n", "").isprintable(), (words, form)
    rows = list(csv.reader(io.StringIO(printed(capsys, "scalars", str(tmp_path / "r"), "--csv"))))
    assert len(rows) == 2
    assert not rows[1][1].startswith("=")
    assert json.loads(printed(capsys, "scalars", str(tmp_path / "r"), "--json"))[0]["tag"] == tag


def test_two_runs_side_by_side(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Final and best values with the step of the best, the difference, and the hyper-parameters that differ."""
    assert (
        printed(capsys, "compare", "runs/adam", "runs/momentum")
        == """\
A: runs/adam
B: runs/momentum

TAG                 FINAL A  FINAL B  B - A  BEST IS  BEST A  AT STEP  BEST B  AT STEP
eval/accuracy/auto      0.5     0.75   0.25  max         0.5       20    0.75       10
loss/auto                 1      NaN    NaN  min           1        3       1        2

HYPER-PARAMETER                       A     B
train.hyper_parameters.optimizer      Adam  Momentum
train.hyper_parameters.learning_rate  0.5   0.25
"""
    )


def test_what_one_run_lacks_is_a_dash(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tag, and a lineage."""
    assert (
        printed(capsys, "compare", "runs/plain", "runs/adam")
        == """\
A: runs/plain
B: runs/adam

TAG                 FINAL A  FINAL B  B - A  BEST IS  BEST A  AT STEP  BEST B  AT STEP
eval/accuracy/auto        -      0.5      -  max           -        -     0.5       20
loss/auto                 3        1     -2  min           3        1       1        3

HYPER-PARAMETER                       A  B
train.hyper_parameters.optimizer      -  Adam
train.hyper_parameters.learning_rate  -  0.5
train.hyper_parameters.batch_size     -  32
custom.seed                           -  1
"""
    )
    assert printed(capsys, "compare", "runs/adam", "runs/adam").endswith("\nNo hyper-parameter differs.\n")
    assert printed(capsys, "compare", "runs/plain", "runs/plain").endswith(
        "\nNo hyper-parameters to compare: no lineage in A and B.\n"
    )


def test_a_comparison_as_csv_and_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One fact a line; NaN is a word and what is missing is empty."""
    assert (
        printed(capsys, "compare", "runs/plain", "runs/momentum", "--csv", "--tag", "*")
        == """\
what,name,writer,a,b
final,eval/accuracy/auto,,,0.75
max,eval/accuracy/auto,,,0.75
max_step,eval/accuracy/auto,,,10
final,loss/auto,,3.0,NaN
min,loss/auto,,3.0,1.0
min_step,loss/auto,,1,2
hyper_parameter,train.hyper_parameters.optimizer,,,Momentum
hyper_parameter,train.hyper_parameters.learning_rate,,,0.25
hyper_parameter,train.hyper_parameters.batch_size,,,32
hyper_parameter,custom.seed,,,1
"""
    )
    assert json.loads(printed(capsys, "compare", "runs/plain", "runs/adam", "--json", "--tag", "eval/*")) == {
        "a": {"name": "plain", "path": "runs/plain"},
        "b": {"name": "adam", "path": "runs/adam"},
        "scalars": [
            {
                "tag": "eval/accuracy/auto", "writer": None, "best_is": "max", "a": None,
                "b": {"final": 0.5, "final_step": 20, "best": 0.5, "best_step": 20},
            }
        ],
        "hyper_parameters": [
            {"name": "train.hyper_parameters.optimizer", "a": None, "b": "Adam"},
            {"name": "train.hyper_parameters.learning_rate", "a": None, "b": 0.5},
            {"name": "train.hyper_parameters.batch_size", "a": None, "b": 32},
            {"name": "custom.seed", "a": None, "b": 1},
        ],
    }  # fmt: skip


def test_several_writers_are_compared_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By device and host, where a run has more than one."""
    for device in (0, 1):
        write(tmp_path / "two", steps("scalar", "x", [5], float(device), start=1.0), device=device)
    training(tmp_path / "one", [1.0])
    out = printed(capsys, "compare", str(tmp_path / "two"), str(tmp_path / "two"), "--csv")
    assert [line for line in out.splitlines() if line.startswith("final,")] == [
        "final,x,rank 0 on host,0.0,0.0",
        "final,x,rank 1 on host,1.0,1.0",
    ]


def test_a_series_of_nan_has_no_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its final value is NaN, and the best is missing."""
    training(tmp_path, [math.nan])
    assert printed(capsys, "compare", str(tmp_path), str(tmp_path)).splitlines()[4] == (
        "loss/auto      NaN      NaN    NaN  min           -        -       -        -"
    )


def test_the_name_of_a_tag_says_which_value_is_best() -> None:
    """The greatest of an accuracy, the least of a loss; parts of words do not count."""
    tags = ("eval/accuracy/auto", "topAcc", "F1_macro", "val.mIoU", "loss/auto", "accumulated_error", "mapping")
    assert [compare.is_more_better(tag) for tag in tags] == [True, True, True, False, False, False, False]
