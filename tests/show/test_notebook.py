"""What a notebook shows: static HTML."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import instrument
from instrument import Run, find_runs
from instrument.runs.run import Runs, read_run
from instrument.show import notebook
from instrument.values import Event
from tests.runs.build import write
from tests.show.runs import EVIL, START, every_kind, lineage, three, training

VOID = ("img", "path", "circle", "polyline")
KNOWN = {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "div", "svg", "path", "polyline", "circle", "img"}


class Checker(HTMLParser):
    """Collects texts, and holds that elements are nested, known and harmless."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in KNOWN, tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name not in ("href", "srcset"), name
            assert name != "src" or (value or "").startswith("data:image/png;base64,")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(thing: Any) -> list[str]:
    """The texts of what a notebook shows."""
    return Checker(thing._repr_html_()).texts


def test_a_run_is_a_table_with_curves(tmp_path: Path) -> None:
    """A row for each tag; columns that say nothing are left out."""
    run = read_run(training(tmp_path / "r", [4.0, math.nan, 1.0], [0.5]))
    assert shown(run) == [
        f"r in {tmp_path / 'r'}", "kind", "tag", "curve", "last", "min", "max", "NaN", "points", "steps",
        "scalar", "eval/accuracy/auto", "0.5", "0.5", "0.5", "0", "1", "10..10",
        "scalar", "loss/auto", "1", "1", "4", "1", "3", "1..3",
    ]  # fmt: skip
    assert run._repr_html_().count("<svg") == 2


def test_the_exact_html_of_a_small_table() -> None:
    """No script, no class, no style sheet."""
    assert notebook.lineage({"train": {"rate": 0.5, "net": "<b>"}}) == (
        "<table><caption>lineage</caption><thead><tr><th>name</th><th>value</th></tr></thead><tbody>"
        '<tr><td style="text-align:left">train.rate</td><td style="text-align:left">0.5</td></tr>'
        '<tr><td style="text-align:left">train.net</td><td style="text-align:left">&lt;b&gt;</td></tr>'
        "</tbody></table>"
    )


def test_every_kind_of_series_is_shown(tmp_path: Path) -> None:
    """Numbers with a curve, pictures as themselves, everything else in words."""
    run = read_run(every_kind(tmp_path / "r"))
    for kind, tags in run.tags().items():
        for tag in tags:
            assert shown(run.points(kind, tag))[0] == f"{kind} {tag}"
    assert "<svg" in run.scalars("loss")._repr_html_()
    assert run.images("i")._repr_html_().count("<img src=") == 2
    assert "dtype float32, shape 2x3, min -Infinity, max 6, nan count 1" in shown(run.tensors("w/a"))
    assert "1 superseded" not in shown(run)


def test_a_long_series_says_how_much_is_shown(tmp_path: Path) -> None:
    """Both ends, and the number of all."""
    write(tmp_path, (Event(step, START, (), {"x": float(step)}) for step in range(100)))
    texts = shown(read_run(tmp_path).scalars("x"))
    assert texts[-1] == "10 of 100 points are shown"
    assert [texts[at] for at in range(4, len(texts) - 1, 3)] == [str(step) for step in (*range(5), *range(95, 100))]


def test_lineage_and_runs_are_tables(tmp_path: Path) -> None:
    """So is what a directory holds."""
    runs = find_runs(three(tmp_path))
    assert shown(runs[0].lineage)[:5] == ["lineage", "name", "value", "train.hyper_parameters.optimizer", "Adam"]
    assert runs[0].lineage == dict(runs[0].lineage)
    texts = shown(runs)
    assert texts[:5] == ["3 runs", "run", "tags", "steps", "last"]
    assert str(tmp_path / "momentum") in texts


@pytest.mark.parametrize("text", EVIL)
def test_texts_out_of_files_are_texts(tmp_path: Path, text: str) -> None:
    """As a tag, the name of a folder, a key and a value of a lineage."""
    folder = tmp_path / text.replace("/", "_")
    write(folder, [Event(1, START, (), {text: 1.0})])
    lineage(folder, text, **{text: text})
    run = read_run(folder)
    for thing in (run, run.scalars(text), run.lineage, find_runs(tmp_path)):
        texts = shown(thing)
        assert all(one.isprintable() for one in texts)
        assert "<script" not in thing._repr_html_()
    assert text.encode("unicode_escape").decode() in shown(run) or text in shown(run)


@pytest.fixture
def shell() -> Any:
    """IPython's shell."""
    interactive = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    yield interactive.InteractiveShell.instance()
    interactive.InteractiveShell.clear_instance()


def test_the_extension_shows_a_directory(shell: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`%instrument` gives the run at a path, or the runs below it, and IPython has text and HTML of each."""
    three(tmp_path / "my runs")
    shell.run_line_magic("load_ext", "instrument")
    runs = shell.run_line_magic("instrument", f"'{tmp_path / 'my runs'}'")
    assert isinstance(runs, Runs)
    run = shell.run_line_magic("instrument", str(tmp_path / "my runs" / "adam").replace(" ", "\\ "))
    assert isinstance(run, Run)
    for thing in (run, runs, run.scalars("loss/auto"), run.lineage):
        data, _ = shell.display_formatter.format(thing)
        assert {"text/plain", "text/html"} <= data.keys()
        Checker(data["text/html"])
    assert capsys.readouterr().out == ""

    for line, words in ((str(tmp_path / "no"), "does not exist"), ("a b c", "3 words; usage"), ("'a", "usage")):
        assert shell.run_line_magic("instrument", line) is None
        assert words in capsys.readouterr().out


def test_the_extension_needs_no_ipython_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is imported; the magic is a function of a line."""
    monkeypatch.setitem(sys.modules, "IPython", None)

    class Shell:
        def register_magic_function(self, function: Any, kind: str, name: str) -> None:
            self.found = function, kind, name

    shell = Shell()
    instrument.load_ipython_extension(shell)  # type: ignore[attr-defined]
    function, kind, name = shell.found
    assert (kind, name) == ("line", "instrument")
    training(tmp_path, [1.0])
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(function("").scalars("loss/auto").value, [1.0])


def test_what_is_read_shows_itself_with_no_extension_loaded(tmp_path: Path, run_python: Callable[..., str]) -> None:
    """Importing the reader loads nothing that shows; asking for HTML does."""
    training(tmp_path / "r", [1.0], [0.5])
    code = f"""
import sys
from instrument import read
run = read({str(tmp_path / "r")!r})
print("instrument.show.notebook" in sys.modules)
for thing in (run, run.scalars("loss/auto"), run.lineage, read({str(tmp_path)!r})):
    print(thing._repr_html_().startswith(("<table>", "<div>")))
"""
    assert run_python(code).split() == ["False", *["True"] * 4]
