"""The built documentation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("INSTRUMENT_DOCS_PYTHON") or ROOT / ".venv-docs" / "bin" / "python")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
#: Members of public classes that only the package itself calls.
INTERNAL = (
    "SummaryRecord.inbox", "SummaryRecord.abandon", "SummaryRecord.write", "SummaryRecord.close_as", "Profiler.deliver",
    "Profile.counted", "Profile.own_ns", "Profile.waiting", "Run.contents",
)  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-docs, which `make docs` makes"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [str(PYTHON), "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True, timeout=300)
    return out


def test_no_page_asks_another_server(site: Path) -> None:
    """Scripts, styles and fonts are beside the pages."""
    for page in site.rglob("*.html"):
        assert re.findall(r'<(?:script|link)[^>]*(?:src|href)="https?://[^"]*', page.read_text(encoding="utf-8")) == []


def test_the_reference_lists_no_internals(site: Path) -> None:
    """What only the package itself calls is not for users."""
    text = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").rglob("*.html"))
    assert "SummaryRecord.add_value" in text
    assert [name for name in INTERNAL if f'{name}"' in text] == []


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_pages_that_are_files_can_be_searched(site: Path) -> None:
    """The search of a page that was opened as a file finds others."""
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=20000",
        "--dump-dom",
    ]
    result = subprocess.run(
        [*command, f"file://{site}/index.html?q=landscape"], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'md-search-result__meta">(\d+) matching documents', result.stdout)
    assert found is not None
    assert int(found[1]) > 2
