"""Training scripts that end in every way there is: each runs as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.write.build import ROOT

#: What every script begins with. `told(step)` says on standard output that a step was recorded.
PRELUDE = f"""
import os, signal, sys, time, weakref
sys.path.insert(0, {str(ROOT)!r})
from instrument.values import ArrayItem, Event, ScalarItem
from instrument.write.factory import open_sink
from instrument.write.sink import Target

directory, workers = sys.argv[1], int(sys.argv[2])

def scalar(step):
    return Event.of(step, time.time(), [ScalarItem("loss", float(step))])

def tensor(step, elements):
    import numpy
    return Event.of(step, time.time(), [ArrayItem("tensor", "w", numpy.full(elements, step, "f4"), "float32")])

def worker_pids(sink):
    processes = (sink._producer.supervisor.process(index) for index in range(64))
    return [process.pid for process in processes if process is not None]

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

class Recorder:
    '''Closes its sink at the end of the interpreter, as SummaryRecord does.'''
    def __init__(self, **options):
        self.sink = open_sink(Target(directory), workers, **options)
        self.close = weakref.finalize(self, self.sink.close)
        self.write = self.sink.write
"""


def start(body: str, directory: Path, workers: int, how: str = "file", **options: object) -> subprocess.Popen[str]:
    """Start a script that records into `directory`: from a file, with `-c`, or from standard input."""
    code = PRELUDE + body
    arguments = [str(directory), str(workers)]
    if how == "file":
        script = directory.with_suffix(".py")
        script.write_text(code)
        command = [sys.executable, str(script), *arguments]
    else:
        command = [sys.executable, *(["-c", code] if how == "-c" else ["-"]), *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        cwd=directory.parent, **options,
    )  # type: ignore[call-overload]  # fmt: skip
    if how == "stdin":
        assert process.stdin is not None
        process.stdin.write(code)
        process.stdin.close()
        process.stdin = None
    result: subprocess.Popen[str] = process
    return result


def finish(process: subprocess.Popen[str], returncode: int = 0) -> tuple[str, str]:
    """Wait for the end and return what was said; nothing may have gone wrong while the interpreter was torn down."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == returncode, err[-4000:]
    assert "Exception ignored" not in err
    return out, err


def run(body: str, directory: Path, workers: int, returncode: int = 0, how: str = "file") -> tuple[str, str]:
    return finish(start(body, directory, workers, how), returncode)


def wait_for_line(process: subprocess.Popen[str], line: str) -> None:
    """Read what a script says until it says this."""
    assert process.stdout is not None
    for found in process.stdout:
        if found.rstrip("\n") == line:
            return
    raise AssertionError(f"the script ended before it said {line!r}")
