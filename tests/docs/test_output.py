"""docs/reference/output.md and what the verbs print: the same fields, of the same types, in JSON and in CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from instrument.codec import lifecycle
from instrument.doctor import examine
from instrument.doctor.findings import NOTE, WORKS, Finding
from instrument.show.cli import doctor, main
from instrument.values import Event, Gap, MessageItem
from tests.analyse.files import cpu_window, event_file
from tests.docs.pages import ROOT
from tests.formats.test_tensorboard import parts_without_place
from tests.runs.build import framed, steps, write
from tests.runs.test_tensorboard import FILE
from tests.show.runs import START, every_kind, lineage, training
from tests.show.surfaces import no_path, plane, write_run

PAGE = ROOT / "docs" / "reference" / "output.md"
GOLDEN = ROOT / "tests" / "golden" / "tensorboard"
#: Objects whose keys are names out of a run: what they are called on the page.
NAMED = {
    "tags": "KIND", "versions": "NAME", "system": "NAME", "metadata": "NAME", "metrics": "NAME", "holes": "NAME",
    "tables": "TABLE", "left_out": "NAME",
}  # fmt: skip
#: Objects of any form.
FREE = {"lineage", "metadata"}
#: Words that stand for a number.
WORDS = {"NaN", "Infinity", "-Infinity"}
#: An event of step 1 with the tensor "w" of dims [5] and no data.
DAMAGED_TENSOR = b"\x09" + bytes(8) + b"\x10\x01" + b"\x2a\x0b\x0a\x09\x0a\x01w\x42\x04\x08\x05\x10\x0b"


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float) or (isinstance(value, str) and value in WORDS):
        return "number"
    return {str: "text", list: "list", type(None): "null", dict: "object"}[type(value)]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Fields and types of a piece of JSON, as the page writes them."""
    last = path.rpartition(".")[2]
    if isinstance(value, dict) and last not in FREE and (value or not path):
        placeholder = NAMED.get(last, "") if path else ""
        for key, inner in value.items():
            name = placeholder or key
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and all(isinstance(inner, dict) for inner in value):
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    else:
        yield path, type_of(value)


def fields(report: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in report if isinstance(report, list) else [report]:
        for path, kind in leaves(row):
            found.setdefault(path, set()).add(kind)
    whole = {path[: match.start()] for path in found for match in re.finditer(r"\.|\[\]", path)}
    empty = {"list", "object", "null"}  # one of several that is empty, or missing as a whole
    return {path: kinds for path, kinds in found.items() if path not in whole or not kinds <= empty}


def sections() -> dict[str, str]:
    """The text of the page by heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented(section: str) -> dict[str, set[str]]:
    """Fields and types of a table of the page."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", sections()[section], re.MULTILINE)
    return {name: set(types.strip().split(" or ")) for name, types in rows}


def documented_columns(section: str) -> list[str]:
    """The columns of the CSV that a section of the page lists."""
    (line,) = re.findall(r"^CSV: (.+?)\.\n", sections()[section], re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", line)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs with all that outputs tell of: every kind, gaps, damage, a profile, lineage, a restart."""
    monkeypatch.chdir(tmp_path)
    full = every_kind(tmp_path / "runs" / "full")
    gap = MessageItem("gap", "", lifecycle.encode_gap(Gap(3, 5, 7, "No space left")))
    later = write(full, [Event(8, START + 90, [gap], {"loss": 0.5, "eval/loss": 1.0})], seconds=1_700_000_090)
    later.write_bytes(later.read_bytes() + framed([DAMAGED_TENSOR]) + b"\x01\x02")
    event_file(full, [cpu_window(1)])
    shutil.copytree(GOLDEN / "torch", tmp_path / "runs" / "torch")
    write_run(tmp_path / "runs" / "planes", plane(), no_path())
    training(tmp_path / "runs" / "adam", [4.0, 2.0], [0.5], rate=0.25)
    training(tmp_path / "runs" / "plain", [1.0])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / FILE).write_bytes(b"".join(parts_without_place()))
    for file in full.iterdir():
        os.utime(file, (1.0, 1.0))
    return Path("runs")


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) in (0, 1)
    return capsys.readouterr().out


CALLS: dict[str, list[list[str]]] = {
    "ls": [["runs"]],
    "show": [["runs"]],
    "show --tag": [["runs", "--tag", "*", "--superseded"]],
    "scalars": [["runs"]],
    "compare": [["runs/full", "runs/adam"]],
    "lineage --importance": [["runs", "--importance", "algorithm.loss"]],
    "report": [["runs/full", "-o", "page.html"]],
    "export": [["runs/full", "--to", "npy", "-o", "OUT"]],
    "import": [["runs/torch", "other", "-o", "OUT"]],
    "verify": [["runs"]],
    "repair": [["runs/full", "-o", "OUT"]],
    "landscape": [["runs/planes"]],
    "profile": [["runs/full", "--timeline", "t.json", "--compare", "runs/full"]],
}  # fmt: skip


def calls(section: str, form: str) -> Iterator[list[str]]:
    """The calls of a section; each has a place of its own to write to."""
    for number, words in enumerate(CALLS[section]):
        place = f"{section.partition(' ')[0]}_{form}_{number}"
        yield [section.split()[0], *(place if word == "OUT" else word for word in words), f"--{form}"]


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("section", CALLS)
def test_json_has_the_fields_of_the_page(capsys: pytest.CaptureFixture[str], section: str) -> None:
    """All of them and no others; each of one of the types that the page names."""
    found: dict[str, set[str]] = {}
    for words in calls(section, "json"):
        report = json.loads(shown(capsys, *words), parse_constant=refuse)
        for path, kinds in fields(report).items():
            found.setdefault(path, set()).update(kinds)
    told = documented(section)
    if section == "profile":  # the rows of its tables are in a section of their own
        found = {path: kinds for path, kinds in found.items() if not path.startswith("tables.TABLE.rows[]")}
    assert sorted(found) == sorted(told)
    for path, kinds in found.items():
        number = {"integer"} if "number" in told[path] else set()
        assert kinds - number <= told[path], path


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("section", [*CALLS, "doctor", "lineage"])
def test_csv_has_the_columns_of_the_page(
    capsys: pytest.CaptureFixture[str], section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order; of a profile those of its tables."""
    monkeypatch.setattr(doctor, "examine", lambda _: REPORT)
    found: set[str] = set()
    others = {"doctor": [["doctor", "--csv"]], "lineage": [["lineage", "runs/plain", "--csv"]]}
    for words in others.get(section) or calls(section, "csv"):
        found |= set(next(csv.reader(io.StringIO(shown(capsys, *words)))))
    if section == "profile":
        tables = documented_tables()
        assert found == {"table"} | {column for name in compared() for column in tables[name]}
    elif section == "landscape":
        named = ("holes.", "metrics.", "metadata.")
        assert {column for column in found if not column.startswith(named)} == set(documented_columns(section))
    else:
        assert sorted(found) == sorted(documented_columns(section))


def compared() -> list[str]:
    return [name for name in documented_tables() if name.startswith(("compared_", "unmatched_"))]


FINDINGS = [Finding("a", WORKS, "b"), Finding("c", NOTE, "d")]
REPORT = examine.Report({"python": "3"}, {"numpy": None, "mindspore": "2"}, FINDINGS)


def test_doctor_has_the_fields_of_the_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its report."""
    monkeypatch.setattr(doctor, "examine", lambda _: REPORT)
    found = fields(json.loads(shown(capsys, "doctor", "--json")))
    told = documented("doctor")
    assert sorted(found) == sorted(told)


@pytest.mark.usefixtures("tree")
def test_lineage_has_the_columns_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that every run has, and what the others begin with."""
    lineage(Path("runs/adam"), accuracy=0.5, seed=1)
    found = fields(json.loads(shown(capsys, "lineage", "runs/adam", "--json"), parse_constant=refuse))
    sections_of_run = {path.partition(".")[0] for path in found}
    assert sections_of_run == {name.partition(".")[0] for name in documented("lineage")} - {"dataset", "ran", "hparams"}


def documented_tables() -> dict[str, list[str]]:
    """The tables of a profile, each with its columns."""
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", sections()["Tables of a profile"], re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", columns) for name, columns in rows}


@pytest.mark.usefixtures("tree")
def test_a_profile_has_the_tables_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of their columns."""
    found: dict[str, list[str]] = {}
    options = [[], ["--steps", "--ops", "--data", "--memory", "--advice"], ["--compare", "runs/full"]]
    for words in options:
        report = json.loads(shown(capsys, "profile", "runs/full", *words, "--json"), parse_constant=refuse)
        for name, table in report["tables"].items():
            found[name] = table["columns"]
    assert found == documented_tables()


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(("verb", "section"), [("scalars", "Lines of --follow"), ("show", "Lines of --follow")])
def test_lines_have_the_fields_of_the_page(capsys: pytest.CaptureFixture[str], verb: str, section: str) -> None:
    """Those of a point; `scalars` has no kind and no facts but the value."""
    out = shown(capsys, verb, "runs/full", "--follow", "--json")
    found = fields([json.loads(line, parse_constant=refuse) for line in out.splitlines()])
    told = documented(section)
    assert set(found) <= set(told)
    if verb == "scalars":
        assert set(found) == set(next(csv.reader(io.StringIO(shown(capsys, verb, "runs/full", "--follow", "--csv")))))


def test_names_that_are_no_text_stay_strict_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A byte that is not UTF-8 stands as an escape, which every reader of JSON takes."""
    try:
        write(tmp_path / os.fsdecode(b"r\xff"), steps("scalar", "x", [1], 1.0, start=1.0))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    out = shown(capsys, "ls", tmp_path, "--json")
    assert json.loads(out)[0]["run"] == r"r\udcff"
    assert "\\udcff" in out.replace("\\\\", "\\")
    json.loads(out)[0]["path"].encode("utf-8")
