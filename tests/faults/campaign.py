"""Trainers and workers that are killed at random moments, and what becomes of what they had taken.

A scenario runs trainers (`trainer.py`) in rounds, two at a time, each with a plan drawn from the campaign's seed; it
kills, waits for the end, has the files checked (`ledger.py`) and adds up a `Tally`. The plans repeat with the seed; the
moments do as far as the machine does.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from instrument.ringfile import recover
from tests.faults import ledger
from tests.faults.processes import (
    BACKLOG_SECONDS,
    Hunter,
    Trainer,
    Tripwire,
    left_in_shared_memory,
    names_in_shared_memory,
    pause,
    pick,
)  # fmt: skip
from tests.faults.trainer import Plan
from tests.write.build import wait_until

_ADDED = ("rounds", "kills", "events", "bytes", "lost", "doubled", "refused", "torn", "shown_to_tensorboard")
_LONGEST = ("longest_block_a_kill_s", "longest_block_without_kill_s", "workers_stayed_s")
#: A call that begins so soon after a kill may be held up by it.
_AFTERMATH_NS = 2_000_000_000
#: A round's kills must have been possible within so long.
_HUNT_SECONDS = 120.0
_Weights = dict[str, int]
#: What is recorded, one as likely as the other; traces are MindSpore's whatever the dialect.
DIALECTS = (os.environ.get("INSTRUMENT_TEST_DIALECTS") or "mindspore,tensorboard,both").split(",")


@dataclass
class Tally:
    """What a scenario found."""

    scenario: str = ""
    seed: int = 0
    rounds: int = 0
    kills: int = 0
    #: Events that were taken, and the size of the files with their values.
    events: int = 0
    bytes: int = 0
    lost: int = 0
    doubled: int = 0
    #: Events that were refused, each of which the trainer was told.
    refused: int = 0
    #: Kills after which a file held a part of an event behind what was committed.
    torn: int = 0
    #: The longest single call of a trainer's, and how many kills fell into it; the longest by the kills in it.
    longest_block_s: float = 0.0
    kills_in_it: int = 0
    longest_block_a_kill_s: float = 0.0
    longest_block_without_kill_s: float = 0.0
    #: How long workers were still there when their trainer was dead and the files complete.
    workers_stayed_s: float = 0.0
    #: Kills by what was going on, and rounds by what was recorded.
    during: Counter[str] = field(default_factory=Counter)
    mixes: Counter[str] = field(default_factory=Counter)
    #: Kills by the dialect of what was recorded, and how many files TensorBoard's own reader was shown.
    dialects: Counter[str] = field(default_factory=Counter)
    shown_to_tensorboard: int = 0
    #: Lines of code before which somebody was killed.
    places: set[str] = field(default_factory=set)
    #: What is wrong, and in which round.
    complaints: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _LONGEST:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        if other.longest_block_s > self.longest_block_s:
            self.longest_block_s, self.kills_in_it = other.longest_block_s, other.kills_in_it
        self.during += other.during
        self.mixes += other.mixes
        self.dialects += other.dialects
        self.places |= other.places
        self.complaints += other.complaints

    def as_table(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "places": len(self.places)}

    def measure_blocks(self, book: list[ledger.Told], kills_ns: list[int]) -> None:
        """How long the trainer's calls took, and which kills fell into them, or just before."""
        kills = np.array(kills_ns, np.int64)
        for one in book:
            seconds = (one.ended_ns - one.began_ns) / 1e9
            before = bool(((kills >= one.began_ns - _AFTERMATH_NS) & (kills < one.began_ns)).any())
            inside = int(np.count_nonzero((kills >= one.began_ns) & (kills <= one.ended_ns))) or before
            if seconds > self.longest_block_s:
                self.longest_block_s, self.kills_in_it = seconds, inside
            if inside:
                self.longest_block_a_kill_s = max(self.longest_block_a_kill_s, seconds / inside)
            else:
                self.longest_block_without_kill_s = max(self.longest_block_without_kill_s, seconds)


Round = Callable[[np.random.Generator, Path, int], Tally]


def _run(name: str, seed: int, folder: Path, kills: list[int], one: Round, at_once: int = 2) -> Tally:
    """Run rounds with so many kills each. The folder of one that went well is not kept."""

    def run(number: int) -> Tally:
        place = folder / str(number)
        place.mkdir(parents=True)
        try:
            tally = one(np.random.default_rng([seed, number]), place, kills[number])
        except Exception:  # noqa: BLE001  the other rounds go on, and the tally says it
            tally = Tally(complaints=[traceback.format_exc()])
        tally.rounds = 1
        tally.dialects = Counter(dict.fromkeys(tally.dialects, tally.kills))
        tally.complaints = [f"round {number}, {place}: {complaint}" for complaint in tally.complaints]
        if not tally.complaints:
            shutil.rmtree(place)
        return tally

    total = Tally(name, seed)
    before = names_in_shared_memory()
    with ThreadPoolExecutor(at_once) as pool:
        for tally in pool.map(run, range(len(kills))):
            total.add(tally)
    total.complaints += [f"/dev/shm/{name} is left" for name in left_in_shared_memory(before)]
    return total


def _plan(rng: np.random.Generator, place: Path, mixes: _Weights, **options: Any) -> Plan:
    """A trainer of any kind."""
    mix = pick(rng, mixes)
    ring_bytes = int(rng.choice((24, 24, 24, 4, 1))) << 20
    if mix == "64 MB" and rng.random() < 0.7:
        ring_bytes = 200 << 20  # so that there is a backlog of them
    plan = Plan(
        str(place / "run"), str(place / "book"), int(rng.integers(1 << 32)), mix, int(rng.integers(1, 4)), ring_bytes,
        drop_when_full=bool(rng.random() < 0.1),
        kind="profile" if mix == "trace" else "summary",
        dialect="mindspore" if mix == "trace" else str(rng.choice(DIALECTS)),
        forks=float(rng.choice((0.0, 0.0, 0.01))) if "front" not in options else 0.0,
        export=bool(mix == "small" and rng.random() < 0.3),
        pace_ms=int(rng.choice((0, 0, 1, 5))),
        flushes=float(rng.choice((0.0, 0.0, 0.01))),
    )  # fmt: skip
    return plan._replace(**options)


def _check(plan: Plan, is_killed: bool, tally: Tally) -> None:
    """Add what the files hold."""
    found = ledger.check(plan, is_killed)
    tally.mixes.update([plan.mix, *(["exported"] if plan.export else []), *(["forks"] if plan.forks else [])])
    tally.dialects[plan.dialect] = 1
    tally.events, tally.bytes = found.events, found.size_bytes
    tally.lost, tally.doubled = found.lost, found.doubled
    tally.refused, tally.shown_to_tensorboard = found.refused, found.asked
    tally.complaints += found.complaints
    if tally.complaints or found.lost or found.doubled:
        tally.complaints.append(f"lost {found.lost}, doubled {found.doubled}: {plan}")


# ---------------------------------------------------------------------- trainers that are killed

TRAINER_MIXES = {"scalars": 3, "small": 6, "mixed": 5, "large": 2, "64 MB": 2, "pictures": 1, "trace": 1}
_BEFORE_OPEN = 0.05
#: Where lines are counted events are small, and rings too: large ones pass through them in chunks.
TRIPWIRE_MIXES = {"scalars": 1, "small": 1, "middle": 1, "chunks": 2}


def _pick_ring(rng: np.random.Generator) -> int:
    """Bytes of a small ring."""
    return int(rng.choice((256, 1024, 4096))) << 10


def kill_trainers(seed: int, folder: Path, kills: int) -> Tally:
    """Kill so many trainers; half of them stay zombies until everything is checked."""

    def one(rng: np.random.Generator, place: Path, _: int) -> Tally:
        tally = Tally(kills=1)
        with Trainer(_plan(rng, place, TRAINER_MIXES, events=_pick_events(rng))) as trainer:
            if rng.random() > _BEFORE_OPEN:
                trainer.wait_until_open()
            pause(rng.choice((rng.uniform(0, 0.8), 10 ** rng.uniform(-4, -0.5))))
            _kill_and_check(rng, trainer, tally)
        return tally

    return _run("trainers killed", seed, folder, [1] * kills, one)


def trip_trainers(seed: int, folder: Path, kills: int) -> Tally:
    """Have so many trainers die between two lines of the code that writes, or at their end."""

    def one(rng: np.random.Generator, place: Path, _: int) -> Tally:
        tally = Tally(kills=1)
        tripwire = _tripwire(place, "tests.faults.trainer", 100, 20_000, 1)
        ring_bytes = _pick_ring(rng)
        plan = _plan(rng, place, TRIPWIRE_MIXES, events=_pick_events(rng), ring_bytes=ring_bytes, pace_ms=0, forks=0.0)
        with Trainer(plan, tripwire) as trainer:
            _wait_for_deaths(trainer, tripwire, tally)
            _kill_and_check(rng, trainer, tally)
        return tally

    return _run("trainers killed between two lines", seed, folder, [1] * kills, one)


#: So long after its workers is a trainer killed.
_LATER_SECONDS = 0.6


def kill_workers_then_trainers(seed: int, folder: Path, kills: int) -> Tally:
    """Kill all workers of a trainer and then itself, before or after there are successors."""

    def one(rng: np.random.Generator, place: Path, _: int) -> Tally:
        tally = Tally(kills=1)
        plan = _plan(rng, place, TRAINER_MIXES, events=-1, forks=0.0, export=False)
        with Trainer(plan) as trainer:
            trainer.wait_until_open()
            pause(rng.uniform(0, 0.3))
            for pid in trainer.workers():
                os.kill(pid, signal.SIGKILL)
            pause(rng.uniform(0, _LATER_SECONDS))
            trainer.kill()
            trainer.process.wait()
            recovered: list[recover.Recovered] = []

            def is_settled() -> bool:
                """Recover; a worker that was just being started empties its ring itself."""
                recovered.extend(recover.recover_all(plan.directory))
                return not trainer.living() and not any(name.startswith(".") for name in os.listdir(plan.directory))

            wait_until(is_settled, BACKLOG_SECONDS)
            tally.during["with a ring file" if recovered else "without a ring file"] += 1
            tally.complaints += [result.problem for result in recovered if result.problem or result.damage]
            _check(plan, True, tally)
        return tally

    return _run("workers, then trainers killed", seed, folder, [1] * kills, one)


def _pick_events(rng: np.random.Generator) -> int:
    """Without end, mostly; after a few a trainer may be killed while it closes."""
    return int(rng.choice((-1, -1, -1, 30)))


def _kill_and_check(rng: np.random.Generator, trainer: Trainer, tally: Tally) -> None:
    tally.during[f"trainer of {len(trainer.workers())} workers"] += 1
    trainer.kill()
    killed_at = time.time()
    is_zombie = rng.random() < 0.5
    if not is_zombie:
        trainer.process.wait()
    wait_until(lambda: trainer.state in "ZX")
    tally.workers_stayed_s, has_backlog = _wait_for_workers(trainer, killed_at)
    tally.during["trainer with a backlog"] += has_backlog
    assert trainer.state == ("Z" if is_zombie else "X")
    _check(trainer.plan, True, tally)
    _, error = trainer.reap()
    if "Traceback" in error:
        tally.complaints.append(error[-2000:])


def _wait_for_workers(trainer: Trainer, killed_at: float) -> tuple[float, bool]:
    """Wait for the last one's end; how long that was after the last byte reached a file, or after the kill, and
    whether any byte came after it.
    """
    wait_until(lambda: not trainer.living(), BACKLOG_SECONDS)
    gone_at = time.time()
    files = [path for path in Path(trainer.plan.directory).rglob("*") if path.is_file()]
    last_at = max([killed_at, *(path.stat().st_mtime for path in files)])
    return gone_at - last_at, last_at > killed_at


# ---------------------------------------------------------------------- workers that are killed

WORKER_MIXES = {"scalars": 1, "small": 2, "mixed": 4, "large": 2, "64 MB": 2, "pictures": 3, "trace": 1}
RECORD_MIXES = {"scalars": 1, "small": 2, "mixed": 2, "large": 1, "64 MB": 1, "pictures": 1}
DISK_MIXES = {"small": 1, "middle": 2}
_DEEDS = {"kill": 4, "fill": 2, "free": 2}


def kill_workers(seed: int, folder: Path, kills: int, kills_a_round: int) -> Tally:
    """Kill so many workers, several of each trainer's, which then closes its recorder."""

    def one(rng: np.random.Generator, place: Path, number: int) -> Tally:
        tally = Tally()
        with Trainer(_plan(rng, place, WORKER_MIXES)) as trainer:
            hunter = _hunt(trainer, rng, number)
            _end(trainer, tally)
        _count(trainer, hunter, tally)
        return tally

    return _run("workers killed", seed, folder, _split(kills, kills_a_round), one)


def trip_workers(seed: int, folder: Path, kills: int, kills_a_round: int) -> Tally:
    """Have so many workers die between two lines of the code that writes."""

    def one(rng: np.random.Generator, place: Path, number: int) -> Tally:
        tally = Tally()
        tripwire = _tripwire(place, "instrument.write.worker", 10, 100_000, number)
        with Trainer(_plan(rng, place, TRIPWIRE_MIXES, ring_bytes=_pick_ring(rng)), tripwire) as trainer:
            _wait_for_deaths(trainer, tripwire, tally)
            _end(trainer, tally)
        died = tripwire.read_book()
        tally.kills = len(died)
        tally.measure_blocks(ledger.read_book(trainer.plan.book), [when for when, _ in died])
        return tally

    return _run("workers killed between two lines", seed, folder, _split(kills, kills_a_round), one)


def _tripwire(place: Path, module: str, least_lines: int, most_lines: int, deaths: int) -> Tripwire:
    places = place.parent / f"places in {module}"  # those of all rounds
    return Tripwire(module, least_lines, most_lines, deaths, str(place / "deaths"), str(places))


def _wait_for_deaths(trainer: Trainer, tripwire: Tripwire, tally: Tally) -> None:
    """Until there were enough of them, or the trainer has ended."""
    wait_until(lambda: len(tripwire.read_book()) >= tripwire.deaths or trainer.state in "ZX", _HUNT_SECONDS)
    for _, place in tripwire.read_book():
        tally.places.add(place)
        tally.during[f"between lines of {place.partition(':')[0]}"] += 1


def kill_recorders(seed: int, folder: Path, kills: int, kills_a_round: int) -> Tally:
    """Kill workers of `SummaryRecord` in MindSpore processes, and then each of these."""

    def one(rng: np.random.Generator, place: Path, number: int) -> Tally:
        tally = Tally(kills=1)
        with Trainer(_plan(rng, place, RECORD_MIXES, front="record")) as trainer:
            hunter = _hunt(trainer, rng, number)
            hunter.wait_for_successors()
            _kill_and_check(rng, trainer, tally)
        _count(trainer, hunter, tally)
        return tally

    return _run("SummaryRecord: workers and trainers killed", seed, folder, _split(kills, kills_a_round), one)


def fill_disk(seed: int, folder: Path, kills: int, kills_a_round: int, disk: Path) -> Tally:
    """Kill workers, and fill a small disk and free it, in any order; it is free at the end."""
    ballast = disk / "ballast"

    def one(rng: np.random.Generator, place: Path, number: int) -> Tally:
        (disk / place.name).mkdir()
        (place / "run").symlink_to(disk / place.name, target_is_directory=True)
        tally = Tally()
        with Trainer(_plan(rng, place, DISK_MIXES, ring_bytes=_pick_ring(rng), export=False, pace_ms=2)) as trainer:
            hunter = _hunt(trainer, rng, number, lambda: _fill_or_free(rng, ballast, tally))
            ballast.unlink(missing_ok=True)
            _end(trainer, tally)
        _count(trainer, hunter, tally)
        if not tally.complaints:
            shutil.rmtree(disk / place.name)
        return tally

    return _run("disk full, workers killed", seed, folder, _split(kills, kills_a_round), one, at_once=1)


def _split(kills: int, kills_a_round: int) -> list[int]:
    """The kills of each round."""
    return [min(kills_a_round, kills - begun) for begun in range(0, kills, kills_a_round)]


def _hunt(
    trainer: Trainer, rng: np.random.Generator, kills: int, what_else: Callable[[], bool] = lambda: False
) -> Hunter:
    """Kill so many workers at random moments, unless there is something else to be done then."""
    trainer.wait_until_open()
    hunter = Hunter(trainer, rng)
    deadline = time.monotonic() + _HUNT_SECONDS
    while len(hunter.kills_ns) < kills:
        assert time.monotonic() < deadline, "there is no worker to be killed"
        pause(rng.uniform(0, 0.25))
        if not what_else():
            hunter.hunt()
    return hunter


def _fill_or_free(rng: np.random.Generator, ballast: Path, tally: Tally) -> bool:
    """Take all the room that is left, or give it back, or neither."""
    deed = pick(rng, _DEEDS)
    if deed == "kill":
        return False
    tally.during[f"disk: {deed}"] += 1
    if deed == "free":
        ballast.unlink(missing_ok=True)
        return True
    with open(ballast, "ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(256 << 10))
        except OSError:
            return True  # it is full


def _end(trainer: Trainer, tally: Tally) -> None:
    """Let a trainer close its recorder, and check what it was told and what it says of itself."""
    stats, error = trainer.reap()
    if trainer.process.returncode or "Traceback" in error:
        tally.complaints.append(f"the trainer's status is {trainer.process.returncode}: {error[-2000:]}")
    wait_until(lambda: not trainer.living())
    _check(trainer.plan, False, tally)
    said = (stats["events"], stats["pending"], stats["dropped"] + stats["lost"])
    if said != (tally.events, 0, tally.refused):
        tally.complaints.append(f"{tally.events} events were taken, {tally.refused} refused; {stats}")


def _count(trainer: Trainer, hunter: Hunter, tally: Tally) -> None:
    tally.kills += len(hunter.kills_ns)
    tally.during += hunter.during
    tally.torn = hunter.torn
    tally.measure_blocks(ledger.read_book(trainer.plan.book), hunter.kills_ns)
