"""Kills at random moments: what was taken is in the file exactly once and in order, and nobody waits long.

`make faults` runs the same with many more kills (`INSTRUMENT_TEST_KILLS`), and shows what was counted. Each trainer
draws a dialect; `INSTRUMENT_TEST_DIALECTS=both` has all of them record in that one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.faults import campaign, oracle
from tests.faults.campaign import Tally

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals and /proc are Linux's here")
KILLS = int(os.environ.get("INSTRUMENT_TEST_KILLS") or 10)
KILLS_A_ROUND = 10 if KILLS > 10 else 5
#: The longest that training may be held up by the end of a worker, and that workers may stay when all is written. Few
#: kills are beside other tests, and only show that neither lasts for ever.
BLOCK_SECONDS, STAY_SECONDS = (2.0, 5.0) if KILLS > 10 else (20.0, 20.0)


@pytest.fixture
def seed(rng: np.random.Generator) -> int:
    """What `INSTRUMENT_TEST_SEED` repeats."""
    entropy = rng.bit_generator.seed_seq.entropy  # type: ignore[attr-defined]
    return int(entropy)


@pytest.fixture(scope="module")
def tallies() -> Iterator[list[Tally]]:
    """What was counted; put into the file that `INSTRUMENT_TEST_TALLIES` names."""
    found: list[Tally] = []
    yield found
    if path := os.environ.get("INSTRUMENT_TEST_TALLIES"):
        Path(path).write_text(json.dumps([tally.as_table() for tally in found], indent=2) + "\n")
    oracle.dismiss()


Settle = Callable[[Tally], None]


@pytest.fixture
def settle(tallies: list[Tally]) -> Settle:
    """Hold a tally against the promises."""

    def settle(tally: Tally) -> None:
        tallies.append(tally)
        assert tally.complaints == []
        assert tally.kills >= KILLS // 2
        assert tally.events > 0
        assert (tally.lost, tally.doubled) == (0, 0)
        assert tally.longest_block_a_kill_s <= BLOCK_SECONDS
        assert tally.workers_stayed_s <= STAY_SECONDS

    return settle


def test_trainers_are_killed(tmp_path: Path, seed: int, settle: Settle) -> None:
    """What each was told is in its files, at most one event more, none twice; the workers leave, zombie or not."""
    settle(campaign.kill_trainers(seed, tmp_path, KILLS))


def test_workers_and_then_trainers_are_killed(tmp_path: Path, seed: int, settle: Settle) -> None:
    """What nobody could write any more is in the ring file, and recovery appends it once."""
    settle(campaign.kill_workers_then_trainers(seed, tmp_path, KILLS))


def test_trainers_die_between_two_lines(tmp_path: Path, seed: int, settle: Settle) -> None:
    """The same at moments that no clock would hit, such as in the middle of publishing an event."""
    settle(campaign.trip_trainers(seed, tmp_path, KILLS))


def test_workers_are_killed(tmp_path: Path, seed: int, settle: Settle) -> None:
    """Whatever they were doing, their successors lose nothing and write nothing twice, and training waits little."""
    settle(campaign.kill_workers(seed, tmp_path, KILLS, KILLS_A_ROUND))


def test_workers_die_between_two_lines(tmp_path: Path, seed: int, settle: Settle) -> None:
    """The same, such as behind the write of an event and before it counts as committed."""
    settle(campaign.trip_workers(seed, tmp_path, 2 * KILLS if KILLS > 10 else KILLS, KILLS_A_ROUND))


def test_workers_are_killed_while_a_disk_fills_up(
    tmp_path: Path, seed: int, settle: Settle, small_disk_of: Callable[[str], Path]
) -> None:
    """What was taken is there when there is room again; the file says how many events were refused."""
    settle(campaign.fill_disk(seed, tmp_path / "rounds", KILLS, 2 * KILLS_A_ROUND, small_disk_of("128m")))


@pytest.mark.skipif(find_spec("mindspore") is None, reason="needs MindSpore")
def test_recorders_are_killed(tmp_path: Path, seed: int, settle: Settle) -> None:
    """The same for what users have: workers of `SummaryRecord`, and then MindSpore's process itself."""
    settle(campaign.kill_recorders(seed, tmp_path, KILLS // 2, KILLS_A_ROUND))
