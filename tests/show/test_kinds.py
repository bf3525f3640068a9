"""Every verb on every kind of directory and file: data or one sentence, never a traceback."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import NoReturn

import pytest

from instrument.analyse.layout import columns
from instrument.show.cli import main
from tests.show.kinds import OTHERS, RUNS, Build

KINDS = {**RUNS, **OTHERS}
WIDTHS = (60, 80, 100, 140, 240)
#: P stands for the path, O for a folder that is not there yet.
VERBS = {
    "ls": ("ls P", "ls P --json", "ls P --csv"),
    "show": ("show P", "show P --json", "show P --csv", "show P --tag *", "show P --tag * --superseded --json"),
    "scalars": ("scalars P", "scalars P --last 3", "scalars P --json", "scalars P --csv"),
    "compare": ("compare P P", "compare P --json", "compare P --csv"),
    "report": ("report P -o O.html", "report P -o O.html --json", "report P -o O.html --csv"),
    "lineage": ("lineage P", "lineage P --json", "lineage P --csv", "lineage P --where has(optimizer)"),
    "export": tuple(f"export P --to {to} -o O" for to in ("csv", "json", "npy", "png", "tensorboard")),
    "import": ("import P -o O",),
    "verify": ("verify P", "verify P --json", "verify P --csv"),
    "repair": ("repair P -o O",),
    "profile": ("profile P", "profile P --ops --steps --data --memory --advice", "profile P --json", "profile P --csv"),
    "landscape": ("landscape P", "landscape P --json", "landscape P --csv"),
}
CALLS = [call for calls in VERBS.values() for call in calls]
#: What NumPy 2 writes where one of its numbers is taken for one of Python's.
NUMPY = re.compile(r"\bnp\.\w|\bnumpy\.|dtype\(")


class Terminal(io.StringIO):
    """A stream that says that somebody looks at it."""

    def isatty(self) -> bool:
        return True


def words_of(call: str, path: Path, out: Path) -> list[str]:
    return [str({"P": path, "O": out, "O.html": out.with_suffix(".html")}.get(word, word)) for word in call.split()]


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A directory or file of the kind that the test is about."""
    build: Build = KINDS[request.param]
    return build(tmp_path / "it")


@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_data_or_a_sentence(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 0 with data, or 1 with a reason; JSON and CSV are such, and no number is one of NumPy's."""
    capsys.readouterr()
    for number, call in enumerate(CALLS):
        out_folder = tmp_path / f"out_{number}"
        status = main(words_of(call, made, out_folder))
        out, err = capsys.readouterr()
        assert status in (0, 1), (call, err)
        assert all(line.startswith("instrument: ") for line in err.splitlines()), (call, err)
        assert out or err, call
        assert not NUMPY.search(out + err), call
        if out and "--json" in call:
            json.loads(out, parse_constant=refuse)
        if out and "--csv" in call:
            lengths = {len(row) for row in csv.reader(io.StringIO(out))}
            assert len(lengths) == 1, call
        for file in out_folder.rglob("*.[cj]s[vo]*"):
            assert not NUMPY.search(file.read_text(encoding="utf-8")), (call, file)


@pytest.mark.parametrize("made", RUNS, indirect=True)
def test_what_is_a_run_is_shown(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verbs for runs give data, whoever wrote them."""
    capsys.readouterr()
    for call in ("ls P", "show P", "show P --json", "compare P", "lineage P", "export P --to csv -o O"):
        assert main(words_of(call, made, tmp_path / "out")) == 0, (call, capsys.readouterr())
        assert capsys.readouterr().out, call


@pytest.mark.parametrize("made", sorted(set(OTHERS) - {"profile", "garbage", "binary file"}), indirect=True)
def test_what_is_no_run_is_one_sentence(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the path, on stderr; nothing is printed and nothing is written."""
    capsys.readouterr()
    before = sorted(tmp_path.rglob("*"))
    for call in ("ls P", "show P", "scalars P", "compare P", "lineage P", "landscape P", "verify P", "repair P -o O"):
        assert main(words_of(call, made, tmp_path / "out")) == 1, call
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1), (call, err)
        assert str(made) in err, call
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_every_line_fits_the_terminal(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 60 to 240 columns, on stdout and stderr; only a word that is longer than a line, as a path, is wider."""
    calls = [call for call in CALLS if "--json" not in call and "--csv" not in call]
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", "1")
        for number, call in enumerate(calls):
            out, err = Terminal(), Terminal()
            with monkeypatch.context() as patch:
                patch.setattr("sys.stdout", out)
                patch.setattr("sys.stderr", err)
                main(words_of(call, made, tmp_path / f"out_{width}_{number}"))
            for line in (out.getvalue() + err.getvalue()).splitlines():
                assert columns(line) <= width or len(line.split()) == 1, (width, call, line)
                assert line == line.rstrip(), (width, call, line)


@pytest.mark.parametrize("verb", VERBS)
def test_a_pipe_gets_names_whole(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever COLUMNS is: tags and paths are not shortened, and no column is hidden."""
    monkeypatch.setenv("COLUMNS", "60")
    path = RUNS["evil names"](tmp_path / ("long_" * 30))
    for number, call in enumerate(VERBS[verb]):
        main(words_of(call, path, tmp_path / f"out_{number}"))
        out, _ = capsys.readouterr()
        assert "..." not in out, call
        assert " hidden: " not in out, call
        if verb in ("show", "scalars", "compare"):
            assert "x" * 3000 in out, call


def test_programs_get_no_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON and CSV have none even where colours are forced; text has."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    path = RUNS["every kind"](tmp_path / "run")
    for call in CALLS:
        main(words_of(call, path, tmp_path / "out"))
        out, _ = capsys.readouterr()
        is_for_programs = "--json" in call or "--csv" in call
        assert ("\x1b" in out) is (not is_for_programs and bool(out) and not call.startswith("report")), call
