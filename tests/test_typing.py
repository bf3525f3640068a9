"""The types that users see are right: mypy takes what is meant to be written, and refuses what is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Of ours only what users see is judged here; `make lint` looks at the package itself.
CONFIG = """
[mypy]
strict = true
warn_unused_ignores = true
[mypy-instrument.*]
follow_imports = silent
[mypy-mindspore.*,crc32c.*,PIL.*,pandas.*,matplotlib.*,psutil.*,google.protobuf.*,dill.*]
ignore_missing_imports = true
follow_imports = skip
"""


def test_mypy_takes_the_public_interface_as_users_write_it(tmp_path: Path) -> None:
    """In strict mode; each line that is wrong on purpose is found."""
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(CONFIG)
    page = ROOT / "tests" / "typing" / "public_api.py"
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini"), str(page)],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "Success: no issues found in 1 source file\n"), ran.stderr
