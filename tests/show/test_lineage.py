"""`instrument lineage`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from instrument.show.cli import main
from tests.show.runs import lineage, three, training


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    three(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["lineage", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def names(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The runs that are listed, in their order."""
    return [row["run"] for row in json.loads(printed(capsys, "runs", *words, "--json"))]


def test_a_row_a_run(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every run, with the columns in which they differ; below them what is the same, of the runs that are shown."""
    assert (
        printed(capsys, "runs")
        == """\
RUN       optimizer  learning_rate  batch_size  loss  accuracy  seed  eval/accuracy/auto  best_step.eval/accuracy/auto
adam      Adam                 0.5          32  0.25       0.5     1                 0.5                            20
momentum  Momentum            0.25          32  0.25      0.75     1                0.75                            10
plain     -                      -           -     -         -     -                   -                             -
"""
    )
    assert (
        printed(capsys, "runs", "--where", "has(optimizer)")
        == """\
RUN       optimizer  learning_rate  accuracy  eval/accuracy/auto  best_step.eval/accuracy/auto
adam      Adam                 0.5       0.5                 0.5                            20
momentum  Momentum            0.25      0.75                0.75                            10

THE SAME IN ALL                    VALUE
train.hyper_parameters.batch_size  32
train.algorithm.loss               0.25
custom.seed                        1
"""
    )


def test_chosen_columns(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By whole names or their ends, in the order that was asked for, in every form."""
    assert (
        printed(capsys, "runs", "--columns", "custom.seed, optimizer")
        == """\
RUN       seed  optimizer
adam         1  Adam
momentum     1  Momentum
plain        -  -
"""
    )
    assert printed(capsys, "runs", "--columns", "seed", "--csv") == (
        "run,path,custom.seed\nadam,runs/adam,1\nmomentum,runs/momentum,1\nplain,runs/plain,\n"
    )


def test_one_run_is_a_list(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With nothing to tell it from."""
    assert (
        printed(capsys, "runs/adam")
        == """\
RUN
adam

OF THIS RUN                           VALUE
train.hyper_parameters.optimizer      Adam
train.hyper_parameters.learning_rate  0.5
train.hyper_parameters.batch_size     32
train.algorithm.loss                  0.25
eval.metric.accuracy                  0.5
custom.seed                           1
best.eval/accuracy/auto               0.5
best_step.eval/accuracy/auto          20
"""
    )
    assert printed(capsys, "runs/plain") == "RUN\nplain\n\nNo lineage was recorded.\n"


def test_best_values_of_tags(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With their steps, of the tags that are named; a run is found by them as by all else."""
    assert (
        printed(capsys, "runs", "--tag", "loss/*", "--columns", "loss/auto,best_step.loss/auto", "--sort", "loss/auto")
        == """\
RUN       loss/auto  best_step.loss/auto
adam              1                    3
momentum          1                    2
plain             3                    1
"""
    )
    assert names(capsys, "--tag", "loss/*", "--where", "`best.loss/auto` < 2") == ["adam", "momentum"]
    assert names(capsys, "--tag", "loss/*", "--max", "loss/*", "--where", "`best.loss/auto` > 3") == [
        "adam",
        "momentum",
    ]


def test_sorting(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Up or down; a run without the value comes last."""
    assert names(capsys, "--sort", "accuracy") == ["adam", "momentum", "plain"]
    assert names(capsys, "--sort", "accuracy", "--descending") == ["momentum", "adam", "plain"]
    assert names(capsys, "--sort", "run", "--descending") == ["plain", "momentum", "adam"]


def test_filtering(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By an expression over the same names."""
    assert names(capsys, "--where", "learning_rate < 0.3 and accuracy > 0.7") == ["momentum"]
    assert names(capsys, "--where", "not has(optimizer) or optimizer == 'Adam'") == ["adam", "plain"]
    assert main(["lineage", "runs", "--where", "accuracy > 1"]) == 1
    assert capsys.readouterr() == ("", "instrument: none of 3 runs in runs: accuracy > 1\n")


@pytest.mark.parametrize("option", ["--where", "--sort", "--columns"])
def test_an_unknown_name_is_1(tree: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    """And says which comes nearest, and which there are."""
    assert main(["lineage", "runs", option, "acuracy"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "instrument: no run has 'acuracy' (did you mean 'accuracy'?); there are: "
        "best.eval/accuracy/auto, best_step.eval/accuracy/auto, custom.seed, eval.metric.accuracy, path, run, "
        "train.algorithm.loss, train.hyper_parameters.batch_size, train.hyper_parameters.learning_rate, "
        "train.hyper_parameters.optimizer\n",
    )


def test_code_in_an_expression_is_refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a wrong call."""
    assert main(["lineage", "runs", "--where", "__import__('os').system('touch pwned')"]) == 2
    assert "the only function is has(NAME)" in capsys.readouterr().err
    assert not (tree.parent / "pwned").exists()


def test_all_forms_hold_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has texts as they are, CSV has them escaped, and safe for spreadsheets."""
    training(tmp_path / "r", [1.0])
    lineage(tmp_path / "r", "=Adam\x1b", 0.1, note="a\nb", **{"evil\x1b[31m": "x"})
    (row,) = json.loads(printed(capsys, str(tmp_path), "--json"))
    assert row["train.hyper_parameters.optimizer"] == "=Adam\x1b"
    assert row["train.hyper_parameters.learning_rate"] == pytest.approx(0.1)
    assert "\x1b" not in printed(capsys, str(tmp_path), "--csv")
    assert printed(capsys, str(tmp_path), "--csv", "--columns", "optimizer,note") == (
        "run,path,train.hyper_parameters.optimizer,custom.note\n" + f"r,{tmp_path}/r,'=Adam\\x1b,a\\nb\n"
    )


def test_a_tag_that_no_run_has(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is told with the nearest; one that some have is a column of theirs."""
    assert main(["lineage", "runs", "--tag", "los/auto"]) == 1
    assert "has no tag 'los/auto'; the nearest is 'loss/auto'" in capsys.readouterr().err
    assert main(["lineage", "runs", "--tag", "eval/*"]) == 0


def test_importance_of_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate decides here and is first; what is the same in all runs is counted; results are no parameters."""
    monkeypatch.chdir(tmp_path)
    for number in range(12):
        rate = (0.1, 0.2, 0.4)[number % 3]
        lineage(Path(f"runs/{number}"), rate=rate, accuracy=rate + number / 1000, seed=number % 2)
    assert printed(capsys, "runs", "--importance", "accuracy").splitlines() == [
        "importance for eval.metric.accuracy, from 0 to 1",
        "PARAMETER      IMPORTANCE  CORRELATION  RUNS",
        "learning_rate       0.999        0.946    12",
        "seed                    0        0.048    12",
        "",
        "2 parameters the same in all runs",
    ]
    assert main(["lineage", "runs", "--importance", "accuracy", "--json"]) == 0
    first, *others = json.loads(capsys.readouterr().out)
    assert first["parameter"] == "train.hyper_parameters.learning_rate"
    assert (first["target"], first["runs"], first["note"]) == ("eval.metric.accuracy", 12, "")
    assert [(row["importance"], row["note"]) for row in others[1:]] == [(None, "constant")] * 2


def test_importance_of_few_runs(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A figure of two runs says little, which is printed; options that it has no use for are refused."""
    assert "fewer than 8 runs have a value: these figures say little" in printed(
        capsys, "runs", "--importance", "accuracy"
    )
    assert main(["lineage", "runs", "--importance", "acuracy"]) == 1
    assert "acuracy" in capsys.readouterr().err
    assert main(["lineage", "runs", "--importance", "accuracy", "--sort", "accuracy"]) == 2
    assert "--importance has an order and columns of its own" in capsys.readouterr().err
