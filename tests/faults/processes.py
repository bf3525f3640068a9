"""Trainers and their workers, seen from outside: by `/proc`, and by the memory that they share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from instrument.write.pool_memory import Config, PoolMemory
from tests.faults import ledger
from tests.faults.trainer import Plan
from tests.write.build import ROOT, wait_until

#: A killed trainer's workers may need so long for a backlog.
BACKLOG_SECONDS = 120.0
#: So long is a worker waited for that does what it is to be killed in.
_AIM_SECONDS = 0.5
_STARTING_SECONDS = 0.1
#: So long may names of others' shared memory be there that look like nobody's.
_OTHERS_SECONDS = 5.0
#: What a worker is to be doing when it is killed (anything at all for an empty word), and how often.
AIMS = {"": 4, "starting": 2, "encoding": 2, "waiting": 2, "writing": 3}
_ALL_AT_ONCE = 0.15
_TRIPWIRE = Path(__file__).parent / "tripwire"
_SHARED_MEMORY = Path("/dev/shm")


class Tripwire(NamedTuple):
    """What `tripwire/sitecustomize.py` is told."""

    module: str
    least_lines: int
    most_lines: int
    deaths: int
    book: str
    places: str

    def read_book(self) -> list[tuple[int, str]]:
        """When somebody died, in nanoseconds of the monotonic clock, and at which line of which file."""
        return [(int(when), place) for when, place in ledger.whole_lines(self.book)]


class Trainer:
    """A trainer process. It is reaped by `reap` only: until then, dead, it is a zombie.

    With `tripwire`, itself or each of its workers, so many of them, dies between two lines.
    """

    def __init__(self, plan: Plan, tripwire: Tripwire | None = None) -> None:
        self.plan = plan
        folders = [ROOT]
        environment = {**os.environ, "GLOG_v": "3"}
        if tripwire is not None:
            folders.append(_TRIPWIRE)
            environment["INSTRUMENT_TEST_TRIPWIRE"] = json.dumps(tripwire)
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, folders), *filter(None, sys.path)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.trainer", json.dumps(plan)], env=environment,
            cwd=Path(plan.book).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None and self.process.returncode is None:
            self.kill()
            self.reap()

    def wait_until_open(self) -> None:
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said == b'{"open": true}\n', self.reap()[1]

    @property
    def state(self) -> str:
        return state(self.process.pid)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)  # `Popen.kill` reaps it where it has ended already

    def living(self) -> list[int]:
        """Every process that has to do with the trainer's directory, but itself; a zombie has no command line."""
        return [pid for pid in _pids_of(self.plan.directory) if pid != self.process.pid]

    def workers(self) -> dict[int, Config]:
        """Its workers by process id."""
        found = {}
        for pid in self.living():
            arguments = _command_line(pid).split(b"\0")
            if b"instrument.write.worker" in arguments:
                found[pid] = Config.from_argument(arguments[-2].decode())
        return found

    def reap(self) -> tuple[dict[str, int], str]:
        """Let it end, or take note of its end: its last word, where it had one, and what it said on standard error."""
        out, error = self.process.communicate(timeout=BACKLOG_SECONDS)
        lines = out.splitlines()
        return json.loads(lines[-1]) if lines else {}, error.decode(errors="replace")


class Hunter:
    """Kills workers of a trainer. It maps their shared memory, to see what they are doing."""

    def __init__(self, trainer: Trainer, rng: np.random.Generator) -> None:
        self._trainer = trainer
        self._rng = rng
        self.kills_ns: list[int] = []
        self.during: Counter[str] = Counter()
        #: How often the file held a part of an event behind what was committed, right after a kill.
        self.torn = 0
        self._employed: set[int] = set()
        self._shot: set[int] = set()
        wait_until(lambda: bool(trainer.workers()))
        config = next(iter(trainer.workers().values()))
        fd = os.open(f"/proc/{trainer.process.pid}/fd/{config.memory}", os.O_RDWR)
        self._pool = PoolMemory(fd)
        os.close(fd)

    def hunt(self) -> None:
        """Kill a worker that does something chosen, or any where none does, or all of them."""
        aim = pick(self._rng, AIMS)
        deadline = time.monotonic() + _AIM_SECONDS
        while True:
            assert self._trainer.state != "Z", self._trainer.reap()
            doing = self._look()
            fit = [pid for pid, what in doing.items() if aim in ("", what)]
            if fit or time.monotonic() > deadline:
                break
        if aim == "starting":
            pause(self._rng.uniform(0, _STARTING_SECONDS))
        victims = list(doing)
        if victims and self._rng.random() >= _ALL_AT_ONCE:
            victims = [int(self._rng.choice(fit or victims))]
        for pid in victims:
            self._shoot(pid, doing[pid])
        self.torn += self._is_torn()

    def wait_for_successors(self) -> None:
        """Return when no worker is missing."""

        def is_complete() -> bool:
            workers = self._trainer.workers()
            return {config.worker for pid, config in workers.items() if pid not in self._shot} >= self._employed

        wait_until(is_complete)

    def _look(self) -> dict[int, str]:
        workers = {pid: config for pid, config in self._trainer.workers().items() if pid not in self._shot}
        self._employed |= {config.worker for config in workers.values()}
        return {pid: self._doing(pid, config) for pid, config in workers.items()}

    def _shoot(self, pid: int, doing: str) -> None:
        now = time.monotonic_ns()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._shot.add(pid)
        self.kills_ns.append(now)
        self.during[doing] += 1

    def _doing(self, pid: int, config: Config) -> str:
        """As it looks; the next moment it may do something else."""
        if _age_seconds(pid) < _STARTING_SECONDS:
            return "starting"
        ring = self._pool.rings[config.worker]
        if ring.head == ring.tail:
            return "idle"
        if state(pid) == "S":
            return "waiting"
        return "writing" if self._is_torn() else "encoding"

    def _is_torn(self) -> bool:
        """Whether a part of an event stands behind what is committed."""
        committed = self._pool.state
        sizes = [_size_bytes(path) for path in ledger.files(self._trainer.plan)]
        is_longer = any(size > length for size, length in zip(sizes, committed.lengths, strict=False))
        return is_longer and self._pool.state == committed


def _size_bytes(path: Path | None) -> int:
    try:
        return path.stat().st_size if path else 0
    except FileNotFoundError:
        return 0


def pick(rng: np.random.Generator, weights: dict[str, int]) -> str:
    """One of the keys, as likely as its weight says."""
    shares = np.array(list(weights.values()))
    return str(rng.choice(list(weights), p=shares / shares.sum()))


def pause(seconds: float) -> None:
    """Until a random moment, not for anything to happen."""
    threading.Event().wait(seconds)


def state(pid: int) -> str:
    """R, S, D, Z, ..., and X where it is no more."""
    return _stat(pid)[0]


def _age_seconds(pid: int) -> float:
    fields = _stat(pid)
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK") if len(fields) > 19 else 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def _stat(pid: int) -> list[str]:
    """What the system says of a process, from its state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ["X"]


def _pids_of(directory: str) -> Iterator[int]:
    wanted = os.fsencode(directory)
    for name in os.listdir("/proc"):
        if name.isdigit() and wanted in _command_line(int(name)):
            yield int(name)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it ended meanwhile


def names_in_shared_memory() -> set[str]:
    return set(os.listdir(_SHARED_MEMORY)) if _SHARED_MEMORY.is_dir() else set()


def left_in_shared_memory(before: set[str]) -> list[str]:
    """New names that nobody uses and nobody takes away: others work on this machine too."""
    deadline = time.monotonic() + _OTHERS_SECONDS
    while (left := names_in_shared_memory() - before - _used_names()) and time.monotonic() < deadline:
        pause(0.1)
    return sorted(left)


def _used_names() -> set[str]:
    """Those that a process maps or holds open."""
    folder = f"{_SHARED_MEMORY}/"
    used = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            held = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue  # it ended meanwhile
        used |= {line.partition(folder)[2] for line in (*maps, *held) if folder in line}
    return used
