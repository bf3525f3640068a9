"""Runs that are started again: another clock, another host, a crash, and recorders that are at work at once."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import Run, SummaryRecord, read
from tests.collect.build import BOTH, Said

ROOT = Path(__file__).resolve().parents[2]
DIALECTS = pytest.mark.parametrize("dialect", ["mindspore", "tensorboard", "both"])
KINDS = {"scalar": "loss", "histogram": "weights"}


@contextmanager
def at(monkeypatch: pytest.MonkeyPatch, now: float | None = None, host: str | None = None) -> Iterator[None]:
    """Record at another time, or on another host."""
    with monkeypatch.context() as patch:
        if now is not None:
            patch.setattr(time, "time", lambda: now)
        if host is not None:
            patch.setattr(platform, "node", lambda: host)
        yield


def add(record: SummaryRecord, steps: range, value: float) -> None:
    for step in steps:
        record.add_value("scalar", "loss", value)
        record.add_value("histogram", "weights", np.full(3, value))
        assert record.record(step)


def start(directory: Path, steps: range, value: float, **options: Any) -> None:
    with SummaryRecord(directory, **{"num_process": 0, **options}) as record:
        add(record, steps, value)


def check(run: Run, expected: list[tuple[int, float]]) -> None:
    """Step and value of both kinds, which are in two files of TensorBoard's dialect."""
    loss, weights = run.scalars("loss"), run.histograms("weights")
    assert list(zip(loss.step.tolist(), loss.value.tolist(), strict=True)) == expected
    assert [(step, value.min) for step, _, value in weights] == expected


CONTINUED = [(step, 1.0) for step in range(10)] + [(step, 2.0) for step in range(10, 20)]


@BOTH
@DIALECTS
def test_a_start_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said, dialect: str, processes: int
) -> None:
    """Its values count from its first step on, as its warning says; nothing is hidden."""
    with at(monkeypatch, now=2e9):
        start(tmp_path, range(15), 1.0, dialect=dialect, num_process=processes)
    with at(monkeypatch, now=1.9e9):
        start(tmp_path, range(10, 20), 2.0, dialect=dialect, num_process=processes)
    run = read(tmp_path)
    check(run, CONTINUED)
    assert len(said("holds a run already")) == 1
    assert [one.began for one in run.starts] == [2e9, 1.9e9]
    assert len(run.scalars("loss", superseded=True)) == 25


@BOTH
@DIALECTS
def test_a_start_on_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said, dialect: str, processes: int
) -> None:
    """A container with a new name goes on with the run, which is told."""
    for host, steps, value in (("pod-1", range(15), 1.0), ("pod-2", range(10, 20), 2.0)):
        with at(monkeypatch, host=host):
            start(tmp_path, steps, value, dialect=dialect, num_process=processes)
    run = read(tmp_path)
    check(run, CONTINUED)
    assert len(said("holds a run already")) == 1
    device = -1 if dialect == "tensorboard" else 0
    assert set(run.scalars("loss").by_writer()) == {(device, "pod-2")}
    assert run.state == "finished"


@BOTH
@DIALECTS
@pytest.mark.parametrize("hosts", [("pod-1", "pod-2"), ("pod-1", "pod-1")], ids=["two hosts", "one host"])
def test_recorders_that_are_at_work_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said, dialect: str, processes: int, hosts: tuple[str, str]
) -> None:
    """Each keeps all its points, whichever began or ended first, and nothing is said."""
    with at(monkeypatch, host=hosts[0]):
        one = SummaryRecord(tmp_path, num_process=processes, dialect=dialect)
    add(one, range(3), 1.0)
    one.flush()
    with at(monkeypatch, host=hosts[1]):
        two = SummaryRecord(tmp_path, num_process=processes, dialect=dialect)
    add(two, range(5), 2.0)
    add(one, range(3, 5), 1.0)
    two.close()
    one.close()
    loss = read(tmp_path).scalars("loss")
    points = sorted(zip(loss.step.tolist(), loss.value.tolist(), strict=True))
    assert points == [(step, value) for step in range(5) for value in (1.0, 2.0)]
    assert said() == []


@BOTH
def test_a_recorder_that_was_left_open(tmp_path: Path, processes: int) -> None:
    """As by a cell of a notebook that is run again: it recorded nothing more, so that the next one goes on from it."""
    left = SummaryRecord(tmp_path, num_process=processes)
    add(left, range(15), 1.0)
    left.flush()
    following = SummaryRecord(tmp_path, num_process=processes)
    left.close()
    add(following, range(10, 20), 2.0)
    following.close()
    check(read(tmp_path), CONTINUED)


KILLED = """
import os, sys
import numpy as np
from instrument import SummaryRecord
record = SummaryRecord(sys.argv[1], num_process=int(sys.argv[2]), dialect=sys.argv[3])
for step in range(15):
    record.add_value("scalar", "loss", 1.0)
    record.add_value("histogram", "weights", np.full(3, 1.0))
    assert record.record(step)
if sys.argv[4] == "kill":
    os.kill(os.getpid(), 9)
if sys.argv[4] == "raise":
    raise RuntimeError("no")
"""


@pytest.mark.parametrize(("dialect", "processes"), [("mindspore", 1), ("tensorboard", 1), ("both", 0)])
def test_a_start_right_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str, processes: int
) -> None:
    """While the worker may still write what the killed one had recorded; on this host and on another one."""
    directory = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, str(directory), str(processes), dialect, "kill"]
    ended = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    start(directory, range(10, 20), 2.0, dialect=dialect, num_process=processes)
    run = read(directory)
    check(run, CONTINUED)
    assert [one.state for one in run.starts] == ["killed", "finished"]
    with at(monkeypatch, now=1e9, host="another"):
        start(directory, range(18, 20), 3.0, dialect=dialect, num_process=processes)
    check(read(directory), [*CONTINUED[:18], (18, 3.0), (19, 3.0)])


@pytest.mark.parametrize(
    ("how", "state", "dialect", "processes"),
    [
        ("kill", "killed", "mindspore", 1),
        ("kill", "killed", "tensorboard", 0),
        ("raise", "ended", "both", 1),
        ("leave", "ended", "tensorboard", 1),
        ("leave", "ended", "mindspore", 0),
    ],
)
def test_a_program_that_ends_without_closing(
    tmp_path: Path, dialect: str, processes: int, how: str, state: str
) -> None:
    """Killed, or ended by itself or an exception: these can be told apart, and all that was recorded is there."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(processes), dialect, how]
    subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, capture_output=True)
    deadline = time.monotonic() + 20
    while (run := read(tmp_path)).state == "running":  # a worker may write for a moment
        assert time.monotonic() < deadline
    assert run.state == state
    assert run.scalars("loss").step.tolist() == list(range(15))
    assert run.damage == []


@BOTH
@DIALECTS
def test_the_end_of_a_recorder_is_told(tmp_path: Path, dialect: str, processes: int) -> None:
    """Closed, by itself or by an exception; running until then, and again when another start is at work."""
    record = SummaryRecord(tmp_path, num_process=processes, dialect=dialect)
    add(record, range(2), 1.0)
    record.flush()
    assert read(tmp_path).state == "running"
    record.close()
    record.close()
    assert read(tmp_path).state == "finished"
    assert record.stats.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    again = SummaryRecord(tmp_path, num_process=processes, dialect=dialect)
    add(again, range(2, 3), 1.0)
    again.flush()
    assert read(tmp_path).state == "running"
    with pytest.raises(ZeroDivisionError), again:
        raise ZeroDivisionError("division")
    run = read(tmp_path)
    assert (run.state, run.starts[-1].reason) == ("failed", "ZeroDivisionError: division")
    assert [len(list(tmp_path.glob("*"))), run.damage] == [{"mindspore": 2, "tensorboard": 4, "both": 6}[dialect], []]


def test_an_exception_without_a_text(tmp_path: Path) -> None:
    """Its class is the reason, also where the text cannot be made."""

    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    for error in (KeyboardInterrupt(), Silent()):
        record = SummaryRecord(tmp_path, num_process=0)
        record.__exit__(type(error), error, None)
        assert read(tmp_path).starts[-1].reason == type(error).__name__


def test_a_forked_child_says_nothing_of_an_end(tmp_path: Path) -> None:
    """Its end is not that of the recorder."""
    record = SummaryRecord(tmp_path, num_process=0)
    add(record, range(2), 1.0)
    child = os.fork()
    if not child:
        record.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert read(tmp_path).starts[0].ended is None
    add(record, range(2, 4), 1.0)
    record.close()
    assert (len(read(tmp_path).scalars("loss")), read(tmp_path).state) == (4, "finished")


def test_a_file_at_its_limit_stays_within_it(tmp_path: Path) -> None:
    """Where there is no room for the end there is none."""
    record = SummaryRecord(tmp_path, num_process=0, max_file_size=400)
    for step in range(10):
        record.add_value("scalar", "loss", 1.0)
        record.record(step)
    record.close()
    assert os.path.getsize(record.log_dir) <= 400


def test_lineage_is_that_of_the_last_start_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of files ascend with the starts."""
    for now, value in ((2e9, "first"), (1.9e9, "second"), (1.8e9, "third")):
        with at(monkeypatch, now=now), SummaryRecord(tmp_path, num_process=0) as record:
            record.add_value("custom_lineage_data", "facts", {"start": value, value: 1})
            record.record(1)
    assert read(tmp_path).lineage["custom"] == {"start": "third", "first": 1, "second": 1, "third": 1}


def test_very_many_starts_cost_the_next_one_little(tmp_path: Path) -> None:
    """Of a thousand closed ones only the first and the last event are looked at."""
    start(tmp_path, range(1), 1.0)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    for second in range(1000):
        (tmp_path / path.name.replace(".summary.", f".summary.{second}")).write_bytes(data)
    before = time.process_time()
    start(tmp_path, range(1), 2.0)
    assert time.process_time() - before < 1.0
    assert len(read(tmp_path).scalars("loss")) > 0
