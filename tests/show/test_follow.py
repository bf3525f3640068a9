"""`--follow`, beside a process that records: in a pipe, on a terminal, and how it ends."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from instrument.runs.run import Run, read_run
from instrument.runs.tail import HANDOVER_S, Ending
from instrument.show.cli import main
from instrument.show.cli.follow import LiveDisplay
from tests.runs.build import steps, write
from tests.show.runs import every_kind, training

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
#: Records as many steps as each line of its input says, and says when they are in the file.
RECORDER = """
import sys, time
from instrument.values import Event, ScalarItem
from instrument.write.factory import open_sink
from instrument.write.sink import Target
sink, step = open_sink(Target(sys.argv[1]), int(sys.argv[2])), 0
for line in sys.stdin:
    for step in range(step + 1, step + 1 + int(line)):
        sink.write(Event.of(step, time.time(), (ScalarItem("loss", 1 / step),)))
    sink.flush()
    print(step, flush=True)
sink.close()
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "", "NO_COLOR": "1"}


class Recorder:
    """A process that records when it is told to."""

    def __init__(self, directory: Path, workers: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RECORDER, str(directory), str(workers)], env=environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def record(self, count: int) -> None:
        """Record steps; return when they are in the file."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline()

    def end(self, number: int = 0) -> None:
        """Close the recorder, or end it by a signal."""
        if number:
            self.process.send_signal(number)
        self.process.communicate(timeout=LIMIT_S)


@contextmanager
def recorder(directory: Path, workers: int = 1) -> Iterator[Recorder]:
    made = Recorder(directory, workers)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.end(signal.SIGKILL)


class Follower:
    """A command that follows; on a terminal where there is a size for one."""

    def __init__(self, *words: object, size: tuple[int, int] | None = None) -> None:
        arguments = [sys.executable, "-m", "instrument", *map(str, words), "--follow", "--interval", "0.05"]
        self.shown = b""
        if size is None:
            self._fd, inner = os.pipe()
        else:
            self._fd, inner = pty.openpty()
            self.resize(*size)
        self.process = subprocess.Popen(
            arguments, env=environment(), stdout=inner, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        os.close(inner)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> bool:
        """Take in what was printed; return False at its end."""
        assert select.select([self._fd], [], [], LIMIT_S)[0], self.shown
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # the other end of a terminal is closed
            data = b""
        self.shown += data
        return bool(data)

    def wait_for(self, text: str, after: int = 0) -> int:
        """Wait until a text was printed; return where it ends."""
        deadline = time.monotonic() + LIMIT_S
        while text.encode() not in self.shown[after:]:
            assert time.monotonic() < deadline, self.shown
            assert self.read(), self.shown
        return self.shown.index(text.encode(), after) + len(text.encode())

    def close(self) -> None:
        """Read no more."""
        os.close(self._fd)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return the exit status, and what it printed on both streams."""
        while self.read():
            pass
        os.close(self._fd)
        assert self.process.stderr is not None
        with self.process.stderr:
            err = self.process.stderr.read()
        return self.process.wait(LIMIT_S), self.shown.decode(), err.decode()


@contextmanager
def following(*words: object, size: tuple[int, int] | None = None) -> Iterator[Follower]:
    made = Follower(*words, size=size)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()


def values(directory: Path) -> list[tuple[int, float]]:
    return [(step, value) for step, _, value in read_run(directory).scalars("loss")]


@pytest.mark.parametrize("workers", [0, 1])
def test_lines_come_as_they_are_recorded_until_the_run_ends(tmp_path: Path, workers: int) -> None:
    """In a pipe, from before the directory exists to the last value; the status is 0."""
    run = tmp_path / "not" / "yet"
    with following("scalars", run, "--json") as follower:
        assert follower.process.stderr is not None
        assert follower.process.stderr.readline().decode() == f"instrument: no run at {run} yet; waiting for one\n"
        with recorder(run, workers) as recording:
            recording.record(2)
            follower.wait_for('"step": 2')
            assert b'"step": 3' not in follower.shown
            recording.record(3)
            follower.wait_for('"step": 5')
            recording.record(1)
            recording.end()
        status, out, err = follower.end()
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert [(row["step"], row["value"]) for row in rows] == values(run)
    assert len(rows) == 6
    assert {key: rows[0][key] for key in ("run", "path", "tag")} == {"run": "yet", "path": str(run), "tag": "loss"}


def test_a_trainer_that_is_killed_ends_it_too(tmp_path: Path) -> None:
    """After the last value that its worker could write."""
    with recorder(tmp_path / "run") as recording, following("show", tmp_path, "--csv") as follower:
        recording.record(3)
        follower.wait_for(",3,")
        recording.record(2)
        recording.end(signal.SIGKILL)
        status, out, err = follower.end()
    rows = list(csv.DictReader(out.splitlines()))
    assert (status, err.partition("no run at ")[0]) in [(0, ""), (0, "instrument: ")]  # it may have come first
    assert [(int(row["step"]), float(row["value"])) for row in rows] == values(tmp_path / "run")


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    """As in `... --follow | head`, also where no further point comes."""
    training(tmp_path / "run", [4.0, 2.0])
    os.utime(next((tmp_path / "run").iterdir()))
    with following("scalars", tmp_path / "run") as follower:
        follower.wait_for("loss/auto  step 2  2")
        follower.close()
        assert follower.process.wait(LIMIT_S / 2) == 0


def test_ctrl_c_ends_it_with_130(tmp_path: Path) -> None:
    """Without a word in a pipe; what came before is there."""
    training(tmp_path / "run", [4.0, 2.0])
    os.utime(next((tmp_path / "run").iterdir()))
    with following("scalars", tmp_path / "run", "--tag", "loss*") as follower:
        follower.wait_for("loss/auto  step 2  2")
        follower.process.send_signal(signal.SIGINT)
        status, out, err = follower.end()
    assert (status, err) == (130, "")
    assert [line.split("  ")[1:] for line in out.splitlines()] == [
        ["run", "loss/auto", "step 1", "4"],
        ["run", "loss/auto", "step 2", "2"],
    ]


def test_a_terminal_is_drawn_anew_in_place(tmp_path: Path) -> None:
    """On the alternate screen, in its size, which may change; in the end the table stands where the command was."""
    with following("scalars", tmp_path / "run", size=(12, 60)) as follower:
        place = follower.wait_for("yet; waiting for one")
        with recorder(tmp_path / "run") as recording:
            recording.record(4)
            place = follower.wait_for("1..4", place)
            frame = follower.shown[:place].rsplit(b"\x1b[H", 1)[1].decode()
            assert all(len(line.partition("\x1b")[0]) <= 60 for line in frame.splitlines())
            follower.resize(30, 160)
            recording.record(4)
            follower.wait_for("1..8", place)
            recording.end()
        status, out, err = follower.end()
    assert (status, err) == (0, "")
    drawn, _, rest = out.partition("\x1b[?1049l")
    assert drawn.count("\x1b[?1049h") == 1
    assert "Ctrl+C ends" in drawn
    assert rest.split("\r\n")[1].split()[-2:] == ["8", "1..8"]
    assert "\x1b" not in rest


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_terminal_is_left_as_it_was(tmp_path: Path, number: int, status: int) -> None:
    """Whatever ends the command: cursor, line breaks and the first screen come back."""
    training(tmp_path / "run", [4.0, 2.0])
    os.utime(next((tmp_path / "run").iterdir()))
    with following("show", tmp_path / "run", size=(40, 100)) as follower:
        follower.wait_for("Ctrl+C ends")
        follower.process.send_signal(number)
        ended, out, err = follower.end()
    assert (ended, err) == (status, "")
    rest = out.partition("\x1b[?7h\x1b[?25h\x1b[?1049l")[2]
    assert ("loss/auto" in rest) is (number == signal.SIGINT)


def test_what_a_terminal_has_no_rows_for_is_counted(tmp_path: Path) -> None:
    """The lowest line says how many lines are cut, the status stays."""
    with (tmp_path / "out").open("w+") as file, LiveDisplay(file) as display:
        display.draw("\n".join(map(str, range(40))), "status")
        file.seek(0)
        lines = file.read().partition("\x1b[H")[2].replace("\x1b[K", "").replace("\x1b[J", "").splitlines()
    assert lines[:22] == [*map(str, range(22))]
    assert lines[22:] == ["... and 18 more lines", "status"]


def test_only_the_last_points_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--last`, of each series; a run that ended long ago ends the command at once."""
    path = training(tmp_path / "run", [4.0, 2.0, 1.0], [0.5, 0.75])
    os.utime(next(path.iterdir()), (1.0, 1.0))
    assert main(["scalars", str(path), "--follow", "--last", "1", "--csv"]) == 0
    out, err = capsys.readouterr()
    assert [line.split(",")[2:] for line in out.splitlines()[1:]] == [
        ["loss/auto", "0", "host", "3", "1700000003.0", "1.0"],
        ["eval/accuracy/auto", "0", "host", "20", "1700000020.0", "0.75"],
    ]
    assert err == ""


def test_every_kind_comes_as_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the facts that `show --tag` has; `--tag` chooses, `--rank` as well."""
    path = every_kind(tmp_path / "run")
    for file in path.iterdir():
        os.utime(file, (1.0, 1.0))
    assert main(["show", str(path), "--follow", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["kind"] for row in rows} == {"scalar", "tensor", "graph", "image", "histogram"}
    (histogram,) = [row for row in rows if row["kind"] == "histogram"]
    assert (histogram["count"], histogram["nan_count"]) == (5, 1)
    assert main(["show", str(path), "--follow", "--tag", "w/*"]) == 0
    assert [line.split("  ")[2:] for line in capsys.readouterr().out.splitlines()] == [
        ["w/a", "step 1", "dtype float32, shape 2x3, min -Infinity, max 6, nan count 1"],
        ["w/a", "step 2", "dtype uint64, shape 1, min 9223372036854775809, max 9223372036854775809, nan count 0"],
    ]
    assert main(["show", str(path), "--follow", "--rank", "0", "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(rows)


def test_a_wrong_interval_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers of seconds are above 0."""
    for option, value in (("--interval", "0"), ("--idle", "-1"), ("--interval", "nan")):
        assert main(["scalars", str(tmp_path), "--follow", option, value]) == 2
        assert f"{option} is {value}; it is a number of seconds above 0" in capsys.readouterr().err


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def ending(run: Run, **options: Any) -> tuple[Ending, Clock]:
    clock = Clock()
    return Ending(run, options.get("idle_s", 60.0), clock), clock


def test_a_recorder_that_hands_over_has_not_ended(tmp_path: Path) -> None:
    """A run without locks ends some seconds after the last lock was seen, not at once."""
    with recorder(tmp_path) as recording:
        recording.record(1)
        over, clock = ending(read_run(tmp_path))
        assert not over.is_over()
        clock.now += 1000
        assert not over.is_over()
        recording.end()
    assert not over.is_over()
    clock.now += HANDOVER_S
    assert over.is_over()


def test_a_recorder_that_has_recorded_nothing_yet_is_waited_for(tmp_path: Path) -> None:
    """A training may compile its network for minutes after it opened its recorder."""
    with recorder(tmp_path) as recording:
        recording.record(0)
        over, clock = ending(read_run(tmp_path, follow=True), idle_s=1.0)
        clock.now += 1000
        assert not over.is_over()


def test_files_of_others_end_when_nothing_comes(tmp_path: Path) -> None:
    """They have no locks; a directory without files is waited for."""
    run = read_run(tmp_path / "later", follow=True)
    over, clock = ending(run, idle_s=5.0)
    assert not over.is_over()
    path = write(tmp_path / "later", steps("scalar", "loss", [1], 1.0, start=1.0))
    run.refresh()
    os.utime(path, (clock.now, clock.now))
    assert not over.is_over()
    clock.now += 5
    assert over.is_over()
