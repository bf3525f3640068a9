"""Fixtures that any test may use."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# MindSpore 2.7 to 2.9 end the process at their import when protobuf's fast implementation was there before them, and
# here tests of protobuf and of MindSpore share a process. Their own import sets the same.
os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")

# Whoever starts the tests in the background or beyond a terminal's end has these ignored, and so would be every process
# that a test starts and ends with one of them.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have xdist, where it is installed, know the tests that are marked `alone`."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if item.get_closest_marker("alone") is not None:
                item.add_marker(pytest.mark.xdist_group("alone"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests that are marked `alone` beside no other one."""
    from tests.schedule import AloneLast

    return AloneLast(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A random generator. Its seed is new each time and printed; `INSTRUMENT_TEST_SEED` repeats one.

    Tests of one run may be given one seed: each makes something else of it.
    """
    seed = int(os.environ.get("INSTRUMENT_TEST_SEED") or secrets.randbits(32))
    print(f"INSTRUMENT_TEST_SEED={seed}")
    return np.random.default_rng(seed + zlib.crc32(request.node.name.encode()))


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listings keep an index in the user's cache, which is none of the tests' business."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def small_disk_of(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a file system of a size, such as `"64k"`; what is opened there has to be closed before the test ends."""
    folder = tmp_path / "disk"

    def mount(size: str) -> Path:
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        try:
            mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command")
        if mounted.returncode:
            pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
        return folder

    yield mount
    if os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Run code in a fresh Python process that finds the package; return what it prints, fail where it fails."""

    def run(code: str, *options: str, **environment: str) -> str:
        result = subprocess.run(
            [sys.executable, *options, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stderr[-4000:]
        return result.stdout

    return run
