"""A trainer that forks: the parent's recording is untouched, the child's sink does nothing, and nobody hangs."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from instrument.ringfile import recover
from tests.faults.scripts import finish, run, start
from tests.write.build import files, only_file, steps, wait_for_workers_to_end, wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no fork, or no memfd")
WORKERS = pytest.mark.parametrize("count", [0, 1, 3])


@WORKERS
@pytest.mark.parametrize("end", ["sys.exit(5)", "os._exit(5)", "recorder.close(); del recorder; sys.exit(5)"])
def test_a_child_that_records(tmp_path: Path, count: int, end: str) -> None:
    """Its `write` answers False, its flush and close do nothing, it ends at once; the parent's file is right."""
    body = f"""
recorder = Recorder()
assert all(recorder.write(scalar(step)) for step in range(50))
child = os.fork()
if child == 0:
    answer = recorder.write(scalar(1000))
    recorder.sink.flush(sync=True)
    say("child", answer, recorder.sink.stats.pending)
    {end}
assert recorder.write(scalar(50))
_, status = os.waitpid(child, 0)
say(os.waitstatus_to_exitcode(status))
assert recorder.write(scalar(51))
recorder.close()
"""
    out, _ = run(body, tmp_path / "run", count)
    assert out == "child False 0\n5\n"
    assert steps(only_file(tmp_path / "run")) == list(range(52))


def test_a_child_that_outlives_its_parent(tmp_path: Path) -> None:
    """The workers end with the trainer, not with a child that inherited all that the trainer had open."""
    body = """
recorder = Recorder()
assert all(recorder.write(scalar(step)) for step in range(50))
read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    os.close(write_end)
    os.read(0, 1)
    say("answer", recorder.write(scalar(1000)))
    sys.exit(0)
say(child)
os._exit(0)
"""
    process = start(body, tmp_path / "run", 2)
    assert process.stdin is not None
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    process.wait(60)
    wait_for_workers_to_end(tmp_path)
    assert child.is_running()
    assert steps(only_file(tmp_path / "run")) == list(range(50))
    process.stdin.write("x")
    process.stdin.flush()
    assert process.stdout.readline() == "answer False\n"
    wait_until(lambda: not child.is_running())
    process.communicate(timeout=60)
    assert steps(only_file(tmp_path / "run")) == list(range(50))


@WORKERS
def test_a_child_with_a_sink_of_its_own(tmp_path: Path, count: int) -> None:
    """What is opened after the fork is the child's: two files, each whole."""
    body = """
recorder = Recorder()
assert recorder.write(scalar(0))
child = os.fork()
if child == 0:
    own = Recorder()
    assert all(own.write(scalar(step)) for step in range(100, 150))
    sys.exit(0)
assert all(recorder.write(scalar(step)) for step in range(1, 50))
assert os.waitpid(child, 0)[1] == 0
"""
    run(body, tmp_path / "run", count)
    assert sorted(map(steps, files(tmp_path / "run"))) == [list(range(50)), list(range(100, 150))]


@pytest.mark.parametrize("count", [0, 1])
def test_forks_while_another_thread_records(tmp_path: Path, count: int) -> None:
    """A child is forked in the middle of a `write`: it inherits a lock that nobody will release, and does not mind."""
    body = """
import threading
recorder = Recorder()
ended = threading.Event()
def record():
    step = 0
    while not ended.is_set():
        assert recorder.write(tensor(step, 10_000))
        step += 1
    say(step)
thread = threading.Thread(target=record)
thread.start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        assert not recorder.write(scalar(1000))
        recorder.sink.flush()
        recorder.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
ended.set()
thread.join()
"""
    out, _ = run(body, tmp_path / "run", count)
    assert steps(only_file(tmp_path / "run")) == list(range(int(out)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("count", [0, 2])
def test_a_pool_of_processes(tmp_path: Path, count: int, method: str) -> None:
    """multiprocessing's pool between two events neither hangs nor writes; with spawn it imports the script again."""
    body = f"""
import multiprocessing
def square(number):
    return number * number
if __name__ == "__main__":
    recorder = Recorder()
    assert all(recorder.write(scalar(step)) for step in range(50))
    with multiprocessing.get_context({method!r}).Pool(4) as pool:
        assert pool.map(square, range(20)) == [number * number for number in range(20)]
        assert all(recorder.write(scalar(step)) for step in range(50, 60))
    assert all(recorder.write(scalar(step)) for step in range(60, 100))
"""
    run(body, tmp_path / "run", count)
    assert steps(only_file(tmp_path / "run")) == list(range(100))


def test_a_child_of_a_child(tmp_path: Path) -> None:
    """However many forks later, only the process that opened the sink writes, and it closes it at its end."""
    body = """
recorder = Recorder()
assert recorder.write(scalar(0))
if os.fork() == 0:
    if os.fork() == 0:
        say(recorder.write(scalar(1000)))
        sys.exit(0)
    os.wait()
    say(recorder.write(scalar(1001)))
    sys.exit(0)
os.wait()
assert recorder.write(scalar(1))
"""
    process = start(body, tmp_path / "run", 1)
    out, _ = finish(process)
    assert out.split() == ["False", "False"]
    assert steps(only_file(tmp_path / "run")) == [0, 1]


def test_a_child_does_not_keep_the_ring_alive(tmp_path: Path) -> None:
    """Trainer and workers are killed at once, and a child lives on: what the ring holds is recovered all the same."""
    body = """
recorder = Recorder()
assert recorder.write(scalar(0))
recorder.sink.flush()
worker = worker_pids(recorder.sink)[0]
os.kill(worker, signal.SIGSTOP)
assert all(recorder.write(scalar(step)) for step in range(1, 50))
child = os.fork()
if child == 0:
    os.close(1)
    os.close(2)
    time.sleep(30)
    os._exit(0)
say(child)
os.kill(worker, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""
    out, _ = run(body, tmp_path / "run", 1, returncode=-9)
    child = psutil.Process(int(out))
    try:
        wait_for_workers_to_end(tmp_path)
        (result,) = recover.recover_all(str(tmp_path / "run"))
        assert child.is_running()
    finally:
        child.kill()
    assert (result.events, result.problem) == (49, "")
    assert steps(only_file(tmp_path / "run")) == list(range(50))


def test_a_child_does_not_keep_a_state_file_alive(tmp_path: Path) -> None:
    """The same without workers: the file that tells how much counts is taken for what a killed trainer left."""
    body = """
recorder = Recorder()
assert all(recorder.write(scalar(step)) for step in range(5))
child = os.fork()
if child == 0:
    os.close(1)
    os.close(2)
    time.sleep(30)
    os._exit(0)
say(child)
os.kill(os.getpid(), signal.SIGKILL)
"""
    out, _ = run(body, tmp_path / "run", 0, returncode=-9)
    child = psutil.Process(int(out))
    try:
        (result,) = recover.recover_all(str(tmp_path / "run"))
        assert child.is_running()
    finally:
        child.kill()
    assert (result.events, result.problem) == (0, "")
    assert steps(only_file(tmp_path / "run")) == list(range(5))
