"""Recorders in processes whose surroundings are odd: closed descriptors, children of the script, strange modules."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.faults.scripts import run
from tests.write.build import numbers, only_file, steps, wait_for_workers_to_end

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals and /proc are Linux's here")

KILL_WORKER = "os.kill(worker_pids(recorder.sink)[0], signal.SIGKILL)"
OPEN_FILES = """
def low():
    # A file may have one of these for a moment, until it is opened above them: only what stays open counts.
    import time
    end = time.monotonic() + 5
    while (fds := [fd for fd in range(3) if os.path.exists(f"/proc/self/fd/{fd}")]) and time.monotonic() < end:
        time.sleep(0.001)
    return fds
"""


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_descriptors_of_the_streams_are_left_alone(tmp_path: Path, count: int, when: str) -> None:
    """Closed before or after a recorder is opened, they are never ours, nor those of a worker's successor."""
    close = "[os.close(fd) for fd in range(3)]"
    body = f"""
{OPEN_FILES}
book = os.open({str(tmp_path / "book")!r}, os.O_WRONLY | os.O_CREAT)
if {when == "before"}: {close}
recorder = Recorder(ring_bytes=128 << 10)
if {when == "after"}: {close}
assert not low()
for step in range(30):
    recorder.write(tensor(step, 100_000) if step == 20 else scalar(step))
    if step in (10, 25) and workers:
        recorder.sink.flush()
        {KILL_WORKER}
    if low():
        os.write(book, b"a low descriptor is open")
recorder.sink.flush(sync=True)
recorder.close()
if low():
    os.write(book, b"a low descriptor is open at the end")
os._exit(0)
"""
    run(body, tmp_path / "run", count)
    assert numbers(only_file(tmp_path / "run")) == [(step, float(step)) for step in range(30)]
    assert (tmp_path / "book").read_text() == ""


def test_workers_are_no_children(tmp_path: Path) -> None:
    """`os.wait()` until there is no child left returns the script's own, also behind a worker's death, and ends."""
    body = f"""
recorder = Recorder()
recorder.write(scalar(0))
recorder.sink.flush()
for turn in range(2):
    own = {{os.fork() or os._exit(0) for _ in range(3)}}
    signal.alarm(20)
    found = set()
    try:
        while True:
            found.add(os.wait()[0])
    except ChildProcessError:
        say(found == own)
    signal.alarm(0)
    {KILL_WORKER}
    recorder.write(scalar(turn + 1))
    recorder.sink.flush()
recorder.close()
"""
    out, _ = run(body, tmp_path / "run", 1)
    assert out == "True\nTrue\n"
    assert steps(only_file(tmp_path / "run")) == [0, 1, 2]


def test_a_trainer_that_adopts_orphans(tmp_path: Path) -> None:
    """As process 1 of a container does: workers that end leave no zombies."""
    body = f"""
import ctypes
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
recorder = Recorder()
for step in range(4):
    recorder.write(scalar(step))
    recorder.sink.flush()
    {KILL_WORKER}
recorder.write(scalar(4))
recorder.close()
try:
    say(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    say("no child")
"""
    out, _ = run(body, tmp_path / "run", 1)
    assert out == "no child\n"
    assert steps(only_file(tmp_path / "run")) == list(range(5))


NAMES = ("json", "types", "signal", "select", "socket", "struct", "site", "sitecustomize", "usercustomize", "numpy")


def test_the_users_modules_stay_with_the_user(tmp_path: Path) -> None:
    """Workers import the standard library and our packages, whatever the user's path and variables hold first."""
    folder = tmp_path / "a:b"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\n")
    body = f"""
sys.path[:0] = [{str(folder)!r}, ""]
os.environ["PYTHONPATH"] = {str(folder)!r}
os.environ["PYTHONSTARTUP"] = {str(folder / "json.py")!r}
os.environ["PYTHONHOME"] = "/nowhere"
os.chdir({str(folder)!r})
recorder = Recorder()
for step in range(20):
    assert recorder.write(tensor(step, 1000))
recorder.sink.flush()
say(len(worker_pids(recorder.sink)), recorder.sink._producer.supervisor._starts)
recorder.close()
"""
    out, err = run(f"import numpy\n{body}", tmp_path / "run", 1)
    assert (out, err) == ("1 1\n", "")
    assert not (tmp_path / "imported").exists()
    assert steps(only_file(tmp_path / "run")) == list(range(20))


def test_a_directory_of_any_name(tmp_path: Path) -> None:
    """Colons, quotes, blanks and bytes that are no UTF-8."""
    directory = os.fsencode(tmp_path / "a:b 'c\" $d") + b"\xff"
    body = f"""
directory = os.fsdecode({directory!r})
recorder = Recorder()
assert all(recorder.write(scalar(step)) for step in range(20))
recorder.close()
"""
    run(body, tmp_path / "run", 1)
    assert steps(only_file(Path(os.fsdecode(directory)))) == list(range(20))


@pytest.mark.parametrize("how", ["removed", "program"])
def test_an_environment_that_is_removed(tmp_path: Path, how: str) -> None:
    """A worker dies, and no other can be started: what waits is written, and recording goes on."""
    body = f"""
from instrument import processes
recorder = Recorder(ring_bytes=64 << 10)
recorder.write(scalar(0))
recorder.sink.flush()
if {how == "removed"}:
    processes._folders = lambda name: []
else:
    processes.interpreters = lambda: []
    recorder.sink._producer.supervisor._interpreters.clear()
{KILL_WORKER}
for step in range(1, 40):
    assert recorder.write(tensor(step, 40_000 if step == 20 else 100))
recorder.sink.flush()
say(recorder.sink.stats.events)
recorder.close()
"""
    out, err = run(body, tmp_path / "run", 1)
    assert out == "40\n"
    assert "Traceback" not in err or how == "removed"
    assert numbers(only_file(tmp_path / "run")) == [(step, float(step)) for step in range(40)]
    assert [name for name in os.listdir(tmp_path / "run") if name.startswith(".")] == []


def test_without_a_shell(tmp_path: Path) -> None:
    """As in a container of Python and little else: an interpreter starts the worker, which is no child either."""
    body = """
from instrument import processes
processes._SHELL = "/nowhere/sh"
recorder = Recorder()
assert all(recorder.write(scalar(step)) for step in range(20))
recorder.sink.flush()
say(len(worker_pids(recorder.sink)))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    say("no child")
recorder.close()
"""
    out, _ = run(body, tmp_path / "run", 1)
    assert out == "1\nno child\n"
    assert steps(only_file(tmp_path / "run")) == list(range(20))


@pytest.mark.parametrize("end", ["recorder.close()", "del recorder", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_nothing_is_said_in_development_mode(tmp_path: Path, end: str) -> None:
    """With `-X dev` there is no ResourceWarning, of the trainer or of a worker, and no ring file is left."""
    body = f"""
import warnings
warnings.simplefilter("always")
os.environ["PYTHONDEVMODE"] = "1"
recorder = Recorder()
assert all(recorder.write(scalar(step)) for step in range(20))
recorder.sink.flush()
{end}
"""
    _, err = run(body, tmp_path / "run", 2, returncode=-9 if "SIGKILL" in end else 0)
    wait_for_workers_to_end(tmp_path)
    assert err == ""
    assert [name for name in os.listdir(tmp_path / "run") if name.startswith(".")] == []
