"""Real trainings in child processes: each script runs once a session, and many tests look at what it left."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from instrument import Run, read

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"
#: A script that takes longer hangs.
TIMEOUT_SECONDS = 120

HAS_MINDSPORE = importlib.util.find_spec("mindspore") is not None
collect_ignore_glob = [] if HAS_MINDSPORE else ["test_*.py"]
#: MindSpore 2.10's compiled part was built for NumPy 1.
NUMPY_2 = int(np.__version__.split(".")[0]) >= 2


@dataclass(frozen=True)
class Ran:
    """A script that ended: what it printed, its status, and the directory in which it worked."""

    directory: Path
    stdout: str
    stderr: str
    status: int

    def run(self, name: str = "run") -> Run:
        return read(self.directory / name)

    @property
    def expected(self) -> dict[str, np.ndarray[Any, Any]]:
        """What the script itself saw."""
        with np.load(self.directory / "expected.npz", allow_pickle=False) as file:
            return dict(file)

    def said(self, part: str) -> list[str]:
        """Lines of the package's log that contain `part`."""
        return [line for line in self.stderr.splitlines() if part in line]


Script = Callable[..., Ran]


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    """Run `scripts/NAME.py` with arguments and a directory of its own behind them; once for the same arguments."""
    finished: dict[tuple[str, ...], Ran] = {}

    def run(name: str, *arguments: str, statuses: tuple[int, ...] = (0,)) -> Ran:
        key = (name, *arguments)
        if key not in finished:
            finished[key] = _run(tmp_path_factory.mktemp("-".join(key)), name, arguments)
        ran = finished[key]
        assert ran.status in statuses, ran.stderr[-8000:]
        return ran

    return run


def _run(directory: Path, name: str, arguments: tuple[str, ...]) -> Ran:
    ran = run_script(directory, SCRIPTS / f"{name}.py", *arguments, str(directory), GLOG_v="3")
    _wait_for_workers(directory)
    return ran


def run_script(
    directory: Path, script: Path, *arguments: str, timeout_seconds: float = TIMEOUT_SECONDS, **environment: str
) -> Ran:
    """Run a script in a directory; it and all that it started are ended after a while."""
    process = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return Ran(directory, stdout, stderr, process.returncode)


def _wait_for_workers(directory: Path) -> None:
    """Workers outlive a process that was killed by a moment, to write what they were given."""
    found = [one for one in psutil.process_iter(["cmdline"]) if str(directory) in str(one.info["cmdline"])]
    _, left = psutil.wait_procs(found, timeout=20)
    assert left == []


@pytest.fixture(params=["graph", "pynative"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both ways in which MindSpore runs a network."""
    return str(request.param)


def mindspore_version() -> tuple[int, ...]:
    return tuple(map(int, importlib.metadata.version("mindspore").split(".")[:2]))
