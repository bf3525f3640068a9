"""SIGTERM inside a window, in processes of their own: the trace is whole, and the process ends as it would have."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.profiler.fake import windows

SCRIPT = """
import os, signal, sys, threading
from instrument import framework
from instrument.profiler import backends
from instrument.profiler.profiler import Profiler
from tests.profiler.fake import FakeBackend

fake = FakeBackend()
backends.maker = lambda target: lambda options: fake
framework.device_target = lambda: "Ascend"
def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
{body}
"""
STEP = "p = Profiler(sys.argv[1]); p.step()"
CASES = {
    "open": f"{STEP}; terminate()",
    "closing": f"{STEP}; stop = fake.stop; fake.stop = lambda: (terminate(), stop()); p.stop()",
    "closed": f"{STEP}; p.stop(); assert signal.getsignal(15) is signal.SIG_DFL; terminate()",
    "own handler": f"signal.signal(15, lambda *_: sys.exit(7)); {STEP}; terminate()",
    "thread": "t = threading.Thread(target=lambda: globals().update(p=Profiler(sys.argv[1]))); t.start(); t.join();"
    "p.stop()",
}
ENDS = {"own handler": 7, "thread": 0}
REASONS = {"open": "SIGTERM, perhaps for Ctrl+C", "own handler": "the interpreter ended"}


@pytest.mark.parametrize("name", list(CASES))
def test_the_end_by_a_signal(tmp_path: Path, name: str) -> None:
    """While a window is open, while it is being closed, after it; a handler of the user's own is left alone."""
    code = SCRIPT.format(body=CASES[name])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == ENDS.get(name, -signal.SIGTERM), done.stderr
    (found,) = windows(tmp_path)
    assert found.about["reason"] == REASONS.get(name, "")
    assert found.raw == {"hwts.data.0.slice_0": b"\0" * 64}
