"""The Makefile clears and removes what its targets made, and nothing else of a checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = re.findall(r"^[A-Z]+ := (\.venv\S*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make command")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile and what it runs, with an environment, a run and a package of a user beside them."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("tools", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("examples", "instrument", "tests"):
        (tmp_path / name).mkdir()
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for path in (".venv/bin/python", ".venv/base.stamp", "my_run/events", "examples/my_run/events", "rank_0/graph",
                 "build/notes", "dist/other.whl", "other.egg-info/top", ".venv-matrix-mine/notes"):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("a user's")
    return tmp_path


def make(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=directory, capture_output=True, text=True, timeout=60, check=False)


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_clean_leaves_what_it_did_not_make(checkout: Path) -> None:
    """Environments, runs, packages and builds of a user stay; those of the targets are gone."""
    before = files(checkout)
    for path in (".venv-instrument/base.stamp", ".venv-lint/installed.stamp", ".venv-matrix-ms2.7.2-np1/installed",
                 "build/demo_run/events", "build/site/index.html", "dist/mindspore_instrument-0.1.0.whl",
                 "mindspore_instrument.egg-info/top", "instrument/__pycache__/a.pyc"):  # fmt: skip
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text("made")

    assert make(checkout, "clean").returncode == 0
    assert files(checkout) == before


@pytest.mark.parametrize("environment", [name for name in ENVIRONMENTS if name != ".venv-instrument"])
def test_clean_names_an_environment_that_is_not_its_own(checkout: Path, environment: str) -> None:
    """A folder that has the name of one of ours but no stamp, and a link, stay with what is in them."""
    elsewhere = checkout / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "installed.stamp").touch()
    (checkout / ".venv-instrument").symlink_to(elsewhere)
    (checkout / environment).mkdir()
    (checkout / environment / "notes").touch()

    said = make(checkout, "clean").stdout
    assert f"left: {environment}, not made by this Makefile" in said
    assert "left: .venv-instrument, not made by this Makefile" in said
    assert (checkout / environment / "notes").exists()
    assert (checkout / ".venv-instrument" / "installed.stamp").exists()


@pytest.mark.parametrize(
    ("target", "environment"),
    [
        ("demo", ".venv-instrument"), ("lint", ".venv-lint"), ("docs", ".venv-docs"), ("oracle", ".venv-oracle"),
        ("tensorboard", ".venv-tensorboard"), ("bench", ".venv-instrument"), ("dist", ".venv-dist"),
    ],
)  # fmt: skip
def test_no_target_clears_what_it_did_not_make(checkout: Path, target: str, environment: str) -> None:
    """It ends with a message that names the folder, before anything is installed."""
    (checkout / environment).mkdir()
    (checkout / environment / "notes").write_text("a user's")
    before = files(checkout)

    ended = make(checkout, target)
    assert ended.returncode != 0
    assert f"{environment} was not made by this Makefile and is left as it is: move it away" in ended.stderr
    assert files(checkout) == before


def test_no_target_uses_the_name_that_people_use() -> None:
    """`.venv` is what the tutorial, and most people, call an environment of their own."""
    assert len(ENVIRONMENTS) == 7
    assert ".venv" not in ENVIRONMENTS
    for path in (ROOT / "Makefile", ROOT / ".ci" / "run", *sorted((ROOT / "tools").glob("*.py"))):
        assert re.findall(r"(?<![\w`])\.venv(?![\w-])", path.read_text()) == [], path
