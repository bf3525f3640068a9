"""Executors of others: the same values, what breaks, and what is sent to them; nobody is left behind."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import dill
import mindspore as ms
import psutil
import pytest

from instrument import read
from instrument.landscape import dispatch
from tests.landscape import build
from tests.landscape.tasks import wait_for
from tests.landscape.test_landscape import draw, same


@pytest.fixture(autouse=True)
def _graph() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)


@contextmanager
def standard(workers: int = 2) -> Iterator[Executor]:
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@contextmanager
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@contextmanager
def loky() -> Iterator[Executor]:
    executor = pytest.importorskip("loky").get_reusable_executor(2)
    try:
        yield executor
    finally:
        executor.shutdown(kill_workers=True)


@contextmanager
def dask() -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


OPTIONS: dict[str, Any] = {"size": 9, "metrics": ["accuracy"]}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What one process computes."""
    ms.set_context(mode=ms.GRAPH_MODE)
    return draw(tmp_path_factory.mktemp("plain"), **OPTIONS)


@pytest.mark.parametrize("made", [standard, threads, loky, pytest.param(dask, marks=pytest.mark.slow)])
def test_any_executor_gives_the_same_values(
    tmp_path: Path, plain: Any, made: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The standard library's processes and threads, loky's, Dask's; a local function travels with what it needs."""
    with made() as executor:
        found = draw(tmp_path, callback=lambda: build.small_callback(), executor=executor, **OPTIONS)
    assert same(plain, found)
    assert "The executor fails" not in caplog.text


def test_an_executor_that_breaks_costs_time_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its remaining points are computed by this process, and that is said."""
    parent = os.getpid()

    def callback() -> Any:
        if os.getpid() != parent:
            os._exit(1)
        return build.small_callback()

    with standard(workers=1) as executor:
        found = draw(tmp_path / "two", callback=callback, executor=executor)
    assert same(draw(tmp_path / "one"), found)
    assert "The executor fails (BrokenProcessPool" in caplog.text


def test_an_executor_that_forks_is_refused(tmp_path: Path) -> None:
    """It would hang; what to give instead is said."""
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor,
        pytest.raises(ValueError, match=r"executor forks its processes.*get_context"),
    ):
        draw(tmp_path, executor=executor)


def test_what_cannot_be_sent_is_said_before_any_work(tmp_path: Path) -> None:
    """A function that holds a generator, for two processes."""
    generator = (i for i in range(3))
    with pytest.raises(TypeError, match="callback_fn cannot be sent to another process"):
        draw(tmp_path, callback=lambda: (build.small_callback(), generator)[0], workers=2)
    assert os.listdir(tmp_path) == []


def test_another_network_in_a_worker_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A callback that depends on the process: its points are not mixed in."""
    parent = os.getpid()

    def callback() -> Any:
        model, network, data, metrics = build.small_callback()
        if os.getpid() != parent:
            network.fc1.activation = ms.nn.ReLU()
            network.fc1.activation_flag = True
        return model, network, data, metrics

    found = draw(tmp_path / "two", callback=callback, workers=1)
    assert same(draw(tmp_path / "one"), found)
    assert "callback_fn gives another network in this process" in caplog.text


def test_names_of_a_later_call_replace_those_of_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of a long-lived executor gets what a notebook's cell defines by now; its own names stay."""
    main = ModuleType("__main__")
    main.own = "stays"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(dispatch, "_added_names", set())
    for value in (1, 2):
        assert dispatch.unpickled(dill.dumps((len, {"scale": value, "own": value}))) is len
        assert (main.scale, main.own) == (value, "stays")  # type: ignore[attr-defined]


SCRIPT = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import mindspore as ms
from tests.landscape import build
from instrument import SummaryLandscape

def told(done, total, left):
    print(done, flush=True)

if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        SummaryLandscape(sys.argv[1]).compute(
            build.small_callback, checkpoints=build.small_checkpoints(), size=81, num_samples=40, progress=told,
            executor=executor)
"""


@pytest.mark.slow
def test_killed_with_an_executors_processes(tmp_path: Path) -> None:
    """The standard library's would stay for ever; the next start, without them, gives the values of a whole run."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "run")], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(build.ROOT)}, cwd=tmp_path,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) > 300:
                break
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        wait_for(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in below))
    assert len(below) >= 2
    found = draw(tmp_path / "run", size=81)
    assert found.metadata["resumed"] > 200
    assert same(found, draw(tmp_path / "whole", size=81))
    assert same(found, read(tmp_path / "run").landscapes[-1])
