"""What becomes of a recording when the recording process ends, forks, or starts beside others of its kind.

Each test runs a real process, which prints the step of each event whose `write` answered True. Exactly those events must
be in its file, once and in order, and nothing of it may be left behind: no worker, nothing in /dev/shm.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from instrument.write.pool import open_sink
from instrument.write.sink import Target
from tests.write.build import ROOT, numbers, scalar, tensor, workers

#: So long may workers need to be gone once they have nothing left to write.
GONE_SECONDS = 5.0
TIMEOUT_SECONDS = 60

SCRIPT = """
import multiprocessing, os, signal, sys, threading, time
import numpy as np
from instrument.values import Event, Item
from instrument.write.pool import open_sink
from instrument.write.sink import Target

def event(step, elements):
    if not elements:
        return Event(step, time.time(), (Item("scalar", "loss", float(step)),))
    return Event(step, time.time(), (Item("tensor", "weight", np.full(elements, step, np.float32), "float32"),))

def write(steps, elements=0):
    for step in steps:
        if sink.write(event(step, elements)):
            print(step, flush=True)

def double(number):
    return 2 * number

if __name__ == "__main__":
    sink = open_sink(Target(sys.argv[1]), 2, 8 << 20)
"""


def start(directory: Path, body: str, name: str = "script.py") -> subprocess.Popen[str]:
    script = directory / name
    script.write_text(SCRIPT + "".join(f"    {line}\n" for line in body.strip().splitlines()))
    return subprocess.Popen(
        [sys.executable, str(script), str(directory / "run")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again until it holds, for as long as workers may need to be gone."""
    deadline = time.monotonic() + GONE_SECONDS + TIMEOUT_SECONDS
    process = psutil.Process()
    while not condition():
        assert time.monotonic() < deadline
        try:
            process.wait(0.02)  # a bounded wait: this process does not end
        except psutil.TimeoutExpired:
            pass


def check(directory: Path, printed: list[int], others: tuple[int, ...] = ()) -> None:
    """The file holds what was answered True, in order and once, and no worker is left.

    `others` are events whose answer nobody lived to hear: they may be there, in their place.
    """
    wait_until(lambda: not workers(directory))
    (name,) = [name for name in os.listdir(directory / "run") if name.endswith("_MS")]
    found = numbers(directory / "run" / name)
    assert [step for step, _ in found if step not in others] == printed
    assert [step for step, _ in found] == sorted({step for step, _ in found})
    assert all(step == value for step, value in found)


@pytest.fixture(autouse=True)
def nothing_in_shared_memory() -> Iterator[None]:
    before = set(os.listdir("/dev/shm"))
    yield
    assert set(os.listdir("/dev/shm")) <= before


ENDS = {
    "kill -9": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT); time.sleep(10)",
    "os._exit": "os._exit(4)",
    "an exception": "raise RuntimeError('boom')",
    "sys.exit": "sys.exit(3)",
    "abort": "os.abort()",
    "the end": "",
}
STATUS = {
    "kill -9": -9, "SIGTERM": -15, "SIGINT": -2, "os._exit": 4, "an exception": 1, "sys.exit": 3, "abort": -6,
    "the end": 0,
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_a_backlog_outlives_the_trainer(tmp_path: Path, end: str) -> None:
    """Thirty tensors of 1 MB and a hundred numbers are on their way when the process ends."""
    process = start(tmp_path, f"write(range(30), 250_000)\nwrite(range(30, 130))\n{ENDS[end]}")
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)

    assert process.returncode == STATUS[end]
    assert [int(line) for line in out.split()] == list(range(130))
    assert "Exception ignored" not in err
    check(tmp_path, list(range(130)))


def test_a_trainer_killed_at_any_moment(tmp_path: Path, rng: np.random.Generator) -> None:
    """Killed in the middle of writing events of every size; what was answered True is there."""
    for number in range(6):
        directory = tmp_path / str(number)
        directory.mkdir()
        process = start(directory, "for step in range(100000): write([step], (0, 1000, 300_000, 3_000_000)[step % 4])")
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(int(rng.integers(1, 40)))]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        process.communicate(timeout=TIMEOUT_SECONDS)
        printed = [int(line) for line in lines if line.endswith("\n")]
        check(directory, printed, others=(len(printed),))


def test_a_trainer_that_nobody_reaps(tmp_path: Path) -> None:
    """A zombie is no trainer: its workers leave though its parent does not wait for it."""
    process = start(tmp_path, "write(range(50))\nos.kill(os.getpid(), signal.SIGKILL)")
    zombie = psutil.Process(process.pid)
    wait_until(lambda: zombie.status() == psutil.STATUS_ZOMBIE)
    check(tmp_path, list(range(50)))
    assert zombie.status() == psutil.STATUS_ZOMBIE
    process.communicate(timeout=TIMEOUT_SECONDS)


def test_a_forked_child_neither_writes_nor_hangs(tmp_path: Path) -> None:
    """It is told False, ends by itself at once, and its end disturbs nobody."""
    body = """
write(range(10))
child = os.fork()
if child == 0:
    write(range(1000, 1010))
    sink.flush()
    sink.close()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
write(range(10, 20))
"""
    out, err = start(tmp_path, body).communicate(timeout=TIMEOUT_SECONDS)
    assert (out.split(), err) == ([str(step) for step in range(20)], "")
    check(tmp_path, list(range(20)))


def test_a_child_that_outlives_the_trainer(tmp_path: Path) -> None:
    """Workers end with the trainer though a forked child, which inherited everything, lives on."""
    body = """
write(range(10))
read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    os.close(1); os.close(2)
    time.sleep(120)
print("child", child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start(tmp_path, body)
    out, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    child = psutil.Process(int(out.split()[-1]))
    try:
        check(tmp_path, list(range(10)))
        assert child.is_running()
    finally:
        child.kill()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_multiprocessing_pool_between_two_events(tmp_path: Path, method: str) -> None:
    """Its processes come and go."""
    body = f"""
write(range(10))
with multiprocessing.get_context("{method}").Pool(3) as pool:
    assert pool.map(double, range(20)) == list(range(0, 40, 2))
write(range(10, 20))
"""
    out, _ = start(tmp_path, body).communicate(timeout=TIMEOUT_SECONDS)
    assert out.split() == [str(step) for step in range(20)]
    check(tmp_path, list(range(20)))


def test_processes_started_together_have_files_of_their_own(tmp_path: Path) -> None:
    """Eight of them, in one directory and one second: eight files, and every event."""
    together = [start(tmp_path, "write(range(25))\nsink.close()", f"script{number}.py") for number in range(8)]
    for process in together:
        out, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        assert out.split() == [str(step) for step in range(25)]
    names = os.listdir(tmp_path / "run")
    assert len(names) == 8
    assert all(numbers(tmp_path / "run" / name) == [(step, float(step)) for step in range(25)] for name in names)


def test_a_full_disk_stops_nothing(tmp_path: Path) -> None:
    """A file system of 1 MB fills up and is freed: no half frame at any time, and recording goes on by itself."""
    small = tmp_path / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted: {mounted.stderr.strip()}")
    try:
        ballast = small / "ballast"
        ballast.write_bytes(bytes(700_000))
        sink = open_sink(Target(str(small)), 1)
        for step in range(20):
            sink.write(tensor(step, 10_000))
            sink.flush()
            found = numbers(sink.path)  # fails where a frame is damaged or torn
            assert found == [(number, float(number)) for number in range(len(found))]
        lost = sink.stats.lost
        assert 0 < lost < 20
        assert sink.stats.events == 20 - lost
        ballast.unlink()
        assert sink.write(scalar(100))
        sink.close()
        assert numbers(sink.path)[-1] == (100, 100.0)
        assert (sink.stats.events, sink.stats.lost) == (21 - lost, lost)
    finally:
        subprocess.run(["umount", str(small)], check=True)
