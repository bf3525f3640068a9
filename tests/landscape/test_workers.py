"""Our own processes: the same values, workers that die, parents that die; nobody is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import psutil
import pytest

from instrument import SummaryLandscape, processes, read
from instrument.landscape import landscape, workers
from instrument.landscape.model_parts import EvaluationError
from instrument.processes import MARK
from tests.landscape import build
from tests.landscape.tasks import end_always, end_once, fail, fail_oddly, meet, wait_for
from tests.landscape.test_landscape import draw, same

ROOT = build.ROOT


@pytest.fixture(autouse=True)
def _graph() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the workers of a process; they are no children of it."""
    mine = []
    for process in psutil.process_iter():
        try:
            is_worker = "instrument.landscape.workers" in " ".join(process.cmdline())
            if is_worker and process.environ().get(MARK) == str(pid) and process.status() != psutil.STATUS_ZOMBIE:
                mine.append(process)
        except psutil.Error:
            continue  # it has ended meanwhile
    return mine


def children() -> set[int]:
    """Return the numbers of all processes that this one has started."""
    below = psutil.Process().children(recursive=True) + workers_of(os.getpid())
    return {child.pid for child in below if child.is_running() and child.status() != psutil.STATUS_ZOMBIE}


# ---------------------------------------------------------------- our own processes


def test_two_processes_give_the_same_values(tmp_path: Path) -> None:
    """Bit for bit those of one, from a process that has used MindSpore, with a local function; none is left."""
    before = children()
    options: dict[str, Any] = {"size": 9, "metrics": ["accuracy"]}
    plain = draw(tmp_path / "one", **options)
    found = draw(tmp_path / "two", callback=lambda: build.small_callback(), workers=2, **options)
    assert same(plain, found)
    assert children() <= before


def test_device_ids_are_processes(tmp_path: Path) -> None:
    """MindSpore's call with two of them gives what it gives with one."""
    from tests.landscape.test_weights import collected

    options = {"create_landscape": {"result": False}}
    run = SummaryLandscape(collected(tmp_path))
    one, two = (
        run.gen_landscapes_with_multi_process(build.small_callback, options, ids, tmp_path / str(len(ids)))[0]
        for ids in ([0], [0, 1])
    )
    assert same(one, two)


@pytest.mark.parametrize(
    ("target", "current", "ids", "wanted", "devices"),
    [
        ("CPU", 0, None, None, []), ("CPU", 0, [3], None, []), ("CPU", 0, [0, 1], None, [("CPU", 0), ("CPU", 1)]),
        ("Ascend", 3, [3], None, []), ("Ascend", 0, [3], None, [("Ascend", 3)]),
        ("GPU", 0, [2, 0], None, [("GPU", 2), ("GPU", 0)]), ("CPU", 0, [0], "CPU", []),
        ("Ascend", 1, None, "CPU", [("CPU", 0)]), ("CPU", 0, [0], "GPU", [("GPU", 0)]),
    ],
)  # fmt: skip
def test_each_process_has_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, current: int, ids: Any, wanted: Any, devices: Any
) -> None:
    """That of the target asked for, else the context's; no process is started if this one is on the right device."""
    from tests.landscape.test_weights import collected

    asked: list[Any] = []

    class Asked(Exception):
        pass

    def asked_for(given: Any) -> Any:
        asked.extend(given)
        raise Asked

    monkeypatch.setattr(landscape.framework, "device_target", lambda: target)
    monkeypatch.setattr(landscape.framework, "device_id", lambda: current)
    monkeypatch.setattr(landscape, "WorkerPool", asked_for)
    monkeypatch.setattr(landscape.runner, "run_all", lambda *_: [])
    try:
        SummaryLandscape(collected(tmp_path)).gen_landscapes_with_multi_process(
            build.small_callback, device_ids=ids, device_target=wanted
        )
    except Asked:
        pass
    assert asked == devices


@pytest.mark.parametrize(
    ("before", "device", "told"),
    [
        ("CPU", ("CPU", 3), []), ("Ascend", ("Ascend", 3), [{"device_id": 3}]),
        ("CPU", ("GPU", 1), [{"device_target": "GPU"}, {"device_id": 1}]),
        ("Ascend", ("CPU", 1), [{"device_target": "CPU"}]),
    ],
)  # fmt: skip
def test_a_worker_takes_its_device_first(
    monkeypatch: pytest.MonkeyPatch, before: str, device: tuple[str, int], told: Any
) -> None:
    """The target before the number, which is the target's."""
    seen: list[Any] = []
    monkeypatch.setattr(ms, "get_context", lambda _: before)
    monkeypatch.setattr(ms, "set_context", lambda **options: seen.append(options))
    workers._pin(*device)
    assert seen == told


def test_a_worker_that_dies_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its task is done again, by another process."""
    with workers.WorkerPool([None]) as pool:
        first = pool.submit(os.getpid).result(60)
        second = pool.submit(end_once, str(tmp_path / "died")).result(60)
        assert first != second
        assert pool.submit(os.getpid).result(60) == second
        started = list(pool.workers)
    assert "ended unexpectedly; its points are computed again" in caplog.text
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in started))


def test_a_task_that_kills_is_given_up() -> None:
    """After three workers, and the next task is done; an error of a function is the function's."""
    with workers.WorkerPool([None]) as pool:
        with pytest.raises(workers.WorkerLost, match="3 workers died over a task; the last one ended unexpectedly"):
            pool.submit(end_always).result(120)
        with pytest.raises(ValueError, match="no such thing"):
            pool.submit(fail).result(60)
        with pytest.raises(RuntimeError, match="Unpicklable: only here"):
            pool.submit(fail_oddly).result(60)
        assert pool.submit(os.getpid).result(60) > 0


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended() -> None:
    """When its time is over."""
    with workers.WorkerPool([None], task_limit_seconds=2.0) as pool, pytest.raises(workers.WorkerLost, match="in time"):
        pool.submit(time.sleep, 1000).result(120)


def program(folder: Path, code: str) -> str:
    """Return the path of a program that is called like an interpreter and is none."""
    path = folder / "bin" / "python3"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("exit 0", "ended unexpectedly"), ("exec sleep 60", "did not answer in time"),
        ("eval printf yes.. '>&$8'", "ended unexpectedly"), (None, "there is no Python interpreter to start"),
    ],
)  # fmt: skip
def test_programs_that_are_no_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: str | None, reason: str
) -> None:
    """No worker can be had: this process computes all points, says why once, and leaves nothing behind."""
    plain = draw(tmp_path / "one")
    monkeypatch.setattr(workers.processes, "interpreters", lambda: [program(tmp_path, code)] if code else [])
    monkeypatch.setattr(workers, "_READY_SECONDS", 2.0)
    before, started = children(), time.monotonic()
    assert same(plain, draw(tmp_path / "two", workers=2))
    assert time.monotonic() - started < 40
    (message,) = [message for message in caplog.messages if "executor fails" in message]
    assert message.startswith("The executor fails (WorkersUnavailable: ")
    assert reason in message
    assert children() <= before


def test_a_removed_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that cannot import what it needs is none; this process computes all points."""
    plain = draw(tmp_path / "one")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path)])
        found = draw(tmp_path / "two", workers=1)
    assert same(plain, found)
    assert "The executor fails (WorkersUnavailable: " in caplog.text


def test_the_next_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first is none the second is started."""
    candidates = [program(tmp_path, "exec sleep 60"), *processes.interpreters()]
    monkeypatch.setattr(processes, "interpreters", lambda: candidates)
    start = workers._start

    def impatient(interpreter: str, device: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(workers, "_READY_SECONDS", 1.0 if interpreter == candidates[0] else 30.0)
            return start(interpreter, device)

    monkeypatch.setattr(workers, "_start", impatient)
    with workers.WorkerPool([None]) as pool:
        assert pool.submit(os.getpid).result(60) > 0


def test_shadowed_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of the user's that are called like those of the standard library do not reach a worker's own code."""
    for name in ("json", "pickle", "queue", "struct", "select", "socket", "linecache", "threading", "logging"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not this one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with workers.WorkerPool([None]) as pool:
        assert pool.submit(os.getcwd).result(60) == str(tmp_path)
        assert pool.submit(os.getenv, MARK).result(60) is None


def test_workers_run_beside_each_other(tmp_path: Path) -> None:
    """Two tasks that wait for each other end."""
    with workers.WorkerPool([("CPU", 0), ("CPU", 1)]) as pool:
        pids = {future.result(60) for future in [pool.submit(meet, tmp_path) for _ in range(2)]}
    assert len(pids) == 2


@pytest.mark.slow
def test_a_killed_worker_costs_its_points_only(tmp_path: Path) -> None:
    """In the middle of a landscape: the values are those of an undisturbed one."""
    plain = draw(tmp_path / "one", size=17)
    killed: list[int] = []

    def kill(done: int, total: int, left: float | None) -> None:
        if done > 40 and not killed:
            victims = workers_of(os.getpid())
            if victims:
                killed.append(victims[0].pid)
                victims[0].kill()

    found = draw(tmp_path / "two", size=17, workers=2, progress=kill)
    assert killed
    assert same(plain, found)


def test_an_error_in_a_worker_ends_the_call(tmp_path: Path) -> None:
    """With the network's own message, and without a process left."""
    before = children()
    parent = os.getpid()

    def callback() -> Any:
        model, network, data, metrics = build.small_callback()
        if os.getpid() != parent:
            metrics["accuracy"].eval = fail
        return model, network, data, metrics

    with pytest.raises(EvaluationError, match="fails in a worker: ValueError: no such thing"):
        draw(tmp_path, callback=callback, workers=1, metrics=["accuracy"], size=9)
    assert children() <= before


# ---------------------------------------------------------------- whole scripts

SCRIPT = """
import os, sys
import mindspore as ms
from mindspore import nn, ops
ms.set_context(mode=ms.GRAPH_MODE)
from tests.landscape import build
from instrument import SummaryLandscape, SummaryCollector
from mindspore.train import Model

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4, 6)
        self.fc2 = nn.Dense(6, 3)
    def construct(self, x):
        return self.fc2(ops.tanh(self.fc1(x)))

network = Net()
model = Model(network, build.cross_entropy(), nn.Momentum(network.trainable_params(), 0.1, 0.9))

def callback():
    net = Net()
    return Model(net, build.cross_entropy()), net, build.small_dataset(), None

directory, workers, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if not os.path.isdir(os.path.join(directory, "ckpt_dir")):
    collector = SummaryCollector(directory, num_process=0, collect_specified_data={
        "collect_landscape": {"intervals": [[2, 4, 6, 8]], "landscape_size": 5, "num_samples": 40}})
    model.train(2, build.small_dataset(), callbacks=[collector], dataset_sink_mode=False)
def told(done, total, left):
    print(done, total, flush=True)
found = SummaryLandscape(directory).compute(callback, workers=workers, size=size, progress=told)
print("RESUMED", found.metadata["resumed"], flush=True)
"""


def start(tmp_path: Path, directory: Path, count: int, size: int) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), str(directory), str(count), str(size)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 2])
def test_killed_and_started_again_after_training(tmp_path: Path, count: int) -> None:
    """A script that trained is killed: its workers end, and the next start gives the values of a whole run."""
    directory = tmp_path / "run"
    with start(tmp_path, directory, count, 33) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.split()[0].isdigit() and int(line.split()[0]) > 60:
                break
        below = [*psutil.Process(process.pid).children(recursive=True), *workers_of(process.pid)]
        process.kill()
    wait_for(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in below))
    for number in (0, 1):
        with start(tmp_path, directory if not number else tmp_path / "run", count, 33) as process:
            assert process.stdout is not None
            out = process.stdout.read()
        assert process.returncode == 0
        resumed = int(out.split("RESUMED")[1])
        assert (resumed > 40) == (number == 0)
    after_kill, whole = (one for one in _all_recorded(directory) if one.z.shape == (33, 33))
    assert same(after_kill, whole)


def _all_recorded(directory: Path) -> list[Any]:
    """The last surface of each event file."""
    return [read(path).landscapes[-1] for path in read(directory).files if read(path).landscapes]
