"""All processes of a training are killed at once: what was accepted is there, once, for readers and after recovery.

`make faults` runs the same with many more kills (`INSTRUMENT_TEST_KILLS`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.faults import all_killed

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals and /proc are Linux's here")
KILLS = int(os.environ.get("INSTRUMENT_TEST_KILLS") or 8)


def test_all_processes_are_killed_at_once(tmp_path: Path, rng: np.random.Generator) -> None:
    """At random moments, in all dialects, with workers and without; recovery, too, is killed and loses nothing."""
    tally = all_killed.campaign(KILLS, int(rng.integers(1 << 31)), tmp_path)
    print(tally)
    assert tally["complaints"] == []
    assert tally["kills"] == KILLS
    assert tally["accepted"] > KILLS
    assert tally["with_ring"] > 0 or KILLS <= 10  # a ring holds something for a few milliseconds of a step
