"""Kill all processes of a training at once, at random moments, and count what is lost and what is there twice.

`python -m tests.faults.all_killed KILLS SEED FOLDER` prints a JSON object. Each round forks a trainer, which records in
one of the ways of `WAYS` and notes in mapped memory what was accepted; stops and kills it with everything that it
started, by signals or through its cgroup; and looks at three copies of what is left: as readers see it at once, after
the next recorder, after `instrument repair`. In some rounds those who recover are killed as well.

This process adopts what a trainer has started and left behind, so it is a program of its own.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from instrument.codec.lineage import custom_message
from instrument.eventfile import names
from instrument.eventfile.blocks import EventFileReader
from instrument.events import ArrayItem, Event, MessageItem
from instrument.ringfile import recover
from instrument.ringfile.header import is_ring_file
from instrument.runs.run import Run, read_run
from instrument.show.cli import main as command_line
from instrument.write.factory import open_sink
from instrument.write.sink import Target

_SET_CHILD_SUBREAPER = 36
_CGROUPS = Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")
DIALECTS = ("mindspore", "tensorboard", "both")
#: What a trainer records: small scalars or 4 MB tensors as fast as it can, a step a millisecond, a bit of everything.
WAYS = ("scalars", "tensors", "paced", "mixed")
_TENSOR = 1 << 20
_WAIT_SECONDS = 60.0


def event(way: str, step: int) -> Event:
    """The event of a step; everything in it follows from the step."""
    scalars = {"loss": float(step), "half": step / 2}
    if way == "tensors":
        return Event(
            step, time.time(), [ArrayItem("tensor", "t", np.full(_TENSOR, step, np.float32), "float32")], scalars
        )
    if way == "mixed":
        items = [ArrayItem("tensor", "t", np.full(step % 500, step, np.float32), "float32")]
        if step % 3 == 0:
            items.append(ArrayItem("histogram", "h", np.arange(step % 40, dtype=np.float32)))
        if step % 5 == 0:
            items.append(MessageItem("custom_lineage_data", "info", custom_message({"step": step})))
        return Event(step, time.time(), items, scalars)
    return Event(step, time.time(), (), scalars)


def train(directory: str, dialect: str, way: str, workers: int, book: memoryview) -> None:
    """Record for ever; `book` has the last step that was accepted, and the number of those that were refused."""
    sink = open_sink(Target(directory, dialect=dialect), workers)
    step = 0
    while True:
        step += 1
        if sink.write(event(way, step)):
            book[0] = step
        else:
            book[1] += 1
        if way == "paced":
            time.sleep(0.001)


class Round:
    """One trainer and its end."""

    def __init__(self, seed: int, number: int, folder: Path) -> None:
        self.rng = np.random.default_rng([seed, number])
        self.folder = folder / str(number)
        self.run = self.folder / "run"
        self.run.mkdir(parents=True)
        self.way = WAYS[number % len(WAYS)]
        self.dialect = str(self.rng.choice(DIALECTS))
        self.workers = int(self.rng.choice([1, 1, 1, 3, 0]))
        self.cgroup = _new_cgroup(f"instrument-test-{os.getpid()}-{number}") if number % 2 else None
        self.complaints: list[str] = []
        self.accepted = self.pending = 0

    def kill(self) -> None:
        """Let a trainer record for a while and end all of it."""
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        book = memoryview(memory).cast("Q")
        trainer = _fork(lambda: self._train(book))
        _wait_until(lambda: book[0] > 0 or not psutil.pid_exists(trainer))
        if self.rng.random() < 0.8:
            time.sleep(float(self.rng.random()) * 0.5)
        if self.cgroup is not None:
            (self.cgroup / "cgroup.kill").write_text("1")
        else:
            _kill_all()
        _wait_for_all()
        if self.cgroup is not None:
            self.cgroup.rmdir()
        self.accepted = book[0]
        if book[1]:
            self.complaints.append(f"{book[1]} events were refused")

    def _train(self, book: memoryview) -> None:
        if self.cgroup is not None:
            (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))
        train(str(self.run), self.dialect, self.way, self.workers, book)

    def check(self) -> None:
        """Compare what was accepted with what is there, three times."""
        self.pending = len(_rings(self.run))
        later, repaired = self.folder / "later", self.folder / "repaired"
        shutil.copytree(self.run, later, copy_function=_copy)
        shutil.copytree(self.run, repaired, copy_function=_copy)
        self._check("at once", self.run)
        if self.rng.random() < 0.5:
            _kill_recoveries(self.rng, str(later))
            self._check("after recoveries that were killed", later)
        open_sink(Target(str(later), prefix="next", dialect=self.dialect), 0).close()
        self._check("after the next recorder", later, is_recovered=True)
        with open(os.devnull, "w") as quiet:
            stderr, sys.stderr = sys.stderr, quiet
            try:
                command_line(["repair", str(repaired)])
            finally:
                sys.stderr = stderr
        self._check("after repair", repaired, is_recovered=True)

    def _check(self, when: str, directory: Path, is_recovered: bool = False) -> None:
        complain = self.complaints.append
        run = read_run(directory)
        if run.damage or run.gaps:
            complain(f"{when}: damage {run.damage[:3]}, gaps {run.gaps[:3]}")
        steps = _steps(run)
        # What was under way is there or not.
        if steps not in (list(range(1, self.accepted + 1)), list(range(1, self.accepted + 2))):
            missing = sorted(set(range(1, self.accepted + 1)) - set(steps))
            twice = [step for step, count in Counter(steps).items() if count > 1]
            complain(f"{when}: {self.accepted} accepted, {len(steps)} there, missing {missing[:5]}, twice {twice[:5]}")
            return
        self._check_values(when, run, steps)
        if is_recovered:
            if _rings(directory):
                complain(f"{when}: {_rings(directory)} is left")
            for path in run.files:
                reader = EventFileReader(path)
                for _ in reader:
                    pass
                if reader.damage:
                    complain(f"{when}: {reader.damage[:3]}")

    def _check_values(self, when: str, run: Run, steps: list[int]) -> None:
        if run.scalars("loss").value.tolist() != steps or run.scalars("half").value.tolist() != [
            step / 2 for step in steps
        ]:
            self.complaints.append(f"{when}: a number is another one")
        if self.way not in ("tensors", "mixed") or not steps:
            return
        tensors = run.tensors("t")
        if tensors.step.tolist() != steps:
            self.complaints.append(f"{when}: tensors of the steps {tensors.step.tolist()[-5:]} for {steps[-5:]}")
            return
        for index in {*range(min(len(steps), 3)), *range(max(len(steps) - 12, 0), len(steps))}:
            array = tensors.decode(index).array
            if not (array == steps[index]).all() or (self.way == "tensors" and array.size != _TENSOR):
                self.complaints.append(f"{when}: the tensor of step {steps[index]} is another one")


def _copy(source: str, target: str) -> None:
    """Copy a file; a ring file stays the same one, as it is what its recorder left only then."""
    if is_ring_file(os.path.basename(source)):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _steps(run: Run) -> list[int]:
    return run.points("scalar", "loss", superseded=True).step.tolist() if "loss" in run.tags().get("scalar", []) else []


def _rings(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if is_ring_file(path.name)]


# ---------------------------------------------------------------------- processes


def _fork(function: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        function()
    finally:
        os._exit(1)


def _kill_all() -> None:
    """Stop every process below this one, also those that are just being started, and then kill all of them."""
    seen: set[int] = set()
    while True:
        found = {process.pid for process in psutil.Process().children(recursive=True)} - seen
        if not found:
            break
        for pid in found:
            _signal(pid, signal.SIGSTOP)
        seen |= found
    for pid in seen:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _wait_for_all() -> None:
    """Wait for all that this process has started or adopted."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def _kill_recoveries(rng: np.random.Generator, directory: str) -> None:
    """Have recoveries of a directory begin, and kill each after a moment; the last one may come to its end."""
    for _ in range(int(rng.integers(1, 5))):
        pid = _fork(lambda: recover.recover_all(directory))
        time.sleep(float(rng.random()) ** 3 * 0.1)
        _signal(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _new_cgroup(name: str) -> Path | None:
    """Make a cgroup that can be killed as a whole; None where there is none to be had."""
    for root in _CGROUPS:
        if not (root / "cgroup.controllers").exists():
            continue
        try:
            (root / name).mkdir()
        except OSError:
            continue
        if (root / name / "cgroup.kill").exists():
            return root / name
        (root / name).rmdir()
    return None


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the trainer recorded nothing")
        time.sleep(0.0005)


def rounds(kills: int, seed: int, folder: Path) -> Iterator[Round]:
    for number in range(kills):
        one = Round(seed, number, folder)
        one.kill()
        one.check()
        if not one.complaints:
            shutil.rmtree(one.folder)
        yield one


def main(kills: int, seed: int, folder: Path) -> None:
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    assert names.RING_PREFIX.startswith(".")
    tally: dict[str, Any] = {"kills": 0, "accepted": 0, "with_ring": 0, "through_cgroup": 0}
    ways: Counter[str] = Counter()
    complaints = []
    for one in rounds(kills, seed, folder):
        tally["kills"] += 1
        tally["accepted"] += one.accepted
        tally["with_ring"] += bool(one.pending)
        tally["through_cgroup"] += one.cgroup is not None
        ways[f"{one.way} {one.dialect} {one.workers}"] += 1
        complaints += [f"{one.folder} ({one.way}, {one.dialect}, {one.workers}): {text}" for text in one.complaints]
    print(json.dumps({**tally, "ways": ways, "complaints": complaints}))


def campaign(kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Run the program and return what it prints."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, str(kills), str(seed), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr[-4000:])
    tally: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return tally


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
