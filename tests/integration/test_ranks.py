"""Real processes, each a rank, that record into one directory at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from instrument import read
from tests.integration.conftest import ROOT, SCRIPTS, TIMEOUT_SECONDS

RANKS = 4


@pytest.mark.slow
def test_ranks_that_record_at_once_lose_nothing(tmp_path: Path) -> None:
    """Four ranks begin in one moment: each has files of its own with all of its 200 steps, also where tensors go."""
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPTS / "ranks.py"), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "RANK_ID": str(rank), "RANK_SIZE": str(RANKS)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        for process in started:
            _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
            assert process.returncode == 0, stderr[-4000:]
    finally:
        for process in started:
            process.kill()

    run = read(tmp_path / "run")
    assert run.ranks == list(range(RANKS))
    steps = np.arange(1, 201)
    for rank, loss in run.scalars("loss", superseded=True).by_rank().items():
        assert np.array_equal(loss.step, steps)
        assert np.array_equal(loss.value, rank + 1 / steps)
    exported = [np.load(path).tolist() for path in (tmp_path / "run").glob("export_*/tensor/*.npy")]
    assert sorted(exported) == [[float(rank)] for rank in range(RANKS)]
    assert (run.damage, run.gaps) == ([], [])
