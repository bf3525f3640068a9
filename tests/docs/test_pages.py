"""What README, tutorial and how-to's show is run, prints what they say, and leads where they point."""

from __future__ import annotations

import configparser
import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import instrument
from tests.docs import pages
from tests.docs.pages import ROOT

TIMEOUT_SECONDS = 240
HOW_TO = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "howto").glob("*.md"))
#: They start processes of MindSpore's own.
SLOW = ["docs/howto/several_devices.md"]
RUN = ["README.md", pages.TUTORIAL, "docs/messages.md", *sorted({*HOW_TO} - {*SLOW})]
#: Other libraries that a page is about.
NEEDS = {
    "docs/howto/elsewhere.md": ["pandas"],
    "docs/howto/record.md": ["psutil"],
    "docs/howto/landscape.md": ["matplotlib"],
}
#: The examples of the Chinese README are held to be those of the English one.
SAME = ["README_CN.md"]
PAGES = [*RUN, *SAME, *SLOW, *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md")))]
LINKED = sorted({*PAGES, "CONTRIBUTING.md", "benchmarks/README.md"})
#: Languages of blocks that are shown and not run.
SHOWN = {"text", ""}

_NUMBER = re.compile(r"[-+]?\d[\d.,:]*(e[-+]?\d+)?")
_CURVE = re.compile(r"[▁▂▃▄▅▆▇█!_.\-=+%#*:]{4,}")


def _has(names: list[str]) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


def _ran(directory: Path, chosen: list[str]) -> dict[str, Any]:
    results = directory / "results.json"
    subprocess.run(
        [sys.executable, "-m", "tests.docs.pages", str(results), *chosen],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "GLOG_v": "3"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the pages printed; all of them share one process, as MindSpore takes seconds to come up."""
    pytest.importorskip("mindspore", reason="MindSpore is not installed")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    return _ran(tmp_path_factory.mktemp("pages"), [page for page in RUN if _has(NEEDS.get(page, []))])


def _masked(text: str) -> list[str]:
    """Lines without what differs from run to run: numbers, the form of curves, widths of columns."""
    lines = (_NUMBER.sub("#", _CURVE.sub("~", line)) for line in text.splitlines())
    return [" ".join(re.sub(r"-{2,}", "", line).split()) for line in lines if line.strip()]


def _check(page: str, found: dict[str, Any]) -> None:
    """What Python prints is there to the letter, what a command prints but for its numbers."""
    assert found["error"] == ""
    printed = dict(found["printed"])
    shown = pages.blocks(page)
    for block, following in zip(shown, [*shown[1:], None], strict=True):
        if block.language == "python" and following is not None and following.language == "text":
            assert printed[block.line] == following.text, f"{page}:{block.line}"
        for one in pages.commands(block) if block.language == "console" else ():
            if "".join(one.shown).strip():
                text = "\n".join(one.shown)
                assert _masked(printed[one.line]) == _masked(text), f"{page}:{one.line} prints\n{printed[one.line]}"


@pytest.mark.parametrize("page", RUN)
def test_page_runs_and_prints_what_it_shows(page: str, ran: dict[str, Any]) -> None:
    """Each Python block and each `instrument` command of the page, one after the other."""
    if page not in ran:
        pytest.skip(f"{' and '.join(NEEDS[page])} are needed")
    _check(page, ran[page])


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_page_that_starts_processes_runs_too(page: str, tmp_path: Path) -> None:
    """By MindSpore's own launcher."""
    pytest.importorskip("mindspore", reason="MindSpore is not installed")
    _check(page, _ran(tmp_path, [page])[page])


def test_no_page_has_examples_that_nobody_runs() -> None:
    """Every block is Python, a console or marked as text; the pages with the first two are run."""
    languages = {page: {block.language for block in pages.blocks(page)} for page in PAGES}

    assert {page for page, found in languages.items() if found - SHOWN} <= {*RUN, *SAME, *SLOW}
    assert set().union(*languages.values()) <= {"python", "console", *SHOWN}


def test_commands_that_are_not_run_exist() -> None:
    """Targets of make, extras of the package, scripts of the repository."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = set(setup["options.extras_require"])
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    known = {"instrument", "msrun", "python", "pip", "make", "git"}
    of_an_environment = re.compile(r"[a-z]+/bin/")  # that a command before has made
    for page in [*RUN, *SAME, *SLOW]:
        for block in pages.blocks(page):
            for command in pages.commands(block) if block.language == "console" else ():
                assert of_an_environment.sub("", command.words[0]) in known | {"mindinsight"}, f"{page}:{command.line}"
                if command.words[0] == "make":
                    assert {word for word in command.words[1:] if "=" not in word} <= targets, f"{page}:{command.line}"
        text = (ROOT / page).read_text(encoding="utf-8")
        assert {
            one for some in re.findall(r"mindspore-instrument\[([\w,]+)\]", text) for one in some.split(",")
        } <= extras
        for script in re.findall(r"`((?:examples|tools|benchmarks)/[\w/.]+)`", text):
            assert (ROOT / script).exists(), f"{page}: {script}"


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MkDocs make it."""
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", re.sub(r"`", "", heading)).strip().lower())


def _anchors(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {_slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", LINKED)
def test_links_lead_somewhere(page: str) -> None:
    """To files that are there and headings in them; from docs/ not out of it, as the site has nothing else."""
    text = re.sub(r"^```.*?^```|``.*?``|`[^`\n]*`", "", (ROOT / page).read_text(encoding="utf-8"),
                  flags=re.MULTILINE | re.DOTALL)  # fmt: skip
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), target
        if page.startswith("docs/"):
            assert (ROOT / "docs") in path.resolve().parents, target
        if anchor:
            assert anchor in _anchors(path), target


def test_chinese_readme_has_the_structure_of_the_english_one() -> None:
    """As many headings of each level, the same tables, and the same examples, but for their comments."""

    def structure(page: str) -> list[str]:
        lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
        return [re.match(r"#+|\||```\w*|!", line)[0] for line in lines if re.match(r"#+ |\||```|!\[", line)]  # type: ignore[index]

    def code(page: str) -> list[str]:
        found = [re.sub(r" *#.*", "", block.text) for block in pages.blocks(page) if block.language not in SHOWN]
        return [re.sub(r'"""[^"]*"""', "", text) for text in found]

    assert structure("README_CN.md") == structure("README.md")
    assert code("README_CN.md") == code("README.md")


def test_reference_has_every_public_name() -> None:
    """Those of the package itself, each where it comes from."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    described = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)", text, re.MULTILINE)}
    homes = {"span": "Span", "__version__": None, "ops": "ScalarSummary"}

    assert {homes.get(name, name) for name in instrument.__all__} - {None} <= described


def test_reference_names_what_exists() -> None:
    """What the reference describes by its import path is there."""
    pytest.importorskip("mindspore", reason="MindSpore is not installed")
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))

    for name in re.findall(r"^::: ([\w.]+)", text, re.MULTILINE):
        pkgutil.resolve_name(name)


def test_site_is_in_one_piece() -> None:
    """Each page is in the navigation, and nothing else."""
    named = re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(named) == sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


@pytest.mark.slow
def test_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """As `make docs` does it, with the Python of INSTRUMENT_DOCS_PYTHON or of .venv-docs."""
    python = os.environ.get("INSTRUMENT_DOCS_PYTHON", str(ROOT / ".venv-docs" / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip("MkDocs is not installed: make docs")
    built = subprocess.run(
        [python, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )

    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    assert "raise_exception" in (tmp_path / "site" / "reference" / "recording.html").read_text(encoding="utf-8")


def test_what_it_costs_is_what_was_measured() -> None:
    """Each figure of the README is in the tables of benchmarks/README.md, in both languages the same."""
    measured = set(re.findall(r"[\d.,]+\d", (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")))
    shown = {}
    for page in ("README.md", "README_CN.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        rows = re.findall(r"^\|[^|\n]+\| ([\d.]+)(?: %)? \| ([\d.]+)(?: %)? \|$", text, re.MULTILINE)
        seconds = re.findall(r"(\d\.\d{3}) [s秒]", text)
        shown[page] = [figure for row in rows for figure in row] + seconds

    assert len(shown["README.md"]) == 11
    assert shown["README.md"] == shown["README_CN.md"]
    assert sorted(set(shown["README.md"]) - measured) == []
