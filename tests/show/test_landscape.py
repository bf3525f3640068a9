"""`instrument landscape`."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from instrument import read
from instrument.show.cli import main
from instrument.values import Event
from tests.runs.build import item, write
from tests.show.surfaces import line, no_path, plane, write_run

ROOT = Path(__file__).resolve().parents[2]
ODD = "landscape_[1, 4] <b>&\"'$title</script>\x1b[2J算"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A plane with a path, a random plane, and a line."""
    return write_run(tmp_path / "run", plane(), no_path(), line())


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["landscape", *map(str, words)]) == 0
    return capsys.readouterr().out


def shown_json(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    return json.loads(shown(capsys, *words, "--json"), parse_constant=refuse)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The exit code, and what stderr says; nothing else was printed."""
    code = main(["landscape", *map(str, words)])
    out, error = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in error
    return code, error


# ---------------------------------------------------------------- in words


def test_the_summary(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every landscape, in the order in which they were recorded, with its path."""
    parts = shown(capsys, run).split("\n\n")
    assert parts[0] == f"3 landscapes of run in {run}"
    assert [part.splitlines()[0] for part in parts[1:]] == [
        "0  landscape_[1, 4]: steps 1 to 4",
        "   STEP    X     Y  LOSS ON THE PLANE  TRUE LOSS  UNEXPLAINED",
        "1  landscape_[4]",
        "2  line_[1, 4]: steps 1 to 4",
        "   STEP  X  Y  LOSS ON THE PLANE  TRUE LOSS  UNEXPLAINED",
    ]
    assert "   holes              3 of 12 points: 1 NaN, 1 Infinity, 1 -Infinity" in parts[1].splitlines()
    assert parts[2].splitlines()[1:] == [
        "      1  1.5  0.25                  7        7.5        0.125",
        "      2  0.5   0.5                  5       5.25         0.25",
        "      4    0     0                  1          1            0",
    ]


def test_csv(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each landscape; what one lacks is empty."""
    assert main(["landscape", str(run), "--csv"]) == 0
    first, second, _ = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["index"], first["tag"], first["lowest.loss"]) == ("0", "landscape_[1, 4]", "1.0")
    assert (second["index"], second["metadata.seed"], first["metadata.seed"]) == ("1", "", "7")


def test_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as JSON."""
    first, random, _ = shown_json(capsys, run)
    assert first == {
        "run": "run",
        "path": str(run),
        "file": None,
        "index": 0,
        "tag": "landscape_[1, 4]",
        "numbers": [1, 2, 4],
        "columns": 4,
        "rows": 3,
        "x": [-1.0, 2.0],
        "y": [-0.5, 0.5],
        "lowest": {"x": 0.0, "y": 0.0, "loss": 1.0},
        "highest": {"x": 2.0, "y": 0.5, "loss": 9.0},
        "convergence": {"x": 0.0, "y": 0.0, "loss": 1.0},
        "holes": {"NaN": 1, "Infinity": 1, "-Infinity": 1},
        "explained": [0.75, 0.125, 0.0625],
        "checkpoints": [
            {"number": 1, "x": 1.5, "y": 0.25, "path_loss": 7.0, "true_loss": 7.5, "unexplained": 0.125},
            {"number": 2, "x": 0.5, "y": 0.5, "path_loss": 5.0, "true_loss": 5.25, "unexplained": 0.25},
            {"number": 4, "x": 0.0, "y": 0.0, "path_loss": 1.0, "true_loss": 1.0, "unexplained": 0.0},
        ],
        "metrics": {"accuracy": {"lowest": 0.0, "highest": 0.6875, "holes": {}}},
        "metadata": {"decomposition": "PCA", "unit": "step", "step_per_epoch": 2, "seed": 7},
    }
    assert (random["numbers"], random["checkpoints"], random["explained"]) == ([], [], [])


def test_what_is_not_finite_is_text_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the other commands."""
    surface = plane(path_loss=np.array([math.inf, math.nan, 1.0]), z=np.full((3, 4), math.nan))
    (found,) = shown_json(capsys, write_run(tmp_path, surface))
    assert [one["path_loss"] for one in found["checkpoints"]] == ["Infinity", "NaN", 1.0]
    assert (found["lowest"], found["highest"]) == (None, None)


def test_odd_names_do_not_disturb_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tags and metadata come out of a file."""
    metadata = {"decomposition": "\x1b[31m", "unit": "st\x07ep", "step_per_epoch": 1, "a\x1bb": ["\x1b"]}
    surface = plane(tag=ODD, metadata=metadata, metrics={"\x1bm": np.ones((3, 4))})
    assert shown(capsys, write_run(tmp_path, surface)).replace("\n", "").isprintable()


# ---------------------------------------------------------------- which landscape


@pytest.mark.parametrize(
    ("words", "index"),
    [
        (("--index", 0), 0),
        (("--index", 1), 1),
        (("--index", -1), 2),
        (("--interval", "1,2,4"), 0),
        (("--interval", "1,4"), 2),
    ],
)
def test_one_is_chosen(run: Path, words: tuple[object, ...], index: int, capsys: pytest.CaptureFixture[str]) -> None:
    """By its place, or by the numbers of its checkpoints."""
    assert [one["index"] for one in shown_json(capsys, run, *words)] == [index]


@pytest.mark.parametrize("interval", ["1..4", "1-4"])
def test_one_is_chosen_by_its_ends(tmp_path: Path, interval: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where only one has them."""
    run = write_run(tmp_path, no_path(), plane())
    assert [one["index"] for one in shown_json(capsys, run, "--interval", interval)] == [1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--index", 3), "run 'run' has no landscape 3; it has 0 (landscape_[1, 4]: steps 1 to 4), 1 (landscape_[4])"),
        (("--index", -4), "run 'run' has no landscape -4; it has 0"),
        (("--interval", "1..5"), "run 'run' has no landscape of 1..5; it has 0"),
        (
            ("--interval", "1..4"),
            "run 'run' has several landscapes of 1..4: 0 (landscape_[1, 4]: steps 1 to 4), 2 (line",
        ),
    ],
)
def test_none_is_chosen(
    run: Path, words: tuple[object, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence says what there is."""
    code, error = refused(capsys, run, *words)
    assert code == 1
    assert error.startswith(f"instrument: {sentence}")


def test_the_first_is_drawn_and_others_are_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is left to think that it is all there is."""
    assert main(["landscape", str(run), "-o", str(tmp_path / "a.csv")]) == 0
    out, error = capsys.readouterr()
    assert out == f"{tmp_path / 'a.csv'}: landscape_[1, 4]: steps 1 to 4\n"
    assert error == (
        "instrument: this is the first of 3 landscapes; --index or --interval chooses another of "
        "0 (landscape_[1, 4]: steps 1 to 4), 1 (landscape_[4]), 2 (line_[1, 4]: steps 1 to 4)\n"
    )
    (report,) = shown_json(capsys, run, "--index", 1, "-o", tmp_path / "b.csv")
    assert report["file"] == str(tmp_path / "b.csv")


# ---------------------------------------------------------------- what goes wrong


def test_a_run_without_a_landscape_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So is one whose only landscape is damaged, and the reason is told."""
    write(tmp_path / "plain", [Event.of(1, 1000.0, (item("scalar", "loss", 1.0),))])
    code, error = refused(capsys, tmp_path / "plain")
    assert code == 1
    assert error.startswith(
        "instrument: run 'plain' has no landscape; SummaryLandscape(summary_dir).compute(...) makes"
    )
    damaged = plane(metrics={"accuracy": np.ones((2, 2))})
    code, error = refused(capsys, write_run(tmp_path / "damaged", damaged))
    assert code == 1
    assert error.startswith("instrument: run 'damaged' has no landscape that can be read: landscape 'landscape_[1, 4]'")
    assert refused(capsys, tmp_path / "missing")[0] == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("-o", "out.txt"),
            "--output is out.txt; its name says what is written, and ends in one of .png, .svg, .pdf, .html",
        ),
        (("-o", "png"), "--output is png; its name says"),
        (("--metric", "accuracy"), "--metric is for pictures and pages"),
        (("--scale", "log", "-o", "a.csv"), "--scale is for pictures and pages"),
        (("--clip", "3"), "--clip is for pictures and pages"),
        (("--clip", "nan", "-o", "a.png"), "--clip is nan; it is a finite loss"),
        (("--interval", "1:4"), "--interval is 1:4; expected FIRST..LAST"),
        (("--interval", "4"), "--interval is 4; expected FIRST..LAST"),
    ],
)
def test_a_wrong_call_is_2(
    run: Path, words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Before anything is read or written."""
    code, error = refused(capsys, run, *words)
    assert code == 2
    assert error.startswith("usage: instrument landscape ")
    assert f"\ninstrument landscape: error: {sentence}" in error
    assert [one.name for one in tmp_path.iterdir()] == ["run"]


def test_wrong_arguments_are_2(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that argparse knows."""
    for words in ([], [run, "--index", "x"], [run, "--index", "0", "--interval", "1..4"], [run, "--scale", "cube"]):
        assert refused(capsys, *words)[0] == 2


def test_a_place_that_cannot_be_written_is_1(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is named as the user named it, and nothing is left behind."""
    code, error = refused(capsys, run, "--index", 0, "-o", tmp_path / "nowhere" / "a.csv")
    assert code == 1
    assert error == f"instrument: {tmp_path / 'nowhere' / 'a.csv'}: No such file or directory\n"
    (tmp_path / "folder.csv").mkdir()
    assert refused(capsys, run, "--index", 0, "-o", tmp_path / "folder.csv")[0] == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder.csv", "run"]


def test_axes_that_cannot_be_drawn_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are shown in words all the same."""
    run = write_run(tmp_path / "run", plane(x=np.array([0.0, 0.0, math.nan, 1.0])))
    code, error = refused(capsys, run, "-o", tmp_path / "a.html")
    assert code == 1
    assert "its x axis has values that are not finite or do not ascend" in error
    assert "0 to 1, 4 points" in shown(capsys, run)


def test_a_metric_that_is_not_there_is_1(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that are there are named."""
    code, error = refused(capsys, run, "--index", 0, "-o", tmp_path / "a.html", "--metric", "f1")
    assert (code, error) == (1, "instrument: landscape 'landscape_[1, 4]' has no metric 'f1'; it has accuracy\n")


def test_without_matplotlib_the_extra_is_named(run: Path, tmp_path: Path) -> None:
    """Only pictures need it: the module is imported by nothing else."""
    code = """
import sys
sys.modules["matplotlib"] = None
from instrument.show.cli import main
for suffix in ("html", "csv", "npz", "vtp", "png"):
    code = main(["landscape", sys.argv[1], "--index", "0", "-o", f"{sys.argv[2]}/a.{suffix}", "--json"])
    print(code, file=sys.stderr)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(run), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ran.stderr.splitlines() == [
        "0", "0", "0", "0",
        "instrument: A picture needs matplotlib, which is not installed: pip install matplotlib; an "
        ".html page needs nothing",
        "1",
    ]  # fmt: skip
    assert not (tmp_path / "a.png").exists()


def test_reading_the_run_gives_the_same_landscapes(run: Path) -> None:
    """`Run.landscapes` and the command agree on order and content."""
    assert [one.tag for one in read(run).landscapes] == ["landscape_[1, 4]", "landscape_[4]", "line_[1, 4]"]
