"""Any directory name, and any level of a tree, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from instrument.show.cli import main
from tests.show.runs import training

VERBS = (["ls"], ["show"], ["scalars"], ["lineage"], ["compare"], ["export", "--to", "csv", "-o", "out", "--force"])


def words_for(verb: list[str], path: str) -> list[str]:
    """The call for a path; after `--` no name is an option."""
    return [*verb, "--", path, path] if verb == ["compare"] else [*verb, "--", path]


@pytest.mark.parametrize(
    "name", ["a,b", "a b", "中文 run", "a#b?c=1", "a%2Fb", "a&b", "-x", "a+b", "q'uote", "a:b", "[a]*", "~", "$HOME"]
)
def test_any_legal_name_of_a_directory_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Nothing in it is taken for a list, an address, a pattern or an option."""
    training(tmp_path / name, [1.0], optimizer="Adam")
    monkeypatch.chdir(tmp_path)
    for verb in VERBS:
        assert main(words_for(verb, name)) == 0, verb
    capsys.readouterr()
    assert main(["ls", "--json"]) == 0
    assert name in [row["run"] for row in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_every_level_gives_data_or_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    """A run, an event file and a tree are shown; all else is told in a sentence."""
    monkeypatch.chdir(tmp_path)
    training(Path("root/run"), [1.0], optimizer="Adam")
    (event_file,) = Path("root/run").glob("*_MS")
    Path("empty").mkdir()
    Path("other").mkdir()
    Path("other/notes.txt").write_text("x")

    for path in ("root/run", str(event_file)):
        assert main(words_for(verb, path)) == 0, path
        out, err = capsys.readouterr()
        assert (out != "", err) == (True, ""), path
    assert main(words_for(verb, "root")) == 0
    out, err = capsys.readouterr()
    assert (out != "", err) == (True, "")
    for path in ("empty", "missing", "other", "other/notes.txt"):
        assert main(words_for(verb, path)) == 1, path
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1), path
        assert err.startswith("instrument: "), path
        assert path in err

    training(Path("empty"), [1.0])
    assert main(words_for(verb, "empty")) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["show", "s3://b/r"], ["ls", "s3://b"], ["scalars", "s3://b/r"], ["lineage", "s3://b"], ["verify", "s3://b"],
        ["profile", "s3://b/r"], ["export", "{run}", "--to", "csv", "-o", "s3://b/out"],
        ["repair", "{run}", "-o", "s3://b/out"], ["import", "{run}", "-o", "s3://b/out"],
        ["landscape", "{run}", "-o", "s3://b/out.png"],
    ],
)  # fmt: skip
def test_a_url_is_refused_by_every_verb(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To read from and to write to; no folder of that name is made."""
    monkeypatch.chdir(tmp_path)
    assert main([word.format(run=tmp_path) for word in words]) == 1
    assert " is a URL; expected a path of this machine: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
