"""However a training script ends, what was recorded is in the file, once, and no process is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.faults.scripts import PRELUDE, finish, run, start, wait_for_line
from tests.oracle import large_files
from tests.write.build import (
    ROOT,
    files,
    numbers,
    only_file,
    steps,
    wait_for_workers_to_end,
    wait_until,
    workers,
)  # fmt: skip

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals and /proc are Linux's here")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Where a script records; large files do not stay behind."""
    yield tmp_path / "run"
    wait_for_workers_to_end(tmp_path)
    shutil.rmtree(tmp_path / "run", ignore_errors=True)


# ---------------------------------------------------------------------- the end of a script

ENDS = {
    "end": ("", 0),
    "close": ("recorder.close()", 0),
    "close twice": ("recorder.close(); recorder.sink.close()", 0),
    "exit": ("sys.exit(3)", 3),
    "_exit": ("os._exit(4)", 4),
    "exception": ("raise ValueError('on purpose')", 1),
    "atexit": ("import atexit; atexit.register(lambda: say(recorder.write(scalar(301))))", 0),
    "a cycle": ("recorder.me = recorder; del recorder", 0),
    "a thread": ("import threading; threading.Thread(target=lambda: recorder.write(scalar(301))).start()", 0),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); signal.pause()", -signal.SIGTERM),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); signal.pause()", -signal.SIGINT),
    "SIGHUP": ("os.kill(os.getpid(), signal.SIGHUP); signal.pause()", -signal.SIGHUP),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "abort": ("os.abort()", -signal.SIGABRT),
}
RECORD_300 = """
recorder = Recorder()
for step in range(300):
    assert recorder.write(tensor(step, 10_000) if step % 50 == 0 else scalar(step))
"""


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("end", ENDS)
def test_every_end(directory: Path, count: int, end: str) -> None:
    """All points are there, the return code is the script's own, nothing is said at the teardown, nobody is left."""
    code, returncode = ENDS[end]
    out, err = run(RECORD_300 + code, directory, count, returncode)
    wait_for_workers_to_end(directory)
    expected = list(range(300))
    if end == "a thread" or (end == "atexit" and out.strip() == "True"):
        expected.append(301)
    assert steps(only_file(directory)) == expected
    assert ("Traceback" in err) == (end in ("exception", "SIGINT"))


@pytest.mark.parametrize("how", ["-c", "stdin"])
@pytest.mark.parametrize("count", [0, 1])
def test_scripts_without_a_file(directory: Path, count: int, how: str) -> None:
    """A script from the command line or from standard input records like any other, and its body runs once."""
    out, _ = run("say('BODY')\n" + RECORD_300, directory, count, how=how)
    assert out.split() == ["BODY"]
    wait_for_workers_to_end(directory)
    assert steps(only_file(directory)) == list(range(300))


def test_a_flat_script_runs_once(directory: Path) -> None:
    """Workers do not import the user's main module, so no guard is needed."""
    out, _ = run("say('BODY')\n" + RECORD_300 + "recorder.close()", directory, 3)
    assert out.split() == ["BODY"]
    assert steps(only_file(directory)) == list(range(300))


# A sink that nobody closes at exit: its workers see the end of the process and do the rest.
BARE = """
sink = open_sink(Target(directory), workers)
for step in range(300):
    assert sink.write(scalar(step))
"""


@pytest.mark.parametrize("count", [0, 1])
def test_a_sink_that_is_never_closed(directory: Path, count: int) -> None:
    """The workers write what is left and end by themselves."""
    _, err = run(BARE, directory, count)
    assert err == ""
    wait_for_workers_to_end(directory)
    assert steps(only_file(directory)) == list(range(300))


def test_standard_streams_that_are_closed(directory: Path) -> None:
    """A trainer without standard input, output and error has low descriptors for its own; its workers get them."""
    script = directory.with_suffix(".py")
    script.write_text(PRELUDE + RECORD_300.replace("assert ", "") + "recorder.close()")
    command = f'exec "{sys.executable}" "{script}" "{directory}" 2 <&- >&- 2>&-'
    subprocess.run(["sh", "-c", command], check=True, timeout=60)
    assert numbers(only_file(directory)) == [(step, float(step)) for step in range(300)]


@pytest.mark.parametrize("reaper", ["signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "reap()"])
def test_a_trainer_that_reaps_its_children_itself(directory: Path, reaper: str) -> None:
    """A worker whose end somebody else has taken note of is replaced all the same."""
    body = f"""
def reap():
    def handler(number, frame):
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass
    signal.signal(signal.SIGCHLD, handler)
{reaper}
recorder = Recorder()
for step in range(300):
    assert recorder.write(scalar(step))
    if step in (100, 200):
        recorder.sink.flush()
        os.kill(worker_pids(recorder.sink)[0], signal.SIGKILL)
recorder.close()
"""
    run(body, directory, 1)
    assert steps(only_file(directory)) == list(range(300))


# ---------------------------------------------------------------------- killed with a backlog

BACKLOG = """
import numpy
recorder = Recorder()
for step in range(50):
    if recorder.write(tensor(step, 1_000_000)):
        say(step)
names = open("/proc/self/maps").read()
assert "/dev/shm" not in names and ".instrument-ring-" in names
say("end")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("count", [1, 3])
def test_killed_with_a_backlog(directory: Path, count: int) -> None:
    """50 tensors of 4 MB, then SIGKILL: all that was answered True is there, once, and the workers leave in time."""
    out, _ = run(BACKLOG, directory, count, -signal.SIGKILL)
    told = [int(line) for line in out.split()[:-1]]
    assert told == list(range(50))
    wait_until(lambda: os.path.getsize(only_file(directory)) > 50 * 4_000_000)
    wait_for_workers_to_end(directory)
    assert numbers(only_file(directory)) == [(step, float(step)) for step in told]


@pytest.mark.parametrize("count", [1, 3])
def test_killed_at_any_moment(directory: Path, rng: np.random.Generator, count: int) -> None:
    """Killed from outside while it records: what it was told True for is there, at most one event more, none twice."""
    body = """
recorder = Recorder(ring_bytes=4 << 20)
for step in range(100_000):
    if recorder.write(tensor(step, 300_000 if step % 10 == 0 else 100)):
        say(step)
"""
    process = start(body, directory, count)
    wait_for_line(process, str(int(rng.integers(0, 60))))
    process.kill()
    out, _ = finish(process, -signal.SIGKILL)
    wait_for_workers_to_end(directory)
    told = int(out.split()[-1]) if out.split() else 0
    found = numbers(only_file(directory))
    assert found == [(step, float(step)) for step in range(len(found))]
    assert len(found) in (told + 1, told + 2) or not out


@pytest.mark.parametrize(
    ("dialect", "call"), [("mindspore", 1), ("mindspore", 2), ("tensorboard", 1), ("both", 1), ("both", 3)]
)
def test_killed_while_a_large_record_is_written(directory: Path, dialect: str, call: int) -> None:
    """By the trainer itself, behind a part of it: its worker cuts that off and ends, also in a file that is new."""
    body = f"""
sink = open_sink(Target(directory, dialect={dialect!r}), workers, 64 << 10)
sink.write(scalar(1))
sink.flush()
real, calls = os.pwritev, []
def pwritev(fd, pieces, offset):
    calls.append(real(fd, [b"".join(pieces)[:100_000]], offset))
    if len(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return calls[-1]
os.pwritev = pwritev
sink.write(tensor(2, 40_000))
"""
    run(body, directory, 1, -signal.SIGKILL)
    wait_for_workers_to_end(directory)
    assert [path.name for path in directory.iterdir() if ".out." not in path.name] == []
    found = [frame.step for path in directory.iterdir() for frame in large_files.frames(path) if not frame.is_version]
    assert found == [1] * (2 if dialect == "both" else 1)


@pytest.mark.slow  # the others wait ten seconds for what the dead one should have committed
def test_killed_together_with_a_worker(directory: Path) -> None:
    """Trainer and a worker killed at once: the file is whole as far as it goes, and the other workers leave too."""
    body = """
recorder = Recorder(ring_bytes=192 << 10)
recorder.write(scalar(0))
recorder.sink.flush()
first = worker_pids(recorder.sink)[0]
os.kill(first, signal.SIGSTOP)
for step in range(1, 200):
    recorder.write(tensor(step, 100))
say(len(worker_pids(recorder.sink)) - 1)
os.kill(first, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""
    out, _ = run(body, directory, 3, -signal.SIGKILL)
    assert out.split() == ["2"]
    wait_for_workers_to_end(directory, seconds=30)
    found = steps(only_file(directory))
    assert found == list(range(len(found)))


def test_a_zombie_is_gone(directory: Path) -> None:
    """Workers leave when their trainer is dead, though nobody has taken note of its end yet."""
    process = start(RECORD_300 + "say('ready')\nsignal.pause()", directory, 2)
    wait_for_line(process, "ready")
    assert workers(directory) != []
    process.kill()
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    wait_for_workers_to_end(directory)
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    finish(process, -signal.SIGKILL)
    assert steps(only_file(directory)) == list(range(300))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group(directory: Path, number: signal.Signals) -> None:
    """What a terminal or a scheduler sends to all of a job's processes does not end the workers before their work."""
    body = """
recorder = Recorder()
for step in range(20):
    recorder.write(tensor(step, 500_000))
say('ready')
signal.pause()
"""
    process = start(body, directory, 2, start_new_session=True)
    wait_for_line(process, "ready")
    for worker in workers(directory):
        worker.send_signal(number)
    os.killpg(process.pid, number)
    finish(process, -number)
    wait_for_workers_to_end(directory)
    assert numbers(only_file(directory)) == [(step, float(step)) for step in range(20)]


# ---------------------------------------------------------------------- many at once

LIGHT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from instrument.values import Event, ScalarItem
from instrument.write.factory import open_sink
from instrument.write.sink import Target
print("ready", flush=True)
sys.stdin.readline()
sink = open_sink(Target(sys.argv[1]), 1)
for step in range(200):
    assert sink.write(Event.of(step, 1.0, [ScalarItem(sys.argv[2], float(step))]))
sink.close()
print(sink.path)
"""


def test_sixteen_processes_in_one_directory(directory: Path) -> None:
    """Started together within a second: sixteen files, each whole and of one process, and no point is missing."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LIGHT, str(directory), f"rank{rank}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(16)
    ]  # fmt: skip
    for process in processes:
        wait_for_line(process, "ready")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    paths = {finish(process)[0].strip() for process in processes}
    assert paths == {str(path) for path in files(directory)}
    assert len(paths) == 16
    assert sorted(number for path in paths for number in numbers(path)) == sorted(
        (step, float(step)) for step in range(200) for _ in range(16)
    )
