"""`instrument scalars` and `instrument compare`."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
import time
from pathlib import Path

import pytest

from instrument import read
from instrument.facts import compare
from instrument.show.cli import main
from instrument.values import Event
from tests.runs.build import steps, write
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
    """All runs below the directory, the tags by name; NaN is counted, with the first step of one."""
    assert (
        printed(capsys, "scalars", "runs")
        == """\
RUN       TAG                 CURVE  LAST   MIN   MAX  NOT FINITE     POINTS  STEPS
adam      eval/accuracy/auto  ▁▅      0.5  0.25   0.5                      2  10..20
adam      loss/auto           █▃▁       1     1     4                      3  1..3
momentum  eval/accuracy/auto  █      0.75  0.75  0.75                      1  10..10
momentum  loss/auto           █▁!     NaN     1     4  1 from step 3       3  1..3
plain     loss/auto           ▆         3     3     3                      1  1..1
"""
    )


def test_one_run_and_its_last_points(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The column of the run is left out, and points stand below the table."""
    assert (
        printed(capsys, "scalars", "runs/adam", "--tag", "loss/*", "--last", "2")
        == """\
TAG        CURVE  LAST  MIN  MAX  POINTS  STEPS
loss/auto  █▃▁       1    1    4       3  1..3

loss/auto of adam: the last 2 of 3 points
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
run,path,tag,device,host,step,wall_time,value
momentum,runs/momentum,loss/auto,0,host,1,1700000001.0,4.0
momentum,runs/momentum,loss/auto,0,host,2,1700000002.0,1.0
momentum,runs/momentum,loss/auto,0,host,3,1700000003.0,NaN
plain,runs/plain,loss/auto,0,host,1,1700000001.0,3.0
"""
    )
    assert (
        printed(capsys, "scalars", "runs/adam", "--tag", "loss*", "--csv", "--last", "1")
        == """\
run,path,tag,device,host,step,wall_time,value
adam,runs/adam,loss/auto,0,host,3,1700000003.0,1.0
"""
    )


def test_points_as_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The facts of the row, and the points in columns."""
    assert json.loads(printed(capsys, "scalars", "runs/momentum", "--tag", "loss/auto", "--last", "2", "--json")) == [
        {
            "run": "momentum", "path": "runs/momentum", "tag": "loss/auto", "device": 0, "host": "host", "points": 3,
            "first_step": 1, "last_step": 3, "last_wall_time": START + 3, "first": 4.0, "last": "NaN", "min": 1.0,
            "min_step": 2, "max": 4.0, "max_step": 1, "nan_count": 1, "positive_infinity_count": 0,
            "negative_infinity_count": 0, "first_nonfinite_step": 3, "direction": "min", "best": 1.0, "best_step": 2,
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
x    rank 0 on host  ▁▁        0    0    0       2  0..1
x    rank 1 on host  ██        1    1    1       2  0..1
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
        "instrument: run 'adam' has no tag 'los'; the nearest is 'loss/auto'\n",
    )
    assert main(["scalars", "runs/adam", "--tag", "x*", "--tag", "y", "--exclude", "z"]) == 1
    assert capsys.readouterr() == (
        "",
        "instrument: run 'adam' has no tag that matches 'x*' or 'y' without 'z'; it has 'eval/accuracy/auto', "
        "'loss/auto'\n",
    )
    assert main(["scalars", "runs/void"]) == 1
    assert capsys.readouterr() == ("", "instrument: runs/void: no scalars\n")


def test_a_wrong_number_is_2(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--last counts from 1; JSON and CSV exclude each other."""
    assert main(["scalars", "runs", "--last", "0"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == (
        "",
        "instrument scalars: error: --last is 0; it is a number of points from 1 on",
    )
    assert err.startswith("usage: instrument scalars ")
    assert main(["scalars", "runs", "--json", "--csv"]) == 2
    assert main(["scalars", "runs", "--descending"]) == 2


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
    shown = {row["run"]: row["superseded_points"] for row in json.loads(printed(capsys, "ls", "runs", "--json"))}
    assert shown["twice"] == 2
    assert set(shown.values()) == {0, 2}
    for _ in range(2):  # the second time out of the index
        (line,) = (one for one in printed(capsys, "ls", "runs").splitlines() if one.startswith("twice"))
        assert line.endswith("  2 superseded points")
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
    assert printed(capsys, "ls", "runs/again").endswith("  1 superseded point\n")


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
    assert not rows[1][2].startswith("=")
    assert json.loads(printed(capsys, "scalars", str(tmp_path / "r"), "--json"))[0]["tag"] == tag


def test_runs_side_by_side(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each tag the best run first, with the step of its best value and its last; hyper-parameters that differ."""
    assert (
        printed(capsys, "compare", "runs")
        == """\
adam: runs/adam
momentum: runs/momentum
plain: runs/plain

TAG                 BEST IS  RUN       BEST  AT STEP  LAST  AT STEP  NOT FINITE
eval/accuracy/auto  max      momentum  0.75       10  0.75       10
eval/accuracy/auto  max      adam       0.5       20   0.5       20
loss/auto           min      adam         1        3     1        3
loss/auto           min      momentum     1        2   NaN        3  1 from step 3
loss/auto           min      plain        3        1     3        1

HYPER-PARAMETER                       adam  momentum  plain
train.hyper_parameters.optimizer      Adam  Momentum  -
train.hyper_parameters.learning_rate  0.5   0.25      -
train.hyper_parameters.batch_size     32    32        -
custom.seed                           1     1         -

No hyper-parameters to compare: no lineage in plain.
"""
    )


def ranked(capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[str, object]]:
    """Run and best value of each row of a comparison."""
    report = json.loads(printed(capsys, "compare", "runs", "--tag", "loss*", *words, "--json"))
    return [(row["run"], row["best"]) for row in report["scalars"]]


def test_the_best_and_its_step_stay_on_a_narrow_terminal(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no room is named below the table; which run was best, and when, is not among it."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for width in (60, 80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(sys, "stdout", Terminal())
        assert main(["compare", "runs", "--tag", "eval/*"]) == 0
        lines = sys.stdout.getvalue().splitlines()  # type: ignore[attr-defined]
        best = next(line for line in lines if line.startswith("eval/accuracy/auto")).split()
        assert [word for word in best if word in ("momentum", "0.75", "10")][:3] == ["momentum", "0.75", "10"]
        assert max(map(len, lines)) <= width


def test_the_order_of_a_comparison(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By any field, up or down; a value that is no number comes last; `--max` turns what is best."""
    assert ranked(capsys) == [("adam", 1.0), ("momentum", 1.0), ("plain", 3.0)]
    assert ranked(capsys, "--max", "loss/*") == [("adam", 4.0), ("momentum", 4.0), ("plain", 3.0)]
    assert ranked(capsys, "--max", "*", "--min", "loss/auto") == ranked(capsys)
    assert ranked(capsys, "--descending") == [("plain", 3.0), ("adam", 1.0), ("momentum", 1.0)]
    assert ranked(capsys, "--sort", "last") == [("adam", 1.0), ("plain", 3.0), ("momentum", 1.0)]
    assert [run for run, _ in ranked(capsys, "--sort", "best_step")] == ["plain", "momentum", "adam"]
    assert [run for run, _ in ranked(capsys, "--sort", "run", "--descending")] == ["plain", "momentum", "adam"]


def test_what_nobody_has_to_compare(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal hyper-parameters, none at all, and a tag that no run has."""
    training(tree / "again", [4.0], rate=0.5, seed=1)
    assert printed(capsys, "compare", "runs/adam", "runs/again").endswith("\nNo hyper-parameter differs.\n")
    assert printed(capsys, "compare", "runs/plain").endswith("\nNo hyper-parameters to compare: no lineage in plain.\n")
    assert main(["compare", "runs", "--tag", "x*"]) == 1
    assert "has no tag that matches 'x*'" in capsys.readouterr().err


def test_a_comparison_as_csv_and_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same rows; in CSV the first column names their sort."""
    words = ("compare", "runs/plain", "runs/momentum", "--tag", "loss/*")
    assert (
        printed(capsys, *words, "--csv")
        == """\
table,run,path,tag,device,host,direction,best,best_step,points,last,last_step,nan_count,positive_infinity_count,\
negative_infinity_count,first_nonfinite_step,name,value
runs,plain,runs/plain,,,,,,,,,,,,,,,
runs,momentum,runs/momentum,,,,,,,,,,,,,,,
scalars,momentum,runs/momentum,loss/auto,0,host,min,1.0,2,3,NaN,3,1,0,0,3,,
scalars,plain,runs/plain,loss/auto,0,host,min,3.0,1,1,3.0,1,0,0,0,,,
hyper_parameters,plain,runs/plain,,,,,,,,,,,,,,train.hyper_parameters.optimizer,
hyper_parameters,momentum,runs/momentum,,,,,,,,,,,,,,train.hyper_parameters.optimizer,Momentum
hyper_parameters,plain,runs/plain,,,,,,,,,,,,,,train.hyper_parameters.learning_rate,
hyper_parameters,momentum,runs/momentum,,,,,,,,,,,,,,train.hyper_parameters.learning_rate,0.25
hyper_parameters,plain,runs/plain,,,,,,,,,,,,,,train.hyper_parameters.batch_size,
hyper_parameters,momentum,runs/momentum,,,,,,,,,,,,,,train.hyper_parameters.batch_size,32
hyper_parameters,plain,runs/plain,,,,,,,,,,,,,,custom.seed,
hyper_parameters,momentum,runs/momentum,,,,,,,,,,,,,,custom.seed,1
"""
    )
    report = json.loads(printed(capsys, *words, "--json"))
    assert report["runs"] == [{"run": "plain", "path": "runs/plain"}, {"run": "momentum", "path": "runs/momentum"}]
    assert report["scalars"][0] == {
        "tag": "loss/auto", "run": "momentum", "path": "runs/momentum", "device": 0, "host": "host",
        "direction": "min", "best": 1.0, "best_step": 2, "points": 3, "last": "NaN", "last_step": 3, "nan_count": 1,
        "positive_infinity_count": 0, "negative_infinity_count": 0, "first_nonfinite_step": 3,
    }  # fmt: skip
    assert report["hyper_parameters"][1] == {
        "run": "momentum", "path": "runs/momentum", "name": "train.hyper_parameters.optimizer", "value": "Momentum",
    }  # fmt: skip


def test_several_writers_are_compared_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each rank has a row, best first."""
    for device in (0, 1):
        write(tmp_path / "two", steps("scalar", "x", [5], 1.0 - device, start=1.0), device=device)
    lines = printed(capsys, "compare", str(tmp_path / "two")).splitlines()
    assert [re.split(" {2,}", line)[:5] for line in lines[3:5]] == [
        ["x", "min", "two", "rank 1 on host", "0"],
        ["x", "min", "two", "rank 0 on host", "1"],
    ]


def test_a_series_of_nan_has_no_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last value is NaN, and the best is missing."""
    training(tmp_path / "r", [math.nan])
    assert printed(capsys, "compare", str(tmp_path / "r")).splitlines()[3].split() == [
        "loss/auto", "min", "r", "-", "-", "NaN", "1", "1", "from", "step", "1",
    ]  # fmt: skip


def test_series_are_sorted(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a field, in every form; what is sorted by is shown."""
    words = ("scalars", "runs", "--tag", "loss/*", "--sort")
    report = json.loads(printed(capsys, *words, "last", "--json"))
    assert [(row["run"], row["last"]) for row in report] == [("adam", 1.0), ("plain", 3.0), ("momentum", "NaN")]
    rows = list(
        csv.DictReader(io.StringIO(printed(capsys, *words, "best_step", "--descending", "--csv", "--last", "1")))
    )
    assert [row["run"] for row in rows] == ["adam", "momentum", "plain"]
    shown = [line.split() for line in printed(capsys, *words, "best").splitlines()]
    assert shown[0][-3:] == ["BEST", "BEST", "STEP"]
    assert [(line[0], *line[-2:]) for line in shown[1:]] == [
        ("adam", "1", "3"),
        ("momentum", "1", "2"),
        ("plain", "3", "1"),
    ]


def test_tags_add_up(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each `--tag` adds to the ones before it, and `--exclude` takes away, in every verb that has them."""
    for verb in (["scalars"], ["show"]):
        report = json.loads(printed(capsys, *verb, "runs/adam", "--tag", "loss/*", "--tag", "eval/*", "--json"))
        rows = report if verb == ["scalars"] else report[0]["series"]
        assert sorted(row["tag"] for row in rows) == ["eval/accuracy/auto", "loss/auto"]
        report = json.loads(printed(capsys, *verb, "runs/adam", "--tag", "*", "--exclude", "loss*", "--json"))
        rows = report if verb == ["scalars"] else report[0]["series"]
        assert [row["tag"] for row in rows] == ["eval/accuracy/auto"]


@pytest.mark.parametrize("verb", ["ls", "show", "scalars", "compare", "lineage"])
def test_several_paths(tree: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """As a shell's pattern gives them: each run once, a path without a run is told, and the status is 1 then."""
    (tree / "notes.txt").write_text("x")
    assert main([verb, "runs", *map(str, sorted(Path("runs").iterdir())), "--json"]) == 1
    out, err = capsys.readouterr()
    report = json.loads(out)
    names = [row["run"] for row in (report["runs"] if verb == "compare" else report)]
    assert list(dict.fromkeys(names)) == ["adam", "momentum", "plain"]
    assert err.startswith("instrument: runs/notes.txt is a text file, and no event file")
    assert err.count("\n") == 1


def test_names_that_would_be_the_same_begin_higher_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two trees with runs of one name."""
    for place in ("a/x", "b/x", "b/y"):
        training(tmp_path / place, [1.0])
    report = json.loads(printed(capsys, "ls", str(tmp_path / "a"), str(tmp_path / "b"), "--json"))
    assert [row["run"] for row in report] == ["a/x", "b/x", "y"]


def test_the_name_of_a_tag_says_which_value_is_best() -> None:
    """The greatest of an accuracy, the least of a loss; parts of words do not count."""
    tags = ("eval/accuracy/auto", "topAcc", "F1_macro", "val.mIoU", "loss/auto", "accumulated_error", "mapping")
    assert [compare.is_more_better(tag) for tag in tags] == [True, True, True, False, False, False, False]
